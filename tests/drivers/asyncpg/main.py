"""What an asyncpg application does, as checks against DATABASE_URL.

Owns the tables named weir_asyncpg_*. Knows nothing of poolers, except that nothing here needs what transaction
pooling loses.
"""

import asyncio
import datetime
import decimal
import io
import json
import os
import sys
import time
import traceback

import asyncpg

URL = os.environ["DATABASE_URL"]
CHECK_SECONDS_MAX = 40
CLIENTS = 24
ROWS = 100_000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def connect(**options):
    return asyncpg.connect(URL, timeout=20, **options)


def expect(got, wanted):
    if got != wanted:
        raise AssertionError(f"expected {str(wanted)[:200]!r}, got {str(got)[:200]!r}")


async def expect_error(kind, awaitable):
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got no error")


async def usable(conn):
    expect(await conn.fetchval("select $1::int + 1", 41), 42)


@check
async def simple_query(conn):
    expect(await conn.execute("select 1"), "SELECT 1")
    expect(tuple(await conn.fetchrow("select 1, 'two', null")), (1, "two", None))


@check
async def parameter_types(conn):
    when = datetime.datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=datetime.timezone.utc)
    values = [
        ("int", -7), ("bigint", 2**62), ("text", "grüße \U0001f418"), ("bytea", bytes(range(256))),
        ("numeric", decimal.Decimal("12345678901234567890.123456789")), ("timestamptz", when),
        ("int[]", [1, None, 3]), ("text[]", ["a,b", 'c"d', ""]), ("text", None), ("bool", True), ("float8", 0.1),
    ]
    for kind, value in values:
        expect(await conn.fetchval(f"select $1::{kind}", value), value)
    document = {"a": [1, None, {"b": "ü"}]}
    expect(json.loads(await conn.fetchval("select $1::jsonb", json.dumps(document))), document)


@check
async def composite_type_by_introspection(conn):
    # asyncpg asks the catalogue about the type between Parse and Bind of the statement that needs it.
    await conn.execute("create type weir_asyncpg_pair as (a int, b text)")
    for _ in range(3):
        expect(tuple(await conn.fetchval("select $1::weir_asyncpg_pair", (1, "x"))), (1, "x"))


@check
async def transaction_commit_and_rollback(conn):
    await conn.execute("create table weir_asyncpg_t (id int primary key, v text)")
    async with conn.transaction():
        await conn.execute("insert into weir_asyncpg_t values ($1, 'kept')", 1)
    transaction = conn.transaction(isolation="serializable")
    await transaction.start()
    await conn.execute("insert into weir_asyncpg_t values (2, 'gone')")
    await transaction.rollback()
    expect([row["id"] for row in await conn.fetch("select id from weir_asyncpg_t")], [1])


@check
async def savepoints(conn):
    async def insert(number):
        async with conn.transaction():
            await conn.execute("insert into weir_asyncpg_t values ($1, 'inner')", number)

    async with conn.transaction():
        await insert(10)
        await expect_error(asyncpg.UniqueViolationError, insert(10))
        await insert(11)
    rows = await conn.fetch("select id from weir_asyncpg_t where id >= 10 order by 1")
    expect([row["id"] for row in rows], [10, 11])


@check
async def prepared_across_transactions(conn):
    double = await conn.prepare("select $1::int * 2")
    name = await conn.prepare("select 'n' || $1::text")
    for number in range(30):
        async with conn.transaction():
            expect(await double.fetchval(number), number * 2)
        expect(await name.fetchval(str(number)), f"n{number}")


@check
async def prepared_behind_a_set(conn):
    # Without a Sync, and behind it a simple query.
    for sets in ["set local search_path = public", "select set_config('app.tenant', 'a', true)", "do $$begin perform 1; end$$"]:
        async with conn.transaction():
            await conn.execute(sets)
            number = await conn.prepare("select $1::int + 1")
            await conn.execute("select 1")
            expect(await number.fetchval(1), 2)
            await conn.prepare("select $1::text")


@check
async def prepared_many_clients(_conn):
    async def client(number):
        own = await connect()
        try:
            # The same name everywhere, each with a text of its own.
            statement = await own.prepare(f"select $1::int + {number * 1000}", name="weir_asyncpg_same")
            for turn in range(40):
                expect(await statement.fetchval(turn), number * 1000 + turn)
                async with own.transaction():
                    expect(await own.fetchval("select $1::int", number), number)
        finally:
            await own.close()

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


@check
async def unnamed_statement_in_separate_round_trips(_conn):
    # Without its cache asyncpg sends Parse, Describe, Flush; and Bind, Execute, Sync when the answer has come.
    async def client(number):
        own = await connect(statement_cache_size=0)
        for turn in range(20):
            row = await own.fetchrow(f"select $1::int + {number}, $2::text", turn, str(number))
            expect(tuple(row), (turn + number, str(number)))
        await own.close()

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


@check
async def describe(conn):
    statement = await conn.prepare("select $1::int8 as a, 'x'::text as b")
    expect([kind.name for kind in statement.get_parameters()], ["int8"])
    expect([(one.name, one.type.name) for one in statement.get_attributes()], [("a", "int8"), ("b", "text")])


@check
async def ddl_changes_result(conn):
    await conn.execute("create table weir_asyncpg_ddl (a int)")
    await conn.execute("insert into weir_asyncpg_ddl values (1)")
    query = "select * from weir_asyncpg_ddl where a >= $1"
    clients = [await connect() for _ in range(4)]
    transactions = [own.transaction() for own in clients]
    for own, transaction in zip(clients, transactions):  # all open at once: behind a pooler on four servers
        await transaction.start()
        expect(tuple(await own.fetchrow(query, 0)), (1,))
    for transaction in transactions:
        await transaction.commit()
    await conn.execute("alter table weir_asyncpg_ddl add column b text default 'new'")
    for _ in range(6):  # asyncpg prepares anew and tries once more by itself, so that no error is to be seen
        for own in clients:
            expect(tuple(await own.fetchrow(query, 0)), (1, "new"))
    for own in clients:
        await own.close()


@check
async def copy_in_and_out(conn):
    await conn.execute("create table weir_asyncpg_copy (id int, v text)")
    records = ((number, f"row {number}") for number in range(ROWS))
    expect(await conn.copy_records_to_table("weir_asyncpg_copy", records=records), f"COPY {ROWS}")
    total = ROWS * (ROWS - 1) // 2
    expect(tuple(await conn.fetchrow("select count(*), sum(id) from weir_asyncpg_copy")), (ROWS, total))
    out = io.BytesIO()
    expect(await conn.copy_from_table("weir_asyncpg_copy", output=out), f"COPY {ROWS}")
    expect(sum(int(line.split(b"\t")[0]) for line in out.getvalue().splitlines()), total)


@check
async def copy_failing(conn):
    def stops_halfway():
        yield from ((number, "x") for number in range(30_000))
        raise KeyError("the application changed its mind")

    async def bad_data():
        for number in range(20_000):
            yield b"%s\tx\n" % (b"%d" % number if number != 7000 else b"not a number")

    await expect_error(KeyError, conn.copy_records_to_table("weir_asyncpg_copy", records=stops_halfway()))
    await usable(conn)
    await expect_error(asyncpg.InvalidTextRepresentationError, conn.copy_to_table("weir_asyncpg_copy", source=bad_data()))
    await usable(conn)

    async def reader_fails(_data):
        raise KeyError("seen enough")

    await expect_error(KeyError, conn.copy_from_table("weir_asyncpg_copy", output=reader_fails))
    await usable(conn)
    expect(await conn.fetchval("select count(*) from weir_asyncpg_copy"), ROWS)


@check
async def large_values(conn):
    for size in (1 << 20, 20 << 20):
        data, text = os.urandom(1 << 16) * (size >> 16), "ü" * (size // 2)
        expect(await conn.fetchval("select $1::bytea", data) == data, True)
        expect(await conn.fetchval("select $1::text", text) == text, True)


@check
async def cancel(conn):
    began = time.monotonic()
    await expect_error(asyncio.TimeoutError, conn.fetch("select pg_sleep(20)", timeout=0.5))
    await usable(conn)
    task = asyncio.create_task(conn.execute("select pg_sleep(20)"))
    await asyncio.sleep(0.5)
    task.cancel()
    await expect_error(asyncio.CancelledError, task)
    await usable(conn)
    expect(time.monotonic() - began < 10, True)


@check
async def errors_and_recovery(conn):
    await expect_error(asyncpg.DivisionByZeroError, conn.execute("select 1/0"))
    await expect_error(asyncpg.UndefinedTableError, conn.fetch("select * from weir_asyncpg_nowhere where a = $1", 1))
    await expect_error(asyncpg.PostgresSyntaxError, conn.prepare("selekt $1"))
    await usable(conn)
    transaction = conn.transaction()
    await transaction.start()
    await expect_error(asyncpg.DivisionByZeroError, conn.fetch("select 1/$1::int", 0))
    await expect_error(asyncpg.InFailedSQLTransactionError, conn.fetch("select 1"))
    await transaction.rollback()
    await usable(conn)


@check
async def batch(conn):
    await conn.execute("create table weir_asyncpg_batch (id int, v text)")
    rows = [(number, str(number)) for number in range(1000)]
    await conn.executemany("insert into weir_asyncpg_batch values ($1, $2)", rows)
    expect(await conn.fetchval("select count(*) from weir_asyncpg_batch"), 1000)


@check
async def batch_with_error(conn):
    rows = [(number, 0 if number == 500 else 1) for number in range(1000)]
    insert = "insert into weir_asyncpg_batch values ($1 / $2::int, 'x')"
    await expect_error(asyncpg.DivisionByZeroError, conn.executemany(insert, rows))
    await usable(conn)
    expect(await conn.fetchval("select count(*) from weir_asyncpg_batch"), 1000)


@check
async def cursor_with_fetch_size(conn):
    async with conn.transaction():
        numbers = [row[0] async for row in conn.cursor("select generate_series(1, $1::int)", 1050, prefetch=100)]
        expect(numbers, list(range(1, 1051)))
        cursor = await conn.cursor("select generate_series(1, 1000)")
        expect(await cursor.forward(10), 10)
        # Another statement runs while the portal is suspended.
        await usable(conn)
        expect([row[0] for row in await cursor.fetch(5)], [11, 12, 13, 14, 15])


@check
async def many_statements_and_empty_query(conn):
    await conn.execute("select 1; create table weir_asyncpg_many (a int); insert into weir_asyncpg_many values (7); select 2")
    for query in ("", ";", "-- nothing"):
        expect(await conn.fetch(query), [])
    await expect_error(asyncpg.DivisionByZeroError, conn.execute("insert into weir_asyncpg_many values (8); select 1/0"))
    expect(await conn.fetchval("select count(*) from weir_asyncpg_many"), 1)


@check
async def notices(conn):
    seen = []
    conn.add_log_listener(lambda _conn, message: seen.append((message.severity, message.message)))
    await conn.execute("do $$ begin raise notice 'first'; raise warning 'second'; end $$")
    await asyncio.sleep(0.05)  # listeners are called from the event loop, a little later
    expect(seen, [("NOTICE", "first"), ("WARNING", "second")])


@check
async def startup_parameters(_conn):
    settings = {"application_name": "weir_asyncpg", "statement_timeout": "54321", "search_path": "weir_asyncpg_schema"}
    own, other = await connect(server_settings=settings), await connect()
    for _ in range(5):
        expect(await own.fetchval("show application_name"), "weir_asyncpg")
        expect(await own.fetchval("show statement_timeout"), "54321ms")
        expect(await own.fetchval("show search_path"), "weir_asyncpg_schema")
        expect(await other.fetchval("show statement_timeout") != "54321ms", True)
    expect(own.get_settings().application_name, "weir_asyncpg")
    await own.close()
    await other.close()


@check
async def close_in_transaction(conn):
    began = time.monotonic()
    for number in range(8):
        own = await connect()
        await own.execute("begin")
        await own.execute("insert into weir_asyncpg_t values ($1, 'never')", 500 + number)
        if number % 2:
            own.terminate()
        else:
            await own.close()
    fresh = await connect()
    expect(fresh.is_in_transaction(), False)
    async with fresh.transaction():
        await fresh.execute("lock table weir_asyncpg_t in access exclusive mode")
        expect(await fresh.fetchval("select count(*) from weir_asyncpg_t where id >= 500"), 0)
    await fresh.close()
    expect(time.monotonic() - began < 10, True)
    await usable(conn)


@check
async def own_pool(_conn):
    # Giving a connection back makes asyncpg send its reset statements.
    async with asyncpg.create_pool(URL, min_size=2, max_size=CLIENTS) as pool:

        async def work(number):
            async with pool.acquire() as own:
                expect(await own.fetchval("select $1::int", number), number)

        await asyncio.gather(*(work(number) for number in range(200)))


async def clean():
    conn = await connect()
    for table in ("t", "ddl", "copy", "batch", "many"):
        await conn.execute(f"drop table if exists weir_asyncpg_{table}")
    await conn.execute("drop type if exists weir_asyncpg_pair")
    await conn.close()


async def main():
    failed = 0
    await clean()
    for function in CHECKS:
        try:
            conn = await connect()
            await asyncio.wait_for(function(conn), CHECK_SECONDS_MAX)
            await conn.close()
            print(f"ok {function.__name__}", flush=True)
        except Exception as error:
            failed += 1
            why = " ".join(str(error).split())
            print(f"FAILED {function.__name__}: {type(error).__name__}: {why}", flush=True)
            traceback.print_exc()
    await clean()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
