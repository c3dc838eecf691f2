// What a pgjdbc application does, as checks against DATABASE_URL.
//
// Owns the tables named weir_jdbc_*. Knows nothing of poolers, except that nothing here needs what transaction
// pooling loses.

import java.io.ByteArrayOutputStream;
import java.io.FilterReader;
import java.io.IOException;
import java.io.Reader;
import java.io.StringReader;
import java.math.BigDecimal;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

public class Main {
    static final int CHECK_SECONDS_MAX = 40;
    static final int CLIENTS = 24;
    static final int ROWS = 100_000;
    static final long TOTAL = (long) ROWS * (ROWS - 1) / 2;

    interface Check { void run(Connection conn) throws Exception; }

    static Connection connect(String... properties) throws SQLException {
        URI url = URI.create(System.getenv("DATABASE_URL"));
        String[] user = url.getUserInfo().split(":", 2);
        Properties all = new Properties();
        all.setProperty("user", user[0]);
        all.setProperty("password", user[1]);
        all.setProperty("loginTimeout", "20");
        for (int i = 0; i < properties.length; i += 2) all.setProperty(properties[i], properties[i + 1]);
        return DriverManager.getConnection("jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath(), all);
    }

    static void expect(Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) throw new AssertionError("expected " + wanted + ", got " + got);
    }

    interface Failing { void run() throws Exception; }

    static void fails(String state, Failing work) throws Exception {
        try {
            work.run();
        } catch (SQLException error) {
            if (!state.equals(error.getSQLState())) throw error;
            return;
        }
        throw new AssertionError("expected SQLSTATE " + state + ", got no error");
    }

    static PreparedStatement bound(Connection conn, String sql, Object... parameters) throws SQLException {
        PreparedStatement statement = conn.prepareStatement(sql);
        for (int i = 0; i < parameters.length; i++) statement.setObject(i + 1, parameters[i]);
        return statement;
    }

    static List<Object> list(Connection conn, String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = bound(conn, sql, parameters); ResultSet rows = statement.executeQuery()) {
            List<Object> values = new ArrayList<>();
            while (rows.next()) values.add(rows.getObject(1));
            return values;
        }
    }

    static Object one(Connection conn, String sql, Object... parameters) throws SQLException {
        return list(conn, sql, parameters).get(0);
    }

    static void run(Connection conn, String sql) throws SQLException {
        try (Statement statement = conn.createStatement()) { statement.execute(sql); }
    }

    static void usable(Connection conn) throws SQLException { expect(one(conn, "select ?::int + 1", 41), 42); }

    static void simpleQuery(Connection conn) throws Exception {
        expect(list(conn, "select 1"), List.of(1));
        try (Connection simple = connect("preferQueryMode", "simple")) {
            expect(one(simple, "select ?::int + 1", 6), 7);
            expect(one(simple, "select ?", "it's"), "it's");
        }
    }

    static void parameterTypes(Connection conn) throws Exception {
        byte[] bytes = new byte[256];
        for (int i = 0; i < 256; i++) bytes[i] = (byte) i;
        OffsetDateTime when = OffsetDateTime.parse("2024-02-29T12:34:56.789Z");
        for (int turn = 0; turn < 8; turn++) { // named and binary after the fifth
            expect(one(conn, "select ?::int", -7), -7);
            expect(one(conn, "select ?::bigint", 1L << 62), 1L << 62);
            expect(one(conn, "select ?::text", "grüße \ud83d\udc18"), "grüße \ud83d\udc18");
            expect(one(conn, "select ?::bytea", (Object) bytes), bytes);
            BigDecimal number = new BigDecimal("12345678901234567890.123456789");
            expect(one(conn, "select ?::numeric", number), number);
            expect(one(conn, "select ?::json::text", "{\"a\": [1, null]}"), "{\"a\": [1, null]}");
            expect(one(conn, "select ?::text", (Object) null), null);
            expect(one(conn, "select ?::bool", true), true);
            try (PreparedStatement statement = bound(conn, "select ?::timestamptz, ?::int[]", when)) {
                statement.setArray(2, conn.createArrayOf("int4", new Integer[] {1, null, 3}));
                ResultSet rows = statement.executeQuery();
                rows.next();
                expect(rows.getObject(1, OffsetDateTime.class).toInstant(), when.toInstant());
                expect(rows.getArray(2).getArray(), new Integer[] {1, null, 3});
            }
        }
    }

    static void transactionCommitAndRollback(Connection conn) throws Exception {
        run(conn, "create table weir_jdbc_t (id int primary key, v text)");
        conn.setAutoCommit(false);
        bound(conn, "insert into weir_jdbc_t values (?, 'kept')", 1).execute();
        conn.commit();
        bound(conn, "insert into weir_jdbc_t values (?, 'gone')", 2).execute();
        conn.rollback();
        expect(list(conn, "select id from weir_jdbc_t"), List.of(1));
    }

    static void savepoints(Connection conn) throws Exception {
        conn.setAutoCommit(false);
        run(conn, "insert into weir_jdbc_t values (10, 'outer')");
        var savepoint = conn.setSavepoint("inner part");
        fails("23505", () -> run(conn, "insert into weir_jdbc_t values (10, 'twice')"));
        conn.rollback(savepoint);
        run(conn, "insert into weir_jdbc_t values (11, 'inner')");
        conn.releaseSavepoint(savepoint);
        conn.commit();
        expect(list(conn, "select id from weir_jdbc_t where id >= 10 order by 1"), List.of(10, 11));
        try (Connection own = connect("autosave", "always")) { // a savepoint of the driver's around each statement
            own.setAutoCommit(false);
            run(own, "insert into weir_jdbc_t values (12, 'autosave')");
            fails("22012", () -> run(own, "select 1/0"));
            own.commit();
        }
        expect(one(conn, "select count(*) from weir_jdbc_t where id = 12"), 1L);
    }

    static void preparedAcrossTransactions(Connection conn) throws Exception {
        try (PreparedStatement twice = conn.prepareStatement("select ?::int * 2")) {
            for (int number = 0; number < 30; number++) {
                conn.setAutoCommit(number % 2 == 0);
                twice.setInt(1, number);
                ResultSet rows = twice.executeQuery();
                rows.next();
                expect(rows.getInt(1), number * 2);
                expect(one(conn, "select 'n' || ?::text", number), "n" + number);
                if (!conn.getAutoCommit()) conn.commit();
            }
        }
    }

    static void preparedManyClients(Connection unused) throws Exception {
        // Every connection calls its first named statement S_1, each with a text of its own.
        var threads = Executors.newFixedThreadPool(CLIENTS);
        List<Future<?>> clients = new ArrayList<>();
        for (int client = 0; client < CLIENTS; client++) {
            int number = client;
            clients.add(threads.submit(() -> {
                try (Connection own = connect("prepareThreshold", "1")) {
                    for (int turn = 0; turn < 40; turn++) {
                        expect(one(own, "select ?::int + " + number * 1000, turn), number * 1000 + turn);
                        own.setAutoCommit(false);
                        expect(one(own, "select ?::int", number), number);
                        own.commit();
                        own.setAutoCommit(true);
                    }
                }
                return null;
            }));
        }
        for (Future<?> client : clients) client.get();
        threads.shutdown();
    }

    static void describe(Connection conn) throws Exception {
        try (PreparedStatement statement = conn.prepareStatement("select ?::int8 as a, 'x'::text as b")) {
            expect(statement.getParameterMetaData().getParameterTypeName(1), "int8");
            expect(statement.getMetaData().getColumnName(1) + statement.getMetaData().getColumnTypeName(2), "atext");
        }
        try (ResultSet columns = conn.getMetaData().getColumns(null, null, "weir_jdbc_t", null)) {
            columns.next();
            expect(columns.getString("COLUMN_NAME"), "id");
        }
    }

    // pgjdbc forgets a statement whose result type has changed and, outside a transaction, tries it again by itself. A
    // pooler that shares statements by their text must not bring the old one back.
    static void ddlChangesResult(Connection conn) throws Exception {
        run(conn, "create table weir_jdbc_ddl (a int)");
        run(conn, "insert into weir_jdbc_ddl values (1)");
        String query = "select * from weir_jdbc_ddl where a >= ?";
        List<Connection> clients = new ArrayList<>();
        for (int client = 0; client < 4; client++) { // all open at once: behind a pooler on four servers
            Connection own = connect("prepareThreshold", "1");
            own.setAutoCommit(false);
            for (int turn = 0; turn < 3; turn++) expect(one(own, query, 0), 1);
            clients.add(own);
        }
        for (Connection own : clients) own.commit();
        run(conn, "alter table weir_jdbc_ddl add column b text default 'new'");
        for (Connection own : clients) {
            own.setAutoCommit(true);
            int failures = 0;
            for (int turn = 0; turn < 6; turn++) {
                try (PreparedStatement statement = bound(own, query, 0); ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    expect(rows.getInt("a") + rows.getString("b"), "1new");
                } catch (SQLException error) {
                    if (!"0A000".equals(error.getSQLState())) throw error;
                    failures++;
                }
            }
            if (failures > 1) throw new AssertionError("the statement failed " + failures + " times");
            own.close();
        }
    }

    static void copyInAndOut(Connection conn) throws Exception {
        run(conn, "create table weir_jdbc_copy (id int, v text)");
        StringBuilder lines = new StringBuilder();
        for (int number = 0; number < ROWS; number++) lines.append(number).append("\trow ").append(number).append('\n');
        CopyManager copy = conn.unwrap(PGConnection.class).getCopyAPI();
        expect(copy.copyIn("copy weir_jdbc_copy from stdin", new StringReader(lines.toString())), (long) ROWS);
        expect(one(conn, "select sum(id) from weir_jdbc_copy"), TOTAL);
        var out = new ByteArrayOutputStream();
        expect(copy.copyOut("copy weir_jdbc_copy to stdout", out), (long) ROWS);
        expect(out.toString().lines().mapToLong(line -> Long.parseLong(line.split("\t")[0])).sum(), TOTAL);
    }

    static void copyFailing(Connection conn) throws Exception {
        CopyManager copy = conn.unwrap(PGConnection.class).getCopyAPI();
        Reader stopsHalfway = new FilterReader(new StringReader("1\tx\n".repeat(100_000))) {
            private int reads = 0;
            @Override public int read(char[] buffer, int offset, int length) throws IOException {
                if (++reads > 5) throw new IOException("the application changed its mind");
                return super.read(buffer, offset, length);
            }
        };
        try {
            copy.copyIn("copy weir_jdbc_copy from stdin", stopsHalfway);
            throw new AssertionError("expected the reader's error, got none");
        } catch (IOException expected) {
            usable(conn);
        }
        String badData = "1\tx\n".repeat(2000) + "bad\tx\n" + "1\tx\n".repeat(200_000);
        fails("22P02", () -> copy.copyIn("copy weir_jdbc_copy from stdin", new StringReader(badData)));
        usable(conn);
        expect(one(conn, "select count(*) from weir_jdbc_copy"), (long) ROWS);
    }

    static void largeValues(Connection conn) throws Exception {
        for (int size : new int[] {1 << 20, 20 << 20}) {
            byte[] data = new byte[size];
            new Random(size).nextBytes(data);
            expect(Arrays.equals((byte[]) one(conn, "select ?::bytea", (Object) data), data), true);
            String text = "ü".repeat(size / 2);
            expect(text.equals(one(conn, "select ?::text", text)), true);
        }
    }

    static void cancel(Connection conn) throws Exception {
        long began = System.nanoTime();
        try (Statement statement = conn.createStatement()) {
            statement.setQueryTimeout(1);
            fails("57014", () -> statement.execute("select pg_sleep(20)"));
        }
        usable(conn);
        try (Statement statement = conn.createStatement()) {
            Thread other = new Thread(() -> {
                try {
                    Thread.sleep(500);
                    statement.cancel();
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            other.start();
            fails("57014", () -> statement.execute("select pg_sleep(20)"));
            other.join();
        }
        expect(System.nanoTime() - began < 10_000_000_000L, true);
        usable(conn);
    }

    static void errorsAndRecovery(Connection conn) throws Exception {
        fails("22012", () -> run(conn, "select 1/0"));
        fails("42P01", () -> one(conn, "select * from weir_jdbc_nowhere where a = ?", 1));
        fails("42601", () -> one(conn, "selekt ?", 1));
        usable(conn);
        conn.setAutoCommit(false);
        fails("22012", () -> one(conn, "select 1/?::int", 0));
        fails("25P02", () -> one(conn, "select 1"));
        conn.rollback();
        usable(conn);
    }

    static void batch(Connection conn) throws Exception {
        run(conn, "create table weir_jdbc_batch (id int, v text)");
        for (String rewrite : new String[] {"false", "true"}) {
            try (Connection own = connect("reWriteBatchedInserts", rewrite);
                    PreparedStatement insert = own.prepareStatement("insert into weir_jdbc_batch values (?, ?)")) {
                for (int number = 0; number < 1000; number++) {
                    insert.setInt(1, number);
                    insert.setString(2, "row " + number);
                    insert.addBatch();
                }
                expect(insert.executeBatch().length, 1000);
            }
        }
        expect(one(conn, "select count(*) from weir_jdbc_batch"), 2000L);
    }

    static void batchWithError(Connection conn) throws Exception {
        conn.setAutoCommit(false);
        try (PreparedStatement insert = conn.prepareStatement("insert into weir_jdbc_batch values (1 / ?, 'never')")) {
            for (int number = 0; number < 1000; number++) {
                insert.setInt(1, number == 500 ? 0 : 1);
                insert.addBatch();
            }
            fails("22012", insert::executeBatch);
        }
        conn.rollback();
        expect(one(conn, "select count(*) from weir_jdbc_batch where v = 'never'"), 0L);
        conn.commit();
        conn.setAutoCommit(true);
        usable(conn);
    }

    static void cursorWithFetchSize(Connection conn) throws Exception {
        conn.setAutoCommit(false);
        try (PreparedStatement statement = bound(conn, "select generate_series(1, ?)", 1050)) {
            statement.setFetchSize(100); // Execute with a row limit, PortalSuspended
            ResultSet rows = statement.executeQuery();
            int expected = 0;
            while (rows.next()) {
                expect(rows.getInt(1), ++expected);
                if (expected % 300 == 0) usable(conn); // another statement while the portal is suspended
            }
            expect(expected, 1050);
        }
        conn.commit();
    }

    static void manyStatementsAndEmptyQuery(Connection conn) throws Exception {
        for (String mode : new String[] {"simple", "extended"}) {
            try (Connection own = connect("preferQueryMode", mode); Statement statement = own.createStatement()) {
                statement.execute("select 1; create table weir_jdbc_many (a int); insert into weir_jdbc_many values (7); select a from weir_jdbc_many");
                List<Integer> counts = new ArrayList<>();
                for (int result = 0; result < 4; result++, statement.getMoreResults()) counts.add(statement.getUpdateCount());
                expect(counts, List.of(-1, 0, 1, -1));
                for (String query : new String[] {"", ";", "-- nothing"}) expect(statement.execute(query), false);
                fails("22012", () -> statement.execute("insert into weir_jdbc_many values (8); select 1/0"));
                expect(one(own, "select count(*) from weir_jdbc_many"), 1L);
                statement.execute("drop table weir_jdbc_many");
            }
        }
    }

    static void notices(Connection conn) throws Exception {
        try (Statement statement = conn.createStatement()) {
            statement.execute("do $$ begin raise notice 'first'; raise warning 'second'; end $$");
            List<String> seen = new ArrayList<>();
            for (SQLWarning notice = statement.getWarnings(); notice != null; notice = notice.getNextWarning()) seen.add(notice.getMessage());
            expect(seen, List.of("first", "second"));
        }
    }

    static void startupParameters(Connection conn) throws Exception {
        String options = "-c statement_timeout=54321";
        try (Connection own = connect("ApplicationName", "weir_jdbc", "options", options, "currentSchema", "weir_jdbc_schema")) {
            for (int turn = 0; turn < 5; turn++) {
                expect(one(own, "show application_name"), "weir_jdbc");
                expect(one(own, "show statement_timeout"), "54321ms");
                expect(one(own, "show search_path"), "weir_jdbc_schema");
                expect("54321ms".equals(one(conn, "show statement_timeout")), false);
            }
        }
    }

    static void closeInTransaction(Connection conn) throws Exception {
        long began = System.nanoTime();
        for (int number = 0; number < 8; number++) {
            Connection own = connect();
            own.setAutoCommit(false);
            bound(own, "insert into weir_jdbc_t values (?, 'never')", 500 + number).execute();
            if (number % 2 == 0) own.close();
            else own.abort(Runnable::run);
        }
        try (Connection fresh = connect()) {
            fresh.setAutoCommit(false);
            run(fresh, "lock table weir_jdbc_t in access exclusive mode");
            expect(one(fresh, "select count(*) from weir_jdbc_t where id >= 500"), 0L);
            fresh.commit();
        }
        expect(System.nanoTime() - began < 10_000_000_000L, true);
        usable(conn);
    }

    static void clean() throws SQLException {
        try (Connection conn = connect()) {
            run(conn, "drop table if exists weir_jdbc_t, weir_jdbc_ddl, weir_jdbc_copy, weir_jdbc_batch, weir_jdbc_many");
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("simpleQuery", Main::simpleQuery);
        checks.put("parameterTypes", Main::parameterTypes);
        checks.put("transactionCommitAndRollback", Main::transactionCommitAndRollback);
        checks.put("savepoints", Main::savepoints);
        checks.put("preparedAcrossTransactions", Main::preparedAcrossTransactions);
        checks.put("preparedManyClients", Main::preparedManyClients);
        checks.put("describe", Main::describe);
        checks.put("ddlChangesResult", Main::ddlChangesResult);
        checks.put("copyInAndOut", Main::copyInAndOut);
        checks.put("copyFailing", Main::copyFailing);
        checks.put("largeValues", Main::largeValues);
        checks.put("cancel", Main::cancel);
        checks.put("errorsAndRecovery", Main::errorsAndRecovery);
        checks.put("batch", Main::batch);
        checks.put("batchWithError", Main::batchWithError);
        checks.put("cursorWithFetchSize", Main::cursorWithFetchSize);
        checks.put("manyStatementsAndEmptyQuery", Main::manyStatementsAndEmptyQuery);
        checks.put("notices", Main::notices);
        checks.put("startupParameters", Main::startupParameters);
        checks.put("closeInTransaction", Main::closeInTransaction);
        boolean failed = false;
        clean();
        for (var check : checks.entrySet()) {
            var work = new FutureTask<Void>(() -> {
                try (Connection conn = connect()) { check.getValue().run(conn); }
                return null;
            });
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            thread.start();
            try {
                work.get(CHECK_SECONDS_MAX, TimeUnit.SECONDS);
                System.out.println("ok " + check.getKey());
            } catch (ExecutionException | TimeoutException error) {
                failed = true;
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                System.out.println("FAILED " + check.getKey() + ": " + cause.toString().replaceAll("\\s+", " "));
                cause.printStackTrace();
            }
        }
        clean();
        System.exit(failed ? 1 : 0);
    }
}
