-- chapter: rtree
-- feature: boxes and queries
CREATE VIRTUAL TABLE box USING rtree(id, minx, maxx, miny, maxy);
INSERT INTO box VALUES (1, -80.7749, -80.7747, 35.3776, 35.3778), (2, -81.0, -79.6, 35.0, 36.2), (3, 10, 20, 10, 20);
SELECT * FROM box ORDER BY id;
SELECT id FROM box WHERE minx >= -81.08 AND maxx <= -80.58 AND miny >= 35.0 AND maxy <= 35.44;
SELECT id FROM box WHERE maxx >= -81.08 AND minx <= -80.58 AND maxy >= 35.0 AND miny <= 35.44 ORDER BY id;
SELECT * FROM box WHERE id = 3;
SELECT id FROM box WHERE minx > 15;
SELECT count(*) FROM box WHERE maxx < 0;
-- feature: changes
UPDATE box SET maxx = 30 WHERE id = 3;
UPDATE box SET id = 30 WHERE id = 3;
DELETE FROM box WHERE id = 2;
INSERT INTO box VALUES (NULL, 0, 1, 0, 1);
INSERT INTO box VALUES (1, 0, 1, 0, 1);
INSERT OR REPLACE INTO box VALUES (1, 5, 6, 5, 6);
INSERT OR IGNORE INTO box VALUES (1, 7, 8, 7, 8);
SELECT * FROM box ORDER BY id;
-- feature: constraints and types
INSERT INTO box VALUES (50, 2, 1, 0, 1);
INSERT INTO box VALUES (51, 'text', 1, 0, 1);
INSERT INTO box VALUES ('x', 0, 1, 0, 1);
INSERT INTO box VALUES (52, NULL, 1, 0, 1);
INSERT INTO box VALUES (53, 0.1, 0.1, 16777217, 16777217);
SELECT *, typeof(id), typeof(minx) FROM box WHERE id > 49 ORDER BY id;
-- feature: integer trees, one and five dimensions, auxiliary columns
CREATE VIRTUAL TABLE ints USING rtree_i32(id, x0, x1, y0, y1);
INSERT INTO ints VALUES (1, 1, 2, 3, 4), (2, 2147483647, 2147483647, 0, 0);
SELECT *, typeof(x0) FROM ints ORDER BY id;
CREATE VIRTUAL TABLE line USING rtree(id, t0, t1, +name TEXT, +note);
INSERT INTO line VALUES (1, 0, 10, 'first', x'00'), (2, 5, 15, 'second', 2.5);
SELECT name, note FROM line WHERE t0 <= 7 AND t1 >= 7 ORDER BY id;
UPDATE line SET name = 'changed' WHERE id = 1;
SELECT * FROM line ORDER BY id;
CREATE VIRTUAL TABLE five USING rtree(id, a0, a1, b0, b1, c0, c1, d0, d1, e0, e1);
INSERT INTO five VALUES (1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1);
SELECT count(*) FROM five WHERE e0 < 0.5;
CREATE VIRTUAL TABLE bad USING rtree(id, a);
CREATE VIRTUAL TABLE bad USING rtree(id, a, b, c);
CREATE VIRTUAL TABLE bad USING rtree(id);
CREATE VIRTUAL TABLE bad USING rtree(id, a0, a1, b0, b1, c0, c1, d0, d1, e0, e1, f0, f1);
-- feature: many boxes, joins and rtreecheck
WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO box SELECT i, i % 40, i % 40 + 2, i / 40, i / 40 + 1.5 FROM n;
SELECT count(*) FROM box WHERE minx >= 5 AND maxx <= 12 AND miny > 5;
SELECT count(*), sum(id) FROM box WHERE maxx > 39;
CREATE TABLE place(id INTEGER PRIMARY KEY, name);
INSERT INTO place SELECT id, 'p' || id FROM box WHERE id % 50 = 0;
SELECT p.name FROM place p, box b WHERE p.id = b.id AND b.minx < 20 ORDER BY 1;
DELETE FROM box WHERE id % 3 = 0;
SELECT rtreecheck('box');
SELECT rtreecheck('nowhere');
EXPLAIN QUERY PLAN SELECT id FROM box WHERE minx > 5 AND maxy < 10;
SELECT rtreedepth(data) > 0 FROM box_node WHERE nodeno = 1;
-- feature: transactions, shadow tables, renaming
BEGIN;
DELETE FROM box;
SELECT count(*) FROM box;
ROLLBACK;
SELECT count(*) FROM box;
DELETE FROM box_node;
UPDATE box_rowid SET nodeno = 5;
DROP TABLE box_parent;
ALTER TABLE box RENAME TO crate;
SELECT count(*) FROM crate WHERE minx < 10;
DROP TABLE crate;
SELECT name FROM sqlite_schema WHERE name LIKE 'crate%';
-- chapter: geopoly
-- feature: Geopoly is not in this build, as plain SQLite says
CREATE VIRTUAL TABLE shape USING geopoly(a);
SELECT geopoly_area('[[0,0],[1,0],[0,1],[0,0]]');
