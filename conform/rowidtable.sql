-- chapter: rowidtable
-- feature: the rowid and its names
CREATE TABLE t(a, b);
INSERT INTO t VALUES ('x', 1), ('y', 2);
INSERT INTO t(rowid, a) VALUES (10, 'z');
SELECT rowid, _rowid_, oid, ROWID, a FROM t;
UPDATE t SET rowid = 20 WHERE rowid = 10;
UPDATE t SET rowid = 1 WHERE rowid = 2;
DELETE FROM t WHERE oid = 1;
SELECT t.rowid, a FROM t ORDER BY rowid DESC;
-- feature: INTEGER PRIMARY KEY is the rowid
CREATE TABLE i(k INTEGER PRIMARY KEY, v);
INSERT INTO i VALUES (5, 'a'), (-9223372036854775808, 'least'), (9223372036854775806, 'nearly');
SELECT rowid, k, v FROM i;
INSERT INTO i(v) VALUES ('the largest');
SELECT k FROM i ORDER BY k DESC LIMIT 1;
BEGIN;
INSERT INTO i(v) VALUES ('by chance');
SELECT count(*), count(DISTINCT k) FROM i;
ROLLBACK;
SELECT count(*) FROM i;
-- feature: what is no alias of the rowid
CREATE TABLE d(k INTEGER PRIMARY KEY DESC, v);
INSERT INTO d VALUES (NULL, 'null'), ('text', 'text'), (7, 'seven');
SELECT rowid, k, v FROM d ORDER BY rowid;
CREATE TABLE e(k INT PRIMARY KEY, v);
INSERT INTO e VALUES (NULL, 1), ('x', 2);
SELECT rowid, * FROM e;
CREATE TABLE g(k INTEGER, v, PRIMARY KEY (k));
INSERT INTO g(v) VALUES ('rowid');
SELECT rowid, * FROM g;
CREATE TABLE h(k INTEGER, v, PRIMARY KEY (k DESC));
INSERT INTO h(v) VALUES ('rowid');
SELECT rowid, * FROM h;
-- feature: types of the rowid
INSERT INTO i VALUES ('77', 'number in text');
INSERT INTO i VALUES (88.0, 'whole real');
INSERT INTO i VALUES ('eight', 'text');
INSERT INTO i VALUES (8.5, 'real');
INSERT INTO i VALUES (x'38', 'blob');
SELECT k, v FROM i WHERE k IN (77, 88) ORDER BY k;
SELECT k FROM i WHERE k = '77';
SELECT k FROM i WHERE k = 77.5;
SELECT k FROM i WHERE k > 77.5 AND k < 1000;
SELECT k FROM i WHERE rowid BETWEEN 0 AND 100 ORDER BY k DESC;
-- feature: views and subqueries have no rowid of their own
CREATE VIEW v AS SELECT a FROM t;
SELECT rowid FROM v;
SELECT rowid FROM (SELECT a FROM t);
SELECT rowid FROM (SELECT rowid, a FROM t);
SELECT rowid FROM (SELECT 1 UNION SELECT 2);
SELECT max(rowid), min(rowid) FROM i;
