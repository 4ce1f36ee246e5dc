-- chapter: lang_attach
CREATE TABLE t(a);
INSERT INTO t VALUES (1);
-- feature: ATTACH and DETACH
ATTACH ':memory:' AS other;
ATTACH DATABASE 'file:x?mode=memory' AS other;
ATTACH '' AS scratch;
ATTACH ':mem' || 'ory:' AS other;
SELECT * FROM other.t;
CREATE TABLE other.x(a);
BEGIN;
INSERT INTO t VALUES (2);
ATTACH ':memory:' AS inside;
INSERT INTO t VALUES (3);
COMMIT;
SELECT * FROM main.t;
PRAGMA database_list;
-- chapter: lang_detach
-- feature: DETACH of what was never attached
DETACH other;
DETACH DATABASE nothing;
DETACH main;
DETACH 'a' || 'b';
-- chapter: lang_vacuum
-- feature: VACUUM and VACUUM INTO
VACUUM;
VACUUM main;
VACUUM INTO ':memory:';
BEGIN;
VACUUM;
INSERT INTO t VALUES (4);
COMMIT;
SELECT * FROM t;
-- chapter: tempfiles
-- feature: temporary objects
CREATE TEMP TABLE tmp(a);
CREATE TEMPORARY TABLE tmp(a);
CREATE TABLE temp.tmp(a);
CREATE TEMP VIEW tv AS SELECT * FROM t;
CREATE TEMP TRIGGER tt AFTER INSERT ON t BEGIN SELECT 1; END;
CREATE TRIGGER temp.tt AFTER INSERT ON t BEGIN SELECT 1; END;
CREATE TEMP TABLE ts AS SELECT * FROM t;
CREATE INDEX temp.ti ON tmp(a);
CREATE VIRTUAL TABLE temp.tf USING fts5(a);
SELECT * FROM tmp;
INSERT INTO temp.tmp VALUES (1);
SELECT * FROM sqlite_temp_schema;
SELECT count(*) FROM temp.sqlite_schema;
DROP TABLE IF EXISTS temp.tmp;
DROP TABLE temp.tmp;
BEGIN;
CREATE TEMP TABLE inblock(a);
INSERT INTO t VALUES (5);
COMMIT;
SELECT * FROM t;
-- chapter: schematab
-- feature: sqlite_schema by its names, and attempts to write to it
SELECT type, name FROM sqlite_schema;
SELECT type, name FROM sqlite_master;
SELECT type, name FROM main.sqlite_schema;
SELECT count(*) FROM sqlite_temp_master;
INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 2, 'CREATE TABLE x(a)');
UPDATE sqlite_schema SET name = 'y';
DELETE FROM sqlite_master;
DROP TABLE sqlite_schema;
CREATE INDEX si ON sqlite_schema(name);
CREATE TRIGGER st AFTER INSERT ON sqlite_schema BEGIN SELECT 1; END;
ALTER TABLE sqlite_schema ADD COLUMN x;
SELECT * FROM t;
