-- chapter: lang_insert
-- feature: rows of values, with and without a list of columns
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT DEFAULT 'none', c REAL, d NOT NULL DEFAULT 7, e UNIQUE);
INSERT INTO t VALUES (1, 'one', 1.5, 1, 'e1');
INSERT INTO t(a, b) VALUES (2, 'two');
INSERT INTO t(b, a) VALUES ('three', 3), ('four', 4);
INSERT INTO t DEFAULT VALUES;
INSERT INTO t(c) VALUES (1), ('2'), ('x'), (NULL);
INSERT INTO t(b, b) VALUES ('first', 'second');
SELECT * FROM t ORDER BY a;

-- feature: rows of a query
INSERT INTO t(b, c) SELECT b, c + 100 FROM t WHERE a <= 2;
INSERT INTO t(a, b) SELECT a + 1000, upper(b) FROM t WHERE b IS NOT NULL ORDER BY a;
INSERT INTO t(a, b) VALUES (50, (SELECT max(b) FROM t));
INSERT INTO t SELECT * FROM t WHERE 0;
INSERT INTO t(a) WITH n(x) AS (VALUES (60), (61)) SELECT x FROM n;
WITH n(x) AS (SELECT 70 UNION SELECT 71) INSERT INTO t(a, b) SELECT x, 'with' FROM n;
SELECT count(*), sum(a), max(a) FROM t;
SELECT * FROM t WHERE a >= 50 ORDER BY a;

-- feature: rowids that are given and that are chosen
INSERT INTO t(a) VALUES (NULL);
INSERT INTO t(rowid, b) VALUES (5000, 'rowid');
INSERT INTO t(_rowid_, b) VALUES (5001, 'rowid');
INSERT INTO t(a) VALUES ('5002');
INSERT INTO t(a) VALUES (5003.0);
INSERT INTO t(b) VALUES ('next');
SELECT a, b FROM t WHERE a >= 5000 ORDER BY a;
INSERT INTO t(a) VALUES ('text');
INSERT INTO t(a) VALUES (1.5);
INSERT INTO t(a) VALUES (x'01');
INSERT INTO t(a) VALUES (9223372036854775808);
INSERT INTO t(a) VALUES (-3);
SELECT min(a) FROM t;

-- feature: INSERT OR and REPLACE
INSERT OR IGNORE INTO t(a, b) VALUES (1, 'ignored'), (6000, 'kept');
INSERT OR REPLACE INTO t(a, b) VALUES (1, 'replaced');
REPLACE INTO t(a, b, e) VALUES (2, 'replaced', 'e1');
INSERT OR ABORT INTO t(a, b) VALUES (6001, 'x'), (1, 'y');
INSERT OR FAIL INTO t(a, b) VALUES (6002, 'kept'), (1, 'y'), (6003, 'z');
INSERT OR ROLLBACK INTO t(a, b) VALUES (6004, 'x'), (1, 'y');
INSERT OR IGNORE INTO t(a, d) VALUES (6005, NULL);
INSERT OR REPLACE INTO t(a, d) VALUES (6006, NULL);
SELECT a, b, d, e FROM t WHERE a IN (1, 2) OR a >= 6000 ORDER BY a;

-- feature: constraints that refuse a row
INSERT INTO t(a) VALUES (1);
INSERT INTO t(a, e) VALUES (7000, 'e1'), (7001, 'e1');
INSERT INTO t(a, d) VALUES (7000, NULL);
SELECT count(*) FROM t WHERE a >= 7000;

-- feature: wrong numbers of values, tables and columns that are not there
INSERT INTO t VALUES (1, 2);
INSERT INTO t(a, b) VALUES (1);
INSERT INTO t(a, b) VALUES (1, 2), (3);
INSERT INTO t(nothing) VALUES (1);
INSERT INTO nowhere VALUES (1);
INSERT INTO t(a) SELECT 1, 2;
INSERT INTO t;
INSERT t VALUES (1);
INSERT INTO main.t(b) VALUES ('main');
INSERT INTO other.t(b) VALUES ('other');

-- feature: an alias for the table
INSERT INTO t AS u(a, b) VALUES (8000, 'u') ON CONFLICT (a) DO UPDATE SET b = u.b || excluded.b;
INSERT INTO t AS u(a, b) VALUES (8000, 'v') ON CONFLICT (a) DO UPDATE SET b = u.b || excluded.b;
SELECT b FROM t WHERE a = 8000;

-- feature: a block of inserts, rolled back and committed
BEGIN;
INSERT INTO t(a, b) VALUES (9000, 'gone');
SELECT count(*) FROM t WHERE a = 9000;
ROLLBACK;
SELECT count(*) FROM t WHERE a = 9000;
BEGIN IMMEDIATE;
INSERT INTO t(a, b) VALUES (9001, 'stays');
INSERT INTO t(a, b) VALUES (1, 'fails');
INSERT INTO t(a, b) VALUES (9002, 'stays, too');
SELECT last_insert_rowid(), changes();
END;
SELECT a, b FROM t WHERE a >= 9000;
