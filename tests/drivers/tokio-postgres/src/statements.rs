//! Queries, parameters, transactions, prepared statements, pipelines and portals.


use futures_util::future::{join_all, try_join_all};
use rust_decimal::Decimal;
use serde_json::json;
use time::macros::datetime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::{CLIENTS, Outcome, connect, expect, expect_code, one, usable};

pub async fn simple_query(client: Client) -> Outcome {
    let messages = client.simple_query("select 1, 'two', null").await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((row.get(0), row.get(1), row.get(2))),
        _ => None,
    });
    expect(row, Some((Some("1"), Some("two"), None::<&str>)))
}

pub async fn parameter_types(client: Client) -> Outcome {
    let (text, bytes) = ("grüße \u{1f418}".to_owned(), (0..=255).collect::<Vec<u8>>());
    let number: Decimal = "1234567890123456.123456789".parse()?;
    let when = datetime!(2024-02-29 12:34:56.789 UTC);
    let document = json!({"a": [1, null, {"b": "ü"}]});
    let (numbers, words) = (vec![Some(1), None, Some(3)], vec!["a,b".to_owned(), "c\"d".to_owned(), String::new()]);
    expect(one::<i32>(&client, "select $1::int", &[&-7]).await?, -7)?;
    expect(one::<i64>(&client, "select $1::bigint", &[&(1_i64 << 62)]).await?, 1_i64 << 62)?;
    expect(one::<String>(&client, "select $1::text", &[&text]).await?, text)?;
    expect(one::<Vec<u8>>(&client, "select $1::bytea", &[&bytes]).await?, bytes)?;
    expect(one::<Decimal>(&client, "select $1::numeric", &[&number]).await?, number)?;
    expect(one::<time::OffsetDateTime>(&client, "select $1::timestamptz", &[&when]).await?, when)?;
    expect(one::<serde_json::Value>(&client, "select $1::jsonb", &[&document]).await?, document)?;
    expect(one::<Vec<Option<i32>>>(&client, "select $1::int[]", &[&numbers]).await?, numbers)?;
    expect(one::<Vec<String>>(&client, "select $1::text[]", &[&words]).await?, words)?;
    expect(one::<Option<String>>(&client, "select $1::text", &[&None::<String>]).await?, None::<String>)?;
    let row = client.query_typed("select $1 || 'x', $2 + 1", &[(&"t", Type::TEXT), (&1, Type::INT4)]).await?;
    expect((row[0].get::<_, String>(0), row[0].get::<_, i32>(1)), ("tx".to_owned(), 2))
}

pub async fn transaction_commit_and_rollback(mut client: Client) -> Outcome {
    client.batch_execute("create table weir_tokio_t (id int primary key, v text)").await?;
    let transaction = client.transaction().await?;
    transaction.execute("insert into weir_tokio_t values ($1, 'kept')", &[&1]).await?;
    transaction.commit().await?;
    let transaction = client.transaction().await?;
    transaction.execute("insert into weir_tokio_t values ($1, 'gone')", &[&2]).await?;
    drop(transaction); // rolls back
    expect(one::<i64>(&client, "select sum(id) from weir_tokio_t", &[]).await?, 1)
}

pub async fn savepoints(mut client: Client) -> Outcome {
    let mut outer = client.transaction().await?;
    outer.execute("insert into weir_tokio_t values (10, 'outer')", &[]).await?;
    let inner = outer.savepoint("inner_part").await?;
    expect_code(inner.execute("insert into weir_tokio_t values (10, 'x')", &[]).await, &SqlState::UNIQUE_VIOLATION)?;
    inner.rollback().await?;
    let inner = outer.savepoint("inner_part").await?;
    inner.execute("insert into weir_tokio_t values (11, 'inner')", &[]).await?;
    inner.commit().await?;
    outer.commit().await?;
    expect(one::<i64>(&client, "select sum(id) from weir_tokio_t where id >= 10", &[]).await?, 21)
}

pub async fn prepared_across_transactions(mut client: Client) -> Outcome {
    let double = client.prepare("select $1::int * 2").await?;
    let name = client.prepare("select 'n' || $1::int").await?;
    for number in 0..30 {
        let transaction = client.transaction().await?;
        expect(transaction.query_one(&double, &[&number]).await?.get::<_, i32>(0), number * 2)?;
        transaction.commit().await?;
        expect(client.query_one(&name, &[&number]).await?.get::<_, String>(0), format!("n{number}"))?;
    }
    Ok(())
}

pub async fn prepared_many_clients(_client: Client) -> Outcome {
    try_join_all((0..CLIENTS).map(one_of_many_clients)).await.map(drop)
}

async fn one_of_many_clients(number: i32) -> Outcome {
    let mut own = connect().await?;
    let own_text = own.prepare(&format!("select $1::int + {}", number * 1000)).await?;
    let same_text = own.prepare("select $1::int").await?;
    for turn in 0..40 {
        expect(own.query_one(&own_text, &[&turn]).await?.get::<_, i32>(0), number * 1000 + turn)?;
        let transaction = own.transaction().await?;
        expect(transaction.query_one(&same_text, &[&number]).await?.get::<_, i32>(0), number)?;
        transaction.commit().await?;
    }
    Ok(())
}

pub async fn describe(client: Client) -> Outcome {
    let statement = client.prepare("select $1::int8 as a, 'x'::text as b").await?;
    expect(statement.params(), [Type::INT8])?;
    let columns: Vec<_> = statement.columns().iter().map(|column| (column.name(), column.type_().clone())).collect();
    expect(columns, vec![("a", Type::INT8), ("b", Type::TEXT)])
}

/// PostgreSQL goes on failing a prepared statement whose result type has changed; a pooler has to prepare it again.
/// tokio-postgres keeps the columns of its own first Describe: `a` is all that it can read from the statement it holds.
pub async fn ddl_changes_result(client: Client) -> Outcome {
    client.batch_execute("create table weir_tokio_ddl (a int); insert into weir_tokio_ddl values (1)").await?;
    let query = "select * from weir_tokio_ddl where a >= $1";
    let mut clients = Vec::new();
    for _ in 0..4 {
        let own = connect().await?; // all open at once: behind a pooler on four servers
        own.batch_execute("begin").await?;
        let statement = own.prepare(query).await?;
        expect(own.query_one(&statement, &[&0]).await?.get::<_, i32>(0), 1)?;
        clients.push((own, statement));
    }
    for (own, _) in &clients {
        own.batch_execute("commit").await?;
    }
    client.batch_execute("alter table weir_tokio_ddl add column b text default 'new'").await?;
    for (own, mut statement) in clients {
        let mut failures = 0;
        for _ in 0..6 {
            match own.query_one(&statement, &[&0]).await {
                Ok(row) => expect(row.try_get::<_, i32>(0)?, 1)?,
                failure => {
                    expect_code(failure, &SqlState::FEATURE_NOT_SUPPORTED)?;
                    failures += 1;
                }
            }
            // A statement of this driver knows its columns: after the error only a new one can read the new rows.
            if failures == 1 {
                statement = own.prepare(query).await?;
            }
        }
        let anew = own.query_one(query, &[&0]).await?; // prepared under a name of its own
        expect((anew.get::<_, i32>(0), anew.get::<_, &str>(1)), (1, "new"))?;
        if failures > 1 {
            return Err(format!("the statement failed {failures} times").into());
        }
    }
    Ok(())
}

pub async fn errors_and_recovery(mut client: Client) -> Outcome {
    expect_code(client.batch_execute("select 1/0").await, &SqlState::DIVISION_BY_ZERO)?;
    expect_code(
        client.query("select * from weir_tokio_nowhere where a = $1", &[&1]).await,
        &SqlState::UNDEFINED_TABLE,
    )?;
    expect_code(client.prepare("selekt $1").await, &SqlState::SYNTAX_ERROR)?;
    usable(&client).await?;
    let transaction = client.transaction().await?;
    expect_code(transaction.query("select 1/$1::int", &[&0]).await, &SqlState::DIVISION_BY_ZERO)?;
    expect_code(transaction.query("select 1", &[]).await, &SqlState::IN_FAILED_SQL_TRANSACTION)?;
    transaction.rollback().await?;
    usable(&client).await
}

pub async fn pipeline(client: Client) -> Outcome {
    // Futures that are polled together are sent without waiting for each other.
    let statement = client.prepare("select $1::int").await?;
    let numbers: Vec<i32> = (0..300).collect();
    let queries = numbers.iter().map(|number| async { client.query_one(&statement, &[number]).await });
    let rows = try_join_all(queries).await?;
    expect(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), numbers)?;
    // Without a statement of its own each query prepares, executes and closes one, all interleaved.
    let texts: Vec<(i32, String)> = (0..50).map(|number| (number, number.to_string())).collect();
    let queries = texts
        .iter()
        .map(|(number, text)| async { client.query_one("select $1::int, $2::text", &[number, text]).await });
    let rows = try_join_all(queries).await?;
    expect(rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(i32, String)>>(), texts)
}

pub async fn pipeline_with_error(client: Client) -> Outcome {
    client.batch_execute("create table weir_tokio_pipeline (id int)").await?;
    let insert = client.prepare("insert into weir_tokio_pipeline values (100 / $1::int)").await?;
    let divisors: Vec<i32> = (0..100).map(|number| if number == 50 { 0 } else { 1 }).collect();
    let queries = divisors.iter().map(|divisor| async { client.execute(&insert, &[divisor]).await });
    for (number, result) in join_all(queries).await.into_iter().enumerate() {
        if number == 50 {
            expect_code(result, &SqlState::DIVISION_BY_ZERO)?;
        } else {
            expect(result?, 1)?;
        }
    }
    expect(one::<i64>(&client, "select count(*) from weir_tokio_pipeline", &[]).await?, 99)
}

pub async fn portal_with_row_limit(mut client: Client) -> Outcome {
    let transaction = client.transaction().await?;
    let portal = transaction.bind("select generate_series(1, $1::int)", &[&1050]).await?;
    let mut numbers = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 100).await?;
        if rows.is_empty() {
            break;
        }
        numbers.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        // Another statement runs while the portal is suspended.
        expect(transaction.query_one("select 1", &[]).await?.get::<_, i32>(0), 1)?;
    }
    expect(numbers, (1..=1050).collect::<Vec<i32>>())?;
    transaction.commit().await?;
    usable(&client).await
}

pub async fn many_statements_and_empty_query(client: Client) -> Outcome {
    let script = "select 1; create table weir_tokio_many (a int); insert into weir_tokio_many values (7); select a from weir_tokio_many";
    let messages = client.simple_query(script).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    expect(rows.collect::<Vec<_>>(), vec!["1", "7"])?;
    for query in ["", ";", "-- nothing"] {
        client.batch_execute(query).await?;
        expect(client.query(query, &[]).await?.len(), 0)?;
    }
    let script = "insert into weir_tokio_many values (8); select 1/0";
    expect_code(client.simple_query(script).await, &SqlState::DIVISION_BY_ZERO)?;
    expect(one::<i64>(&client, "select count(*) from weir_tokio_many", &[]).await?, 1)
}
