-- chapter: stricttables
-- feature: the types of STRICT tables
CREATE TABLE s(a INT, b INTEGER, c REAL, d TEXT, e BLOB, f ANY) STRICT;
INSERT INTO s VALUES (1, 2, 3, 'four', x'05', 6);
INSERT INTO s VALUES ('1', '2', '3', 4, x'05', '6');
INSERT INTO s VALUES (1.0, 2.0, 3.5, 4.5, x'', 6.0);
INSERT INTO s VALUES (NULL, NULL, NULL, NULL, NULL, NULL);
SELECT *, typeof(a), typeof(b), typeof(c), typeof(d), typeof(e), typeof(f) FROM s;
-- feature: values that do not fit
INSERT INTO s(a) VALUES ('x');
INSERT INTO s(a) VALUES (1.5);
INSERT INTO s(b) VALUES (x'01');
INSERT INTO s(c) VALUES ('abc');
INSERT INTO s(d) VALUES (x'61');
INSERT INTO s(e) VALUES ('text');
INSERT INTO s(e) VALUES (5);
UPDATE s SET a = 'y' WHERE a = 1;
UPDATE s SET d = x'00' WHERE 0;
SELECT count(*) FROM s;
-- feature: ANY keeps what it is given
CREATE TABLE loose(f ANY);
INSERT INTO loose VALUES ('000123');
INSERT INTO s(f) VALUES ('000123'), (x'31'), (1e3);
SELECT f, typeof(f) FROM s WHERE a IS NULL AND f IS NOT NULL;
SELECT f, typeof(f) FROM loose;
-- feature: declarations that are refused
CREATE TABLE bad(a) STRICT;
CREATE TABLE bad(a VARCHAR(10)) STRICT;
CREATE TABLE bad(a INT, b DATE) STRICT;
CREATE TABLE bad(a BOOLEAN) STRICT;
CREATE TABLE fine(a int, b Text, c any) STRICT;
PRAGMA table_list(fine);
-- feature: INTEGER PRIMARY KEY and INT PRIMARY KEY
CREATE TABLE p(a INTEGER PRIMARY KEY, b TEXT) STRICT;
INSERT INTO p(b) VALUES ('x');
INSERT INTO p VALUES ('text', 'y');
CREATE TABLE q(a INT PRIMARY KEY, b TEXT) STRICT;
INSERT INTO q VALUES (NULL, 'x');
INSERT INTO q VALUES ('5', 'x'), (5, 'y');
SELECT * FROM p, q;
-- feature: with CHECK, DEFAULT, generated columns and foreign keys
CREATE TABLE all_of(id INTEGER PRIMARY KEY, a INT DEFAULT 'text', b INT CHECK (b <> 3), c INT AS (b + 1), p INT REFERENCES p) STRICT;
INSERT INTO all_of(b) VALUES (1);
INSERT INTO all_of(a, b) VALUES (1, 3);
INSERT INTO all_of(a, b, p) VALUES (1, 4, 1), (2, 5, 99);
INSERT INTO all_of(a, b, p) VALUES (1, 4, 1);
SELECT * FROM all_of;
ALTER TABLE all_of ADD COLUMN z INT DEFAULT 5;
ALTER TABLE all_of ADD COLUMN y VARCHAR;
ALTER TABLE all_of ADD COLUMN x INT DEFAULT 'text';
SELECT * FROM all_of;
PRAGMA integrity_check;
