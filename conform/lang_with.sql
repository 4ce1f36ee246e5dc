-- chapter: lang_with
-- feature: ordinary common table expressions
WITH a AS (SELECT 1 AS x) SELECT * FROM a;
WITH a(x, y) AS (VALUES (1, 2), (3, 4)) SELECT sum(x), sum(y) FROM a;
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS x FROM a), c(z) AS (SELECT a.x + b.x FROM a, b) SELECT * FROM c;
WITH a(x) AS (SELECT 1, 2) SELECT * FROM a;
WITH a(x) AS (SELECT 1), a(y) AS (SELECT 2) SELECT * FROM a;
WITH a AS (SELECT 1) SELECT * FROM b;
WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS q) SELECT * FROM a;
WITH unused AS (SELECT * FROM nowhere) SELECT 1;
WITH a AS (SELECT 1 AS x) SELECT (SELECT x FROM a), (WITH b AS (SELECT 2 AS y) SELECT x + y FROM a, b);
SELECT * FROM (WITH a AS (SELECT 5 AS x) SELECT x FROM a);
WITH a AS (SELECT 1 AS x UNION SELECT 2) SELECT p.x, q.x FROM a p JOIN a q ON p.x < q.x;
-- feature: MATERIALIZED and NOT MATERIALIZED
WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT * FROM a;
WITH a AS NOT MATERIALIZED (SELECT 1 AS x) SELECT * FROM a, a AS b;
EXPLAIN QUERY PLAN WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT * FROM a;
WITH a AS MATERIALISED (SELECT 1) SELECT * FROM a;
-- feature: recursion
WITH RECURSIVE cnt(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM cnt WHERE x < 10) SELECT group_concat(x) FROM cnt;
WITH RECURSIVE cnt(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM cnt LIMIT 5) SELECT x FROM cnt;
WITH RECURSIVE fib(a, b) AS (VALUES (0, 1) UNION ALL SELECT b, a + b FROM fib WHERE b < 1000) SELECT a FROM fib;
WITH cnt(x) AS (SELECT 1 UNION SELECT (x + 1) % 4 FROM cnt) SELECT x FROM cnt ORDER BY x;
CREATE TABLE org(name TEXT PRIMARY KEY, boss TEXT REFERENCES org);
INSERT INTO org VALUES ('Alice', NULL), ('Bob', 'Alice'), ('Cindy', 'Alice'), ('Dave', 'Bob'), ('Emma', 'Bob'), ('Fred', 'Cindy'), ('Gail', 'Cindy');
WITH RECURSIVE under(name, level) AS (VALUES ('Alice', 0) UNION ALL SELECT org.name, under.level + 1 FROM org JOIN under ON org.boss = under.name ORDER BY 2) SELECT substr('..........', 1, level * 3) || name FROM under;
WITH RECURSIVE under(name, level) AS (VALUES ('Alice', 0) UNION ALL SELECT org.name, under.level + 1 FROM org JOIN under ON org.boss = under.name ORDER BY 2 DESC) SELECT substr('..........', 1, level * 3) || name FROM under;
WITH RECURSIVE up(n) AS (VALUES ('Gail') UNION SELECT boss FROM org, up WHERE org.name = up.n) SELECT n FROM up WHERE n IS NOT NULL;
CREATE TABLE edge(a INT, b INT);
INSERT INTO edge VALUES (1, 2), (2, 3), (3, 1), (4, 5);
WITH RECURSIVE nodes(x) AS (SELECT 1 UNION SELECT a FROM edge, nodes WHERE b = x UNION SELECT b FROM edge, nodes WHERE a = x) SELECT x FROM nodes ORDER BY x;
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20 ORDER BY x LIMIT 5 OFFSET 3) SELECT x FROM c;
-- feature: a Mandelbrot set and a Sudoku are only queries
WITH RECURSIVE xaxis(x) AS (VALUES (-2.0) UNION ALL SELECT x + 0.2 FROM xaxis WHERE x < 1.2), yaxis(y) AS (VALUES (-1.0) UNION ALL SELECT y + 0.25 FROM yaxis WHERE y < 1.0), m(iter, cx, cy, x, y) AS (SELECT 0, x, y, 0.0, 0.0 FROM xaxis, yaxis UNION ALL SELECT iter + 1, cx, cy, x*x - y*y + cx, 2.0*x*y + cy FROM m WHERE (x*x + y*y) < 4.0 AND iter < 20), m2(iter, cx, cy) AS (SELECT max(iter), cx, cy FROM m GROUP BY cx, cy), a(t) AS (SELECT group_concat(substr(' .+*#', 1 + min(iter / 5, 4), 1), '') FROM m2 GROUP BY cy) SELECT group_concat(rtrim(t), x'0a') FROM a;
WITH RECURSIVE input(sud) AS (VALUES ('53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79')), digits(z, lp) AS (VALUES ('1', 1) UNION ALL SELECT CAST(lp + 1 AS TEXT), lp + 1 FROM digits WHERE lp < 9), x(s, ind) AS (SELECT sud, instr(sud, '.') FROM input UNION ALL SELECT substr(s, 1, ind - 1) || z || substr(s, ind + 1), instr(substr(s, 1, ind - 1) || z || substr(s, ind + 1), '.') FROM x, digits AS z WHERE ind > 0 AND NOT EXISTS (SELECT 1 FROM digits AS lp WHERE z.z = substr(s, ((ind - 1) / 9) * 9 + lp, 1) OR z.z = substr(s, ((ind - 1) % 9) + (lp - 1) * 9 + 1, 1) OR z.z = substr(s, (((ind - 1) / 3) % 3) * 3 + ((ind - 1) / 27) * 27 + lp + ((lp - 1) / 3) * 6, 1))) SELECT s FROM x WHERE ind = 0;
-- feature: recursion that is refused
WITH RECURSIVE c(x) AS (SELECT x FROM c) SELECT * FROM c;
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT count(*) FROM c) SELECT * FROM c;
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT a.x + b.x FROM c a, c b) SELECT * FROM c;
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT (SELECT x FROM c)) SELECT * FROM c;
WITH RECURSIVE c(x) AS (SELECT 1 INTERSECT SELECT x FROM c) SELECT * FROM c;
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT row_number() OVER () FROM c) SELECT * FROM c;
WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a;
-- feature: WITH before changes
CREATE TABLE t(a, b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) INSERT INTO t SELECT i, i * i FROM n;
WITH m AS (SELECT max(a) AS m FROM t) UPDATE t SET b = -1 WHERE a = (SELECT m FROM m);
WITH d(x) AS (VALUES (1), (2)) DELETE FROM t WHERE a IN d;
WITH r AS (SELECT 9 AS a) REPLACE INTO t SELECT a, a FROM r;
SELECT * FROM t ORDER BY a;
WITH x AS (SELECT 1) CREATE TABLE y(a);
CREATE TABLE made AS WITH x(q) AS (VALUES (1), (2)) SELECT q FROM x;
SELECT * FROM made;
CREATE TRIGGER trg AFTER INSERT ON made BEGIN WITH x AS (SELECT 1) INSERT INTO t SELECT 1, 2; END;
CREATE TRIGGER trg AFTER INSERT ON made BEGIN INSERT INTO t WITH x(q) AS (SELECT new.q) SELECT q, 'trigger' FROM x; END;
INSERT INTO made VALUES (77);
SELECT * FROM t WHERE b = 'trigger';
WITH org AS (SELECT 'shadowed' AS name) SELECT name FROM org;
