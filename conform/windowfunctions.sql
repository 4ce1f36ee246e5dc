-- chapter: windowfunctions
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c TEXT);
INSERT INTO t VALUES (1, 'A', 'one'), (2, 'B', 'two'), (3, 'C', 'three'), (4, 'D', 'one'), (5, 'E', 'two'), (6, 'F', 'three'), (7, 'G', 'one');
CREATE TABLE n(x INT, y REAL);
INSERT INTO n VALUES (1, 1.5), (2, 2.5), (2, 0.5), (3, NULL), (NULL, 4), (5, 10), (5, 10);
-- feature: aggregates as window functions
SELECT a, b, group_concat(b, '.') OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t;
SELECT a, sum(a) OVER (), sum(a) OVER (ORDER BY a), sum(a) OVER (PARTITION BY c ORDER BY a) FROM t ORDER BY a;
SELECT c, a, count(*) OVER (PARTITION BY c), avg(a) OVER (PARTITION BY c) FROM t ORDER BY c, a;
SELECT x, total(y) OVER (ORDER BY x), min(y) OVER (ORDER BY x), max(y) OVER (ORDER BY x ROWS 1 PRECEDING) FROM n ORDER BY rowid;
SELECT a, string_agg(b, '') OVER (ORDER BY a DESC) FROM t ORDER BY a;
SELECT sum(x) OVER (ORDER BY rowid) AS running FROM n;
-- feature: ranking functions
SELECT x, row_number() OVER w, rank() OVER w, dense_rank() OVER w, percent_rank() OVER w, cume_dist() OVER w FROM n WINDOW w AS (ORDER BY x) ORDER BY x, 2;
SELECT x, ntile(3) OVER (ORDER BY x, rowid) FROM n;
SELECT x, ntile(100) OVER (ORDER BY rowid) FROM n;
SELECT ntile(0) OVER (ORDER BY x) FROM n;
SELECT ntile(-1) OVER () FROM n;
-- feature: lag, lead, first_value, last_value, nth_value
SELECT a, lag(b) OVER w, lead(b) OVER w, lag(b, 2, 'none') OVER w, lead(b, 2, 'none') OVER w FROM t WINDOW w AS (ORDER BY a);
SELECT a, first_value(b) OVER w, last_value(b) OVER w, nth_value(b, 2) OVER w FROM t WINDOW w AS (PARTITION BY c ORDER BY a) ORDER BY a;
SELECT a, last_value(b) OVER (ORDER BY a ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM t;
SELECT lag(b, -1) OVER (ORDER BY a) FROM t;
SELECT nth_value(b, 0) OVER (ORDER BY a) FROM t;
SELECT lag(b, 1, 2, 3) OVER (ORDER BY a) FROM t;
-- feature: frames of ROWS, RANGE and GROUPS
SELECT x, sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM n ORDER BY x, 2;
SELECT x, count(*) OVER (ORDER BY x RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM n ORDER BY x;
SELECT x, count(*) OVER (ORDER BY x GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM n ORDER BY x;
SELECT x, count(*) OVER (ORDER BY x GROUPS CURRENT ROW) FROM n ORDER BY x;
SELECT y, sum(y) OVER (ORDER BY y RANGE BETWEEN 1.5 PRECEDING AND 0.5 FOLLOWING) FROM n ORDER BY y;
SELECT x, sum(x) OVER (ORDER BY x DESC RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) FROM n ORDER BY x;
SELECT a, count(*) OVER (ORDER BY a ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) FROM t;
SELECT a, count(*) OVER (ORDER BY a ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING) FROM t;
SELECT a, group_concat(b) OVER (ORDER BY c RANGE CURRENT ROW) FROM t ORDER BY a;
-- feature: EXCLUDE
SELECT a, group_concat(b, '') OVER (ORDER BY c GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM t ORDER BY a;
SELECT a, group_concat(b, '') OVER (ORDER BY c GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP) FROM t ORDER BY a;
SELECT a, group_concat(b, '') OVER (ORDER BY c GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM t ORDER BY a;
SELECT a, group_concat(b, '') OVER (ORDER BY c GROUPS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE NO OTHERS) FROM t ORDER BY a;
-- feature: FILTER
SELECT a, group_concat(b, '.') FILTER (WHERE c <> 'two') OVER (ORDER BY a) FROM t;
SELECT count(*) FILTER (WHERE x > 1), sum(y) FILTER (WHERE x IS NULL) FROM n;
SELECT row_number() FILTER (WHERE 1) OVER () FROM n;
SELECT max(1, 2) FILTER (WHERE 1);
-- feature: named windows and windows that build on them
SELECT a, sum(a) OVER w1, sum(a) OVER (w1 ORDER BY a) FROM t WINDOW w1 AS (PARTITION BY c) ORDER BY a;
SELECT sum(a) OVER (w ROWS 1 PRECEDING) FROM t WINDOW w AS (ORDER BY a);
SELECT sum(a) OVER (w PARTITION BY c) FROM t WINDOW w AS (ORDER BY a);
SELECT sum(a) OVER (w ORDER BY b) FROM t WINDOW w AS (ORDER BY a);
SELECT sum(a) OVER nothing FROM t;
-- feature: with GROUP BY, DISTINCT, LIMIT and subqueries
SELECT c, sum(a), rank() OVER (ORDER BY sum(a) DESC) FROM t GROUP BY c ORDER BY c;
SELECT DISTINCT count(*) OVER (PARTITION BY c) FROM t ORDER BY 1;
SELECT a FROM (SELECT a, row_number() OVER (PARTITION BY c ORDER BY a DESC) AS r FROM t) WHERE r = 1 ORDER BY a;
SELECT a, (SELECT sum(u.a) OVER () FROM t u WHERE u.a <= t.a LIMIT 1) FROM t ORDER BY a LIMIT 3;
SELECT a FROM t ORDER BY row_number() OVER (ORDER BY b DESC) LIMIT 2;
-- feature: where a window function may not stand
SELECT a FROM t WHERE row_number() OVER () = 1;
SELECT a FROM t GROUP BY row_number() OVER ();
SELECT a FROM t GROUP BY a HAVING row_number() OVER () = 1;
SELECT sum(row_number() OVER ()) OVER () FROM t;
SELECT row_number() FROM t;
SELECT abs(a) OVER () FROM t;
UPDATE t SET a = row_number() OVER ();
SELECT sum(a) OVER (ORDER BY a RANGE BETWEEN 'x' PRECEDING AND CURRENT ROW) FROM t;
SELECT sum(a) OVER (ORDER BY a, b RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t;
SELECT sum(a) OVER (ROWS BETWEEN CURRENT ROW AND 1 PRECEDING) FROM t;
SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM t;
SELECT sum(a) OVER (GROUPS 1 PRECEDING) FROM t;
SELECT count(DISTINCT a) OVER () FROM t;
-- feature: changes made from window functions
CREATE TABLE copy AS SELECT a, lag(a) OVER (ORDER BY a) AS before FROM t;
UPDATE copy SET before = (SELECT n FROM (SELECT a, row_number() OVER (ORDER BY a DESC) AS n FROM t) r WHERE r.a = copy.a);
INSERT INTO copy SELECT a + 100, dense_rank() OVER (ORDER BY c) FROM t;
SELECT * FROM copy ORDER BY a;
DELETE FROM copy WHERE a IN (SELECT a FROM (SELECT a, ntile(2) OVER (ORDER BY a) AS half FROM copy) WHERE half = 2);
SELECT count(*) FROM copy;
EXPLAIN QUERY PLAN SELECT sum(a) OVER (PARTITION BY c ORDER BY a) FROM t;
