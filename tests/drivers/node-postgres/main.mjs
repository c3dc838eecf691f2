// What a node-postgres application does, as checks against DATABASE_URL.
//
// Owns the tables named weir_node_*. Knows nothing of poolers, except that nothing here needs what transaction
// pooling loses. WEIR_DRIVERS_DIRECT=1 says that the other end is PostgreSQL itself (see ddlChangesResult).

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import copyStreams from "pg-copy-streams";
import Cursor from "pg-cursor";

const URL = process.env.DATABASE_URL;
const DIRECT = process.env.WEIR_DRIVERS_DIRECT === "1";
const CLIENTS = 24;
const SECONDS_MAX = 40;
const ROWS = 100_000;
const TOTAL = String((ROWS * (ROWS - 1)) / 2);

async function connect(options = {}) {
  const client = new pg.Client({ connectionString: URL, connectionTimeoutMillis: 20_000, ...options });
  await client.connect();
  return client;
}

async function withClient(work, options) {
  const client = await connect(options);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

async function one(client, text, values) {
  const { rows } = await client.query({ text, values, rowMode: "array" });
  return rows[0][0];
}

function withinLimit(work) {
  const limit = new AbortController();
  const late = sleep(SECONDS_MAX * 1000, undefined, { signal: limit.signal, ref: true }).then(() => {
    throw new Error(`did not end within ${SECONDS_MAX} s`);
  });
  late.catch(() => {}); // aborted when the work ends first
  return Promise.race([work, late]).finally(() => limit.abort());
}

const fails = (promise, code) => assert.rejects(promise, { code });
const usable = async (client) => assert.equal(await one(client, "select $1::int + 1", [41]), 42);
const range = (length) => Array.from({ length }, (_, number) => number);

const checks = {
  async simpleQuery(client) {
    const { rows } = await client.query("select 1 as a, 'two' as b, null as c");
    assert.deepEqual(rows, [{ a: 1, b: "two", c: null }]);
  },

  async parameterTypes(client) {
    const values = [
      ["int", -7], ["bigint", "4611686018427387904"], ["text", "grüße \u{1f418}"], ["bytea", Buffer.from(range(256))],
      ["numeric", "12345678901234567890.123456789"], ["timestamptz", new Date("2024-02-29T12:34:56.789Z")],
      ["int[]", [1, null, 3]], ["text[]", ["a,b", 'c"d', ""]], ["json", { a: [1, null, { b: "ü" }] }],
      ["text", null], ["bool", true], ["float8", 0.1],
    ];
    for (const [type, value] of values) assert.deepEqual(await one(client, `select $1::${type}`, [value]), value);
    const text = "select " + values.map(([type], index) => `$${index + 1}::${type}`).join(", ");
    const { rows } = await client.query({ text, values: values.map(([, value]) => value), rowMode: "array" });
    assert.deepEqual(rows[0], values.map(([, value]) => value));
  },

  async transactionCommitAndRollback(client) {
    await client.query("create table weir_node_t (id int primary key, v text)");
    await client.query("begin");
    await client.query("insert into weir_node_t values ($1, 'kept')", [1]);
    await client.query("commit");
    await client.query("begin");
    await client.query("insert into weir_node_t values (2, 'gone')");
    await client.query("rollback");
    assert.deepEqual((await client.query("select id from weir_node_t")).rows, [{ id: 1 }]);
  },

  async savepoints(client) {
    await client.query("begin");
    await client.query("insert into weir_node_t values (10, 'outer')");
    await client.query("savepoint inner_part");
    await fails(client.query("insert into weir_node_t values ($1, 'twice')", [10]), "23505");
    await client.query("rollback to savepoint inner_part");
    await client.query("insert into weir_node_t values (11, 'inner')");
    await client.query("release savepoint inner_part");
    await client.query("commit");
    const { rows } = await client.query("select id from weir_node_t where id >= 10 order by 1");
    assert.deepEqual(rows, [{ id: 10 }, { id: 11 }]);
  },

  async preparedAcrossTransactions(client) {
    for (const number of range(30)) {
      await client.query("begin");
      const double = await client.query({ name: "weir double", text: "select $1::int * 2 as n", values: [number] });
      await client.query("commit");
      const name = await client.query({ name: "weir name", text: "select 'n' || $1::text as n", values: [number] });
      assert.deepEqual([double.rows[0].n, name.rows[0].n], [number * 2, `n${number}`]);
    }
  },

  async preparedManyClients() {
    // The same name everywhere, each with a text of its own.
    const work = (number) => withClient(async (own) => {
      const statement = { name: "same", text: `select $1::int + ${number * 1000} as n` };
      for (const turn of range(40)) {
        assert.equal((await own.query({ ...statement, values: [turn] })).rows[0].n, number * 1000 + turn);
        await own.query("begin");
        assert.equal(await one(own, "select $1::int", [number]), number);
        await own.query("commit");
      }
    });
    await Promise.all(range(CLIENTS).map(work));
  },

  async pool() {
    const pool = new pg.Pool({ connectionString: URL, max: CLIENTS });
    const work = async (number) => (await pool.query("select $1::int as n", [number])).rows[0].n;
    assert.deepEqual(await Promise.all(range(500).map(work)), range(500));
    await pool.end();
  },

  async describe(client) {
    // node-postgres describes the portal each time, so the fields come even without rows.
    const { fields } = await client.query("select $1::int8 as a, 'x'::text as b where false", [1]);
    assert.deepEqual(fields.map((field) => [field.name, field.dataTypeID]), [["a", 20], ["b", 25]]);
  },

  // PostgreSQL goes on failing a prepared statement whose result type has changed; a pooler has to prepare it again.
  async ddlChangesResult(client) {
    await client.query("create table weir_node_ddl (a int)");
    await client.query("insert into weir_node_ddl values (1)");
    const statement = { name: "all of it", text: "select * from weir_node_ddl where a >= $1", values: [0] };
    const clients = await Promise.all(range(4).map(() => connect()));
    for (const own of clients) {
      await own.query("begin"); // all open at once: behind a pooler on four servers
      assert.deepEqual((await own.query(statement)).rows, [{ a: 1 }]);
    }
    for (const own of clients) await own.query("commit");
    await client.query("alter table weir_node_ddl add column b text default 'new'");
    for (const own of clients) {
      let failures = 0;
      for (const turn of range(6)) {
        const name = DIRECT && failures > 0 ? "prepared anew" : statement.name;
        const result = await own.query({ ...statement, name }).catch((error) => error);
        if (result.code === "0A000") failures += 1;
        else assert.deepEqual(result.rows, [{ a: 1, b: "new" }], `in turn ${turn}: ${result.message}`);
      }
      assert.ok(failures <= 1, `the statement failed ${failures} times`);
      await own.end();
    }
  },

  async copyInAndOut(client) {
    await client.query("create table weir_node_copy (id int, v text)");
    const lines = Readable.from(range(ROWS).map((number) => `${number}\trow ${number}\n`));
    const input = client.query(copyStreams.from("copy weir_node_copy from stdin"));
    await pipeline(lines, input);
    assert.equal(input.rowCount, ROWS);
    assert.equal(await one(client, "select sum(id) from weir_node_copy"), TOTAL);
    const chunks = [];
    const collect = new Writable({ write: (chunk, _encoding, done) => (chunks.push(chunk), done()) });
    await pipeline(client.query(copyStreams.to("copy weir_node_copy to stdout")), collect);
    const rows = Buffer.concat(chunks).toString().trimEnd().split("\n");
    assert.equal(String(rows.reduce((sum, row) => sum + Number.parseInt(row, 10), 0)), TOTAL);
  },

  async copyFailing(client) {
    const stopsHalfway = Readable.from((function* () {
      yield* range(20_000).map((number) => `${number}\tx\n`);
      throw new Error("the application changed its mind");
    })());
    await assert.rejects(pipeline(stopsHalfway, client.query(copyStreams.from("copy weir_node_copy from stdin"))));
    await usable(client);
    const badData = Readable.from(range(50_000).map((number) => `${number === 2000 ? "bad" : number}\tx\n`));
    await fails(pipeline(badData, client.query(copyStreams.from("copy weir_node_copy from stdin"))), "22P02");
    await usable(client);
    assert.equal(await one(client, "select count(*)::int from weir_node_copy"), ROWS);
  },

  async largeValues(client) {
    for (const size of [1 << 20, 20 << 20]) {
      const data = randomBytes(size);
      assert.ok(data.equals(await one(client, "select $1::bytea", [data])));
      const text = "ü".repeat(size / 2);
      assert.ok(text === (await one(client, "select $1::text", [text])));
    }
  },

  async cancel(client) {
    const query = new pg.Query("select pg_sleep(20)");
    const ended = new Promise((resolve, reject) => query.on("error", reject).on("end", resolve));
    const began = Date.now();
    client.query(query);
    await sleep(500);
    new pg.Client(URL).cancel(client, query);
    await fails(ended, "57014");
    assert.ok(Date.now() - began < 10_000, "the cancel took too long");
    await usable(client);
  },

  async errorsAndRecovery(client) {
    await fails(client.query("select 1/0"), "22012");
    await fails(client.query("select * from weir_node_nowhere where a = $1", [1]), "42P01");
    await fails(client.query({ name: "wrong", text: "selekt $1", values: [1] }), "42601");
    await usable(client);
    await client.query("begin");
    await fails(client.query("select 1/$1::int", [0]), "22012");
    await fails(client.query("select $1::int", [1]), "25P02");
    await client.query("rollback");
    await usable(client);
  },

  async queuedQueries(client) {
    const work = (number) => client.query({ name: "queued", text: "select $1::int as n", values: [number] });
    const results = await Promise.all(range(300).map(work));
    assert.deepEqual(results.map((result) => result.rows[0].n), range(300));
  },

  async queuedQueriesWithError(client) {
    const work = (number) => client.query("select 10 / $1::int as n", [number === 50 ? 0 : 1]);
    const results = await Promise.allSettled(range(100).map(work));
    assert.deepEqual(results.flatMap(({ status }, index) => (status === "rejected" ? [index] : [])), [50]);
    assert.equal(results[50].reason.code, "22012");
  },

  async cursorWithFetchSize(client) {
    await client.query("begin");
    const cursor = client.query(new Cursor("select generate_series(1, $1::int) as n", [1050]));
    const numbers = [];
    for (let rows = await cursor.read(100); rows.length > 0; rows = await cursor.read(100)) {
      numbers.push(...rows.map((row) => row.n));
    }
    assert.deepEqual(numbers, range(1050).map((number) => number + 1));
    const left = client.query(new Cursor("select generate_series(1, 1000) as n"));
    assert.equal((await left.read(10)).length, 10);
    await left.close();
    await client.query("commit");
    await usable(client);
  },

  async manyStatementsAndEmptyQuery(client) {
    const results = await client.query("select 1 as n; create table weir_node_many (a int); insert into weir_node_many values (7); select a from weir_node_many");
    assert.deepEqual(results.map((result) => result.command), ["SELECT", "CREATE", "INSERT", "SELECT"]);
    assert.deepEqual(results[3].rows, [{ a: 7 }]);
    for (const text of ["", ";", "-- nothing"]) assert.deepEqual((await client.query(text)).rows, []);
    assert.deepEqual((await client.query({ name: "empty", text: "" })).rows, []);
    await fails(client.query("insert into weir_node_many values (8); select 1/0"), "22012");
    assert.equal(await one(client, "select count(*)::int from weir_node_many"), 1);
  },

  async notices(client) {
    const seen = [];
    client.on("notice", (notice) => seen.push([notice.severity, notice.message]));
    await client.query("do $$ begin raise notice 'first'; raise warning 'second'; end $$");
    assert.deepEqual(seen, [["NOTICE", "first"], ["WARNING", "second"]]);
  },

  async startupParameters() {
    const options = "-c statement_timeout=54321 -c search_path=weir_node_schema,public";
    await withClient((own) => withClient(async (other) => {
      for (const _ of range(5)) {
        assert.equal(await one(own, "show application_name"), "weir_node");
        assert.equal(await one(own, "show statement_timeout"), "54321ms");
        assert.equal((await one(own, "show search_path")).replaceAll(" ", ""), "weir_node_schema,public");
        assert.notEqual(await one(other, "show statement_timeout"), "54321ms");
      }
    }), { application_name: "weir_node", options });
  },

  async closeInTransaction(client) {
    const began = Date.now();
    for (const number of range(8)) {
      const own = await connect();
      own.on("error", () => {}); // of the connections that are cut without Terminate
      await own.query("begin");
      await own.query("insert into weir_node_t values ($1, 'never')", [500 + number]);
      if (number % 2) own.connection.stream.destroy();
      else await own.end();
    }
    await withClient(async (fresh) => {
      await fresh.query("begin");
      await fresh.query("lock table weir_node_t in access exclusive mode");
      assert.equal(await one(fresh, "select count(*)::int from weir_node_t where id >= 500"), 0);
      await fresh.query("commit");
    });
    assert.ok(Date.now() - began < 10_000, "the locks of closed clients were held too long");
    await usable(client);
  },
};

const clean = () => withClient((client) =>
  client.query("drop table if exists weir_node_t, weir_node_ddl, weir_node_copy, weir_node_many"));

async function main() {
  await clean();
  for (const [name, work] of Object.entries(checks)) {
    try {
      await withinLimit(withClient(work));
      console.log(`ok ${name}`);
    } catch (error) {
      process.exitCode = 1;
      console.log(`FAILED ${name}: ${String(error.message).replaceAll(/\s+/g, " ")}`);
      console.error(error);
    }
  }
  await withinLimit(clean());
}

await main();
process.exit(); // a check that failed may have left connections open
