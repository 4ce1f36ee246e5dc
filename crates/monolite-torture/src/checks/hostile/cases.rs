//! What somebody who means harm says, and what must come of it.
//!
//! Cases are data (`cases.txt` holds the single ones): a name, what is set up (whether that is
//! allowed or not), the SQL, and what must happen. Families of cases are made
//! from lists: pragmas and their forms, statements and their disguises, functions and the places
//! from which they are called.

use super::grammar::balanced;

/// What must come of a case when it is a transaction of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Must {
    /// It is refused.
    BeRefused,
    /// It ends, with an error of whatever kind.
    Fail,
    /// Whatever it does, nobody else notices.
    HarmNobody,
}

const SINGLE: &str = include_str!("cases.txt");

/// One thing to try.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) setup: String,
    pub(super) sql: String,
    pub(super) must: Must,
}

/// Counts without end.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";

/// Pragmas that change or tell what is not a stranger's business; each is asked, set, and used as a
/// table.
const PRAGMAS: &[&str] = &[
    "auto_vacuum",
    "automatic_index",
    "busy_timeout",
    "cache_spill",
    "case_sensitive_like",
    "cell_size_check",
    "checkpoint_fullfsync",
    "count_changes",
    "default_cache_size",
    "defer_foreign_keys",
    "empty_result_callbacks",
    "full_column_names",
    "fullfsync",
    "hard_heap_limit",
    "ignore_check_constraints",
    "incremental_vacuum",
    "integrity_check",
    "journal_size_limit",
    "legacy_alter_table",
    "legacy_file_format",
    "locking_mode",
    "max_page_count",
    "mmap_size",
    "optimize",
    "quick_check",
    "read_uncommitted",
    "recursive_triggers",
    "reverse_unordered_selects",
    "secure_delete",
    "short_column_names",
    "shrink_memory",
    "soft_heap_limit",
    "temp_store_directory",
    "threads",
    "trusted_schema",
    "vdbe_addoptrace",
    "vdbe_debug",
    "vdbe_listing",
    "vdbe_trace",
    "wal_checkpoint",
    "writable_schema",
    "data_store_directory",
    "hexkey",
    "key",
    "rekey",
    "lock_proxy_file",
    "lock_status",
    "stats",
    "parser_trace",
    "activate_extensions",
];

/// Statements that belong to the engine.
const ENGINE: &[&str] = &[
    "BEGIN",
    "BEGIN DEFERRED",
    "BEGIN IMMEDIATE",
    "BEGIN EXCLUSIVE",
    "BEGIN CONCURRENT",
    "COMMIT",
    "END",
    "ROLLBACK",
    "SAVEPOINT s",
    "ATTACH 'new.db' AS n",
    "ATTACH ':memory:' AS n",
    "ATTACH '' AS n",
    "ATTACH 'file:new.db?mode=rwc' AS n",
    "ATTACH 'file:other.db?mode=ro&immutable=1' AS n",
    "ATTACH 'file:other.db?vfs=unix' AS n",
    "ATTACH 'file:/etc/passwd?mode=ro' AS n",
    "ATTACH DATABASE 'other.db' AS main",
    "ATTACH 'file:x?mode=memory&cache=shared' AS n",
    "ATTACH printf('%s', 'new.db') AS n",
    "DETACH main",
    "DETACH temp",
    "VACUUM",
    "VACUUM main",
    "VACUUM INTO 'new.db'",
    "VACUUM INTO 'file:new.db?mode=rwc'",
    "CREATE TEMP TABLE z(x)",
    "CREATE TEMP VIEW z AS SELECT 1",
    "CREATE TABLE temp.z(x)",
    "CREATE TEMP TRIGGER z AFTER INSERT ON bystander BEGIN DELETE FROM bystander; END",
    "ANALYZE",
    "ANALYZE bystander",
];

/// How savepoints are or were called that the engine or its users have open, or may have left.
const SAVEPOINTS: &[&str] = &[
    "monolite_group",
    "monolite_member",
    "monolite_user",
    "monolite_user_0",
    "monolite_user_1",
    "\"user sp\"",
];

/// What can be said of a savepoint.
const OF_SAVEPOINTS: &[&str] = &["SAVEPOINT", "ROLLBACK TO", "RELEASE"];

/// Calls that are refused wherever they stand.
const CALLS: &[&str] = &[
    "load_extension('new')",
    "load_extension('new', 'entry')",
    "fts3_tokenizer('simple')",
    "fts3_tokenizer('simple', x'4141414141414141')",
    "sqlite_log(1, 'x')",
    "json_patch('{\"a\":1}', '{\"a\":2}')",
    "jsonb_patch('{\"a\":1}', '{\"a\":2}')",
    "unhex('00', ' ')",
    "readfile('other.db')",
    "writefile('new.db', 'x')",
    "edit('x', 'sh')",
];

/// Where a call can hide: what is set up, and what then runs it.
const PLACES: &[(&str, &str)] = &[
    ("", "SELECT {}"),
    ("", "INSERT INTO victim(x) VALUES ({})"),
    ("", "SELECT 1 WHERE {} IS NOT 5"),
    ("CREATE VIEW v AS SELECT {} AS x", "SELECT * FROM v"),
    (
        "CREATE TRIGGER z AFTER INSERT ON victim BEGIN SELECT {}; END",
        "INSERT INTO victim(x) VALUES (1)",
    ),
    ("CREATE TABLE w(x, CHECK ({} IS NOT 5))", "INSERT INTO w VALUES (1)"),
    ("CREATE TABLE w(x, y AS ({}))", "INSERT INTO w(x) VALUES (1); SELECT y FROM w"),
    ("CREATE TABLE w(x DEFAULT ({}))", "INSERT INTO w DEFAULT VALUES"),
    ("CREATE TABLE w(x); CREATE INDEX i ON w({})", "INSERT INTO w VALUES (1)"),
    ("CREATE TABLE w(x); CREATE INDEX i ON w(x) WHERE {}", "INSERT INTO w VALUES (1)"),
];

/// How a statement of the engine can be disguised.
const DISGUISES: &[&str] =
    &["{}", "/* harmless */ {} -- harmless", "SELECT 1; {}", ";;\n\t {};", "EXPLAIN {}"];

/// How a pragma can be said.
const FORMS: &[&str] = &[
    "PRAGMA {}",
    "PRAGMA {} = 1",
    "PRAGMA main.{}(0)",
    "SELECT * FROM pragma_{}",
    "pragma {}='x'",
];

/// Pragmas whose value anybody may ask for.
const ASKED: &[&str] = &[
    "cache_size",
    "foreign_keys",
    "journal_mode",
    "query_only",
    "synchronous",
    "temp_store",
    "wal_autocheckpoint",
];

/// Ways to spell the name of the engine's table.
const KEYS: &[&str] = &[
    "monolite_idempotency",
    "MONOLITE_Idempotency",
    "main.monolite_idempotency",
    "\"monolite_idempotency\"",
    "[monolite_idempotency]",
    "main.`Monolite_Idempotency`",
];

/// What would read, change, forge, replace or listen to what is in it.
const OF_KEYS: &[&str] = &[
    "SELECT * FROM {}",
    "SELECT count(*) FROM {} NOT INDEXED",
    "SELECT (SELECT max(outcome) FROM {})",
    "SELECT * FROM victim WHERE x IN (SELECT key FROM {})",
    "SELECT * FROM victim NATURAL JOIN {}",
    "WITH k AS MATERIALIZED (SELECT outcome FROM {}) SELECT * FROM k",
    "SELECT 1 UNION ALL SELECT expires FROM {}",
    "EXPLAIN QUERY PLAN SELECT * FROM {}",
    "INSERT INTO {} VALUES ('forged', x'00', 9223372036854775807)",
    "INSERT INTO {} VALUES ('paid', x'00', 1) ON CONFLICT DO UPDATE SET outcome = x'01'",
    "INSERT OR REPLACE INTO {} SELECT 'paid', x'00', 1",
    "UPDATE {} SET expires = 0",
    "UPDATE OR IGNORE {} SET key = 'other' RETURNING key",
    "UPDATE victim SET x = key FROM {}",
    "DELETE FROM {}",
    "DELETE FROM {} WHERE key = 'paid' RETURNING outcome",
    "DROP TABLE {}",
    "DROP TABLE IF EXISTS {}",
    "ALTER TABLE {} RENAME TO mine",
    "ALTER TABLE {} RENAME COLUMN outcome TO o",
    "ALTER TABLE {} ADD COLUMN more DEFAULT 1",
    "ALTER TABLE {} DROP COLUMN outcome",
    "CREATE TABLE copy AS SELECT * FROM {}",
    "CREATE TRIGGER z AFTER INSERT ON victim BEGIN DELETE FROM {}; END; \
     INSERT INTO victim VALUES (9, 9)",
    "CREATE VIEW z AS SELECT * FROM {}; SELECT * FROM z",
];

/// All of them.
pub(super) fn all() -> Vec<Case> {
    let mut cases = singles(SINGLE);
    for pragma in PRAGMAS {
        cases.extend(FORMS.iter().map(|form| refused(form.replace("{}", pragma), "")));
    }
    for pragma in ASKED {
        let set = FORMS.iter().filter(|form| form.contains(['=', '(']));
        cases.extend(set.map(|form| refused(form.replace("{}", pragma), "")));
    }
    let named = |verb: &'static str| SAVEPOINTS.iter().map(move |name| format!("{verb} {name}"));
    let of_savepoints = OF_SAVEPOINTS.iter().flat_map(|verb| named(verb));
    for statement in ENGINE.iter().map(|it| (*it).to_owned()).chain(of_savepoints) {
        // To explain a VACUUM is to run nothing.
        let of_vacuum = |form: &&&str| statement.starts_with("VACUUM") && form.starts_with("EXP");
        let forms = DISGUISES.iter().filter(|form| !of_vacuum(form));
        cases.extend(forms.map(|form| refused(form.replace("{}", &statement), "")));
    }
    for call in CALLS {
        for (setup, sql) in PLACES {
            cases.push(refused(sql.replace("{}", call), &setup.replace("{}", call)));
        }
    }
    for form in OF_KEYS {
        cases.extend(KEYS.iter().map(|name| refused(form.replace("{}", name), "")));
    }
    cases.extend(large());
    cases.extend(wide());
    cases.extend(alike());
    cases.extend(deep());
    cases.extend(altered());
    cases.extend(planned());
    cases.extend(passing());
    cases
}

fn refused(sql: String, setup: &str) -> Case {
    let name = if setup.is_empty() { sql.clone() } else { format!("{setup}; {sql}") };
    Case { name, setup: setup.into(), sql, must: Must::BeRefused }
}

/// Reads the table of single cases.
fn singles(text: &str) -> Vec<Case> {
    let blocks = text.split("\n\n").map(str::trim_start).filter(|block| !block.starts_with('#'));
    blocks.filter_map(single).collect()
}

fn single(block: &str) -> Option<Case> {
    let (head, rest) = block.split_once('\n')?;
    let (must, name) = head.split_once(": ")?;
    let must = match must {
        "refused" => Must::BeRefused,
        "fails" => Must::Fail,
        _ => Must::HarmNobody,
    };
    let setup = rest.strip_prefix("setup: ").and_then(|it| it.split_once('\n'));
    let (setup, sql) = setup.unwrap_or(("", rest));
    let written = |sql: &str| sql.replace('@', ENDLESS);
    Some(Case { name: name.into(), setup: written(setup), sql: written(sql), must })
}

/// Statements that are too large to be written down.
fn large() -> Vec<Case> {
    let case =
        |name: &str, sql: String, must| Case { name: name.into(), setup: String::new(), sql, must };
    let list = |piece: &str, by: &str, count| vec![piece; count].join(by);
    let join: Vec<_> = (0..64).map(|i| format!("big t{i}")).collect();
    let columns: Vec<_> = (0..1_000).map(|i| format!("c{i}")).collect();
    let views: Vec<_> = (1..40)
        .map(|i| format!("CREATE VIEW v{i} AS SELECT a.x FROM v{0} a, v{0} b", i - 1))
        .collect();
    let views = format!("CREATE VIEW v0 AS SELECT x FROM big; {}", views.join(";"));
    let refused = Must::BeRefused;
    vec![
        case("deep expression", format!("SELECT {}", list("1", "+", 5_000)), refused),
        case(
            "deep parentheses",
            format!("SELECT {}1{}", "(".repeat(9_000), ")".repeat(9_000)),
            refused,
        ),
        case("deep subqueries", format!("{}1{}", "SELECT (".repeat(900), ")".repeat(900)), refused),
        case("deep NOT", format!("SELECT {}1", "NOT ".repeat(9_000)), refused),
        case(
            "deep CASE",
            format!("SELECT {}1{}", "CASE WHEN 1 THEN ".repeat(900), " END".repeat(900)),
            refused,
        ),
        case("many selects", list("SELECT 1", " UNION ALL ", 600), refused),
        case("many results", format!("SELECT {}", list("1", ",", 3_000)), refused),
        case("many columns", format!("CREATE TABLE w({})", columns.join(",")), refused),
        case("many arguments", format!("SELECT max({})", list("1", ",", 900)), refused),
        case(
            "many terms of an order",
            format!("SELECT 1 ORDER BY {}", list("1", ",", 3_000)),
            refused,
        ),
        case("many tables", format!("SELECT 1 FROM {}", list("big", ",", 70)), refused),
        case("a join of 64 tables", format!("SELECT count(*) FROM {}", join.join(",")), Must::Fail),
        case("views of views", format!("{views}; SELECT * FROM v39"), Must::Fail),
        case("long text", format!("SELECT '{}'", "a".repeat(1_100_000)), refused),
        case("long comment", format!("SELECT 1 /*{}*/", "a".repeat(1_100_000)), refused),
        case("many statements", "SELECT 1;".repeat(100_000), Must::HarmNobody),
        case(
            "many members of IN",
            format!("SELECT 1 IN ({})", list("1", ",", 200_000)),
            Must::HarmNobody,
        ),
        case(
            "many rows of VALUES",
            format!("VALUES {}", list("(1)", ",", 100_000)),
            Must::HarmNobody,
        ),
        case("many parameters", format!("SELECT {}", list("?", "+", 400)), refused),
        case(
            "many WITH",
            format!("WITH {} SELECT 1", list("a AS (SELECT 1)", ",", 2_000)),
            refused,
        ),
        case("long name", format!("SELECT 1 AS \"{}\"", "a".repeat(900_000)), Must::HarmNobody),
        case("long number", format!("SELECT {}", "9".repeat(900_000)), Must::HarmNobody),
        case("a NUL hides a commit", "SELECT 1;\0COMMIT".into(), Must::HarmNobody),
    ]
}

/// Names that are looked for in many wide tables.
fn wide() -> Vec<Case> {
    let columns = |table: usize| list_of(499, |column| format!("c{table}_{column}"));
    let setup = list_of(20, |table| format!("CREATE TABLE w{table}({})", columns(table)))
        .replace(",CREATE", ";CREATE");
    let tables = list_of(20, |table| format!("w{table}"));
    let natural = format!("(SELECT 1 FROM {})", tables.replace(',', " NATURAL JOIN "));
    let names = list_of(3_000, |name| format!("c19_{}", name % 499));
    let inside = |depth: usize| {
        let innermost = format!("SELECT 1 FROM {tables} WHERE 1 IN ({names})");
        (0..depth).fold(innermost, |inner, _| format!("SELECT ({inner}) FROM {tables}"))
    };
    // As many as a text may have.
    let view = "CREATE VIEW v AS SELECT (SELECT 1 FROM w0 NATURAL JOIN w1 NATURAL JOIN w2 NATURAL \
                JOIN w3) AS x";
    let uses = list_of(390, |n| format!("(SELECT x FROM v) AS x{n}"));
    let sqls = [
        ("NATURAL joins", format!("SELECT {}", list_of(300, |_| natural.clone()))),
        ("views of NATURAL joins", format!("{view}; SELECT {uses}")),
        ("names in one SELECT", inside(0)),
        ("names in many SELECTs", inside(12)),
        (
            "names in USING",
            format!("SELECT 1 FROM {tables}, w0 AS b JOIN w0 AS c USING ({})", {
                list_of(100_000, |_| "c0_498".into())
            }),
        ),
    ];
    let case = |(name, sql): (&str, _)| {
        let (name, setup) = (format!("wide tables: {name}"), setup.clone());
        Case { name, setup, sql, must: Must::HarmNobody }
    };
    sqls.map(case).into()
}

/// Names with one sum of characters and one beginning, which SQLite compares nearly to their ends.
fn alike() -> Vec<Case> {
    let name = |kind: &str, at: usize| format!("{}{kind}{at:03}{:03}", "p".repeat(990), 999 - at);
    let (columns, asked) = (list_of(490, |at| name("ac", at)), list_of(450, |at| name("bb", at)));
    let tables = list_of(60, |at| format!("w AS w{at}"));
    let common = format!(
        "WITH w({columns}) AS (VALUES ({})), k({asked}) AS (VALUES ({}))",
        list_of(490, |_| "1".into()),
        list_of(450, |_| "1".into())
    );
    let query = format!("SELECT {asked} FROM k, {tables}");
    let made = format!("CREATE TABLE w({columns}); CREATE TABLE k({asked})");
    let view = format!("CREATE VIEW z AS {query}");
    [
        ("a table", made.clone()),
        ("a query", format!("{common} {query}")),
        ("a view, and an ALTER", format!("{made}; {view}; ALTER TABLE victim RENAME x TO y")),
        (
            "a view that is looked at",
            format!("{made}; {view}; SELECT * FROM pragma_table_info('z')"),
        ),
    ]
    .map(|(name, sql)| {
        let name = format!("names that are alike: {name}");
        Case { name, setup: String::new(), sql, must: Must::BeRefused }
    })
    .into()
}

fn list_of(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(",")
}

/// Definitions that `ALTER TABLE` parses again, as they are made before and beside it.
fn altered() -> Vec<Case> {
    let term = vec!["t.c"; 80].join("+");
    let select = |names: usize| {
        let terms = vec![term.as_str(); 25].join(",");
        format!("SELECT {terms} FROM t;").repeat(names / 2_000)
    };
    let trigger = |name: usize, names: usize| {
        format!("CREATE TRIGGER z{name} AFTER INSERT ON w BEGIN {} END", select(names))
    };
    let triggers = |count: usize, names: usize| {
        (0..count).map(|name| trigger(name, names)).collect::<Vec<_>>().join(";")
    };
    let checks = list_of(100, |_| format!("CHECK ({})", term.replace("t.", "d.")));
    let definitions = [
        ("a trigger of 2,000 names", triggers(1, 2_000)),
        ("a trigger of 20,000 names", triggers(1, 20_000)),
        ("20 triggers of 2,000 names", triggers(20, 2_000)),
        ("a table of 8,000 names", format!("CREATE TABLE d(c, {checks})")),
    ];
    let alters = [
        "ALTER TABLE w RENAME TO w2",
        "ALTER TABLE t RENAME COLUMN c TO d",
        "ALTER TABLE w DROP COLUMN b",
    ];
    let tables = "CREATE TABLE w(a, b); CREATE TABLE t(c)";
    let mut cases = Vec::new();
    for (name, made) in definitions {
        for sql in alters {
            let (name, must) = (format!("{name}: {sql}"), Must::HarmNobody);
            let setup = format!("{tables}; {made}");
            cases.push(Case { name, setup, sql: sql.into(), must });
            let (name, setup) =
                (format!("{}, at once", cases[cases.len() - 1].name), tables.into());
            cases.push(Case { name, setup, sql: format!("{made}; {sql}"), must });
        }
    }
    cases
}

/// What SQLite plans for seconds, and asks nobody meanwhile.
fn planned() -> Vec<Case> {
    let list =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>();
    let all = |terms: Vec<String>| balanced(&terms, "AND");
    let sum = |first: &str, last: usize| format!("{first} + {}{last}", "1 + ".repeat(60));
    let either = all(list(990, &|i| format!("(a = {i} OR a = -{i})")));
    let indexed = "CREATE TABLE t(a, b, c); CREATE INDEX i ON t(a)";
    let many = list(10, &|i| format!("CREATE INDEX i{i} ON t(a, b, c) WHERE b <> {i}")).join(";");
    let sums = list(390, &|i| format!("CREATE INDEX s{i} ON t({})", sum("a", i))).join(";");
    let wide = list(60, &|i| format!("CREATE TABLE x{i}(a, b)")).join(";");
    let plain = list(2_500, &|i| format!("CREATE INDEX p{i} ON x{}(a, b)", i % 60)).join(";");
    let tables = list(60, &|i| format!("x{i}")).join(", ");
    let joined = list(1_900, &|i| format!("x{}.a = x{}.b + {i}", i % 60, (i * 7 + 1) % 60));
    let groups = list(490, &|i| sum("a", i)).join(", ");
    let having = all(list(1_400, &|i| format!("{} > 0", sum("a", i + 1_000))));
    let query = format!("SELECT 1 FROM t WHERE {either}");
    let change = format!("DELETE FROM t WHERE {either}");
    let trigger = format!("CREATE TRIGGER r AFTER UPDATE ON t BEGIN {change}; END");
    let cases = [
        ("conditions", indexed.into(), query.clone()),
        ("conditions and indexes", format!("CREATE TABLE t(a, b, c); {many}"), query.clone()),
        ("conditions of a view", format!("{indexed}; CREATE VIEW v AS {query}"), {
            "SELECT count(*) FROM v, v AS w".into()
        }),
        ("conditions of a trigger", format!("{indexed}; {trigger}"), "UPDATE t SET b = 1".into()),
        ("conditions at once", String::new(), format!("{indexed};\n{query}")),
        ("conditions of a change", indexed.into(), change),
        ("conditions of a table", indexed.into(), format!("CREATE TABLE u AS {query}")),
        (
            "sums and indexes on sums",
            format!("CREATE TABLE t(a); {sums}"),
            format!(
                "SELECT 1 FROM t WHERE {}",
                all(list(500, &|i| format!("{} = 0", sum("1", i))))
            ),
        ),
        (
            "a join of 60 tables with 2,500 indexes",
            format!("{wide}; {plain}"),
            format!("SELECT 1 FROM {tables} WHERE {}", all(joined)),
        ),
        (
            "groups and conditions of groups",
            indexed.into(),
            format!("SELECT 1 FROM t GROUP BY {groups} HAVING {having}"),
        ),
    ];
    let case = |(name, setup, sql): (&str, _, _)| {
        let name = format!("planned for long: {name}");
        Case { name, setup, sql, must: Must::HarmNobody }
    };
    cases.map(case).into()
}

/// Passes over a large value of which neither the text tells nor the authorizer is asked.
fn passing() -> Vec<Case> {
    let whens = |count: usize| list_of(count, |i| format!("{i} THEN 1")).replace(", ", " WHEN ");
    let cases = |count: usize| format!("CASE x WHEN {} END", whens(count));
    let checks = list_of(900, |i| format!("CHECK (x + 0 IS NOT {i})"));
    let text = "printf('%.*c', 900000, '1') || 'a'";
    let number = format!("CREATE TABLE w(x INTEGER); INSERT INTO w VALUES ({text})");
    let view = format!("{number}; CREATE VIEW v AS SELECT {} AS y FROM w", cases(2_500));
    let checked = format!("CREATE TABLE c(x, {checks})");
    let chain = (1..20).fold(String::new(), |chain, i| {
        format!(
            "{chain}; CREATE TABLE c{i}(x, {checks}); CREATE TRIGGER r{i} AFTER INSERT ON w
             BEGIN INSERT INTO c{i} VALUES (NEW.x); END"
        )
    });
    let updated = format!("UPDATE w SET x = {}", cases(8_000));
    let made = [
        ("cases", number.clone(), format!("SELECT {} FROM w", cases(8_000))),
        ("cases of a view", view, format!("SELECT {} FROM v", list_of(16, |_| "y".into()))),
        ("cases behind a change", number.clone(), format!("DELETE FROM victim; {updated}")),
        ("checks", checked, format!("INSERT INTO c SELECT {text}")),
        ("checks of triggers", format!("{number}{chain}"), format!("INSERT INTO w SELECT {text}")),
        ("paths into 60 KB", String::new(), extracting("")),
        (
            "paths into 60 KB behind a change",
            number,
            format!("DELETE FROM victim; {}", extracting("INSERT INTO w ")),
        ),
    ];
    let case = |(name, setup, sql)| {
        let name = format!("passes over a large value: {name}");
        Case { name, setup, sql, must: Must::HarmNobody }
    };
    made.map(case).into()
}

/// A query for 99 elements at the end of an array of 60 KB, 180 times, behind `before`.
fn extracting(before: &str) -> String {
    let call = format!("json_extract(j, {})", list_of(99, |_| "'$[#-9]'".into()));
    let calls = vec![format!("length({call})"); 180].join(" + ");
    let array = "jsonb('[' || replace(printf('%.*c', 30000, '1'), '1', '1,') || '1]')";
    format!(
        "{before}WITH m(j) AS MATERIALIZED (SELECT {array}) SELECT max({}) FROM m",
        balanced(&calls.split(" + ").map(String::from).collect::<Vec<_>>(), "+")
    )
}

/// Expressions that become deeper than they were written.
fn deep() -> Vec<Case> {
    let deeper = "+1".repeat(95);
    let chain = |count: usize, first: &str| {
        let mut sql = format!("WITH v0(x) AS ({first})");
        (1..=count)
            .for_each(|i| sql += &format!(", v{i}(x) AS (SELECT x{deeper} FROM v{})", i - 1));
        format!("{sql} SELECT x FROM v{count}")
    };
    let calls = |count: usize, call: &str| {
        let expression = format!("{}x{}", call.repeat(95), ")".repeat(95));
        let mut sql = String::from("WITH v0(x) AS (SELECT x FROM big)");
        (1..=count)
            .for_each(|i| sql += &format!(", v{i}(x) AS (SELECT {expression} FROM v{})", i - 1));
        format!("{sql} SELECT x FROM v{count}")
    };
    let columns = |count: usize, kind: &str| {
        let mut sql = String::from("CREATE TABLE g(c0");
        (1..=count).for_each(|i| sql += &format!(", c{i} AS (c{}{deeper}){kind}", i - 1));
        format!("{sql}); INSERT INTO g(c0) VALUES (1); SELECT c{count} FROM g")
    };
    let mut cases = Vec::new();
    for count in [40, 60, 75, 85] {
        for call in ["abs(", "max(0,"] {
            cases.push((format!("{count} expressions of calls of {call}…)"), calls(count, call)));
        }
    }
    for count in [8, 16, 32, 64, 128] {
        for (what, first) in [("a row", "SELECT 1"), ("a table", "SELECT x FROM big")] {
            cases.push((format!("{count} expressions over {what}"), chain(count, first)));
        }
        cases.push((format!("{count} virtual columns"), columns(count, "")));
        cases.push((format!("{count} stored columns"), columns(count, " STORED")));
    }
    let case = |(name, sql)| Case { name, setup: String::new(), sql, must: Must::HarmNobody };
    cases.into_iter().map(case).collect()
}
