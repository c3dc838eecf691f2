//! What clients ask for: units of work, drawn by chance, each with exactly what must come back.

use weir_wire::{BackendTag, write};

use super::encode;
use super::names::{Deed, Effect};
use super::typed::is_typed;
use super::{Client, Exchange, Expect, Stage};
use crate::postgres::language::Tag;
use crate::postgres::{UNREPORTED, canonical};
use crate::rng::Rng;

/// Texts of named statements; few, so that clients share them. `$1` is the tag, `$2` is of the type that a table's column has.
pub(super) const STATEMENTS: [(&str, u32, u32); 7] = [
    ("/*$1*/ ECHO 1 10 0", 1, 10),
    ("/*$1*/ ECHO 3 200 0", 3, 200),
    ("/*$1*/ ECHO 2 50 0 STAR", 2, 50),
    ("/*$1*/ ECHO 0 0 0", 0, 0),
    ("/*$1*/ ECHO 5 20 0 STAR", 5, 20),
    ("/*$1*/ ECHO 1 20 0 $2", 1, 20),
    ("/*$1*/ ECHO 2 10 0 $2", 2, 10),
];

/// An exchange in the making.
#[derive(Default)]
pub(super) struct Draft(pub(super) Exchange);

impl Draft {
    pub(super) fn new(tag: Tag) -> Self {
        Self(Exchange { first: tag.number, last: tag.number, wait: true, ..Exchange::default() })
    }

    pub(super) fn expect(&mut self, expects: impl IntoIterator<Item = Expect>) {
        self.0.expects.extend(expects);
    }

    fn rows(&mut self, tag: Tag, rows: u32, bytes: u32) {
        self.expect([
            Expect::Message(BackendTag::RowDescription),
            Expect::Rows { tag, next: 0, until: rows, bytes },
            Expect::Selected(rows),
        ]);
    }

    pub(super) fn sync(mut self) -> Exchange {
        write::sync(&mut self.0.bytes);
        self.expect([Expect::Ready]);
        self.0
    }
}

pub(super) fn command(tag: Tag, texts: &'static [&'static str]) -> [Expect; 2] {
    [Expect::Signed(tag), Expect::Command(texts)]
}

/// The answers to a Parse and a Bind of the unnamed statement.
pub(super) fn parsed_and_bound(tag: Tag, deed: Deed) -> [Expect; 3] {
    [
        Expect::Message(BackendTag::ParseComplete),
        Expect::Effect(Effect::Parsed { name: String::new(), tag: Some(tag), deed }),
        Expect::Message(BackendTag::BindComplete),
    ]
}

pub(super) fn size(rng: &mut Rng) -> (u32, u32) {
    match rng.below(100) {
        0 => (rng.between(1, 3) as u32, rng.between(50_000, 150_000) as u32),
        1..=5 => (rng.between(20, 200) as u32, rng.between(0, 300) as u32),
        _ => (rng.below(4) as u32, rng.below(200) as u32),
    }
}

fn some_typed(stage: &mut Stage) -> usize {
    let first = STATEMENTS.iter().position(|(text, ..)| is_typed(text)).unwrap_or(0);
    stage.rng.between(first as u64, STATEMENTS.len() as u64 - 1) as usize
}

impl Client {
    /// Adds the next unit to the script.
    pub(super) fn unit(&mut self, stage: &mut Stage) {
        if stage.rng.chance(self.habits.vanish_permille) {
            return self.vanish_unit(stage);
        }
        if stage.rng.chance(self.habits.cancel_permille) {
            return self.cancel_unit(stage);
        }
        if self.is_in_cluster(stage) && stage.rng.chance(600) {
            return self.sharded_unit(stage);
        }
        match stage.rng.below(if self.habits.keeps { 33 } else { 23 }) {
            0..=2 => self.add_one(stage),
            3 => self.several_statements(stage),
            4..=8 if self.habits.transactions => self.transaction(stage),
            9 => self.unnamed(stage, false),
            10 => self.unnamed(stage, true),
            11 | 12 if self.habits.steady => self.named(stage),
            13 => self.pipeline(stage),
            14 => self.limited_rows(stage),
            15 if stage.rng.chance(400) => self.blind_copies(stage),
            15 => self.copy_in(stage),
            16 => self.copy_out(stage),
            17 => self.set_parameter(stage),
            18 => self.rare(stage),
            19 if self.habits.steady => self.batches(stage),
            20 if self.habits.steady => self.named_typed(stage),
            21 if stage.rng.chance(300) => self.retype_unit(stage),
            23..=28 => self.leave_something(stage),
            29.. => self.talk(stage),
            _ => self.add_one(stage),
        }
    }

    /// The one unit of a client that comes when the faults are over.
    pub(super) fn fresh_unit(&mut self, transactions: bool) {
        if !transactions {
            // All of a group must run at once, so each takes longer than their coming.
            let exchange = self.echo(2, 10, 3_000_000);
            return self.script.push_back(exchange);
        }
        let begin = self.simple_command("BEGIN", &["BEGIN"]);
        let echo = self.echo(1, 10, 0);
        let commit = self.simple_command("COMMIT", &["COMMIT"]);
        self.script.extend([begin, echo, commit]);
    }

    pub(super) fn console_unit(&mut self, stage: &mut Stage) {
        const QUESTIONS: [&str; 12] = [
            "SHOW POOLS",
            "SHOW CLIENTS",
            "SHOW SERVERS",
            "SHOW DATABASES",
            "SHOW STATS",
            "SHOW LISTS",
            "SHOW CONFIG",
            "SHOW VERSION",
            "SHOW USERS",
            "SHOW HELP",
            "RELOAD",
            "SHOW nonsense",
        ];
        if !stage.calm && stage.rng.chance(100) {
            // Clients' numbers are small.
            let one = format!("KILL_CLIENT {}", stage.rng.between(1, 300));
            let command = *stage.rng.pick(&["KILL", "KILL d0", &one, &one, &one, &one]);
            self.console_line(command);
            return self.console_line("RESUME");
        }
        let question = *stage.rng.pick(&QUESTIONS);
        self.console_line(question);
    }

    fn console_line(&mut self, line: &str) {
        let mut exchange = Exchange { wait: true, ..Exchange::default() };
        write::query(&mut exchange.bytes, line.as_bytes());
        exchange.expects.push_back(Expect::Anything);
        self.script.push_back(exchange);
    }

    pub(super) fn simple_command(&mut self, text: &str, texts: &'static [&'static str]) -> Exchange {
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        write::query(&mut draft.0.bytes, format!("/*{tag}*/ {text}").as_bytes());
        draft.expect(command(tag, texts));
        draft.expect([Expect::Ready]);
        draft.0
    }

    pub(super) fn echo(&mut self, rows: u32, bytes: u32, sleep_us: u64) -> Exchange {
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        write::query(&mut draft.0.bytes, format!("/*{tag}*/ ECHO {rows} {bytes} {sleep_us}").as_bytes());
        draft.rows(tag, rows, bytes);
        draft.expect([Expect::Ready]);
        draft.0
    }

    fn any_one(&mut self, rng: &mut Rng) -> Exchange {
        let (rows, bytes) = size(rng);
        match rng.below(10) {
            0..=5 => self.echo(rows, bytes, 0),
            6 | 7 => self.simple_command("WRITE", &["INSERT 0 1"]),
            _ => self.extended(rows, bytes, rng.chance(500)).sync(),
        }
    }

    fn add_one(&mut self, stage: &mut Stage) {
        let exchange = self.any_one(stage.rng);
        self.script.push_back(exchange);
    }

    fn several_statements(&mut self, stage: &mut Stage) {
        let mut text = String::new();
        let first = self.last_statement + 1;
        let mut draft = Draft::default();
        for _ in 0..stage.rng.between(2, 6) {
            let tag = self.tag();
            match stage.rng.below(12) {
                0 => {
                    text += &format!("/*{tag}*/ FAIL;");
                    draft.expect([Expect::Error(tag)]);
                }
                1..=3 => {
                    text += &format!("/*{tag}*/ WRITE;");
                    draft.expect(command(tag, &["INSERT 0 1"]));
                }
                _ => {
                    let (rows, bytes) = size(stage.rng);
                    text += &format!("/*{tag}*/ ECHO {rows} {bytes} 0;");
                    draft.rows(tag, rows, bytes);
                }
            }
        }
        draft.expect([Expect::Ready]);
        write::query(&mut draft.0.bytes, text.as_bytes());
        (draft.0.first, draft.0.last, draft.0.wait) = (first, self.last_statement, true);
        self.script.push_back(draft.0);
    }

    fn transaction(&mut self, stage: &mut Stage) {
        let pipelined = stage.rng.chance(200);
        let mut steps = vec![self.simple_command("BEGIN", &["BEGIN"])];
        for _ in 0..stage.rng.between(1, 5) {
            let exchange = if stage.rng.chance(50) { self.failing() } else { self.any_one(stage.rng) };
            steps.push(exchange);
        }
        let end = match stage.rng.below(4) {
            0 => self.simple_command("ROLLBACK", &["ROLLBACK"]),
            _ => self.simple_command("COMMIT", &["COMMIT", "ROLLBACK"]),
        };
        steps.push(end);
        for (place, step) in steps.iter_mut().enumerate() {
            step.wait = place == 0 || !pipelined;
            if !pipelined && stage.rng.chance(300) {
                step.pause_after_us = stage.rng.spread(20_000);
            }
        }
        self.script.extend(steps);
    }

    pub(super) fn failing(&mut self) -> Exchange {
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        write::query(&mut draft.0.bytes, format!("/*{tag}*/ FAIL").as_bytes());
        draft.expect([Expect::Error(tag), Expect::Ready]);
        draft.0
    }

    /// Parse, Bind, Describe, Execute on the unnamed statement, without the Sync.
    fn extended(&mut self, rows: u32, bytes: u32, describe: bool) -> Draft {
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        let out = &mut draft.0.bytes;
        encode::parse(out, "", &format!("/*{tag}*/ ECHO {rows} {bytes} 0"));
        encode::bind(out, "", "", None);
        if describe {
            encode::describe_portal(out, "");
        }
        encode::execute(out, "", 0);
        draft.expect(parsed_and_bound(tag, Deed::Echo { rows, bytes }));
        if describe {
            draft.expect([Expect::Message(BackendTag::RowDescription)]);
        }
        draft.expect([Expect::Rows { tag, next: 0, until: rows, bytes }, Expect::Selected(rows)]);
        draft
    }

    /// One or several portals before one Sync; with Flush, the second part waits for the first's answer.
    fn unnamed(&mut self, stage: &mut Stage, flushes: bool) {
        let (rows, bytes) = size(stage.rng);
        let mut draft = self.extended(rows, bytes, true);
        for _ in 0..stage.rng.below(3) {
            let (rows, bytes) = size(stage.rng);
            let mut more = self.extended(rows, bytes, stage.rng.chance(500));
            if flushes {
                encode::flush(&mut draft.0.bytes);
                let part = std::mem::take(&mut more.0.bytes);
                draft.expect([Expect::Then([part, flush_bytes()].concat())]);
            } else {
                draft.0.bytes.append(&mut more.0.bytes);
            }
            draft.expect(more.0.expects);
        }
        draft.0.last = self.last_statement;
        if flushes {
            encode::flush(&mut draft.0.bytes);
            let mut sync = Vec::new();
            write::sync(&mut sync);
            draft.expect([Expect::Then(sync), Expect::Ready]);
            return self.script.push_back(draft.0);
        }
        self.script.push_back(draft.sync());
    }

    fn named(&mut self, stage: &mut Stage) {
        let which = stage.rng.index(STATEMENTS.len());
        self.named_one(stage, which);
    }

    pub(super) fn named_typed(&mut self, stage: &mut Stage) {
        let which = some_typed(stage);
        self.named_one(stage, which);
    }

    /// The same, and whatever it has by that name is prepared now.
    pub(super) fn named_typed_anew(&mut self, stage: &mut Stage) {
        let which = some_typed(stage);
        let name = format!("s{which}");
        if self.prepared.contains_key(&name) {
            let mut draft = Draft::new(self.tag());
            write::close_statement(&mut draft.0.bytes, name.as_bytes());
            encode::parse(&mut draft.0.bytes, &name, STATEMENTS[which].0);
            draft.expect([Expect::CloseComplete { name: name.clone() }, Expect::ParseComplete { name }]);
            self.script.push_back(draft.sync());
        }
        self.named_one(stage, which);
    }

    fn named_one(&mut self, stage: &mut Stage, which: usize) {
        let name = format!("s{which}");
        let text = STATEMENTS[which].0;
        if !self.prepared.contains_key(&name) {
            let tag = self.tag();
            let mut draft = Draft::new(tag);
            encode::parse(&mut draft.0.bytes, &name, text);
            draft.expect([Expect::ParseComplete { name: name.clone() }]);
            let describes = stage.rng.chance(500);
            if describes && is_typed(text) {
                draft.describe_typed(&name);
            } else if describes {
                write::describe_statement(&mut draft.0.bytes, name.as_bytes());
                draft.expect([BackendTag::ParameterDescription, BackendTag::RowDescription].map(Expect::Message));
            }
            self.script.push_back(draft.sync());
        } else if stage.rng.chance(150) {
            let tag = self.tag();
            let mut draft = Draft::new(tag);
            write::close_statement(&mut draft.0.bytes, name.as_bytes());
            draft.expect([Expect::CloseComplete { name }]);
            return self.script.push_back(draft.sync());
        } else if is_typed(text) && stage.rng.chance(200) {
            let mut draft = Draft::new(self.tag());
            draft.describe_typed(&name);
            draft.0.requires = Some(name.clone());
            self.script.push_back(draft.sync());
        }
        for _ in 0..stage.rng.between(1, 4) {
            let exchange = self.bound(stage, &name, which);
            self.script.push_back(exchange);
        }
    }

    fn bound(&mut self, stage: &mut Stage, name: &str, which: usize) -> Exchange {
        let (text, rows, bytes) = STATEMENTS[which];
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        let portal = if stage.rng.chance(300) { "p" } else { "" };
        if is_typed(text) {
            draft.bind_typed(portal, name, tag);
        } else {
            encode::bind(&mut draft.0.bytes, portal, name, Some(tag));
            draft.expect([Expect::Message(BackendTag::BindComplete)]);
        }
        if stage.rng.chance(300) {
            encode::describe_portal(&mut draft.0.bytes, portal);
            draft.expect([Expect::Message(BackendTag::RowDescription)]);
        }
        encode::execute(&mut draft.0.bytes, portal, 0);
        draft.expect([Expect::Rows { tag, next: 0, until: rows, bytes }, Expect::Selected(rows)]);
        if stage.rng.chance(200) {
            encode::close_portal(&mut draft.0.bytes, portal);
            draft.expect([Expect::Message(BackendTag::CloseComplete)]);
        }
        draft.0.requires = Some(name.to_owned());
        draft.sync()
    }

    fn pipeline(&mut self, stage: &mut Stage) {
        for place in 0..stage.rng.between(2, 30) {
            let mut exchange = if stage.rng.chance(50) { self.failing() } else { self.any_one(stage.rng) };
            exchange.wait = place == 0;
            self.script.push_back(exchange);
        }
    }

    fn limited_rows(&mut self, stage: &mut Stage) {
        let (rows, step) = (stage.rng.between(0, 10) as u32, stage.rng.between(1, 4) as u32);
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        encode::parse(&mut draft.0.bytes, "", &format!("/*{tag}*/ ECHO {rows} 20 0"));
        encode::bind(&mut draft.0.bytes, "", "", None);
        draft.expect(parsed_and_bound(tag, Deed::Echo { rows, bytes: 20 }));
        let mut from = 0;
        loop {
            encode::execute(&mut draft.0.bytes, "", step);
            let to = (from + step).min(rows);
            draft.expect([Expect::Rows { tag, next: from, until: to, bytes: 20 }]);
            if to - from < step {
                draft.expect([Expect::Selected(to - from)]);
                break;
            }
            draft.expect([Expect::Message(BackendTag::PortalSuspended)]);
            from = to;
        }
        self.script.push_back(draft.sync());
    }

    fn copy_in(&mut self, stage: &mut Stage) {
        let tag = self.tag();
        let pieces = stage.rng.below(10) as u32;
        let length = stage.rng.below(3_000) as usize;
        let gives_up = stage.rng.chance(150);
        let mut data = Vec::new();
        for piece in 0..pieces {
            encode::copy_data(&mut data, format!("tag={tag} {piece} {}\n", "y".repeat(length)).as_bytes());
        }
        if gives_up {
            write::copy_fail(&mut data, b"changed my mind");
        } else {
            encode::copy_done(&mut data);
        }
        let text = format!("/*{tag}*/ COPY t FROM STDIN");
        let mut draft = Draft::new(tag);
        let (mut sync_on_failure, mut ahead) = (Vec::new(), 0);
        if stage.rng.chance(500) {
            write::query(&mut draft.0.bytes, text.as_bytes());
        } else {
            encode::parse(&mut draft.0.bytes, "", &text);
            encode::bind(&mut draft.0.bytes, "", "", None);
            encode::execute(&mut draft.0.bytes, "", 0);
            draft.expect(parsed_and_bound(tag, Deed::Other));
            write::sync(&mut data);
            if stage.rng.chance(500) {
                encode::flush(&mut draft.0.bytes);
                write::sync(&mut sync_on_failure);
            } else {
                // COPY ignores this Sync, as it comes before CopyDone.
                write::sync(&mut draft.0.bytes);
                ahead = 1;
            }
        }
        draft.expect([Expect::CopyIn { data, sync_on_failure, ahead }]);
        if gives_up {
            draft.expect([Expect::Message(BackendTag::ErrorResponse)]);
        } else {
            draft.expect([Expect::Signed(tag), Expect::Copied(pieces), Expect::Ready]);
        }
        self.script.push_back(draft.0);
        self.close_unnamed(true);
    }

    fn copy_out(&mut self, stage: &mut Stage) {
        let tag = self.tag();
        let (rows, bytes) = size(stage.rng);
        let text = format!("/*{tag}*/ COPY t TO STDOUT {rows} {bytes}");
        let mut draft = Draft::new(tag);
        let simple = stage.rng.chance(500);
        if simple {
            write::query(&mut draft.0.bytes, text.as_bytes());
        } else {
            encode::parse(&mut draft.0.bytes, "", &text);
            encode::bind(&mut draft.0.bytes, "", "", None);
            encode::execute(&mut draft.0.bytes, "", 0);
            draft.expect(parsed_and_bound(tag, Deed::Other));
        }
        draft.expect([
            Expect::Message(BackendTag::CopyOutResponse),
            Expect::CopyOut { tag, next: 0, until: rows },
            Expect::Copied(rows),
        ]);
        if simple {
            draft.expect([Expect::Ready]);
            return self.script.push_back(draft.0);
        }
        self.script.push_back(draft.sync());
        self.close_unnamed(false);
    }

    fn set_parameter(&mut self, stage: &mut Stage) {
        const VALUES: [(&str, &str); 11] = [
            (UNREPORTED, "9s"),
            ("application_name", "it's me"),
            ("application_name", ""),
            ("application_name", "back\\slash"),
            ("DateStyle", "German"),
            ("DateStyle", "SQL, DMY"),
            ("TimeZone", "europe/berlin"),
            ("TimeZone", "Mars/Olympus"),
            ("TimeZone", "UTC"),
            ("IntervalStyle", "iso_8601"),
            ("client_encoding", "latin1"),
        ];
        // Whether what is not reported outlasts a transaction depends on the pool.
        let (name, value) = *stage.rng.pick(if self.habits.knows_unreported { &VALUES } else { &VALUES[1..] });
        let tag = self.tag();
        let mut draft = Draft::new(tag);
        let quoted = value.replace('\'', "''");
        // PostgreSQL does not report it; some clients set it so that no tag tells of it either.
        let untold = name == UNREPORTED && stage.rng.chance(500);
        let (text, done): (_, &[_]) = if untold {
            (format!("/*{tag}*/ DO set_config('{name}', '{quoted}', false)"), &["DO"])
        } else {
            (format!("/*{tag}*/ SET {name} TO '{quoted}'"), &["SET"])
        };
        write::query(&mut draft.0.bytes, text.as_bytes());
        match canonical(name, value) {
            Some(value) => {
                draft.expect(command(tag, done));
                draft.0.sets = Some((name, value));
            }
            None => draft.expect([Expect::Error(tag)]),
        }
        draft.expect([Expect::Ready]);
        self.script.push_back(draft.0);
        let after = self.echo(1, 5, 0);
        self.script.push_back(after);
    }

    fn rare(&mut self, stage: &mut Stage) {
        let exchange = match stage.rng.below(5) {
            0 => self.simple_command("ALTER TABLE t", &["ALTER TABLE"]),
            1 if stage.rng.chance(self.habits.fatal_permille) => {
                let mut exchange = self.simple_command("FATAL", &[]);
                exchange.fatal = true;
                exchange
            }
            2 => {
                let tag = self.tag();
                let mut draft = Draft::new(tag);
                write::query(&mut draft.0.bytes, b"");
                draft.expect([Expect::Message(BackendTag::EmptyQueryResponse), Expect::Ready]);
                draft.0
            }
            3 => {
                let mut exchange = self.echo(stage.rng.between(1, 300) as u32, 1_000, 0);
                exchange.pause_reading_us = Some(stage.rng.spread(1_000_000));
                exchange
            }
            _ => self.echo(1, 1, stage.rng.spread(200_000)),
        };
        self.script.push_back(exchange);
    }

    /// A query that takes its time, and a cancel before, at, or after its end.
    fn cancel_unit(&mut self, stage: &mut Stage) {
        let typical = *stage.rng.pick(&[2_000, 10_000, 100_000]);
        let sleep = stage.rng.spread(typical);
        let mut exchange = self.echo(1, 10, sleep);
        // Mostly so late that the query's end and the cancel pass each other.
        let late = stage.rng.between(sleep / 2, sleep + 8_000);
        exchange.cancel_after_us = Some(if stage.rng.chance(700) { late } else { stage.rng.between(1, sleep * 2) });
        self.script.push_back(exchange);
        if stage.rng.chance(500) {
            let next = self.echo(1, 10, sleep);
            self.script.push_back(next);
        }
    }

    /// Leaves without a word, anywhere inside a request, or in the middle of a transaction.
    fn vanish_unit(&mut self, stage: &mut Stage) {
        if self.habits.transactions && stage.rng.chance(600) {
            self.transaction(stage);
            let keep = stage.rng.between(1, self.script.len() as u64) as usize;
            self.script.truncate(keep);
        } else {
            self.unit_to_leave_in(stage);
        }
        if let Some(last) = self.script.back_mut() {
            let anywhere = stage.rng.index(last.bytes.len() + 1);
            let ends = encode::ends(&last.bytes[..anywhere]);
            last.vanish_after_bytes = Some(if stage.rng.chance(500) { ends } else { anywhere });
        }
    }

    fn unit_to_leave_in(&mut self, stage: &mut Stage) {
        match stage.rng.below(4) {
            0 => {
                self.copy_in(stage);
                // It leaves within the copy.
                self.script.pop_back();
            }
            1 => self.unnamed(stage, true),
            2 => self.pipeline(stage),
            _ => {
                let exchange = self.echo(100, 2_000, stage.rng.spread(100_000));
                self.script.push_back(exchange);
            }
        }
    }
}

fn flush_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::flush(&mut bytes);
    bytes
}
