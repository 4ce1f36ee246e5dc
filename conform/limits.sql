-- chapter: limits
-- feature: long values
SELECT length(zeroblob(1000000)), length(replace(hex(zeroblob(1000)), '0', 'abc'));
SELECT length(zeroblob(1000000001));
SELECT length(printf('%.*c', 100000, 'x'));
CREATE TABLE big(id INTEGER PRIMARY KEY, v BLOB);
INSERT INTO big VALUES (1, zeroblob(300000)), (2, zeroblob(0)), (3, CAST(printf('%.*c', 70000, 'z') AS TEXT));
SELECT id, length(v), typeof(v) FROM big;
UPDATE big SET v = v || x'01' WHERE id = 1;
SELECT length(v), hex(substr(v, -2)) FROM big WHERE id = 1;
INSERT INTO big VALUES (4, zeroblob(2000000000));
DELETE FROM big WHERE id = 1;
SELECT count(*) FROM big;
-- feature: many columns, terms and arguments
SELECT max(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80,81,82,83,84,85,86,87,88,89,90,91,92,93,94,95,96,97,98,99,100,101,102,103,104,105,106,107,108,109,110,111,112,113,114,115,116,117,118,119,120,121,122,123,124,125,126,127);
SELECT count(*) FROM (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12);
CREATE TABLE wide(c1,c2,c3,c4,c5,c6,c7,c8,c9,c10,c11,c12,c13,c14,c15,c16,c17,c18,c19,c20,c21,c22,c23,c24,c25,c26,c27,c28,c29,c30,c31,c32,c33,c34,c35,c36,c37,c38,c39,c40,c41,c42,c43,c44,c45,c46,c47,c48,c49,c50,c51,c52,c53,c54,c55,c56,c57,c58,c59,c60,c61,c62,c63,c64,c65,c66,c67,c68,c69,c70);
INSERT INTO wide(c1, c64, c65, c70) VALUES (1, 64, 65, 70);
UPDATE wide SET c65 = 'changed';
SELECT c1, c2, c63, c64, c65, c66, c70 FROM wide;
SELECT count(*) FROM big a, big b, big c, big d, big e, big f, big g, big h;
-- feature: depth of triggers and views
CREATE TABLE deep(n INT);
CREATE TABLE deep2(n INT);
CREATE TRIGGER deep_a AFTER INSERT ON deep WHEN new.n < 100 BEGIN INSERT INTO deep2 VALUES (new.n + 1); END;
CREATE TRIGGER deep_b AFTER INSERT ON deep2 WHEN new.n < 100 BEGIN UPDATE deep SET n = n + 1; END;
INSERT INTO deep VALUES (1);
SELECT * FROM deep, deep2;
CREATE VIEW v1 AS SELECT 1 AS x;
CREATE VIEW v2 AS SELECT x + 1 AS x FROM v1;
CREATE VIEW v3 AS SELECT x + 1 AS x FROM v2;
CREATE VIEW v4 AS SELECT x + 1 AS x FROM v3;
SELECT x FROM v4;
-- feature: integers at their ends
CREATE TABLE ends(i INTEGER PRIMARY KEY, n INT);
INSERT INTO ends VALUES (9223372036854775807, -9223372036854775808), (-9223372036854775808, 9223372036854775807);
SELECT i, n, i + 1, n - 1 FROM ends;
UPDATE ends SET n = n + 1;
SELECT i, n, typeof(n) FROM ends;
INSERT INTO ends VALUES (9223372036854775808, 0);
-- feature: a recursion that is long
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) SELECT count(*), sum(i) FROM n;
