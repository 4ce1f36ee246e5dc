// @libsql/client with servers that take turns: it finds the primary, and sends a request again, with
// the same key, until it is answered.
import assert from "node:assert/strict";
import { createClient } from "@libsql/client";

const [servers, rounds] = [process.argv.slice(2).filter(isNaN), Number(process.argv.at(-1)) || 20];
const PATIENCE = 30_000;
let server = servers[0];

async function primary() {
  for (const it of servers) {
    const signal = AbortSignal.timeout(1000);
    const answer = await fetch(new URL("/primary", it), { signal }).catch(() => undefined);
    if (answer?.ok) return it;
  }
  return server;
}

async function fetchAtPrimary(request) {
  const { method } = request;
  const body = request.body && (await request.arrayBuffer());
  const headers = new Headers(request.headers);
  headers.set("Idempotency-Key", crypto.randomUUID());
  const path = new URL(request.url).pathname;
  for (const until = Date.now() + PATIENCE; ; ) {
    let why;
    try {
      const signal = AbortSignal.timeout(5000); // it can be stopped, and say nothing
      const answer = await fetch(new URL(path, server), { method, headers, body, signal });
      const bytes = Buffer.from(await answer.arrayBuffer());
      const isElsewhere = bytes.includes('"code":"NOT_PRIMARY"');
      if (answer.status < 500 && !isElsewhere) return new Response(bytes, answer);
      why = new Error(bytes.toString());
    } catch (error) {
      why = error;
    }
    if (Date.now() > until) throw why;
    await new Promise((wake) => setTimeout(wake, 100));
    server = await primary();
  }
}

const db = createClient({ url: servers[0], fetch: fetchAtPrimary });
await db.execute("CREATE TABLE IF NOT EXISTS visit(n)");
await db.execute("DELETE FROM visit");
let longest = 0;
for (let n = 1; n <= rounds; n++) {
  const begun = Date.now();
  await db.execute({ sql: "INSERT INTO visit VALUES (?)", args: [n] });
  longest = Math.max(longest, Date.now() - begun);
}
const { rows } = await db.execute("SELECT count(*) AS count, sum(n) AS sum FROM visit");
assert.deepEqual([rows[0].count, rows[0].sum], [rounds, (rounds * (rounds + 1)) / 2]);
console.log(`${rounds} writes, each made once, at ${server}; the longest took ${longest} ms`);
db.close();
