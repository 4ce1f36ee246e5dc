-- chapter: lang_select
CREATE TABLE author(id INTEGER PRIMARY KEY, name TEXT NOT NULL, born INT);
CREATE TABLE book(id INTEGER PRIMARY KEY, author INT REFERENCES author, title TEXT, price REAL, year INT);
INSERT INTO author VALUES (1, 'Ada', 1815), (2, 'Blaise', 1623), (3, 'Charles', 1791), (4, 'Dorothy', NULL);
INSERT INTO book VALUES (1, 1, 'Notes', 12.5, 1843), (2, 2, 'Thoughts', 8.0, 1670), (3, 3, 'Engine', 20.25, 1837),
  (4, 3, 'Tables', 8.0, 1827), (5, NULL, 'Anon', NULL, NULL), (6, 2, 'Letters', 5.75, 1657);

-- feature: result columns, aliases and names of columns
SELECT * FROM author;
SELECT author.*, 1 AS one FROM author;
SELECT name AS "the name", born + 1, born + 1 AS next FROM author;
SELECT a.name, b.title FROM author a, book b WHERE a.id = b.author ORDER BY b.id;
SELECT 1, 'x', 2.5, NULL, x'00ff';
SELECT name name2, born 'b o r n' FROM author LIMIT 1;
SELECT "name", [born], `id` FROM author LIMIT 1;
SELECT rowid, oid, _rowid_, name FROM author;
SELECT main.author.name FROM main.author ORDER BY 1 DESC;
SELECT nothing FROM author;
SELECT * FROM nowhere;
SELECT nowhere.* FROM author;
SELECT author.nothing FROM author;
SELECT *;

-- feature: WHERE
SELECT name FROM author WHERE born > 1700;
SELECT name FROM author WHERE born IS NULL;
SELECT name FROM author WHERE NOT born;
SELECT title FROM book WHERE price BETWEEN 6 AND 13;
SELECT title FROM book WHERE year % 2 = 0 AND price IS NOT NULL;
SELECT title FROM book WHERE 'text';
SELECT title FROM book WHERE '1abc';
SELECT title FROM book WHERE 0.5;
SELECT title AS t FROM book WHERE t LIKE 'T%';
SELECT title FROM book WHERE count(*) > 1;

-- feature: DISTINCT and ALL
SELECT DISTINCT price FROM book ORDER BY price;
SELECT ALL price FROM book ORDER BY price, id;
SELECT DISTINCT author, price FROM book ORDER BY 1, 2;
SELECT DISTINCT NULL FROM book;
SELECT count(DISTINCT price), count(DISTINCT author) FROM book;
SELECT DISTINCT ALL price FROM book;

-- feature: GROUP BY and HAVING
SELECT author, count(*), sum(price) FROM book GROUP BY author ORDER BY author;
SELECT author, count(*) FROM book GROUP BY 1 HAVING count(*) > 1 ORDER BY 1;
SELECT year / 100 AS century, group_concat(title) FROM book GROUP BY century ORDER BY century;
SELECT count(*) FROM book HAVING count(*) > 100;
SELECT author FROM book GROUP BY author HAVING min(price) = 8.0 ORDER BY 1;
SELECT author, max(price), title FROM book GROUP BY author ORDER BY author;
SELECT author, min(price), title FROM book GROUP BY author ORDER BY author;
SELECT count(*), max(id), title FROM book;
SELECT sum(price) FROM book WHERE 0;
SELECT sum(price) FROM book WHERE 0 GROUP BY author;
SELECT author FROM book GROUP BY author + 0, NULL ORDER BY 1;
SELECT author FROM book GROUP BY 2;
SELECT sum(sum(price)) FROM book;
SELECT title FROM book GROUP BY count(*);

-- feature: ORDER BY
SELECT title FROM book ORDER BY price, title DESC;
SELECT title, price FROM book ORDER BY price NULLS LAST, id;
SELECT title, price FROM book ORDER BY price DESC NULLS FIRST, id;
SELECT title FROM book ORDER BY 1 COLLATE NOCASE DESC;
SELECT title, year FROM book ORDER BY -year;
SELECT title t FROM book ORDER BY length(t), t;
SELECT title FROM book ORDER BY 2;
SELECT title FROM book ORDER BY 0;
SELECT title FROM book ORDER BY nothing;
SELECT DISTINCT author FROM book ORDER BY price * 0, author;

-- feature: LIMIT and OFFSET
SELECT id FROM book ORDER BY id LIMIT 2;
SELECT id FROM book ORDER BY id LIMIT 2 OFFSET 3;
SELECT id FROM book ORDER BY id LIMIT 3, 2;
SELECT id FROM book ORDER BY id LIMIT -1 OFFSET 4;
SELECT id FROM book ORDER BY id LIMIT 0;
SELECT id FROM book ORDER BY id LIMIT 2 OFFSET -5;
SELECT id FROM book ORDER BY id LIMIT (SELECT count(*) FROM author) - 2;
SELECT id FROM book ORDER BY id LIMIT '2';
SELECT id FROM book ORDER BY id LIMIT 'two';
SELECT id FROM book ORDER BY id LIMIT NULL;
SELECT id FROM book LIMIT id;
SELECT id FROM book OFFSET 2;

-- feature: inner, cross, left, right and full joins
SELECT a.name, b.title FROM author a JOIN book b ON a.id = b.author ORDER BY b.id;
SELECT a.name, b.title FROM author a INNER JOIN book b ON a.id = b.author AND b.price > 8 ORDER BY b.id;
SELECT count(*) FROM author, book;
SELECT count(*) FROM author CROSS JOIN book;
SELECT a.name, b.title FROM author a LEFT JOIN book b ON a.id = b.author ORDER BY a.id, b.id;
SELECT a.name, b.title FROM author a LEFT OUTER JOIN book b ON a.id = b.author WHERE b.id IS NULL;
SELECT a.name, b.title FROM author a RIGHT JOIN book b ON a.id = b.author ORDER BY b.id;
SELECT a.name, b.title FROM author a FULL JOIN book b ON a.id = b.author ORDER BY a.id, b.id;
SELECT a.name, b.title FROM author a FULL OUTER JOIN book b ON 0 ORDER BY a.id, b.id;
SELECT count(*) FROM author a LEFT JOIN book b ON a.id = b.author LEFT JOIN author c ON c.id = b.id;
SELECT a.name FROM author a JOIN author c ON a.born < c.born ORDER BY a.id, c.id;
SELECT * FROM author a JOIN book b ON a.nothing = b.id;

-- feature: NATURAL joins and USING
CREATE TABLE left_one(k INT, v TEXT);
CREATE TABLE right_one(k INT, w TEXT);
INSERT INTO left_one VALUES (1, 'a'), (2, 'b'), (3, 'c');
INSERT INTO right_one VALUES (2, 'B'), (3, 'C'), (4, 'D');
SELECT * FROM left_one NATURAL JOIN right_one;
SELECT * FROM left_one JOIN right_one USING (k);
SELECT * FROM left_one LEFT JOIN right_one USING (k);
SELECT * FROM left_one FULL JOIN right_one USING (k) ORDER BY k;
SELECT * FROM left_one NATURAL LEFT JOIN right_one;
SELECT k, left_one.k, right_one.k FROM left_one RIGHT JOIN right_one USING (k) ORDER BY 1;
SELECT * FROM left_one JOIN right_one USING (nothing);
SELECT * FROM left_one NATURAL JOIN right_one ON 1;

-- feature: subqueries in FROM
SELECT avg(n) FROM (SELECT count(*) AS n FROM book GROUP BY author);
SELECT t.title FROM (SELECT title, price FROM book ORDER BY price DESC LIMIT 2) AS t ORDER BY 1;
SELECT * FROM (SELECT 1 AS a), (SELECT 2 AS b);
SELECT * FROM (author JOIN book ON author.id = book.author) ORDER BY book.id LIMIT 1;
SELECT * FROM (SELECT * FROM (SELECT * FROM author WHERE id > 1) WHERE id < 4);
SELECT x FROM (SELECT 1 AS y);

-- feature: compound selects
SELECT id FROM author UNION SELECT id FROM book ORDER BY 1;
SELECT id FROM author UNION ALL SELECT id FROM book ORDER BY 1;
SELECT id FROM book INTERSECT SELECT id FROM author ORDER BY 1;
SELECT id FROM book EXCEPT SELECT id FROM author ORDER BY 1;
SELECT 1 AS a UNION SELECT 1.0 UNION SELECT '1' ORDER BY a;
SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 EXCEPT SELECT 2;
SELECT name FROM author UNION SELECT title FROM book ORDER BY name COLLATE NOCASE LIMIT 3;
SELECT NULL UNION SELECT NULL;
SELECT 1, 2 UNION SELECT 3;
SELECT id FROM author ORDER BY 1 UNION SELECT id FROM book;
SELECT id FROM author LIMIT 1 UNION SELECT 2;
SELECT id AS n FROM author UNION SELECT id FROM book ORDER BY nothing;

-- feature: VALUES
VALUES (1, 'a'), (2, 'b');
VALUES (1), (2) UNION ALL VALUES (3);
SELECT column1, column2 FROM (VALUES (1, 'a'), (2, 'b')) ORDER BY column1 DESC;
VALUES (1), (2, 3);
VALUES ();

-- feature: correlated and scalar subqueries
SELECT name, (SELECT count(*) FROM book WHERE author = a.id) FROM author a ORDER BY id;
SELECT (SELECT title FROM book ORDER BY id), (SELECT title FROM book WHERE 0);
SELECT name FROM author a WHERE EXISTS (SELECT 1 FROM book WHERE author = a.id AND price > 10);
SELECT name FROM author a WHERE NOT EXISTS (SELECT 1 FROM book WHERE author = a.id);
SELECT title FROM book b WHERE price = (SELECT max(price) FROM book WHERE author = b.author) ORDER BY id;
SELECT (SELECT 1, 2);
SELECT (SELECT id, title FROM book) = (1, 'Notes');

-- feature: INDEXED BY and NOT INDEXED
CREATE INDEX book_by_author ON book(author);
SELECT title FROM book INDEXED BY book_by_author WHERE author = 3 ORDER BY id;
SELECT title FROM book NOT INDEXED WHERE author = 3 ORDER BY id;
SELECT title FROM book INDEXED BY nothing WHERE author = 3;
EXPLAIN QUERY PLAN SELECT title FROM book WHERE author = 3;
EXPLAIN QUERY PLAN SELECT title FROM book NOT INDEXED WHERE author = 3;

-- feature: statements that cannot be parsed
SELECT FROM author;
SELECT 1 FROM;
SELEC 1;
SELECT (1;
SELECT 1 2 3;
SELECT * FROM author WHERE;
