//! Owns what a schema becomes in PostgreSQL.
//!
//! # Algorithm
//! 1. The type of a column is that of its table's rule (STRICT), or of the values that its rows
//!    hold; what they look like is not guessed.
//! 2. Tables are made with columns alone. All else is a [`Step`] for later, each of which may fail
//!    by itself, and is then lost.
//! 3. Expressions are translated, or lost with the reason.

use super::clauses::{self, Reference};
use super::kind::Kind;
use super::report::Report;
use super::rows::Found;
use super::schema::{self, Column, ForeignKey, Index, Schema, Table, View};
use super::target::{Target, TargetColumn};
use super::translate::{Meant, Names, Translated, literal, quoted, translate};
use anyhow::{Result, bail, ensure};
use monolite::{ReadTx, Row, Value};
use monolite_sqlite::{Token, TokenKind};
use std::collections::{HashMap, HashSet};

/// Something made when the rows are there.
pub(super) struct Step {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) sql: String,
    /// Another way, should the first fail, and what is otherwise then.
    pub(super) or_else: Option<(String, &'static str)>,
    pub(super) note: String,
}

/// What is to be done.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) targets: Vec<Target>,
    pub(super) steps: Vec<Step>,
    pub(super) report: Report,
}

/// What a table's columns hold, by the number of the table.
pub(super) type Holdings = HashMap<usize, Vec<Found>>;

/// Whether a table's rows say what its types are.
pub(super) fn is_asked(table: &Table) -> bool {
    let is_any = |column: &Column| column.declared.eq_ignore_ascii_case("ANY");
    !table.is_strict || table.columns.iter().any(is_any)
}

/// Makes the plan. `mixed` says that columns with values of several types become texts.
pub(super) fn plan(
    tx: &ReadTx<'_>,
    schema: &Schema,
    holdings: &Holdings,
    mixed: bool,
) -> Result<Plan> {
    check_names(schema)?;
    let mut plan = Plan::default();
    let kinds = kinds(schema, holdings, mixed)?;
    for (table, kinds) in schema.tables.iter().zip(&kinds) {
        plan.table(table, kinds);
    }
    for (table, kinds) in schema.tables.iter().zip(&kinds) {
        plan.defaults(tx, table, kinds);
        plan.primary(tx, table, kinds)?;
        for index in &table.indexes {
            plan.index(table, index, kinds);
        }
        plan.checks(table, kinds);
    }
    for table in &schema.tables {
        for key in &table.keys {
            plan.foreign_key(schema, table, key);
        }
    }
    plan.steps.extend(sequences(tx, schema)?);
    plan.views(schema, &kinds);
    for (name, table) in &schema.triggers {
        let note = "write it in PL/pgSQL, or do its work in the application";
        plan.report.lost("trigger", &format!("{name} on {table}"), note);
    }
    for (name, module) in &schema.virtual_tables {
        let note = match module.as_str() {
            "fts5" | "fts4" | "fts3" => "its texts and index; see tsvector and GIN in PostgreSQL",
            _ => "a virtual table has no counterpart",
        };
        plan.report.lost("virtual table", name, &format!("{module}: {note}"));
    }
    Ok(plan)
}

/// Has identities go on behind the highest numbers that tables have now.
pub(super) fn sequences(tx: &ReadTx<'_>, schema: &Schema) -> Result<Vec<Step>> {
    let mut plan = Plan::default();
    for table in &schema.tables {
        let (Some(rowid), name) = (table.rowid, quoted(&table.name)) else { continue };
        let id = &table.columns[rowid].name;
        let sql = format!("SELECT max({}) FROM {name}", quoted(id));
        let last: Option<i64> = tx.query_row(&sql, (), |row| row.get(0))?;
        if let Some(last) = last.max(table.sequence).filter(|last| *last >= 1) {
            let (name, column) = (literal(&name), literal(&column_name(id)));
            let sql = format!("SELECT setval(pg_get_serial_sequence({name}, {column}), {last})");
            plan.step("sequence", &table.name, sql, "");
        }
    }
    Ok(plan.steps)
}

/// The types of all columns, with what is to be said of them.
type Kinds = Vec<(Kind, String)>;

fn kinds(schema: &Schema, holdings: &Holdings, mixed: bool) -> Result<Vec<Kinds>> {
    let (mut all, mut problems): (Vec<Kinds>, _) = (Vec::new(), Vec::new());
    for (at, table) in schema.tables.iter().enumerate() {
        let mut kinds = Kinds::new();
        for (place, column) in table.columns.iter().enumerate() {
            let found = holdings.get(&at).map(|found| found[place]);
            let is_any = column.declared.eq_ignore_ascii_case("ANY");
            let kind = match found.filter(|_| !table.is_strict || is_any) {
                _ if table.rowid == Some(place) => Ok((Kind::Bigint, String::new())),
                Some(found) => by_values(column, found, mixed),
                None => Ok((affinity(&column.declared), String::new())),
            };
            kinds.push(kind.unwrap_or_else(|held| {
                problems.push(format!("{}.{} holds {held}", table.name, column.name));
                (Kind::Text, String::new())
            }));
        }
        all.push(kinds);
    }
    if !problems.is_empty() {
        bail!(
            "PostgreSQL has one type a column: {}; correct the rows, or carry such columns as \
             texts with --mixed text",
            problems.join("; ")
        );
    }
    adopt(schema, holdings, &mut all);
    Ok(all)
}

/// A foreign key without values takes the type of what it leads to.
fn adopt(schema: &Schema, holdings: &Holdings, all: &mut [Kinds]) {
    for (at, table) in schema.tables.iter().enumerate() {
        for key in &table.keys {
            let Some((parent, names)) = parents(schema, key) else { continue };
            for (from, to) in key.columns.iter().zip(names) {
                let place = |table: &Table, name: &str| {
                    table.columns.iter().position(|it| it.name.eq_ignore_ascii_case(name))
                };
                let (Some(from), Some(to)) =
                    (place(table, from), place(&schema.tables[parent], &to))
                else {
                    continue;
                };
                let is_empty = |found: &Vec<Found>| {
                    let Found { integer, real, text, blob, .. } = found[from];
                    !(integer || real || text || blob)
                };
                if holdings.get(&at).is_some_and(is_empty) {
                    all[at][from].0 = all[parent][to].0;
                }
            }
        }
    }
}

/// The type that a declared type stands for, by SQLite's rules of affinity.
fn affinity(declared: &str) -> Kind {
    let declared = declared.to_ascii_uppercase();
    let has = |part: &str| declared.contains(part);
    if has("INT") {
        Kind::Bigint
    } else if has("CHAR") || has("CLOB") || has("TEXT") || declared.is_empty() || declared == "ANY"
    {
        Kind::Text
    } else if has("BLOB") {
        Kind::Bytea
    } else if has("REAL") || has("FLOA") || has("DOUB") {
        Kind::Double
    } else {
        Kind::Numeric
    }
}

/// The type for what a column holds; otherwise its mixture.
fn by_values(column: &Column, found: Found, mixed: bool) -> Result<(Kind, String), String> {
    let Found { integer, real, text, blob, is_beyond_double } = found;
    let (declared, expected) = (&column.declared, affinity(&column.declared));
    let kind = match (integer, real, text, blob) {
        (false, false, false, false) => {
            let is_clear = expected != Kind::Numeric && !declared.is_empty() && declared != "ANY";
            let note =
                format!("declared {declared:?}, no row has a value: made {}", name(expected));
            return Ok((expected, if is_clear { String::new() } else { note }));
        }
        (true, false, false, false) => Kind::Bigint,
        (_, true, false, false) if !(integer && is_beyond_double) => Kind::Double,
        (false, false, true, false) => Kind::Text,
        (false, false, false, true) => Kind::Bytea,
        _ => {
            let held = [(integer, "integers"), (real, "reals"), (text, "texts"), (blob, "blobs")];
            let held: Vec<&str> =
                held.into_iter().filter_map(|(is_held, what)| is_held.then_some(what)).collect();
            let held = held.join(" and ");
            return match mixed {
                true => Ok((Kind::Text, format!("{held}, all made texts (--mixed text)"))),
                false => Err(held),
            };
        }
    };
    let note = match kind == expected {
        true => String::new(),
        false => format!("declared {declared:?}: made {}, as its rows are", name(kind)),
    };
    Ok((kind, note))
}

fn name(kind: Kind) -> &'static str {
    kind.sql().split(" COLLATE").next().unwrap_or_default()
}

/// Names that PostgreSQL gives to columns of its own.
const SYSTEM: [&str; 6] = ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"];

/// The longest name there, in bytes.
const LONGEST_NAME: usize = 63;

/// The most columns of a table there.
const MOST_COLUMNS: usize = 1_600;

fn column_name(name: &str) -> String {
    if SYSTEM.contains(&name) { format!("{name}_") } else { name.to_owned() }
}

/// The beginning of a name that PostgreSQL keeps.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Fails where PostgreSQL cannot have a table's name or its columns.
fn check_names(schema: &Schema) -> Result<()> {
    let twice = |names: &[String]| {
        let mut seen = HashSet::new();
        names.iter().map(|name| cut(name).to_owned()).find(|name| !seen.insert(name.clone()))
    };
    let mut problems = Vec::new();
    let views = schema.views.iter().map(|view| &view.name);
    let relations: Vec<String> =
        schema.tables.iter().map(|table| &table.name).chain(views).cloned().collect();
    problems.extend(twice(&relations).map(|name| format!("two tables or views become {name}")));
    let of_system = relations.iter().filter(|name| name.starts_with("pg_"));
    problems.extend(of_system.map(|name| format!("{name} begins as its catalogs do")));
    for Table { name, columns, .. } in &schema.tables {
        let names: Vec<String> = columns.iter().map(|column| column_name(&column.name)).collect();
        problems.extend(twice(&names).map(|it| format!("two columns of {name} become {it}")));
        let is_wide = columns.len() > MOST_COLUMNS;
        problems.extend(is_wide.then(|| format!("{name} has more than {MOST_COLUMNS} columns")));
    }
    ensure!(problems.is_empty(), "PostgreSQL cannot have this: {}", problems.join("; "));
    Ok(())
}

fn add_columns(names: &mut Names, table: &Table, kinds: &Kinds) {
    for (column, (kind, _)) in table.columns.iter().zip(kinds) {
        let collation = table.clauses.collations.get(&column.name.to_lowercase());
        let declared = column.declared.to_ascii_uppercase();
        let expected = affinity(&declared);
        let is_text = !matches!(expected, Kind::Bigint | Kind::Double | Kind::Numeric);
        let of = Meant {
            kind: *kind,
            collation: collation.filter(|it| *it != "BINARY" && *kind == Kind::Text).cloned(),
            is_text: *kind == Kind::Text && is_text,
            has_integers: *kind == Kind::Numeric || *kind == Kind::Double && expected != *kind,
        };
        names.column(&column.name, &column_name(&column.name), of);
    }
}

/// The names of a table's columns, in any case, and of its rowid.
fn names(table: &Table, kinds: &Kinds) -> Names {
    let mut names = Names::default();
    add_columns(&mut names, table, kinds);
    if let Some(rowid) = table.rowid {
        for name in ["rowid", "_rowid_", "oid"] {
            names.alias(name, &table.columns[rowid].name);
        }
    }
    names
}

/// The number of a key's parent, and its columns there.
fn parents(schema: &Schema, key: &ForeignKey) -> Option<(usize, Vec<String>)> {
    let is_it = |table: &Table| table.name.eq_ignore_ascii_case(&key.parent);
    let at = schema.tables.iter().position(is_it)?;
    let parent = &schema.tables[at];
    let primary = parent.primary.iter().map(|at| parent.columns[*at].name.clone());
    let named = || key.parents.iter().filter_map(|name| Some(parent.column(name)?.name.clone()));
    let names = if key.parents.is_empty() { primary.collect() } else { named().collect() };
    Some((at, names))
}

fn list<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    let names = names.into_iter().map(|name| quoted(&column_name(name)));
    names.collect::<Vec<_>>().join(", ")
}

impl Plan {
    /// Takes out the steps that are made when no row changes any more: foreign keys, which hold for
    /// new rows at once and are validated later, and what depends on the last rows.
    pub(super) fn hold_back(&mut self) -> Vec<Step> {
        let is_early = |step: &Step| !["foreign key", "sequence"].contains(&step.kind);
        let (early, late) = std::mem::take(&mut self.steps).into_iter().partition(is_early);
        self.steps = early;
        let keys = Vec::into_iter(late).filter_map(|Step { or_else, kind, name, note, .. }| {
            or_else.map(|(sql, _)| Step { kind, name, sql, or_else: None, note })
        });
        keys.collect()
    }

    fn step(&mut self, kind: &'static str, name: &str, sql: String, note: &str) {
        let (name, note) = (name.to_owned(), note.to_owned());
        self.steps.push(Step { kind, name, sql, or_else: None, note });
    }

    fn table(&mut self, table: &Table, kinds: &Kinds) {
        let mut columns = Vec::new();
        let mut selected = Vec::new();
        for (at, (column, (kind, note))) in table.columns.iter().zip(kinds).enumerate() {
            columns.push(self.column(table, at, kinds));
            let name = quoted(&column.name);
            selected.push(match kind {
                Kind::Text if note.contains("--mixed") => format!(
                    "CASE typeof({name}) WHEN 'blob' THEN '\\x' || hex({name}) \
                     ELSE CAST({name} AS TEXT) END"
                ),
                _ => name,
            });
        }
        let (key, behind): (Vec<_>, Vec<_>) = schema::row_key(table).into_iter().unzip();
        selected.extend(behind);
        let mut notes = Vec::new();
        if table.has_rowid && table.rowid.is_none() {
            notes.push("its hidden rowid is not carried");
        }
        if table.name.len() > LONGEST_NAME {
            notes.push("PostgreSQL cuts its name to 63 bytes");
        }
        self.report.noted("table", &table.name, &notes.join("; "));
        for way in &table.clauses.resolutions {
            let note = "say ON CONFLICT in the statements";
            self.report.lost("conflict clause", &format!("{} {way}", table.name), note);
        }
        let (name, list, primary) =
            (table.name.clone(), selected.join(", "), table.primary.clone());
        self.targets.push(Target { place: name.clone(), name, columns, list, key, primary });
    }

    fn column(&mut self, table: &Table, at: usize, kinds: &Kinds) -> TargetColumn {
        let (column, (kind, note)) = (&table.columns[at], &kinds[at]);
        let kind = *kind;
        let (of, lower) = (format!("{}.{}", table.name, column.name), column.name.to_lowercase());
        let collation = table.clauses.collations.get(&lower).map(String::as_str);
        if let Some(collation) = collation.filter(|it| *it != "BINARY" && kind == Kind::Text) {
            let note = match collation {
                "NOCASE" => "its indexes are on lower(); compare lower() in statements",
                "RTRIM" => "its indexes are on rtrim(); compare rtrim() in statements",
                _ => "it is one that a program added",
            };
            self.report.lost("collation", &format!("{of} {collation}"), note);
        }
        let name = column_name(&column.name);
        let mut notes = Vec::from_iter(Some(note.as_str()).filter(|note| !note.is_empty()));
        if name != column.name {
            notes.push("renamed: PostgreSQL has a column of its own with this name");
        }
        if name.len() > LONGEST_NAME {
            notes.push("PostgreSQL cuts its name to 63 bytes");
        }
        let mut generated = None;
        let translated;
        if let Some(text) = table.clauses.generated.get(&lower).filter(|_| column.is_generated) {
            let is_generated = |token: &Token<'_>| {
                let used = token.name().filter(|_| token.kind != TokenKind::Text);
                used.and_then(|used| table.column(&used)).is_some_and(|it| it.is_generated)
            };
            let made = match clauses::tokens(text).iter().any(is_generated) {
                true => Err("it uses a generated column".into()),
                false => translate(text, &names(table, kinds)),
            };
            match made.and_then(Translated::without_doubt) {
                Ok(made) => {
                    notes.extend(column.is_virtual.then_some("stored, not virtual"));
                    translated = made;
                    notes.extend(translated.notes.iter().map(String::as_str));
                    generated = Some(translated.sql.clone());
                }
                Err(why) => {
                    let note = format!("{why}; it is a plain column with its values");
                    self.report.lost("generated column", &of, &note);
                }
            }
        }
        let is_identity = table.rowid == Some(at);
        if is_identity {
            notes.push("an identity; a number given by a statement does not move its sequence");
            // When all tables are there, its sequence gets a name that none of them has.
            let sql = format!(
                "ALTER TABLE {} ALTER {} ADD GENERATED BY DEFAULT AS IDENTITY",
                quoted(&table.name),
                quoted(&name)
            );
            self.step("identity", &of, sql, "");
        }
        let constraints = if is_identity || column.is_not_null { " NOT NULL" } else { "" };
        TargetColumn { name, kind, constraints, generated, note: notes.join("; ") }
    }

    fn defaults(&mut self, tx: &ReadTx<'_>, table: &Table, kinds: &Kinds) {
        for (column, kind) in table.columns.iter().zip(kinds) {
            let Some(text) = column.default.as_deref() else { continue };
            let of = format!("{}.{} DEFAULT {text}", table.name, column.name);
            match default(tx, text, &column.declared, kind) {
                Ok((sql, note)) => {
                    let (table, name) = (quoted(&table.name), column_name(&column.name));
                    let sql =
                        format!("ALTER TABLE {table} ALTER {} SET DEFAULT {sql}", quoted(&name));
                    self.step("default", &of, sql, &note);
                }
                Err(why) => self.report.lost("default", &of, &why),
            }
        }
    }

    fn primary(&mut self, tx: &ReadTx<'_>, table: &Table, kinds: &Kinds) -> Result<()> {
        let columns: Vec<&String> =
            table.primary.iter().map(|at| &table.columns[*at].name).collect();
        if columns.is_empty() {
            return Ok(());
        }
        let (of, name) = (format!("{} PRIMARY KEY", table.name), quoted(&table.name));
        let listed = list(columns.iter().copied());
        if let Some(index) = &table.primary_index
            && index.parts.iter().any(|part| part.collation != "BINARY")
        {
            self.index(table, index, kinds);
            return Ok(());
        }
        let mut note = "";
        if table.has_rowid && table.rowid.is_none() {
            let nulls: Vec<String> =
                columns.iter().map(|name| format!("{} IS NULL", quoted(name))).collect();
            let sql = format!("SELECT 1 FROM {name} WHERE {} LIMIT 1", nulls.join(" OR "));
            if tx.query_optional(&sql, (), |_| Ok(()))?.is_some() {
                let sql = format!("ALTER TABLE {name} ADD UNIQUE ({listed})");
                self.step("primary key", &of, sql, "made UNIQUE: rows have NULL in it");
                return Ok(());
            }
            if table.primary.iter().any(|at| !table.columns[*at].is_not_null) {
                note = "its columns do not take NULL, as they do in SQLite";
            }
        }
        let sql = format!("ALTER TABLE {name} ADD PRIMARY KEY ({listed})");
        self.step("primary key", &of, sql, note);
        Ok(())
    }

    fn index(&mut self, table: &Table, index: &Index, kinds: &Kinds) {
        let name = match index.is_constraint {
            true => format!("UNIQUE {}", described(table, index)),
            false => index.name.clone(),
        };
        let of = format!("{} on {}", name, table.name);
        let is_plain = |part: &&schema::Part| part.of.is_ok() && part.collation == "BINARY";
        if index.is_constraint && index.parts.iter().all(|part| is_plain(&part)) {
            let columns = index.parts.iter().filter_map(|part| part.of.as_ref().ok());
            let columns = list(columns.map(|at| &table.columns[*at].name));
            let sql = format!("ALTER TABLE {} ADD UNIQUE ({columns})", quoted(&table.name));
            return self.step("unique", &of, sql, "");
        }
        match index_sql(table, index, kinds) {
            Ok((sql, note)) => self.step("index", &of, sql, &note),
            Err(why) => self.report.lost("index", &of, &why),
        }
    }

    fn checks(&mut self, table: &Table, kinds: &Kinds) {
        for (name, text) in &table.clauses.checks {
            let of = format!("{} CHECK ({text})", table.name);
            match translate(text, &names(table, kinds)) {
                Ok(translated) => {
                    let name = name
                        .as_ref()
                        .map_or_else(String::new, |it| format!("CONSTRAINT {} ", quoted(it)));
                    let table = quoted(&table.name);
                    let sql = format!("ALTER TABLE {table} ADD {name}CHECK ({})", translated.sql);
                    self.step("check", &of, sql, &translated.said());
                    self.or_not_valid();
                }
                Err(why) => self.report.lost("check", &of, &why),
            }
        }
    }

    /// Lets the last step hold for new rows alone, should rows violate it.
    fn or_not_valid(&mut self) {
        let step = self.steps.last_mut().expect("one was added");
        let note = "rows violate it: it is NOT VALID, and holds for new rows";
        step.or_else = Some((format!("{} NOT VALID", step.sql), note));
    }

    fn foreign_key(&mut self, schema: &Schema, table: &Table, key: &ForeignKey) {
        let of = format!("{}({}) to {}", table.name, key.columns.join(", "), key.parent);
        let Some((parent, parents)) = parents(schema, key) else {
            return self.report.lost("foreign key", &of, "the table that it leads to is not there");
        };
        let when = match key.reference {
            Reference::Immediate => "",
            Reference::Deferrable => " DEFERRABLE",
            Reference::Deferred => " DEFERRABLE INITIALLY DEFERRED",
        };
        let sql = format!(
            "ALTER TABLE {} ADD FOREIGN KEY ({}) REFERENCES {} ({}) \
             ON UPDATE {} ON DELETE {}{when}",
            quoted(&table.name),
            list(&key.columns),
            quoted(&schema.tables[parent].name),
            list(&parents),
            key.on_update,
            key.on_delete,
        );
        self.step("foreign key", &of, sql, "");
        self.or_not_valid();
    }

    fn views(&mut self, schema: &Schema, kinds: &[Kinds]) {
        let words: Vec<_> = schema.views.iter().map(|view| words(schema, &view.sql)).collect();
        let translated = |(view, words): (&View, &HashSet<String>)| {
            translate(&clauses::of_view(&view.sql), &view_names(schema, kinds, words))
        };
        let translated: Vec<_> = schema.views.iter().zip(&words).map(translated).collect();
        for ((view, made), words) in schema.views.iter().zip(&translated).zip(&words) {
            let made = made.as_ref().map_err(String::clone);
            match made.and_then(|it| Ok((it, view.columns.as_ref().map_err(String::clone)?))) {
                Ok((made, columns)) => {
                    let reads = schema.views.iter().zip(&translated).filter(|(other, made)| {
                        other.name != view.name
                            && words.contains(&other.name.to_lowercase())
                            && made.as_ref().is_ok_and(|made| !made.said().is_empty())
                    });
                    let reads = reads.map(|(it, _)| format!("reads {}, which differs", it.name));
                    let said = Some(made.said()).filter(|said| !said.is_empty());
                    let note = said.into_iter().chain(reads).collect::<Vec<_>>().join("; ");
                    let (name, columns) = (quoted(&view.name), list(columns));
                    let sql = format!("CREATE VIEW {name} ({columns}) AS {}", made.sql);
                    self.step("view", &view.name, sql, &note);
                }
                Err(why) => self.report.lost("view", &view.name, &why),
            }
        }
    }
}

/// The words of a view's text, and of the views that it reads, in lower case.
fn words(schema: &Schema, sql: &str) -> HashSet<String> {
    let of = |sql| clauses::tokens(sql).into_iter().filter_map(|it| it.name());
    let mut words: HashSet<String> = of(sql).map(|word| word.to_lowercase()).collect();
    // Columns come through views, too. The last view that is made may be the first that is read.
    for view in schema.views.iter().cycle().take(schema.views.len() * 3) {
        if words.contains(&view.name.to_lowercase()) {
            words.extend(of(&view.sql).map(|word| word.to_lowercase()));
        }
    }
    words
}

/// The names of the tables and views that a view's words have, and of their columns.
fn view_names(schema: &Schema, kinds: &[Kinds], words: &HashSet<String>) -> Names {
    let is_used = |name: &str| words.contains(&name.to_lowercase());
    let mut names = Names::default();
    for (table, kinds) in schema.tables.iter().zip(kinds).filter(|(it, _)| is_used(&it.name)) {
        names.alias(&table.name, &table.name);
        add_columns(&mut names, table, kinds);
    }
    for view in schema.views.iter().filter(|view| is_used(&view.name)) {
        for name in view.columns.iter().flatten().chain([&view.name]) {
            names.alias(name, name);
        }
    }
    names
}

/// The columns of an index, to a user.
fn described(table: &Table, index: &Index) -> String {
    let part = |part: &schema::Part| match &part.of {
        Ok(at) => table.columns[*at].name.clone(),
        Err(text) => text.clone(),
    };
    format!("({})", index.parts.iter().map(part).collect::<Vec<_>>().join(", "))
}

fn index_sql(table: &Table, index: &Index, kinds: &Kinds) -> Result<(String, String), String> {
    let (mut parts, mut notes) = (Vec::new(), Vec::new());
    for part in &index.parts {
        let (inner, is_text) = match &part.of {
            Ok(at) => (quoted(&column_name(&table.columns[*at].name)), kinds[*at].0 == Kind::Text),
            Err(text) => {
                let translated = translate(text, &names(table, kinds))?;
                notes.extend(translated.notes);
                notes.extend(translated.doubts);
                (format!("({})", translated.sql), true)
            }
        };
        let function = match part.collation.to_ascii_uppercase().as_str() {
            "NOCASE" if is_text => "lower",
            "RTRIM" if is_text => "rtrim",
            "BINARY" | "NOCASE" | "RTRIM" => "",
            other => return Err(format!("the collation {other}, which a program added")),
        };
        let of = if function.is_empty() { inner } else { format!("{function}({inner})") };
        let note = "of the text without its case or blanks";
        notes.extend((!function.is_empty()).then(|| note.to_owned()));
        parts.push(format!("{of}{}", if part.is_descending { " DESC" } else { "" }));
    }
    let condition = match &index.condition {
        Some(text) => {
            let translated = translate(text, &names(table, kinds))?;
            notes.extend(translated.notes);
            notes.extend(translated.doubts);
            format!(" WHERE {}", translated.sql)
        }
        None => String::new(),
    };
    let unique = if index.is_unique { "UNIQUE " } else { "" };
    let name = if index.is_constraint { String::new() } else { quoted(&index.name) };
    let (table, parts) = (quoted(&table.name), parts.join(", "));
    notes.dedup();
    Ok((format!("CREATE {unique}INDEX {name} ON {table} ({parts}){condition}"), notes.join("; ")))
}

/// The DEFAULT of a column: the value that SQLite gives it, or an expression of the present.
fn default(
    tx: &ReadTx<'_>,
    text: &str,
    declared: &str,
    (kind, note): &(Kind, String),
) -> Result<(String, String), String> {
    let tokens = clauses::tokens(text);
    let is_literal = tokens.iter().all(|token| match token.kind {
        TokenKind::Word => ["null", "true", "false", "x"].iter().any(|word| token.is_word(word)),
        kind => kind != TokenKind::Quoted,
    });
    // A name is a text.
    let is_name = |token: &Token<'_>| match token.kind {
        TokenKind::Word => !token.text.to_ascii_lowercase().starts_with("current_"),
        kind => kind == TokenKind::Quoted,
    };
    let (mut source, mut present) = (text.to_owned(), None);
    match tokens.as_slice() {
        _ if is_literal => {}
        [token] if is_name(token) => source = literal(&token.name().unwrap_or_default()),
        _ => {
            let translated = translate(text, &Names::default())?;
            present = Some(translated).filter(|it| it.sql.contains("statement_timestamp()"));
        }
    }
    let sql = format!("SELECT v, CAST(v AS TEXT) FROM (SELECT {source}\n AS v)");
    let of = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1).unwrap_or_default()));
    let (value, as_text) = tx.query_row(&sql, (), of).map_err(|error| error.to_string())?;
    let (affinity, is_any) = (affinity(declared), declared.eq_ignore_ascii_case("ANY"));
    let makes_texts =
        note.contains("--mixed") || affinity == Kind::Text && !declared.is_empty() && !is_any;
    let makes_numbers = !matches!(affinity, Kind::Text | Kind::Bytea);
    let whole = |value: f64| value.fract() == 0.0 && value.abs() < 9e15;
    let sql = match (kind, &value) {
        (_, Value::Null) => "NULL".into(),
        (Kind::Bigint | Kind::Double | Kind::Numeric, Value::Integer(value)) => value.to_string(),
        (Kind::Bigint, Value::Real(value)) if makes_numbers && whole(*value) => {
            format!("{value:.0}")
        }
        // A column for numbers stores -0.0 as 0.
        (Kind::Double | Kind::Numeric, Value::Real(value)) if makes_numbers => {
            format!("'{:?}'", value + 0.0)
        }
        (Kind::Double | Kind::Numeric, Value::Real(value)) => format!("'{value:?}'"),
        (Kind::Bigint, Value::Text(text)) if makes_numbers && text.parse::<i64>().is_ok() => {
            text.clone()
        }
        (Kind::Double | Kind::Numeric, Value::Text(text))
            if makes_numbers && text.parse::<f64>().is_ok() =>
        {
            text.clone()
        }
        (Kind::Text, Value::Text(text)) if !text.contains('\0') => literal(text),
        (Kind::Text, Value::Integer(_) | Value::Real(_)) if makes_texts => literal(&as_text),
        (Kind::Bytea, Value::Blob(bytes)) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("'\\x{hex}'::bytea")
        }
        (kind, _) => return Err(format!("its value is no {}", name(*kind))),
    };
    let Some(present) = present else { return Ok((sql, String::new())) };
    // Neither takes a boolean, which would be another value.
    let typed = if matches!(value, Value::Text(_)) { "COLLATE \"C\"" } else { "| 0" };
    Ok((format!("CAST(({}) {typed} AS {})", present.sql, name(*kind)), present.said()))
}
