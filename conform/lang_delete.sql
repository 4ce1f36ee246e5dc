-- chapter: lang_delete
CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b TEXT);
CREATE INDEX t_a ON t(a);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) INSERT INTO t SELECT i, i % 7, 'row ' || i FROM n;
-- feature: WHERE
DELETE FROM t WHERE id = 1;
DELETE FROM t WHERE id = 1;
DELETE FROM t WHERE a = 3 AND id > 20;
DELETE FROM t WHERE id IN (SELECT id FROM t WHERE b LIKE '%9');
DELETE FROM t WHERE NULL;
DELETE FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.id = t.id + 1 AND u.a = 0);
SELECT count(*), sum(id) FROM t;
DELETE FROM t AS u WHERE u.id = 2;
DELETE FROM main.t WHERE t.id = 4;
-- feature: INDEXED BY
DELETE FROM t INDEXED BY t_a WHERE a = 5 AND id < 10;
DELETE FROM t NOT INDEXED WHERE a = 5 AND id < 20;
DELETE FROM t INDEXED BY nothing WHERE a = 5;
SELECT count(*), sum(id) FROM t;
-- feature: CTEs before a DELETE
WITH last(id) AS (SELECT max(id) FROM t) DELETE FROM t WHERE id = (SELECT id FROM last);
SELECT max(id) FROM t;
-- feature: LIMIT is not compiled in
DELETE FROM t ORDER BY id LIMIT 1;
DELETE FROM t LIMIT 1;
-- feature: all rows at once, and how many they were
SELECT count(*) FROM t;
DELETE FROM t;
SELECT count(*) FROM t;
INSERT INTO t VALUES (1, 1, 'again');
BEGIN;
DELETE FROM t;
SELECT count(*), changes() FROM t;
ROLLBACK;
SELECT * FROM t;
-- feature: what cannot be deleted from
DELETE FROM nowhere;
DELETE FROM t WHERE nothing = 1;
DELETE t WHERE id = 1;
DELETE FROM sqlite_schema WHERE name = 't';
CREATE VIEW v AS SELECT * FROM t;
DELETE FROM v;
DELETE FROM pragma_table_info('t');
