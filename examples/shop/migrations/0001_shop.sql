CREATE TABLE user (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (name <> '')
) STRICT;

CREATE TABLE product (
    id          INTEGER PRIMARY KEY,
    name        TEXT    NOT NULL CHECK (name <> ''),
    description TEXT    NOT NULL,
    cents       INTEGER NOT NULL CHECK (cents > 0),
    stock       INTEGER NOT NULL CHECK (stock >= 0)
) STRICT;

CREATE TABLE purchase (
    id   INTEGER PRIMARY KEY,
    key  TEXT    NOT NULL UNIQUE,
    user INTEGER NOT NULL REFERENCES user (id)
) STRICT;

CREATE TABLE item (
    purchase INTEGER NOT NULL REFERENCES purchase (id),
    product  INTEGER NOT NULL REFERENCES product (id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    cents    INTEGER NOT NULL,
    PRIMARY KEY (purchase, product)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    id       INTEGER PRIMARY KEY,
    purchase INTEGER NOT NULL REFERENCES purchase (id),
    text     TEXT    NOT NULL,
    sent     INTEGER NOT NULL DEFAULT 0 CHECK (sent IN (0, 1))
) STRICT;

CREATE INDEX outbox_waiting ON outbox (id) WHERE sent = 0;
