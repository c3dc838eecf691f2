//! Draws pipelines. Keeps a rough idea of what the session holds, so that much of what it draws makes sense; nothing
//! depends on whether that idea is right.

use std::collections::BTreeMap;

use weir_wire::TransactionStatus;

use super::people::{Deed, Person};
use super::steps::{Kind, Step, Text, synced};
use super::texts;
use crate::rng::Rng;

const STATEMENTS: [&str; 3] = ["s1", "s2", "s3"];
const PORTALS: [&str; 2] = ["p1", "p2"];
/// Steps of one pipeline, but for its last group.
const STEPS_MAX: usize = 60;

pub struct Generator<'a> {
    person: Person,
    without: &'a [Deed],
    /// Parameters that each statement takes, as far as is known.
    takes: BTreeMap<&'static str, u16>,
    /// Those of them that had a text of `read_alike` last.
    alike: Vec<&'static str>,
    /// How often a simple query is taken where the extended protocol would do, in a thousand: with none, unnamed statements
    /// stay where they are.
    simple_permille: u64,
    /// How often a simple query comes without a Sync in front of it. Mostly never: PostgreSQL itself mixes up its transaction state
    /// then (`Difference::by_lost_state`), which ends the comparison.
    unsynced_permille: u64,
    /// A portal may have rows left, or a name.
    portals: bool,
    steps: Vec<Step>,
}

impl<'a> Generator<'a> {
    pub fn new(rng: &mut Rng, person: Person, without: &'a [Deed]) -> Self {
        let simple_permille = *rng.pick(&[0, 200, 500]);
        let may_be_unsynced = !without.contains(&Deed::Unsynced);
        let unsynced_permille = if may_be_unsynced { *rng.pick(&[0, 0, 500]) } else { 0 };
        Self {
            simple_permille,
            unsynced_permille,
            person,
            without,
            takes: BTreeMap::new(),
            alike: Vec::new(),
            portals: false,
            steps: Vec::new(),
        }
    }

    fn may(&self, deed: Deed) -> bool {
        let sets = matches!(deed, Deed::Set | Deed::Reset | Deed::Discard);
        !(self.without.contains(&deed) || (sets && self.person.innocent()))
    }

    /// The next pipeline of a session that stands in this transaction status.
    pub fn pipeline(&mut self, rng: &mut Rng, status: Option<TransactionStatus>) -> Vec<Step> {
        self.steps.clear();
        self.portals &= status != Some(TransactionStatus::Idle);
        if status.is_some_and(|status| status != TransactionStatus::Idle) && rng.chance(600) {
            let text = *rng.pick(&["commit", "rollback"]);
            self.transaction(rng, Text::new(text, 0));
        } else if status == Some(TransactionStatus::Idle)
            && self.person.vandal()
            && self.may(Deed::Vandal)
            && rng.chance(500)
        {
            let text = texts::vandal(rng);
            self.steps.push(Step::Query(text));
        }
        // What a server still holds of its last client shows at the start of a pipeline.
        if self.may(Deed::Fail) && rng.chance(350) {
            self.retry_behind_failure(rng);
        }
        let length = match rng.below(10) {
            0 => STEPS_MAX,
            1..=4 => 6,
            _ => 20,
        };
        while self.steps.len() < length {
            self.group(rng);
        }
        // A copy that still runs is given up, and what waits for a Sync is answered.
        self.steps.extend([Step::CopyFail, Step::Sync]);
        let unsynced_permille = self.unsynced_permille;
        synced(std::mem::take(&mut self.steps), |step| step.begins() || rng.chance(unsynced_permille))
    }

    fn group(&mut self, rng: &mut Rng) {
        if (self.person.misleads() || self.person.innocent()) && self.may(Deed::Mislead) && rng.chance(400) {
            return self.use_alike(rng);
        }
        match rng.below(25) {
            24 if self.may(Deed::Call) => self.call(rng),
            0..=3 if self.may(Deed::Named) => self.use_named(rng),
            4..=5 if self.may(Deed::Named) => self.name_anew(rng),
            6..=8 if self.may(Deed::Unnamed) => self.bind_unnamed_again(rng),
            9 | 10 => self.single_message(rng),
            11 if self.may(Deed::Copy) => self.copy_in(rng),
            12 if self.may(Deed::Portal) => self.portal(rng),
            23 if self.person.plain() && self.may(Deed::Named) => self.use_common(rng),
            13..=15 => {
                let text = self.text(rng);
                self.run_at_once(rng, text);
            }
            16 | 17 => self.steps.push(Step::Sync),
            19 | 20 if self.may(Deed::Transaction) => {
                let text = texts::transaction(rng);
                self.transaction(rng, text);
            }
            21 | 22 if self.may(Deed::Fail) => self.retry_behind_failure(rng),
            18 if self.may(Deed::Fail) => {
                let text = texts::failing(rng, self.person);
                self.run_at_once(rng, text);
            }
            _ => {
                let text = self.text(rng);
                self.run_at_once(rng, text);
            }
        }
        if rng.chance(250) {
            self.steps.push(Step::Sync);
        }
    }

    fn text(&self, rng: &mut Rng) -> Text {
        texts::any(rng, self.person, &|deed| self.may(deed))
    }

    /// int4pl, which adds, and int4div, or one that is not there (src/include/catalog/pg_proc.dat).
    fn call(&mut self, rng: &mut Rng) {
        let (function, values) = match rng.below(6) {
            0 if self.may(Deed::Fail) => (154, vec!["1", "0"]),
            1 if self.may(Deed::Fail) => (9, vec!["1"]),
            2 => (154, vec!["7", "2"]),
            _ => (177, vec!["2", "3"]),
        };
        self.steps.push(Step::Call { function, values });
    }

    /// By a simple query, or an unnamed statement.
    fn run_at_once(&mut self, rng: &mut Rng, text: Text) {
        if text.parameters == 0 && rng.chance(self.simple_permille) {
            self.steps.push(Step::Query(text));
            return;
        }
        self.parse(rng, "", text);
        self.bind_and_execute(rng, "", "");
        if rng.chance(700) {
            self.steps.push(Step::Sync);
        }
    }

    /// By a simple query where portals may be open: PostgreSQL 15.20 and 18.6 crash now and then on an end of transaction in
    /// the extended protocol then.
    fn transaction(&mut self, rng: &mut Rng, text: Text) {
        if self.portals || rng.chance(self.simple_permille) {
            return self.steps.push(Step::Query(text));
        }
        if text.begins() {
            // Behind a DISCARD ALL of the same batch: see docs/pooling-modes.md.
            self.steps.push(Step::Sync);
        }
        self.steps.push(Step::Parse { name: "", text });
        self.takes.insert("", 0);
        self.steps.push(Step::Bind { portal: "", statement: "", values: Vec::new() });
        self.steps.push(Step::Execute { portal: "", rows_max: 0 });
        if rng.chance(700) {
            self.steps.push(Step::Sync);
        }
    }

    fn parse(&mut self, rng: &mut Rng, name: &'static str, mut text: Text) {
        if text.parameters > 0 && text.types.is_empty() && rng.chance(100) {
            text.types = vec![0; usize::from(text.parameters)];
        }
        self.takes.insert(name, text.parameters);
        self.alike.retain(|alike| *alike != name);
        // Nothing tells what a text was read under where its batch takes back what it has set: at its end, if that was set
        // locally, or by an error behind the Parse (docs/decisions/statements-and-parameters.md, "Left").
        let reads = texts::reads_literals(&text) && !self.person.misleads();
        if reads && self.may_have_set_locally() {
            self.steps.push(Step::Sync);
        }
        let ends = reads && self.has_executed();
        self.steps.push(Step::Parse { name, text });
        if ends {
            self.steps.push(Step::Sync);
        }
        if rng.chance(200) {
            self.steps.push(Step::Describe { kind: Kind::Statement, name });
        }
    }

    /// In the batch that is open.
    fn open(&self) -> &[Step] {
        let ended = self.steps.iter().rposition(|step| matches!(step, Step::Sync | Step::Query(_) | Step::Call { .. }));
        &self.steps[ended.map_or(0, |at| at + 1)..]
    }

    fn has_executed(&self) -> bool {
        self.open().iter().any(|step| matches!(step, Step::Execute { .. }))
    }

    /// By a text of this batch, or a statement of which the batch does not tell what it is.
    fn may_have_set_locally(&self) -> bool {
        let mut parsed = false;
        self.open().iter().any(|step| match step {
            Step::Parse { name: "", text } => {
                parsed = true;
                text.sets_locally()
            }
            Step::Bind { statement, .. } => !statement.is_empty() || !parsed,
            _ => false,
        })
    }

    fn bind(&mut self, rng: &mut Rng, portal: &'static str, statement: &'static str) {
        self.portals |= !portal.is_empty();
        let mut count = self.takes.get(statement).copied().unwrap_or(0);
        if rng.chance(15) {
            count += 1;
        }
        let values = (0..count).map(|_| self.value(rng)).collect();
        self.steps.push(Step::Bind { portal, statement, values });
    }

    fn value(&self, rng: &mut Rng) -> String {
        match rng.below(10) {
            0 => self.person.mark(),
            1 => "007".to_owned(),
            _ => rng.below(12).to_string(),
        }
    }

    fn bind_and_execute(&mut self, rng: &mut Rng, portal: &'static str, statement: &'static str) {
        self.bind(rng, portal, statement);
        if rng.chance(200) {
            self.steps.push(Step::Describe { kind: Kind::Portal, name: portal });
        }
        let rows_max = if self.may(Deed::Portal) && rng.chance(150) { rng.between(1, 3) as u32 } else { 0 };
        self.portals |= rows_max > 0;
        self.steps.push(Step::Execute { portal, rows_max });
        if rows_max > 0 && rng.chance(500) {
            self.steps.push(Step::Execute { portal, rows_max: 0 });
        }
    }

    fn use_named(&mut self, rng: &mut Rng) {
        let name = *rng.pick(&STATEMENTS);
        if !self.takes.contains_key(name) {
            return self.name_anew(rng);
        }
        if rng.chance(200) {
            self.steps.push(Step::Describe { kind: Kind::Statement, name });
        }
        self.bind_and_execute(rng, "", name);
    }

    /// Close and Parse of a name that mostly is taken; now and then without the Close.
    fn name_anew(&mut self, rng: &mut Rng) {
        let name = *rng.pick(&STATEMENTS);
        if self.takes.contains_key(name) && rng.chance(800) {
            self.steps.push(Step::Close { kind: Kind::Statement, name });
            if rng.chance(150) {
                self.steps.push(Step::Sync);
            }
        }
        let text =
            if self.may(Deed::Fail) && rng.chance(80) { texts::failing(rng, self.person) } else { self.text(rng) };
        // What it returns is what another returned at its Parse, and that is elsewhere when it is prepared again (docs/session-state.md).
        let text = if texts::returns_anothers(&text) { Text::new("select 1", 0) } else { text };
        self.parse(rng, name, text);
        if rng.chance(600) {
            self.bind_and_execute(rng, "", name);
        }
    }

    /// A statement whose text others have, too; now and then prepared in a transaction in which it means something else.
    fn use_common(&mut self, rng: &mut Rng) {
        let name = *rng.pick(&STATEMENTS);
        let elsewhere = self.person.alters() && self.may(Deed::Types) && self.may(Deed::Transaction) && !self.portals;
        if elsewhere {
            let texts = [Text::new("rollback", 0), Text::new("begin", 0), texts::other_common()];
            self.steps.extend(texts.map(Step::Query));
        }
        self.steps.push(Step::Close { kind: Kind::Statement, name });
        self.parse(rng, name, texts::common());
        self.steps.push(Step::Sync);
        self.bind_and_execute(rng, "", name);
        self.steps.push(Step::Sync);
        if elsewhere {
            if self.may(Deed::Fail) && rng.chance(300) {
                self.steps.push(Step::Query(texts::qualified(texts::violates_later(), self.person)));
            }
            self.steps.push(Step::Query(Text::new("commit", 0)));
        }
    }

    /// A statement that all use for as long as a run takes. Who misleads has it used where something was set locally, for the first time or
    /// after it was to be planned anew.
    fn use_alike(&mut self, rng: &mut Rng) {
        let name = *rng.pick(&STATEMENTS);
        if !self.alike.contains(&name) || rng.chance(200) {
            let text = texts::read_alike(rng);
            self.steps.extend([Step::Sync, Step::Close { kind: Kind::Statement, name }]);
            self.parse(rng, name, text);
            self.steps.push(Step::Sync);
            self.alike.push(name);
        }
        if self.person.misleads() {
            if rng.chance(500) {
                let text = texts::replan(rng, self.person);
                self.run_at_once(rng, text);
            }
            let text = texts::set_quietly(rng);
            self.parse(rng, "", text);
            self.bind_and_execute(rng, "", "");
        }
        self.bind_and_execute(rng, "", name);
        self.steps.push(Step::Sync);
    }

    /// A batch that fails, so that the rest of it is skipped, and one behind it that does the same again or relies on it.
    fn retry_behind_failure(&mut self, rng: &mut Rng) {
        let unnamed = !self.may(Deed::Named) || (self.may(Deed::Unnamed) && rng.chance(500));
        let name = if unnamed { "" } else { *rng.pick(&STATEMENTS) };
        if rng.chance(500) {
            self.steps.push(Step::Execute { portal: "nope", rows_max: 0 });
        } else {
            let text = texts::failing(rng, self.person);
            self.parse(rng, "", text);
            self.bind_and_execute(rng, "", "");
        }
        let before = self.takes.clone();
        for retried in [false, true] {
            for deed in 0..4 {
                match deed {
                    1 if rng.chance(400) => {}
                    _ if rng.chance(350) => {}
                    0 => self.steps.push(Step::Close { kind: Kind::Statement, name }),
                    1 => {
                        let text = self.text(rng);
                        self.parse(rng, name, text);
                    }
                    2 => self.steps.push(Step::Describe { kind: Kind::Statement, name }),
                    _ => self.bind_and_execute(rng, "", name),
                }
            }
            if !retried {
                self.takes.clone_from(&before);
            }
            self.steps.push(Step::Sync);
        }
        self.bind_and_execute(rng, "", name);
    }

    fn bind_unnamed_again(&mut self, rng: &mut Rng) {
        if rng.chance(400) {
            let text = self.text(rng);
            self.parse(rng, "", text);
        }
        if rng.chance(300) {
            self.steps.push(Step::Sync);
        }
        self.bind_and_execute(rng, "", "");
    }

    fn single_message(&mut self, rng: &mut Rng) {
        let statement = if rng.chance(300) { "" } else { *rng.pick(&STATEMENTS) };
        let portal = if rng.chance(600) { "" } else { *rng.pick(&PORTALS) };
        let step = match rng.below(8) {
            0 => Step::Close { kind: Kind::Statement, name: statement },
            1 => Step::Close { kind: Kind::Portal, name: portal },
            2 => Step::Describe { kind: Kind::Statement, name: statement },
            3 => Step::Describe { kind: Kind::Portal, name: portal },
            4 if self.may(Deed::Portal) => Step::Execute { portal, rows_max: rng.below(3) as u32 },
            5 => return self.bind(rng, portal, statement),
            _ => Step::Flush,
        };
        self.steps.push(step);
    }

    /// Rows of a named portal, some now, some behind a Sync: the rest is there only in a transaction block.
    fn portal(&mut self, rng: &mut Rng) {
        let portal = *rng.pick(&PORTALS);
        let text = texts::rows(rng, self.person);
        let begins = self.may(Deed::Transaction) && rng.chance(500);
        if begins {
            self.steps.push(Step::Query(Text::new("begin", 0)));
        }
        self.parse(rng, "", text);
        self.bind(rng, portal, "");
        for _ in 0..rng.between(1, 4) {
            self.steps.push(Step::Execute { portal, rows_max: rng.between(0, 3) as u32 });
            if rng.chance(300) {
                self.steps.push(Step::Sync);
            }
        }
        if rng.chance(600) {
            self.steps.push(Step::Close { kind: Kind::Portal, name: portal });
        }
        if begins && rng.chance(700) {
            self.steps.push(Step::Sync);
            self.steps.push(Step::Query(Text::new(*rng.pick(&["commit", "rollback"]), 0)));
        }
    }

    /// A copy from its statement to its end. PostgreSQL closes a session that sends anything but the messages of a copy
    /// in one, so nothing else is drawn until the end is certain.
    fn copy_in(&mut self, rng: &mut Rng) {
        let schema = self.person.schema();
        let table = *rng.pick(&["items", "items", "seen"]);
        let text = Text::new(format!("copy {schema}.{table} from stdin"), 0);
        let extended = rng.chance(600);
        if extended {
            self.steps.push(Step::Parse { name: "", text });
            self.steps.push(Step::Bind { portal: "", statement: "", values: Vec::new() });
            self.steps.push(Step::Execute { portal: "", rows_max: 0 });
        } else {
            self.steps.push(Step::Query(text));
        }
        let syncs = if rng.chance(600) { rng.below(3) } else { 0 };
        (0..syncs).for_each(|_| self.steps.push(Step::Sync));
        for _ in 0..rng.below(4) {
            let line = match rng.below(8) {
                0 if self.may(Deed::Fail) => "no number\tx\n".to_owned(),
                1 => format!("{}\t", rng.below(500)),
                2 => "half\n".to_owned(),
                _ => format!("{}\t{}\n", rng.below(2_000), self.person.mark()),
            };
            self.steps.push(Step::CopyData(line));
            match rng.below(12) {
                0 => self.steps.push(Step::Flush),
                1 | 2 => self.steps.push(Step::Sync),
                _ => {}
            }
        }
        self.steps.push(if rng.chance(200) { Step::CopyFail } else { Step::CopyDone });
        // The unnamed statement must not begin a copy where nobody minds it: the Close is read whatever came before.
        self.steps.extend([Step::Sync, Step::Close { kind: Kind::Statement, name: "" }, Step::Sync]);
        self.takes.remove("");
    }
}
