-- chapter: rowvalue
-- feature: comparisons of rows
SELECT (1, 2, 3) = (1, 2, 3), (1, 2, 3) = (1, 2, 4), (1, 2) < (1, 3), (2, 1) < (1, 3), (1, 2) <= (1, 2), (1, 2) <> (1, 2), (1, 'b') > (1, 'a');
SELECT (1, NULL) = (1, NULL), (1, NULL) = (2, NULL), (1, NULL) IS (1, NULL), (1, NULL) IS NOT (1, 2), (1, NULL) < (2, NULL), (NULL, 1) < (1, 2), (1, 2, NULL) <> (1, 3, NULL);
SELECT (1, 2) BETWEEN (1, 1) AND (1, 3), (1, 2) NOT BETWEEN (0, 0) AND (1, 1);
SELECT ('A', 1) = ('a', 1), ('A', 1) = ('a' COLLATE NOCASE, 1);
SELECT (1, 2) = (1, 2, 3);
SELECT (1, 2);
SELECT (1, 2) + (3, 4);
SELECT 1 = (1, 2);
SELECT ((1, 2), 3) = ((1, 2), 3);
SELECT CASE (1, 2) WHEN (1, 2) THEN 'same' ELSE 'other' END;
SELECT (1) = (1), ((1)) = 1;
-- feature: rows of subqueries, and IN
CREATE TABLE t(a INT, b INT, c TEXT, PRIMARY KEY (a, b));
INSERT INTO t VALUES (1, 1, 'a'), (1, 2, 'b'), (2, 1, 'c'), (2, 2, NULL);
SELECT c FROM t WHERE (a, b) = (SELECT 1, 2);
SELECT c FROM t WHERE (a, b) IN (SELECT b, a FROM t WHERE a > b);
SELECT c FROM t WHERE (a, b) IN (VALUES (1, 1), (2, 2)) ORDER BY a;
SELECT c FROM t WHERE (a, b) NOT IN (VALUES (1, 1), (2, 2)) ORDER BY a;
SELECT c FROM t WHERE (a, b) > (1, 1) ORDER BY a, b;
SELECT c FROM t WHERE (a, b) >= (1, 2) AND (a, b) < (2, 2) ORDER BY a, b LIMIT 5;
SELECT (SELECT a, b FROM t WHERE c = 'c') = (2, 1);
SELECT (a, b) IN ((1, 1), (2, 2)) FROM t;
SELECT c FROM t WHERE (a, b) IN (SELECT a FROM t);
SELECT c FROM t WHERE (a, b, c) = (SELECT 1, 2);
EXPLAIN QUERY PLAN SELECT c FROM t WHERE (a, b) = (1, 2);
EXPLAIN QUERY PLAN SELECT c FROM t WHERE (a, b) > (1, 1);
EXPLAIN QUERY PLAN SELECT c FROM t WHERE (a, b) IN (VALUES (1, 1), (2, 2));
-- feature: rows in UPDATE
UPDATE t SET (b, c) = (b + 10, c || '!') WHERE a = 1;
UPDATE t SET (c, b) = (SELECT c, b + 100 FROM t AS u WHERE u.a = 1 ORDER BY b LIMIT 1) WHERE a = 2 AND b = 1;
UPDATE t SET (a, b) = (b, a) WHERE a = 2 AND b = 2;
UPDATE t SET (a) = (9) WHERE c IS NULL;
UPDATE t SET (a, b) = (1);
UPDATE t SET (a, a) = (1, 2) WHERE c IS NULL;
SELECT * FROM t ORDER BY a, b;
INSERT INTO t VALUES (1, 11, 'x') ON CONFLICT (a, b) DO UPDATE SET (a, c) = (excluded.a + 50, 'moved');
SELECT * FROM t ORDER BY a, b;
-- feature: scrolling through a result by rows
CREATE TABLE contacts(last TEXT, first TEXT, n INT);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 29) INSERT INTO contacts SELECT char(65 + i / 5), char(97 + i % 5), i FROM n;
CREATE INDEX contacts_name ON contacts(last, first);
SELECT last, first FROM contacts WHERE (last, first) > ('B', 'c') ORDER BY last, first LIMIT 4;
SELECT last, first FROM contacts WHERE (last, first) < ('B', 'c') ORDER BY last DESC, first DESC LIMIT 4;
EXPLAIN QUERY PLAN SELECT last, first FROM contacts WHERE (last, first) > ('B', 'c') ORDER BY last, first LIMIT 4;
