-- chapter: lang_analyze
CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b INT, c TEXT);
CREATE INDEX t_a ON t(a);
CREATE INDEX t_b ON t(b);
CREATE INDEX t_ab ON t(a, b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO t SELECT i, i % 2, i % 100, 'c' || i FROM n;
-- feature: plans before and after ANALYZE
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 1 AND b = 5;
SELECT count(*) FROM t WHERE a = 1 AND b = 5;
ANALYZE;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 1 AND b = 5;
SELECT id FROM t WHERE a = 1 AND b = 5 ORDER BY id;
SELECT * FROM sqlite_stat1 ORDER BY tbl, idx;
SELECT tbl, idx, neq, nlt, ndlt, hex(sample) FROM sqlite_stat4 ORDER BY 1, 2, 4;
-- feature: ANALYZE again after the data have changed
UPDATE t SET b = 1, a = id;
ANALYZE;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 1 AND b = 1;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a > 390 AND b = 1;
SELECT * FROM sqlite_stat1 ORDER BY tbl, idx;
UPDATE t SET a = 7, b = id;
ANALYZE t;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 7 AND b = 1;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 7 AND b > 1 ORDER BY b LIMIT 5;
SELECT id FROM t WHERE a = 7 AND b = 1;
-- feature: ANALYZE of a table, an index, a schema
ANALYZE t_a;
ANALYZE main;
ANALYZE main.t;
ANALYZE nowhere;
ANALYZE main.nowhere;
SELECT idx, stat FROM sqlite_stat1 ORDER BY 1;
-- feature: statistics that are written by hand
UPDATE sqlite_stat1 SET stat = '1000000 1000000' WHERE idx = 't_b';
DELETE FROM sqlite_stat4;
ANALYZE sqlite_schema;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 7 AND b = 1;
INSERT INTO sqlite_stat1 VALUES ('nowhere', 'nothing', '1 1');
DELETE FROM sqlite_stat1;
ANALYZE sqlite_schema;
-- No plans from here to the next ANALYZE: SQLite goes on with statistics that are gone, as long as
-- the connection lives, so that two connections of plain SQLite disagree.
SELECT id FROM t WHERE a = 7 AND b = 1;
-- feature: ANALYZE in a transaction
BEGIN;
ANALYZE;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 7 AND b = 1;
ROLLBACK;
SELECT count(*) FROM sqlite_stat1;
BEGIN;
DELETE FROM t WHERE id > 50;
ANALYZE;
SELECT id FROM t WHERE a = 7 AND b < 5 ORDER BY id;
COMMIT;
EXPLAIN QUERY PLAN SELECT * FROM t WHERE a = 7 AND b = 1;
SELECT * FROM sqlite_stat1 ORDER BY tbl, idx;
-- feature: empty tables, partial indexes, tables without rowid
CREATE TABLE empty(a PRIMARY KEY);
CREATE TABLE w(a PRIMARY KEY, b) WITHOUT ROWID;
INSERT INTO w VALUES (1, 1), (2, 1), (3, 2);
CREATE INDEX w_b ON w(b);
CREATE INDEX t_part ON t(c) WHERE a = 7;
ANALYZE;
SELECT * FROM sqlite_stat1 ORDER BY tbl, idx;
DROP INDEX t_part;
DROP TABLE w;
SELECT DISTINCT tbl FROM sqlite_stat1 ORDER BY tbl;
ALTER TABLE t RENAME TO u;
SELECT DISTINCT tbl FROM sqlite_stat1 ORDER BY tbl;
EXPLAIN QUERY PLAN SELECT * FROM u WHERE a = 7 AND b = 1;
DROP TABLE sqlite_stat1;
DROP TABLE sqlite_stat4;
SELECT id FROM u WHERE a = 7 AND b = 1;
PRAGMA analysis_limit;
PRAGMA analysis_limit = 10;
