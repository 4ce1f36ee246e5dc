-- A site where people post links, vote and comment. The tables are modelled on those of Lobsters
-- (https://github.com/lobsters/lobsters, BSD 3-Clause), cut down to what a vote, a comment and the
-- two most visited pages touch. The text is ours, in the SQL that SQLite and PostgreSQL share.
CREATE TABLE users (
    id       INTEGER PRIMARY KEY,
    username TEXT NOT NULL UNIQUE,
    karma    INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE stories (
    id         INTEGER PRIMARY KEY,
    user_id    INTEGER NOT NULL REFERENCES users (id),
    title      TEXT NOT NULL,
    url        TEXT NOT NULL,
    score      INTEGER NOT NULL DEFAULT 1,
    comments   INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL
);
CREATE INDEX stories_by_score ON stories (score);

CREATE TABLE comments (
    id         INTEGER PRIMARY KEY,
    story_id   INTEGER NOT NULL REFERENCES stories (id),
    user_id    INTEGER NOT NULL REFERENCES users (id),
    body       TEXT NOT NULL,
    created_at TEXT NOT NULL
);
CREATE INDEX comments_by_story ON comments (story_id, id);

CREATE TABLE votes (
    user_id  INTEGER NOT NULL REFERENCES users (id),
    story_id INTEGER NOT NULL REFERENCES stories (id),
    vote     INTEGER NOT NULL,
    PRIMARY KEY (user_id, story_id)
);
