//! What a closed queue says in words: a table over clients, beside measurements where there are any, and an answer to a wish.
//!
//! Computes with `queueing.rs`; knows nothing of files and options.

use serde_json::{Value, json};

use super::plan::{Group, Wish};
use super::queueing::{CLIENTS_MAX, Load, Station};
use super::words::{number, percent};

/// More servers than this are not looked for.
const SERVERS_MAX: usize = 4096;
/// A table without measurements goes on until so many times the knee.
const KNEES: f64 = 8.0;

/// What the queue predicts for a number of clients, and what was measured there.
pub struct Row {
    clients: usize,
    load: Load,
    measured_tps: Option<f64>,
}

/// Numbers of clients that double until well beyond the knee.
pub fn doubling(station: &Station) -> Vec<Row> {
    let clients = (0..usize::BITS).map(|power| 1usize << power);
    let rows = clients.map_while(|clients| Some(Row { clients, load: station.with(clients)?, measured_tps: None }));
    rows.take_while(|row| row.clients == 1 || row.clients as f64 <= KNEES * station.knee()).collect()
}

/// The numbers of clients of measurements.
pub fn beside(station: &Station, group: &Group) -> Vec<Row> {
    let row = |(clients, throughput): (f64, f64)| {
        let clients = clients.round() as usize;
        Some(Row { clients, load: station.with(clients)?, measured_tps: Some(throughput) })
    };
    group.points.iter().filter_map(|point| row((point.clients, point.throughput))).collect()
}

/// Lines of a table; times in milliseconds.
pub fn table(rows: &[Row]) -> Vec<String> {
    let has_measured = rows.iter().any(|row| row.measured_tps.is_some());
    let mut head = format!("{:>10} {:>12} {:>10} {:>10} {:>8}", "clients", "TPS", "mean ms", "p99 ms", "busy");
    if has_measured {
        head.push_str(&format!(" {:>14} {:>10}", "measured TPS", "error"));
    }
    let line = |row: &Row| {
        let Row { clients, load, measured_tps } = row;
        let mut line = format!(
            "{clients:>10} {:>12} {:>10} {:>10} {:>8}",
            number(load.throughput),
            number(load.response * 1000.0),
            number(load.response_99 * 1000.0),
            percent(load.utilisation)
        );
        if let Some(measured) = measured_tps {
            let error = if *measured > 0.0 { percent(load.throughput / measured - 1.0) } else { String::new() };
            line.push_str(&format!(" {:>14} {error:>10}", number(*measured)));
        }
        line
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}

pub fn as_json(station: &Station, rows: &[Row], sentences: &[String]) -> Value {
    let row = |row: &Row| {
        json!({
            "clients": row.clients, "tps": row.load.throughput, "mean_ms": row.load.response * 1000.0,
            "p99_ms_if_exponential": row.load.response_99 * 1000.0, "utilisation": row.load.utilisation,
            "measured_tps": row.measured_tps,
        })
    };
    json!({
        "service_ms": station.service * 1000.0, "servers": station.servers, "think_ms": station.think * 1000.0,
        "ceiling_tps": station.ceiling(), "knee_clients": station.knee(),
        "loads": rows.iter().map(row).collect::<Vec<_>>(), "sentences": sentences,
    })
}

/// What holds of the queue at all, and what it assumes.
pub fn introduction(station: &Station) -> Vec<String> {
    vec![
        format!(
            "A closed queue: at most {} TPS; more than {} clients wait for each other.",
            number(station.ceiling()),
            number(station.knee())
        ),
        "The p99 is exact if service and think times vary exponentially. Steadier service times bring it down to near the mean; \
         how far wilder ones bring it up is not known."
            .to_owned(),
    ]
}

/// How many clients, and servers, the wish takes of the queue.
pub fn answer(station: &Station, wish: Wish) -> Vec<String> {
    let Some((clients, load)) = fewest(station, wish.throughput) else {
        return vec![format!(
            "Not reached: this queue does at most {} TPS. It takes more than {} servers to do {}.",
            number(station.ceiling()),
            number((wish.throughput * station.service).floor()),
            number(wish.throughput)
        )];
    };
    let mut sentences = vec![format!(
        "{} TPS: {} clients, with {} of the servers' time busy, a mean of {} ms and a p99 from there (steady service times) to {} ms \
         (exponential ones).",
        number(wish.throughput),
        number(clients as f64),
        percent(load.utilisation),
        number(load.response * 1000.0),
        number(load.response_99 * 1000.0)
    )];
    let Some(bound) = wish.p99_ms else { return sentences };
    if load.response_99 * 1000.0 <= bound {
        let most = most_within(station, bound / 1000.0, clients);
        sentences.push(format!("The p99 stays within {} ms up to {} clients.", number(bound), number(most as f64)));
        return sentences;
    }
    sentences.push(match servers_for(station, wish.throughput, bound / 1000.0) {
        Some(servers) => format!(
            "With exponential service times that is more than {} ms: it takes {servers} servers to stay within.",
            number(bound)
        ),
        None => format!(
            "With exponential service times that is more than {} ms, and up to {SERVERS_MAX} servers do not change it: a service \
             alone has a p99 of {} ms.",
            number(bound),
            number(station.service * 100f64.ln() * 1000.0)
        ),
    });
    sentences
}

/// The fewest clients with this throughput: more clients never bring less to a queue.
fn fewest(station: &Station, throughput: f64) -> Option<(usize, Load)> {
    if station.ceiling() < throughput {
        return None;
    }
    let reaches = |clients: usize| station.throughput(clients).is_some_and(|found| found >= throughput);
    let clients = first(CLIENTS_MAX, reaches)?;
    Some((clients, station.with(clients)?))
}

/// The most clients whose p99 is within a bound that so many clients keep.
fn most_within(station: &Station, bound: f64, kept: usize) -> usize {
    let breaks = |more: usize| station.with(kept + more).is_none_or(|load| load.response_99 > bound);
    first(CLIENTS_MAX, breaks).map_or(CLIENTS_MAX, |more| kept + more - 1)
}

fn servers_for(station: &Station, throughput: f64, bound: f64) -> Option<usize> {
    let keeps = |servers: usize| {
        let found = fewest(&Station { servers, ..*station }, throughput);
        found.is_some_and(|(_, load)| load.response_99 <= bound)
    };
    first(SERVERS_MAX, keeps)
}

/// The first of 1 to `last` for which something is true that stays true from there on: doubled, then halved.
fn first(last: usize, is_true: impl Fn(usize) -> bool) -> Option<usize> {
    let mut high = 1;
    while !is_true(high) {
        if high >= last {
            return None;
        }
        high = (high * 2).min(last);
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if is_true(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATION: Station = Station { service: 0.01, servers: 4, think: 0.04 };

    #[test]
    fn a_wish_is_answered_or_not() {
        let wish = |throughput, p99_ms| answer(&STATION, Wish { throughput, p99_ms }).join(" ");
        assert!(
            wish(500.0, None).starts_with("Not reached: this queue does at most 400 TPS. It takes more than 5 servers")
        );
        // Four servers, and clients that take 50 ms alone: 200 TPS are ten of them, and a little more for their waiting.
        let text = wish(200.0, Some(1000.0));
        assert!(text.starts_with("200 TPS: 11 clients") && text.contains("stays within 1,000 ms up to"), "{text}");
        let text = wish(390.0, Some(60.0));
        assert!(text.contains("more than 60 ms: it takes 5 servers") || text.contains("it takes 6 servers"), "{text}");
        assert!(
            wish(200.0, Some(20.0)).contains("a service alone has a p99 of 46.1 ms"),
            "{}",
            wish(200.0, Some(20.0))
        );
    }

    #[test]
    fn the_most_within_a_bound_is_the_last() {
        let most = most_within(&STATION, 0.1, 1);
        assert!(STATION.with(most).unwrap().response_99 <= 0.1 && STATION.with(most + 1).unwrap().response_99 > 0.1);
        assert_eq!(first(10, |number| number >= 7), Some(7));
        assert_eq!((first(10, |_| false), first(10, |_| true)), (None, Some(1)));
    }

    #[test]
    fn a_table_reaches_beyond_the_knee() {
        let rows = doubling(&STATION);
        assert_eq!((rows[0].clients, rows[rows.len() - 1].clients), (1, 128));
        assert_eq!(table(&rows).len(), rows.len() + 1);
        let endless = doubling(&Station { think: 1e12, ..STATION });
        assert!(endless.len() > 10 && endless[endless.len() - 1].clients <= CLIENTS_MAX);
    }
}
