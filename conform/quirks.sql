-- chapter: quirks
-- feature: flexible typing
CREATE TABLE t(a INT, b VARCHAR(3), c DATE);
INSERT INTO t VALUES ('not a number', 'longer than three', 5), (x'00', 1, NULL);
SELECT *, typeof(a), typeof(b), typeof(c) FROM t;
CREATE TABLE nothing_declared(a, b, c);
INSERT INTO nothing_declared VALUES (1, 'x', 2.5);
SELECT typeof(a), typeof(b), typeof(c) FROM nothing_declared;
-- feature: foreign keys are on in this build
PRAGMA foreign_keys;
-- feature: primary keys may hold NULL
CREATE TABLE pk(a TEXT PRIMARY KEY);
INSERT INTO pk VALUES (NULL), (NULL);
SELECT count(*) FROM pk;
-- feature: a column beside an aggregate that is in no GROUP BY
CREATE TABLE dept(name TEXT, salary INT, d TEXT);
INSERT INTO dept VALUES ('x', 5, 'a'), ('y', 9, 'a'), ('z', 7, 'b');
SELECT d, max(salary), name FROM dept GROUP BY d ORDER BY d;
SELECT max(salary), name FROM dept;
SELECT min(salary), max(salary), name IS NOT NULL FROM dept;
-- feature: text in double quotes, and names in single quotes
SELECT "no such column";
SELECT 'name' FROM dept LIMIT 1;
SELECT "name" FROM dept ORDER BY 1 LIMIT 1;
CREATE TABLE 'quoted'('col' INT);
INSERT INTO 'quoted'('col') VALUES (1);
SELECT "col", 'col', "other" FROM 'quoted';
SELECT 1 AS 'alias', 2 AS "alias2";
CREATE INDEX dq ON dept("not a column");
SELECT * FROM dept WHERE name = "x";
-- feature: keywords as names
CREATE TABLE begin_(begin INT);
CREATE TABLE union_test(abort, plan, row, "union");
INSERT INTO union_test VALUES (1, 2, 3, 4);
SELECT abort, plan, row, "union" FROM union_test;
CREATE TABLE bad(union);
-- feature: dubious SQL that is allowed
CREATE TABLE noconstraints(a INT NOT NULL NULL, b TEXT CONSTRAINT c1 CONSTRAINT c2);
SELECT DISTINCT DISTINCT 1;
CREATE TABLE trailing(a INT CHECK (a > 0),);
SELECT 1 AS a, 2 AS a;
SELECT * FROM (SELECT 1 AS a, 2 AS a);
CREATE TABLE oddtype(a LONG LONG INTEGER (5, 6));
PRAGMA table_info(oddtype);
-- feature: AUTOINCREMENT is not what it is elsewhere
CREATE TABLE ai(id INTEGER PRIMARY KEY, v);
INSERT INTO ai(v) VALUES (1);
DELETE FROM ai;
INSERT INTO ai(v) VALUES (2) RETURNING id;
-- feature: text with NUL characters
CREATE TABLE nul(a TEXT);
INSERT INTO nul VALUES ('ab' || char(0) || 'cd');
SELECT length(a), length(CAST(a AS BLOB)), hex(a), a = 'ab', substr(a, 4), instr(a, 'c') FROM nul;
SELECT a FROM nul;
SELECT a LIKE 'ab%', a GLOB 'ab*', a || 'x', upper(a), quote(a) FROM nul;
-- feature: numbers that look like text
SELECT 1 = '1', CAST(1 AS TEXT) = 1, '1' = 1.0, 1 IN ('1'), (SELECT 1) = '1';
SELECT count(*) FROM t WHERE a = 'not a number';
-- feature: ORDER BY in subqueries, and LIMIT without it
SELECT group_concat(name) FROM (SELECT name FROM dept ORDER BY salary DESC);
SELECT count(*) FROM (SELECT name FROM dept LIMIT 2);
-- chapter: lang_keywords
-- feature: keywords that need quotes and those that do not
CREATE TABLE kw1(abort, action, after, always, analyze, asc, attach, before, by, cascade, cast);
CREATE TABLE kw2(column, conflict, cross, current, current_date, current_time, cycle);
CREATE TABLE kw3(database, desc, detach, do, each, end, exclude, exclusive, explain, fail, filter, first, following);
CREATE TABLE kw4(generated, glob, groups, if, ignore, immediate, indexed, initially, instead, key, last, like, match, materialized);
CREATE TABLE kw5(no, nulls, of, offset, others, over, partition, plan, pragma, preceding, query, raise, range, recursive);
CREATE TABLE kw6(regexp, reindex, release, rename, replace, restrict, rollback, row, rows, savepoint, temp, temporary, ties);
CREATE TABLE kw7(trigger, unbounded, vacuum, view, virtual, window, with, without, within, strict);
SELECT first, last, "order" FROM (SELECT 1 AS first, 2 AS last, 3 AS "order");
CREATE TABLE bad(select);
CREATE TABLE bad(table);
CREATE TABLE bad(where);
CREATE TABLE bad(returning);
CREATE TABLE bad(nothing);
CREATE TABLE "select"("from" INT, "where" INT);
INSERT INTO "select" VALUES (1, 2);
SELECT "from", "where" FROM "select";
SELECT [from] FROM [select];
SELECT `from` FROM `select`;
-- chapter: lang_comment
-- feature: comments of both kinds
SELECT 1 -- to the end of the line
, 2;
SELECT /* inside */ 3 /* of
two lines */ , 4;
SELECT '-- not a comment', '/* nor this */';
/* before */ SELECT 5; -- behind
SELECT 6 /* open to the end of the statement;
*/ , 7;
-- only a comment;
SELECT 8 --;
;
SELECT 1 /* nested /* comments */ are not */;
SELECT 9 /**/ + /*-*/ 1;
SELECT 10 - - 1, 10 --1
;
