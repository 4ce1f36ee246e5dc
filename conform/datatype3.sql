-- chapter: datatype3
-- feature: affinities of columns
CREATE TABLE t1(t TEXT, nu NUMERIC, i INTEGER, r REAL, no BLOB);
INSERT INTO t1 VALUES ('500.0', '500.0', '500.0', '500.0', '500.0');
SELECT typeof(t), typeof(nu), typeof(i), typeof(r), typeof(no) FROM t1;
DELETE FROM t1;
INSERT INTO t1 VALUES (500.0, 500.0, 500.0, 500.0, 500.0);
SELECT typeof(t), typeof(nu), typeof(i), typeof(r), typeof(no) FROM t1;
DELETE FROM t1;
INSERT INTO t1 VALUES (500, 500, 500, 500, 500);
SELECT typeof(t), typeof(nu), typeof(i), typeof(r), typeof(no) FROM t1;
DELETE FROM t1;
INSERT INTO t1 VALUES (x'0500', x'0500', x'0500', x'0500', x'0500');
SELECT typeof(t), typeof(nu), typeof(i), typeof(r), typeof(no) FROM t1;
DELETE FROM t1;
INSERT INTO t1 VALUES (NULL, NULL, NULL, NULL, NULL);
SELECT typeof(t), typeof(nu), typeof(i), typeof(r), typeof(no) FROM t1;
INSERT INTO t1 VALUES (1, '1e3', '9223372036854775808', 9007199254740993, '1'), (1, ' 12 ', '0x10', '1e999', 1.0), ('', '', '', '', ''), (1, '1.5e1', 1.5, 1, 1);
SELECT *, typeof(nu), typeof(i), typeof(r) FROM t1;
-- feature: comparisons between storage classes
CREATE TABLE t2(a TEXT, b NUMERIC, c BLOB, d);
INSERT INTO t2 VALUES ('500', '500', '500', 500);
SELECT typeof(a), typeof(b), typeof(c), typeof(d) FROM t2;
SELECT a < 40, a < 60, a < 600, b < 40, b < 60, b < 600, c < 40, c < 60, c < 600, d < 40, d < 60, d < 600 FROM t2;
SELECT a < '40', a < '60', a < '600', b < '40', b < '60', b < '600', c < '40', c < '60', c < '600', d < '40', d < '60', d < '600' FROM t2;
SELECT +a < 40, +b < '60', -a < 0, a || '' < 60 FROM t2;
SELECT 1 < 'a', 'a' < x'00', NULL < 1, 1 = 1.0, '1' = 1, x'31' = '1', 9007199254740993 = 9007199254740992.0, 1e308 * 10 > 9223372036854775807;
SELECT a = b, a = c, b = d, a IN (500), b IN ('500'), c IN (500), d IN ('500') FROM t2;
-- feature: arithmetic and its types
SELECT typeof(1 + 1), typeof(1 + 1.0), typeof('1' + '1'), typeof('1.5' + 1), typeof(9223372036854775807 + 1), typeof(5 / 2), 5 / 2, 5.0 / 2, -5 / 2, 5 % 3, -5 % 3, 5.5 % 2, 1 / 0, 1 % 0, 1.0 / 0;
SELECT 'abc' + 1, '12abc' + 1, x'31' + 1, '0x10' + 0, 0x10, ' 5 ' + 0, '1e2' + 0, '' + 0;
SELECT 9223372036854775807 + 1, -9223372036854775808 - 1, 9223372036854775807 * 2, -(-9223372036854775808), 1 << 62, 1 << 63, 1 << 64, 1 << -1, -1 >> 1, 5 & 3, 5 | 3, ~5;
-- feature: CAST
SELECT CAST('12abc' AS INTEGER), CAST('abc' AS INTEGER), CAST('1.9' AS INTEGER), CAST(-1.9 AS INTEGER), CAST(1e300 AS INTEGER), CAST('9223372036854775808' AS INTEGER), CAST(x'3132' AS INTEGER), CAST(NULL AS INTEGER), CAST('' AS INTEGER), CAST('0x10' AS INTEGER);
SELECT CAST('1.5x' AS REAL), CAST(5 AS REAL), CAST(x'312e35' AS REAL), CAST('.5' AS REAL), CAST('-' AS REAL), CAST('1e' AS REAL);
SELECT CAST(12 AS TEXT), CAST(1.0 AS TEXT), CAST(1e15 AS TEXT), CAST(1e16 AS TEXT), CAST(x'616263' AS TEXT), CAST(0.1 + 0.2 AS TEXT), CAST(-0.0 AS TEXT), CAST(1e-5 AS TEXT);
SELECT hex(CAST('abc' AS BLOB)), hex(CAST(12 AS BLOB)), typeof(CAST(1.5 AS BLOB)), CAST('1.0' AS NUMERIC), typeof(CAST('1.0' AS NUMERIC)), CAST('1.5' AS NUMERIC), CAST('x' AS NUMERIC), CAST(1.0 AS NUMERIC), typeof(CAST('5' AS VARCHAR(3))), CAST('5' AS "odd name");
SELECT CAST(1);
SELECT CAST(1 AS);
-- feature: sorting of storage classes
CREATE TABLE mixed(v);
INSERT INTO mixed VALUES (2), ('10'), (x'01'), (NULL), (1.5), ('a'), (x''), (-5), ('A'), (''), (9e99), (-9e99);
SELECT v, typeof(v) FROM mixed ORDER BY v, rowid;
SELECT v FROM mixed ORDER BY v DESC, rowid;
SELECT typeof(v), count(*), min(v), max(v) FROM mixed GROUP BY typeof(v) ORDER BY 1;
CREATE INDEX mixed_v ON mixed(v);
SELECT v FROM mixed WHERE v > 1 AND v < 'a' ORDER BY v;
SELECT v FROM mixed WHERE v >= x'' ORDER BY v;
-- feature: affinity of views, subqueries and compound selects
CREATE VIEW v2 AS SELECT a AS x, b AS y FROM t2 UNION ALL SELECT b, a FROM t2;
SELECT x < 60, typeof(x), y < 60 FROM v2;
SELECT x < 60 FROM (SELECT a AS x FROM t2);
SELECT x < 60 FROM (SELECT +a AS x FROM t2);
SELECT count(*) FROM t2 WHERE a = 500 AND c = '500' AND d = '500';
-- feature: booleans
SELECT true, false, typeof(true), TRUE + TRUE, NOT true, 'true' = true, (SELECT true);
CREATE TABLE b(x BOOLEAN);
INSERT INTO b VALUES (true), (false), ('true'), (NULL);
SELECT x, typeof(x), x IS TRUE FROM b;
CREATE TABLE odd("true" INT);
INSERT INTO odd VALUES (7);
SELECT "true", true FROM odd;
-- chapter: floatingpoint
-- feature: binary floating point
SELECT 0.1 + 0.2, 0.1 + 0.2 = 0.3, 1e23, 123456789012345678, 1.7976931348623157e308, 1.7976931348623157e308 * 10, 5e-324, 2.2250738585072014e-308, -0.0, 0.0 = -0.0, 1e400, -1e400, 1e400 - 1e400;
SELECT 47.49, 47.49 + 0.0, printf('%.17g', 47.49), round(47.495, 2), 9007199254740992.0, 9007199254740993.0, 100000000000000000000.0, 1.0, 1e2, 123.456e-2;
SELECT typeof(1e400 - 1e400), typeof(1e400), 3.0 = 3, 1_000_000, 0x1F_FF, 1_000.5;
SELECT 1__0;
SELECT 0x1FFFFFFFFFFFFFFFF;
SELECT 12x;
SELECT 1e;
