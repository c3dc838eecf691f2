//! Anybody's numbers: a CSV file with a header, whose columns are known by their names.
//!
//! Does not know what is computed from them.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub clients: f64,
    /// Transactions per second.
    pub throughput: f64,
    /// The 99th percentile of latency, milliseconds.
    pub p99_ms: Option<f64>,
    /// Cores of each node.
    pub cores: Option<f64>,
    pub nodes: Option<f64>,
}

const CLIENTS: &[&str] = &["clients", "connections", "n", "x"];
const THROUGHPUT: &[&str] = &["tps", "throughput", "tps_median"];
const P99: &[(&str, f64)] =
    &[("p99", 1.0), ("p99_ms", 1.0), ("p99_us", 0.001), ("p99_us_median", 0.001), ("p99_s", 1000.0)];
const CORES: &[&str] = &["cores", "cores_per_node"];
const NODES: &[&str] = &["nodes", "servers"];

struct Columns {
    clients: usize,
    throughput: usize,
    /// And what makes milliseconds of it.
    p99: Option<(usize, f64)>,
    cores: Option<usize>,
    nodes: Option<usize>,
}

pub fn read(path: &Path) -> Result<Vec<Measured>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Measured>> {
    let delimiter = delimiter(text);
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).trim(csv::Trim::All).from_reader(text.as_bytes());
    let columns = Columns::of(reader.headers().context("line 1")?)?;
    let mut all = Vec::new();
    for record in reader.records() {
        let record = record.context("the file is no table")?;
        let line = record.position().map_or(0, csv::Position::line);
        all.push(columns.read(&record).with_context(|| format!("line {line}"))?);
    }
    if all.is_empty() {
        bail!("there is a header and nothing below it");
    }
    Ok(all)
}

/// Whichever of comma, semicolon and tab the header has most of.
fn delimiter(text: &str) -> u8 {
    let header = text.lines().next().unwrap_or_default();
    let count = |delimiter: &u8| header.bytes().filter(|byte| byte == delimiter).count();
    [b',', b';', b'\t'].into_iter().max_by_key(count).unwrap_or(b',')
}

impl Columns {
    fn of(header: &csv::StringRecord) -> Result<Columns> {
        let names: Vec<String> = header.iter().map(|name| name.to_lowercase().replace([' ', '-'], "_")).collect();
        let find = |known: &[&str]| known.iter().find_map(|name| names.iter().position(|column| column == name));
        let needed = |known: &[&str], what: &str| {
            find(known).with_context(|| {
                let known = known.join(", ");
                format!("there is no column of {what} (one of {known}) among {}", names.join(", "))
            })
        };
        let p99 = P99.iter().find_map(|(name, factor)| Some((find(&[*name])?, *factor)));
        Ok(Columns {
            clients: needed(CLIENTS, "clients")?,
            throughput: needed(THROUGHPUT, "throughput")?,
            p99,
            cores: find(CORES),
            nodes: find(NODES),
        })
    }

    fn read(&self, record: &csv::StringRecord) -> Result<Measured> {
        let field = |column: usize| record.get(column).unwrap_or_default();
        let optional =
            |column: Option<usize>| column.map(field).filter(|text| !text.is_empty()).map(number).transpose();
        let p99 = optional(self.p99.map(|(column, _)| column))?;
        Ok(Measured {
            clients: number(field(self.clients)).context("clients")?,
            throughput: number(field(self.throughput)).context("throughput")?,
            p99_ms: p99.zip(self.p99).map(|(value, (_, factor))| value * factor),
            cores: optional(self.cores).context("cores")?,
            nodes: optional(self.nodes).context("nodes")?,
        })
    }
}

fn number(text: &str) -> Result<f64> {
    let value: f64 = text.parse().ok().with_context(|| format!("\"{text}\" is not a number"))?;
    if !value.is_finite() || value < 0.0 {
        bail!("{text} cannot be measured");
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_known_by_name_in_any_order() {
        let all = parse("TPS; clients ;p99_us;comment\n100;1;2000;\"a;b\"\n190;2;;\n").unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].clients, all[0].throughput, all[0].p99_ms), (1.0, 100.0, Some(2.0)));
        assert_eq!((all[1].p99_ms, all[1].cores), (None, None));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error("clients,latency\n1,2\n").starts_with("there is no column of throughput"));
        assert_eq!(error("clients,tps\n1,2\n2,many\n"), "line 3: throughput: \"many\" is not a number");
        assert_eq!(error("clients,tps\n1,-2\n"), "line 2: throughput: -2 cannot be measured");
        assert_eq!(error("clients,tps\n"), "there is a header and nothing below it");
        assert!(error("clients,tps\n1\n").starts_with("the file is no table"));
    }
}
