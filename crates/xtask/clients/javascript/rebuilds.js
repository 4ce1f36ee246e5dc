// Changes a column of a parent by the SQL that tools generate, which rebuilds the table, in every way
// in which @libsql/client can send it. Afterwards the nine children are there, or it was refused.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { isDeepStrictEqual } from "node:util";
import { createClient } from "@libsql/client";
import { PrismaLibSql } from "@prisma/adapter-libsql";
import { bindMigrationAwareSqlAdapterFactory } from "@prisma/driver-adapter-utils";
import * as prismaEngine from "@prisma/schema-engine-wasm/schema_engine_bg";
import { drizzle } from "drizzle-orm/libsql";
import { migrate } from "drizzle-orm/libsql/migrator";

const url = process.argv[2] ?? "http://127.0.0.1:8080";

/** The two migrations that drizzle-kit writes: the tables, and the rebuild. */
function drizzleKit() {
  rmSync("drizzle", { recursive: true, force: true });
  for (const name of ["text()", "text().notNull().default('x')"]) {
    writeFileSync("drizzle.schema.mjs", `
      import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
      export const parent = sqliteTable("parent", { id: integer().primaryKey(), name: ${name} },
        (t) => [index("parent_name").on(t.name)]);
      export const child = sqliteTable("child", { id: integer().primaryKey(),
        parent: integer().notNull().references(() => parent.id, { onDelete: "cascade" }) });`);
    execFileSync("npx", ["drizzle-kit", "generate", "--dialect", "sqlite", "--schema", "drizzle.schema.mjs",
      "--out", "drizzle", "--name", name.length > 6 ? "rebuild" : "tables"]);
  }
  const read = (file) => readFileSync(`drizzle/${file}.sql`, "utf8").replaceAll("--> statement-breakpoint", "");
  return { tables: read("0000_tables"), rebuild: read("0001_rebuild") };
}

/** What `prisma migrate diff --script` prints, and what `migrate deploy` does, by Prisma's engine. */
async function prisma() {
  const { resolve } = createRequire(import.meta.url);
  const path = resolve("@prisma/schema-engine-wasm").replace(/\.js$/, "_bg.wasm");
  const module = new WebAssembly.Module(readFileSync(path));
  const { exports } = new WebAssembly.Instance(module, { "./schema_engine_bg.js": prismaEngine });
  prismaEngine.__wbg_set_wasm(exports);
  exports.__wbindgen_start();
  const adapter = bindMigrationAwareSqlAdapterFactory(new PrismaLibSql({ url: url.replace(/^ws/, "http") }));
  const engine = await prismaEngine.SchemaEngine.new({}, () => {}, adapter);
  const schema = (name) => ({ tag: "schemaDatamodel", files: [{ path: "schema.prisma", content: `
    datasource db {
      provider = "sqlite"
    }
    model parent {
      id       Int     @id
      name     ${name}
      children child[]
      @@index([name])
    }
    model child {
      id       Int    @id
      parent   Int
      of       parent @relation(fields: [parent], references: [id], onDelete: Cascade)
    }` }] });
  const filters = { externalTables: [], externalEnums: [] };
  const diff = async (from, to) => (await engine.diff({ from, to, script: true, exitCode: null, filters })).stdout;
  const optional = schema("String?");
  const files = { tables: await diff({ tag: "empty" }, optional), rebuild: await diff(optional, schema("String")) };
  const directory = (path) =>
    ({ path, migrationFile: { path: "migration.sql", content: { tag: "ok", value: files[path.slice(2)] } } });
  const lockfile = { path: "migration_lock.toml", content: 'provider = "sqlite"' };
  const deploy = (...paths) => engine.applyMigrations({ filters, migrationsList: {
    baseDir: "/", lockfile, shadowDbInitScript: "", migrationDirectories: paths.map(directory) } });
  return { ...files, deploy };
}

// No package of these two is in the registries that the gate uses: what ActiveRecord 6.1 logged for
// `change_column :parent, :name, :text, null: false`, and what EF Core's documentation shows.
const TABLES = `CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT);
  CREATE TABLE child(id INTEGER PRIMARY KEY, parent INTEGER NOT NULL REFERENCES parent ON DELETE CASCADE);
  CREATE INDEX parent_name ON parent(name);`;
const RAILS = readFileSync("rails.sql", "utf8");
const EF_CORE = readFileSync("efcore.sql", "utf8");

const statements = (sql) => sql.replaceAll(/^--.*$/gm, "").split(";").map((it) => it.trim()).filter(Boolean);

/** Each way sends a script; `ignored` goes on behind an error, as some programs do. */
const ways = {
  executeMultiple: (db, sql) => db.executeMultiple(sql),
  migrate: (db, sql) => db.migrate(statements(sql)),
  batch: (db, sql) => db.batch(statements(sql), "write"),
  "each alone": async (db, sql) => {
    for (const it of statements(sql)) await db.execute(it);
  },
  "each alone, ignored": async (db, sql) => {
    for (const it of statements(sql)) await db.execute(it).catch((error) => refusals.push(error));
  },
  transaction: (db, sql) => within(db, sql, (error) => { throw error; }),
  "transaction, ignored": (db, sql) => within(db, sql, (error) => refusals.push(error)),
};

let refusals;

async function within(db, sql, failed) {
  const tx = await db.transaction("write");
  try {
    for (const it of statements(sql)) await tx.execute(it).catch(failed);
    await tx.commit();
  } finally {
    tx.close();
  }
}

async function check(tool, how, db, tables, work) {
  const old = await db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name = 'parent'");
  for (const { name } of old.rows) {
    if (!/^sqlite_/.test(name)) await db.execute(`DROP TABLE "${name}"`);
  }
  if (tables) await db.executeMultiple(tables);
  refusals = [];
  await work().catch((error) => refusals.push(error));
  const { rows: [left] } = await db.execute(`SELECT (SELECT count(*) FROM child) AS children,
    (SELECT count(*) FROM parent) AS parents, (SELECT count(*) FROM gone) AS gone,
    (SELECT count(*) FROM pragma_foreign_key_check) AS dangling`);
  const said = refusals.map((error) => error.message.replaceAll(/\s+/g, " ")).join(" / ");
  console.log([tool, how, url.split(":")[0], `${left.children} of 9`, said.slice(0, 100)].join(" | "));
  lost += !isDeepStrictEqual({ ...left }, { children: 9, parents: 3, gone: 0, dangling: 0 });
}

const ROWS = `INSERT INTO parent(id, name) VALUES (1, 'a'), (2, 'b'), (3, 'c');
  INSERT INTO child(id, parent) VALUES (1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (7, 3), (8, 3), (9, 3);
  CREATE TABLE gone(id);
  CREATE TRIGGER child_gone AFTER DELETE ON child BEGIN INSERT INTO gone VALUES (old.id); END;`;

let lost = 0;
const db = createClient({ url });
const tools = {
  "drizzle-kit": drizzleKit(),
  Prisma: await prisma(),
  Rails: { tables: TABLES, rebuild: RAILS },
  "EF Core": { tables: TABLES, rebuild: EF_CORE },
};
// The first, as it wants an empty database.
await check("Prisma", "migrate deploy", db, "", async () => {
  await tools.Prisma.deploy("1_tables");
  await db.executeMultiple(ROWS);
  await tools.Prisma.deploy("1_tables", "2_rebuild");
});
for (const [tool, { tables, rebuild }] of Object.entries(tools)) {
  for (const [how, send] of Object.entries(ways)) {
    await check(tool, how, db, `${tables};${ROWS}`, () => send(db, rebuild));
  }
}
await check("drizzle-kit", "drizzle's migrate()", db, "", async () => {
  const journal = JSON.parse(readFileSync("drizzle/meta/_journal.json", "utf8"));
  const only = (count) => writeFileSync("drizzle/meta/_journal.json",
    JSON.stringify({ ...journal, entries: journal.entries.slice(0, count) }));
  only(1);
  await migrate(drizzle({ client: db }), { migrationsFolder: "drizzle" });
  await db.executeMultiple(ROWS);
  only(2);
  await migrate(drizzle({ client: db }), { migrationsFolder: "drizzle" });
});
db.close();
assert.equal(lost, 0, "children were lost");
