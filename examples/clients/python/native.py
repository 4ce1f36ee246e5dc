"""libsql, the native client: insert, read, many rows, and a transaction that is tried again when it was busy."""

import random
import sys
import time

import libsql

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
db = libsql.connect(database=url, auth_token="")


def transaction(work):
    """Runs `work` in a transaction, again and again while another one changed what it read."""
    for attempt in range(1, 11):
        try:
            # By itself the client begins at the first change, and what was read before is not looked at.
            db.execute("BEGIN")
            result = work()
            db.commit()
            return result
        # This client raises ValueError for all errors, and gives no code.
        except ValueError as error:
            db.rollback()
            if "database is locked" not in str(error) or attempt == 10:
                raise
            time.sleep(random.random() * 0.01 * attempt)


def balance_of(name):
    return db.execute("SELECT balance FROM account WHERE name = ?", (name,)).fetchone()[0]


def take(amount):
    """Between the statements the program decides, so another transaction can come in between."""
    balance = balance_of("ann")
    if balance < amount:
        raise RuntimeError("not enough money")
    db.execute("UPDATE account SET balance = ? WHERE name = 'ann'", (balance - amount,))
    db.execute("UPDATE account SET balance = balance + ? WHERE name = 'bob'", (amount,))


db.execute("DROP TABLE IF EXISTS account")
db.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, name TEXT, balance INTEGER)")
db.commit()
rows = [("ann", 150), ("bob", 0)]
transaction(lambda: db.executemany("INSERT INTO account(name, balance) VALUES (?, ?)", rows))
for _ in range(5):
    transaction(lambda: take(10))
assert [balance_of("ann"), balance_of("bob")] == [100, 50]
