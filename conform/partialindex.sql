-- chapter: partialindex
-- feature: an index of some rows
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INT, state TEXT, total REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) INSERT INTO orders SELECT i, i % 13, CASE WHEN i % 5 = 0 THEN 'open' WHEN i % 7 = 0 THEN NULL ELSE 'done' END, i * 1.5 FROM n;
CREATE INDEX open_orders ON orders(customer) WHERE state = 'open';
CREATE INDEX known_state ON orders(state) WHERE state IS NOT NULL;
SELECT id FROM orders WHERE customer = 4 AND state = 'open' ORDER BY id;
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE customer = 4 AND state = 'open';
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE customer = 4 AND state = 'done';
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE state = 'done';
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE state IS NULL;
SELECT id FROM orders INDEXED BY open_orders WHERE customer = 4;
SELECT count(*) FROM orders INDEXED BY open_orders WHERE state = 'open';
-- feature: rows that enter and leave the index
UPDATE orders SET state = 'done' WHERE id = 5;
UPDATE orders SET state = 'open' WHERE id = 1;
INSERT INTO orders VALUES (200, 4, 'open', 1), (201, 4, 'done', 1);
DELETE FROM orders WHERE id = 30;
SELECT id FROM orders INDEXED BY open_orders WHERE state = 'open' AND customer = 4 ORDER BY id;
PRAGMA integrity_check;
-- feature: UNIQUE among some rows
CREATE TABLE team(person INT, team INT, leads INT);
CREATE UNIQUE INDEX one_lead ON team(team) WHERE leads;
INSERT INTO team VALUES (1, 1, 1), (2, 1, 0), (3, 1, 0), (4, 2, 1);
INSERT INTO team VALUES (5, 2, 1);
UPDATE team SET leads = 1 WHERE person = 2;
UPDATE team SET leads = (person = 2) WHERE team = 1;
UPDATE team SET leads = 0 WHERE person = 1;
UPDATE team SET leads = 1 WHERE person = 2;
SELECT * FROM team ORDER BY person;
INSERT OR REPLACE INTO team VALUES (6, 2, 1);
INSERT INTO team VALUES (7, 2, 1) ON CONFLICT (team) WHERE leads DO UPDATE SET person = excluded.person;
SELECT * FROM team ORDER BY person;
-- feature: conditions
CREATE INDEX c1 ON orders(total) WHERE total > 100 AND customer IN (1, 2, 3);
CREATE INDEX c2 ON orders(total) WHERE state LIKE 'o%';
CREATE INDEX bad ON orders(total) WHERE random() > 0;
CREATE INDEX bad ON orders(total) WHERE nothing = 1;
CREATE INDEX bad ON orders(total) WHERE count(*) > 1;
CREATE INDEX bad ON orders(total) WHERE EXISTS (SELECT 1);
CREATE INDEX bad ON orders(total) WHERE total > ?;
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE total > 100 AND customer IN (1, 2, 3);
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE total > 120 AND customer IN (1, 2, 3);
PRAGMA index_list(orders);
ANALYZE;
SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY 1, 2;
EXPLAIN QUERY PLAN SELECT id FROM orders WHERE state = 'done';
