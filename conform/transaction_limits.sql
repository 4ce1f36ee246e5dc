-- chapter: lang_transaction
-- option: max_statements 5
-- option: max_bytes 2000
-- feature: transactions of many statements, and large results
CREATE TABLE t(a);
BEGIN;
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (2);
INSERT INTO t VALUES (3);
INSERT INTO t VALUES (4);
INSERT INTO t VALUES (5);
INSERT INTO t VALUES (6);
SELECT count(*) FROM t;
COMMIT;
SELECT count(*) FROM t;
SELECT a, hex(zeroblob(1000)) FROM t;
SELECT count(*) FROM t;
