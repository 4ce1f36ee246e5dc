// @libsql/client over a network that loses answers: each request has a key, and is sent again.
import assert from "node:assert/strict";
import { createClient } from "@libsql/client";

const url = process.argv[2] ?? "http://127.0.0.1:8080";
let lost = 0;
let repeated = 0;

// Loses every third answer, at random before or within its body.
let sent = 0;
async function unreliable(request) {
  const answer = await fetch(request);
  if (answer.headers.has("Idempotent-Replayed")) repeated++;
  if (++sent % 3 !== 0) return answer;
  lost++;
  if (Math.random() < 0.5) throw new TypeError("the connection was closed");
  const body = new ReadableStream({ pull: (reader) => reader.error(new TypeError("cut off")) });
  return new Response(body, answer);
}

// Sends a request again, with the same key, until it is answered.
async function fetchOnce(request) {
  const headers = new Headers(request.headers);
  headers.set("Idempotency-Key", crypto.randomUUID());
  const keyed = new Request(request, { headers });
  for (let attempt = 1; ; attempt++) {
    try {
      const answer = await unreliable(keyed.clone());
      const body = await answer.arrayBuffer(); // it can be lost, too
      if (answer.status < 500 || attempt === 10) return new Response(body, answer);
    } catch (error) {
      if (attempt === 10) throw error;
    }
    await new Promise((wake) => setTimeout(wake, attempt));
  }
}

const db = createClient({ url, fetch: fetchOnce });
await db.executeMultiple(`
  DROP TABLE IF EXISTS counter; DROP TABLE IF EXISTS visit;
  CREATE TABLE counter(n); INSERT INTO counter VALUES (0);
  CREATE TABLE visit(id INTEGER PRIMARY KEY, who)`);
const visit = { sql: "INSERT INTO visit(who) VALUES (?) RETURNING id", args: ["ann"] };
const count = "UPDATE counter SET n = n + 1";
const busy = (error) => ["SQLITE_BUSY", "BATON_REUSED", "STREAM_EXPIRED"].includes(error.code);
const ROUNDS = 30;
let id = 0;
for (let round = 1; round <= ROUNDS; round++) {
  const { rows, lastInsertRowid } = await db.execute(visit);
  assert.deepEqual([rows[0].id, lastInsertRowid], [++id, BigInt(id)]);
  const [, second] = await db.batch([count, visit], "write");
  assert.equal(second.rows[0].id, ++id);
  for (let done = false; !done; ) {
    // A transaction whose answer was lost before the commit is run again.
    const tx = await db.transaction("write");
    try {
      await tx.execute(count);
      assert.equal((await tx.execute("SELECT n FROM counter")).rows[0].n, 2 * round);
      await tx.commit();
      done = true;
    } catch (error) {
      if (!busy(error)) throw error;
    } finally {
      tx.close();
    }
  }
}
await db.migrate([count]);
const all = await db.execute("SELECT n, (SELECT count(*) FROM visit) AS visits FROM counter");
assert.deepEqual([all.rows[0].n, all.rows[0].visits], [2 * ROUNDS + 1, 2 * ROUNDS]);
assert.ok(lost > ROUNDS && repeated > 0);
console.log(`${lost} answers lost, ${repeated} given again, each change made once`);
db.close();
