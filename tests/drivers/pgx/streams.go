// COPY, large values, cancels, errors, batches and what a connection begins and ends with.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

func copyInAndOut(conn *pgx.Conn) {
	exec(conn, "create table weir_pgx_copy (id int, v text)")
	source := pgx.CopyFromSlice(rows, func(number int) ([]any, error) { return []any{number, fmt.Sprint("row ", number)}, nil })
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"weir_pgx_copy"}, []string{"id", "v"}, source)
	must(err)
	expect(count, int64(rows))
	expect(one[int64](conn, "select sum(id) from weir_pgx_copy"), total)
	var out bytes.Buffer
	_, err = conn.PgConn().CopyTo(ctx, &out, "copy weir_pgx_copy to stdout")
	must(err)
	sum := int64(0)
	for line := range strings.Lines(out.String()) {
		var number int64
		_, err := fmt.Sscan(line, &number)
		must(err)
		sum += number
	}
	expect(sum, total)
}

func copyFailing(conn *pgx.Conn) {
	changesItsMind := errors.New("the application changed its mind")
	stopsHalfway := io.MultiReader(strings.NewReader(strings.Repeat("1\tx\n", 50_000)), failingReader{changesItsMind})
	_, err := conn.PgConn().CopyFrom(ctx, stopsHalfway, "copy weir_pgx_copy from stdin")
	expectCode(err, "57014") // CopyFail
	usable(conn)
	badData := strings.NewReader(strings.Repeat("1\tx\n", 2000) + "bad\tx\n" + strings.Repeat("1\tx\n", 500_000))
	_, err = conn.PgConn().CopyFrom(ctx, badData, "copy weir_pgx_copy from stdin")
	expectCode(err, "22P02")
	usable(conn)
	expect(one[int](conn, "select count(*) from weir_pgx_copy"), rows)
}

type failingReader struct{ err error }

func (reader failingReader) Read([]byte) (int, error) { return 0, reader.err }

func largeValues(conn *pgx.Conn) {
	for _, size := range []int{1 << 20, 20 << 20} {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		expect(bytes.Equal(one[[]byte](conn, "select $1::bytea", data), data), true)
		text := strings.Repeat("ü", size/2)
		expect(one[string](conn, "select $1::text", text) == text, true)
	}
}

func cancel(*pgx.Conn) {
	config := config()
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: 10 * time.Second}
	}
	own := connect(config)
	defer own.Close(ctx)
	short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	began := time.Now()
	_, err := own.Exec(short, "select pg_sleep($1)", 20)
	expectCode(err, "57014")
	expect(time.Since(began) < 5*time.Second, true)
	usable(own)
}

func errorsAndRecovery(conn *pgx.Conn) {
	failing(conn, "22012", "select 1/0")
	failing(conn, "42P01", "select * from weir_pgx_nowhere where a = $1", 1)
	failing(conn, "42601", "selekt $1", 1)
	usable(conn)
	tx, err := conn.Begin(ctx)
	must(err)
	failing(tx, "22012", "select 1/$1::int", 0)
	failing(tx, "25P02", "select 1")
	expect(tx.Commit(ctx), pgx.ErrTxCommitRollback)
	usable(conn)
}

func batch(conn *pgx.Conn) {
	batch := &pgx.Batch{}
	for number := range 300 {
		batch.Queue("select $1::int", number).QueryRow(func(row pgx.Row) error {
			var got int
			must(row.Scan(&got))
			expect(got, number)
			return nil
		})
	}
	must(conn.SendBatch(ctx, batch).Close())
}

func batchWithError(conn *pgx.Conn) {
	exec(conn, "create table weir_pgx_batch (id int)")
	for _, divisor := range []int{0, 1} {
		batch := &pgx.Batch{}
		batch.Queue("insert into weir_pgx_batch values (1)")
		batch.Queue("insert into weir_pgx_batch values (2 / $1::int)", divisor)
		batch.Queue("insert into weir_pgx_batch values (3)")
		if err := conn.SendBatch(ctx, batch).Close(); divisor == 0 {
			expectCode(err, "22012")
		} else {
			must(err)
		}
		usable(conn)
	}
	expect(list[int](conn, "select id from weir_pgx_batch"), []int{1, 2, 3})
}

func pipeline(conn *pgx.Conn) {
	// Two Syncs in flight at once; the error before the first one leaves what follows it alone.
	pipeline := conn.PgConn().StartPipeline(ctx)
	pipeline.SendQueryParams("select 1/$1::int", [][]byte{[]byte("0")}, nil, nil, nil)
	pipeline.SendQueryParams("select 'skipped'", nil, nil, nil, nil)
	must(pipeline.Sync())
	pipeline.SendQueryParams("select 'served'", nil, nil, nil, nil)
	must(pipeline.Sync())
	var seen []string
	for range 5 {
		results, err := pipeline.GetResults()
		switch results := results.(type) {
		case *pgconn.ResultReader:
			read := results.Read()
			err = read.Err
			if err == nil {
				seen = append(seen, string(read.Rows[0][0]))
			}
		case *pgconn.PipelineSync:
			seen = append(seen, "sync")
		}
		if err != nil {
			expectCode(err, "22012")
			seen = append(seen, "error")
		}
	}
	must(pipeline.Close())
	expect(strings.Join(seen, " "), "error sync served sync")
}

func cursorWithFetchSize(conn *pgx.Conn) {
	must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		exec(tx, "declare weir_pgx_cursor cursor for select generate_series(1, 1050)")
		got := 0
		for {
			found := list[int](tx, "fetch 100 from weir_pgx_cursor")
			if len(found) == 0 {
				break
			}
			got += len(found)
		}
		expect(got, 1050)
		return nil
	}))
	found, err := conn.Query(ctx, "select generate_series(1, 100000)")
	must(err)
	expect(found.Next(), true)
	found.Close() // reads the rest
	usable(conn)
}

func manyStatementsAndEmptyQuery(conn *pgx.Conn) {
	script := "select 1; create table weir_pgx_many (a int); insert into weir_pgx_many values (7); select a from weir_pgx_many"
	results, err := conn.PgConn().Exec(ctx, script).ReadAll()
	must(err)
	expect(len(results), 4)
	expect(results[3].Rows, [][][]byte{{[]byte("7")}})
	for _, query := range []string{"", ";", "-- nothing"} {
		exec(conn, query)
		exec(conn, query, pgx.QueryExecModeSimpleProtocol)
		exec(conn, query, pgx.QueryExecModeDescribeExec)
	}
	_, err = conn.PgConn().Exec(ctx, "insert into weir_pgx_many values (8); select 1/0").ReadAll()
	expectCode(err, "22012")
	expect(one[int](conn, "select count(*) from weir_pgx_many"), 1)
}

func notices(*pgx.Conn) {
	var seen []string
	config := config()
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		seen = append(seen, notice.Severity+" "+notice.Message)
	}
	own := connect(config)
	defer own.Close(ctx)
	exec(own, "do $$ begin raise notice 'first'; raise warning 'second'; end $$")
	expect(seen, []string{"NOTICE first", "WARNING second"})
}

func startupParameters(conn *pgx.Conn) {
	config := config()
	config.RuntimeParams = map[string]string{"application_name": "weir_pgx", "search_path": "weir_pgx_schema",
		"options": "-c statement_timeout=54321"}
	own := connect(config)
	defer own.Close(ctx)
	for range 5 {
		expect(one[string](own, "show application_name"), "weir_pgx")
		expect(one[string](own, "show search_path"), "weir_pgx_schema")
		expect(one[string](own, "show statement_timeout"), "54321ms")
		expect(one[string](conn, "show statement_timeout") != "54321ms", true)
	}
	expect(own.PgConn().ParameterStatus("application_name"), "weir_pgx")
}

func closeInTransaction(conn *pgx.Conn) {
	began := time.Now()
	for number := range 8 {
		own := connect(config())
		exec(own, "begin")
		exec(own, "insert into weir_pgx_t values ($1, 'never')", 500+number)
		if number%2 == 0 {
			must(own.Close(ctx))
		} else {
			must(own.PgConn().Conn().Close()) // cut, without Terminate
		}
	}
	fresh := connect(config())
	defer fresh.Close(ctx)
	expect(fresh.PgConn().TxStatus(), byte('I'))
	must(pgx.BeginFunc(ctx, fresh, func(tx pgx.Tx) error {
		exec(tx, "lock table weir_pgx_t in access exclusive mode")
		expect(one[int](tx, "select count(*) from weir_pgx_t where id >= 500"), 0)
		return nil
	}))
	expect(time.Since(began) < 10*time.Second, true)
	usable(conn)
}
