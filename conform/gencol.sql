-- chapter: gencol
-- feature: virtual and stored columns
CREATE TABLE t(a INTEGER PRIMARY KEY, b INT, c TEXT, d INT GENERATED ALWAYS AS (a * abs(b)) VIRTUAL, e TEXT GENERATED ALWAYS AS (substr(c, b, b + 1)) STORED, f AS (d || e));
INSERT INTO t(a, b, c) VALUES (1, 1, 'abcdef'), (2, -2, 'ghijkl'), (3, NULL, 'mno');
SELECT * FROM t;
UPDATE t SET b = 3 WHERE a = 2;
SELECT d, e, f FROM t WHERE a = 2;
SELECT a FROM t WHERE d > 1;
INSERT INTO t VALUES (4, 2, 'xyz');
INSERT INTO t VALUES (5, 2, 'xyz', 1, 2, 3);
PRAGMA table_xinfo(t);
PRAGMA table_info(t);
-- feature: generated columns cannot be written
INSERT INTO t(a, d) VALUES (9, 9);
UPDATE t SET d = 5;
INSERT INTO t(a, b, c) SELECT a + 10, b, c FROM t;
SELECT count(*), sum(d) FROM t;
-- feature: types and affinities of generated columns
CREATE TABLE y(a, b TEXT AS (a), c INT AS (a || ''), d AS (a), e REAL AS (a) STORED);
INSERT INTO y(a) VALUES (5), ('5'), (x'35'), (NULL);
SELECT typeof(b), typeof(c), typeof(d), typeof(e) FROM y;
-- feature: constraints on generated columns
CREATE TABLE k(a INT, b AS (a + 1) UNIQUE, c AS (a * 2) NOT NULL, d AS (a) CHECK (d < 10));
INSERT INTO k(a) VALUES (1), (2);
INSERT INTO k(a) VALUES (1);
INSERT INTO k(a) VALUES (NULL);
INSERT INTO k(a) VALUES (10);
SELECT * FROM k;
-- feature: indexes on generated columns
CREATE INDEX t_d ON t(d);
CREATE INDEX t_e ON t(e) WHERE f IS NOT NULL;
SELECT a FROM t INDEXED BY t_d WHERE d = 3;
EXPLAIN QUERY PLAN SELECT a FROM t WHERE d = 3;
UPDATE t SET b = b + 1 WHERE b IS NOT NULL;
SELECT a, d, e FROM t ORDER BY a;
PRAGMA integrity_check;
-- feature: generated columns that use others, in any order
CREATE TABLE o(a AS (b + 1), b AS (c + 1), c INT);
INSERT INTO o(c) VALUES (1), (NULL);
SELECT * FROM o;
CREATE TABLE bad(a AS (b), b AS (a));
CREATE TABLE bad(a AS (a + 1));
-- feature: foreign keys on generated columns
CREATE TABLE parent(id INTEGER PRIMARY KEY);
CREATE TABLE child(raw TEXT, parent INT AS (CAST(raw AS INT)) STORED REFERENCES parent);
INSERT INTO parent VALUES (1);
INSERT INTO child(raw) VALUES ('1');
INSERT INTO child(raw) VALUES ('2');
DELETE FROM parent;
SELECT * FROM child;
-- feature: what is refused
CREATE TABLE bad(a AS (1) PRIMARY KEY);
CREATE TABLE bad(a, b AS (a) DEFAULT 5);
CREATE TABLE bad(a, b AS (SELECT 1));
CREATE TABLE bad(a, b AS (random()));
CREATE TABLE bad(a, b AS (sum(a)));
CREATE TABLE bad(b AS (1));
CREATE TABLE bad(a, b AS (rowid));
CREATE TABLE bad(a, b AS (nothing));
CREATE TABLE bad(a, b AS (datetime('now')));
INSERT INTO bad(a) VALUES (1);
-- feature: ALTER TABLE ADD of a generated column
ALTER TABLE t ADD COLUMN g INT AS (b * 100);
ALTER TABLE t ADD COLUMN h INT AS (b * 100) STORED;
SELECT a, g FROM t ORDER BY a;
ALTER TABLE t DROP COLUMN g;
ALTER TABLE t DROP COLUMN b;
CREATE TABLE made AS SELECT * FROM t;
SELECT sql FROM sqlite_schema WHERE name = 'made';
