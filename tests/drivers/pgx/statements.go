// Queries, parameters, transactions and prepared statements.
package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

func simpleQuery(conn *pgx.Conn) {
	results, err := conn.PgConn().Exec(ctx, "select 1, 'two', null").ReadAll()
	must(err)
	expect(results[0].Rows, [][][]byte{{[]byte("1"), []byte("two"), nil}})
	expect(one[int](conn, "select 7", pgx.QueryExecModeSimpleProtocol), 7)
}

func parameterTypes(conn *pgx.Conn) {
	number := pgtype.Numeric{}
	must(number.Scan("12345678901234567890.123456789"))
	when := time.Date(2024, 2, 29, 12, 34, 56, 789000000, time.UTC)
	modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
	for _, mode := range modes {
		expect(one[int32](conn, "select $1::int", mode, int32(-7)), int32(-7))
		expect(one[int64](conn, "select $1::bigint", mode, int64(1)<<62), int64(1)<<62)
		expect(one[string](conn, "select $1::text", mode, "grüße '\U0001f418"), "grüße '\U0001f418")
		expect(one[[]byte](conn, "select $1::bytea", mode, []byte{0, 1, 255}), []byte{0, 1, 255})
		expect(one[pgtype.Numeric](conn, "select $1::numeric", mode, number), number)
		expect(one[time.Time](conn, "select $1::timestamptz", mode, when).UTC(), when)
		expect(one[[]int32](conn, "select $1::int[]", mode, []int32{1, 2}), []int32{1, 2})
		expect(one[[]string](conn, "select $1::text[]", mode, []string{"a,b", `c"d`, ""}), []string{"a,b", `c"d`, ""})
		expect(one[*string](conn, "select $1::text", mode, nil), (*string)(nil))
		document := map[string]any{"a": []any{1.0, nil, "ü"}}
		expect(one[map[string]any](conn, "select $1::jsonb", mode, `{"a": [1, null, "ü"]}`), document)
	}
}

func transactionCommitAndRollback(conn *pgx.Conn) {
	exec(conn, "create table weir_pgx_t (id int primary key, v text)")
	must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		exec(tx, "insert into weir_pgx_t values ($1, 'kept')", 1)
		return nil
	}))
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	must(err)
	exec(tx, "insert into weir_pgx_t values (2, 'gone')")
	must(tx.Rollback(ctx))
	expect(list[int](conn, "select id from weir_pgx_t"), []int{1})
}

func savepoints(conn *pgx.Conn) {
	must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		exec(tx, "insert into weir_pgx_t values (10, 'outer')")
		for _, number := range []int{10, 11} { // the first fails
			inner, err := tx.Begin(ctx)
			must(err)
			if _, err := inner.Exec(ctx, "insert into weir_pgx_t values ($1, 'inner')", number); err != nil {
				expectCode(err, "23505")
				must(inner.Rollback(ctx))
			} else {
				must(inner.Commit(ctx))
			}
		}
		return nil
	}))
	expect(list[int](conn, "select id from weir_pgx_t where id >= 10 order by 1"), []int{10, 11})
}

func preparedAcrossTransactions(conn *pgx.Conn) {
	_, err := conn.Prepare(ctx, "weir double", "select $1::int * 2")
	must(err)
	for number := range 30 {
		must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			expect(one[int](tx, "weir double", number), number*2)
			return nil
		}))
		expect(one[string](conn, "select 'n' || $1::int", number), fmt.Sprint("n", number))
	}
	must(conn.Deallocate(ctx, "weir double"))
	_, err = conn.Prepare(ctx, "weir double", "select $1::int * 3")
	must(err)
	expect(one[int](conn, "weir double", 5), 15)
}

func preparedManyClients(*pgx.Conn) {
	// The same name everywhere, each with a text of its own.
	together(config(), func(number int, own *pgx.Conn) {
		_, err := own.Prepare(ctx, "same", fmt.Sprintf("select $1::int + %d", number*1000))
		must(err)
		for turn := range 40 {
			expect(one[int](own, "same", turn), number*1000+turn)
			must(pgx.BeginFunc(ctx, own, func(tx pgx.Tx) error {
				expect(one[int](tx, "select $1::int", number), number)
				return nil
			}))
		}
	})
}

func unnamedStatementInSeparateRoundTrips(*pgx.Conn) {
	// Parse, Describe, Sync of the unnamed statement; then Bind, Execute, Sync: between the two nothing is open.
	config := config()
	config.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	together(config, func(number int, own *pgx.Conn) {
		for turn := range 30 {
			expect(one[int](own, fmt.Sprintf("select $1::int + %d", number), turn), number+turn)
		}
	})
}

func connectionPool(*pgx.Conn) {
	config, err := pgxpool.ParseConfig(databaseURL)
	must(err)
	config.MaxConns = clients
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	defer pool.Close()
	var group errgroup.Group
	for number := range 500 {
		group.Go(func() error {
			var got int
			err := pool.QueryRow(ctx, "select $1::int", number).Scan(&got)
			if err == nil && got != number {
				err = fmt.Errorf("asked for %d, got %d", number, got)
			}
			return err
		})
	}
	must(group.Wait())
}

func describe(conn *pgx.Conn) {
	described, err := conn.Prepare(ctx, "described", "select $1::int8 as a, 'x'::text as b")
	must(err)
	expect(described.ParamOIDs, []uint32{pgtype.Int8OID})
	expect(described.Fields[0].Name+described.Fields[1].Name, "ab")
	expect(described.Fields[1].DataTypeOID, uint32(pgtype.TextOID))
}

// PostgreSQL goes on failing a prepared statement whose result type has changed; after one such error pgx forgets the
// statement and prepares the same text anew. A pooler that shares statements by their text must not bring the old one back.
func ddlChangesResult(conn *pgx.Conn) {
	exec(conn, "create table weir_pgx_ddl (a int)")
	exec(conn, "insert into weir_pgx_ddl values (1)")
	collect := func(conn querier) ([]map[string]any, error) {
		found, err := conn.Query(ctx, "select * from weir_pgx_ddl where a >= $1", 0)
		must(err)
		return pgx.CollectRows(found, pgx.RowToMap)
	}
	var owns []*pgx.Conn
	var transactions []pgx.Tx
	for range 4 { // all open at once: behind a pooler on four servers
		own := connect(config())
		defer own.Close(ctx)
		tx, err := own.Begin(ctx)
		must(err)
		_, err = collect(tx)
		must(err)
		owns, transactions = append(owns, own), append(transactions, tx)
	}
	for _, tx := range transactions {
		must(tx.Commit(ctx))
	}
	exec(conn, "alter table weir_pgx_ddl add column b text default 'new'")
	for _, own := range owns {
		failures := 0
		for range 6 {
			if found, err := collect(own); err != nil {
				failures++ // PostgreSQL's 0A000; or pgx's own word, when the statement was prepared anew behind its back
			} else {
				expect(found, []map[string]any{{"a": int32(1), "b": "new"}})
			}
		}
		if failures > 1 {
			panic(fmt.Errorf("the statement failed %d times", failures))
		}
	}
}
