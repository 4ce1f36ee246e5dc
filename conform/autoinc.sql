-- chapter: autoinc
-- feature: a rowid without AUTOINCREMENT is the largest and one
CREATE TABLE n(a INTEGER PRIMARY KEY, b);
INSERT INTO n(b) VALUES ('x'), ('y'), ('z');
DELETE FROM n WHERE a = 3;
INSERT INTO n(b) VALUES ('again') RETURNING a;
INSERT INTO n VALUES (-5, 'negative');
DELETE FROM n WHERE a > 0;
INSERT INTO n(b) VALUES ('after negative');
SELECT * FROM n;
-- feature: AUTOINCREMENT never uses a rowid twice
CREATE TABLE t(a INTEGER PRIMARY KEY AUTOINCREMENT, b);
INSERT INTO t(b) VALUES ('x'), ('y'), ('z');
DELETE FROM t WHERE a = 3;
INSERT INTO t(b) VALUES ('next') RETURNING a;
INSERT INTO t VALUES (100, 'given');
INSERT INTO t(b) VALUES ('after');
DELETE FROM t;
INSERT INTO t(b) VALUES ('empty before');
SELECT * FROM t;
SELECT * FROM sqlite_sequence;
-- feature: a rollback takes the sequence back
BEGIN;
INSERT INTO t(b) VALUES ('rolled back');
SELECT * FROM sqlite_sequence;
ROLLBACK;
SELECT * FROM sqlite_sequence;
INSERT INTO t(b) VALUES ('same again') RETURNING a;
INSERT OR IGNORE INTO t(a, b) VALUES (102, 'x'), (300, 'y');
SELECT * FROM sqlite_sequence;
-- feature: sqlite_sequence can be changed
UPDATE sqlite_sequence SET seq = 500 WHERE name = 't';
INSERT INTO t(b) VALUES ('from 500') RETURNING a;
DELETE FROM sqlite_sequence WHERE name = 't';
INSERT INTO t(b) VALUES ('from the largest') RETURNING a;
INSERT INTO sqlite_sequence VALUES ('n', 5);
UPDATE sqlite_sequence SET seq = 'text' WHERE name = 't';
INSERT INTO t(b) VALUES ('odd') RETURNING a;
SELECT * FROM sqlite_sequence;
DROP TABLE sqlite_sequence;
-- feature: renaming and dropping
ALTER TABLE t RENAME TO u;
SELECT name FROM sqlite_sequence ORDER BY 1;
DROP TABLE u;
SELECT name FROM sqlite_sequence ORDER BY 1;
-- feature: the largest rowid was used
CREATE TABLE full(a INTEGER PRIMARY KEY AUTOINCREMENT, b);
INSERT INTO full VALUES (9223372036854775807, 'last');
INSERT INTO full(b) VALUES ('none left');
SELECT * FROM full;
BEGIN;
INSERT INTO full VALUES (5, 'given');
INSERT INTO full(b) VALUES ('none left');
INSERT INTO full VALUES (6, 'after the error');
SELECT * FROM full;
COMMIT;
-- feature: where AUTOINCREMENT may stand
CREATE TABLE bad(a INT PRIMARY KEY AUTOINCREMENT);
CREATE TABLE bad(a TEXT AUTOINCREMENT);
CREATE TABLE bad(a INTEGER PRIMARY KEY DESC AUTOINCREMENT);
CREATE TABLE bad(a, b INTEGER, PRIMARY KEY (b AUTOINCREMENT));
SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name;
