//! Memory: of connections at work, of their queries, and of their page tables.

use super::pool::sentence;
use super::{Advice, Sure, estimates, look, manual};
use crate::advise::facts::Facts;
use crate::experiments::sources::{FREUND_2020, MICROSOFT_2026};
use crate::report::figures::number;

/// A page of 4 KiB has an entry of 8 bytes in each process that touched it.
const PAGE_TABLE_PART: f64 = 8.0 / 4096.0;
/// Less is not worth a change of the system's settings.
const PAGE_TABLES_MIB_MIN: f64 = 1024.0;
/// Less than this is no reason to change `work_mem`, MiB per second.
const SPILL_MIB_MIN: f64 = 1.0;

/// Whether all connections could work at once.
pub fn active(facts: &Facts) -> Option<Advice> {
    let room = facts.server.as_ref()?.room()?;
    let (memory, each) = (estimates::memory_for_connections(facts)?, estimates::active_mib(facts));
    let fits = (memory.value / each.value).floor();
    if fits >= room {
        return None;
    }
    let what = format!("Let no more than about {} connections work at once.", number(fits.max(1.0)));
    let reason = format!(
        "{}: {}. max_connections lets {} in, which would take {} if all of them worked at once; a server without memory ends with errors or is \
         ended by the system. A pooler's pools bound how many work at once, whatever the number of clients; a smaller work_mem makes room, \
         too.",
        sentence(&memory.how),
        each.how,
        number(room),
        estimates::size(room * each.value)
    );
    let advice = Advice::new(what, reason, Sure::Computed)
        .set("default_pool_size", format!("at most {}, all pools together", number(fits.max(1.0))));
    Some(advice.from(memory.sources).from(each.sources).from([MICROSOFT_2026.into()]))
}

/// Queries that spill to disk, and room for more.
pub fn work_mem(facts: &Facts) -> Option<Advice> {
    let server = facts.server.as_ref()?;
    let spilled = server.rates.temporary_mib.filter(|rate| *rate >= SPILL_MIB_MIN)?;
    let now = server.settings.work_mem_mib?;
    let seen = format!(
        "Queries wrote {} of temporary files per second: their sorts and hashes did not fit into work_mem ({} MiB).",
        estimates::size(spilled),
        number(now)
    );
    let sources = [manual::MEMORY, FREUND_2020.into()].into_iter().chain(look(facts));
    let at_work = estimates::busy_connections(facts)
        .map_or(0.0, |busy| busy.value)
        .max(server.most(|moment| moment.active))
        .max(1.0);
    let uses = estimates::WORK_MEM_USES * server.settings.hash_mem_multiplier.max(1.0);
    let Some(memory) = estimates::memory_for_connections(facts) else {
        let what = "A larger work_mem would spare these queries the disk, if the machine's memory has room.";
        let reason = format!("{seen} How much memory the machine has is not known here (--memory-gib).");
        return Some(Advice::new(what, reason, Sure::Seen).from(sources));
    };
    let room = ((memory.value / at_work - estimates::idle_mib(facts).value) / uses).floor();
    let counted = format!(
        "{}; {} connections at work that use it {} times each leave {} MiB for it.",
        sentence(&memory.how),
        number(at_work),
        number(uses),
        number(room.max(0.0))
    );
    if room >= 2.0 * now {
        let value = (2.0 * now).floor();
        let what = "Double work_mem, for the users or databases that need it, and look again.";
        let reason = format!("{seen} {counted} A query may use it several times.");
        return Some(Advice::new(what, reason, Sure::Computed).set("work_mem", format!("{value:.0}MB")).from(sources));
    }
    let what = "Fewer connections at work before a larger work_mem: memory has no room for both.";
    Some(Advice::new(what, format!("{seen} {counted}"), Sure::Computed).from(sources))
}

/// Page tables that huge pages would spare.
pub fn huge_pages(facts: &Facts) -> Option<Advice> {
    let server = facts.server.as_ref()?;
    let buffers = server.settings.shared_buffers_mib?;
    let state = server.settings.huge_pages.as_deref()?;
    // `try` does not say what came of it; version 17 and later do.
    if state != "off" {
        return None;
    }
    let open = server.most(|moment| moment.open);
    let tables = buffers * PAGE_TABLE_PART * open;
    if tables < PAGE_TABLES_MIB_MIN {
        return None;
    }
    let what = "Set huge pages aside for the shared buffers.";
    let reason = format!(
        "huge_pages is off. With pages of 4 KiB each connection that has touched all of the {} of shared buffers holds {} of page tables, \
         {} for the {} that were open. With huge pages a connection costs below 2 MiB.",
        estimates::size(buffers),
        estimates::size(buffers * PAGE_TABLE_PART),
        estimates::size(tables),
        number(open)
    );
    let advice = Advice::new(what, reason, Sure::Computed).set("huge_pages", "try, with vm.nr_hugepages of the system");
    Some(advice.from([manual::HUGE_PAGES, FREUND_2020.into()]).from(look(facts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::rules::samples;

    #[test]
    fn memory_bounds_how_many_work_at_once() {
        let mut facts = samples::quiet_server();
        assert_eq!(active(&facts), None, "97 times 19 MiB fit into 6 GiB");
        facts.server.as_mut().unwrap().settings.work_mem_mib = Some(256.0);
        let advice = active(&facts).unwrap();
        assert!(advice.what.contains("about 5 connections"), "{advice:?}");
        assert!(advice.reason.contains("work_mem (256 MiB, for hashes times 2) twice"), "{advice:?}");
        facts.machine.memory_mib = None;
        assert_eq!(active(&facts), None, "without memory nothing is known");
    }

    #[test]
    fn spilling_queries_want_work_mem_where_there_is_room() {
        let mut facts = samples::quiet_server();
        assert_eq!(work_mem(&facts), None);
        facts.server.as_mut().unwrap().rates.temporary_mib = Some(30.0);
        assert_eq!(work_mem(&facts).unwrap().set.unwrap().value, "8MB");
        facts.server.as_mut().unwrap().settings.work_mem_mib = Some(64.0);
        assert!(work_mem(&facts).unwrap().what.starts_with("Fewer connections"));
        facts.machine.memory_mib = None;
        assert!(work_mem(&facts).unwrap().reason.contains("--memory-gib"));
    }

    #[test]
    fn huge_pages_matter_with_large_buffers_and_many_connections() {
        let mut facts = samples::crowded_server(16);
        assert_eq!(huge_pages(&facts), None, "on try nobody knows");
        let settings = &mut facts.server.as_mut().unwrap().settings;
        (settings.huge_pages, settings.shared_buffers_mib) = (Some("off".to_owned()), Some(16_384.0));
        assert!(huge_pages(&facts).unwrap().reason.contains("holds 32 MiB of page tables, 14.1 GiB for the 450"));
        facts.server.as_mut().unwrap().settings.shared_buffers_mib = Some(128.0);
        assert_eq!(huge_pages(&facts), None);
    }
}
