-- chapter: expridx
-- feature: an index on an expression
CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b TEXT, j TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) INSERT INTO t SELECT i, i - 25, 'Name ' || (i % 9), json_object('n', i % 10, 's', 's' || i) FROM n;
CREATE INDEX t_abs ON t(abs(a));
CREATE INDEX t_lower ON t(lower(b), id);
CREATE INDEX t_json ON t(j ->> '$.n');
CREATE INDEX t_sum ON t(a + id);
SELECT id FROM t WHERE abs(a) = 5 ORDER BY id;
SELECT id FROM t WHERE lower(b) = 'name 3' ORDER BY id;
SELECT id FROM t WHERE j ->> '$.n' = 7 ORDER BY id;
SELECT id FROM t WHERE a + id > 70 ORDER BY a + id;
EXPLAIN QUERY PLAN SELECT id FROM t WHERE abs(a) = 5;
EXPLAIN QUERY PLAN SELECT id FROM t WHERE lower(b) = 'name 3';
EXPLAIN QUERY PLAN SELECT id FROM t WHERE j ->> '$.n' = 7;
EXPLAIN QUERY PLAN SELECT id FROM t WHERE id + a > 70;
EXPLAIN QUERY PLAN SELECT id FROM t WHERE a + id > 70;
-- feature: changes keep it right
UPDATE t SET a = -a WHERE id < 10;
UPDATE t SET j = json_set(j, '$.n', 7) WHERE id = 1;
UPDATE t SET j = 'not json' WHERE id = 2;
INSERT INTO t VALUES (51, 5, 'NAME 3', '{"n":7}');
INSERT INTO t VALUES (52, -9223372036854775808, 'x', '{}');
INSERT INTO t VALUES (53, 1, 'x', '{bad');
SELECT id FROM t WHERE j ->> '$.n' = 7 ORDER BY id;
SELECT count(*) FROM t INDEXED BY t_abs WHERE abs(a) = 5;
PRAGMA integrity_check;
-- feature: UNIQUE on an expression
CREATE TABLE u(name TEXT);
CREATE UNIQUE INDEX u_name ON u(lower(trim(name)));
INSERT INTO u VALUES ('Anna'), ('Ben');
INSERT INTO u VALUES (' ANNA ');
INSERT OR REPLACE INTO u VALUES (' ANNA ');
INSERT INTO u VALUES ('ben') ON CONFLICT (lower(trim(name))) DO UPDATE SET name = excluded.name || '!';
SELECT name FROM u ORDER BY rowid;
-- feature: expressions that are refused
CREATE INDEX bad ON t(random());
CREATE INDEX bad ON t(a + (SELECT 1));
CREATE INDEX bad ON t(datetime('now'));
CREATE INDEX bad ON t(count(a));
CREATE INDEX bad ON t(nothing + 1);
CREATE INDEX bad ON t(?1);
CREATE TABLE bad(a, UNIQUE (a + 1));
CREATE TABLE bad(a, PRIMARY KEY (lower(a)));
CREATE INDEX constant ON t('a');
PRAGMA index_xinfo(t_sum);
SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY 1;
