"""What `monolite bench server` runs for libsql-client:
python3 bench.py URL read|update|interactive CLIENTS SECONDS THINK_MS ACCOUNTS
"""

import asyncio
import json
import random
import sys
import time

import libsql_client

url, work, *numbers = sys.argv[1:]
clients, seconds, think, accounts = map(float, numbers)
report = {"latencies_us": [], "retries": 0}


async def interactive(db, account):
    tx = db.transaction()
    try:
        found = await tx.execute("SELECT balance FROM account WHERE id = ?", [account])
        if think > 0:
            await asyncio.sleep(think / 1000)
        balance = found.rows[0][0] + 1
        await tx.execute("UPDATE account SET balance = ? WHERE id = ?", [balance, account])
        await tx.commit()
    finally:
        tx.close()


async def read(db, account):
    await db.execute("SELECT balance FROM account WHERE id = ?", [account])


async def update(db, account):
    await db.execute("UPDATE account SET balance = balance + 1 WHERE id = ?", [account])


async def client(db, run, end):
    while time.monotonic() < end:
        start = time.monotonic()
        account = random.randint(1, int(accounts))
        while True:
            try:
                await run(db, account)
                break
            except libsql_client.LibsqlError as error:
                if error.code != "SQLITE_BUSY":
                    raise
                report["retries"] += 1
        report["latencies_us"].append(round((time.monotonic() - start) * 1e6))


async def main():
    run = {"interactive": interactive, "read": read, "update": update}[work]
    async with libsql_client.create_client(url) as db:
        await db.execute("SELECT 1")
        begin, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(*(client(db, run, begin + seconds) for _ in range(int(clients))))
        report["seconds"] = time.monotonic() - begin
        report["cpu_seconds"] = time.process_time() - cpu


asyncio.run(main())
print(json.dumps(report))
