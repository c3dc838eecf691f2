//! Statements one of whose parameters gets its type from a table, and the DDL that changes that type.
//!
//! A client binds a value of the type that it was told of, or of none in particular where it was told nothing; PostgreSQL takes
//! it for one of the type that the statement got when it was parsed.

use weir_wire::{BackendTag, write};

use super::names::Deed;
use super::workload::{Draft, STATEMENTS, command, parsed_and_bound};
use super::{Client, Exchange, Expect, Prepared, Stage, encode};
use crate::postgres::Belief;
use crate::postgres::language::Tag;

/// For everybody, or up to the end of the transaction.
const RETYPE: [&str; 2] = ["ALTER TABLE t ALTER c TYPE other", "ALTER TABLE t ALTER c TYPE other awhile"];

pub(super) fn is_typed(text: &str) -> bool {
    text.contains("$2")
}

impl Client {
    /// Changes the type, mostly in a transaction, with statements behind it that see the change before others do.
    pub(super) fn retype_unit(&mut self, stage: &mut Stage) {
        if !self.habits.transactions || stage.rng.chance(400) {
            self.retype(stage);
            return;
        }
        let begin = self.simple_command("BEGIN", &["BEGIN"]);
        self.script.push_back(begin);
        let uses_it = !self.retype(stage) && self.habits.steady;
        let (within, behind) = (stage.rng.chance(400), stage.rng.chance(500));
        if uses_it && within {
            self.named_typed_anew(stage);
        }
        let end = match stage.rng.chance(400) {
            true => self.simple_command("ROLLBACK", &["ROLLBACK"]),
            false => self.simple_command("COMMIT", &["COMMIT", "ROLLBACK"]),
        };
        self.script.push_back(end);
        if uses_it && !within && behind {
            self.named_typed(stage);
        }
    }

    /// True if it prepares something too.
    fn retype(&mut self, stage: &mut Stage) -> bool {
        let places = 0..STATEMENTS.len();
        let name = |place: usize| format!("s{place}");
        let free =
            places.rev().find(|place| is_typed(STATEMENTS[*place].0) && !self.prepared.contains_key(&name(*place)));
        match free {
            Some(place) if self.habits.steady && stage.rng.chance(400) => {
                self.retype_and_prepare(stage, place);
                self.close_unnamed(true);
                true
            }
            _ => {
                let text: &&str = stage.rng.pick(&RETYPE);
                let exchange = self.simple_command(text, &["ALTER TABLE"]);
                self.script.push_back(exchange);
                false
            }
        }
    }

    /// All in one batch, which may fail in the end.
    fn retype_and_prepare(&mut self, stage: &mut Stage, place: usize) {
        let (name, (text, rows, bytes)) = (format!("s{place}"), STATEMENTS[place]);
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        let out = &mut draft.0.bytes;
        encode::parse(out, "", &format!("/*{tag}*/ {}", stage.rng.pick(&RETYPE)));
        encode::bind(out, "", "", None);
        encode::execute(out, "", 0);
        encode::parse(out, &name, text);
        draft.expect(parsed_and_bound(tag, Deed::Other));
        draft.expect(command(tag, &["ALTER TABLE"]));
        draft.expect([Expect::ParseComplete { name: name.clone() }]);
        if stage.rng.chance(300) {
            draft.describe_typed(&name);
        }
        let tag = self.tag();
        draft.bind_typed("", &name, tag);
        encode::execute(&mut draft.0.bytes, "", 0);
        draft.expect([Expect::Rows { tag, next: 0, until: rows, bytes }, Expect::Selected(rows)]);
        if stage.rng.chance(400) {
            let tag = self.tag();
            let out = &mut draft.0.bytes;
            encode::parse(out, "", &format!("/*{tag}*/ FAIL"));
            encode::bind(out, "", "", None);
            encode::execute(out, "", 0);
            draft.expect(parsed_and_bound(tag, Deed::Fail));
            draft.expect([Expect::Error(tag)]);
        }
        draft.0.last = self.last_statement;
        self.script.push_back(draft.sync());
    }

    /// What a Bind says of its client's idea is known when it is sent.
    pub(super) fn fill_in_belief(&self, exchange: &mut Exchange, types: u32) {
        exchange.types = types;
        let Some((place, name)) = &exchange.believes else { return };
        let belief = self.prepared.get(name).map_or(Belief { told: 0, oldest: types }, |prepared| prepared.types);
        exchange.bytes[*place..*place + Belief::TEXT_LEN].copy_from_slice(belief.text().as_bytes());
    }

    pub(super) fn statement_prepared(&mut self, name: String) {
        let zone = self.model["TimeZone"].clone();
        let oldest = self.owed.front().map_or(0, |exchange| exchange.types);
        self.prepared.insert(name, Prepared { zone, types: Belief { told: 0, oldest } });
    }

    /// A ParameterDescription; false if it is not one of such a statement.
    pub(super) fn types_told(&mut self, stage: &mut Stage, name: &str, body: &[u8]) -> bool {
        let [0, 2, _, _, _, _, types @ ..] = body else { return false };
        let (Ok(types), Some(prepared)) = (<[u8; 4]>::try_from(types), self.prepared.get_mut(name)) else {
            return false;
        };
        prepared.types.told = u32::from_be_bytes(types);
        stage.checks.prepared_for(self.number, prepared.types.told, prepared.types.oldest);
        true
    }

    /// What the client was told of a statement holds no more, and it was told that: it gives the name up, as drivers do.
    pub(super) fn told_of_change(&mut self, stage: &mut Stage) {
        stage.checks.stale_plan_told(self.number, stage.schema_version + stage.types);
        let name = self.owed.front().and_then(|exchange| exchange.requires.clone());
        if let Some(name) = name.filter(|name| self.prepared.contains_key(name)) {
            let mut draft = Draft::new(self.tag());
            write::close_statement(&mut draft.0.bytes, name.as_bytes());
            draft.expect([Expect::CloseComplete { name }]);
            self.script.push_front(draft.sync());
        }
    }
}

impl Draft {
    pub(super) fn describe_typed(&mut self, name: &str) {
        write::describe_statement(&mut self.0.bytes, name.as_bytes());
        let name = name.to_owned();
        self.expect([Expect::Types { name }, Expect::Message(BackendTag::RowDescription)]);
    }

    pub(super) fn bind_typed(&mut self, portal: &str, name: &str, tag: Tag) {
        let place = encode::bind_typed(&mut self.0.bytes, portal, name, tag);
        self.0.believes = Some((place, name.to_owned()));
        self.expect([Expect::Message(BackendTag::BindComplete)]);
    }
}
