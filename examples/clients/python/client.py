"""libsql-client: insert, read, batch, and a transaction that is tried again when it was busy."""

import random
import sys
import time

import libsql_client

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
# Over HTTP this client has no transactions.
db = libsql_client.create_client_sync(url.replace("http", "ws", 1))


def transaction(work):
    """Runs `work` in a transaction, again and again while another one changed what it read."""
    for attempt in range(1, 11):
        tx = db.transaction()
        try:
            result = work(tx)
            tx.commit()
            return result
        except libsql_client.LibsqlError as error:
            if error.code != "SQLITE_BUSY" or attempt == 10:
                raise
            time.sleep(random.random() * 0.01 * attempt)
        finally:
            tx.close()


db.execute("DROP TABLE IF EXISTS account")
db.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)")

db.execute("INSERT INTO account VALUES (1, ?, ?)", ["ann", 100])
ann = db.execute("SELECT * FROM account WHERE name = :name", {"name": "ann"})
assert ann.rows[0]["balance"] == 100

# One transaction, one request: nothing conflicts with it.
add = "UPDATE account SET balance = balance + 50 WHERE id = 1"
db.batch([libsql_client.Statement("INSERT INTO account VALUES (2, ?, ?)", ["bob", 0]), add])


def take(tx, amount):
    """Between the statements the program decides, so another transaction can come in between."""
    balance = tx.execute("SELECT balance FROM account WHERE id = 1").rows[0][0]
    if balance < amount:
        raise ValueError("not enough money")
    tx.execute("UPDATE account SET balance = ? WHERE id = 1", [balance - amount])
    tx.execute("UPDATE account SET balance = balance + ? WHERE id = 2", [amount])


for _ in range(5):
    transaction(lambda tx: take(tx, 10))
rows = db.execute("SELECT balance FROM account ORDER BY id").rows
assert [row[0] for row in rows] == [100, 50]
db.close()
