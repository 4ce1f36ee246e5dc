-- chapter: lang_expr
-- feature: operators and their precedence
SELECT 1 + 2 * 3, (1 + 2) * 3, 10 - 4 - 3, 2 * 3 % 4, 7 / 2 * 2, 1 || 2 + 3, (1 || 2) + 3, -2 * -3, - - 5, +5, ~-1, NOT 1 = 2, NOT (1 = 2);
SELECT 1 < 2 = 1, 1 = 1 = 1, 2 > 1 > 0, 1 < 2 AND 2 < 3 OR 0, 1 OR 0 AND 0, 5 & 3 | 8, 1 << 2 + 1, 6 >> 1 & 1, 1 == 1, 1 != 2, 1 <> 2;
SELECT 'a' || 'b' || NULL, 'a' || 1 || 2.5, 1 || 2, x'41' || 'b', typeof(x'41' || x'42');
SELECT 5 BETWEEN 1 AND 10 AND 1, 5 NOT BETWEEN 1 AND 3, 'b' BETWEEN 'a' AND 'c', 5 BETWEEN 10 AND 1, NULL BETWEEN 1 AND 2;
SELECT 1 + ;
SELECT * 5;
SELECT 1 = = 1;
SELECT 1 ! 2;
-- feature: literals
SELECT 1, 1.5, .5, 5., 1e3, 1E-3, 0x1F, 0XFF, 'text', 'it''s', x'01ab', X'', NULL, TRUE, FALSE, 1_000;
SELECT 9223372036854775807, 9223372036854775808, -9223372036854775808, 0x7fffffffffffffff, 0xffffffffffffffff, 1e999;
SELECT x'0';
SELECT x'gg';
SELECT 'open;
SELECT "open;
';
SELECT 0x;
-- feature: CASE
SELECT CASE 1 WHEN 1 THEN 'one' WHEN 2 THEN 'two' END, CASE 3 WHEN 1 THEN 'one' ELSE 'other' END, CASE 3 WHEN 1 THEN 'one' END, CASE WHEN 0 THEN 1 WHEN NULL THEN 2 WHEN 'x' THEN 3 WHEN 1 THEN 4 END, CASE NULL WHEN NULL THEN 1 ELSE 2 END;
SELECT CASE WHEN 1 THEN 2 ELSE 1 / 0 END, CASE END;
SELECT CASE 1 WHEN 1 END;
SELECT CASE WHEN 1 THEN abs(-9223372036854775808) END;
SELECT CASE WHEN 0 THEN abs(-9223372036854775808) ELSE 'lazy' END;
-- feature: LIKE and ESCAPE
SELECT 'abc' LIKE 'ABC', 'abc' LIKE 'a_c', 'abc' LIKE 'a%', 'abc' LIKE '%c', 'abc' LIKE '', '' LIKE '%', 'ä' LIKE 'Ä', 'a%c' LIKE 'a\%c' ESCAPE '\', 'abc' LIKE 'a\%c' ESCAPE '\', 'a_c' LIKE 'a!_c' ESCAPE '!', 'abc' NOT LIKE 'x%', 5 LIKE '5', NULL LIKE 'x', 'x' LIKE NULL, x'61' LIKE 'a', 'aXbXc' LIKE '%X%X%', 'äöü' LIKE '_ö_';
SELECT 'a' LIKE 'a' ESCAPE 'xx';
SELECT 'a' LIKE 'a' ESCAPE '';
SELECT 'a' LIKE 'a' ESCAPE NULL;
SELECT 'ab' LIKE 'a%%b', '%' LIKE '%%' ESCAPE '%', 'a' LIKE 'a%' ESCAPE 'a';
-- feature: GLOB
SELECT 'abc' GLOB 'abc', 'abc' GLOB 'ABC', 'abc' GLOB 'a*', 'abc' GLOB 'a?c', 'abc' GLOB '[a-c]bc', 'abc' GLOB '[^a-c]bc', 'a]c' GLOB 'a[]]c', 'a-c' GLOB 'a[-]c', 'abc' GLOB '*[c]', 'a*c' GLOB 'a[*]c', 'abc' NOT GLOB 'x*', '' GLOB '*', NULL GLOB '*', 'äb' GLOB '?b', 'abc' GLOB '[abc', 'b' GLOB '[c-a]';
-- feature: REGEXP and MATCH need a function
SELECT 'abc' REGEXP 'a.c';
SELECT 'abc' MATCH 'abc';
SELECT 'abc' NOT REGEXP 'a';
-- feature: LIKE and indexes
CREATE TABLE names(id INTEGER PRIMARY KEY, n TEXT COLLATE NOCASE, g TEXT);
INSERT INTO names(n, g) VALUES ('Alice', 'Alice'), ('alan', 'alan'), ('Bob', 'Bob'), ('ALBERT', 'ALBERT'), ('a%b', 'a%b'), (NULL, NULL);
CREATE INDEX names_n ON names(n);
CREATE INDEX names_g ON names(g);
SELECT n FROM names WHERE n LIKE 'al%' ORDER BY id;
SELECT g FROM names WHERE g GLOB 'Al*' ORDER BY id;
SELECT g FROM names WHERE g LIKE 'a\%%' ESCAPE '\';
SELECT n FROM names WHERE n LIKE '%b%' ORDER BY id;
EXPLAIN QUERY PLAN SELECT n FROM names WHERE n LIKE 'al%';
EXPLAIN QUERY PLAN SELECT g FROM names WHERE g GLOB 'Al*';
EXPLAIN QUERY PLAN SELECT g FROM names WHERE g LIKE 'al%';
PRAGMA case_sensitive_like = ON;
-- feature: IN
SELECT 1 IN (1, 2), 3 IN (1, 2), 1 NOT IN (1, 2), 1 IN (), 1 NOT IN (), NULL IN (), NULL IN (1), 1 IN (NULL, 2), 1 IN (NULL, 1), 'a' IN ('A'), 'a' IN ('A' COLLATE NOCASE), 1 IN (1.0), 1 IN ('1');
SELECT n FROM names WHERE id IN (1, 3, 99) ORDER BY id;
SELECT n FROM names WHERE id IN (SELECT id FROM names WHERE n LIKE 'a%') ORDER BY id;
SELECT id FROM names WHERE id NOT IN names;
SELECT id FROM names WHERE n IN ('ALICE', 'bob') ORDER BY id;
SELECT 1 IN nowhere;
SELECT 1 IN (SELECT 1, 2);
CREATE TABLE list(x);
INSERT INTO list VALUES (1), (2);
SELECT id FROM names WHERE id IN list ORDER BY id;
SELECT id FROM names WHERE id NOT IN list ORDER BY id;
SELECT 1 IN pragma_table_info('list');
SELECT 2 IN json_each('[1,2]');
-- feature: EXISTS and scalar subqueries
SELECT EXISTS (SELECT 1), EXISTS (SELECT 1 WHERE 0), NOT EXISTS (SELECT NULL), EXISTS (SELECT NULL), (SELECT 5), (SELECT 5 WHERE 0), (SELECT x FROM list ORDER BY x DESC);
SELECT EXISTS (SELECT * FROM nowhere);
-- feature: parameters have no value here
SELECT ?;
SELECT ?1, :a, @b, $c;
SELECT ?0;
SELECT ?99999999;
INSERT INTO list VALUES (?);
-- feature: column names of all kinds
SELECT names.id, main.names.id, "names"."id", [names].id FROM names LIMIT 1;
SELECT x.id FROM names AS x WHERE names.id = 1;
SELECT id FROM names a, names b;
SELECT a.id, b.id FROM names a, names b WHERE a.id < b.id AND b.id < 3;
-- feature: COLLATE in expressions
SELECT 'a' = 'A' COLLATE NOCASE, 'a' COLLATE NOCASE = 'A', ('a' || 'b') COLLATE NOCASE = 'AB', max('a', 'B' COLLATE NOCASE), 'b' > 'A' COLLATE NOCASE;
SELECT 'a' COLLATE;
-- feature: RAISE outside of a trigger
SELECT RAISE(IGNORE);
SELECT RAISE(FAIL, 'x');
-- feature: deep and long expressions
SELECT 1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1;
SELECT ((((((((((((((((((((1))))))))))))))))))));
SELECT (SELECT (SELECT (SELECT (SELECT 1))));
SELECT length(replace(hex(zeroblob(50000)), '00', 'ab'));
-- feature: JSON operators, IS, ISNULL
SELECT '{"a":1}' -> 'a' IS '1', 1 IS 1, 1 IS 2, 1 IS NOT 1, NULL IS 0, 'a' IS 'a', 1 ISNULL, 1 NOTNULL, 1 NOT NULL, NULL IS NOT DISTINCT FROM NULL;
