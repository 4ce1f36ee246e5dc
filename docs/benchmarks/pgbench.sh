#!/bin/sh
# The TPC-B-like script of PostgreSQL's pgbench, at scale 10 or SCALE. Arguments are handed on.
scale=${SCALE:-10}
numbers() { echo "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)"; }
"${MONOLITE:-monolite}" bench yours --schema /dev/stdin --write "
        UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
        SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
        UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
        UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
        INSERT INTO pgbench_history (tid, bid, aid, delta) VALUES (:tid, :bid, :aid, :delta)" \
    --param ":delta uniform(-5000..5000)" --param ":aid uniform(1..$((scale * 100000)))" \
    --param ":tid uniform(1..$((scale * 10)))" --param ":bid uniform(1..$scale)" "$@" <<SQL
CREATE TABLE pgbench_accounts (aid INTEGER PRIMARY KEY, bid INTEGER, abalance INTEGER, filler TEXT);
CREATE TABLE pgbench_tellers (tid INTEGER PRIMARY KEY, bid INTEGER, tbalance INTEGER);
CREATE TABLE pgbench_branches (bid INTEGER PRIMARY KEY, bbalance INTEGER);
CREATE TABLE pgbench_history (tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER);
INSERT INTO pgbench_accounts $(numbers $((scale * 100000)))
    SELECT i, (i - 1) / 100000 + 1, 0, '$(printf '%84s' '')' FROM n;
INSERT INTO pgbench_tellers $(numbers $((scale * 10))) SELECT i, (i - 1) / 10 + 1, 0 FROM n;
INSERT INTO pgbench_branches $(numbers "$scale") SELECT i, 0 FROM n;
SQL
