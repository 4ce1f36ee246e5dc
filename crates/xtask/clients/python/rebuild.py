"""Changes a column of a parent by Django's migrations, which rebuild the table. Afterwards the nine
children are there, also with ON DELETE CASCADE in the database, which Django's own tables lack."""

import sys

import django
from django.conf import settings
from django.db import connection, migrations, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ProjectState

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
database = {"ENGINE": "libsql.db.backends.sqlite3", "NAME": url.replace("http", "ws", 1)}
settings.configure(DATABASES={"default": database})
django.setup()

key = ("id", models.IntegerField(primary_key=True))
TABLES = [
    migrations.CreateModel("Parent", [key, ("name", models.CharField(max_length=9, null=True))]),
    migrations.AddIndex("Parent", models.Index(fields=["name"], name="parent_name")),
    migrations.CreateModel("Child", [
        key, ("parent", models.ForeignKey("clients.Parent", on_delete=models.CASCADE)),
    ]),
    migrations.RunSQL("CREATE TABLE hard(id INTEGER PRIMARY KEY, parent INTEGER NOT NULL "
                      "REFERENCES clients_parent ON DELETE CASCADE)"),
    migrations.RunSQL("CREATE TABLE gone(id)"),
    migrations.RunSQL("CREATE TRIGGER hard_gone AFTER DELETE ON hard BEGIN "
                      "INSERT INTO gone VALUES (old.id); END"),
]
REBUILD = [migrations.AlterField("Parent", "name", models.TextField(default="x"))]


def migrated(state, operations, atomic=True):
    migration = migrations.Migration("rebuild", "clients")
    migration.operations, migration.atomic = operations, atomic
    with connection.schema_editor(atomic=atomic) as editor:
        return migration.apply(state, editor)


def children():
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM clients_child), (SELECT count(*) FROM hard), "
                       "(SELECT count(*) FROM clients_parent), (SELECT count(*) FROM gone)")
        return tuple(cursor.fetchone())


def check(how, rebuild):
    with connection.cursor() as cursor:
        for table in ["gone", "hard", "clients_child", "clients_parent"]:
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
    state = migrated(ProjectState(), TABLES)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO clients_parent VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        rows = "(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 3), (8, 3), (9, 3)"
        cursor.execute(f"INSERT INTO clients_child(id, parent_id) VALUES {rows}")
        cursor.execute(f"INSERT INTO hard VALUES {rows}")
    said = ""
    try:
        rebuild(state)
    except Exception as error:
        said = str(error)[:100]
    print("Django", how, f"{children()[1]} of 9", said, sep=" | ")
    assert children() == (9, 9, 3, 0), children()


def in_a_transaction(state):
    """Django refuses this by itself; a program may hide the answer from it."""
    with transaction.atomic():
        migrated(state, REBUILD)


def ignoring(state):
    connection.disable_constraint_checking = lambda: True
    try:
        with transaction.atomic():
            migrated(state, REBUILD)
    finally:
        del connection.disable_constraint_checking
        # The driver takes ROLLBACK TO for an end of the transaction, and leaves that open.
        connection.close()


def by_sqlmigrate(state):
    """The SQL that it would run, statement by statement, in a transaction, without its pragmas."""
    migration = migrations.Migration("rebuild", "clients")
    migration.operations = REBUILD
    with connection.schema_editor(collect_sql=True, atomic=True) as editor:
        migration.apply(state, editor, collect_sql=True)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("PRAGMA foreign_keys = OFF")
        for sql in editor.collected_sql:
            if not sql.startswith("--"):
                cursor.execute(sql)


check("migration", lambda state: migrated(state, REBUILD))
check("migration, atomic = False", lambda state: migrated(state, REBUILD, atomic=False))
check("migration in a transaction", in_a_transaction)
check("migration in a transaction, forced", ignoring)
check("sqlmigrate in a transaction", by_sqlmigrate)
