// @libsql/client over HTTP, unchanged, through the proxy (requirement X2).
import { test } from "node:test";
import assert from "node:assert/strict";
import { createClient } from "@libsql/client/http";
import { tenant } from "./setup.mjs";

async function client(config = {}) {
  const db = createClient({ url: await tenant(), ...config });
  await db.execute("create table notes (id integer primary key, body text, data blob, score real)");
  return db;
}

test("execute returns columns, rows, affected rows and the last row id", async () => {
  const db = await client();
  const put = await db.execute({ sql: "insert into notes (body, score) values (?, ?)", args: ["hello", 1.5] });
  assert.equal(put.rowsAffected, 1);
  assert.equal(put.lastInsertRowid, 1n);
  const got = await db.execute({ sql: "select id, body, score from notes where body = :body", args: { body: "hello" } });
  assert.deepEqual(got.columns, ["id", "body", "score"]);
  assert.equal(got.rows.length, 1);
  assert.equal(got.rows[0].body, "hello");
  assert.equal(got.rows[0].score, 1.5);
  db.close();
});

test("blobs go in and come out the same", async () => {
  const db = await client();
  for (const size of [0, 1, 2, 3, 256, 70000]) {
    const blob = Uint8Array.from({ length: size }, (_, i) => (i * 7) % 256);
    await db.execute({ sql: "insert or replace into notes (id, data) values (1, ?)", args: [blob] });
    const got = await db.execute("select data from notes where id = 1");
    assert.deepEqual(new Uint8Array(got.rows[0].data), blob);
  }
  db.close();
});

test("integers beyond 2^53 survive as bigints", async () => {
  const db = await client({ intMode: "bigint" });
  for (const n of [9223372036854775807n, -9223372036854775808n, 9007199254740993n, 0n]) {
    const got = await db.execute({ sql: "select ? as n", args: [n] });
    assert.equal(got.rows[0].n, n);
  }
  db.close();
});

test("null, booleans and text with quotes and emoji", async () => {
  const db = await client();
  const got = await db.execute({ sql: "select ?, ?, ?", args: [null, true, `it's "quoted" 🏠\u0000end`] });
  assert.equal(got.rows[0][0], null);
  assert.equal(got.rows[0][1], 1);
  assert.equal(got.rows[0][2], `it's "quoted" 🏠\u0000end`);
  db.close();
});

test("batch is all or nothing", async () => {
  const db = await client();
  await db.batch(["insert into notes (id) values (1)", { sql: "insert into notes (id) values (?)", args: [2] }], "write");
  await assert.rejects(db.batch(["insert into notes (id) values (3)", "insert into notes (id) values (1)"], "write"),
    (e) => e.code === "SQLITE_CONSTRAINT" || e.code === "SQLITE_CONSTRAINT_PRIMARYKEY");
  const got = await db.execute("select count(*) as n from notes");
  assert.equal(got.rows[0].n, 2);
  const read = await db.batch(["select 1 as one", "select 2 as two"], "read");
  assert.equal(read[1].rows[0].two, 2);
  db.close();
});

test("an interactive transaction commits, and another rolls back", async () => {
  const db = await client();
  const tx = await db.transaction("write");
  await tx.execute("insert into notes (id, body) values (1, 'in')");
  const seen = await tx.execute("select count(*) as n from notes");
  assert.equal(seen.rows[0].n, 1);
  await tx.batch(["insert into notes (id) values (2)", "insert into notes (id) values (3)"]);
  await tx.commit();
  const gone = await db.transaction("write");
  await gone.execute("delete from notes");
  await gone.rollback();
  const got = await db.execute("select count(*) as n from notes");
  assert.equal(got.rows[0].n, 3);
  const closed = await db.transaction("write");
  await closed.execute("delete from notes");
  closed.close();
  assert.equal((await db.execute("select count(*) as n from notes")).rows[0].n, 3);
  db.close();
});

test("a read transaction sees one snapshot and writes nothing", async () => {
  const db = await client();
  await db.execute("insert into notes (id) values (1)");
  const tx = await db.transaction("read");
  assert.equal((await tx.execute("select count(*) as n from notes")).rows[0].n, 1);
  await db.execute("insert into notes (id) values (2)");
  assert.equal((await tx.execute("select count(*) as n from notes")).rows[0].n, 1);
  await assert.rejects(tx.execute("insert into notes (id) values (3)"));
  tx.close();
  assert.equal((await db.execute("select count(*) as n from notes")).rows[0].n, 2);
  db.close();
});

test("executeMultiple runs a script", async () => {
  const db = await client();
  await db.executeMultiple(`
    insert into notes (id, body) values (1, 'a;b');
    insert into notes (id, body) values (2, 'c'); -- a comment; with a semicolon
    create index by_body on notes (body);
    create trigger t after insert on notes begin update notes set score = 9 where id = new.id; end;
    insert into notes (id) values (3);
  `);
  const got = await db.execute("select count(*) as n, max(score) as s from notes");
  assert.equal(got.rows[0].n, 3);
  assert.equal(got.rows[0].s, 9);
  db.close();
});

test("migrate turns foreign keys off and on", async () => {
  const db = await client();
  await db.migrate(["create table a (id integer primary key)", "create table b (a integer references a(id))", "insert into b values (42)"]);
  assert.equal((await db.execute("select a from b")).rows[0].a, 42);
  db.close();
});

test("errors carry SQLite's code and text", async () => {
  const db = await client();
  await assert.rejects(db.execute("select * from nowhere"), (e) => /no such table/.test(e.message));
  await assert.rejects(db.execute("not sql at all"), (e) => /syntax error/.test(e.message));
  await db.execute("insert into notes (id) values (1)");
  await assert.rejects(db.execute("insert into notes (id) values (1)"), (e) => /UNIQUE/.test(e.message) && /CONSTRAINT/.test(e.code));
  await assert.rejects(db.execute("attach database 'other.db' as o"), (e) => /ATTACH|not allowed|refused/i.test(e.message));
  db.close();
});

test("fifty clients at once on one tenant", async () => {
  const url = await tenant();
  const first = createClient({ url });
  await first.execute("create table counter (n integer)");
  await first.execute("insert into counter values (0)");
  await Promise.all(Array.from({ length: 50 }, async () => {
    const db = createClient({ url });
    for (let i = 0; i < 10; i++) await db.execute("update counter set n = n + 1");
    db.close();
  }));
  assert.equal((await first.execute("select n from counter")).rows[0].n, 500);
  first.close();
});
