//! Conversations: one rule of the protocol each, told as a text file (`conversations/README.md`), played against one
//! worker as they are written, with every byte alone, and cut off after every input.
// Core itself may not do what these lints forbid; its tests read files and print counts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, clippy::disallowed_macros)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use support::play::{Mode, check};
use support::script::{Script, scripts};

/// A panic of core is a failure of its conversation, and the others are still played.
fn played(script: &Script, mode: Mode) -> Result<usize, String> {
    catch_unwind(AssertUnwindSafe(|| check(script, mode))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("{}.conv ({mode:?}): panic: {}", script.name, text.unwrap_or_default()))
    })
}

fn report(count: usize, what: &str, failures: &[String]) {
    println!("{count} {what}, {} failed", failures.len());
    assert!(count > 0, "nothing was played");
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

#[test]
fn as_written() {
    let scripts = scripts();
    let failures: Vec<_> = scripts.iter().filter_map(|script| played(script, Mode::AsWritten).err()).collect();
    report(scripts.len(), "conversations", &failures);
}

#[test]
fn every_byte_alone() {
    let mut scripts = scripts();
    // What they show is that something came in the same piece.
    scripts.retain(|script| !script.name.ends_with("-in-one-input"));
    let failures: Vec<_> = scripts.iter().filter_map(|script| played(script, Mode::Split).err()).collect();
    report(scripts.len(), "conversations byte by byte", &failures);
}

#[test]
fn cut_after_every_input() {
    let (mut count, mut failures) = (0, Vec::new());
    for script in scripts() {
        // A conversation that does not hold as it is written is reported by the other tests.
        let Ok(inputs) = played(&script, Mode::AsWritten) else { continue };
        for input in 1..=inputs {
            for halfway in [false, true] {
                failures.extend(played(&script, Mode::Cut { input, halfway }).err());
                count += 1;
            }
        }
    }
    report(count, "cuts", &failures);
}
