#!/bin/sh
# The worked example of docs/benchmarks.md: votes and comments beside a page of comments and the
# front page. Arguments are handed on, as --clients 64 or --quick.
exec "${MONOLITE:-monolite}" bench yours --schema "$(dirname "$0")/stories.sql" \
    --load "10000 INSERT INTO users (id, username) VALUES (:n, :name)" \
    --load "20000 INSERT INTO stories (id, user_id, title, url, created_at) VALUES (:n, :user, :title, :title, :now)" \
    --load "50000 INSERT INTO comments (id, story_id, user_id, body, created_at) VALUES (:n, :story, :user, :body, :now)" \
    --read "SELECT c.id, c.body, u.username FROM comments c JOIN users u ON u.id = c.user_id WHERE c.story_id = :story ORDER BY c.id LIMIT 50" \
    --read "SELECT s.id, s.title, s.score, u.username FROM stories s JOIN users u ON u.id = s.user_id ORDER BY s.score DESC LIMIT 25" \
    --write "INSERT INTO votes VALUES (:user, :story, 1) ON CONFLICT (user_id, story_id) DO UPDATE SET vote = 1; UPDATE stories SET score = score + 1 WHERE id = :story" \
    --write "INSERT INTO comments (id, story_id, user_id, body, created_at) VALUES (:n, :story, :user, :body, :now); UPDATE stories SET comments = comments + 1 WHERE id = :story" \
    --param ":n serial" --param ":name text(20)" --param ":user uniform(1..10000)" --param ":story zipf(20000)" \
    --param ":title text(60)" --param ":body text(300)" --param ":now now" "$@"
