// @libsql/client/web, for runtimes at the edge: HTTP by fetch alone.
import assert from "node:assert/strict";
import { createClient } from "@libsql/client/web";

const db = createClient({ url: process.argv[2] ?? "http://127.0.0.1:8080" });
await db.batch([
  "DROP TABLE IF EXISTS account",
  "CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)",
  { sql: "INSERT INTO account VALUES (1, ?, ?)", args: ["ann", 100] },
], "write");

// client.js has the loop that tries it again when it was busy.
const tx = await db.transaction("write");
const { rows } = await tx.execute("SELECT balance FROM account WHERE id = 1");
await tx.execute({ sql: "UPDATE account SET balance = ? WHERE id = 1", args: [rows[0].balance - 10] });
await tx.commit();

const ann = await db.execute({ sql: "SELECT balance FROM account WHERE name = :name", args: { name: "ann" } });
assert.equal(ann.rows[0].balance, 90);
db.close();
