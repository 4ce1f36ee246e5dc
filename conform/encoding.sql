-- chapter: invalidutf
-- feature: text that is not UTF-8
CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);
INSERT INTO t VALUES (1, CAST(x'fffe' AS TEXT)), (2, CAST(x'61c3' AS TEXT)), (3, CAST(x'c080' AS TEXT)), (4, CAST(x'eda080' AS TEXT)), (5, CAST(x'f4908080' AS TEXT)), (6, CAST(x'80' AS TEXT)), (7, 'good ä');
SELECT id, v, hex(v), typeof(v), length(v) FROM t;
SELECT id, unicode(v), upper(v), hex(upper(v)) FROM t;
SELECT id, hex(v || 'x'), hex(substr(v, 1, 1)), hex(substr(v, 2)) FROM t;
SELECT id FROM t ORDER BY v;
SELECT id FROM t WHERE v = CAST(x'fffe' AS TEXT);
SELECT id FROM t WHERE v LIKE '_' ORDER BY id;
SELECT id FROM t WHERE v GLOB '?*' ORDER BY id;
SELECT id, hex(replace(v, CAST(x'ff' AS TEXT), '!')), instr(v, CAST(x'c3' AS TEXT)) FROM t;
SELECT group_concat(hex(v), ',') FROM t;
CREATE INDEX t_v ON t(v);
SELECT id FROM t WHERE v > CAST(x'80' AS TEXT) ORDER BY v;
CREATE UNIQUE INDEX t_u ON t(lower(v));
UPDATE t SET v = v || CAST(x'ff' AS TEXT) WHERE id = 1;
INSERT INTO t(v) VALUES (CAST(x'61c3' AS TEXT)) RETURNING id, hex(v);
SELECT id, hex(v) FROM t ORDER BY id;
SELECT json_valid(v), json_quote(v) IS NOT NULL FROM t ORDER BY id;
SELECT id, CAST(v AS BLOB), CAST(v AS INTEGER) FROM t;
SELECT quote(v) FROM t WHERE id = 7;
DELETE FROM t WHERE hex(v) LIKE 'FF%';
SELECT count(*) FROM t;
PRAGMA integrity_check;
-- feature: Unicode text of all planes
CREATE TABLE u(s TEXT);
INSERT INTO u VALUES ('ascii'), ('äöüß'), ('Ελληνικά'), ('日本語'), ('😀🎉'), ('e' || char(769)), (char(65533)), (char(0xfeff) || 'bom'), ('');
SELECT s, length(s), octet_length(s), hex(s), unicode(s) FROM u ORDER BY s;
SELECT upper(s), lower(s), substr(s, 2, 1) FROM u ORDER BY rowid;
SELECT s FROM u WHERE s LIKE '%本%';
SELECT char(0x1F600) = '😀', '😀' > 'z', 'é' = 'e' || char(769), hex(char(55296));
CREATE TABLE "täble ✓"("spälte" TEXT);
INSERT INTO "täble ✓" VALUES ('x');
SELECT "spälte" FROM "täble ✓";
SELECT spälte AS größe FROM "täble ✓";
-- feature: blobs of all bytes
CREATE TABLE b(v BLOB);
INSERT INTO b VALUES (x'000102030405060708090a0b0c0d0e0f'), (x''), (x'ff00ff'), (zeroblob(10));
SELECT v, hex(v), length(v), typeof(v), substr(v, 2, 2), v || 'x' FROM b;
SELECT v FROM b ORDER BY v;
SELECT v = CAST(CAST(v AS TEXT) AS BLOB) FROM b;
SELECT max(v), min(v) FROM b;
SELECT instr(v, x'ff'), v LIKE '%', v || x'01' FROM b;
