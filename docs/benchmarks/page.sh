#!/bin/sh
# A page that asks 201 small questions: a list, and four lookups for each of its 50 rows. Arguments
# are handed on.
page="SELECT id FROM item WHERE id >= :first ORDER BY id LIMIT 50"
row=0
while [ $row -lt 50 ]; do
    for table in author score label state; do
        page="$page; SELECT name FROM $table WHERE id = :first + $row"
    done
    row=$((row + 1))
done
{
    numbers="WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
    for table in item author score label state; do
        echo "CREATE TABLE $table (id INTEGER PRIMARY KEY, name TEXT NOT NULL);"
        echo "INSERT INTO $table $numbers SELECT i, '$table ' || i FROM n;"
    done
} | "${MONOLITE:-monolite}" bench yours --schema /dev/stdin --clients 1 \
    --read "$page" --param ":first uniform(1..9950)" "$@"
