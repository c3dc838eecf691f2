//! How large pools are to be.

use super::{Advice, Sure, estimates};
use crate::advise::facts::Facts;
use crate::experiments::curve::POOL_LEAST;
use crate::experiments::sources::FREUND_2020;
use crate::report::figures::number;

/// Of the connections that a server allows, what pools leave to others: maintenance, monitoring, people.
pub const PART_FOR_POOLS: f64 = 0.9;

/// The pools of one server, all together.
pub fn size(facts: &Facts) -> Option<Advice> {
    let busy = estimates::busy_connections(facts)?;
    let room = facts.server.as_ref().and_then(|server| server.room()).map(|room| (room * PART_FOR_POOLS).floor());
    let active = estimates::active_mib(facts);
    let by_memory = estimates::memory_for_connections(facts).map(|memory| (memory.value / active.value).floor());
    let mut value = busy.value.max(POOL_LEAST);
    let mut between = busy.between.map(|(low, high)| (low.max(POOL_LEAST), high.max(POOL_LEAST)));
    let mut reason = format!("{}.", sentence(&busy.how));
    if busy.value < POOL_LEAST {
        reason.push_str(&format!(
            " In a pool of fewer than {} one slow query holds up too many others.",
            number(POOL_LEAST)
        ));
    }
    let mut sources = busy.sources.clone();
    if let Some(room) = room.filter(|room| *room >= 1.0 && *room < value) {
        reason.push_str(&format!(" The server's max_connections has room for {} of them.", number(room)));
        sources.push(super::manual::CONNECTIONS);
        (value, between) = (room, None);
    }
    if let Some(fits) = by_memory.filter(|fits| *fits >= 1.0 && *fits < value) {
        reason.push_str(&format!(" Memory has room for {} at work ({}).", number(fits), active.how));
        sources.extend(active.sources);
        (value, between) = (fits, None);
    }
    if busy.measured {
        reason.push_str(
            " More only wait for one another; clients beyond that wait in the pooler's queue, which costs less.",
        );
        if facts.runs.peak_of_server().is_some_and(|peak| peak.local) {
            reason.push_str(
                " The load came from the server's own machine, where no transaction waits for a network: clients elsewhere whose \
                 transactions have several round trips need more (in the source the peak moved from 48 connections to 500 with a \
                 network between).",
            );
            sources.push(FREUND_2020.into());
        }
    } else {
        reason.push_str(
            " The right number depends on how long the clients' transactions wait for the network, locks and disks: raise it while \
             clients wait in the pooler and the server has CPU to spare, and measure it with weir lab run saturation --script.",
        );
    }
    let value = number(value);
    let sure = match (busy.measured, busy.weak) {
        (true, false) => Sure::Measured,
        (true, true) => Sure::Once,
        _ => Sure::Start,
    };
    let range = between.filter(|(low, high)| low < high);
    let range = range.map_or(String::new(), |(low, high)| {
        format!(" ({} to {}, as far as the run's rounds tell)", number(low), number(high))
    });
    let what = format!("Give all pools of this server together about {value} server connections{range}.");
    Some(
        Advice::new(what, reason, sure)
            .set("default_pool_size", format!("{value}, divided by the number of pools"))
            .from(sources),
    )
}

/// With a capital letter.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::facts::MeasuredPeak;
    use crate::advise::rules::samples;

    #[test]
    fn a_pool_is_never_advised_so_small_that_one_query_blocks_it() {
        let mut facts = samples::quiet_server();
        facts.runs.peaks.push(MeasuredPeak { rounds: 1, ..samples::peak("saturation", 2.0, 1.0) });
        let advice = size(&facts).unwrap();
        assert!(advice.what.contains("about 4 server") && advice.sure == Sure::Once, "{advice:?}");
    }

    #[test]
    fn a_pool_is_as_large_as_the_peak_and_no_larger_than_the_server_allows() {
        assert_eq!(size(&Facts::default()), None);
        let mut facts = samples::quiet_server();
        let advice = size(&facts).unwrap();
        assert!(advice.sure == Sure::Start && advice.what.contains("about 31 server"), "{advice:?}");
        facts.runs.peaks.push(samples::peak("saturation", 24.0, 20.0));
        let advice = size(&facts).unwrap();
        assert!(advice.sure == Sure::Measured && advice.what.contains("about 20 server"), "{advice:?}");
        facts.runs.peaks[0].between = Some((17.0, 31.0));
        assert!(size(&facts).unwrap().what.contains("about 20 server connections (17 to 31"), "{advice:?}");
        facts.runs.peaks[0].quick = true;
        assert_eq!(size(&facts).unwrap().sure, Sure::Once, "quick is not sure");
        facts.server.as_mut().unwrap().settings.max_connections = Some(13.0);
        let advice = size(&facts).unwrap();
        assert!(advice.what.contains("about 9 server") && advice.reason.contains("has room for 9"), "{advice:?}");
        facts.machine.memory_mib = Some(4_400.0);
        let advice = size(&facts).unwrap();
        assert!(advice.what.contains("about 2 server"), "{advice:?}");
    }
}
