"""What a psycopg 3 application does, as checks against DATABASE_URL.

Owns the tables named weir_psycopg_*. Knows nothing of poolers, except that nothing here needs what transaction
pooling loses. WEIR_DRIVERS_DIRECT=1 says that the other end is PostgreSQL itself (see `ddl_changes_result`).
"""

import asyncio
import contextlib
import datetime
import decimal
import os
import sys
import threading
import time
import traceback

import psycopg
from psycopg import errors, pq
from psycopg.types.json import Jsonb

URL = os.environ["DATABASE_URL"]
DIRECT = os.environ.get("WEIR_DRIVERS_DIRECT") == "1"
CHECK_SECONDS_MAX = 40
CLIENTS = 24
ROWS = 100_000
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def connect(**options):
    return psycopg.connect(URL, connect_timeout=20, **options)


def expect(got, wanted):
    if got != wanted:
        raise AssertionError(f"expected {str(wanted)[:200]!r}, got {str(got)[:200]!r}")


def expect_error(kind, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got no error")


def one(conn, query, parameters=None, **options):
    return conn.execute(query, parameters, **options).fetchone()[0]


def usable(conn):
    expect(one(conn, "select %s::int + 1", (41,)), 42)


@check
def simple_query(conn):
    expect(conn.execute("select 1, 'two', null").fetchall(), [(1, "two", None)])


@check
def parameter_types(conn):
    when = datetime.datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=datetime.timezone.utc)
    values = [
        ("int", -7), ("bigint", 2**62), ("text", "grüße \U0001f418"), ("bytea", bytes(range(256))),
        ("numeric", decimal.Decimal("12345678901234567890.123456789")), ("timestamptz", when),
        ("int[]", [1, None, 3]), ("text[]", ["a,b", 'c"d', ""]), ("text", None), ("bool", True), ("float8", 0.1),
    ]
    for binary in (False, True):
        with conn.cursor(binary=binary) as cursor:
            for kind, value in values:
                expect(cursor.execute(f"select %s::{kind}", (value,)).fetchone()[0], value)
            document = {"a": [1, None, {"b": "ü"}]}
            expect(cursor.execute("select %s::jsonb", (Jsonb(document),)).fetchone()[0], document)


@check
def transaction_commit_and_rollback(conn):
    conn.execute("create table weir_psycopg_t (id int primary key, v text)")
    with conn.transaction():
        conn.execute("insert into weir_psycopg_t values (1, 'kept')")
    with conn.transaction():
        conn.execute("insert into weir_psycopg_t values (2, 'gone')")
        raise psycopg.Rollback()
    expect(conn.execute("select id from weir_psycopg_t").fetchall(), [(1,)])


@check
def savepoints(conn):
    with conn.transaction():
        conn.execute("insert into weir_psycopg_t values (10, 'outer')")
        expect_error(errors.UniqueViolation, insert_in_savepoint, conn, 10)
        insert_in_savepoint(conn, 11)
    expect(conn.execute("select id from weir_psycopg_t where id >= 10 order by 1").fetchall(), [(10,), (11,)])


def insert_in_savepoint(conn, number):
    with conn.transaction():
        conn.execute("insert into weir_psycopg_t values (%s, 'inner')", (number,))


@check
def prepared_across_transactions(conn):
    for number in range(30):
        with conn.transaction():
            expect(one(conn, "select %s::int * 2", (number,), prepare=True), number * 2)
        expect(one(conn, "select 'n' || %s::text", (str(number),), prepare=True), f"n{number}")


@check
def prepared_many_clients(_conn):
    failures, start = [], threading.Barrier(CLIENTS)

    def client(number):
        # Every connection calls its first statement _pg3_0, each with a text of its own.
        try:
            with connect(autocommit=True) as own:
                start.wait(30)
                for turn in range(40):
                    expect(one(own, f"select %s::int + {number * 1000}", (turn,), prepare=True), number * 1000 + turn)
                    with own.transaction():
                        expect(one(own, "select %s::int", (number,), prepare=True), number)
        except Exception as error:
            failures.append(f"client {number}: {error}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(failures, [])


@check
def unnamed_statement_in_separate_round_trips(conn):
    with connect(autocommit=True) as other:
        for number in range(10):
            expect(conn.pgconn.prepare(b"", b"select $1::int + 100").status, pq.ExecStatus.COMMAND_OK)
            other.pgconn.prepare(b"", b"select $1::int + 200")
            for link, offset in ((conn, 100), (other, 200)):
                result = link.pgconn.exec_prepared(b"", [str(number).encode()])
                expect(result.get_value(0, 0), str(number + offset).encode())


@check
def describe(conn):
    expect(conn.pgconn.prepare(b"weir_described", b"select $1::int8 as a, 'x'::text as b").status, pq.ExecStatus.COMMAND_OK)
    result = conn.pgconn.describe_prepared(b"weir_described")
    expect((result.nparams, result.param_type(0), result.nfields), (1, 20, 2))
    expect([(result.fname(i), result.ftype(i)) for i in range(2)], [(b"a", 20), (b"b", 25)])


@check
def ddl_changes_result(conn):
    """PostgreSQL goes on failing a prepared statement whose result type has changed; a pooler has to prepare it again."""
    conn.execute("create table weir_psycopg_ddl (a int)")
    conn.execute("insert into weir_psycopg_ddl values (1)")
    query = "select * from weir_psycopg_ddl where a >= %s"
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(autocommit=True)) for _ in range(4)]
        with contextlib.ExitStack() as transactions:  # all open at once: behind a pooler on four servers
            for own in clients:
                transactions.enter_context(own.transaction())
                expect(own.execute(query, (0,), prepare=True).fetchall(), [(1,)])
        conn.execute("alter table weir_psycopg_ddl add column b text default 'new'")
        for own in clients:
            failures = 0
            for _ in range(6):
                try:
                    expect(own.execute(query, (0,), prepare=not (DIRECT and failures)).fetchall(), [(1, "new")])
                except errors.FeatureNotSupported:
                    failures += 1
            if failures > 1:
                raise AssertionError(f"the statement failed {failures} times")
        # After an ALTER of its own psycopg sends DEALLOCATE ALL by itself.
        clients[0].execute("alter table weir_psycopg_ddl add column c int default 3")
        expect(clients[0].execute(query, (0,), prepare=True).fetchall(), [(1, "new", 3)])


@check
def copy_in_and_out(conn):
    conn.execute("create table weir_psycopg_copy (id int, v text)")
    with conn.cursor() as cursor, cursor.copy("copy weir_psycopg_copy from stdin") as copy:
        for number in range(ROWS):
            copy.write_row((number, f"row {number}"))
    total = ROWS * (ROWS - 1) // 2
    expect(conn.execute("select count(*), sum(id) from weir_psycopg_copy").fetchone(), (ROWS, total))
    with conn.cursor() as cursor, cursor.copy("copy weir_psycopg_copy to stdout (format binary)") as copy:
        copy.set_types(["int4", "text"])
        expect(sum(row[0] for row in copy.rows()), total)


@check
def copy_out_left_early(conn):
    def stop_halfway():
        with conn.cursor() as cursor, cursor.copy("copy weir_psycopg_copy to stdout") as copy:
            next(copy.rows())
            raise KeyError("seen enough")  # on the way out psycopg cancels the COPY

    expect_error(KeyError, stop_halfway)
    usable(conn)


@check
def copy_failing(conn):
    def stop_halfway():
        with conn.cursor() as cursor, cursor.copy("copy weir_psycopg_copy from stdin") as copy:
            for number in range(5000):
                copy.write_row((number, "x"))
            raise KeyError("the application changed its mind")

    def send_bad_data():
        with conn.cursor() as cursor, cursor.copy("copy weir_psycopg_copy from stdin") as copy:
            for number in range(50_000):
                copy.write_row((number if number != 2000 else "not a number", "x"))

    expect_error(KeyError, stop_halfway)
    usable(conn)
    expect_error(errors.InvalidTextRepresentation, send_bad_data)
    usable(conn)
    expect(one(conn, "select count(*) from weir_psycopg_copy"), ROWS)


@check
def large_values(conn):
    for size in (1 << 20, 20 << 20):
        data = os.urandom(1 << 16) * (size >> 16)
        with conn.cursor(binary=True) as cursor:
            expect(cursor.execute("select %b::bytea", (data,)).fetchone()[0] == data, True)
        expect(one(conn, "select %s::text", ("ü" * (size // 2),)) == "ü" * (size // 2), True)


@check
def cancel(conn):
    timer = threading.Timer(0.5, conn.cancel_safe)
    timer.start()
    began = time.monotonic()
    expect_error(errors.QueryCanceled, conn.execute, "select pg_sleep(20)")
    timer.join()
    expect(time.monotonic() - began < 10, True)
    usable(conn)


@check
def errors_and_recovery(conn):
    expect(expect_error(errors.DivisionByZero, conn.execute, "select 1/0").sqlstate, "22012")
    expect_error(errors.UndefinedTable, conn.execute, "select * from weir_psycopg_nowhere where a = %s", (1,))
    expect_error(errors.SyntaxError, conn.execute, "selekt %s", (1,), prepare=True)
    usable(conn)
    with connect() as own:  # without autocommit: psycopg opens the transaction itself
        expect_error(errors.DivisionByZero, own.execute, "select 1/%s::int", (0,))
        expect_error(errors.InFailedSqlTransaction, own.execute, "select 1")
        own.rollback()
        usable(own)


@check
def pipeline(conn):
    with conn.pipeline():
        cursors = [conn.execute("select %s::int", (number,)) for number in range(200)]
        expect([cursor.fetchone()[0] for cursor in cursors], list(range(200)))


@check
def pipeline_with_error(conn):
    conn.execute("create table weir_psycopg_pipeline (id int)")

    def run():
        with conn.pipeline() as pipeline:
            conn.execute("insert into weir_psycopg_pipeline values (1)")
            pipeline.sync()
            conn.execute("insert into weir_psycopg_pipeline values (2)")
            conn.execute("select 1/%s::int", (0,))
            conn.execute("insert into weir_psycopg_pipeline values (3)")
            pipeline.sync()

    expect_error(errors.DivisionByZero, run)
    expect(conn.execute("select id from weir_psycopg_pipeline").fetchall(), [(1,)])


@check
def cursor_with_fetch_size(conn):
    with conn.transaction(), conn.cursor(name="weir_psycopg_cursor") as cursor:
        cursor.itersize = 100
        cursor.execute("select generate_series(1, %s)", (1050,))
        expect(sum(row[0] for row in cursor), 1050 * 1051 // 2)
        expect_error(psycopg.Error, cursor.scroll, -5000)


@check
def many_statements_and_empty_query(conn):
    cursor = conn.execute("select 1; create table weir_psycopg_many (a int); insert into weir_psycopg_many values (7); select * from weir_psycopg_many")
    results = [cursor.fetchone()[0] if cursor.description else cursor.rowcount]
    while cursor.nextset():
        results.append(cursor.fetchone()[0] if cursor.description else cursor.rowcount)
    expect(results, [1, -1, 1, 7])
    for query in ("", ";", "-- nothing"):
        expect(conn.execute(query).description, None)
    expect(conn.execute("", prepare=True).description, None)
    expect_error(errors.DivisionByZero, conn.execute, "insert into weir_psycopg_many values (8); select 1/0")
    expect(one(conn, "select count(*) from weir_psycopg_many"), 1)


@check
def notices(conn):
    seen = []
    conn.add_notice_handler(lambda diagnostic: seen.append((diagnostic.severity, diagnostic.message_primary)))
    conn.execute("do $$ begin raise notice 'first'; raise warning 'second'; end $$")
    expect(seen, [("NOTICE", "first"), ("WARNING", "second")])


@check
def startup_parameters(_conn):
    options = "-c statement_timeout=54321 -c search_path=weir_psycopg_schema,public"
    with connect(autocommit=True, application_name="weir_psycopg", options=options) as own, connect(autocommit=True) as other:
        for _ in range(5):
            expect(one(own, "show application_name"), "weir_psycopg")
            expect(one(own, "show statement_timeout"), "54321ms")
            expect(one(own, "show search_path").replace(" ", ""), "weir_psycopg_schema,public")
            expect(one(other, "show statement_timeout") != "54321ms", True)
        expect(own.info.parameter_status("application_name"), "weir_psycopg")


@check
def close_in_transaction(conn):
    for number in range(8):
        own = connect()
        own.execute("insert into weir_psycopg_t values (%s, 'never')", (500 + number,))
        own.close()
    began = time.monotonic()
    with connect() as fresh:
        expect(fresh.info.transaction_status, pq.TransactionStatus.IDLE)
        fresh.execute("lock table weir_psycopg_t in access exclusive mode")
        expect(one(fresh, "select count(*) from weir_psycopg_t where id >= 500"), 0)
    expect(time.monotonic() - began < 10, True)
    usable(conn)


@check
def async_connection(_conn):
    async def client(number):
        async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as own:
            for turn in range(20):
                row = await (await own.execute("select %s::int, %s::int", (number, turn))).fetchone()
                expect(row, (number, turn))

    async def run():
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))

    asyncio.run(run())


def clean():
    with connect(autocommit=True) as conn:
        for table in ("t", "ddl", "copy", "pipeline", "many"):
            conn.execute(f"drop table if exists weir_psycopg_{table}")


def outcome(function):
    """Runs a check in a thread that may be left behind: returns its error, or None."""
    result = [TimeoutError(f"did not end within {CHECK_SECONDS_MAX} s")]

    def run():
        try:
            with connect(autocommit=True) as conn:
                function(conn)
            result[0] = None
        except Exception as error:
            traceback.print_exc()
            result[0] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CHECK_SECONDS_MAX)
    return result[0]


def main():
    failed = 0
    clean()
    for function in CHECKS:
        error = outcome(function)
        if error is None:
            print(f"ok {function.__name__}", flush=True)
        else:
            failed += 1
            print(f"FAILED {function.__name__}: {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
    clean()
    return 1 if failed else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a check that did not end would hold up a plain exit
