-- chapter: datatype3
CREATE TABLE t(x INTEGER PRIMARY KEY, a, b COLLATE BINARY, c COLLATE RTRIM, d COLLATE NOCASE);
INSERT INTO t VALUES (1, 'abc', 'abc', 'abc  ', 'abc'), (2, 'abc', 'abc', 'abc', 'ABC'), (3, 'abc', 'abc', 'abc ', 'Abc'), (4, 'abc', 'abc ', 'ABC', 'abc');
-- feature: collations in comparisons
SELECT x FROM t WHERE a = b ORDER BY x;
SELECT x FROM t WHERE a = b COLLATE RTRIM ORDER BY x;
SELECT x FROM t WHERE a = d ORDER BY x;
SELECT x FROM t WHERE d = a ORDER BY x;
SELECT x FROM t WHERE 'abc' = c ORDER BY x;
SELECT x FROM t WHERE c = 'abc' ORDER BY x;
SELECT x FROM t WHERE d IN ('abc') ORDER BY x;
SELECT x FROM t WHERE 'ABC' IN (d) ORDER BY x;
SELECT x FROM t WHERE a IN (SELECT d FROM t) ORDER BY x;
SELECT x FROM t WHERE d BETWEEN 'ABB' AND 'abd' ORDER BY x;
SELECT CASE d WHEN 'abc' THEN x END FROM t ORDER BY x;
SELECT x FROM t WHERE (d || '') = 'abc' ORDER BY x;
SELECT x FROM t WHERE d = 'abc' COLLATE BINARY ORDER BY x;
SELECT 'a' = 'A' COLLATE nothing;
-- feature: collations in ORDER BY, GROUP BY, DISTINCT and compounds
SELECT d, count(*) FROM t GROUP BY d ORDER BY d;
SELECT count(*) FROM t GROUP BY (d || '') ORDER BY 1;
SELECT x FROM t ORDER BY c, x;
SELECT x FROM t ORDER BY (c || ''), x;
SELECT x FROM t ORDER BY c COLLATE NOCASE, x;
SELECT count(*) FROM (SELECT DISTINCT d FROM t);
SELECT count(*) FROM (SELECT DISTINCT c FROM t);
SELECT d FROM t UNION SELECT 'ABC' ORDER BY 1;
SELECT min(d), max(d) FROM t;
SELECT a FROM t UNION SELECT d FROM t ORDER BY 1 COLLATE NOCASE;
-- feature: collations and indexes
CREATE INDEX t_d ON t(d);
CREATE INDEX t_d_binary ON t(d COLLATE BINARY);
SELECT x FROM t WHERE d = 'ABC' ORDER BY x;
SELECT x FROM t WHERE d = 'ABC' COLLATE BINARY ORDER BY x;
EXPLAIN QUERY PLAN SELECT x FROM t WHERE d = 'ABC';
EXPLAIN QUERY PLAN SELECT x FROM t WHERE d COLLATE BINARY = 'ABC';
CREATE UNIQUE INDEX t_d_unique ON t(d);
PRAGMA collation_list;
-- feature: NOCASE is for ASCII only, RTRIM for spaces only
SELECT 'ä' = 'Ä' COLLATE NOCASE, 'z' = 'Z' COLLATE NOCASE, 'x' = 'x  ' COLLATE RTRIM, 'x' = 'x' || char(9) COLLATE RTRIM, '[' < 'a' COLLATE NOCASE, '[' < 'A';
