//! Numbers that several rules share: how many connections keep a server busy, what one costs, and what memory is for them.
//!
//! Each says where it comes from. Knows the sources' figures.

use super::{Cited, look, run};
use crate::advise::facts::{ConnectionMemory, Facts, MeasuredLoss, MeasuredPeak};
use crate::experiments::sources::{FREUND_2020, MICROSOFT_2026};
use crate::experiments::words;
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

/// What is to be known of a measured figure: that it was not repeated, and the first doubt.
pub fn reservations(rounds: usize, doubts: &[String]) -> String {
    let once = if rounds == 1 { ", in one round only" } else { "" };
    let doubt = doubts.first().map(|doubt| format!("; that figure is doubtful: {}", doubt.trim_end_matches('.')));
    format!("{once}{}", doubt.unwrap_or_default())
}

/// What a measurement left of a line's throughput, in a sentence that ends with what came beside it.
pub fn kept(measured: &MeasuredLoss, beside: &str) -> String {
    let change = &measured.change;
    let kept = if change.is_less() {
        format!("kept {} of its throughput", words::percent(change.ratio))
    } else {
        "lost nothing clear of its throughput".to_owned()
    };
    format!("{} {kept} {beside}{}.", measured.line, reservations(change.rounds, &change.doubts))
}

/// A number, where it comes from in words, and the sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub how: String,
    pub sources: Vec<Cited>,
    pub measured: bool,
    /// Between which it lies in 95 of 100 cases, where that is known.
    pub between: Option<(f64, f64)>,
    /// Measured once, quickly or doubtfully.
    pub weak: bool,
}

impl Estimate {
    fn new(value: f64, how: String, sources: Vec<Cited>, measured: bool) -> Estimate {
        Estimate { value, how, sources, measured, between: None, weak: false }
    }
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

/// How many connections at work give a server about all of its throughput.
pub fn busy_connections(facts: &Facts) -> Option<Estimate> {
    if let Some(peak) = facts.runs.peak_of_server() {
        let mut how = format!(
            "the experiment {} measured the best throughput of {} ({}) with {} connections, and {} of it with {}",
            peak.experiment,
            peak.target,
            words::tps(peak.tps),
            number(peak.connections),
            words::percent(words::AS_GOOD_AS_BEST),
            number(peak.enough)
        );
        // A peak measured from another machine says nothing of its server's cores.
        let known = peak.local && peak.cores > 0.0;
        if let Some(cores) = facts.machine.cores.filter(|cores| known && *cores != peak.cores) {
            how.push_str(&format!(" (on {} cores; the server has {})", number(peak.cores), number(cores)));
        }
        if !is_own_work(peak) {
            how.push_str(&format!(", of the lab's own queries (--script FILE with {OWN_WORK} measures yours)"));
        }
        how.push_str(&reservations(peak.rounds, &peak.doubts));
        let sources = vec![run(facts, &peak.experiment, &peak.date)];
        let weak = peak.rounds < 2 || peak.quick || !peak.doubts.is_empty();
        return Some(Estimate { between: peak.between, weak, ..Estimate::new(peak.enough, how, sources, true) });
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
    Some(Estimate::new((per_core * cores).ceil(), how, sources, false))
}

/// Of the run that measured memory.
fn measured_mib(facts: &Facts, figure: &ConnectionMemory, what: &str) -> Estimate {
    let how = format!("{} MiB for {what}, measured{}", number(figure.mib), reservations(figure.rounds, &figure.doubts));
    let sources = facts.runs.memory.iter().map(|memory| run(facts, &memory.experiment, &memory.date)).collect();
    Estimate::new(figure.mib, how, sources, true)
}

/// MiB of a connection that does nothing.
pub fn idle_mib(facts: &Facts) -> Estimate {
    if let Some(figure) = facts.runs.memory.as_ref().and_then(|memory| memory.idle.as_ref()) {
        return measured_mib(facts, figure, "an idle connection");
    }
    if let Some(backends) = facts.server.as_ref().and_then(|server| server.backend_mib) {
        let how = format!(
            "{} MiB for a connection, the median of {} open ones now",
            number(backends.median_mib),
            number(crate::experiments::places::floats(&[backends.backends])[0])
        );
        return Estimate::new(backends.median_mib, how, look(facts).into_iter().collect(), true);
    }
    let how = "5 MB for an idle connection, the upper end of a published range of 2 to 5 MB".to_owned();
    Estimate::new(IDLE_MB * MIB_PER_MB, how, vec![MICROSOFT_2026.into()], false)
}

/// MiB of a connection at work, at the least what sorting within `work_mem` takes.
pub fn active_mib(facts: &Facts) -> Estimate {
    let measured = facts.runs.memory.as_ref().and_then(|memory| memory.active.as_ref());
    let mut known = if let Some(figure) = measured {
        measured_mib(facts, figure, "a connection at work")
    } else {
        let how = "20 MB for a connection at work, the upper end of a published range of 10 to 20 MB".to_owned();
        Estimate::new(ACTIVE_MB * MIB_PER_MB, how, vec![MICROSOFT_2026.into()], false)
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
    Some(Estimate::new(value, how, vec![super::manual::MEMORY], false))
}

/// MiB as people read them.
pub fn size(mib: f64) -> String {
    if mib >= 1024.0 { format!("{} GiB", number(mib / 1024.0)) } else { format!("{} MiB", number(mib)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::facts::{MeasuredChange, MeasuredMemory, Server};
    use crate::advise::rules::samples;
    use weir_measure::journal::Role;

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
        assert!(!measured.how.contains("2 cores"), "those of the load's machine: {}", measured.how);
        facts.runs.peaks[0].local = true;
        let measured = busy_connections(&facts).unwrap();
        assert!(measured.how.contains("(on 2 cores; the server has 8)"), "{}", measured.how);
        facts.runs.peaks[0].open = true;
        assert!(!busy_connections(&facts).unwrap().measured, "a line that still rises has no peak");
    }

    #[test]
    fn a_peak_of_what_may_be_a_pooler_is_no_number_of_server_connections() {
        let mut facts = Facts::default();
        facts.runs.peaks.push(MeasuredPeak { role: Role::Given, ..samples::peak("saturation", 1_000.0, 900.0) });
        assert_eq!((facts.runs.peak_of_server(), busy_connections(&facts)), (None, None));
        facts.runs.peaks.push(samples::peak("single-shard", 16.0, 12.0));
        assert_eq!(busy_connections(&facts).unwrap().value, 12.0);
    }

    #[test]
    fn single_rounds_and_doubts_are_said_of_every_figure() {
        let doubts = vec!["pgbench used 0.97 of a core.".to_owned()];
        let said = ", in one round only; that figure is doubtful: pgbench used 0.97 of a core";
        assert_eq!((reservations(1, &doubts).as_str(), reservations(3, &[]).as_str()), (said, ""));
        let mut facts = Facts::default();
        let peak = samples::peak("saturation", 16.0, 12.0);
        facts.runs.peaks.push(MeasuredPeak { rounds: 1, doubts: doubts.clone(), ..peak });
        assert!(busy_connections(&facts).unwrap().how.ends_with(&format!("with 12{said}")));
        let figure = ConnectionMemory { mib: 2.0, rounds: 1, doubts: doubts.clone() };
        let (idle, active) = (Some(figure.clone()), Some(figure));
        facts.runs.memory = Some(MeasuredMemory { idle, active, ..MeasuredMemory::default() });
        assert_eq!(idle_mib(&facts).how, format!("2 MiB for an idle connection, measured{said}"));
        assert_eq!(active_mib(&facts).how, format!("2 MiB for a connection at work, measured{said}"));
        let change = MeasuredChange { ratio: 0.7, clear: true, rounds: 1, doubts };
        let mut loss = MeasuredLoss { line: "direct".to_owned(), change, ..MeasuredLoss::default() };
        assert_eq!(kept(&loss, "here"), format!("direct kept 70 % of its throughput here{said}."));
        loss.change = MeasuredChange { ratio: 0.85, rounds: 1, ..MeasuredChange::default() };
        assert_eq!(kept(&loss, "here"), "direct lost nothing clear of its throughput here, in one round only.");
    }

    #[test]
    fn what_is_measured_goes_before_what_is_published() {
        let mut facts = Facts::default();
        assert!((idle_mib(&facts).value - 4.77).abs() < 0.01 && (active_mib(&facts).value - 19.07).abs() < 0.01);
        let figure = |mib| Some(ConnectionMemory { mib, rounds: 3, ..ConnectionMemory::default() });
        facts.runs.memory =
            Some(MeasuredMemory { idle: figure(1.9), active: figure(6.0), ..MeasuredMemory::default() });
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
