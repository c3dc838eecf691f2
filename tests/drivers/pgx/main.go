// What a pgx application does, as checks against DATABASE_URL.
//
// Owns the tables named weir_pgx_*. Knows nothing of poolers, except that nothing here needs what transaction
// pooling loses.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
)

const (
	checkLimit = 40 * time.Second
	clients    = 24
	rows       = 100_000
	total      = int64(rows) * (rows - 1) / 2
)

var (
	ctx         = context.Background()
	databaseURL = os.Getenv("DATABASE_URL")
)

type check struct {
	name string
	run  func(*pgx.Conn)
}

// A failed expectation ends its check: `outcome` recovers and main goes on with the next one.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Errorf("expected %s, got %s", short(wanted), short(got)))
	}
}

func short(value any) string { return fmt.Sprintf("%.200s", fmt.Sprint(value)) }

func expectCode(err error, code string) {
	var failure *pgconn.PgError
	if !errors.As(err, &failure) || failure.Code != code {
		panic(fmt.Errorf("expected SQLSTATE %s, got %v", code, err))
	}
}

func config() *pgx.ConnConfig {
	config, err := pgx.ParseConfig(databaseURL)
	must(err)
	config.ConnectTimeout = 20 * time.Second
	return config
}

func connect(config *pgx.ConnConfig) *pgx.Conn {
	conn, err := pgx.ConnectConfig(ctx, config)
	must(err)
	return conn
}

type querier interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}

func exec(conn querier, sql string, arguments ...any) {
	_, err := conn.Exec(ctx, sql, arguments...)
	must(err)
}

func failing(conn querier, code, sql string, arguments ...any) {
	_, err := conn.Exec(ctx, sql, arguments...)
	expectCode(err, code)
}

func list[T any](conn querier, sql string, arguments ...any) []T {
	found, err := conn.Query(ctx, sql, arguments...)
	must(err)
	values, err := pgx.CollectRows(found, pgx.RowTo[T])
	must(err)
	return values
}

func one[T any](conn querier, sql string, arguments ...any) T {
	return list[T](conn, sql, arguments...)[0]
}
func usable(conn querier) { expect(one[int](conn, "select $1::int + 1", 41), 42) }

// Runs work on many connections at once; a panic in one of them becomes its error.
func together(config *pgx.ConnConfig, work func(int, *pgx.Conn)) {
	var group errgroup.Group
	for number := range clients {
		group.Go(func() (err error) {
			defer func() {
				if why := recover(); why != nil {
					err = fmt.Errorf("client %d: %v", number, why)
				}
			}()
			own := connect(config)
			defer own.Close(ctx)
			work(number, own)
			return nil
		})
	}
	must(group.Wait())
}

func clean() {
	conn := connect(config())
	defer conn.Close(ctx)
	exec(conn, "drop table if exists weir_pgx_t, weir_pgx_ddl, weir_pgx_copy, weir_pgx_batch, weir_pgx_many")
}

func outcome(check check) (why any) {
	defer func() { why = recover() }()
	conn := connect(config())
	defer conn.Close(ctx)
	check.run(conn)
	return nil
}

func passes(check check) bool {
	ended := make(chan any, 1)
	go func() { ended <- outcome(check) }()
	var why any
	select {
	case why = <-ended:
	case <-time.After(checkLimit):
		why = fmt.Sprint("did not end within ", checkLimit)
	}
	if why != nil {
		fmt.Printf("FAILED %s: %s\n", check.name, strings.Join(strings.Fields(fmt.Sprint(why)), " "))
		return false
	}
	fmt.Println("ok", check.name)
	return true
}

func main() {
	checks := []check{
		{"simpleQuery", simpleQuery}, {"parameterTypes", parameterTypes},
		{"transactionCommitAndRollback", transactionCommitAndRollback}, {"savepoints", savepoints},
		{"preparedAcrossTransactions", preparedAcrossTransactions}, {"preparedManyClients", preparedManyClients},
		{"unnamedStatementInSeparateRoundTrips", unnamedStatementInSeparateRoundTrips},
		{"connectionPool", connectionPool}, {"describe", describe}, {"ddlChangesResult", ddlChangesResult},
		{"copyInAndOut", copyInAndOut}, {"copyFailing", copyFailing}, {"largeValues", largeValues}, {"cancel", cancel},
		{"errorsAndRecovery", errorsAndRecovery}, {"batch", batch}, {"batchWithError", batchWithError},
		{"pipeline", pipeline}, {"cursorWithFetchSize", cursorWithFetchSize},
		{"manyStatementsAndEmptyQuery", manyStatementsAndEmptyQuery}, {"notices", notices},
		{"startupParameters", startupParameters}, {"closeInTransaction", closeInTransaction},
	}
	failed := false
	clean()
	for _, check := range checks {
		failed = !passes(check) || failed
	}
	clean()
	if failed {
		os.Exit(1)
	}
}
