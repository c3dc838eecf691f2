//! What a session holds under which name, as PostgreSQL's rules have it: a client's idea of its own statements.
//!
//! Kept by what was answered, never by what was sent: a message that was skipped behind an error has done nothing.

use std::collections::BTreeMap;

use weir_wire::BackendTag;

use super::{Expect, encode};
use crate::postgres::language::Tag;

/// What a statement does, and what its parsing read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Whose rows it gives; `None`: whoever's tag is bound.
    pub tag: Option<Tag>,
    pub deed: Deed,
    /// TimeZone when it was parsed.
    pub zone: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Echo {
        rows: u32,
        bytes: u32,
    },
    /// One row that says what TimeZone was when the statement was parsed.
    Zone,
    Fail,
    /// Of no concern: a copy, or what some other unit prepared.
    Other,
}

/// A message of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Parse {
        name: String,
        tag: Option<Tag>,
        deed: Deed,
    },
    Bind {
        name: String,
        tag: Tag,
    },
    Execute,
    /// Of a portal that is not there.
    ExecuteNothing,
    CloseStatement {
        name: String,
    },
}

/// What an answer has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Parsed { name: String, tag: Option<Tag>, deed: Deed },
    Closed { name: String },
    Bound { known: Known },
}

#[derive(Debug, Default)]
pub struct Names {
    statements: BTreeMap<String, Known>,
    /// The unnamed portal.
    portal: Option<Known>,
}

impl Step {
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Parse { name, tag, deed } => encode::parse(out, name, &text(*tag, *deed)),
            Self::Bind { name, tag } => {
                // The unnamed statements here take no value; named ones take the tag.
                encode::bind(out, "", name, Some(*tag).filter(|_| !name.is_empty()));
            }
            Self::Execute => encode::execute(out, "", 0),
            Self::ExecuteNothing => encode::execute(out, "absent", 0),
            Self::CloseStatement { name } => weir_wire::write::close_statement(out, name.as_bytes()),
        }
    }
}

fn text(tag: Option<Tag>, deed: Deed) -> String {
    let owner = tag.map_or_else(|| "$1".to_owned(), |tag| tag.to_string());
    match deed {
        Deed::Echo { rows, bytes } => format!("/*{owner}*/ ECHO {rows} {bytes} 0"),
        Deed::Zone => format!("/*{owner}*/ ZONE"),
        Deed::Fail | Deed::Other => format!("/*{owner}*/ FAIL"),
    }
}

impl Names {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// What must come for a message, now that all before it is answered, and what it changes then.
    pub fn answer(&self, step: &Step) -> Vec<Expect> {
        match step {
            Step::Parse { name, .. } if !name.is_empty() && self.statements.contains_key(name) => {
                vec![Expect::Refused("42P05")]
            }
            Step::Parse { name, tag, deed } => {
                let effect = Effect::Parsed { name: name.clone(), tag: *tag, deed: *deed };
                vec![Expect::Message(BackendTag::ParseComplete), Expect::Effect(effect)]
            }
            Step::Bind { name, tag } => match self.statements.get(name) {
                Some(known) => {
                    let known = Known { tag: known.tag.or(Some(*tag)), ..known.clone() };
                    vec![Expect::Message(BackendTag::BindComplete), Expect::Effect(Effect::Bound { known })]
                }
                None => vec![Expect::Refused("26000")],
            },
            Step::Execute => self.execute(),
            Step::ExecuteNothing => vec![Expect::Refused("34000")],
            Step::CloseStatement { name } => {
                let effect = Effect::Closed { name: name.clone() };
                vec![Expect::Message(BackendTag::CloseComplete), Expect::Effect(effect)]
            }
        }
    }

    fn execute(&self) -> Vec<Expect> {
        let Some(Known { tag: Some(tag), deed, zone }) = &self.portal else { return vec![Expect::Refused("34000")] };
        let tag = *tag;
        match *deed {
            Deed::Echo { rows, bytes } => {
                vec![Expect::Rows { tag, next: 0, until: rows, bytes }, Expect::Selected(rows)]
            }
            Deed::Zone => vec![Expect::Zone { tag, zone: zone.clone() }, Expect::Selected(1)],
            Deed::Fail => vec![Expect::Error(tag)],
            Deed::Other => vec![Expect::Anything],
        }
    }

    /// TimeZone at the Parse of what is bound.
    pub fn zone(&self) -> Option<&String> {
        self.portal.as_ref().map(|known| &known.zone)
    }

    /// `zone`: TimeZone as it is.
    pub fn apply(&mut self, effect: Effect, zone: &str) {
        match effect {
            Effect::Parsed { name, tag, deed } => {
                self.statements.insert(name, Known { tag, deed, zone: zone.to_owned() });
            }
            Effect::Closed { name } => self.lose(&name),
            Effect::Bound { known } => self.portal = Some(known),
        }
    }

    pub fn lose(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// The unnamed statement is a copy, or some other unit's.
    pub fn unnamed_is_foreign(&self) -> bool {
        self.statements.get("").is_some_and(|known| known.deed == Deed::Other)
    }

    /// The number of the oldest text that can still be run.
    pub fn oldest(&self) -> Option<u32> {
        let tags = self.statements.values().chain(&self.portal).filter_map(|known| known.tag);
        tags.map(|tag| tag.number).min()
    }

    /// ReadyForQuery outside of a transaction block: portals are gone.
    pub fn transaction_over(&mut self) {
        self.portal = None;
    }

    /// A simple query takes the unnamed statement away (postgres.c, `exec_simple_query`).
    pub fn simple_query(&mut self) {
        self.statements.remove("");
        self.portal = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Step {
        Step::Parse { name: name.to_owned(), tag: None, deed: Deed::Zone }
    }

    fn apply_all(names: &mut Names, step: &Step, zone: &str) {
        for expect in names.answer(step) {
            if let Expect::Effect(effect) = expect {
                names.apply(effect, zone);
            }
        }
    }

    #[test]
    fn names_are_taken_once_and_keep_what_parsing_read() {
        let mut names = Names::default();
        let bind = Step::Bind { name: "n".to_owned(), tag: Tag { client: 1, number: 1 } };
        assert!(matches!(names.answer(&bind).as_slice(), [Expect::Refused("26000")]));
        apply_all(&mut names, &parse("n"), "UTC");
        assert!(matches!(names.answer(&parse("n")).as_slice(), [Expect::Refused("42P05")]));
        apply_all(&mut names, &bind, "Asia/Kolkata");
        assert!(matches!(&names.answer(&Step::Execute)[0], Expect::Zone { zone, .. } if zone == "UTC"));
        names.transaction_over();
        assert!(matches!(names.answer(&Step::Execute).as_slice(), [Expect::Refused("34000")]));
    }

    #[test]
    fn a_simple_query_takes_the_unnamed_statement_only() {
        let mut names = Names::default();
        apply_all(&mut names, &parse(""), "UTC");
        apply_all(&mut names, &parse("n"), "UTC");
        names.simple_query();
        assert!(names.statements.contains_key("n") && !names.statements.contains_key(""));
    }
}
