//! What a run found: counts, and each kind of difference once in full.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::episode::Difference;
use super::people::Person;
use super::shrink::History;
use super::steps::Step;

/// Lines of a transcript shown around a difference.
const LINES_SHOWN: usize = 12;

#[derive(Debug, Default)]
pub struct Report {
    pipelines: AtomicU64,
    steps: AtomicU64,
    vanished: AtomicU64,
    ended: AtomicU64,
    excused: AtomicU64,
    differences: AtomicU64,
    foreign: AtomicU64,
    kinds: Mutex<BTreeMap<String, u64>>,
    troubles: Mutex<Vec<String>>,
    /// Reports are printed whole.
    printer: Mutex<()>,
}

impl Report {
    pub fn pipeline(&self, steps: usize) {
        self.pipelines.fetch_add(1, Ordering::Relaxed);
        self.steps.fetch_add(steps as u64, Ordering::Relaxed);
    }

    pub fn vanished(&self) {
        self.vanished.fetch_add(1, Ordering::Relaxed);
    }

    /// PostgreSQL itself ended a session, or a session ended alike on both sides.
    pub fn ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    pub fn excused(&self) {
        self.excused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn trouble(&self, text: &str) {
        if let Ok(mut troubles) = self.troubles.lock() {
            troubles.push(text.to_owned());
        }
    }

    pub fn differences(&self) -> u64 {
        self.differences.load(Ordering::Relaxed)
    }

    /// Counts one. True if it is the first of its kind.
    pub fn difference(&self, person: Person, difference: &Difference) -> bool {
        self.differences.fetch_add(1, Ordering::Relaxed);
        let foreign = difference.foreign(person);
        if foreign {
            self.foreign.fetch_add(1, Ordering::Relaxed);
        }
        let (direct, pooled) = difference.lines();
        let mark = if foreign { "DATA OF ANOTHER CLIENT: " } else { "" };
        let kind = format!("{mark}{} instead of {}", without_numbers(pooled), without_numbers(direct));
        let Ok(mut kinds) = self.kinds.lock() else { return false };
        let count = kinds.entry(kind).or_default();
        *count += 1;
        *count == 1
    }

    pub fn print(
        &self,
        seed: u64,
        person: Person,
        episode: u64,
        history: &[Vec<Step>],
        difference: &Difference,
        shorter: Option<(History, Difference)>,
    ) {
        let _guard = self.printer.lock();
        println!("---- seed {seed}, client {}, episode {episode}, pipeline {}", person.number, history.len());
        let (kind, history, difference) = match &shorter {
            Some((history, difference)) => ("made shorter", history.as_slice(), difference),
            None => ("as it came (it did not differ again)", history, difference),
        };
        println!("startup {:?}", person.startup());
        println!("{kind}:");
        for steps in history {
            println!("  pipeline");
            steps.iter().for_each(|step| println!("    {step}"));
        }
        show("PostgreSQL", &difference.direct, difference.at);
        show("Weir", &difference.pooled, difference.at);
        difference.activity.iter().for_each(|line| println!("  while it was late: {line}"));
    }

    /// The table at the end; true if all is well.
    pub fn show(&self) -> bool {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        println!("pipelines          {}", count(&self.pipelines));
        println!("steps              {}", count(&self.steps));
        println!("clients vanished   {}", count(&self.vanished));
        println!("ended on both      {}", count(&self.ended));
        println!("let pass           {}", count(&self.excused));
        println!("differences        {}", count(&self.differences));
        println!("foreign data       {}", count(&self.foreign));
        for (kind, count) in self.kinds.lock().iter().flat_map(|kinds| kinds.iter()) {
            println!("{count:>6} {kind}");
        }
        let troubles = self.troubles.lock().map(|troubles| troubles.clone()).unwrap_or_default();
        troubles.iter().for_each(|trouble| println!("trouble: {trouble}"));
        let good = count(&self.differences) == 0 && troubles.is_empty();
        println!("{} passed, {} failed", count(&self.pipelines), u64::from(!good));
        good
    }
}

fn show(who: &str, lines: &[String], at: usize) {
    println!("  {who} answered");
    let from = at.saturating_sub(LINES_SHOWN);
    for (place, line) in lines.iter().enumerate().skip(from).take(2 * LINES_SHOWN) {
        let mark = if place == at { '>' } else { ' ' };
        println!("  {mark} {}", line.chars().take(200).collect::<String>());
    }
}

/// The kind of a line: SQLSTATEs stay, other numbers do not count.
fn without_numbers(line: &str) -> String {
    let mut kind = Vec::new();
    for (place, word) in line.split(' ').take(12).enumerate() {
        let is_code = place == 1 && (line.starts_with("ERROR") || line.starts_with("FATAL"));
        let plain: String = word.chars().filter(|sign| is_code || !sign.is_ascii_digit()).collect();
        kind.push(plain);
    }
    kind.join(" ")
}
