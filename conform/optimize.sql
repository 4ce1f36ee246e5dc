-- chapter: pragma
-- feature: PRAGMA optimize of one table, and of several
CREATE TABLE one(a, b);
CREATE INDEX one_a ON one(a);
INSERT INTO one VALUES (1, 1), (2, 2);
PRAGMA optimize(0x10002);
SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY 1, 2;
CREATE TABLE two(a, b);
CREATE INDEX two_a ON two(a);
CREATE TABLE three(a UNIQUE);
INSERT INTO two VALUES (1, 1), (1, 2);
INSERT INTO three VALUES (1), (2), (3);
PRAGMA optimize(0x10002);
SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY 1, 2;
