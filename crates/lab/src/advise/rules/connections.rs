//! How many connections: what limits first, `max_connections`, and those that are open and idle.

use super::pool::sentence;
use super::{Advice, Cited, Sure, estimates, look, manual, run, waits};
use crate::advise::facts::{Facts, MeasuredLoss, MeasuredPeak, Server};
use crate::experiments::sources::{CYBERTEC_2014, FREUND_2020};
use crate::experiments::words;
use crate::report::figures::number;

/// Nearer to a limit than this is near.
pub const NEAR: f64 = 0.8;
/// Fewer idle connections than this cost nothing that can be told from chance (Freund 2020, one active connection).
const IDLE_MANY: f64 = 100.0;
/// Snapshots no longer look at every connection from this version on.
const SNAPSHOTS_SCALE_SINCE: u32 = 14;
/// Freund 2020, 48 active connections: what is left of the throughput beside so many idle ones.
const LEFT_BESIDE_IDLE: [(f64, f64); 6] = [
    (0.0, 1.0),
    (100.0, 960_847.0 / 1_032_435.0),
    (1_000.0, 902_109.0 / 1_032_435.0),
    (2_500.0, 759_723.0 / 1_032_435.0),
    (5_000.0, 702_680.0 / 1_032_435.0),
    (10_000.0, 521_558.0 / 1_032_435.0),
];
/// Shared memory of each connection allowed: from 16,804 to 21,463 MiB for 99,900 more (Freund 2020).
const ALLOWED_MIB: f64 = (21_463.0 - 16_804.0) / 99_900.0;

/// How many connections may work, and how that is known.
struct Limit {
    most: f64,
    name: &'static str,
    how: String,
    sources: Vec<Cited>,
    sure: Sure,
}

/// How many connections at work throughput, memory and `max_connections` allow, the smallest first.
pub fn limits_first(facts: &Facts) -> Option<Advice> {
    let limits = [by_throughput(facts), by_memory(facts), by_setting(facts)];
    let mut limits: Vec<Limit> = limits.into_iter().flatten().collect();
    limits.sort_by(|one, other| one.most.total_cmp(&other.most));
    let [first, _, ..] = &limits[..] else { return None };
    let what = format!("Of connections at work, {} limits first, at about {}.", first.name, number(first.most));
    let reasons: Vec<String> = limits
        .iter()
        .map(|limit| format!("{} allows about {}: {}.", start(limit.name), number(limit.most), limit.how))
        .collect();
    let advice = Advice::new(what, reasons.join(" "), first.sure);
    Some(advice.from(limits.into_iter().flat_map(|limit| limit.sources)))
}

/// Of a measured peak only the figures tell what limits there; published ones are per core.
fn by_throughput(facts: &Facts) -> Option<Limit> {
    let busy = estimates::busy_connections(facts)?;
    let (name, how, sure) = if let Some(peak) = facts.runs.peak_of_server() {
        let (name, at_peak) = limit_at(peak);
        (name, format!("{}. {at_peak}", busy.how), Sure::Measured)
    } else {
        ("the processor", estimates::published_per_core(), Sure::Start)
    };
    Some(Limit { most: busy.value, name, how, sources: busy.sources, sure })
}

/// What limits at a peak, and why that is said.
fn limit_at(peak: &MeasuredPeak) -> (&'static str, String) {
    match peak.busy_percent.filter(|_| peak.local).map(f64::round) {
        Some(busy) if busy >= waits::PROCESSOR_PERCENT => {
            let text = format!("At that peak the machine, which ran the load as well, was {} % busy", number(busy));
            ("the processor", text)
        }
        Some(busy) => {
            let text = format!(
                "At that peak the machine was only {} % busy: locks, disks or the clients may be what limits, rather than its processor",
                number(busy)
            );
            ("throughput", text)
        }
        None => {
            let text = "How busy the server's processor was at that peak is not known: what limits may be the processor, locks, disks or \
                        the network";
            ("throughput", text.to_owned())
        }
    }
}

fn by_memory(facts: &Facts) -> Option<Limit> {
    let (memory, active) = (estimates::memory_for_connections(facts)?, estimates::active_mib(facts));
    let how = format!("{}, at {}", memory.how, active.how);
    let sources = memory.sources.into_iter().chain(active.sources).collect();
    Some(Limit { most: (memory.value / active.value).floor(), name: "memory", how, sources, sure: Sure::Start })
}

fn by_setting(facts: &Facts) -> Option<Limit> {
    let most = facts.server.as_ref().and_then(Server::room)?;
    let how = "max_connections without the reserved ones".to_owned();
    Some(Limit { most, name: "max_connections", how, sources: vec![manual::CONNECTIONS], sure: Sure::Start })
}

/// A setting's name stays as it is written.
fn start(name: &str) -> String {
    if name.contains('_') { name.to_owned() } else { sentence(name) }
}

/// Whether the setting is to change.
pub fn max_connections(facts: &Facts) -> Option<Advice> {
    let Some(server) = &facts.server else { return from_run(facts) };
    let allowed = server.settings.max_connections?;
    let idle = estimates::idle_mib(facts);
    let open = server.most(|moment| moment.open);
    if let Some(memory) = estimates::memory_for_connections(facts)
        && allowed * idle.value > memory.value
        && memory.value > 0.0
    {
        let fits = (memory.value / idle.value).floor().max(1.0);
        let what = format!("Lower max_connections from {} to about {}.", number(allowed), number(fits));
        let reason = format!(
            "{}: {}. So many connections as are allowed would take {} even if all of them did nothing. At most {} were open.",
            sentence(&memory.how),
            idle.how,
            estimates::size(allowed * idle.value),
            number(open)
        );
        let advice = Advice::new(what, reason, Sure::Computed).set("max_connections", number(fits).replace(',', ""));
        return Some(advice.from(memory.sources).from(idle.sources));
    }
    if open >= NEAR * server.room()? {
        return None;
    }
    let mut reason = format!(
        "At most {} open, and {} are allowed. The setting costs little by itself: throughput stayed flat however high it was, and each \
         connection allowed takes about {} KiB of shared memory, {} for all of yours. What costs is connections that are open.",
        words::of(open, "connection was", "connections were"),
        number(allowed),
        number(ALLOWED_MIB * 1024.0),
        estimates::size(ALLOWED_MIB * allowed)
    );
    let mut sources: Vec<Cited> = vec![CYBERTEC_2014.into(), FREUND_2020.into()];
    if let Some(measured) = &facts.runs.allowed {
        reason.push_str(&measured_with_allowed(measured));
        sources.push(run(facts, &measured.experiment, &measured.date));
    }
    let what = format!("Leave max_connections at {}: it is not what limits.", number(allowed));
    Some(Advice::new(what, reason, Sure::Seen).from(sources).from(look(facts)))
}

fn measured_with_allowed(measured: &MeasuredLoss) -> String {
    let allowed = format!("with {} allowed", number(measured.connections));
    format!(" Measured: {}", estimates::kept(measured, &allowed))
}

/// Without a server to look at: what the pools need.
fn from_run(facts: &Facts) -> Option<Advice> {
    let busy = estimates::busy_connections(facts).filter(|busy| busy.measured)?;
    let least = (busy.value / super::pool::PART_FOR_POOLS).ceil() + RESERVED;
    let mut reason = format!(
        "The pools need about {}, a tenth more leaves room for maintenance and monitoring, and {} are reserved for superusers: {} in all. \
         A larger setting costs little by itself.",
        number(busy.value),
        number(RESERVED),
        number(least)
    );
    if let Some(measured) = &facts.runs.allowed {
        reason.push_str(&measured_with_allowed(measured));
    }
    let sources = [manual::CONNECTIONS, CYBERTEC_2014.into()];
    let measured = facts.runs.allowed.as_ref().map(|measured| run(facts, &measured.experiment, &measured.date));
    if least <= DEFAULT {
        let what = "The default max_connections of 100 is enough, if all clients come through a pooler.";
        return Some(Advice::new(what, reason, Sure::Measured).from(busy.sources).from(sources).from(measured));
    }
    let what = format!("Set max_connections to {} or more, if all clients come through a pooler.", number(least));
    let advice =
        Advice::new(what, reason, Sure::Measured).set("max_connections", format!("at least {}", number(least)));
    Some(advice.from(busy.sources).from(sources).from(measured))
}

/// The default of `max_connections`.
const DEFAULT: f64 = 100.0;
/// The default of `superuser_reserved_connections`.
const RESERVED: f64 = 3.0;

/// Clients will soon be refused.
pub fn near_limit(facts: &Facts) -> Option<Advice> {
    let server = facts.server.as_ref()?;
    let (room, open) = (server.room()?, server.most(|moment| moment.open));
    if open < NEAR * room {
        return None;
    }
    let (idle, active) = (server.typical(|moment| moment.idle), server.typical(|moment| moment.active));
    let seen = format!(
        "{} of the {} connections for clients were open, {} of them idle and {} at work.",
        number(open),
        number(room),
        number(idle),
        number(active)
    );
    let sources: Vec<Cited> = look(facts).into_iter().chain([manual::CONNECTIONS]).collect();
    if server.hidden <= 0.0 && idle >= open / 2.0 {
        let what =
            "Put a pooler in transaction mode before this server: connections limit it, and most of them do nothing.";
        let reason = format!("{seen} A pooler needs about as many as are at work, and lets the clients keep theirs.");
        return Some(Advice::new(what, reason, Sure::Seen).from(sources).from([FREUND_2020.into()]));
    }
    let what = "Fewer clients or a higher max_connections: the server will soon refuse clients.";
    let reason = format!(
        "{seen} The setting by itself costs little, but each connection that opens takes memory, and beyond what keeps the processor \
         busy they only wait for one another."
    );
    let doubled = server.settings.max_connections? * 2.0;
    let fits = estimates::memory_for_connections(facts)
        .is_some_and(|memory| memory.value >= doubled * estimates::idle_mib(facts).value);
    let advice = Advice::new(what, reason, Sure::Seen).from(sources).from([CYBERTEC_2014.into(), FREUND_2020.into()]);
    Some(if fits { advice.set("max_connections", number(doubled).replace(',', "")) } else { advice })
}

/// What the idle connections cost those that work.
pub fn idle(facts: &Facts) -> Option<Advice> {
    let server = facts.server.as_ref()?;
    let idle = server.typical(|moment| moment.idle);
    if idle < IDLE_MANY {
        return None;
    }
    let each = estimates::idle_mib(facts);
    let held = format!(
        "{} idle connections hold about {} of memory ({})",
        number(idle),
        estimates::size(idle * each.value),
        each.how
    );
    if server.major >= SNAPSHOTS_SCALE_SINCE {
        let what = format!("The {} idle connections cost memory, and hardly throughput.", number(idle));
        let mut reason = format!(
            "{held}. Before version 14 each query's snapshot looked at every connection; from 14 on, and this is {}, it does not.",
            server.version
        );
        let mut sources = vec![manual::RELEASE_14];
        if let Some(measured) = &facts.runs.idle {
            let beside = format!("beside {} idle ones", number(measured.connections));
            reason.push_str(&format!(" Measured: {}", estimates::kept(measured, &beside)));
            sources.push(run(facts, &measured.experiment, &measured.date));
        } else {
            reason.push_str(" How much is left here, weir lab run idle measures.");
        }
        return Some(Advice::new(what, reason, Sure::Seen).from(sources).from(each.sources).from(look(facts)));
    }
    let lost = 1.0 - left_beside(idle);
    let what = "Keep idle connections in a pooler, or upgrade to version 14 or later.";
    let reason = format!(
        "{held}. Before version 14, and this is {}, they cost throughput as well: each query's snapshot looks at every connection. In the \
         source about {} % of the throughput was lost beside so many, with 48 active connections, and more where the idle ones sent a query \
         now and then.",
        server.version,
        number((100.0 * lost).round())
    );
    Some(
        Advice::new(what, reason, Sure::Start)
            .from([FREUND_2020.into(), manual::RELEASE_14])
            .from(each.sources)
            .from(look(facts)),
    )
}

/// Freund's figures, straight lines between them.
fn left_beside(idle: f64) -> f64 {
    let last = LEFT_BESIDE_IDLE[LEFT_BESIDE_IDLE.len() - 1];
    let between = LEFT_BESIDE_IDLE.windows(2).find_map(|pair| {
        let ((low, from), (high, to)) = (pair[0], pair[1]);
        (low..=high).contains(&idle).then(|| from + (to - from) * (idle - low) / (high - low))
    });
    between.unwrap_or(last.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::rules::samples;

    #[test]
    fn the_smallest_limit_is_the_first() {
        let mut facts = samples::quiet_server();
        let advice = limits_first(&facts).unwrap();
        assert!(advice.what.contains("the processor limits first, at about 31"), "{advice:?}");
        assert!(advice.reason.contains(" max_connections allows about 97:"), "{advice:?}");
        facts.machine.memory_mib = Some(4_400.0);
        assert!(limits_first(&facts).unwrap().what.contains("memory limits first"));
        facts.server.as_mut().unwrap().settings.max_connections = Some(4.0);
        assert!(limits_first(&facts).unwrap().what.contains("max_connections limits first, at about 1."));
        facts.machine = crate::advise::facts::Machine::default();
        assert_eq!(limits_first(&facts), None, "one limit is not the first of several");
    }

    #[test]
    fn a_measured_peak_is_the_processor_s_only_where_the_processor_was_full() {
        let mut facts = samples::quiet_server();
        facts.runs.peaks.push(samples::peak("saturation", 24.0, 20.0));
        let said = |facts: &Facts| {
            let advice = limits_first(facts).unwrap();
            assert_eq!(advice.sure, Sure::Measured);
            (advice.what, advice.reason)
        };
        let (what, reason) = said(&facts);
        assert!(what.contains("throughput limits first, at about 20."), "{what}");
        assert!(reason.contains(" with 20") && reason.contains("processor was at that peak is not known"), "{reason}");
        facts.runs.peaks[0].busy_percent = Some(97.0);
        assert!(said(&facts).0.contains("throughput limits"), "it is the load's machine that was busy");
        facts.runs.peaks[0].local = true;
        let (what, reason) = said(&facts);
        assert!(what.contains("the processor limits first") && reason.contains("was 97 % busy."), "{what} {reason}");
        facts.runs.peaks[0].busy_percent = Some(43.2);
        let (what, reason) = said(&facts);
        assert!(what.contains("throughput limits first") && reason.contains("only 43 % busy"), "{what} {reason}");
    }

    #[test]
    fn max_connections_stays_unless_memory_or_clients_need_otherwise() {
        let mut facts = samples::quiet_server();
        let advice = max_connections(&facts).unwrap();
        assert!(advice.what.starts_with("Leave max_connections at 100") && advice.set.is_none(), "{advice:?}");
        assert!(advice.reason.contains("about 47.8 KiB"), "{}", advice.reason);
        assert_eq!(near_limit(&facts), None);
        facts.server.as_mut().unwrap().settings.max_connections = Some(10_000.0);
        let advice = max_connections(&facts).unwrap();
        assert_eq!(advice.set.unwrap().value, "1268");
        facts.server.as_mut().unwrap().settings.max_connections = Some(8.0);
        assert_eq!(max_connections(&facts), None, "another rule speaks");
        let busy = crate::advise::facts::Moment { open: 7.0, active: 6.0, idle: 1.0, ..Default::default() };
        facts.server.as_mut().unwrap().moments = vec![busy; 3];
        assert_eq!(near_limit(&facts).unwrap().set.unwrap().value, "16");
    }

    #[test]
    fn a_run_alone_says_what_the_pools_need() {
        let mut facts = Facts::default();
        facts.runs.peaks.push(samples::peak("saturation", 24.0, 18.0));
        let advice = max_connections(&facts).unwrap();
        assert!(advice.set.is_none() && advice.reason.contains("reserved for superusers: 23 in all"), "{advice:?}");
        facts.runs.peaks[0].enough = 180.0;
        assert_eq!(max_connections(&facts).unwrap().set.unwrap().value, "at least 203");
    }

    #[test]
    fn many_idle_ones_call_for_a_pooler_near_the_limit_and_cost_throughput_on_old_servers() {
        let mut facts = samples::crowded_server(13);
        assert!(near_limit(&facts).unwrap().what.starts_with("Put a pooler"));
        let advice = idle(&facts).unwrap();
        assert!(advice.what.contains("upgrade") && advice.reason.contains("about 9 % of the throughput"), "{advice:?}");
        facts.server.as_mut().unwrap().major = 16;
        assert!(idle(&facts).unwrap().reason.contains("weir lab run idle"));
        facts.runs.idle = Some(MeasuredLoss {
            line: "direct".to_owned(),
            connections: 1_000.0,
            change: samples::change(0.93),
            ..MeasuredLoss::default()
        });
        let kept = "Measured: direct kept 93 % of its throughput beside 1,000 idle ones.";
        assert!(idle(&facts).unwrap().reason.contains(kept), "{:?}", idle(&facts));
        facts.runs.idle.as_mut().unwrap().change.clear = false;
        assert!(idle(&facts).unwrap().reason.contains("direct lost nothing clear"));
        assert_eq!(idle(&samples::quiet_server()), None);
    }

    #[test]
    fn between_the_source_s_figures_lie_straight_lines() {
        assert_eq!((left_beside(0.0), left_beside(20_000.0)), (1.0, 521_558.0 / 1_032_435.0));
        assert!((left_beside(550.0) - (0.930_66 + 0.873_77) / 2.0).abs() < 1e-4, "{}", left_beside(550.0));
    }
}
