//! COPY, large values, cancels, notices, and what a connection begins and ends with.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt, TryStreamExt, future, pin_mut, stream};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::{Outcome, ROWS, TOTAL, config, connect, connect_with, expect, expect_code, one, usable};

const COPY_IN: &str = "copy weir_tokio_copy from stdin";

/// tokio-postgres sends Sync with the COPY and once more after CopyDone: PostgreSQL ignores the first one while it copies
/// in ("COPY Operations" in the protocol chapter), so that one ReadyForQuery answers both.
pub async fn copy_in_and_out(client: Client) -> Outcome {
    client.batch_execute("create table weir_tokio_copy (id int, v text)").await?;
    let sink = client.copy_in(COPY_IN).await?;
    pin_mut!(sink);
    let mut lines = stream::iter((0..ROWS).map(|number| Ok(Bytes::from(format!("{number}\trow {number}\n")))));
    sink.send_all(&mut lines).await?;
    expect(sink.finish().await?, u64::try_from(ROWS)?)?;
    expect(one::<i64>(&client, "select sum(id) from weir_tokio_copy", &[]).await?, TOTAL)?;
    let chunks: Vec<Bytes> = client.copy_out("copy weir_tokio_copy to stdout").await?.try_collect().await?;
    let text = String::from_utf8(chunks.concat())?;
    let numbers: Result<Vec<i64>, _> = text.lines().map(|line| line.split('\t').next().unwrap_or("").parse()).collect();
    expect(numbers?.iter().sum::<i64>(), TOTAL)
}

pub async fn copy_failing(client: Client) -> Outcome {
    {
        let sink = client.copy_in(COPY_IN).await?;
        pin_mut!(sink);
        for _ in 0..1000 {
            sink.send(Bytes::from_static(b"1\tx\n")).await?;
        }
    } // dropped before it was finished: tokio-postgres sends CopyFail
    usable(&client).await?;
    expect_code(send_bad_data(&client).await, &SqlState::INVALID_TEXT_REPRESENTATION)?;
    usable(&client).await?;
    drop(client.copy_out("copy weir_tokio_copy to stdout").await?); // the rest is read and thrown away
    usable(&client).await?;
    expect(one::<i64>(&client, "select count(*) from weir_tokio_copy", &[]).await?, i64::from(ROWS))
}

async fn send_bad_data(client: &Client) -> Result<u64, tokio_postgres::Error> {
    let sink = client.copy_in(COPY_IN).await?;
    pin_mut!(sink);
    for number in 0..50_000 {
        let line: &[u8] = if number == 2000 { b"bad\tx\n" } else { b"1\tx\n" };
        sink.feed(Bytes::from_static(line)).await?;
    }
    sink.finish().await
}

pub async fn large_values(client: Client) -> Outcome {
    for size in [1 << 20, 20 << 20] {
        let data: Vec<u8> = (0..size).map(|index: usize| (index.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
        expect(one::<Vec<u8>>(&client, "select $1::bytea", &[&data]).await? == data, true)?;
        let text = "ü".repeat(size / 2);
        expect(one::<String>(&client, "select $1::text", &[&text]).await? == text, true)?;
    }
    Ok(())
}

pub async fn cancel(client: Client) -> Outcome {
    let (token, began) = (client.cancel_token(), Instant::now());
    let later = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        token.cancel_query(NoTls).await
    };
    let (slept, cancelled) = future::join(client.batch_execute("select pg_sleep(20)"), later).await;
    cancelled?;
    expect_code(slept, &SqlState::QUERY_CANCELED)?;
    expect(began.elapsed() < Duration::from_secs(10), true)?;
    usable(&client).await
}

pub async fn notices(_client: Client) -> Outcome {
    let (client, mut connection) = config()?.connect(NoTls).await?;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = future::poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message {
                let _ = sender.send(format!("{} {}", notice.severity(), notice.message()));
            }
        }
    });
    client.batch_execute("do $$ begin raise notice 'first'; raise warning 'second'; end $$").await?;
    drop(client);
    let mut seen = Vec::new();
    while let Some(notice) = receiver.recv().await {
        seen.push(notice);
    }
    expect(seen, ["NOTICE first", "WARNING second"])
}

pub async fn startup_parameters(other: Client) -> Outcome {
    let mut config = config()?;
    config.application_name("weir_tokio").options("-c statement_timeout=54321 -c search_path=weir_tokio_schema");
    let own = connect_with(&config).await?;
    for _ in 0..5 {
        expect(one::<String>(&own, "show application_name", &[]).await?, "weir_tokio")?;
        expect(one::<String>(&own, "show statement_timeout", &[]).await?, "54321ms")?;
        expect(one::<String>(&own, "show search_path", &[]).await?, "weir_tokio_schema")?;
        expect(one::<String>(&other, "show statement_timeout", &[]).await? != "54321ms", true)?;
    }
    Ok(())
}

pub async fn close_in_transaction(client: Client) -> Outcome {
    let began = Instant::now();
    for number in 500..508 {
        let own = connect().await?;
        own.batch_execute("begin").await?;
        own.execute("insert into weir_tokio_t values ($1, 'never')", &[&number]).await?;
    } // dropped: tokio-postgres sends Terminate
    let mut fresh = connect().await?;
    let transaction = fresh.transaction().await?;
    transaction.batch_execute("lock table weir_tokio_t in access exclusive mode").await?;
    let left = transaction.query_one("select count(*) from weir_tokio_t where id >= 500", &[]).await?;
    expect(left.get::<_, i64>(0), 0)?;
    transaction.commit().await?;
    expect(began.elapsed() < Duration::from_secs(10), true)?;
    usable(&client).await
}
