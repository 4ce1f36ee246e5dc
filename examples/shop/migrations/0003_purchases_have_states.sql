-- monolite: foreign_keys=off
-- SQLite adds a column with such a CHECK by rebuilding the table, to which two others refer.
CREATE TABLE new_purchase (
    id      INTEGER PRIMARY KEY,
    key     TEXT    NOT NULL UNIQUE,
    user    INTEGER NOT NULL REFERENCES user (id),
    state   TEXT    NOT NULL CHECK (state IN ('reserved', 'paid')),
    receipt TEXT    CHECK ((receipt IS NOT NULL) = (state = 'paid'))
) STRICT;

INSERT INTO new_purchase SELECT id, key, user, 'reserved', NULL FROM purchase;
DROP TABLE purchase;
ALTER TABLE new_purchase RENAME TO purchase;
