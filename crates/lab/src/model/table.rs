//! Anybody's numbers: a CSV file with a header, whose columns are known by their names.
//!
//! Does not know what is computed from them.

use std::path::Path;

use anyhow::{Context, Result, bail};

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// What was measured, where the file has several (the lab's own columns `target` and `series`).
    pub label: String,
    pub clients: f64,
    /// Transactions per second.
    pub throughput: f64,
    /// The 99th percentile of latency, milliseconds.
    pub p99_ms: Option<f64>,
    /// Cores of each node.
    pub cores: Option<f64>,
    pub nodes: Option<f64>,
}

/// In the order of preference. `x` is the place on the axis in the lab's own files, and throughput in Gunther's notation beside `n`.
const CLIENTS: &[&str] = &["clients", "connections", "n", X];
const THROUGHPUT: &[&str] = &["tps", "throughput", "tps_median", X];
const X: &str = "x";
/// What a name's unit is in milliseconds. A latency that is no 99th percentile is none.
const P99: &[(&str, f64)] = &[
    ("p99_ms", 1.0),
    ("p99_us", 0.001),
    ("p99_s", 1000.0),
    ("p99_us_median", 0.001),
    ("latency_p99_ms", 1.0),
    ("latency_p99_us", 0.001),
    ("p99_latency_ms", 1.0),
    ("p99_latency_us", 0.001),
    ("p99", 1.0),
];
const CORES: &[&str] = &["cores", "cores_per_node"];
const NODES: &[&str] = &["nodes"];
const LABELS: &[&str] = &["target", "series"];

struct Columns {
    labels: Vec<usize>,
    clients: usize,
    throughput: usize,
    /// And what makes milliseconds of it.
    p99: Option<(usize, f64)>,
    cores: Option<usize>,
    nodes: Option<usize>,
}

pub fn read(path: &Path) -> Result<Vec<Measured>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = std::str::from_utf8(&bytes).with_context(|| format!("{} is not text (UTF-8)", path.display()))?;
    parse(text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Measured>> {
    // Spreadsheets begin their files with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let delimiter = delimiter(text);
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).trim(csv::Trim::All).from_reader(text.as_bytes());
    let columns = Columns::of(reader.headers().context("line 1")?)?;
    let mut all = Vec::new();
    for record in reader.records() {
        let record = record.map_err(refused)?;
        let line = record.position().map_or(0, csv::Position::line);
        all.push(columns.read(&record, delimiter).with_context(|| format!("line {line}"))?);
    }
    if all.is_empty() {
        bail!("there is a header and nothing below it");
    }
    Ok(all)
}

/// The crate's errors, as short as the others.
fn refused(error: csv::Error) -> anyhow::Error {
    let line = error.position().map_or(0, csv::Position::line);
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            anyhow::anyhow!("line {line}: {len} fields, where the header has {expected_len}")
        }
        _ => anyhow::Error::from(error).context("the file is no table"),
    }
}

/// Whichever of comma, semicolon and tab the header has most of.
fn delimiter(text: &str) -> u8 {
    let header = text.lines().next().unwrap_or_default();
    let count = |delimiter: &u8| header.bytes().filter(|byte| byte == delimiter).count();
    [b',', b';', b'\t'].into_iter().max_by_key(count).unwrap_or(b',')
}

impl Columns {
    fn of(header: &csv::StringRecord) -> Result<Columns> {
        let names: Vec<String> = header.iter().map(plain).collect();
        let find = |known: &[&str]| known.iter().find_map(|name| names.iter().position(|column| column == name));
        let needed = |known: &[&str], what: &str| {
            find(known).with_context(|| {
                let known = known.join(", ");
                format!("there is no column of {what} (one of {known}) among {}", names.join(", "))
            })
        };
        let p99 = P99.iter().find_map(|(name, factor)| Some((find(&[*name])?, *factor)));
        let clients = needed(CLIENTS, "clients")?;
        // What counts the clients is not their throughput too.
        let is_taken = names.get(clients).is_some_and(|name| name == X);
        let throughput = if is_taken { &THROUGHPUT[..THROUGHPUT.len() - 1] } else { THROUGHPUT };
        Ok(Columns {
            labels: LABELS.iter().filter_map(|label| find(&[label])).collect(),
            clients,
            throughput: needed(throughput, "throughput")?,
            p99,
            cores: find(CORES),
            nodes: find(NODES),
        })
    }

    fn read(&self, record: &csv::StringRecord, delimiter: u8) -> Result<Measured> {
        let field = |column: usize| record.get(column).unwrap_or_default();
        let number = |text: &str| number(text, delimiter);
        let optional =
            |column: Option<usize>| column.map(field).filter(|text| !text.is_empty()).map(number).transpose();
        let p99 = optional(self.p99.map(|(column, _)| column)).context("p99")?;
        let labels: Vec<&str> = self.labels.iter().map(|label| field(*label)).filter(|text| !text.is_empty()).collect();
        Ok(Measured {
            label: labels.join(", "),
            clients: number(field(self.clients)).context("clients")?,
            throughput: number(field(self.throughput)).context("throughput")?,
            p99_ms: p99.zip(self.p99).map(|(value, (_, factor))| value * factor),
            cores: optional(self.cores).context("cores")?,
            nodes: optional(self.nodes).context("nodes")?,
        })
    }
}

/// `P99 (ms)` is `p99_ms`.
fn plain(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_lowercase().replace('µ', "u")
}

/// Where commas do not separate fields, one may be the decimal point.
fn number(text: &str, delimiter: u8) -> Result<f64> {
    let comma = if delimiter == b',' { text.to_owned() } else { text.replace(',', ".") };
    let value: f64 = comma.parse().ok().with_context(|| format!("\"{text}\" is not a number"))?;
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
        let spreadsheet = parse("\u{feff}\"Connections\"\t\"P99 (ms)\"\tTPS\r\n4\t1,5\t2e3\r\n").unwrap();
        assert_eq!(
            (spreadsheet[0].clients, spreadsheet[0].throughput, spreadsheet[0].p99_ms),
            (4.0, 2000.0, Some(1.5))
        );
        let gunther = parse("n,x\n4,2000\n").unwrap();
        assert_eq!((gunther[0].clients, gunther[0].throughput), (4.0, 2000.0));
        let ours = parse("target,series,x,tps_median\nWeir,1 active,4,2000\n").unwrap();
        assert_eq!((ours[0].label.as_str(), ours[0].clients), ("Weir, 1 active", 4.0));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error("clients,latency\n1,2\n").starts_with("there is no column of throughput"));
        assert_eq!(error("clients,tps\n1,2\n2,many\n"), "line 3: throughput: \"many\" is not a number");
        assert_eq!(error("clients,tps\n1,-2\n"), "line 2: throughput: -2 cannot be measured");
        assert_eq!(error("clients,tps\n"), "there is a header and nothing below it");
        assert_eq!(error("clients,tps\n1,2\n1\n"), "line 3: 1 fields, where the header has 2");
        assert!(error("x,y\n1,2\n").starts_with("there is no column of throughput"));
        assert_eq!(error("clients,tps\n1,2,5\n"), "line 2: 3 fields, where the header has 2");
        assert!(error("").starts_with("there is no column of clients"));
    }
}
