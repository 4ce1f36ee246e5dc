#!/bin/sh
# Blobs by key, as SQLite's own kvtest has them: 512 B, or SIZE=32KiB. Arguments are handed on.
size=${SIZE:-512}
case $size in 512) rows=100000 ;; *) rows=5000 ;; esac
exec "${MONOLITE:-monolite}" bench yours --schema /dev/stdin \
    --load "$rows INSERT INTO kv (k, v) VALUES (:n, :v)" \
    --read "SELECT v FROM kv WHERE k = :k" --write "UPDATE kv SET v = :v WHERE k = :k" \
    --param ":n serial" --param ":v blob($size)" --param ":k uniform(1..$rows)" "$@" <<'SQL'
CREATE TABLE kv (k INTEGER PRIMARY KEY, v BYTEA);
SQL
