//! What a tokio-postgres application does, as checks against DATABASE_URL: the harness and the list of checks.
//! Owns the tables named weir_tokio_*. Knows nothing of poolers, except that nothing here needs what transaction
//! pooling loses. WEIR_DRIVERS_DIRECT=1 says that the other end is PostgreSQL itself (see `ddl_changes_result`).

mod statements;
mod streams;

use std::env;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Client, Config, NoTls};

type Outcome<T = ()> = Result<T, Box<dyn StdError + Send + Sync>>;
type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

const CHECK_LIMIT: Duration = Duration::from_secs(40);
const CLIENTS: i32 = 24;
const ROWS: i32 = 100_000;
const TOTAL: i64 = ROWS as i64 * (ROWS as i64 - 1) / 2;

fn config() -> Outcome<Config> {
    let mut config: Config = env::var("DATABASE_URL")?.parse()?;
    config.connect_timeout(Duration::from_secs(20));
    Ok(config)
}

async fn connect_with(config: &Config) -> Outcome<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn connect() -> Outcome<Client> {
    connect_with(&config()?).await
}

fn expect<T: PartialEq<U> + Debug, U: Debug>(got: T, wanted: U) -> Outcome {
    if got == wanted {
        return Ok(());
    }
    Err(format!("expected {wanted:.200?}, got {got:.200?}").into())
}

fn expect_code<T>(result: Result<T, tokio_postgres::Error>, code: &SqlState) -> Outcome {
    match result {
        Ok(_) => Err(format!("expected SQLSTATE {}, got no error", code.code()).into()),
        Err(error) if error.code() == Some(code) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn one<T: FromSqlOwned>(client: &Client, query: &str, parameters: Parameters<'_>) -> Outcome<T> {
    Ok(client.query_one(query, parameters).await?.try_get(0)?)
}

async fn usable(client: &Client) -> Outcome {
    expect(one::<i32>(client, "select $1::int + 1", &[&41]).await?, 42)
}

async fn clean() -> Outcome {
    let tables = "weir_tokio_t, weir_tokio_ddl, weir_tokio_copy, weir_tokio_pipeline, weir_tokio_many";
    Ok(connect().await?.batch_execute(&format!("drop table if exists {tables}")).await?)
}

/// The text of an error and of all its causes, on one line: tokio-postgres says only "db error" by itself.
fn explain(error: &dyn StdError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text.replace('\n', " ")
}

async fn within_limit(check: impl Future<Output = Outcome>) -> Outcome {
    tokio::time::timeout(CHECK_LIMIT, check).await.map_err(|_| format!("did not end within {CHECK_LIMIT:?}"))?
}

macro_rules! run {
    ($failed:ident, $($module:ident::$check:ident),* $(,)?) => {
        $(match within_limit(async { $module::$check(connect().await?).await }).await {
            Ok(()) => println!("ok {}", stringify!($check)),
            Err(error) => {
                $failed = true;
                println!("FAILED {}: {}", stringify!($check), explain(error.as_ref()));
            }
        })*
    };
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut failed = false;
    if let Err(error) = clean().await {
        println!("FAILED connect: {}", explain(error.as_ref()));
        return ExitCode::FAILURE;
    }
    run!(
        failed,
        statements::simple_query,
        statements::parameter_types,
        statements::transaction_commit_and_rollback,
        statements::savepoints,
        statements::prepared_across_transactions,
        statements::prepared_many_clients,
        statements::describe,
        statements::ddl_changes_result,
        statements::errors_and_recovery,
        statements::pipeline,
        statements::pipeline_with_error,
        statements::portal_with_row_limit,
        statements::many_statements_and_empty_query,
        streams::copy_in_and_out,
        streams::copy_failing,
        streams::large_values,
        streams::cancel,
        streams::notices,
        streams::startup_parameters,
        streams::close_in_transaction,
    );
    if let Err(error) = clean().await {
        println!("FAILED clean: {}", explain(error.as_ref()));
        failed = true;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
