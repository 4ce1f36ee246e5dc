-- chapter: withoutrowid
-- feature: a table whose rows are its primary key
CREATE TABLE w(a TEXT PRIMARY KEY, b INT, c) WITHOUT ROWID;
INSERT INTO w VALUES ('m', 1, 'x'), ('a', 2, 'y'), ('z', 3, NULL);
SELECT * FROM w;
SELECT rowid FROM w;
SELECT oid FROM w;
INSERT INTO w VALUES ('a', 5, 5);
INSERT INTO w VALUES (NULL, 5, 5);
INSERT INTO w(b) VALUES (5);
UPDATE w SET a = 'b' WHERE a = 'a';
UPDATE w SET a = 'm' WHERE a = 'b';
SELECT * FROM w WHERE a > 'b';
DELETE FROM w WHERE a = 'z';
SELECT * FROM w ORDER BY a DESC;
-- feature: primary keys of several columns, with order and collation
CREATE TABLE k(a TEXT COLLATE NOCASE, b INT, c, PRIMARY KEY (b DESC, a)) WITHOUT ROWID;
INSERT INTO k VALUES ('x', 1, 1), ('Y', 2, 2), ('y', 1, 3), ('X', 3, 4);
INSERT INTO k VALUES ('Y', 1, 9);
SELECT * FROM k;
SELECT * FROM k WHERE b = 1 AND a = 'Y';
EXPLAIN QUERY PLAN SELECT * FROM k WHERE b = 1 AND a = 'Y';
PRAGMA index_xinfo(k);
-- feature: INTEGER PRIMARY KEY is a column like others
CREATE TABLE i(a INTEGER PRIMARY KEY, b) WITHOUT ROWID;
INSERT INTO i VALUES (NULL, 1);
INSERT INTO i(b) VALUES (1);
INSERT INTO i VALUES ('7', 1), (3.0, 2);
INSERT INTO i VALUES ('text', 1);
SELECT a, typeof(a), b FROM i;
-- feature: secondary indexes
CREATE INDEX w_b ON w(b);
CREATE UNIQUE INDEX w_c ON w(c);
INSERT INTO w VALUES ('q', 1, 'x');
SELECT a FROM w INDEXED BY w_b WHERE b = 1;
EXPLAIN QUERY PLAN SELECT a FROM w WHERE b = 1;
REINDEX w;
PRAGMA integrity_check;
-- feature: upsert and REPLACE
INSERT INTO w VALUES ('m', 100, 'mm') ON CONFLICT (a) DO UPDATE SET b = excluded.b + w.b;
REPLACE INTO w VALUES ('m', 7, 'seven');
INSERT OR IGNORE INTO w VALUES ('m', 8, 'eight'), ('n', 9, 'nine');
SELECT * FROM w;
-- feature: what it must and may not have
CREATE TABLE bad(a) WITHOUT ROWID;
CREATE TABLE bad(a INTEGER PRIMARY KEY AUTOINCREMENT) WITHOUT ROWID;
CREATE TABLE bad(a PRIMARY KEY) WITHOUT;
CREATE TABLE bad(a PRIMARY KEY) WITHOUT OIDS;
CREATE TABLE both(a INT PRIMARY KEY, b TEXT) WITHOUT ROWID, STRICT;
INSERT INTO both VALUES ('x', 'y');
INSERT INTO both VALUES (1, 'y');
SELECT * FROM both;
-- feature: long rows and many of them
CREATE TABLE long(k TEXT PRIMARY KEY, v BLOB) WITHOUT ROWID;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO long SELECT printf('%05d', i * 7919 % 300), zeroblob(i * 10) FROM n;
SELECT count(*), min(k), max(k), sum(length(v)) FROM long;
DELETE FROM long WHERE k LIKE '%3';
SELECT count(*), sum(length(v)) FROM long;
UPDATE long SET k = 'x' || k WHERE length(v) > 2900;
SELECT k FROM long WHERE k > 'w' ORDER BY k;
ALTER TABLE long ADD COLUMN more DEFAULT 5;
SELECT sum(more) FROM long;
