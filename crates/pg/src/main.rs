//! `weir-pg MAJOR [SETTING...]`: one throw-away PostgreSQL for a script, until the script kills it.
//! `weir-pg fetch MAJOR`: only sees to it that its programs are here.
//!
//! The first prints what a shell can `eval`, then waits. However it is ended, its guard stops PostgreSQL and removes the data.

use std::io::Write;
use std::process::ExitCode;

use weir_pg::{Cluster, Installation, Options, Result};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let only_fetch = arguments.next_if_eq("fetch").is_some();
    let Some(major) = arguments.next().and_then(|major| major.parse().ok()) else {
        eprintln!("usage: weir-pg MAJOR ['max_connections = 50' ...], or weir-pg fetch MAJOR");
        return ExitCode::from(2);
    };
    let done = if only_fetch { fetch(major).map(drop) } else { serve(major, arguments.collect()) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-pg: {error}");
            ExitCode::FAILURE
        }
    }
}

fn fetch(major: u32) -> Result<Installation> {
    Installation::of_major(major, &|line| eprintln!("weir-pg: {line}"))
}

fn serve(major: u32, settings: Vec<String>) -> Result<()> {
    let installation = fetch(major)?;
    let options = Options { settings, ..Options::default() };
    let cluster = Cluster::start(&installation, options)?;
    let text = format!(
        "PG_VERSION={}\nPG_PORT={}\nPG_SOCKET_DIR={}\nPG_PID={}\nPG_DATA={}\nPG_LOG={}\n",
        installation.version(),
        cluster.port(),
        cluster.socket_dir().display(),
        cluster.pid().unwrap_or_default(),
        cluster.data_dir().display(),
        cluster.log().display(),
    );
    if std::io::stdout().write_all(text.as_bytes()).is_err() {
        // Nobody can use what nobody was told of.
        return Ok(());
    }
    loop {
        std::thread::park();
    }
}
