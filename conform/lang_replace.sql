-- chapter: lang_replace
-- feature: REPLACE is INSERT OR REPLACE
CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c);
REPLACE INTO t VALUES (1, 'x', 1), (2, 'y', 2), (3, 'z', 3);
REPLACE INTO t VALUES (1, 'w', 10);
REPLACE INTO t(b, c) VALUES ('y', 20);
SELECT * FROM t ORDER BY a;
-- feature: one row that takes the place of several
REPLACE INTO t VALUES (3, 'w', 30);
SELECT * FROM t ORDER BY a;
REPLACE INTO t SELECT a, b, c * 2 FROM t;
SELECT * FROM t ORDER BY a;
-- feature: REPLACE and delete triggers
CREATE TABLE log(what);
CREATE TRIGGER t_delete AFTER DELETE ON t BEGIN INSERT INTO log VALUES ('deleted ' || old.a); END;
REPLACE INTO t VALUES (3, 'w', 31);
SELECT * FROM log;
DELETE FROM t WHERE a = 3;
SELECT * FROM log;
-- feature: REPLACE and NOT NULL, CHECK
CREATE TABLE n(a INTEGER PRIMARY KEY, b NOT NULL DEFAULT 'd', c NOT NULL, e CHECK (e > 0));
REPLACE INTO n VALUES (1, NULL, 'c', 1);
REPLACE INTO n VALUES (2, 'b', NULL, 1);
REPLACE INTO n VALUES (3, 'b', 'c', 0);
SELECT * FROM n;
-- feature: REPLACE without a rowid
CREATE TABLE w(a TEXT PRIMARY KEY, b UNIQUE) WITHOUT ROWID;
REPLACE INTO w VALUES ('k', 1), ('l', 2);
REPLACE INTO w VALUES ('k', 2);
SELECT * FROM w ORDER BY a;
REPLACE INTO nowhere VALUES (1);
REPLACE INTO t VALUES (1);
