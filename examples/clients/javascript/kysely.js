// Kysely: insert, read, several statements, and a transaction that is tried again when it was busy.
import assert from "node:assert/strict";
import { LibsqlDialect } from "@libsql/kysely-libsql";
import { Kysely, sql } from "kysely";

const db = new Kysely({ dialect: new LibsqlDialect({ url: process.argv[2] ?? "http://127.0.0.1:8080" }) });

// Runs `work` in a transaction, again and again while another one changed what it read.
async function transaction(work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction().execute(work);
    } catch (error) {
      if (error.code !== "SQLITE_BUSY" || attempt === 10) throw error;
      await new Promise((wake) => setTimeout(wake, Math.random() * 10 * attempt));
    }
  }
}

await db.schema.dropTable("account").ifExists().execute();
await db.schema.createTable("account")
  .addColumn("id", "integer", (column) => column.primaryKey())
  .addColumn("name", "text")
  .addColumn("balance", "integer")
  .execute();

const ann = await db.insertInto("account").values({ name: "ann", balance: 150 })
  .returningAll().executeTakeFirstOrThrow();
assert.deepEqual(await db.selectFrom("account").selectAll().execute(), [ann]);

// Kysely has no batch: what belongs together is a transaction.
const bob = await transaction((tx) => tx.insertInto("account").values({ name: "bob", balance: 0 })
  .returningAll().executeTakeFirstOrThrow());

// Between the two statements the program decides, so another transaction can come in between.
const take = (amount) => transaction(async (tx) => {
  const { balance } = await tx.selectFrom("account").selectAll().where("id", "=", ann.id)
    .executeTakeFirstOrThrow();
  if (balance < amount) throw new Error("not enough money");
  await tx.updateTable("account").set({ balance: balance - amount }).where("id", "=", ann.id).execute();
  await tx.updateTable("account").set({ balance: sql`balance + ${amount}` })
    .where("id", "=", bob.id).execute();
});
await Promise.all(Array.from({ length: 5 }, () => take(10)));

const all = await db.selectFrom("account").select("balance").orderBy("id").execute();
assert.deepEqual(all.map((row) => row.balance), [100, 50]);
await db.destroy();
