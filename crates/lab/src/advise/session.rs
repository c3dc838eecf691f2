//! Asking a server or a console: statements in one session, and their answers as tables.
//!
//! Knows how psql is told to write tables that can be read back; does not know what is asked.

use std::time::Duration;

use anyhow::{Result, anyhow};

use weir_measure::load::psql::Psql;
use weir_measure::url::Url;

/// What separates fields, rows and tables: control characters that PostgreSQL's names seldom hold.
const FIELD: char = '\u{1f}';
const ROW: char = '\u{1e}';
const TABLE: char = '\u{1d}';
/// No look takes longer than its own seconds and this.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Whatever is asked, nothing can be changed, and nothing runs for long. Chapter 20.11 of PostgreSQL's manual.
const READ_ONLY: &str = "-c default_transaction_read_only=on -c statement_timeout=15s";

/// Where statements are answered. One call is one session.
pub trait Session {
    /// A table for each statement; the first error is the whole answer.
    fn ask(&self, statements: &[&str]) -> Result<Vec<Table>>;
}

/// What one statement answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|fields| Row { columns: &self.columns, fields })
    }

    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|known| known == column)
    }

    pub fn first(&self) -> Option<Row<'_>> {
        self.rows().next()
    }

    fn of(text: &str) -> Table {
        // The last row ends in a newline, whatever separates the others (`print_unaligned_text` in fe_utils/print.c).
        let text = text.strip_suffix('\n').unwrap_or(text);
        let mut rows = text.split(ROW).map(|row| row.split(FIELD).map(str::to_owned).collect());
        Table { columns: rows.next().unwrap_or_default(), rows: rows.collect() }
    }
}

/// Fields by the names of their columns: versions differ in which they have, and where.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    columns: &'a [String],
    fields: &'a [String],
}

impl<'a> Row<'a> {
    /// `None` where there is no such column, or nothing in it.
    pub fn text(&self, column: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|known| known == column)?;
        Some(self.fields.get(at)?.as_str()).filter(|field| !field.is_empty())
    }

    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// 0 where it does not say.
    pub fn count(&self, column: &str) -> f64 {
        self.number(column).unwrap_or(0.0)
    }
}

/// psql as a session.
pub struct PsqlSession<'a> {
    psql: Psql,
    url: Url,
    /// For errors: the option that named it, and the URL as it was given.
    what: &'a str,
    shown: String,
}

impl<'a> PsqlSession<'a> {
    /// A server's: nothing can be changed in it.
    pub fn of_server(psql: &Psql, url: &Url) -> PsqlSession<'a> {
        let (psql, shown) = (psql.clone().patient(PATIENCE), url.to_string());
        PsqlSession { psql, url: url.with_options(READ_ONLY), what: "--url", shown }
    }

    /// A pooler's console, which knows no transactions.
    pub fn of_console(psql: &Psql, url: &Url) -> PsqlSession<'a> {
        let (psql, shown) = (psql.clone().patient(PATIENCE), url.to_string());
        PsqlSession { psql, url: url.clone(), what: "--console", shown }
    }
}

impl Session for PsqlSession<'_> {
    fn ask(&self, statements: &[&str]) -> Result<Vec<Table>> {
        let answer = self.psql.run(&self.url, &script(statements));
        let said = |error: anyhow::Error| bare(&format!("{error:#}"), &self.url.to_string());
        answer.map(|text| tables(&text)).map_err(|error| explained(self.what, &self.shown, &said(error)))
    }
}

/// psql's commands beside the statements stay in psql: the server sees the statements only.
fn script(statements: &[&str]) -> String {
    let mut script =
        "\\pset tuples_only off\n\\pset footer off\n\\pset fieldsep '\\037'\n\\pset recordsep '\\036'\n".to_owned();
    for statement in statements {
        script.push_str(&format!("{};\n\\echo -n '\\035'\n", statement.trim_end_matches(';')));
    }
    script
}

fn tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = text.split(TABLE).map(Table::of).collect();
    // Behind the last separator comes nothing.
    tables.pop();
    tables
}

/// What libpq or a server said, without the URL that we sent and without psql's name and place in our script.
fn bare(said: &str, url: &str) -> String {
    let said = said.strip_prefix(url).map_or(said, str::trim_start);
    let said = said.strip_prefix("answers: ").unwrap_or(said);
    // A terminal obeys control characters, whoever sent them.
    let said: &str = &said.replace(|letter: char| letter.is_control(), " ");
    match said.strip_prefix("psql:") {
        // `psql:FILE:LINE: ERROR:  ...`, or `psql: error: ...`.
        Some(rest) => rest.split_once(": ").map_or(rest, |(_, words)| words).trim_start().to_owned(),
        None => said.to_owned(),
    }
}

/// What libpq and servers say, in a sentence that says what to do.
fn explained(what: &str, url: &str, said: &str) -> anyhow::Error {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let sentence = if has(&["unsupported startup parameter"]) {
        // PgBouncer's answer to settings that it does not track.
        format!(
            "{what}: {url} is a pooler: it does not pass on the settings that keep a look read-only. Give the server's own URL to --url \
             and the pooler's console to --console"
        )
    } else if has(&["password authentication failed", "SASL authentication failed", "authentication failed"]) {
        format!("{what}: {url} does not accept this user with this password")
    } else if has(&["no password supplied", "fe_sendauth"]) {
        format!("{what}: {url} asks for a password: put it into the URL, PGPASSWORD or ~/.pgpass")
    } else if has(&["Connection refused"]) {
        format!("{what}: nothing listens at {url}: the connection was refused")
    } else if has(&["No such file or directory"]) && said.contains("socket") {
        format!("{what}: there is no Unix socket of a server at {url}")
    } else if has(&["could not translate host name"]) {
        format!("{what}: the host of {url} is not known")
    } else if has(&["No route to host", "Network is unreachable"]) {
        format!("{what}: {url} cannot be reached")
    } else if has(&["timeout expired"]) {
        format!("{what}: {url} did not answer in time: it cannot be reached, or what listens there is no PostgreSQL")
    } else if has(&["database \"pgbouncer\" does not exist"]) {
        format!("{what}: {url} has no console: it is a server, or a pooler of another kind")
    } else if what == "--console" && has(&["unrecognized configuration parameter", "syntax error"]) {
        // PostgreSQL's answer to SHOW VERSION.
        format!("{what}: {url} is a database, not a console: a console's URL ends in /pgbouncer")
    } else if has(&["received invalid response", "expected authentication request", "server closed the connection"]) {
        format!("{what}: what listens at {url} does not speak as PostgreSQL does, or ended the connection at once")
    } else {
        return anyhow!("{what}: {said}");
    };
    anyhow!("{sentence} ({said})")
}

#[cfg(test)]
pub mod fake {
    //! A session of prepared answers.

    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// By statement, the answers in their order; the last one stays.
    #[derive(Default)]
    pub struct Fake {
        answers: RefCell<BTreeMap<String, Vec<Table>>>,
    }

    impl Fake {
        /// Columns and fields with blanks between; `-` is an empty field.
        pub fn with(self, statement: &str, columns: &str, rows: &[&str]) -> Fake {
            let fields: Vec<Vec<&str>> = rows.iter().map(|row| row.split_whitespace().collect()).collect();
            let fields: Vec<&[&str]> = fields.iter().map(Vec::as_slice).collect();
            self.with_fields(statement, columns, &fields)
        }

        /// These tables of one row each, instead of what it had.
        pub fn instead(self, statement: &str, columns: &str, rows: &[&str]) -> Fake {
            self.answers.borrow_mut().remove(statement);
            rows.iter().fold(self, |fake, row| fake.with(statement, columns, &[row]))
        }

        /// The same, with fields that may hold blanks.
        pub fn with_fields(self, statement: &str, columns: &str, rows: &[&[&str]]) -> Fake {
            let field = |field: &&str| if *field == "-" { String::new() } else { (*field).to_owned() };
            let rows = rows.iter().map(|row| row.iter().map(field).collect()).collect();
            let table = Table { columns: columns.split_whitespace().map(str::to_owned).collect(), rows };
            self.answers.borrow_mut().entry(statement.to_owned()).or_default().push(table);
            self
        }
    }

    impl Session for Fake {
        fn ask(&self, statements: &[&str]) -> Result<Vec<Table>> {
            let mut answers = self.answers.borrow_mut();
            let mut answer = |statement: &&str| {
                let known = answers.get_mut(*statement).ok_or_else(|| anyhow!("unknown command: {statement}"))?;
                Ok(if known.len() > 1 { known.remove(0) } else { known[0].clone() })
            };
            statements.iter().map(&mut answer).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_whatever_they_hold() {
        let text = "a\u{1f}b\u{1e}1\u{1f}two|lines\nlong\u{1e}\u{1f}x\n\u{1d}n\n\u{1d}";
        let tables = tables(text);
        assert_eq!(tables.len(), 2);
        let rows: Vec<Row> = tables[0].rows().collect();
        assert_eq!((rows[0].number("a"), rows[0].text("b")), (Some(1.0), Some("two|lines\nlong")));
        assert_eq!((rows[1].text("a"), rows[1].text("c"), rows[1].count("a")), (None, None, 0.0));
        assert!(tables[1].first().is_none(), "a header and no row");
    }

    #[test]
    fn the_server_sees_statements_only() {
        let script = script(&["SELECT 1", "SHOW x;"]);
        let sent: Vec<&str> = script.lines().filter(|line| !line.starts_with('\\')).collect();
        assert_eq!(sent, ["SELECT 1;", "SHOW x;"]);
    }

    #[test]
    fn what_was_said_is_shown_without_our_own_words() {
        let sent = "postgres://h/d?options=-c%20x=on";
        let bare = |said: &str| super::bare(&format!("{sent} answers: {said}"), sent);
        assert_eq!(bare("psql: error: connection to server failed"), "connection to server failed");
        assert_eq!(bare("psql:/tmp/weir-advise-x/statements.sql:5: ERROR:  unheard of"), "ERROR:  unheard of");
        assert_eq!(super::bare("interrupted", sent), "interrupted");
        assert_eq!(super::bare("a\u{1b}[2Jb", sent), "a [2Jb");
    }

    #[test]
    fn refusals_become_sentences() {
        let url = "postgres://me:hunter2@h:1/d".parse::<Url>().unwrap().to_string();
        for (said, expected) in [
            ("FATAL:  password authentication failed for user \"me\"", "does not accept this user with this password"),
            ("Connection refused\n\tIs the server running", "nothing listens at postgres://me@h:1/d"),
            ("server closed the connection unexpectedly", "does not speak as PostgreSQL does"),
            ("fe_sendauth: no password supplied", "asks for a password"),
            ("FATAL:  unsupported startup parameter: options", "is a pooler"),
            ("timeout expired", "did not answer in time"),
            ("something else", "--url: something else"),
        ] {
            let error = explained("--url", &url, said).to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
        }
    }
}
