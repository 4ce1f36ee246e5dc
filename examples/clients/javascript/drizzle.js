// Drizzle: insert, read, batch, and a transaction that is tried again when it was busy.
import assert from "node:assert/strict";
import { eq, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/libsql";
import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";

const db = drizzle({ connection: { url: process.argv[2] ?? "http://127.0.0.1:8080" } });

const account = sqliteTable("account", {
  id: integer().primaryKey(),
  name: text().notNull(),
  balance: integer().notNull(),
});

const isBusy = (error) => error?.code === "SQLITE_BUSY" || (error?.cause && isBusy(error.cause));

// Runs `work` in a transaction, again and again while another one changed what it read.
async function transaction(work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction(work);
    } catch (error) {
      if (!isBusy(error) || attempt === 10) throw error;
      await new Promise((wake) => setTimeout(wake, Math.random() * 10 * attempt));
    }
  }
}

await db.run(sql`DROP TABLE IF EXISTS account`);
await db.run(sql`CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)`);

const [ann] = await db.insert(account).values({ name: "ann", balance: 100 }).returning();
const read = await db.select().from(account).where(eq(account.id, ann.id));
assert.deepEqual(read, [ann]);

// One transaction, one request: nothing conflicts with it.
const [[bob]] = await db.batch([
  db.insert(account).values({ name: "bob", balance: 0 }).returning(),
  db.update(account).set({ balance: sql`balance + 50` }).where(eq(account.id, ann.id)),
]);

// Between the two statements the program decides, so another transaction can come in between.
const take = (amount) => transaction(async (tx) => {
  const [{ balance }] = await tx.select().from(account).where(eq(account.id, ann.id));
  if (balance < amount) throw new Error("not enough money");
  await tx.update(account).set({ balance: balance - amount }).where(eq(account.id, ann.id));
  await tx.update(account).set({ balance: sql`balance + ${amount}` }).where(eq(account.id, bob.id));
});
await Promise.all(Array.from({ length: 5 }, () => take(10)));

const all = await db.select().from(account).orderBy(account.id);
assert.deepEqual(all.map((row) => row.balance), [100, 50]);
db.$client.close();
