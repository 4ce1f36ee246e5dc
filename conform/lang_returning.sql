-- chapter: lang_returning
-- feature: RETURNING of inserted rows
CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INT DEFAULT 5, c GENERATED ALWAYS AS (b * 2));
INSERT INTO t(a) VALUES ('x') RETURNING *;
INSERT INTO t(a) VALUES ('y'), ('z') RETURNING id, a || '!' AS loud, c;
INSERT INTO t(a) SELECT a FROM t ORDER BY id RETURNING id;
INSERT INTO t DEFAULT VALUES RETURNING rowid, typeof(a), b;
REPLACE INTO t(id, a) VALUES (1, 'new') RETURNING id, a, b;
INSERT OR IGNORE INTO t(id, a) VALUES (1, 'no'), (50, 'yes') RETURNING id;
INSERT INTO t(id) VALUES (1) RETURNING *;
-- feature: RETURNING of updated rows
UPDATE t SET b = b + 1 WHERE id <= 2 RETURNING id, b, c;
UPDATE t SET b = 0 WHERE id < 0 RETURNING id;
UPDATE t SET a = 'same' RETURNING count(*);
UPDATE t SET b = b RETURNING id, (SELECT count(*) FROM t);
UPDATE t SET a = u.x FROM (SELECT 'from' AS x) AS u WHERE id = 3 RETURNING t.a;
UPDATE t SET a = u.x FROM (SELECT 'from' AS x) AS u WHERE id = 3 RETURNING u.x;
-- feature: RETURNING of deleted rows
DELETE FROM t WHERE id = 2 RETURNING *;
DELETE FROM t WHERE id = 2 RETURNING *;
DELETE FROM t WHERE id > 5 RETURNING id, a;
SELECT * FROM t ORDER BY id;
-- feature: names of the result
INSERT INTO t(a) VALUES ('n') RETURNING a AS "a b", a, t.a, rowid;
INSERT INTO t(a) VALUES ('n') RETURNING nothing;
INSERT INTO t(a) VALUES ('n') RETURNING;
-- feature: what triggers change is not shown
CREATE TRIGGER shout AFTER INSERT ON t BEGIN UPDATE t SET a = upper(a) WHERE id = new.id; END;
INSERT INTO t(a) VALUES ('quiet') RETURNING id, a;
SELECT a FROM t ORDER BY id DESC LIMIT 1;
-- feature: all changes are made before the first row is shown
BEGIN;
INSERT INTO t(a) VALUES ('p'), ('q'), ('r') RETURNING id, a;
SELECT count(*) FROM t;
UPDATE t SET b = id RETURNING b;
DELETE FROM t RETURNING id;
SELECT count(*) FROM t;
ROLLBACK;
SELECT count(*) FROM t;
-- feature: RETURNING that fails
CREATE TABLE strictly(a INTEGER PRIMARY KEY, b CHECK (b > 0)) STRICT;
CREATE TABLE strictly(a INTEGER PRIMARY KEY, b INTEGER CHECK (b > 0)) STRICT;
INSERT INTO strictly VALUES (1, 1), (2, 0) RETURNING *;
SELECT * FROM strictly;
INSERT INTO strictly VALUES (1, 1), (2, 2) RETURNING abs(-9223372036854775808);
SELECT * FROM strictly;
-- feature: RETURNING on views and virtual tables
CREATE VIEW v AS SELECT id, a FROM t;
CREATE TRIGGER v_insert INSTEAD OF INSERT ON v BEGIN INSERT INTO t(a) VALUES (new.a); END;
INSERT INTO v(a) VALUES ('through') RETURNING id, a;
SELECT a FROM t ORDER BY id DESC LIMIT 1;
CREATE VIRTUAL TABLE r USING rtree(id, x0, x1);
INSERT INTO r VALUES (1, 0, 1) RETURNING id;
INSERT INTO r VALUES (NULL, 0, 1) RETURNING *;
