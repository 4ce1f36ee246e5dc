// What `monolite bench server` runs for @libsql/client:
// node bench.js URL read|update|interactive CLIENTS SECONDS THINK_MS ACCOUNTS
import { createClient } from "@libsql/client";

const [url, work, ...numbers] = process.argv.slice(2);
const [clients, seconds, think, accounts] = numbers.map(Number);
const db = createClient({ url, concurrency: clients });
const account = () => 1 + Math.floor(Math.random() * accounts);
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

async function interactive(id) {
  const tx = await db.transaction("write");
  try {
    const { rows } = await tx.execute({ sql: "SELECT balance FROM account WHERE id = ?", args: [id] });
    if (think > 0) await sleep(think);
    await tx.execute({ sql: "UPDATE account SET balance = ? WHERE id = ?", args: [rows[0].balance + 1, id] });
    await tx.commit();
  } finally {
    tx.close();
  }
}

const works = {
  interactive,
  read: (id) => db.execute({ sql: "SELECT balance FROM account WHERE id = ?", args: [id] }),
  update: (id) => db.execute({ sql: "UPDATE account SET balance = balance + 1 WHERE id = ?", args: [id] }),
};

const report = { latencies_us: [], retries: 0 };

async function client(end) {
  while (performance.now() < end) {
    const start = performance.now();
    const id = account();
    for (;;) {
      try {
        await works[work](id);
        break;
      } catch (error) {
        if (error.code !== "SQLITE_BUSY") throw error;
        report.retries += 1;
      }
    }
    report.latencies_us.push(Math.round((performance.now() - start) * 1000));
  }
}

await Promise.all(Array.from({ length: clients }, () => db.execute("SELECT 1")));
const cpu = process.cpuUsage();
const begin = performance.now();
await Promise.all(Array.from({ length: clients }, () => client(begin + seconds * 1000)));
report.seconds = (performance.now() - begin) / 1000;
const { user, system } = process.cpuUsage(cpu);
report.cpu_seconds = (user + system) / 1e6;
console.log(JSON.stringify(report));
db.close();
