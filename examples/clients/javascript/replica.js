// @libsql/client with two servers: it writes at the primary, and sees that at once at the replica.
import assert from "node:assert/strict";
import { createClient } from "@libsql/client";

const [primary, replica] = process.argv.slice(2);
const CLIENTS = 50;
const ROUNDS = 5;

// Two clients of one user, who sees what was written.
function clients() {
  let token;
  const writes = createClient({
    url: primary,
    fetch: async (request) => {
      const answer = await fetch(request);
      token = answer.headers.get("Monolite-Token") ?? token;
      return answer;
    },
  });
  const reads = createClient({
    url: replica,
    fetch: (request) => {
      const headers = new Headers(request.headers);
      if (token) headers.set("Monolite-Token", token);
      return fetch(new Request(request, { headers }));
    },
  });
  return { writes, reads };
}

const { writes, reads } = clients();
await writes.execute("CREATE TABLE IF NOT EXISTS seat(who PRIMARY KEY, n)");
// Until the first copy of the database is archived, the primary knows no token.
const isUnknown = (error) => error.code === "TOKEN_INVALID";
for (let known = false; !known; ) {
  await writes.execute("DELETE FROM seat");
  known = await reads.execute("SELECT 1").then(() => true, (error) => !isUnknown(error));
}
const refused = await reads.execute("DELETE FROM seat").catch((error) => error);
assert.equal(refused.code, "NOT_PRIMARY");

await Promise.all(Array.from({ length: CLIENTS }, async (_, who) => {
  const { writes, reads } = clients();
  for (let n = 0; n < ROUNDS; n++) {
    await writes.execute({ sql: "REPLACE INTO seat VALUES (?, ?)", args: [who, n] });
    const tx = await reads.transaction("read");
    const { rows } = await tx.execute({ sql: "SELECT n FROM seat WHERE who = ?", args: [who] });
    await tx.commit();
    assert.deepEqual(rows.map((row) => row.n), [n]);
  }
  writes.close();
  reads.close();
}));
console.log(`${CLIENTS * ROUNDS} writes, each seen at the replica`);
writes.close();
reads.close();
