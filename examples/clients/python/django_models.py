"""Django: insert, read, many rows, and a transaction that is tried again when it was busy."""

import random
import sys
import time

import django
from django.conf import settings
from django.db import OperationalError, connection, models, transaction

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
database = {"ENGINE": "libsql.db.backends.sqlite3", "NAME": url.replace("http", "ws", 1)}
settings.configure(DATABASES={"default": database}, DEFAULT_AUTO_FIELD="django.db.models.AutoField")
django.setup()


class Account(models.Model):
    name = models.CharField(max_length=100)
    balance = models.IntegerField()

    class Meta:
        app_label = "clients"
        db_table = "account"


def retried(work):
    """Runs `work` in a transaction, again and again while another one changed what it read."""
    for attempt in range(1, 11):
        try:
            with transaction.atomic():
                return work()
        except OperationalError as error:
            if "database is locked" not in str(error) or attempt == 10:
                raise
            time.sleep(random.random() * 0.01 * attempt)


def take(amount):
    """Between the statements the program decides, so another transaction can come in between."""
    ann, bob = Account.objects.get(name="ann"), Account.objects.get(name="bob")
    if ann.balance < amount:
        raise RuntimeError("not enough money")
    ann.balance -= amount
    ann.save()
    bob.balance = models.F("balance") + amount
    bob.save()


with connection.cursor() as cursor:
    cursor.execute("DROP TABLE IF EXISTS account")
with connection.schema_editor() as editor:
    editor.create_model(Account)
ann = Account.objects.create(name="ann", balance=150)
assert list(Account.objects.filter(name="ann")) == [ann]
Account.objects.bulk_create([Account(name="bob", balance=0)])
for _ in range(5):
    retried(lambda: take(10))
assert list(Account.objects.order_by("id").values_list("balance", flat=True)) == [100, 50]
