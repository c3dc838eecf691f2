//! The PostgreSQL that an experiment needs: started, and filled.
//!
//! Does not know what is measured.

use anyhow::Result;

use super::pooler;
use super::{Needs, Tables};
use crate::run::tools::Tools;
use weir_measure::server::{Server, Wanted};

/// Of the machine's memory, as PostgreSQL's manual advises (chapter 19.4.1), but no more than tables of a lab need: they hold
/// the tables at the usual scales.
const SHARED_BUFFERS_PART: u64 = 4;
const SHARED_BUFFERS_MIB_MAX: u64 = 8192;

/// Of this major, or the newest that can be had.
pub fn start(major: Option<u32>, needs: &Needs, memory_mib: u64) -> Result<Server> {
    let buffers_mib = (memory_mib / SHARED_BUFFERS_PART).clamp(128, SHARED_BUFFERS_MIB_MAX);
    let mut settings = vec![format!("shared_buffers = '{buffers_mib}MB'")];
    if needs.max_connections > 0 {
        settings.push(format!("max_connections = {}", needs.max_connections));
    }
    settings.extend(needs.settings.iter().cloned());
    Server::start(major.map_or(Wanted::Newest, Wanted::Major), None, settings)
}

/// Makes the poolers' roles, and pgbench's tables.
pub fn fill(server: &Server, needs: &Needs, scale: u32, tools: &Tools) -> Result<()> {
    let roles = needs.poolers.iter().map(|kind| format!("create role {} superuser login;\n", pooler::role(*kind)));
    tools.psql.run(&server.url(), &roles.collect::<String>())?;
    if needs.tables == Tables::None {
        return Ok(());
    }
    tools.pgbench.make_tables(&server.url(), scale)?;
    if needs.tables == Tables::PgbenchWithBidIndex {
        tools.psql.run(&server.url(), "create index index_bid on pgbench_accounts (bid); analyze pgbench_accounts;")?;
    }
    Ok(())
}
