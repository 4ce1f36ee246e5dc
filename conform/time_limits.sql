-- chapter: limits
-- option: write_time_limit 200
-- option: read_time_limit 200
CREATE TABLE t(a);
INSERT INTO t VALUES (1);
-- feature: statements that take long
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) SELECT count(*) FROM n;
SELECT * FROM t;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) INSERT INTO t SELECT max(i) FROM n;
SELECT * FROM t;
INSERT INTO t VALUES (2);
SELECT * FROM t;
