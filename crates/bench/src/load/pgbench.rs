//! One run of pgbench against a peer.
//!
//! How it is run and read is not the bench's; does not know what answers on the port.

use anyhow::{Result, bail};

use crate::ground::{Ground, PASSWORD};
use weir_measure::load::pgbench::Manner;
use weir_measure::load::{self, Outcome, Protocol, Script};

const THREADS: usize = 2;
const BLOCK: &str = "\\set aid random(1, 100000 * :scale)
BEGIN;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
END;
";
const TRANSACTIONS_MIN: u32 = 50;

#[derive(Clone, Copy)]
pub struct Load {
    pub mode: Protocol,
    pub clients: usize,
    /// 0: some transactions of each client, to see that it runs.
    pub seconds: u64,
    /// The SELECT in a transaction of its own, as three queries.
    pub block: bool,
    /// One connection per transaction (`-C`).
    pub connect: bool,
    pub tls: bool,
}

/// Runs the load; `look` is called every few milliseconds, and once more after the end. Whatever goes wrong is an error: a figure of
/// the clients that were left would be of another load.
pub fn run(load: Load, port: u16, ground: &Ground, mut look: impl FnMut() -> Result<()>) -> Result<Outcome> {
    let script = if load.block { Script::Text { name: "block", text: BLOCK.to_owned() } } else { Script::SelectOnly };
    let whole = load::Load {
        transactions: (load.seconds == 0).then_some(TRANSACTIONS_MIN),
        connect: load.connect,
        protocol: load.mode,
        threads: Some(THREADS),
        ..load::Load::new(script, load.clients, load.seconds)
    };
    let url = ground.url(port).with("password", PASSWORD);
    let url = if load.tls { url.with("sslmode", "require") } else { url };
    let manner = Manner { scale: ground.scale, ..Manner::default() };
    let outcome = ground.pgbench.run(&whole, &url, manner, |_| look())?;
    if let Some((kind, count)) = outcome.errors.first_key_value() {
        bail!("pgbench failed: {kind} ({count} times)");
    }
    Ok(outcome)
}
