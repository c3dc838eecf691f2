//! Pipelines whose later batches rely on what earlier ones did, or did not do: names behind a failure, the unnamed statement
//! of long ago, copies with Syncs ahead of their end. All is sent before any of it is answered.

use weir_wire::{BackendTag, write};

use super::encode;
use super::names::{Deed, Step};
use super::workload::size;
use super::{Client, Exchange, Expect, Stage};
use crate::postgres::BAD_DATA;
use crate::rng::Rng;

/// Few, so that they collide.
const NAMES: [&str; 4] = ["", "", "n0", "n1"];

impl Client {
    /// Some batches, each of a few messages, many of them failing.
    pub(super) fn batches(&mut self, stage: &mut Stage) {
        for place in 0..stage.rng.between(2, 8) {
            let mut exchange =
                if stage.rng.chance(150) { self.simple_between(stage.rng) } else { self.batch(stage.rng) };
            exchange.wait = place == 0;
            self.script.push_back(exchange);
        }
    }

    fn batch(&mut self, rng: &mut Rng) -> Exchange {
        let first = self.tag();
        let mut exchange =
            Exchange { batch: true, first: first.number, last: first.number, wait: true, ..Exchange::default() };
        let mut steps = Vec::new();
        if rng.chance(300) {
            steps.push(Step::ExecuteNothing);
        }
        for _ in 0..rng.between(1, 3) {
            let name = (*rng.pick(&NAMES)).to_owned();
            if rng.chance(250) {
                steps.push(Step::CloseStatement { name: name.clone() });
            }
            if rng.chance(500) {
                steps.push(self.parse_step(rng, &name));
            }
            if rng.chance(800) {
                let tag = self.tag();
                steps.push(Step::Bind { name, tag });
                steps.push(Step::Execute);
            }
        }
        exchange.last = self.last_statement;
        for step in steps {
            step.write(&mut exchange.bytes);
            exchange.expects.push_back(Expect::Step(step));
        }
        write::sync(&mut exchange.bytes);
        exchange.expects.push_back(Expect::Ready);
        exchange
    }

    /// A named statement's text is the same for all clients; the unnamed one's is its own.
    fn parse_step(&mut self, rng: &mut Rng, name: &str) -> Step {
        let deed = match rng.below(10) {
            0 => Deed::Fail,
            1..=4 => Deed::Zone,
            _ => {
                let (rows, bytes) = size(rng);
                Deed::Echo { rows: rows.min(3), bytes: bytes / 50 * 50 }
            }
        };
        let tag = if name.is_empty() { Some(self.tag()) } else { None };
        Step::Parse { name: name.to_owned(), tag, deed }
    }

    /// Between batches: the unnamed statement does not outlive a simple query.
    fn simple_between(&mut self, rng: &mut Rng) -> Exchange {
        if rng.chance(500) { self.failing() } else { self.echo(1, 10, 0) }
    }

    /// Copies whose data are sent with them, Syncs between the data and behind them, bad data, and more behind all that.
    pub(super) fn blind_copies(&mut self, stage: &mut Stage) {
        for place in 0..stage.rng.between(1, 4) {
            let wait = place == 0;
            if stage.rng.chance(300) {
                let mut exchange = self.echo(1, 20, 0);
                exchange.wait = wait;
                self.script.push_back(exchange);
            } else {
                self.blind_copy(stage.rng, wait);
            }
        }
    }

    /// PostgreSQL swallows Flush and Sync while it reads a copy, and answers each Sync that it reads after the copy's end
    /// (copyfromparse.c, `CopyGetData`; protocol chapter, COPY Operations).
    fn blind_copy(&mut self, rng: &mut Rng, wait: bool) {
        let tag = self.tag();
        let mut exchange = Exchange { first: tag.number, last: tag.number, wait, ..Exchange::default() };
        let text = format!("/*{tag}*/ COPY t FROM STDIN");
        let extended = rng.chance(700);
        let out = &mut exchange.bytes;
        if extended {
            encode::parse(out, "", &text);
            encode::bind(out, "", "", None);
            encode::execute(out, "", 0);
            exchange.expects.extend(super::workload::parsed_and_bound(tag, Deed::Other));
        } else {
            write::query(out, text.as_bytes());
        }
        let mut syncs_within = 0;
        let mut sync_now_and_then = |rng: &mut Rng, out: &mut Vec<u8>| {
            if rng.chance(300) {
                write::sync(out);
                syncs_within += 1;
            }
        };
        sync_now_and_then(rng, out);
        let pieces = rng.below(4) as u32;
        for piece in 0..pieces {
            encode::copy_data(out, format!("tag={tag} {piece}\n").as_bytes());
            sync_now_and_then(rng, out);
        }
        exchange.expects.push_back(Expect::SyncsAhead(syncs_within));
        let bad = rng.chance(400);
        if bad {
            encode::copy_data(out, &[format!("tag={tag}").as_bytes(), BAD_DATA].concat());
            exchange.expects.push_back(Expect::Error(tag));
        } else if rng.chance(250) {
            write::copy_fail(out, b"changed my mind");
            exchange.expects.push_back(Expect::Message(BackendTag::ErrorResponse));
        } else {
            encode::copy_done(out);
            exchange.expects.extend([Expect::Signed(tag), Expect::Copied(pieces)]);
        }
        exchange.expects.push_back(Expect::Ready);
        // Those behind the end: the first ends the batch of an extended copy, the others are batches of their own.
        let behind = rng.between(u64::from(extended), 2);
        (0..behind).for_each(|_| write::sync(out));
        if bad {
            // Left over: PostgreSQL minds it no more.
            let mut rest = Vec::new();
            encode::copy_done(&mut rest);
            let last_sync = out.len();
            out.splice(last_sync..last_sync, rest);
        }
        self.script.push_back(exchange);
        for _ in u64::from(extended)..behind {
            self.script.push_back(Exchange::only_ready(tag.number));
        }
        self.close_unnamed(false);
    }

    /// So that no batch binds a copy, and begins one that nobody has data for.
    pub(super) fn close_unnamed(&mut self, wait: bool) {
        let exchange = self.closing_unnamed(wait);
        self.script.push_back(exchange);
    }

    /// A cancel may have skipped the Close behind a copy.
    pub(super) fn close_left_copy(&mut self) {
        let closes = |expect: Option<&Expect>| matches!(expect, Some(Expect::Step(Step::CloseStatement { name })) if name.is_empty());
        let relies = |next: &Exchange| next.batch && next.wait && !closes(next.expects.front());
        if self.names.unnamed_is_foreign() && self.script.front().is_some_and(relies) {
            let exchange = self.closing_unnamed(true);
            self.script.push_front(exchange);
        }
    }

    fn closing_unnamed(&mut self, wait: bool) -> Exchange {
        let number = self.tag().number;
        let mut exchange = Exchange { batch: true, first: number, last: number, wait, ..Exchange::default() };
        let step = Step::CloseStatement { name: String::new() };
        step.write(&mut exchange.bytes);
        write::sync(&mut exchange.bytes);
        exchange.expects.extend([Expect::Step(step), Expect::Ready]);
        exchange
    }
}
