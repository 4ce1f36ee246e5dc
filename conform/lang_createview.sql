-- chapter: lang_createview
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL);
INSERT INTO t VALUES (1, 'x', 1.5), (2, 'y', 2.5), (3, 'z', NULL);
-- feature: views and the names of their columns
CREATE VIEW v AS SELECT a, b || '!' AS loud, c * 2 FROM t;
SELECT * FROM v;
CREATE VIEW named(one, two) AS SELECT a, b FROM t;
SELECT one, two FROM named WHERE two > 'x';
CREATE VIEW bad(one) AS SELECT a, b FROM t;
SELECT * FROM bad;
CREATE VIEW bad(one, one) AS SELECT 1, 2;
CREATE VIEW IF NOT EXISTS v AS SELECT 1;
CREATE VIEW v AS SELECT 1;
CREATE VIEW t AS SELECT 1;
PRAGMA table_info(v);
SELECT sql FROM sqlite_schema WHERE type = 'view' ORDER BY name;
-- feature: views of views, joins, compounds and CTEs
CREATE VIEW w AS SELECT v.a AS va, t.b AS tb FROM v JOIN t ON t.a = v.a;
SELECT * FROM w ORDER BY va DESC;
CREATE VIEW both AS SELECT a FROM t UNION ALL SELECT a + 10 FROM t;
SELECT sum(a) FROM both;
CREATE VIEW cte AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i, i * i AS square FROM n;
SELECT * FROM cte WHERE square > 5;
CREATE VIEW agg AS SELECT count(*) AS n, max(c) AS most FROM t;
SELECT n, most FROM agg;
SELECT v.a, agg.n FROM v, agg ORDER BY 1;
-- feature: a view follows its tables
INSERT INTO t VALUES (4, 'new', 9);
SELECT n, most FROM agg;
ALTER TABLE t ADD COLUMN d DEFAULT 'd';
CREATE VIEW star AS SELECT * FROM t;
ALTER TABLE t ADD COLUMN e DEFAULT 'e';
SELECT * FROM star WHERE a = 1;
ALTER TABLE t RENAME COLUMN b TO bb;
SELECT loud FROM v WHERE a = 1;
SELECT sql FROM sqlite_schema WHERE name = 'v';
-- feature: views are read-only
INSERT INTO v VALUES (1, 2, 3);
UPDATE v SET a = 1;
DELETE FROM v;
-- feature: INSTEAD OF triggers make a view writable
CREATE TRIGGER v_i INSTEAD OF INSERT ON v BEGIN INSERT INTO t(a, bb) VALUES (new.a, new.loud); END;
CREATE TRIGGER v_u INSTEAD OF UPDATE OF loud ON v BEGIN UPDATE t SET bb = new.loud WHERE a = old.a; END;
CREATE TRIGGER v_d INSTEAD OF DELETE ON v BEGIN DELETE FROM t WHERE a = old.a; END;
INSERT INTO v(a, loud) VALUES (7, 'seven');
UPDATE v SET loud = 'changed' WHERE a < 3;
UPDATE v SET a = 100;
DELETE FROM v WHERE a = 3;
SELECT * FROM t;
-- feature: a view of what is not there
CREATE VIEW nowhere_view AS SELECT * FROM nowhere;
SELECT * FROM nowhere_view;
CREATE VIEW circle AS SELECT * FROM circle;
SELECT * FROM circle;
CREATE VIEW c1 AS SELECT * FROM c2;
CREATE VIEW c2 AS SELECT * FROM c1;
SELECT * FROM c1;
CREATE VIEW p AS SELECT ?1;
-- chapter: lang_dropview
-- feature: DROP VIEW
DROP VIEW nowhere_view;
DROP VIEW nowhere_view;
DROP VIEW IF EXISTS nowhere_view;
DROP VIEW main.star;
DROP VIEW t;
BEGIN;
DROP VIEW v;
SELECT * FROM w;
ROLLBACK;
SELECT * FROM w WHERE va = 1;
DROP VIEW v;
SELECT * FROM w;
SELECT type, name, tbl_name FROM sqlite_schema ORDER BY name;
