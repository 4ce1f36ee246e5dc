-- chapter: lang_update
CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b TEXT, c INT UNIQUE);
INSERT INTO t VALUES (1, 10, 'x', 100), (2, 20, 'y', 200), (3, 30, 'z', 300), (4, NULL, NULL, NULL);
-- feature: SET of several columns, in terms of the old values
UPDATE t SET a = a + 1;
UPDATE t SET a = a * 2, b = b || a WHERE id < 3;
SELECT * FROM t ORDER BY id;
UPDATE t SET a = b, b = a WHERE id = 3;
UPDATE t SET a = 1, a = 2 WHERE id = 4;
SELECT * FROM t ORDER BY id;
UPDATE t SET a = 5 WHERE 0;
UPDATE t SET b = 'all' WHERE id IN (SELECT id FROM t WHERE c >= 200);
-- feature: SET of a row value
UPDATE t SET (a, b) = (7, 'seven') WHERE id = 1;
UPDATE t SET (a, b) = (SELECT max(a), min(b) FROM t) WHERE id = 2;
UPDATE t SET (a, b) = (1, 2, 3) WHERE id = 2;
UPDATE t SET (a, b) = 1 WHERE id = 2;
SELECT * FROM t ORDER BY id;
-- feature: UPDATE FROM
CREATE TABLE sales(item INT, quantity INT);
CREATE TABLE inventory(item INT PRIMARY KEY, quantity INT);
INSERT INTO inventory VALUES (1, 100), (2, 100), (3, 100);
INSERT INTO sales VALUES (1, 5), (1, 6), (2, 50);
UPDATE inventory SET quantity = quantity - daily.amount FROM (SELECT sum(quantity) AS amount, item FROM sales GROUP BY 2) AS daily WHERE inventory.item = daily.item;
SELECT * FROM inventory ORDER BY item;
UPDATE inventory AS i SET quantity = s.quantity FROM sales AS s WHERE s.item = i.item AND s.item = 2;
UPDATE inventory SET quantity = 0 FROM sales, t WHERE sales.item = inventory.item AND t.id = sales.item;
UPDATE inventory SET quantity = x.n FROM (VALUES (3, 33)) AS v, (SELECT 9 AS n) AS x WHERE inventory.item = v.column1;
SELECT * FROM inventory ORDER BY item;
UPDATE inventory SET quantity = 1 FROM inventory WHERE 1;
-- feature: UPDATE OR
UPDATE t SET c = 100 WHERE id = 2;
UPDATE OR IGNORE t SET c = 100 WHERE id IN (2, 3);
UPDATE OR REPLACE t SET c = 100 WHERE id = 2;
SELECT * FROM t ORDER BY id;
UPDATE OR FAIL t SET c = CASE id WHEN 2 THEN 111 ELSE 111 END;
SELECT * FROM t ORDER BY id;
UPDATE OR ROLLBACK t SET c = 5;
UPDATE OR ABORT t SET c = 6;
SELECT * FROM t ORDER BY id;
-- feature: a primary key that moves
UPDATE t SET id = id + 100 WHERE id = 3;
UPDATE t SET rowid = 9 WHERE id = 4;
UPDATE t SET id = 2 WHERE id = 9;
UPDATE t SET id = 'text' WHERE id = 9;
UPDATE t SET id = NULL WHERE id = 9;
UPDATE t SET id = id + 1;
SELECT * FROM t ORDER BY id;
-- feature: INDEXED BY, qualified names, aliases
CREATE INDEX t_a ON t(a);
UPDATE t INDEXED BY t_a SET b = 'indexed' WHERE a > 5;
UPDATE t NOT INDEXED SET b = 'not indexed' WHERE a > 5;
UPDATE main.t SET b = 'main' WHERE main.t.id = 10;
UPDATE t AS u SET b = u.b || '.' WHERE u.id = 10;
UPDATE t INDEXED BY nothing SET b = 1;
SELECT * FROM t ORDER BY id;
-- feature: LIMIT is not compiled in
UPDATE t SET b = 'limited' ORDER BY id LIMIT 1;
UPDATE t SET b = 'limited' LIMIT 1;
-- feature: what cannot be updated
UPDATE t SET nothing = 1;
UPDATE nowhere SET a = 1;
UPDATE t SET;
UPDATE t SET a = 1 WHERE nothing = 1;
UPDATE sqlite_schema SET sql = 'x';
CREATE VIEW v AS SELECT * FROM t;
UPDATE v SET a = 1;
UPDATE t SET a = sum(a);
-- feature: CTEs before an UPDATE
WITH big(id) AS (SELECT id FROM t WHERE c IS NOT NULL) UPDATE t SET a = 0 WHERE id IN (SELECT id FROM big);
WITH x(v) AS (VALUES ('cte')) UPDATE t SET b = (SELECT v FROM x);
SELECT * FROM t ORDER BY id;
