//! What a client leaves in its session, where that stays its own: one's model of it, and the statements that make it.

use std::collections::BTreeMap;

use weir_wire::{BackendTag, write};

use super::workload::{Draft, command};
use super::{Client, Exchange, Expect, Stage};
use crate::postgres::held::{Held, Kind, Thing};
use crate::postgres::sharded::Place;
use crate::postgres::{CUSTOM, ROLE, UNREPORTED, canonical};

/// What a client has of each kind at most.
const EACH: u64 = 3;

/// A session as its client knows it: parameters in PostgreSQL's spelling, what it holds, and what it has written.
pub(super) type Session = (BTreeMap<&'static str, String>, Held, BTreeMap<Place, u32>);

/// Several clients listen to each.
fn channel(which: u64) -> String {
    format!("ch{which}")
}

impl Client {
    /// Makes something or takes it away, in a transaction or not, and looks at it.
    pub(super) fn leave_something(&mut self, stage: &mut Stage) {
        let blocked = self.habits.transactions && stage.rng.chance(500);
        // Numbers grow in the order in which they are sent.
        let mut steps = self.begins(blocked);
        let mut things: Vec<(Kind, u64)> = Vec::new();
        for _ in 0..stage.rng.between(1, 4) {
            if stage.rng.chance(400) {
                steps.push(self.set_unreported(stage));
                continue;
            }
            if stage.rng.chance(300) {
                steps.push(self.notify(stage));
                continue;
            }
            let thing = (*stage.rng.pick(&Kind::ALL), stage.rng.below(EACH));
            // Whether it is there then depends on what becomes of the steps before.
            if !things.contains(&thing) {
                things.push(thing);
                steps.push(self.change_one(stage, thing));
            }
        }
        if blocked {
            if stage.rng.chance(200) {
                steps.push(self.failing());
            } else if stage.rng.chance(500) {
                steps.push(self.echo(1, 10, 0));
            }
            steps.push(self.ends(stage, 400));
        }
        let pipelined = stage.rng.chance(200);
        steps.iter_mut().enumerate().for_each(|(place, step)| step.wait = place == 0 || !pipelined);
        self.script.extend(steps);
        let after = self.echo(1, 5, 0);
        self.script.push_back(after);
    }

    /// Listens, and tells whoever listens, in a transaction or not.
    pub(super) fn talk(&mut self, stage: &mut Stage) {
        let which = stage.rng.below(EACH);
        if !self.held.has(&Thing { kind: Kind::Channel, name: channel(which) }) {
            let listens = self.change_one(stage, (Kind::Channel, which));
            self.script.push_back(Exchange { wait: true, ..listens });
        }
        for _ in 0..stage.rng.between(1, 4) {
            let blocked = self.habits.transactions && stage.rng.chance(300);
            let mut steps = self.begins(blocked);
            for _ in 0..stage.rng.between(1, 3) {
                steps.push(self.notify(stage));
            }
            if blocked {
                steps.push(self.ends(stage, 300));
            }
            let pause_after_us = stage.rng.spread(20_000);
            if let Some(last) = steps.last_mut() {
                last.pause_after_us = pause_after_us;
            }
            steps.iter_mut().enumerate().for_each(|(place, step)| step.wait = place == 0);
            self.script.extend(steps);
        }
    }

    /// The first step of a transaction block, if it is to be one.
    fn begins(&mut self, blocked: bool) -> Vec<Exchange> {
        blocked.then(|| self.simple_command("BEGIN", &["BEGIN"])).into_iter().collect()
    }

    /// A block's last step; a COMMIT of one that has failed rolls it back.
    fn ends(&mut self, stage: &mut Stage, rollback_permille: u64) -> Exchange {
        let end = if stage.rng.chance(rollback_permille) { "ROLLBACK" } else { "COMMIT" };
        self.simple_command(end, &["COMMIT", "ROLLBACK"])
    }

    fn change_one(&mut self, stage: &mut Stage, (kind, which): (Kind, u64)) -> Exchange {
        // A lock that another had would be waited for.
        let number = u64::from(self.number) * EACH + which;
        let name = match kind {
            Kind::Lock => number.to_string(),
            Kind::Channel => channel(which),
            _ => format!("h{number}"),
        };
        let thing = Thing { kind, name };
        let makes = !self.held.has(&thing);
        let text = if makes { thing.made_by(stage.rng.chance(500)) } else { thing.taken_by() };
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        write::query(&mut draft.0.bytes, format!("/*{tag}*/ {text}").as_bytes());
        if kind.has_rows() {
            draft.expect([BackendTag::RowDescription, BackendTag::DataRow].map(Expect::Message));
            draft.expect([Expect::Selected(1)]);
        } else {
            let done: &'static [&'static str; 2] = kind.done();
            draft.expect(command(tag, &done[usize::from(!makes)..][..1]));
        }
        draft.expect([Expect::Held { thing, makes }, Expect::Ready]);
        draft.0
    }

    /// Tells whoever listens something that is told once.
    fn notify(&mut self, stage: &mut Stage) -> Exchange {
        let channel = channel(stage.rng.below(EACH));
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        write::query(&mut draft.0.bytes, format!("/*{tag}*/ NOTIFY {channel}, '{tag}'").as_bytes());
        draft.expect(command(tag, &["NOTIFY"]));
        draft.expect([Expect::Ready]);
        draft.0
    }

    /// One that PostgreSQL does not report, also so that no word tells of it.
    fn set_unreported(&mut self, stage: &mut Stage) -> Exchange {
        let (name, values) =
            *stage.rng.pick(&[(UNREPORTED, ["1s", "9s"]), (CUSTOM, ["one", "another"]), (ROLE, ["reader", "none"])]);
        let value = *stage.rng.pick(&values);
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        let (text, done): (_, &[_]) = if stage.rng.chance(300) {
            (format!("/*{tag}*/ DO set_config('{name}', '{value}', false)"), &["DO"])
        } else {
            (format!("/*{tag}*/ SET {name} TO '{value}'"), &["SET"])
        };
        write::query(&mut draft.0.bytes, text.as_bytes());
        draft.expect(command(tag, done));
        draft.expect([Expect::Ready]);
        draft.0.sets = canonical(name, value).map(|value| (name, value));
        draft.0
    }

    /// What a row must tell of that. `None`: it is not promised.
    pub(super) fn kept_description(&self) -> Option<String> {
        let custom = self.model.get(CUSTOM).map_or("", String::as_str);
        let role = self.model.get(ROLE).map_or("none", String::as_str);
        self.habits.keeps.then(|| format!("{CUSTOM}={custom}\n{ROLE}={role}\n{}", self.held.description()))
    }

    /// Outside of a transaction: a ROLLBACK from here on comes back to this.
    pub(super) fn remember_session(&mut self) {
        self.before = (self.model.clone(), self.held.clone(), self.rows.clone());
    }

    /// No transaction block is open.
    pub(super) fn block_over(&mut self) {
        (self.explicit, self.aborted) = (false, false);
        self.own = super::sharded::Own::default();
    }

    pub(super) fn roll_back_session(&mut self) {
        let (model, held, rows) = &self.before;
        self.model.clone_from(model);
        self.rows.clone_from(rows);
        self.held.roll_back(held);
    }
}
