-- chapter: fts3
-- feature: FTS4 tables and MATCH
CREATE VIRTUAL TABLE docs USING fts4(title, body);
INSERT INTO docs(docid, title, body) VALUES (1, 'one', 'linux driver'), (2, 'two', 'software linux'), (3, 'three', 'the quick brown fox');
SELECT docid, title FROM docs WHERE docs MATCH 'linux' ORDER BY docid;
SELECT docid FROM docs WHERE body MATCH 'driver';
SELECT docid FROM docs WHERE docs MATCH 'title:two';
SELECT docid FROM docs WHERE docs MATCH 'li*' ORDER BY docid;
SELECT docid FROM docs WHERE docs MATCH '"linux driver"';
SELECT docid FROM docs WHERE docs MATCH 'linux NEAR/2 software';
SELECT docid FROM docs WHERE docs MATCH 'linux AND NOT driver' ORDER BY docid;
SELECT docid FROM docs WHERE docs MATCH 'driver OR fox' ORDER BY docid;
SELECT docid FROM docs WHERE docs MATCH '(driver OR software) linux' ORDER BY docid;
SELECT docid FROM docs WHERE docs MATCH '^soft';
SELECT docid FROM docs WHERE docs MATCH '"open';
SELECT docid FROM docs WHERE docs MATCH '(';
SELECT rowid, docid, title FROM docs WHERE rowid = 2;
-- feature: snippet, offsets, matchinfo
SELECT snippet(docs) FROM docs WHERE docs MATCH 'quick';
SELECT snippet(docs, '[', ']', '~', 1, 2) FROM docs WHERE docs MATCH 'fox';
SELECT offsets(docs) FROM docs WHERE docs MATCH 'linux' ORDER BY docid;
SELECT hex(matchinfo(docs)) FROM docs WHERE docs MATCH 'linux' ORDER BY docid;
SELECT hex(matchinfo(docs, 'pcnalx')) FROM docs WHERE docs MATCH 'linux driver';
SELECT matchinfo(docs, 'q') FROM docs WHERE docs MATCH 'linux';
SELECT snippet(title) FROM docs WHERE docs MATCH 'linux';
-- feature: changes
UPDATE docs SET body = 'changed words' WHERE docid = 1;
DELETE FROM docs WHERE docid = 2;
INSERT INTO docs(docid, title) VALUES (3, 'conflict');
INSERT OR REPLACE INTO docs(docid, title, body) VALUES (3, 'replaced', 'linux again');
SELECT docid, * FROM docs ORDER BY docid;
BEGIN;
INSERT INTO docs(title, body) VALUES ('rolled', 'back');
SELECT count(*) FROM docs WHERE docs MATCH 'rolled';
ROLLBACK;
SELECT count(*) FROM docs WHERE docs MATCH 'rolled';
-- feature: options of FTS4
CREATE VIRTUAL TABLE simple USING fts4(tokenize=simple);
CREATE VIRTUAL TABLE porter USING fts4(x, tokenize=porter, prefix="2,4", order=desc);
CREATE VIRTUAL TABLE uni USING fts4(x, tokenize=unicode61 "remove_diacritics=1", notindexed=y, y);
CREATE VIRTUAL TABLE lang USING fts4(x, languageid="lid");
CREATE VIRTUAL TABLE zip USING fts4(x, matchinfo=fts3);
CREATE VIRTUAL TABLE bad USING fts4(x, tokenize=nothing);
CREATE VIRTUAL TABLE bad USING fts4(x, unknown=1);
INSERT INTO simple VALUES ('plain words');
INSERT INTO porter VALUES ('running runner'), ('runs');
INSERT INTO uni VALUES ('Café', 'hidden');
INSERT INTO lang(x, lid) VALUES ('hello', 1), ('hello', 2);
SELECT docid FROM porter WHERE porter MATCH 'run';
SELECT docid FROM uni WHERE uni MATCH 'cafe';
SELECT docid FROM uni WHERE uni MATCH 'hidden';
SELECT docid FROM lang WHERE lang MATCH 'hello' AND lid = 2;
SELECT content FROM simple;
-- feature: FTS3, external content and contentless tables
CREATE VIRTUAL TABLE old USING fts3(a, b);
INSERT INTO old VALUES ('fts', 'three');
SELECT a FROM old WHERE old MATCH 'three';
CREATE TABLE src(id INTEGER PRIMARY KEY, a, b);
INSERT INTO src VALUES (5, 'apple', 'pie');
CREATE VIRTUAL TABLE ext USING fts4(content="src", a, b);
INSERT INTO ext(docid, a, b) SELECT id, a, b FROM src;
SELECT docid, a FROM ext WHERE ext MATCH 'pie';
INSERT INTO ext(ext) VALUES ('rebuild');
CREATE VIRTUAL TABLE less USING fts4(content="", a);
INSERT INTO less(docid, a) VALUES (1, 'alpha'), (2, 'beta');
SELECT docid FROM less WHERE less MATCH 'beta';
DELETE FROM less WHERE docid = 1;
-- feature: commands and fts4aux
INSERT INTO docs(docs) VALUES ('optimize');
INSERT INTO docs(docs) VALUES ('rebuild');
INSERT INTO docs(docs) VALUES ('integrity-check');
INSERT INTO docs(docs) VALUES ('merge=50,2');
INSERT INTO docs(docs) VALUES ('automerge=4');
INSERT INTO docs(docs) VALUES ('nothing');
CREATE VIRTUAL TABLE terms USING fts4aux(docs);
SELECT term, col, documents, occurrences FROM terms WHERE col = '*' ORDER BY term;
-- feature: shadow tables, renaming and dropping
SELECT name FROM sqlite_schema WHERE name LIKE 'docs%' AND type = 'table' ORDER BY name;
DELETE FROM docs_content;
INSERT INTO docs_segdir VALUES (1, 1, 1, 1, 1, 1);
DROP TABLE docs_segments;
DROP TABLE terms;
ALTER TABLE docs RENAME TO papers;
SELECT docid FROM papers WHERE papers MATCH 'linux';
DROP TABLE papers;
SELECT count(*) FROM sqlite_schema WHERE name LIKE 'papers%';
CREATE VIRTUAL TABLE bad USING nothing(x);
