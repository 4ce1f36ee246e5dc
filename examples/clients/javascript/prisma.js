// Prisma: insert, read, batch, and a transaction that is tried again when it was busy.
// Before the first run: npx prisma generate
import assert from "node:assert/strict";
import { PrismaLibSql } from "@prisma/adapter-libsql";
import { PrismaClient } from "./generated/client.js";

const adapter = new PrismaLibSql({ url: process.argv[2] ?? "http://127.0.0.1:8080" });
const db = new PrismaClient({ adapter });

// Runs `work` in a transaction, again and again while another one changed what it read.
async function transaction(work) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.$transaction(work);
    } catch (error) {
      // At a statement and at the end of the transaction the code is not the same.
      if (!error.message.includes("database is locked") || attempt === 10) throw error;
      await new Promise((wake) => setTimeout(wake, Math.random() * 10 * attempt));
    }
  }
}

await db.$executeRaw`DROP TABLE IF EXISTS Account`;
await db.$executeRaw`CREATE TABLE Account(id INTEGER PRIMARY KEY, name TEXT NOT NULL, balance INTEGER NOT NULL)`;

const ann = await db.account.create({ data: { name: "ann", balance: 100 } });
assert.deepEqual(await db.account.findMany({ where: { name: "ann" } }), [ann]);

// A transaction of requests, one after the other.
const [bob] = await transaction([
  db.account.create({ data: { name: "bob", balance: 0 } }),
  db.account.update({ where: { id: ann.id }, data: { balance: { increment: 50 } } }),
]);

// Between the two statements the program decides, so another transaction can come in between.
const take = (amount) => transaction(async (tx) => {
  const { balance } = await tx.account.findUniqueOrThrow({ where: { id: ann.id } });
  if (balance < amount) throw new Error("not enough money");
  await tx.account.update({ where: { id: ann.id }, data: { balance: balance - amount } });
  await tx.account.update({ where: { id: bob.id }, data: { balance: { increment: amount } } });
});
await Promise.all(Array.from({ length: 5 }, () => take(10)));

const all = await db.account.findMany({ orderBy: { id: "asc" } });
assert.deepEqual(all.map((row) => row.balance), [100, 50]);
await db.$disconnect();
