//! The features: what a schema has, how the table `t` is declared anew, and what is the same
//! afterwards, or why it cannot be.

use monolite::ErrorKind::{self, Constraint, Invalid};

/// Carried: the schema without the table, all other tables, and the probes are the same afterwards.
pub(super) struct Carried {
    pub(super) name: &'static str,
    pub(super) schema: &'static str,
    /// The table that is rebuilt.
    pub(super) table: &'static str,
    pub(super) rebuild: &'static str,
    /// Scripts whose last statement gives the same before and afterwards.
    pub(super) probes: &'static [&'static str],
    /// What the schema and the other tables have besides.
    pub(super) adds: &'static [&'static str],
}

/// Refused: the error has these words, and the file has not changed.
pub(super) struct Refused {
    pub(super) name: &'static str,
    pub(super) schema: &'static str,
    pub(super) rebuild: &'static str,
    pub(super) kind: ErrorKind,
    pub(super) told: &'static [&'static str],
}

const fn carried(
    name: &'static str,
    schema: &'static str,
    rebuild: &'static str,
    probes: &'static [&'static str],
) -> Carried {
    Carried { name, schema, table: "t", rebuild, probes, adds: &[] }
}

const fn refused(
    name: &'static str,
    schema: &'static str,
    rebuild: &'static str,
    kind: ErrorKind,
    told: &'static [&'static str],
) -> Refused {
    Refused { name, schema, rebuild, kind, told }
}

pub(super) const CARRIED: &[Carried] = &[
    carried(
        "a new NOT NULL column with a default",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'x'), (9, NULL)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b NOT NULL DEFAULT (1 + 2))",
        &["SELECT id, a FROM t ORDER BY id"],
    ),
    carried(
        "an empty table",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE INDEX i ON t(a)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT NOT NULL CHECK (a > 0)) STRICT,
         WITHOUT ROWID",
        &["SELECT count(*) FROM t"],
    ),
    carried(
        "indexes: partial, of expressions, descending, with collations, unique,
         over several columns",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT, c INT);
         CREATE INDEX i1 ON t(a) WHERE b IS NOT NULL; CREATE INDEX i2 ON t(lower(a), c DESC);
         CREATE UNIQUE INDEX \"i 3\" ON t(a COLLATE NOCASE); CREATE INDEX i4 ON t(a, b, c);
         CREATE INDEX i5 ON t(b COLLATE RTRIM) WHERE t.c > 0 AND [t].a <> 't.c';
         CREATE INDEX t_on_t ON t(c); CREATE INDEX \"index\" ON t(c, a) /* on t */ ;
         INSERT INTO t VALUES (1, 'A', 'x ', 5), (2, 'b', NULL, -1)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b TEXT, c INT, d)",
        &[
            "SELECT id FROM t INDEXED BY i2 WHERE lower(a) = 'a'",
            "INSERT OR IGNORE INTO t(id, a) VALUES (3, 'a'), (4, 'B'); SELECT count(*) FROM t",
            "SELECT id FROM t INDEXED BY i5 WHERE t.c > 0 AND t.a <> 't.c'",
        ],
    ),
    carried(
        "an index with a text in double quotes",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, gone); CREATE INDEX i ON t(a) WHERE a <> \"x\";
         INSERT INTO t VALUES (1, 'x', 0), (2, 'y', 0)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        &["SELECT id FROM t INDEXED BY i WHERE a <> 'x' ORDER BY id"],
    ),
    carried(
        "triggers, in the order in which they fire",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE log(v);
         CREATE TRIGGER z AFTER INSERT ON t BEGIN INSERT INTO log VALUES ('z' || new.a); END;
         CREATE TRIGGER b AFTER INSERT ON t WHEN new.a > 1 BEGIN INSERT INTO log VALUES ('b'); END;
         CREATE TRIGGER m BEFORE DELETE ON t BEGIN INSERT INTO log VALUES ('m' || old.id); END;
         CREATE TRIGGER u AFTER UPDATE OF a ON t BEGIN INSERT INTO log VALUES (new.a); END;
         INSERT INTO t VALUES (1, 2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b)",
        &["INSERT INTO t(id, a) VALUES (5, 6); UPDATE t SET a = 7 WHERE id = 1;
           DELETE FROM t WHERE id = 5; SELECT v FROM log ORDER BY rowid"],
    ),
    carried(
        "a trigger of another table that writes to it",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(v);
         CREATE TRIGGER r AFTER INSERT ON o BEGIN INSERT INTO t(a) VALUES (new.v);
             UPDATE t SET a = a + 1 WHERE id = (SELECT max(id) FROM t); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b, a)",
        &["INSERT INTO o VALUES (4), (5); SELECT id, a FROM t ORDER BY id"],
    ),
    carried(
        "a trigger that inserts by the places of columns, which stay",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, g AS (a)); CREATE TABLE o(v);
         CREATE TRIGGER r AFTER INSERT ON o BEGIN INSERT INTO t VALUES (new.v, 1); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, g AS (a) STORED, A TEXT)",
        &["INSERT INTO o VALUES (4); SELECT id, CAST(a AS INT) FROM t"],
    ),
    carried(
        "views, also one that can be written to",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 2);
         CREATE VIEW v AS SELECT t.id AS n, a FROM t; CREATE VIEW w AS SELECT n + 1 AS m FROM v;
         CREATE TRIGGER r INSTEAD OF INSERT ON v BEGIN INSERT INTO t(a) VALUES (new.a); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b)",
        &["INSERT INTO v(a) VALUES (8); SELECT v.n, a, m FROM v, w ORDER BY 1, 3"],
    ),
    carried(
        "views of all columns, of which one is gone",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone, a); INSERT INTO t VALUES (1, 2, 'x');
         CREATE VIEW v AS SELECT * FROM t WHERE a <> 'y';
         CREATE VIEW w AS SELECT v.*, k FROM v JOIN (SELECT 7 AS k)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        &["SELECT id, a, k FROM w"],
    ),
    carried(
        "names that mean the same beside a new column with that name",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(x); INSERT INTO o VALUES (7);
         CREATE VIEW v AS SELECT id, a AS y FROM t ORDER BY y;
         CREATE VIEW w AS SELECT o.x, id AS y FROM t, o WHERE a = 'y';
         CREATE TRIGGER r AFTER INSERT ON t BEGIN UPDATE o SET x = x + 1; END;
         INSERT INTO t VALUES (1, 'y')",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, x, y)",
        &["INSERT INTO t(a) VALUES ('y'); SELECT x, y FROM w ORDER BY y"],
    ),
    carried(
        "a view and a trigger that a new column makes work",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 2);
         CREATE VIEW v AS SELECT x FROM t; CREATE TABLE o(k);
         CREATE TRIGGER r AFTER INSERT ON o BEGIN UPDATE t SET a = x; END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, x)",
        &["SELECT id, a FROM t"],
    ),
    carried(
        "a view and a trigger that did not work before",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE VIEW v AS SELECT missing FROM t;
         CREATE TRIGGER r AFTER DELETE ON t BEGIN INSERT INTO nowhere VALUES (1); END;
         INSERT INTO t VALUES (3, 4)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        &["SELECT id, a FROM t"],
    ),
    carried(
        "children with ON DELETE CASCADE and SET NULL",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a);
         CREATE TABLE c(id INTEGER PRIMARY KEY, t REFERENCES t(id) ON DELETE CASCADE);
         CREATE TABLE d(t REFERENCES t ON DELETE SET NULL ON UPDATE CASCADE);
         INSERT INTO t VALUES (1, 'a'), (2, 'b'); INSERT INTO c VALUES (5, 1), (6, 2), (7, 2);
         INSERT INTO d VALUES (1), (2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        &["DELETE FROM t WHERE id = 2; SELECT c.id, c.t, d.t FROM c, d"],
    ),
    carried(
        "a foreign key of its own, and one to itself",
        "CREATE TABLE p(k TEXT PRIMARY KEY); INSERT INTO p VALUES ('k');
         CREATE TABLE t(id INTEGER PRIMARY KEY, p REFERENCES p(k) ON DELETE CASCADE,
             up REFERENCES t(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
         INSERT INTO t VALUES (2, 'k', 1), (1, 'k', NULL), (3, NULL, 2), (4, NULL, NULL)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, p REFERENCES p(k) ON DELETE CASCADE,
             up REFERENCES t(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, b)",
        &[
            "DELETE FROM t WHERE id = 1; SELECT id FROM t",
            "DELETE FROM p; SELECT id FROM t",
            "SELECT \"table\", \"from\", \"to\", on_delete FROM pragma_foreign_key_list('t')",
        ],
    ),
    carried(
        "foreign keys to unique columns, and of several",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, e TEXT, x, y, UNIQUE (x, y));
         CREATE UNIQUE INDEX by_e ON t(e); CREATE TABLE c(e REFERENCES t(e) ON UPDATE CASCADE);
         CREATE TABLE d(x, y, FOREIGN KEY (x, y) REFERENCES t(x, y) ON DELETE CASCADE);
         INSERT INTO t VALUES (1, 'e', 2, 3); INSERT INTO c VALUES ('e');
         INSERT INTO d VALUES (2, 3)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, e TEXT, x, y, z, UNIQUE (x, y))",
        &[
            "UPDATE t SET e = 'f'; SELECT e FROM c",
            "DELETE FROM c; DELETE FROM t; SELECT count(*) FROM d",
        ],
    ),
    carried(
        "generated columns, virtual and stored",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, v AS (a + 1), s AS (a * 2) STORED);
         CREATE INDEX i ON t(v); INSERT INTO t VALUES (1, 5), (2, NULL)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b, v AS (a + 1) STORED, s AS (a * 2), a)",
        &["SELECT id, a, v, s FROM t ORDER BY v", "UPDATE t SET a = 7; SELECT v, s FROM t"],
    ),
    carried(
        "a generated column becomes an ordinary one",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, v AS (a + 1)); INSERT INTO t VALUES (1, 5)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, v)",
        &["SELECT id, a, v FROM t"],
    ),
    carried(
        "AUTOINCREMENT does not give a number again",
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a);
         CREATE TABLE o(id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO o VALUES (3);
         INSERT INTO t VALUES (1, 2), (70, 3); DELETE FROM t WHERE id = 70",
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a, b)",
        &["INSERT INTO t(a) VALUES (1); SELECT id FROM t ORDER BY id"],
    ),
    carried(
        "AUTOINCREMENT of an empty table",
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a);
         INSERT INTO t VALUES (70, 3); DELETE FROM t",
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a, b)",
        &["INSERT INTO t(a) VALUES (1); SELECT id FROM t", "SELECT * FROM sqlite_sequence"],
    ),
    Carried {
        name: "AUTOINCREMENT is new",
        schema: "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (70, 3)",
        table: "t",
        rebuild: "CREATE TABLE T(id INTEGER PRIMARY KEY AUTOINCREMENT, a)",
        probes: &["INSERT INTO t(a) VALUES (1); SELECT id FROM t"],
        adds: &["Text([84])|Integer(70)"],
    },
    carried(
        "hidden rowids",
        "CREATE TABLE t(a, b); INSERT INTO t(rowid, a, b) VALUES (5, 'x', 1), (-3, 'x', 1), (9, 2,
         3);
         CREATE INDEX i ON t(a)",
        "CREATE TABLE t(b, a, c)",
        &["SELECT rowid, a, b FROM t ORDER BY rowid"],
    ),
    carried(
        "hidden rowids beside a column with that name",
        "CREATE TABLE t(rowid TEXT, oid); INSERT INTO t(_rowid_, rowid, oid) VALUES (5, 'x', 1)",
        "CREATE TABLE t(rowid TEXT, a DEFAULT 3)",
        &["SELECT rowid FROM t"],
    ),
    carried(
        "a hidden rowid becomes a column",
        "CREATE TABLE t(a); INSERT INTO t(rowid, a) VALUES (5, 'x'), (8, 'y')",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        &["SELECT rowid, a FROM t"],
    ),
    carried(
        "a column becomes a hidden rowid",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (5, 'x'), (8, 'y')",
        "CREATE TABLE t(a, id TEXT)",
        &["SELECT rowid, a, CAST(id AS INTEGER) FROM t"],
    ),
    carried(
        "a table becomes STRICT",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, i INT, r REAL, s TEXT, b BLOB, a);
         INSERT INTO t VALUES (1, 2, 2.5, 'x', x'00ff', 'any'), (2, '7', 3, '', NULL, 1.5)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, i INTEGER, r REAL, s TEXT, b BLOB, a ANY) STRICT",
        &["SELECT id, i, r, s, b, a FROM t ORDER BY id"],
    ),
    carried(
        "a STRICT table with ANY",
        "CREATE TABLE t(id INT PRIMARY KEY, a ANY) STRICT; INSERT INTO t VALUES (1, '007'), (2, 7)",
        "CREATE TABLE t(id INT PRIMARY KEY, a ANY, b TEXT) STRICT",
        &["SELECT rowid, id, a FROM t ORDER BY id"],
    ),
    carried(
        "a table becomes WITHOUT ROWID",
        "CREATE TABLE t(k TEXT PRIMARY KEY NOT NULL, a); CREATE INDEX i ON t(a);
         INSERT INTO t VALUES ('x', 1), ('a', 2); CREATE TABLE c(k REFERENCES t(k));
         INSERT INTO c VALUES ('a')",
        "CREATE TABLE t(k TEXT PRIMARY KEY NOT NULL, a, b) WITHOUT ROWID",
        &["SELECT k, a FROM t ORDER BY k", "SELECT k FROM t INDEXED BY i WHERE a = 2"],
    ),
    carried(
        "a table gets rowids",
        "CREATE TABLE t(x, y, a, PRIMARY KEY (y, x)) WITHOUT ROWID; CREATE INDEX i ON t(a);
         INSERT INTO t VALUES (1, 2, 'p'), (2, 1, 'q')",
        "CREATE TABLE t(x, y, a TEXT, PRIMARY KEY (y, x))",
        &["SELECT x, y, a FROM t ORDER BY x", "SELECT x FROM t INDEXED BY i WHERE a = 'q'"],
    ),
    carried(
        "WITHOUT ROWID stays",
        "CREATE TABLE t(x, y, a, PRIMARY KEY (y DESC, x COLLATE NOCASE)) WITHOUT ROWID;
         INSERT INTO t VALUES ('A', 2, 'p'), ('b', 1, 'q')",
        "CREATE TABLE t(a, x, y, b, PRIMARY KEY (y DESC, x COLLATE NOCASE)) WITHOUT ROWID",
        &["INSERT OR IGNORE INTO t(x, y) VALUES ('a', 2); SELECT x, y, a FROM t ORDER BY y"],
    ),
    carried(
        "a full-text table of which it is the content",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, title TEXT, body TEXT, gone);
         CREATE VIRTUAL TABLE f USING fts5(title, body, content='t', content_rowid='id');
         CREATE TRIGGER ai AFTER INSERT ON t BEGIN INSERT INTO f(rowid, title, body) VALUES
             (new.id, new.title, new.body); END;
         CREATE TRIGGER ad AFTER DELETE ON t BEGIN INSERT INTO f(f, rowid, title, body) VALUES
             ('delete', old.id, old.title, old.body); END;
         INSERT INTO t VALUES (7, 'the title', 'a body', 1), (9, 'one', 'other body', 2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, title TEXT) STRICT",
        &[
            "SELECT rowid, title FROM f WHERE f MATCH 'body' ORDER BY rowid",
            "DELETE FROM t WHERE id = 7; INSERT INTO t(title) VALUES ('body'); SELECT rowid FROM f \
             WHERE f MATCH 'body' ORDER BY rowid",
        ],
    ),
    Carried {
        name: "a full-text table whose texts are converted",
        schema: "CREATE TABLE t(a TEXT, b); INSERT INTO t(rowid, a) VALUES (7, 'ein haus'), (4,
        'x');
            CREATE VIRTUAL TABLE f USING fts5(a, content=t); INSERT INTO f(f) VALUES ('rebuild');
            CREATE VIRTUAL TABLE g USING fts4(content='t', a); INSERT INTO g(g) VALUES ('rebuild')",
        table: "t",
        rebuild: "CREATE TABLE t(a TEXT); SELECT rowid, a || ' house' AS a FROM t;
            CREATE TABLE found AS SELECT rowid AS id FROM f WHERE f MATCH 'house' UNION ALL
                SELECT docid FROM g WHERE g MATCH 'house' ORDER BY id",
        probes: &["SELECT rowid FROM f WHERE f MATCH 'haus'"],
        adds: &["Integer(1)|Integer(4)|\nInteger(2)|Integer(4)|\nInteger(3)|Integer(7)|"],
    },
    Carried {
        name: "a full-text table whose texts are converted, in a view",
        schema: "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT); CREATE INDEX i ON t(a);
            CREATE VIEW v AS SELECT id AS n, upper(a) AS a FROM t WHERE a > 'b';
            CREATE VIRTUAL TABLE f USING fts5(a, content='v', content_rowid='n');
            INSERT INTO t VALUES (3, 'a'), (7, 'haus'); INSERT INTO f(f) VALUES ('rebuild')",
        table: "t",
        rebuild: "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT);
            SELECT id, a || ' house' AS a FROM t;
            CREATE TABLE found AS SELECT rowid AS id FROM f WHERE f MATCH 'house'",
        probes: &["SELECT rowid FROM f WHERE f MATCH 'haus'"],
        adds: &["Integer(1)|Integer(7)|"],
    },
    Carried {
        name: "virtual tables beside it, one written in the same transaction",
        schema: "CREATE TABLE t(a); INSERT INTO t VALUES (1); CREATE VIRTUAL TABLE f USING fts5(v);
            CREATE VIRTUAL TABLE r USING rtree(id, x, y); INSERT INTO r VALUES (1, 2, 3);
            INSERT INTO f VALUES ('one')",
        table: "t",
        rebuild:
            "INSERT INTO f VALUES ('two'); CREATE TABLE t(a, b); INSERT INTO f VALUES ('three');
            CREATE TABLE found AS SELECT rowid AS id FROM f WHERE f MATCH 'two OR three'",
        probes: &["SELECT r.x, t.a FROM r, t", "SELECT rowid FROM f WHERE f MATCH 'one'"],
        adds: &["Integer(1)|Integer(2)|\nInteger(2)|Integer(3)|"],
    },
    carried(
        "a CHECK that names the table",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a CHECK (t.a > 0)); INSERT INTO t VALUES (1, 2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a CHECK (\"T\" . a > 0 AND 't.a' <> ''))",
        &["INSERT OR IGNORE INTO t VALUES (2, 0); SELECT id, a FROM t"],
    ),
    carried(
        "defaults and collations",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP, n TEXT COLLATE \
         NOCASE UNIQUE, d DEFAULT (abs(-4))); INSERT INTO t VALUES (1, 'then', 'N', 0)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP, n TEXT COLLATE \
         NOCASE UNIQUE, d DEFAULT (abs(-4)), e)",
        &["INSERT OR IGNORE INTO t(id, n) VALUES (2, 'n'), (3, 'm');
        SELECT id, n, d, length(at) FROM t"],
    ),
    Carried {
        name: "names that need quotes",
        schema: "CREATE TABLE \"my \"\"t\"(\"id\" INTEGER PRIMARY KEY, \"a b\", [select], `x\"y`);
            CREATE INDEX \"an \"\"index\" ON \"my \"\"t\"(\"a b\", \"select\");
            CREATE TRIGGER [a trigger] AFTER INSERT ON \"my \"\"t\" BEGIN SELECT 'x'; END;
            CREATE TABLE c(v REFERENCES \"my \"\"t\"(\"id\")); INSERT INTO \"my \"\"t\" VALUES \
            (1, 2, 3, 4); INSERT INTO c VALUES (1)",
        table: "my \"t",
        rebuild: "-- monolite: rebuild=\"my \"\"t\"\nCREATE TABLE [my \"t](id INTEGER PRIMARY KEY,
        `a b`, \
                  \"select\", \"x\"\"y\", \"new.one\")",
        probes: &["SELECT id, \"a b\", \"select\", \"x\"\"y\" FROM \"my \"\"t\" INDEXED BY \
                   \"an \"\"index\" ORDER BY \"a b\""],
        adds: &[],
    },
    Carried {
        name: "another spelling of the name, and comments",
        schema: "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a UNIQUE);
        CREATE INDEX i ON t(a);
            INSERT INTO t VALUES (4, 5)",
        table: "t",
        rebuild: "/* why */ CREATE TABLE IF NOT EXISTS main.\"T\" -- a table
            (id INTEGER PRIMARY KEY AUTOINCREMENT, a UNIQUE /* t.a */) -- and its end
            ;",
        probes: &["INSERT INTO t(a) VALUES (1); SELECT id, a FROM t ORDER BY id"],
        adds: &["index i T", "Text([84])|Integer(4)"],
    },
    carried(
        "texts become numbers, and back, without a loss",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n TEXT, m INT); INSERT INTO t VALUES (1, '7', 8), \
         (2, 'x', 9)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, m TEXT)",
        &["SELECT id, CAST(n AS TEXT), CAST(m AS INT) FROM t ORDER BY id"],
    ),
    carried(
        "values at their limits",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (-9223372036854775808,
         9223372036854775807), (1, 9e999), (2, -0.0), (3, ''), (4, x''), (5, 'a' || char(0) || 'b'),
         (6, CAST(x'ff61' AS TEXT)), (7, zeroblob(70000)), (8, 5e-324), (9223372036854775807,
         NULL)",
        "CREATE TABLE t(a, id INTEGER PRIMARY KEY)",
        &["SELECT id, a, typeof(a), hex(a) FROM t ORDER BY id"],
    ),
    carried(
        "a SELECT with others, that converts",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE TABLE o(a, n);
         INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2); INSERT INTO o VALUES ('x', 10)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT NOT NULL, n INT NOT NULL, u TEXT NOT NULL);
         -- From both.
         WITH m AS (SELECT * FROM o) SELECT coalesce(n, 0) AS n, t.id, t.a,
         hex(randomblob(4)) AS u \
         FROM t LEFT JOIN m ON m.a = t.a -- the end",
        &["SELECT id, a FROM t ORDER BY id"],
    ),
    carried(
        "statistics",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b); CREATE INDEX i ON t(b);
         INSERT INTO t VALUES (1, 2, 3), (2, 3, 3); ANALYZE",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b, c)",
        &["SELECT tbl, idx, stat FROM sqlite_stat1 ORDER BY 2"],
    ),
    Carried {
        name: "what cannot be carried is dropped before, and created behind",
        schema: "CREATE TABLE t(id INTEGER PRIMARY KEY, a, gone); CREATE INDEX i ON t(gone);
            CREATE INDEX j ON t(a); CREATE VIEW v AS SELECT gone FROM t; INSERT INTO t VALUES \
            (1, 2, 3), (2, NULL, 4)",
        table: "t",
        rebuild: "DROP INDEX i; DROP VIEW v; DELETE FROM t WHERE a IS NULL;
            CREATE TABLE t(id INTEGER PRIMARY KEY, a NOT NULL);
            CREATE INDEX i ON t(id, a); CREATE VIEW v AS SELECT a FROM t;
            CREATE TRIGGER r AFTER DELETE ON t BEGIN SELECT 1; END;",
        probes: &["SELECT id, a FROM t WHERE a IS NOT NULL"],
        adds: &[
            "CREATE INDEX i ON t(id, a)",
            "CREATE INDEX j ON t(a)",
            "AS SELECT a FROM t",
            "trigger r t",
        ],
    },
    Carried {
        name: "two tables that reference each other",
        schema: "CREATE TABLE t(id INTEGER PRIMARY KEY, s REFERENCES s(id) ON DELETE CASCADE);
            CREATE TABLE s(id INTEGER PRIMARY KEY, t REFERENCES t(id) ON DELETE CASCADE);
            INSERT INTO t VALUES (1, NULL); INSERT INTO s VALUES (2, 1); UPDATE t SET s = 2",
        table: "t",
        rebuild: "-- monolite: rebuild=t\n-- monolite: rebuild=s
            CREATE TABLE t(id INTEGER PRIMARY KEY, s REFERENCES s(id) ON DELETE CASCADE, a);
            CREATE TABLE s(id INTEGER PRIMARY KEY, t REFERENCES t(id) ON DELETE CASCADE, b);",
        probes: &["SELECT t.id, s, s.id, t FROM t, s", "DELETE FROM s; SELECT count(*) FROM t"],
        adds: &["s(id INTEGER PRIMARY KEY, t REFERENCES t(id) ON DELETE CASCADE, b)"],
    },
    carried(
        "a SELECT that calls the key by the name of the rowid",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (7, 'x'), (8, 'y')",
        "CREATE TABLE t(id INTEGER, a TEXT PRIMARY KEY) WITHOUT ROWID; SELECT rowid, a FROM t",
        &["SELECT id, a FROM t ORDER BY id"],
    ),
];

/// A table with a row, for what is wrong in a declaration.
const ONE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES (1, 2, 3)";

pub(super) const REFUSED: &[Refused] = &[
    refused(
        "an index on a column that is gone",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone); CREATE INDEX i ON t(gone)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY)",
        Invalid,
        &["0001_rebuild.sql:2:1: ", "the index i (", "gone", "drop each of these"],
    ),
    refused(
        "an index on one in double quotes, which would be one on a text",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone); CREATE INDEX i ON t(\"gone\");
         CREATE INDEX j ON t(id) WHERE \"gone\" > 1",
        "CREATE TABLE t(id INTEGER PRIMARY KEY)",
        Invalid,
        &["the index i (", "the index j ("],
    ),
    refused(
        "a trigger that names one",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone); CREATE TABLE log(v);
         CREATE TRIGGER good AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.id); END;
         CREATE TRIGGER bad AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.gone); END;
         CREATE TRIGGER worse BEFORE DELETE ON t WHEN old.gone > 1 BEGIN SELECT 1; END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY)",
        Invalid,
        &["the trigger bad (", "the trigger worse (", "gone"],
    ),
    refused(
        "a trigger that waits for one to change",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, gone); CREATE TABLE log(v);
         CREATE TRIGGER r AFTER UPDATE OF a, Gone ON t BEGIN INSERT INTO log VALUES (1); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        Invalid,
        &["the trigger r (UPDATE OF gone, which is gone)"],
    ),
    refused(
        "a trigger of another table that does not fit any more",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(v);
         CREATE TRIGGER r AFTER INSERT ON o BEGIN INSERT INTO t VALUES (new.v, 1); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        Invalid,
        &["the trigger r (", "3 columns"],
    ),
    refused(
        "triggers that insert by the places of columns, which are others",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE TABLE o(v);
         CREATE TRIGGER r AFTER INSERT ON o BEGIN INSERT INTO t VALUES (new.v, 1, 2); END;
         CREATE TRIGGER s AFTER INSERT ON o BEGIN INSERT INTO t(id, a) VALUES (new.v, 1); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b, a)",
        Invalid,
        &["t cannot be rebuilt with the trigger r (INSERT by the places of", "which change): drop"],
    ),
    refused(
        "views that name one",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone); CREATE VIEW v AS SELECT \"gone\" AS x FROM t;
         CREATE VIEW w AS SELECT x FROM v; CREATE VIEW good AS SELECT id FROM t",
        "CREATE TABLE t(id INTEGER PRIMARY KEY)",
        Invalid,
        &["the view v (", "the view w ("],
    ),
    refused(
        "a foreign key to one",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone UNIQUE); CREATE TABLE c(v REFERENCES t(gone))",
        "CREATE TABLE t(id INTEGER PRIMARY KEY)",
        Invalid,
        &["a foreign key of c ("],
    ),
    refused(
        "a foreign key to one that is not unique any more",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE); CREATE TABLE c(v REFERENCES t(a));
         CREATE TABLE d(v REFERENCES t)",
        "CREATE TABLE t(id INTEGER, a)",
        Invalid,
        &["a foreign key of c (", "a foreign key of d (", "foreign key mismatch"],
    ),
    refused(
        "a foreign key that led to no unique column before, so that SQLite checks none",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE c(a REFERENCES t(a));
         INSERT INTO t VALUES (1, 2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b UNIQUE)",
        Invalid,
        &["foreign key mismatch - \"c\" referencing \"t\""],
    ),
    refused(
        "a full-text table with one",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, gone); INSERT INTO t VALUES (1, 'a', 'b');
         CREATE VIRTUAL TABLE f USING fts5(a, gone, content='t', content_rowid='id');
         INSERT INTO f(f) VALUES ('rebuild')",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        Invalid,
        &["the full-text table f ("],
    ),
    refused(
        "a full-text table whose rowids are gone",
        "CREATE TABLE t(a PRIMARY KEY); CREATE VIRTUAL TABLE f USING fts5(a, content='t')",
        "CREATE TABLE t(a PRIMARY KEY) WITHOUT ROWID",
        Invalid,
        &["the full-text table f (", "rowid"],
    ),
    refused(
        "several at once",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone UNIQUE, a); CREATE INDEX i ON t(lower(gone));
         CREATE VIEW v AS SELECT gone FROM t; CREATE TABLE c(v REFERENCES t(gone));
         CREATE TRIGGER r AFTER UPDATE ON t BEGIN SELECT old.gone; END;
         INSERT INTO t VALUES (3, 4, NULL)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a NOT NULL)",
        Invalid,
        &[
            "the index i (",
            "the view v (",
            "a foreign key of c (",
            "the trigger r (",
            "1 row cannot be in the new table (id 3: NOT NULL constraint failed: t.a)",
        ],
    ),
    refused(
        "a virtual table",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "CREATE TABLE t(a)",
        Invalid,
        &["it is a virtual table"],
    ),
    refused(
        "a table of a virtual table",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
        "-- monolite: rebuild=f_content\nCREATE TABLE f_content(id INTEGER PRIMARY KEY, c0, c1)",
        Invalid,
        &["may belong to the virtual table f"],
    ),
    refused(
        "a view",
        "CREATE VIEW t AS SELECT 1 AS a",
        "CREATE TABLE t(a)",
        Invalid,
        &["it is a view"],
    ),
    refused("no table", "SELECT 1", "CREATE TABLE t(a)", Invalid, &["there is no such table"]),
    refused(
        "a table of the engine",
        ONE,
        "-- monolite: rebuild=monolite_migrations\nCREATE TABLE monolite_migrations(a)",
        Invalid,
        &["monolite_migrations"],
    ),
    refused(
        "no CREATE TABLE",
        ONE,
        "CREATE TABLE x(a); CREATE TEMP TABLE t(a)",
        Invalid,
        &["temporary tables"],
    ),
    refused("another CREATE TABLE", ONE, "CREATE TABLE x(a)", Invalid, &["no CREATE TABLE t"]),
    refused(
        "columns of a query",
        ONE,
        "CREATE TABLE t AS SELECT 1",
        Invalid,
        &["declares no columns"],
    ),
    refused("wrong SQL", ONE, "CREATE TABLE t(a, )", Invalid, &[":2:1: near \")\": syntax error"]),
    refused(
        "a foreign key to a table of the engine",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a REFERENCES monolite_migrations(number), b)",
        Invalid,
        &["monolite_"],
    ),
    refused(
        "rows without a value that must be there",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL \
         SELECT i + 1 FROM n LIMIT 30) INSERT INTO t SELECT i, CASE WHEN i % 2 THEN i END FROM n",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a NOT NULL)",
        Constraint,
        &["15 rows cannot be in the new table (id 2: NOT NULL constraint failed: t.a; id 4: ",
          "id 20: ",
          "and 5 more"],
    ),
    refused(
        "rows that fail a CHECK, by hidden rowids",
        "CREATE TABLE t(a); INSERT INTO t(rowid, a) VALUES (5, 1), (7, -1)",
        "CREATE TABLE t(a CHECK (a > 0))",
        Constraint,
        &["1 row cannot be in the new table (rowid 7: CHECK constraint failed: a > 0)"],
    ),
    refused(
        "rows of other types, by a key of several columns",
        "CREATE TABLE t(x, y, a, PRIMARY KEY (y, x)) WITHOUT ROWID; INSERT INTO t VALUES \
         ('it', 2, 'text'), (1, 2, 3)",
        "CREATE TABLE t(x ANY, y INT, a INT, PRIMARY KEY (y, x)) STRICT, WITHOUT ROWID",
        Constraint,
        &["(y 2, x 'it': cannot store TEXT value in INT column t.a)"],
    ),
    refused(
        "rows that are alike",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'x'), (2, 'X'), (3,
         'x')",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a COLLATE NOCASE UNIQUE ON CONFLICT REPLACE)",
        Constraint,
        &["2 rows cannot be in the new table (id 2: UNIQUE constraint failed: t.a; id 3: "],
    ),
    refused(
        "rows that are alike, and would be left out",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'x'), (2, 'x')",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE ON CONFLICT IGNORE)",
        Constraint,
        &["id 2: UNIQUE constraint failed: t.a"],
    ),
    refused(
        "rows that are alike in a unique index, as they are converted",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE INDEX h ON t(b);
         CREATE UNIQUE INDEX i ON t(lower(a)) WHERE id > 1; CREATE UNIQUE INDEX j ON t(a, id);
         INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2), (3, ' Y', 3)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT id, trim(a) AS a, b FROM t",
        Constraint,
        &["1 row cannot be in the new table (id 3: UNIQUE constraint failed: index 'i')"],
    ),
    refused(
        "a key that is no number",
        "CREATE TABLE t(id TEXT, a); INSERT INTO t VALUES ('1', 1), ('x', 2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        Constraint,
        &["id 'x': datatype mismatch"],
    ),
    refused(
        "a key that is missing",
        "CREATE TABLE t(k TEXT PRIMARY KEY, a); INSERT INTO t VALUES (NULL, 1)",
        "CREATE TABLE t(k TEXT PRIMARY KEY, a) WITHOUT ROWID",
        Constraint,
        &["k NULL: NOT NULL constraint failed: t.k"],
    ),
    refused(
        "texts that lose something as numbers",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, code TEXT);
         INSERT INTO t VALUES (1, '7'), (2, '007')",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, code INT)",
        Constraint,
        &["1 row would lose a part of a value (id 2: code: '007' would become 7)"],
    ),
    refused(
        "numbers that lose something as others, in a SELECT, too",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, m TEXT, o); INSERT INTO t VALUES \
         (1, 9007199254740993, 'a', 1), (2, 4, '1e2', 2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n REAL, m INT, o);
         SELECT id, n, m, o + 1 AS o FROM t",
        Constraint,
        &["2 rows would lose", "id 1: n: 9007199254740993 would become 9",
          "id 2: m: '1e2' would become 100"],
    ),
    refused(
        "rows that others reference are numbered otherwise",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE TABLE c(id INTEGER PRIMARY KEY,
         t REFERENCES t ON DELETE CASCADE); INSERT INTO t VALUES (1, 2, 3), (2, 3, 4);
         INSERT INTO c VALUES (10, 1), (11, 2)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT id + 1 AS id, a, b FROM t",
        Constraint,
        &["row 10 of c has no parent in t"],
    ),
    refused(
        "rows that reference none",
        "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE t(id INTEGER PRIMARY KEY, p);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 8) INSERT INTO t \
         SELECT i, i FROM n",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, p REFERENCES p(id))",
        Constraint,
        &["row 1 of t has no parent in p", "and 3 more"],
    ),
    refused(
        "a foreign key to no table",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c REFERENCES nowhere(id))",
        Constraint,
        &["t references nowhere"],
    ),
    refused(
        "a SELECT that leaves rows out",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 2), (2, 3)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); SELECT * FROM t WHERE a > 2",
        Invalid,
        &["a SELECT that gives 1 rows, where t has 2"],
    ),
    refused(
        "a SELECT that leaves a column out, and has one that there is not",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, g AS (a));
         SELECT a, a AS c, 1, a AS g, a FROM t",
        Invalid,
        &["b is missing: add it, or NULL AS b", "c is no column", "1 is no column", "g is computed",
          "id is missing", "a is there twice"],
    ),
    refused(
        "a SELECT without the hidden rowids",
        "CREATE TABLE t(a); INSERT INTO t VALUES (1)",
        "CREATE TABLE t(a); SELECT a + 1 AS a FROM t",
        Invalid,
        &["rowid, which tells a row from others, is missing"],
    ),
    refused(
        "a SELECT with a parameter",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b);\nSELECT id, ?1 AS a, b FROM t",
        Invalid,
        &["0001_rebuild.sql:3:1: the parameter ?1 is refused"],
    ),
    refused(
        "a SELECT of no column in double quotes, which would be a text in each row",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b);\nSELECT id, \"c\" AS a, b FROM t",
        Invalid,
        &["0001_rebuild.sql:3:", "no such column: \"c\""],
    ),
    refused(
        "a SELECT of what is the engine's",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT id, a, (SELECT count(*) FROM \
         monolite_migrations) AS b FROM t",
        Invalid,
        &["monolite_migrations"],
    ),
    refused(
        "a SELECT that fails with a row",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); SELECT id, json('{') AS a, b FROM t",
        Invalid,
        &["malformed JSON"],
    ),
    refused(
        "a statement behind it fails",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c);\nCREATE INDEX i ON t(missing);",
        Invalid,
        &["0001_rebuild.sql:3:", "missing"],
    ),
    refused(
        "a NULL that becomes an INTEGER PRIMARY KEY, which would be a number",
        "CREATE TABLE t(id INT PRIMARY KEY, a); INSERT INTO t VALUES (50, 'x'), (NULL, 'y')",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        Constraint,
        &["1 row would lose", "id NULL: id: NULL would become 51"],
    ),
    refused(
        "an integer next to the end of its range that becomes a real",
        "CREATE TABLE t(a INTEGER); INSERT INTO t VALUES (9223372036854775807)",
        "CREATE TABLE t(a REAL)",
        Constraint,
        &["a: 9223372036854775807 would become 9.2"],
    ),
    refused(
        "a view with a subquery in which a column that is gone becomes another table's",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, mail); CREATE TABLE o(mail, y);
         CREATE VIEW v AS SELECT y FROM o WHERE mail IN (SELECT mail FROM t)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, email); SELECT id, mail AS email FROM t",
        Invalid,
        &["the view v (mail in it would no longer mean t.mail)"],
    ),
    refused(
        "a trigger of another table with such a subquery",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, mail); CREATE TABLE o(mail); CREATE TABLE l(x);
         CREATE TRIGGER r AFTER INSERT ON l BEGIN
         DELETE FROM o WHERE mail IN (SELECT mail FROM t); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, email); SELECT id, mail AS email FROM t",
        Invalid,
        &["the trigger r (mail in it would no longer mean t.mail)"],
    ),
    refused(
        "a view with a subquery in which a new column takes another table's name",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, mail); CREATE TABLE o(name, y);
         CREATE VIEW v AS SELECT y FROM o WHERE EXISTS (SELECT 1 FROM t WHERE mail = name)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, mail, name)",
        Invalid,
        &["the view v (name in it would mean t.name)"],
    ),
    refused(
        "a view whose alias a new column takes, and one of that view, beside texts",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(k);
         CREATE VIEW v AS SELECT lower(a) AS \"X\", \"text\" FROM t WHERE x = 'a';
         CREATE VIEW g AS SELECT count(*), lower(a) AS [x] FROM t GROUP BY `x`;
         CREATE VIEW w AS SELECT *, 1 AS one FROM t;
         CREATE VIEW u AS SELECT one AS x FROM w WHERE x = 1;
         CREATE VIEW good AS SELECT a AS x FROM t ORDER BY x",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, x)",
        Invalid,
        &[
            "with the view g (x in it would mean t.x); the view u (x in it would mean t.x); the \
             view u (x in it would mean w.x); the view v (x in it would mean t.x): drop each",
        ],
    ),
    refused(
        "texts in double quotes that become a new column",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(k);
         CREATE INDEX \"x\" ON t(a); CREATE INDEX i ON t(a) WHERE a <> \"x\";
         CREATE VIEW v AS SELECT id FROM t WHERE a = \"x\";
         CREATE TRIGGER r AFTER INSERT ON o BEGIN UPDATE t SET a = \"x\"; END;
         CREATE TRIGGER good AFTER INSERT ON o BEGIN UPDATE t SET a = 'x'; END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, x)",
        Invalid,
        &[
            "with the index i (a name in it would mean a new column); the trigger r \
             (x in it would mean t.x); the view v (x in it would mean t.x): drop each",
        ],
    ),
    refused(
        "a text in double quotes beside a column in them that is gone",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, gone);
         CREATE VIEW v AS SELECT \"text\", \"gone\" FROM t",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        Invalid,
        &["the view v (gone in it would no longer mean t.gone)"],
    ),
    refused(
        "a text in double quotes beside a column that is gone",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, gone); CREATE TABLE log(p);
         CREATE VIEW v AS SELECT \"text\" AS s, gone FROM t;
         CREATE TRIGGER r AFTER UPDATE ON t WHEN new.gone <> \"text\" BEGIN
             INSERT INTO log VALUES (new.a); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a)",
        Invalid,
        &["the trigger r (no such column: new.gone)", "the view v (no such column: gone)"],
    ),
    refused(
        "a column that hides the rowid by another of its names",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(k);
         CREATE TRIGGER r AFTER INSERT ON o BEGIN INSERT INTO t(oid) VALUES (new.k); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, OID)",
        Invalid,
        &["a column OID would hide the rowid; give it another name"],
    ),
    refused(
        "a NATURAL JOIN by a new column",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(id, b);
         CREATE VIEW v AS SELECT a FROM t NATURAL JOIN o;
         CREATE VIEW w AS SELECT count(*) FROM o NATURAL JOIN t;
         CREATE VIEW all_of AS SELECT * FROM t;
         CREATE VIEW x AS SELECT count(*) FROM all_of NATURAL JOIN o",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b)",
        Invalid,
        &[
            "with the view v (NATURAL JOIN by the names of columns, which change); the view w \
             (NATURAL JOIN by the names of columns, which change); the view x (NATURAL JOIN by the \
             names of columns, which change): drop each",
        ],
    ),
    refused(
        "USING, whose column another table has before the new one, and one that is gone",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, gone); CREATE TABLE u(id, x, gone);
         CREATE TABLE o(x, y); CREATE TABLE p(gone, y);
         CREATE VIEW v AS SELECT y FROM t JOIN u USING (id) JOIN o USING (x);
         CREATE VIEW w AS SELECT y FROM t JOIN u USING (id) JOIN p USING (gone);
         CREATE VIEW good AS SELECT t.id FROM t JOIN u USING (id)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, x)",
        Invalid,
        &[
            "with the view v (USING may join by another x than before); the view w (USING may join \
             by another gone than before): drop each",
        ],
    ),
    refused(
        "the rowid in a subquery, which is gone",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a); CREATE TABLE o(k);
         CREATE VIEW v AS SELECT (SELECT a FROM t WHERE rowid = k) FROM o",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a) WITHOUT ROWID",
        Invalid,
        &["the view v (rowid in it may be another one than before)"],
    ),
    refused(
        "the rowid that is another column",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER); INSERT INTO t VALUES (1, 2);
         CREATE VIEW v AS SELECT max(oid) FROM t; CREATE VIEW good AS SELECT max(id) FROM t",
        "CREATE TABLE t(id INTEGER, a INTEGER PRIMARY KEY)",
        Invalid,
        &["with the view v (oid in it may be another one than before): drop each"],
    ),
    refused(
        "a foreign key to the primary key, whatever that is, which becomes another",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 2), (2, 1);
         CREATE TABLE c(t REFERENCES t); INSERT INTO c VALUES (1)",
        "CREATE TABLE t(id INTEGER, n INTEGER PRIMARY KEY)",
        Invalid,
        &["a foreign key of c (it names no column, and the primary key changes)"],
    ),
    refused(
        "a column that hides the rowid",
        "CREATE TABLE t(a); CREATE VIRTUAL TABLE f USING fts5(a, content=t)",
        "CREATE TABLE t(a, RowId TEXT)",
        Invalid,
        &["a column RowId would hide the rowid"],
    ),
    refused(
        "a column with values that becomes a computed one",
        ONE,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b AS (a))",
        Invalid,
        &["b has values, and would be computed"],
    ),
    refused(
        "a trigger that inserts by place into a view of all columns, whose order changes",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE VIEW v AS SELECT * FROM t;
         CREATE TRIGGER r INSTEAD OF INSERT ON v BEGIN INSERT INTO t(a) VALUES (new.a); END;
         CREATE TABLE o(y); CREATE TRIGGER q AFTER INSERT ON o BEGIN
         INSERT INTO v VALUES (new.y, 1, 2); END",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b, a)",
        Invalid,
        &["the trigger q (INSERT by the places of columns, which change)"],
    ),
    refused(
        "a value that is lost beside a new key, which finds no row of the old table",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, '007'), (2, '8')",
        "CREATE TABLE t(k TEXT DEFAULT (hex(randomblob(8))) PRIMARY KEY, a INT) WITHOUT ROWID",
        Constraint,
        &["1 row would lose", "a: '007' would become 7"],
    ),
    refused(
        "a key that loses a part of itself",
        "CREATE TABLE t(k INT PRIMARY KEY, a) WITHOUT ROWID;
         INSERT INTO t VALUES (9007199254740993, 1)",
        "CREATE TABLE t(k REAL PRIMARY KEY, a) WITHOUT ROWID",
        Constraint,
        &["k: 9007199254740993 would become 9007199254740992.0"],
    ),
    refused(
        "a text that is a real of another look",
        "CREATE TABLE t(a TEXT); INSERT INTO t VALUES ('1.50'), ('1.5'), ('2.0')",
        "CREATE TABLE t(a REAL)",
        Constraint,
        &["1 row would lose", "a: '1.50' would become 1.5"],
    ),
];
