//! SHOW HISTOGRAMS, LOGINS and ERRORS: what there is for whoever watches Weir.

use weir_wire::write::ColumnType::{Numeric, Text};

use crate::watched::Teller;

use super::report::{Answer, Cell};
use super::show::Columns;

/// Behind the sum: how many took no longer than so many microseconds (`Histogram::bound_us`).
pub(super) const HISTOGRAMS: Columns = &[
    ("database", Text),
    ("user", Text),
    ("time", Text),
    ("count", Numeric),
    ("sum_us", Numeric),
    ("le_64", Numeric),
    ("le_128", Numeric),
    ("le_256", Numeric),
    ("le_512", Numeric),
    ("le_1024", Numeric),
    ("le_2048", Numeric),
    ("le_4096", Numeric),
    ("le_8192", Numeric),
    ("le_16384", Numeric),
    ("le_32768", Numeric),
    ("le_65536", Numeric),
    ("le_131072", Numeric),
    ("le_262144", Numeric),
    ("le_524288", Numeric),
    ("le_1048576", Numeric),
    ("le_2097152", Numeric),
    ("le_4194304", Numeric),
    ("le_8388608", Numeric),
    ("le_16777216", Numeric),
    ("le_33554432", Numeric),
];
pub(super) const LOGINS: Columns = &[
    ("database", Text),
    ("user", Text),
    ("client_logins", Numeric),
    ("server_logins", Numeric),
    ("server_logins_failed", Numeric),
];
pub(super) const ERRORS: Columns = &[("source", Text), ("sqlstate", Text), ("count", Numeric)];

pub(super) fn histograms(answer: &Answer) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (name, watched) in &answer.watched {
        let counters = answer.pools.get(name).map(|report| report.counters).unwrap_or_default();
        let at_once = counters.server_assignments.saturating_sub(watched.waits.total());
        let times = [
            ("query", watched.lone + watched.queries, counters.query_time),
            ("transaction", watched.lone + watched.transactions, counters.transaction_time),
            ("wait", watched.waits.with_nothing(at_once), counters.wait_time),
        ];
        for (time, histogram, sum) in times {
            let [within @ .., count] = histogram.sums();
            let mut row = vec![(&*name.0).into(), (&*name.1).into(), time.into(), count.into(), sum.into()];
            row.extend(within.map(Cell::from));
            rows.push(row);
        }
    }
    rows
}

pub(super) fn logins(answer: &Answer) -> Vec<Vec<Cell>> {
    let rows = answer.watched.iter().map(|(name, watched)| {
        let (database, user) = name;
        vec![
            (&**database).into(),
            (&**user).into(),
            answer.pools.get(name).map_or(0, |report| report.counters.client_logins).into(),
            watched.server_logins.into(),
            watched.server_logins_failed.into(),
        ]
    });
    rows.collect()
}

pub(super) fn errors(answer: &Answer) -> Vec<Vec<Cell>> {
    let row = |(teller, code, count): (Teller, &str, u64)| vec![teller.as_str().into(), code.into(), count.into()];
    answer.errors.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watched::Histogram;

    #[test]
    fn columns_are_named_after_their_bounds() {
        let bounds = (0..Histogram::BOUNDS).map(|place| format!("le_{}", Histogram::bound_us(place)));
        assert!(HISTOGRAMS.iter().skip(5).map(|(name, _)| (*name).to_owned()).eq(bounds));
    }
}
