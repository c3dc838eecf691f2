//! An experiment's figures as comma-separated values: a row per place and line.
//!
//! Knows a dataset; figures keep the unit that their key names.

use anyhow::{Context, Result};

use crate::dataset::{Dataset, Line, Place};

/// The whole file.
pub fn text(data: &Dataset) -> Result<String> {
    let mut keys: Vec<&str> = Vec::new();
    for key in data.lines.iter().flat_map(|line| &line.places).flat_map(|place| place.values.keys()) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    keys.sort_unstable();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head(&keys)).context("cannot write the head of a CSV file")?;
    for line in &data.lines {
        for place in &line.places {
            writer.write_record(row(line, place, &keys)).context("cannot write a row of a CSV file")?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error()).context("cannot end a CSV file")?;
    String::from_utf8(bytes).context("a CSV file holds text")
}

fn head(keys: &[&str]) -> Vec<String> {
    let mut head = ["target", "series", "x", "rounds"].map(str::to_owned).to_vec();
    for key in keys {
        head.extend(["median", "low_95", "high_95"].map(|part| harmless(&format!("{key}_{part}"))));
    }
    head.extend(["errors", "error_kinds", "doubts"].map(str::to_owned));
    head
}

fn row(line: &Line, place: &Place, keys: &[&str]) -> Vec<String> {
    let rounds = place.values.values().map(Vec::len).max().unwrap_or_default();
    let mut row = vec![harmless(&line.target), harmless(&line.series), place.x.to_string(), rounds.to_string()];
    for key in keys {
        match place.spread(key) {
            Some(spread) => {
                row.extend([spread.median, spread.interval.low, spread.interval.high].map(|value| value.to_string()))
            }
            None => row.extend([const { String::new() }; 3]),
        }
    }
    let kinds: Vec<String> = place.errors.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
    row.push(place.errors.values().sum::<u64>().to_string());
    row.extend([harmless(&kinds.join("; ")), harmless(&place.doubts.join("; "))]);
    row
}

/// A spreadsheet takes text that begins so for a formula; after an apostrophe it does not.
fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use weir_measure::journal::{Point, Record};

    #[test]
    fn a_row_has_medians_spreads_errors_and_doubts() {
        let point = |round: usize, tps: f64| {
            let values = BTreeMap::from([("tps".to_owned(), tps)]);
            let errors = BTreeMap::from([("refused, \"so\"".to_owned(), 2)]);
            let doubts = vec!["pgbench was busy".to_owned()];
            let [experiment, target] = ["e", "=1+1"].map(str::to_owned);
            Record::Point(Point { experiment, target, x: 8.0, round, values, errors, doubts, ..Point::default() })
        };
        let data = &Dataset::all(&[point(1, 10.0), point(2, 30.0), point(3, 20.5)])[0];
        let interval = data.lines[0].places[0].spread("tps").unwrap().interval;
        let expected = format!(
            "target,series,x,rounds,tps_median,tps_low_95,tps_high_95,errors,error_kinds,doubts\n\
             '=1+1,,8,3,20.5,{},{},6,\"refused, \"\"so\"\": 6\",pgbench was busy\n",
            interval.low, interval.high
        );
        assert_eq!(text(data).unwrap(), expected);
    }
}
