//! The small language that simulated clients write their queries in, and simulated servers execute.
//!
//! A statement opens with a comment that names its asker, `/*c17.42*/`, so that whoever sees the query or a reply can
//! tell whose it is. Statements without one are the pooler's own. What PostgreSQL would parse and this does not
//! understand is `Verb::Unknown`.

use std::fmt;

use super::access::Access;
use super::catalogue::Question;
use super::expression::Expression;
use super::held::Deed;
use super::modes::Said;
use super::notes::Ask;

/// Client 17's 42nd statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    pub client: u32,
    pub number: u32,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.client, self.number)
    }
}

impl Tag {
    pub fn parse(text: &str) -> Option<Self> {
        let (client, number) = text.strip_prefix('c')?.split_once('.')?;
        Some(Self { client: client.parse().ok()?, number: number.parse().ok()? })
    }

    /// The tag somewhere in a text like `... tag=c17.42`.
    pub fn find(text: &str) -> Option<Self> {
        let rest = &text[text.find("tag=")? + 4..];
        let end = rest.find(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '.')).unwrap_or(rest.len());
        Self::parse(&rest[..end])
    }
}

/// What is asked of a user who is in no file.
pub const QUESTION: &str = "SECRET OF $1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Rows that carry the tag; `star` makes its result type depend on the schema, `typed` that of its second parameter.
    Echo {
        rows: u32,
        bytes: u32,
        sleep_us: u64,
        star: bool,
        typed: bool,
    },
    /// One row that says what TimeZone was when the statement was parsed.
    Zone,
    /// The user that is bound and its password, if there is such a one.
    Secret,
    Fail,
    Fatal,
    Begin {
        done: &'static str,
        said: Said,
    },
    /// SET TRANSACTION.
    Modes(Said),
    SetLocal {
        name: String,
        value: String,
    },
    /// Rows of a cluster's table, or DDL beside them.
    Access(Access),
    /// The pooler's, of a cluster's catalogue.
    Catalogue(Question),
    Commit,
    Rollback,
    /// Something that COMMIT makes last.
    Write,
    Set {
        name: String,
        value: String,
    },
    /// Does this, and its tag does not tell what.
    Do(Vec<Expression>),
    /// One row of these.
    Select(Vec<Expression>),
    /// The same, and no row.
    SelectWhere(Vec<Expression>),
    Held(Deed),
    /// LISTEN, UNLISTEN, NOTIFY.
    Ask(Ask),
    Reset(String),
    ResetAll,
    CopyIn,
    CopyOut {
        rows: u32,
        bytes: u32,
    },
    /// Changes the result type of every `star`.
    AlterTable,
    /// Changes the type of each `typed` parameter, for what is parsed from then on; or up to the end of the transaction, as a temporary
    /// table does that hides another, or a change that is taken back.
    Retype {
        passes: bool,
    },
    DiscardAll,
    DeallocateAll,
    Empty,
    /// What the pooler sends in the place of what it refuses.
    Refused,
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    pub tag: Option<Tag>,
    pub verb: Verb,
}

/// Splits a query text at its semicolons, minding quotes. An empty text gives one `Empty`.
pub fn parse(text: &str) -> Vec<Statement> {
    if let Some(question) = Question::parse(text) {
        return vec![Statement { tag: None, verb: Verb::Catalogue(question) }];
    }
    if let Some(deed @ Deed::Catalogue { .. }) = Deed::parse(text) {
        return vec![Statement { tag: None, verb: Verb::Held(deed) }];
    }
    let mut statements: Vec<Statement> =
        split(text, ';').into_iter().filter(|part| !part.trim().is_empty()).map(statement).collect();
    if statements.is_empty() {
        statements.push(Statement { tag: None, verb: Verb::Empty });
    }
    statements
}

pub(super) fn split(text: &str, at: char) -> Vec<&str> {
    let (mut parts, mut start, mut quoted, mut depth) = (Vec::new(), 0, false, 0);
    for (place, sign) in text.char_indices() {
        match sign {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ if sign == at && !quoted && depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn statement(text: &str) -> Statement {
    let mut text = text.trim();
    let mut tag = None;
    if let Some(rest) = text.strip_prefix("/*")
        && let Some((comment, rest)) = rest.split_once("*/")
    {
        tag = Tag::parse(comment);
        text = rest.trim();
    }
    Statement { tag, verb: verb(text) }
}

fn begin(done: &'static str, modes: &[&str], text: &str) -> Verb {
    Said::parse(modes).map_or_else(|| Verb::Unknown(text.to_owned()), |said| Verb::Begin { done, said })
}

fn verb(text: &str) -> Verb {
    if let Some(deed) = Deed::parse(text) {
        return Verb::Held(deed);
    }
    if let Some(ask) = Ask::parse(text) {
        return Verb::Ask(ask);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |place: usize| words.get(place).and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
    let lower: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
    if let Some(access) = Access::parse(&lower) {
        return Verb::Access(access);
    }
    match lower.as_slice() {
        [] => Verb::Empty,
        ["echo", ..] => {
            let (star, typed) = (lower.last() == Some(&"star"), lower.last() == Some(&"$2"));
            Verb::Echo { rows: number(1), bytes: number(2), sleep_us: u64::from(number(3)), star, typed }
        }
        ["zone"] => Verb::Zone,
        ["secret", "of", "$1"] => Verb::Secret,
        ["fail"] => Verb::Fail,
        ["fatal"] => Verb::Fatal,
        ["refused", "by", "the", "pooler"] => Verb::Refused,
        ["begin", modes @ ..] => begin("BEGIN", modes, text),
        ["start", "transaction", modes @ ..] => begin("START TRANSACTION", modes, text),
        ["set", "transaction", modes @ ..] => {
            Said::parse(modes).map_or_else(|| Verb::Unknown(text.to_owned()), Verb::Modes)
        }
        ["set", "local", name, "=" | "to", ..] => {
            let value = text[text.find(" = ").or(text.find(" to ")).unwrap_or(0) + 3..].trim();
            Verb::SetLocal { name: unquoted(name), value: literal(value) }
        }
        ["commit"] | ["end"] => Verb::Commit,
        ["rollback"] | ["abort"] => Verb::Rollback,
        ["write"] => Verb::Write,
        ["copy", _, "from", "stdin"] => Verb::CopyIn,
        ["copy", _, "to", "stdout", ..] => Verb::CopyOut { rows: number(4), bytes: number(5) },
        ["alter", "table", _, "alter", .., last] => Verb::Retype { passes: *last == "awhile" },
        ["alter", "table", ..] => Verb::AlterTable,
        ["discard", "all"] => Verb::DiscardAll,
        ["deallocate", "all"] => Verb::DeallocateAll,
        ["reset", "all"] => Verb::ResetAll,
        ["reset", name] => Verb::Reset(unquoted(name)),
        ["do", ..] => {
            Expression::parse(&text[2..]).map_or_else(|| Verb::Unknown(text.to_owned()), |value| Verb::Do(vec![value]))
        }
        ["set", ..] => set(text).unwrap_or_else(|| Verb::Unknown(text.to_owned())),
        ["select", "where", ..] => {
            let parts = text[6..].trim_start()[5..].split(" OR ");
            let values: Option<Vec<_>> = parts.map(|part| Expression::parse(part.strip_suffix("IS NULL")?)).collect();
            values.map_or_else(|| Verb::Unknown(text.to_owned()), Verb::SelectWhere)
        }
        ["select", ..] => {
            let list = text[6..].split(" FROM pg_catalog.pg_settings s ").next().unwrap_or_default();
            let values: Option<Vec<_>> = split(list, ',').into_iter().map(Expression::parse).collect();
            values.map_or_else(|| Verb::Unknown(text.to_owned()), Verb::Select)
        }
        _ => Verb::Unknown(text.to_owned()),
    }
}

fn unquoted(word: &str) -> String {
    word.replace('"', "").to_ascii_lowercase()
}

/// `'it''s'` or a bare word; an `E''` string's backslashes are undoubled.
pub(super) fn literal(text: &str) -> String {
    let text = text.trim();
    if let Some(inner) = text.strip_prefix("E'").or_else(|| text.strip_prefix("e'")) {
        return inner.strip_suffix('\'').unwrap_or(inner).replace("''", "'").replace("\\\\", "\\");
    }
    match text.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => text.to_owned(),
    }
}

fn set(text: &str) -> Option<Verb> {
    let rest = text[3..].trim_start();
    let rest = rest.strip_prefix("SESSION ").unwrap_or(rest);
    let end = rest.find(|sign: char| sign.is_whitespace() || sign == '=')?;
    let name = unquoted(&rest[..end]);
    let rest = rest[end..].trim_start();
    let value = rest.strip_prefix('=').or_else(|| rest.strip_prefix("TO ")).or_else(|| rest.strip_prefix("to "))?;
    if value.trim().eq_ignore_ascii_case("default") {
        return Some(Verb::Reset(name));
    }
    Some(Verb::Set { name, value: literal(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_carry_their_tags() {
        let parsed = parse("/*c1.2*/ ECHO 3 100 0; /*c1.3*/ SET application_name TO 'it''s;'");
        assert_eq!(parsed[0].tag, Some(Tag { client: 1, number: 2 }));
        assert_eq!(parsed[0].verb, Verb::Echo { rows: 3, bytes: 100, sleep_us: 0, star: false, typed: false });
        assert_eq!(parsed[1].verb, Verb::Set { name: "application_name".into(), value: "it's;".into() });
    }

    #[test]
    fn the_poolers_words_are_understood() {
        let verb =
            parse("SELECT set_config('DateStyle', 'ISO, MDY', false), set_config('a', 'x', false)").remove(0).verb;
        let text = |text: &str| Box::new(Expression::Text(text.to_owned()));
        let set = |name, value, local| Expression::SetConfig { name: text(name), value: text(value), local };
        assert_eq!(verb, Verb::Select(vec![set("DateStyle", "ISO, MDY", false), set("a", "x", false)]));
        let current = Box::new(Expression::Current(text("a")));
        let otherwise = Box::new(set("a", "x", true));
        let case = Expression::UnlessEqual { one: current, two: text("x"), otherwise };
        let verb = parse(
            "SELECT CASE WHEN pg_catalog.texteq(pg_catalog.current_setting(E'a',true),E'x') THEN NULL \
             ELSE pg_catalog.set_config(E'a',E'x',true) END",
        );
        assert_eq!(verb[0].verb, Verb::Select(vec![case]));
        assert_eq!(parse("").remove(0).verb, Verb::Empty);
        assert_eq!(
            parse("SET TimeZone = 'UTC'").remove(0).verb,
            Verb::Set { name: "timezone".into(), value: "UTC".into() }
        );
    }
}
