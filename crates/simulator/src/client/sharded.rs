//! What clients ask of a cluster's tables: rows by their keys, in blocks that begin with a BEGIN alone, and what must not go by a key.
//!
//! Each client has keys of its own, so that it knows what it must read there.

use weir_wire::{BackendTag, write};

use super::names::Deed as Prepares;
use super::workload::{Draft, command, parsed_and_bound};
use super::{Client, Exchange, Expect, Stage, encode};
use crate::postgres::access::{Access, Deed, Key};
use crate::postgres::language::Tag;
use crate::postgres::modes::{Isolation, Modes, Said};
use crate::postgres::sharded::{Place, SHARDED, Table};
use crate::postgres::{CONFIGURED, UNREPORTED};

/// How many keys each client has.
const KEYS: u64 = 6;
/// What a statement that is prepared alone is given until it is used.
const PREPARED_US: u64 = 50_000;
/// Search paths that clients set.
const PATHS: [&str; 4] = ["public", "early, public", "public, early", "tenant, public"];
/// Names of tables that have no row of a client's own.
const OTHERS: [&str; 3] = ["tenant.notes", "colours", "public.colours"];
/// Statements that clients share by their texts.
const STATEMENTS: [&str; 3] = [
    "/*$1*/ SELECT v FROM accounts WHERE aid = $2",
    "/*$1*/ SELECT v FROM public.history WHERE aid = $2",
    "/*$1*/ SELECT v FROM public.accounts WHERE aid = $2",
];

/// What an answer changes of what a client believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Modes(Said),
    /// A setting, up to the transaction's end.
    Local(&'static str),
    Row(Place, u32),
}

/// What a client believes of its transaction.
#[derive(Debug, Default)]
pub(super) struct Own {
    modes: Modes,
    pub(super) local: Option<&'static str>,
    /// Something was asked in it.
    pub(super) queried: bool,
}

impl Client {
    pub(super) fn is_in_cluster(&self, stage: &Stage) -> bool {
        stage.plan.sharded.is_some() && self.identity.database == SHARDED
    }

    pub(super) fn sharded_unit(&mut self, stage: &mut Stage) {
        match stage.rng.below(14) {
            0..=6 if self.habits.transactions => self.keyed_block(stage),
            7 => self.set_path(stage),
            8 => self.make_early(stage),
            9 if self.habits.steady => self.keyed_named(stage),
            _ => {
                let exchange = self.any_access(stage);
                self.script.push_back(exchange);
            }
        }
    }

    /// The one unit of a client that comes when the faults are over, alone or as a block.
    pub(super) fn keyed_unit(&mut self, stage: &mut Stage, keys: &[i64], pause_us: u64) {
        for key in keys {
            let first = self.last_statement + 1;
            let mut steps = Vec::new();
            let is_block = self.habits.transactions && stage.rng.chance(400);
            if is_block {
                steps.push(self.begin(stage).0);
            }
            let tag = self.tag();
            let access = Access { name: "public.accounts".to_owned(), key: Key::Of(*key), deed: Deed::Read };
            steps.push(self.draw_up(stage, tag, &access, None));
            if is_block {
                steps.push(self.end(stage));
                stage.checks.is_block(self.number, first, self.last_statement);
            }
            if let Some(last) = steps.last_mut() {
                last.pause_after_us = pause_us;
            }
            self.script.extend(steps);
        }
    }

    fn key(&self, stage: &mut Stage) -> i64 {
        i64::from(self.number) * KEYS as i64 + stage.rng.below(KEYS) as i64
    }

    /// By a key, mostly.
    fn any_access(&mut self, stage: &mut Stage) -> Exchange {
        if stage.rng.chance(200) {
            return self.keyless(stage);
        }
        let key = self.key(stage);
        let tag = self.tag();
        let (name, table) = *stage.rng.pick(&[
            ("accounts", Table::Accounts),
            ("public.accounts", Table::Accounts),
            ("history", Table::History),
            ("public.history", Table::History),
        ]);
        // By a name that may be another table's nothing is written.
        let writes = name != "accounts" && stage.rng.chance(400);
        let deed = if writes { Deed::Write(tag.number) } else { Deed::Read };
        let access = Access { name: name.to_owned(), key: Key::Of(key), deed };
        self.draw_up(stage, tag, &access, Some((table, key)))
    }

    fn keyless(&mut self, stage: &mut Stage) -> Exchange {
        let tag = self.tag();
        let name = *stage.rng.pick(&OTHERS);
        let name = if stage.rng.chance(300) { "public.accounts" } else { name };
        let deed = if stage.rng.chance(200) { Deed::Write(tag.number) } else { Deed::Read };
        let access = Access { name: name.to_owned(), key: Key::None, deed };
        self.draw_up(stage, tag, &access, None)
    }

    /// As a simple query, or as a batch with the unnamed statement.
    fn draw_up(&mut self, stage: &mut Stage, tag: Tag, access: &Access, place: Option<Place>) -> Exchange {
        let mut draft = Draft::new(tag);
        let simple = stage.rng.chance(600);
        let binds = !simple && matches!(access.key, Key::Of(_)) && stage.rng.chance(500);
        let text = if binds { Access { key: Key::Bound, ..access.clone() }.text() } else { access.text() };
        let text = format!("/*{tag}*/ {text}");
        let out = &mut draft.0.bytes;
        if simple {
            write::query(out, text.as_bytes());
        } else {
            encode::parse(out, "", &text);
            match access.key {
                Key::Of(key) if binds => encode::bind_key(out, "", tag, key),
                _ => encode::bind(out, "", "", None),
            }
            draft.expect(parsed_and_bound(tag, Prepares::Other));
            let describes = stage.rng.chance(300);
            if describes {
                encode::describe_portal(&mut draft.0.bytes, "");
                let told = if access.writes() { BackendTag::NoData } else { BackendTag::RowDescription };
                draft.expect([Expect::Message(told)]);
            }
            encode::execute(&mut draft.0.bytes, "", 0);
        }
        match access.deed {
            Deed::Read => {
                if simple {
                    draft.expect([Expect::Message(BackendTag::RowDescription)]);
                }
                draft.expect([Expect::Spread { tag, place }, Expect::Selected(1)]);
            }
            Deed::Write(value) => {
                draft.expect(command(tag, &["UPDATE 1"]));
                draft.expect(place.map(|place| Expect::Change(Change::Row(place, value))));
            }
            Deed::Make(makes) => draft.expect(command(tag, if makes { &["CREATE TABLE"] } else { &["DROP TABLE"] })),
        }
        if simple {
            draft.expect([Expect::Ready]);
            return draft.0;
        }
        draft.sync()
    }

    /// A statement without a tag, as the pooler answers it by itself: its words and nothing else.
    fn plain(&mut self, stage: &mut Stage, text: &str, expects: impl IntoIterator<Item = Expect>) -> Exchange {
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        draft.0.plain = true;
        if stage.rng.chance(600) {
            write::query(&mut draft.0.bytes, text.as_bytes());
            draft.expect(expects);
            draft.expect([Expect::Ready]);
            return draft.0;
        }
        encode::parse(&mut draft.0.bytes, "", text);
        encode::bind(&mut draft.0.bytes, "", "", None);
        draft.expect(parsed_and_bound(tag, Prepares::Other));
        if stage.rng.chance(300) {
            encode::describe_portal(&mut draft.0.bytes, "");
            draft.expect([Expect::Message(BackendTag::NoData)]);
        }
        encode::execute(&mut draft.0.bytes, "", 0);
        draft.expect(expects);
        draft.sync()
    }

    fn begin(&mut self, stage: &mut Stage) -> (Exchange, Said) {
        let said = some_modes(stage);
        let (word, done): (_, &'static [&'static str]) = match stage.rng.below(3) {
            0 => ("start transaction", &["START TRANSACTION"]),
            1 => ("BEGIN", &["BEGIN"]),
            _ => ("begin", &["BEGIN"]),
        };
        let expects = [Expect::Command(done), Expect::Change(Change::Modes(said))];
        (self.plain(stage, &with_modes(word, said), expects), said)
    }

    fn end(&mut self, stage: &mut Stage) -> Exchange {
        let (text, done): (_, &'static [&'static str]) = *stage.rng.pick(&[
            ("COMMIT", &["COMMIT", "ROLLBACK"][..]),
            ("end", &["COMMIT", "ROLLBACK"][..]),
            ("ROLLBACK", &["ROLLBACK"][..]),
            ("commit", &["COMMIT", "ROLLBACK"][..]),
        ]);
        self.plain(stage, text, [Expect::Command(done)])
    }

    fn set_within(&mut self, stage: &mut Stage, read_only: bool) -> Exchange {
        let (text, change) = if stage.rng.chance(400) {
            // In small letters: in others it would be the pooler's own.
            let value = *stage.rng.pick(&["4s", "7s"]);
            (format!("set local {UNREPORTED} = '{value}'"), Change::Local(value))
        } else {
            let isolation = Some(*stage.rng.pick(&Isolation::ALL));
            let said = if stage.rng.chance(500) {
                Said { isolation, read_only: None }
            } else {
                Said { isolation: None, read_only: Some(read_only || stage.rng.chance(300)) }
            };
            (with_modes("SET TRANSACTION", said), Change::Modes(said))
        };
        self.plain(stage, &text, [Expect::Command(&["SET"]), Expect::Change(change)])
    }

    /// A block whose BEGIN says nothing of where it goes.
    fn keyed_block(&mut self, stage: &mut Stage) {
        let first = self.last_statement + 1;
        let (begin, said) = self.begin(stage);
        let mut steps = vec![begin];
        for _ in 0..stage.rng.below(3) {
            steps.push(self.set_within(stage, said.read_only == Some(true)));
        }
        // One that is empty has no server.
        for _ in 0..stage.rng.below(5) {
            steps.push(match stage.rng.below(12) {
                0 => self.failing(),
                1 => self.echo(1, 10, 0),
                2 => self.too_late(stage),
                _ => self.any_access(stage),
            });
        }
        steps.push(self.end(stage));
        stage.checks.is_block(self.number, first, self.last_statement);
        let pipelined = stage.rng.chance(250);
        for (place, step) in steps.iter_mut().enumerate() {
            step.wait = place == 0 || !pipelined;
            if !pipelined && stage.rng.chance(200) {
                step.pause_after_us = stage.rng.spread(20_000);
            }
        }
        self.script.extend(steps);
    }

    /// PostgreSQL refuses another isolation level behind a query, and takes the same.
    fn too_late(&mut self, stage: &mut Stage) -> Exchange {
        let said = Said { isolation: Some(Isolation::Serializable), read_only: None };
        self.plain(stage, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", [Expect::Modes(said)])
    }

    fn set_path(&mut self, stage: &mut Stage) {
        let path = *stage.rng.pick(&PATHS);
        let mut exchange = self.simple_command(&format!("SET search_path TO {path}"), &["SET"]);
        exchange.sets = Some((CONFIGURED, path.to_owned()));
        self.script.push_back(exchange);
    }

    /// DDL: a table that hides another from whoever has its schema ahead.
    fn make_early(&mut self, stage: &mut Stage) {
        let tag = self.tag();
        let makes = stage.rng.chance(500);
        let access = Access { name: "early.accounts".to_owned(), key: Key::None, deed: Deed::Make(makes) };
        let exchange = self.draw_up(stage, tag, &access, None);
        self.script.push_back(exchange);
        let after = self.any_access(stage);
        self.script.push_back(after);
    }

    fn keyed_named(&mut self, stage: &mut Stage) {
        let which = stage.rng.index(STATEMENTS.len());
        let (name, text) = (format!("k{which}"), STATEMENTS[which]);
        let table = if text.contains("history") { Table::History } else { Table::Accounts };
        if !self.prepared.contains_key(&name) {
            let mut draft = Draft::new(self.tag());
            encode::parse(&mut draft.0.bytes, &name, text);
            draft.expect([Expect::ParseComplete { name: name.clone() }]);
            // What comes while the pooler has work of its own on the server goes on there.
            draft.0.pause_after_us = PREPARED_US;
            self.script.push_back(draft.sync());
        }
        for _ in 0..stage.rng.between(1, 4) {
            let key = self.key(stage);
            let tag = self.tag();
            let mut draft = Draft::new(tag);
            encode::bind_key(&mut draft.0.bytes, &name, tag, key);
            encode::execute(&mut draft.0.bytes, "", 0);
            draft.expect([Expect::Message(BackendTag::BindComplete)]);
            draft.expect([Expect::Spread { tag, place: Some((table, key)) }, Expect::Selected(1)]);
            draft.0.requires = Some(name.clone());
            self.script.push_back(draft.sync());
        }
    }

    /// What was answered has changed this.
    pub(super) fn change(&mut self, change: Change) {
        match change {
            // Outside of a block they pass with the statement.
            Change::Modes(_) | Change::Local(_) if !self.explicit => {}
            Change::Modes(said) => self.own.modes = self.own.modes.with(said),
            Change::Local(value) => self.own.local = Some(value),
            Change::Row(place, value) => drop(self.rows.insert(place, value)),
        }
    }

    /// Whether PostgreSQL would take this, and how its transaction would be then.
    pub(super) fn takes_modes(&self, said: Said) -> bool {
        !self.own.queried || self.own.modes.with(said) == self.own.modes
    }

    /// A write is done.
    pub(super) fn may_write(&mut self, stage: &mut Stage) {
        if self.is_read_only() {
            let text = format!("a write in a transaction that reads: {}", self.describe());
            stage.checks.fail("a transaction is what its client says", text);
        }
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.explicit && self.own.modes.read_only
    }

    /// A row of a cluster's table: in whose transaction it was read, and what was there.
    pub(super) fn spread_row(&mut self, stage: &mut Stage, body: &[u8]) {
        let Some(Expect::Spread { tag, place }) = self.front() else { return };
        let (wanted, place) = (tag.to_string(), *place);
        let values = super::rows::row_values(body).unwrap_or_default();
        let text = |place: usize| values.get(place).map(|value| String::from_utf8_lossy(value).into_owned());
        if text(0).as_deref() != Some(&wanted) {
            return self.wrong(stage, &format!("row of {:?}", text(0)));
        }
        self.session_told(stage, text(2).unwrap_or_default());
        let told = text(3).unwrap_or_default();
        let mut words = told.splitn(3, ' ');
        let (table, value, modes) = (words.next().unwrap_or_default(), words.next(), words.next().unwrap_or_default());
        let own = place.filter(|(own, _)| table == format!("{own:?}"));
        let wanted = own.map(|place| self.rows.get(&place).copied().unwrap_or(0));
        if let Some(wanted) = wanted
            && value.and_then(|value| value.parse().ok()) != Some(wanted)
        {
            let text = format!("{told} instead of {wanted}: {}", self.describe());
            return stage.checks.fail("a client reads what it has written", text);
        }
        if modes != self.own.modes.description() {
            let text = format!("{modes} instead of {}: {}", self.own.modes.description(), self.describe());
            return stage.checks.fail("a transaction is what its client says", text);
        }
        self.pop();
    }
}

fn with_modes(word: &str, said: Said) -> String {
    let modes = said.text();
    if modes.is_empty() { word.to_owned() } else { format!("{word} {modes}") }
}

fn some_modes(stage: &mut Stage) -> Said {
    if stage.rng.chance(500) {
        return Said::default();
    }
    Said {
        isolation: stage.rng.chance(600).then(|| *stage.rng.pick(&Isolation::ALL)),
        read_only: stage.rng.chance(300).then(|| stage.rng.chance(700)),
    }
}
