// @libsql/client: insert, read, batch, and a transaction that is tried again when it was busy.
import assert from "node:assert/strict";
import { createClient } from "@libsql/client";

const db = createClient({ url: process.argv[2] ?? "http://127.0.0.1:8080" });

// Runs `work` in a transaction, again and again while another one changed what it read.
async function transaction(work) {
  for (let attempt = 1; ; attempt++) {
    const tx = await db.transaction("write");
    try {
      const result = await work(tx);
      await tx.commit();
      return result;
    } catch (error) {
      if (error.code !== "SQLITE_BUSY" || attempt === 10) throw error;
      await new Promise((wake) => setTimeout(wake, Math.random() * 10 * attempt));
    } finally {
      tx.close();
    }
  }
}

await db.execute("DROP TABLE IF EXISTS account");
await db.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)");

await db.execute({ sql: "INSERT INTO account VALUES (1, ?, ?)", args: ["ann", 100] });
const ann = await db.execute({ sql: "SELECT * FROM account WHERE name = :name", args: { name: "ann" } });
assert.equal(ann.rows[0].balance, 100);

// One transaction, one request: nothing conflicts with it.
await db.batch([
  { sql: "INSERT INTO account VALUES (2, ?, ?)", args: ["bob", 0] },
  "UPDATE account SET balance = balance + 50 WHERE id = 1",
], "write");

// Between the two statements the program decides, so another transaction can come in between.
const take = (amount) => transaction(async (tx) => {
  const { rows } = await tx.execute("SELECT balance FROM account WHERE id = 1");
  if (rows[0].balance < amount) throw new Error("not enough money");
  await tx.execute({ sql: "UPDATE account SET balance = ? WHERE id = 1", args: [rows[0].balance - amount] });
  await tx.execute({ sql: "UPDATE account SET balance = balance + ? WHERE id = 2", args: [amount] });
});
await Promise.all(Array.from({ length: 5 }, () => take(10)));

const all = await db.execute("SELECT balance FROM account ORDER BY id");
assert.deepEqual(all.rows.map((row) => row.balance), [100, 50]);
await assert.rejects(take(1000), /not enough money/);
console.log("account:", all.rows.map((row) => row.balance));
db.close();
