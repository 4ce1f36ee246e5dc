-- chapter: lang_createtable
-- feature: columns, declared types and affinities
CREATE TABLE types(a INT, b INTEGER, c TINYINT, d VARCHAR(255), e CLOB, f BLOB, g, h REAL, i DOUBLE PRECISION, j FLOAT, k NUMERIC, l DECIMAL(10,5), m BOOLEAN, n DATE, o "UNSIGNED BIG INT", p CHARINT, q FLOATING POINT, r STRING);
INSERT INTO types VALUES ('1','1','1',1,1,1,1,'1','1','1','1','1','1','1','1','1','1','1');
SELECT typeof(a),typeof(b),typeof(c),typeof(d),typeof(e),typeof(f),typeof(g),typeof(h),typeof(i),typeof(j),typeof(k),typeof(l),typeof(m),typeof(n),typeof(o),typeof(p),typeof(q),typeof(r) FROM types;
INSERT INTO types(a,d,f,h,k) VALUES ('x', 2.5, 'y', 'z', '3.0e+5');
SELECT a,d,f,h,k FROM types;
SELECT typeof(a),typeof(d),typeof(f),typeof(h),typeof(k) FROM types;
PRAGMA table_info(types);
-- feature: IF NOT EXISTS
CREATE TABLE IF NOT EXISTS types(other);
CREATE TABLE types(other);
CREATE TABLE IF NOT EXISTS fresh(a);
CREATE TABLE Types(other);
SELECT name, sql FROM sqlite_schema ORDER BY name;
-- feature: CREATE TABLE AS SELECT
CREATE TABLE made AS SELECT 1 AS a, 'x' AS b, 2.5 AS c, NULL AS d, x'00' AS e UNION ALL SELECT 2, 'y', 3.5, 4, 'z';
SELECT * FROM made;
SELECT sql FROM sqlite_schema WHERE name = 'made';
CREATE TABLE made2 AS SELECT a, h, count(*) FROM types GROUP BY 1, 2;
PRAGMA table_info(made2);
CREATE TABLE empty AS SELECT * FROM made WHERE 0;
SELECT count(*) FROM empty;
CREATE TABLE twice AS SELECT 1 AS a, 2 AS a, 3 AS A;
SELECT * FROM twice;
CREATE TABLE wrong AS SELECT nothing FROM made;
CREATE TABLE vals AS VALUES (1, 2), (3, 4);
SELECT column1, column2 FROM vals;
-- feature: DEFAULT
CREATE TABLE d(id INTEGER PRIMARY KEY, a DEFAULT 1, b DEFAULT -2.5, c DEFAULT 'text', e DEFAULT x'0102', f DEFAULT NULL, g DEFAULT (1 + 2 * 3), h DEFAULT (upper('abc')), i DEFAULT TRUE, j DEFAULT current, k TEXT DEFAULT 5);
INSERT INTO d DEFAULT VALUES;
INSERT INTO d(a, g) VALUES (NULL, NULL);
SELECT * FROM d;
SELECT typeof(k) FROM d LIMIT 1;
CREATE TABLE now(id, t TEXT DEFAULT CURRENT_TIMESTAMP, u DEFAULT (datetime('now')), v DEFAULT CURRENT_DATE, w DEFAULT CURRENT_TIME);
SELECT sql FROM sqlite_schema WHERE name = 'now';
CREATE TABLE bad(a DEFAULT (b), b);
CREATE TABLE bad(a DEFAULT (SELECT 1));
CREATE TABLE bad(a DEFAULT (count(*)));
CREATE TABLE bad(a DEFAULT ?);
-- feature: PRIMARY KEY of one and of several columns
CREATE TABLE pk1(a TEXT PRIMARY KEY, b);
INSERT INTO pk1 VALUES ('k', 1), (NULL, 2), (NULL, 3);
INSERT INTO pk1 VALUES ('k', 4);
SELECT * FROM pk1 ORDER BY b;
CREATE TABLE pk2(a, b, c, PRIMARY KEY (a, b DESC));
INSERT INTO pk2 VALUES (1, 1, 'x'), (1, 2, 'y'), (2, 1, 'z');
INSERT INTO pk2 VALUES (1, 2, 'again');
SELECT * FROM pk2 ORDER BY a, b;
CREATE TABLE bad(a PRIMARY KEY, b PRIMARY KEY);
CREATE TABLE bad(a, PRIMARY KEY (b));
CREATE TABLE bad(a, PRIMARY KEY (a), PRIMARY KEY (a));
CREATE TABLE bad(a PRIMARY KEY, PRIMARY KEY (a));
PRAGMA index_list(pk2);
PRAGMA index_xinfo(sqlite_autoindex_pk2_1);
-- feature: UNIQUE
CREATE TABLE u(a UNIQUE, b, c, UNIQUE (b, c), CONSTRAINT named UNIQUE (c, a));
INSERT INTO u VALUES (1, 1, 1), (2, 1, 2), (NULL, NULL, 1), (NULL, NULL, 1);
INSERT INTO u VALUES (1, 5, 5);
INSERT INTO u VALUES (6, 1, 2);
SELECT * FROM u ORDER BY rowid;
PRAGMA index_list(u);
CREATE TABLE bad(a, UNIQUE (nothing));
-- feature: NOT NULL
CREATE TABLE nn(a NOT NULL, b INT NOT NULL DEFAULT 5);
INSERT INTO nn(a) VALUES (1);
INSERT INTO nn(a, b) VALUES (1, NULL);
INSERT INTO nn(b) VALUES (1);
UPDATE nn SET a = NULL;
SELECT * FROM nn;
-- feature: CHECK
CREATE TABLE ck(a CHECK (a > 0), b, c, CONSTRAINT b_before_c CHECK (b < c), CHECK (typeof(c) = 'integer' OR c IS NULL));
INSERT INTO ck VALUES (1, 1, 2), (NULL, NULL, NULL);
INSERT INTO ck VALUES (0, 1, 2);
INSERT INTO ck VALUES (1, 3, 2);
INSERT INTO ck VALUES (1, 1, 'text');
UPDATE ck SET a = -a;
SELECT * FROM ck;
CREATE TABLE bad(a CHECK (nothing > 0));
CREATE TABLE bad(a CHECK (a > (SELECT 1)));
CREATE TABLE bad(a CHECK (a > ?1));
CREATE TABLE ok(a CHECK (a > random() * 0));
-- feature: COLLATE of a column
CREATE TABLE co(a TEXT COLLATE NOCASE UNIQUE, b TEXT COLLATE RTRIM, c TEXT);
INSERT INTO co VALUES ('Abc', 'x  ', 'y');
INSERT INTO co VALUES ('aBC', 'z', 'z');
SELECT count(*) FROM co WHERE a = 'ABC' AND b = 'x' AND c = 'y ';
CREATE TABLE bad(a COLLATE nothing);
INSERT INTO bad VALUES (1);
CREATE INDEX bad_a ON bad(a);
-- feature: names that need quotes, and names that are taken
CREATE TABLE "a table"("a column" INT, "select", [from], `where`);
INSERT INTO "a table"("a column", "select", [from], `where`) VALUES (1, 2, 3, 4);
SELECT "a column", "select", [from], `where` FROM "a table";
SELECT "a table"."from" FROM "a table";
CREATE TABLE sqlite_mine(a);
CREATE TABLE dup(a, A);
CREATE TABLE "";
CREATE TABLE nocolumns();
CREATE TABLE main.inmain(a);
SELECT name FROM main.sqlite_schema WHERE name = 'inmain';
CREATE TABLE other.inother(a);
CREATE TABLE select(a);
CREATE TABLE abort(action, after, key);
SELECT action FROM abort;
-- feature: ROWID names that are hidden by columns
CREATE TABLE hidden(rowid TEXT, oid INT, x INTEGER PRIMARY KEY);
INSERT INTO hidden VALUES ('r', 5, 7);
SELECT rowid, oid, _rowid_, x FROM hidden;
-- feature: the schema as it is kept
CREATE TABLE   spaced  ( a   INT ,
   b -- a comment
   TEXT );
SELECT sql FROM sqlite_schema WHERE name = 'spaced';
-- chapter: lang_droptable
-- feature: DROP TABLE
CREATE TABLE gone(a PRIMARY KEY, b);
CREATE INDEX gone_b ON gone(b);
CREATE TRIGGER gone_t AFTER INSERT ON gone BEGIN SELECT 1; END;
DROP TABLE gone;
SELECT name FROM sqlite_schema WHERE tbl_name = 'gone';
DROP TABLE gone;
DROP TABLE IF EXISTS gone;
DROP TABLE IF EXISTS main.fresh;
DROP TABLE sqlite_schema;
CREATE VIEW a_view AS SELECT 1;
DROP TABLE a_view;
SELECT * FROM fresh;
-- feature: DROP TABLE in a transaction
CREATE TABLE kept(a);
INSERT INTO kept VALUES (1), (2);
BEGIN;
DROP TABLE kept;
SELECT * FROM kept;
CREATE TABLE kept(b);
INSERT INTO kept VALUES (3);
SELECT * FROM kept;
ROLLBACK;
SELECT * FROM kept;
-- feature: names that belong to the engine
CREATE TABLE monolite_mine(x);
CREATE VIEW Monolite_view AS SELECT 1;
CREATE INDEX "monolite_index" ON nowhere(x);
