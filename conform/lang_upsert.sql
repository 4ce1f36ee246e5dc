-- chapter: lang_upsert
-- feature: DO UPDATE with the excluded row
CREATE TABLE vocabulary(word TEXT PRIMARY KEY, count INT DEFAULT 1, seen TEXT);
INSERT INTO vocabulary(word) VALUES ('jovial') ON CONFLICT (word) DO UPDATE SET count = count + 1;
INSERT INTO vocabulary(word) VALUES ('jovial') ON CONFLICT (word) DO UPDATE SET count = count + 1;
INSERT INTO vocabulary(word, seen) VALUES ('jovial', 'x'), ('merry', 'y'), ('merry', 'z')
  ON CONFLICT (word) DO UPDATE SET count = count + excluded.count, seen = coalesce(seen, '') || excluded.seen;
SELECT * FROM vocabulary ORDER BY word;
INSERT INTO vocabulary(word, count) VALUES ('merry', 50) ON CONFLICT (word) DO UPDATE SET (count, seen) = (excluded.count, 'row');
SELECT * FROM vocabulary ORDER BY word;

-- feature: DO NOTHING
INSERT INTO vocabulary(word) VALUES ('jovial'), ('new') ON CONFLICT (word) DO NOTHING;
INSERT INTO vocabulary(word) VALUES ('jovial') ON CONFLICT DO NOTHING;
SELECT word, count FROM vocabulary ORDER BY word;

-- feature: a WHERE on the update
CREATE TABLE phone(name TEXT PRIMARY KEY, number TEXT, valid DATE);
INSERT INTO phone VALUES ('Alice', '1', '2018-05-08');
INSERT INTO phone VALUES ('Alice', '2', '2018-05-01') ON CONFLICT (name) DO UPDATE SET number = excluded.number, valid = excluded.valid WHERE excluded.valid > phone.valid;
SELECT * FROM phone;
INSERT INTO phone VALUES ('Alice', '3', '2018-06-01') ON CONFLICT (name) DO UPDATE SET number = excluded.number, valid = excluded.valid WHERE excluded.valid > phone.valid;
SELECT * FROM phone;

-- feature: several ON CONFLICT clauses
CREATE TABLE several(a INTEGER PRIMARY KEY, b INT UNIQUE, c INT UNIQUE, hit TEXT);
INSERT INTO several VALUES (1, 10, 100, NULL), (2, 20, 200, NULL), (3, 30, 300, NULL);
INSERT INTO several VALUES (1, 11, 101, NULL) ON CONFLICT (a) DO UPDATE SET hit = 'a' ON CONFLICT (b) DO UPDATE SET hit = 'b' ON CONFLICT DO UPDATE SET hit = 'other';
INSERT INTO several VALUES (5, 20, 500, NULL) ON CONFLICT (a) DO UPDATE SET hit = 'a' ON CONFLICT (b) DO UPDATE SET hit = 'b' ON CONFLICT DO UPDATE SET hit = 'other';
INSERT INTO several VALUES (6, 60, 300, NULL) ON CONFLICT (a) DO UPDATE SET hit = 'a' ON CONFLICT (b) DO NOTHING ON CONFLICT DO UPDATE SET hit = 'other';
INSERT INTO several VALUES (1, 20, 300, NULL) ON CONFLICT (c) DO UPDATE SET hit = 'c first' ON CONFLICT (a) DO UPDATE SET hit = 'a second';
SELECT * FROM several ORDER BY a;
INSERT INTO several VALUES (7, 10, 700, NULL) ON CONFLICT (c) DO NOTHING;
INSERT INTO several VALUES (1, 1, 1, 1) ON CONFLICT DO NOTHING ON CONFLICT (a) DO NOTHING;

-- feature: conflict targets on partial and expression indexes
CREATE TABLE target(id INTEGER PRIMARY KEY, name TEXT, live INT, n INT DEFAULT 0);
CREATE UNIQUE INDEX target_live ON target(name) WHERE live = 1;
CREATE UNIQUE INDEX target_lower ON target(lower(name), n);
INSERT INTO target(name, live) VALUES ('a', 1);
INSERT INTO target(name, live, n) VALUES ('a', 1, 5) ON CONFLICT (name) WHERE live = 1 DO UPDATE SET n = n + 1;
INSERT INTO target(name, live, n) VALUES ('A', 0, 1) ON CONFLICT (lower(name), n) DO UPDATE SET name = 'hit';
INSERT INTO target(name, live, n) VALUES ('A', 0, 1) ON CONFLICT (lower(name), n) DO UPDATE SET n = 77;
SELECT * FROM target ORDER BY id;
INSERT INTO target(name, live) VALUES ('a', 1) ON CONFLICT (name) DO NOTHING;
INSERT INTO target(name, live) VALUES ('a', 1) ON CONFLICT (live) DO NOTHING;

-- feature: an upsert from a query needs a WHERE
INSERT INTO vocabulary(word) SELECT 'jovial' WHERE true ON CONFLICT (word) DO UPDATE SET count = 0;
INSERT INTO vocabulary(word) SELECT 'jovial' ON CONFLICT (word) DO UPDATE SET count = 0;
SELECT count FROM vocabulary WHERE word = 'jovial';

-- feature: an update that violates another constraint
INSERT INTO several VALUES (1, 999, 999, NULL) ON CONFLICT (a) DO UPDATE SET b = 20;
INSERT INTO several VALUES (1, 999, 999, NULL) ON CONFLICT (a) DO UPDATE SET a = a + 100;
SELECT * FROM several ORDER BY a;
INSERT OR IGNORE INTO several VALUES (2, 999, 999, NULL) ON CONFLICT (a) DO UPDATE SET b = 30;
INSERT OR REPLACE INTO several VALUES (2, 30, 999, NULL) ON CONFLICT (a) DO UPDATE SET b = excluded.b;
SELECT * FROM several ORDER BY a;

-- feature: upserts in triggers and with RETURNING
CREATE TABLE log(n INTEGER PRIMARY KEY, what TEXT);
CREATE TRIGGER vocabulary_insert AFTER INSERT ON vocabulary BEGIN INSERT INTO log(what) VALUES ('insert ' || new.word); END;
CREATE TRIGGER vocabulary_update AFTER UPDATE ON vocabulary BEGIN INSERT INTO log(what) VALUES ('update ' || new.word); END;
INSERT INTO vocabulary(word) VALUES ('jovial'), ('brand new') ON CONFLICT (word) DO UPDATE SET count = count + 1 RETURNING word, count;
INSERT INTO vocabulary(word) VALUES ('jovial') ON CONFLICT (word) DO NOTHING RETURNING word, count;
SELECT * FROM log ORDER BY n;

-- feature: targets that are none
INSERT INTO vocabulary(word) VALUES ('x') ON CONFLICT (count) DO NOTHING;
INSERT INTO vocabulary(word) VALUES ('x') ON CONFLICT (nothing) DO NOTHING;
INSERT INTO vocabulary(word) VALUES ('x') ON CONFLICT (word) DO UPDATE SET nothing = 1;
INSERT INTO vocabulary(word) VALUES ('x') ON CONFLICT (word) DO DELETE;
CREATE VIEW v AS SELECT * FROM vocabulary;
INSERT INTO v(word) VALUES ('x') ON CONFLICT (word) DO NOTHING;
