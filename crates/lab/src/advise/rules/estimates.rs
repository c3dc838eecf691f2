//! Numbers that several rules share: how many connections keep a server busy, what one costs, and what memory is for them.
//!
//! Each says where it comes from. Knows the sources' figures.

use super::{Cited, look, run};
use crate::advise::facts::{Facts, MeasuredPeak};
use crate::experiments::sources::{FREUND_2020, MICROSOFT_2026};
use crate::experiments::words;
use crate::journal::Role;
use crate::report::figures::number;

/// Connections per core at which throughput peaked: 48 on 40 hardware threads with nothing to wait for (Freund 2020), and
/// at most 192 on 16 cores with a network between (Microsoft 2026).
const PER_CORE_WITHOUT_WAITING: f64 = 48.0 / 40.0;
const PER_CORE_OVER_A_NETWORK: f64 = 192.0 / 16.0;
/// MB, as Microsoft 2026 gives them; the upper ends, since memory that is missing ends a server.
const IDLE_MB: f64 = 5.0;
const ACTIVE_MB: f64 = 20.0;
const MIB_PER_MB: f64 = 1e6 / (1024.0 * 1024.0);
/// How often a query uses `work_mem`: "several times" (Freund 2020) is at least this.
pub const WORK_MEM_USES: f64 = 2.0;
/// Of what shared buffers and autovacuum leave, the part for connections: the rest is the kernel's cache, on which
/// PostgreSQL relies (chapter 19.4.1), and everything else that runs there.
const PART_FOR_CONNECTIONS: f64 = 0.5;
/// The experiment that runs a script of the user's.
const OWN_WORK: &str = "saturation";
/// What the manual begins with for `shared_buffers`, where the setting is not known.
const SHARED_BUFFERS_PART: f64 = 0.25;

/// What a measurement left of the throughput, in words.
pub fn kept(left: f64) -> String {
    if left >= 0.95 {
        "lost nothing clear of its throughput".to_owned()
    } else {
        format!("kept {} of its throughput", words::percent(left))
    }
}

/// A number, where it comes from in words, and the sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub how: String,
    pub sources: Vec<Cited>,
    pub measured: bool,
}

/// Published peaks per core, in short.
pub fn published_per_core() -> String {
    let (low, high) = (number(PER_CORE_WITHOUT_WAITING), number(PER_CORE_OVER_A_NETWORK));
    format!("others' servers were at their best with {low} to {high} connections per core")
}

/// Whether a peak is of the user's own work, not of the lab's.
pub fn is_own_work(peak: &MeasuredPeak) -> bool {
    peak.experiment == OWN_WORK
}

/// The peak whose workload is nearest to the user's: of a server before that of something not known to be one.
pub fn measured_peak(facts: &Facts) -> Option<&MeasuredPeak> {
    let of = |role: Role| facts.runs.peaks.iter().find(move |peak| peak.role == role && !peak.open);
    of(Role::Server).or_else(|| of(Role::Given))
}

/// How many connections at work give a server about all of its throughput.
pub fn busy_connections(facts: &Facts) -> Option<Estimate> {
    if let Some(peak) = measured_peak(facts) {
        let mut how = format!(
            "the experiment {} measured the best throughput of {} ({}) with {} connections, and {} of it with {}",
            peak.experiment,
            peak.target,
            words::tps(peak.tps),
            number(peak.connections),
            words::percent(words::AS_GOOD_AS_BEST),
            number(peak.enough)
        );
        if let Some(cores) = facts.machine.cores.filter(|cores| peak.cores > 0.0 && *cores != peak.cores) {
            how.push_str(&format!(" (on {} cores; the server has {})", number(peak.cores), number(cores)));
        }
        if !is_own_work(peak) {
            how.push_str(&format!(", of the lab's own queries (--script FILE with {OWN_WORK} measures yours)"));
        }
        if peak.rounds == 1 {
            how.push_str(", in one round, which may be chance");
        }
        if let Some(doubt) = peak.doubts.first() {
            how.push_str(&format!("; that figure is doubtful: {}", doubt.trim_end_matches('.')));
        }
        let sources = vec![run(facts, &peak.experiment, &peak.date)];
        return Some(Estimate { value: peak.enough, how, sources, measured: true });
    }
    let cores = facts.machine.cores?;
    let per_core = (PER_CORE_WITHOUT_WAITING * PER_CORE_OVER_A_NETWORK).sqrt();
    let (low, high) = ((PER_CORE_WITHOUT_WAITING * cores).ceil(), (PER_CORE_OVER_A_NETWORK * cores).ceil());
    let how = format!(
        "others' servers were at their best with {} connections per core where nothing waits (48 on 40 hardware threads) and with up \
         to {} over a network (192 on 16 cores): that is {} to {} on {} cores, and the middle of it is about {}",
        number(PER_CORE_WITHOUT_WAITING),
        number(PER_CORE_OVER_A_NETWORK),
        number(low),
        number(high),
        number(cores),
        number((per_core * cores).ceil()),
    );
    let sources = vec![FREUND_2020.into(), MICROSOFT_2026.into()];
    Some(Estimate { value: (per_core * cores).ceil(), how, sources, measured: false })
}

/// MiB of a connection that does nothing.
pub fn idle_mib(facts: &Facts) -> Estimate {
    if let Some((memory, value)) = facts.runs.memory.as_ref().and_then(|memory| Some((memory, memory.idle_mib?))) {
        let how = format!("{} MiB for an idle connection, measured", number(value));
        return Estimate { value, how, sources: vec![run(facts, &memory.experiment, &memory.date)], measured: true };
    }
    if let Some(backends) = facts.server.as_ref().and_then(|server| server.backend_mib) {
        let how = format!(
            "{} MiB for a connection, the median of {} open ones now",
            number(backends.median_mib),
            number(crate::experiments::places::floats(&[backends.backends])[0])
        );
        return Estimate {
            value: backends.median_mib,
            how,
            sources: look(facts).into_iter().collect(),
            measured: true,
        };
    }
    let how = "5 MB for an idle connection, the upper end of a published range of 2 to 5 MB".to_owned();
    Estimate { value: IDLE_MB * MIB_PER_MB, how, sources: vec![MICROSOFT_2026.into()], measured: false }
}

/// MiB of a connection at work, at the least what sorting within `work_mem` takes.
pub fn active_mib(facts: &Facts) -> Estimate {
    let measured = facts.runs.memory.as_ref().and_then(|memory| Some((memory, memory.active_mib?)));
    let mut known = if let Some((memory, value)) = measured {
        let how = format!("{} MiB for a connection at work, measured", number(value));
        Estimate { value, how, sources: vec![run(facts, &memory.experiment, &memory.date)], measured: true }
    } else {
        let how = "20 MB for a connection at work, the upper end of a published range of 10 to 20 MB".to_owned();
        Estimate { value: ACTIVE_MB * MIB_PER_MB, how, sources: vec![MICROSOFT_2026.into()], measured: false }
    };
    let settings = facts.server.as_ref().map(|server| &server.settings);
    if let Some((settings, work_mem)) = settings.and_then(|settings| Some((settings, settings.work_mem_mib?))) {
        let idle = idle_mib(facts);
        let sorting = idle.value + WORK_MEM_USES * work_mem * settings.hash_mem_multiplier.max(1.0);
        if sorting > known.value {
            known.how = format!(
                "{} MiB for a connection whose query uses work_mem ({} MiB, for hashes times {}) twice, and it may be more often",
                number(sorting),
                number(work_mem),
                number(settings.hash_mem_multiplier.max(1.0))
            );
            known.value = sorting;
            known.sources = vec![super::manual::MEMORY, FREUND_2020.into()];
            known.measured = false;
        }
    }
    known
}

/// MiB that connections may take all together.
pub fn memory_for_connections(facts: &Facts) -> Option<Estimate> {
    let memory = facts.machine.memory_mib?;
    let settings = facts.server.as_ref().map(|server| &server.settings);
    let buffers = settings.and_then(|settings| settings.shared_buffers_mib);
    let shared = buffers.unwrap_or(SHARED_BUFFERS_PART * memory);
    let vacuum = settings.map_or(0.0, |settings| settings.autovacuum_workers * settings.autovacuum_mib.unwrap_or(0.0));
    let value = ((memory - shared - vacuum) * PART_FOR_CONNECTIONS).max(0.0);
    let assumed = if buffers.is_some() { "" } else { " (where the manual begins: a quarter)" };
    let vacuum = if vacuum > 0.0 { format!(" and up to {} autovacuum's", size(vacuum)) } else { String::new() };
    let how = format!(
        "of {} of memory, {} are shared_buffers{assumed}{vacuum}; half of the rest is left to the kernel's cache, so connections may take {}",
        size(memory),
        size(shared),
        size(value)
    );
    Some(Estimate { value, how, sources: vec![super::manual::MEMORY], measured: false })
}

/// MiB as people read them.
pub fn size(mib: f64) -> String {
    if mib >= 1024.0 { format!("{} GiB", number(mib / 1024.0)) } else { format!("{} MiB", number(mib)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::facts::{MeasuredMemory, Server};
    use crate::advise::rules::samples;

    #[test]
    fn a_measured_peak_goes_before_cores() {
        let mut facts = Facts::default();
        assert_eq!(busy_connections(&facts), None);
        facts.machine.cores = Some(8.0);
        let guess = busy_connections(&facts).unwrap();
        assert_eq!((guess.value, guess.measured), (31.0, false));
        assert!(guess.how.contains("that is 10 to 96 on 8 cores"), "{}", guess.how);
        facts.runs.peaks.push(samples::peak("single-shard", 16.0, 12.0));
        let measured = busy_connections(&facts).unwrap();
        assert_eq!((measured.value, measured.measured), (12.0, true));
        assert!(measured.how.contains("(on 2 cores; the server has 8)"), "{}", measured.how);
        facts.runs.peaks[0].open = true;
        assert!(!busy_connections(&facts).unwrap().measured, "a line that still rises has no peak");
    }

    #[test]
    fn what_is_measured_goes_before_what_is_published() {
        let mut facts = Facts::default();
        assert!((idle_mib(&facts).value - 4.77).abs() < 0.01 && (active_mib(&facts).value - 19.07).abs() < 0.01);
        facts.runs.memory =
            Some(MeasuredMemory { idle_mib: Some(1.9), active_mib: Some(6.0), ..MeasuredMemory::default() });
        assert_eq!((idle_mib(&facts).value, active_mib(&facts).value), (1.9, 6.0));
        facts.server = Some(Server::default());
        let settings = &mut facts.server.as_mut().unwrap().settings;
        (settings.work_mem_mib, settings.hash_mem_multiplier) = (Some(64.0), 2.0);
        assert_eq!(active_mib(&facts).value, 1.9 + 2.0 * 64.0 * 2.0);
    }

    #[test]
    fn memory_is_what_buffers_and_cache_leave() {
        let mut facts = Facts::default();
        assert_eq!(memory_for_connections(&facts), None);
        facts.machine.memory_mib = Some(16_384.0);
        assert_eq!(memory_for_connections(&facts).unwrap().value, 6_144.0);
        let mut server = Server::default();
        server.settings.shared_buffers_mib = Some(8_192.0);
        (server.settings.autovacuum_workers, server.settings.autovacuum_mib) = (3.0, Some(64.0));
        facts.server = Some(server);
        let estimate = memory_for_connections(&facts).unwrap();
        assert_eq!(estimate.value, 4_000.0);
        assert!(
            estimate.how.contains("of 16 GiB of memory, 8 GiB are shared_buffers and up to 192 MiB"),
            "{}",
            estimate.how
        );
    }
}
