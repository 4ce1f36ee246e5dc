"""SQLAlchemy: insert, read, many rows, and a transaction that is tried again when it was busy."""

import random
import sys
import time

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
engine = sa.create_engine(url.replace("http", "sqlite+libsql", 1) + "/?secure=false")
# By itself the driver begins at the first change, and what was read before is not looked at.
sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    balance: Mapped[int]


def transaction(work):
    """Runs `work` in a transaction, again and again while another one changed what it read."""
    for attempt in range(1, 11):
        try:
            with Session(engine) as session, session.begin():
                return work(session)
        # The driver below raises ValueError for all errors, and gives no code.
        except (sa.exc.DBAPIError, ValueError) as error:
            if "database is locked" not in str(error) or attempt == 10:
                raise
            time.sleep(random.random() * 0.01 * attempt)


Base.metadata.drop_all(engine)
Base.metadata.create_all(engine)
transaction(lambda session: session.add(Account(id=1, name="ann", balance=150)))
transaction(lambda session: session.add_all([Account(id=2, name="bob", balance=0)]))


def take(session, amount):
    """Between the statements the program decides, so another transaction can come in between."""
    ann, bob = session.get_one(Account, 1), session.get_one(Account, 2)
    if ann.balance < amount:
        raise RuntimeError("not enough money")
    ann.balance -= amount
    bob.balance = Account.balance + amount


for _ in range(5):
    transaction(lambda session: take(session, 10))
with Session(engine) as session:
    assert session.scalars(sa.select(Account.balance).order_by(Account.id)).all() == [100, 50]
