// @tursodatabase/serverless: Hrana 3 with cursors and long-lived batons,
// through the proxy (requirement X2).
import { test } from "node:test";
import assert from "node:assert/strict";
import { connect } from "@tursodatabase/serverless";
import { tenant } from "./setup.mjs";

test("prepare, run, all and get", async () => {
  const db = connect({ url: await tenant() });
  await db.exec("create table notes (id integer primary key, body text)");
  const insert = await db.prepare("insert into notes (body) values (?)");
  for (const body of ["one", "two", "three"]) await insert.run([body]);
  const all = await (await db.prepare("select id, body from notes order by id")).all();
  assert.deepEqual(all.map((r) => r.body), ["one", "two", "three"]);
  const one = await (await db.prepare("select body from notes where id = ?")).get([2]);
  assert.equal(one.body, "two");
  await db.close();
});

test("ten thousand rows stream through a cursor", async () => {
  const db = connect({ url: await tenant() });
  await db.exec("create table big (id integer primary key, body text)");
  await db.exec("with recursive c(n) as (select 1 union all select n+1 from c where n < 10000) insert into big select n, 'row ' || n from c");
  let rows = 0;
  const statement = await db.prepare("select id, body from big");
  for await (const row of statement.iterate()) {
    rows++;
    assert.equal(row.body, `row ${row.id}`);
  }
  assert.equal(rows, 10000);
  await db.close();
});

test("a transaction holds over several requests and rolls back on an error", async () => {
  const db = connect({ url: await tenant() });
  await db.exec("create table notes (id integer primary key)");
  await db.exec("begin immediate");
  await db.exec("insert into notes values (1)");
  await db.exec("commit");
  await db.exec("begin immediate");
  await db.exec("insert into notes values (2)");
  await assert.rejects(db.exec("insert into notes values (1)"));
  await db.exec("rollback");
  const row = await (await db.prepare("select count(*) as n from notes")).get();
  assert.equal(row.n, 1);
  await db.close();
});

test("batch", async () => {
  const db = connect({ url: await tenant() });
  await db.exec("create table notes (id integer primary key)");
  await db.batch(["insert into notes values (1)", "insert into notes values (2)"]);
  const row = await (await db.prepare("select count(*) as n from notes")).get();
  assert.equal(row.n, 2);
  await db.close();
});
