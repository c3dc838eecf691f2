//! A closed queue beside the measured throughput, where the service time is known: from the CPU that a transaction took.
//!
//! Knows which figures tell a service time; does not know how a queue is computed.

use maud::{Markup, html};

use super::chapter::Chapter;
use super::figures::{Measure, number};
use super::tables;
use crate::dataset::{Line, Place};
use crate::experiment::values;
use crate::model::queueing::Station;

/// Where the cores were busier than this, clients waited for each other already, and the wait would be taken for thinking.
const BUSY_MAX: f64 = 0.5;

/// A queue whose times the first place of a line tells.
struct Told<'a> {
    line: &'a Line,
    from: &'a Place,
    station: Station,
}

/// The table; nothing where no line tells its times.
pub fn part(chapter: &Chapter) -> Markup {
    let Some(measure) = chapter.measure(values::TPS) else { return html! {} };
    let Some(run) = chapter.data.runs.last() else { return html! {} };
    let told: Vec<Told> = chapter.data.lines.iter().filter_map(|line| told(line, run.machine.cores)).collect();
    if told.is_empty() {
        return html! {};
    }
    html! {
        p {
            "A closed queue needs no fit where the service time is known. Here it is the CPU time that the whole machine used for a \
             transaction at each line's first place, with pgbench, pooler and server counted; what is left of a client's time \
             there is thinking. The machine's cores are the servers. It knows that cores fill up, and nothing of locks, switches \
             between processes, or a pool that is smaller: where the measured peak lies far below, one of these is the limit."
        }
        (tables::boxed("The queue of each line", &table(&told, measure)))
    }
}

fn told(line: &Line, cores: usize) -> Option<Told<'_>> {
    let from = line.places.first()?;
    let (tps, busy) = (from.median(values::TPS)?, from.median(values::BOX_CPU_PERCENT)? / 100.0);
    if cores == 0 || tps <= 0.0 || busy <= 0.0 || busy > BUSY_MAX {
        return None;
    }
    #[expect(clippy::cast_precision_loss)]
    let service = busy * cores as f64 / tps;
    let think = (from.x / tps - service).max(0.0);
    Some(Told { line, from, station: Station { service, servers: cores, think } })
}

fn table(told: &[Told], measure: &Measure) -> Markup {
    html! { table {
        thead { tr {
            th scope="col" { "Line" }
            th scope="col" { "Service" small { "µs of CPU" } }
            th scope="col" { "Thinking" small { "µs" } }
            th scope="col" { "Predicted most" small { (measure.unit) } }
            th scope="col" { "Measured peak" small { (measure.unit) } }
            th scope="col" { "Predicted knee" small { "clients" } }
            th scope="col" { "Measured knee" small { "clients" } }
        } }
        tbody { @for told in told { tr {
            th scope="row" { (told.line.name()) small { "from " (number(told.from.x)) " clients" } }
            td { (number(told.station.service * 1e6)) }
            td { (number(told.station.think * 1e6)) }
            td { (measure.number(told.station.ceiling())) }
            (tables::measured_peak(told.line, measure))
            td { (number(told.station.knee())) }
            (tables::measured_knee(told.line))
        } } }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tps: f64, busy_percent: f64) -> Line {
        let mut place = Place { x: 1.0, ..Place::default() };
        place.values.insert(values::TPS.to_owned(), vec![tps]);
        place.values.insert(values::BOX_CPU_PERCENT.to_owned(), vec![busy_percent]);
        Line { places: vec![place], ..Line::default() }
    }

    #[test]
    fn a_quiet_first_place_tells_the_times() {
        // 1 000 transactions of 400 us of CPU each on 2 cores, one client: 600 us of each millisecond are thinking.
        let line = line(1000.0, 20.0);
        let station = told(&line, 2).unwrap().station;
        assert!((station.service - 400e-6).abs() < 1e-9 && (station.think - 600e-6).abs() < 1e-9);
        assert!((station.ceiling() - 5000.0).abs() < 1e-6 && (station.knee() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_busy_or_unknown_machine_tells_none() {
        assert!(told(&line(1000.0, 80.0), 2).is_none());
        assert!(told(&line(0.0, 10.0), 2).is_none());
        assert!(told(&Line::default(), 2).is_none());
    }
}
