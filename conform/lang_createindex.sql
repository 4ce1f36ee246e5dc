-- chapter: lang_createindex
CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b TEXT, c REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) INSERT INTO t SELECT i, i * 37 % 11, char(65 + i % 7), i / 3.0 FROM n;
-- feature: indexes of one and of several columns
CREATE INDEX t_a ON t(a);
CREATE INDEX t_ba ON t(b, a DESC);
CREATE INDEX IF NOT EXISTS t_a ON t(b);
CREATE INDEX t_a ON t(b);
CREATE INDEX main.t_c ON t(c);
SELECT id FROM t WHERE a = 5 ORDER BY id;
SELECT id FROM t WHERE b = 'B' AND a > 5 ORDER BY a, id;
SELECT b, max(a) FROM t GROUP BY b ORDER BY b;
EXPLAIN QUERY PLAN SELECT id FROM t WHERE a = 5;
EXPLAIN QUERY PLAN SELECT a FROM t WHERE b = 'B' ORDER BY a DESC;
PRAGMA index_list(t);
PRAGMA index_info(t_ba);
PRAGMA index_xinfo(t_ba);
-- feature: UNIQUE indexes
CREATE UNIQUE INDEX t_unique ON t(a);
CREATE UNIQUE INDEX t_id_b ON t(id, b);
CREATE TABLE u(a, b);
CREATE UNIQUE INDEX u_a ON u(a);
INSERT INTO u VALUES (1, 1), (NULL, 2), (NULL, 3);
INSERT INTO u VALUES (1, 4);
INSERT INTO u VALUES (1.0, 4);
INSERT INTO u VALUES ('1', 4);
SELECT a, typeof(a) FROM u ORDER BY rowid;
-- feature: collations in an index
CREATE INDEX t_b_nocase ON t(b COLLATE NOCASE);
SELECT count(*) FROM t WHERE b = 'b' COLLATE NOCASE;
EXPLAIN QUERY PLAN SELECT count(*) FROM t WHERE b = 'b' COLLATE NOCASE;
CREATE INDEX bad ON t(b COLLATE nothing);
-- feature: what cannot be indexed
CREATE INDEX bad ON t(nothing);
CREATE INDEX bad ON nowhere(a);
CREATE VIEW v AS SELECT * FROM t;
CREATE INDEX bad ON v(a);
CREATE INDEX bad ON sqlite_schema(name);
CREATE INDEX sqlite_bad ON t(a);
CREATE INDEX t ON t(a);
CREATE INDEX bad ON t();
CREATE INDEX bad ON t((SELECT 1));
CREATE INDEX bad ON t(a) WHERE b = (SELECT 1);
-- feature: an index of an index's own table in a block
BEGIN;
CREATE INDEX temporary_one ON t(c, b);
SELECT id FROM t INDEXED BY temporary_one WHERE c > 19;
ROLLBACK;
SELECT id FROM t INDEXED BY temporary_one WHERE c > 19;
-- chapter: lang_dropindex
-- feature: DROP INDEX
DROP INDEX t_c;
DROP INDEX t_c;
DROP INDEX IF EXISTS t_c;
DROP INDEX main.t_ba;
DROP INDEX t;
CREATE TABLE auto(a UNIQUE);
DROP INDEX sqlite_autoindex_auto_1;
EXPLAIN QUERY PLAN SELECT a FROM t WHERE b = 'B' ORDER BY a DESC;
SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY name;
PRAGMA integrity_check;
-- chapter: lang_reindex
-- feature: REINDEX of a table, an index, a collation, everything
REINDEX t_a;
REINDEX t;
REINDEX main.t;
REINDEX NOCASE;
REINDEX;
REINDEX nothing;
REINDEX main.nothing;
SELECT count(*) FROM t WHERE a = 5;
BEGIN;
REINDEX t;
INSERT INTO t VALUES (100, 5, 'x', 1);
SELECT count(*) FROM t INDEXED BY t_a WHERE a = 5;
COMMIT;
-- chapter: lang_indexedby
-- feature: INDEXED BY and NOT INDEXED
SELECT count(*) FROM t INDEXED BY t_a WHERE a > 3;
SELECT count(*) FROM t INDEXED BY t_a;
SELECT count(*) FROM t NOT INDEXED WHERE a > 3;
SELECT count(*) FROM t INDEXED BY u_a WHERE a > 3;
UPDATE t INDEXED BY t_a SET c = 0 WHERE a = 5;
DELETE FROM t INDEXED BY t_a WHERE a = 5 AND id = 100;
EXPLAIN QUERY PLAN SELECT count(*) FROM t NOT INDEXED WHERE a > 3;
SELECT count(*) FROM t AS x INDEXED BY t_a JOIN u NOT INDEXED WHERE x.a = 2;
