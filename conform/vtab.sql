-- chapter: vtab
-- feature: table-valued functions
SELECT value FROM json_each('[3,1,2]') ORDER BY value;
SELECT name FROM pragma_table_info('sqlite_schema');
SELECT * FROM generate_series(1, 3);
SELECT j.key, j.value FROM json_each('{"a":1}') AS j;
SELECT value FROM json_each WHERE json = '[5,6]';
SELECT json_each.value FROM json_each('[1]');
SELECT value FROM json_each('[1]', '$', 'too many');
SELECT value FROM json_each() ;
SELECT * FROM sqlite_schema('x');
CREATE TABLE t(a INT, list TEXT);
INSERT INTO t VALUES (1, '[1,2]'), (2, '[]'), (3, '[3]'), (4, NULL);
SELECT a, value FROM t, json_each(t.list) ORDER BY a, value;
SELECT a, value FROM t LEFT JOIN json_each(t.list) ORDER BY a, value;
SELECT a FROM t WHERE 3 IN (SELECT value FROM json_each(list));
UPDATE t SET a = (SELECT sum(value) FROM json_each(t.list)) WHERE list LIKE '[%';
SELECT * FROM t ORDER BY list;
-- chapter: lang_createvtab
-- feature: eponymous tables cannot be made or changed
CREATE VIRTUAL TABLE j USING json_each;
CREATE VIRTUAL TABLE j USING nothing_at_all(1);
INSERT INTO json_each VALUES (1);
DROP TABLE json_each;
CREATE VIRTUAL TABLE IF NOT EXISTS f USING fts5(x);
CREATE VIRTUAL TABLE IF NOT EXISTS f USING fts5(y);
CREATE VIRTUAL TABLE f USING fts5(y);
CREATE INDEX fi ON f(x);
CREATE TRIGGER ft AFTER INSERT ON f BEGIN SELECT 1; END;
ALTER TABLE f ADD COLUMN z;
ALTER TABLE f RENAME COLUMN x TO z;
INSERT INTO f VALUES ('in a virtual table');
SELECT * FROM f JOIN t ON t.a = f.rowid + 2;
DROP TABLE f;
-- chapter: dbstat
-- feature: dbstat
CREATE TABLE d(a INTEGER PRIMARY KEY, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) INSERT INTO d SELECT i, printf('%.*c', 50, 'x') FROM n;
SELECT name, pagetype, ncell, payload FROM dbstat WHERE name = 'd' ORDER BY path;
SELECT name, sum(pgsize) FROM dbstat('main', 1) WHERE name = 'd';
SELECT count(*) > 0 FROM dbstat WHERE aggregate = TRUE;
SELECT sum(payload) FROM dbstat('main') WHERE name = 'd';
DELETE FROM dbstat;
-- chapter: bytecodevtab
-- feature: bytecode and other tables that are not in this build, as plain SQLite says
SELECT count(*) FROM bytecode('SELECT 1');
SELECT count(*) FROM tables_used('SELECT 1');
SELECT * FROM sqlite_dbpage;
SELECT * FROM sqlite_stmt;
SELECT * FROM completion('SEL');
SELECT * FROM carray;
SELECT * FROM csv;
