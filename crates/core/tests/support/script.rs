//! A conversation's file: its lines as steps. See `conversations/README.md` for the notation.
//!
//! Knows the grammar; not what the steps do.

use std::path::{Path, PathBuf};

use super::words::{Word, split};
use weir_core::time::Duration;

/// One line.
#[derive(Debug, Clone)]
pub struct Step {
    pub line: usize,
    pub text: String,
    pub action: Action,
}

#[derive(Debug, Clone)]
pub enum Action {
    /// Lines before the first input: what the worker is told at its start.
    Settings(Vec<Word>),
    Database(Vec<Word>),
    User(Vec<Word>),
    /// One of `auth_hba_file`.
    Record(Vec<Word>),
    /// New settings while it runs.
    Reload(Vec<Word>),
    /// `C1> message`; lines of one peer that follow each other are one piece of input.
    Sends {
        peer: String,
        message: Message,
    },
    /// `C1< message`
    Receives {
        peer: String,
        message: Vec<Word>,
    },
    /// `C1 does this`
    Does {
        peer: String,
        verb: String,
        words: Vec<Word>,
    },
    /// `no S2`: no such connection was asked for.
    Absent {
        peer: String,
    },
    After(Duration),
    Command(String),
    Event(Vec<Word>),
    /// A line of the log, since the last one that was looked for.
    Log(Vec<Word>),
}

#[derive(Debug, Clone)]
pub enum Message {
    Whole(Vec<Word>),
    /// Only the first bytes of it; [`Message::RestOfPart`] sends the others.
    Part {
        bytes: usize,
        words: Vec<Word>,
    },
    RestOfPart,
}

#[derive(Debug, Clone)]
pub struct Script {
    pub name: String,
    pub steps: Vec<Step>,
}

/// All conversations, by name; the environment's CONVERSATION chooses those whose name contains it.
pub fn scripts() -> Vec<Script> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
    let chosen = std::env::var("CONVERSATION").unwrap_or_default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "conv"));
    files.retain(|path| path.to_string_lossy().contains(&chosen));
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Script {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.starts_with("# "), "{name}.conv begins with the rule that it shows");
    let lines = text.lines().map(str::trim).enumerate().map(|(number, text)| (number + 1, text));
    let lines: Vec<_> = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')).collect();
    let mut steps = Vec::new();
    for block in lines.chunk_by(|(_, one), (_, next)| times(one).is_some() && times(one) == times(next)) {
        for round in 0..times(block[0].1).unwrap_or(1) {
            for &(line, text) in block {
                let text = match times(text) {
                    Some(_) => text[..text.rfind(" (").unwrap()].replace('%', &round.to_string()),
                    None => text.to_owned(),
                };
                let action = action(&text).unwrap_or_else(|error| panic!("{name}.conv:{line}: {error}: {text}"));
                steps.push(Step { line, text, action });
            }
        }
    }
    Script { name, steps }
}

/// How often a line that ends in `(3 times)` is one, together with such lines beside it.
fn times(line: &str) -> Option<u32> {
    line.strip_suffix(" times)")?.rsplit_once(" (")?.1.parse().ok()
}

fn action(line: &str) -> Result<Action, String> {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let words = split(rest)?;
    if let Some(peer) = first.strip_suffix('>') {
        return Ok(Action::Sends { peer: peer_name(peer)?, message: message(words)? });
    }
    if let Some(peer) = first.strip_suffix('<') {
        return Ok(Action::Receives { peer: peer_name(peer)?, message: words });
    }
    Ok(match first {
        "settings" => Action::Settings(words),
        "database" => Action::Database(words),
        "user" => Action::User(words),
        "record" => Action::Record(words),
        "reload" => Action::Reload(words),
        "no" => Action::Absent { peer: peer_name(rest)? },
        "after" => Action::After(duration(rest)?),
        "command" => Action::Command(rest.to_owned()),
        "event" => Action::Event(words),
        "log" => Action::Log(words),
        peer => {
            let peer = peer_name(peer)?;
            let (verb, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            Action::Does { peer, verb: verb.to_owned(), words: split(rest)? }
        }
    })
}

fn peer_name(name: &str) -> Result<String, String> {
    let number = name.strip_prefix(['C', 'S']).and_then(|number| number.parse::<u32>().ok());
    number.filter(|&number| number > 0).ok_or_else(|| format!("{name:?} is nobody"))?;
    Ok(name.to_owned())
}

fn message(words: Vec<Word>) -> Result<Message, String> {
    let is = |word: Option<&Word>, text: &str| word == Some(&Word::Exact(text.as_bytes().to_vec()));
    if is(words.first(), "rest") {
        return Ok(Message::RestOfPart);
    }
    if !is(words.first(), "part") {
        return Ok(Message::Whole(words));
    }
    let Some(Word::Exact(bytes)) = words.get(1) else { return Err("part N message".to_owned()) };
    let bytes = String::from_utf8_lossy(bytes).parse().map_err(|_| "part N message".to_owned())?;
    Ok(Message::Part { bytes, words: words[2..].to_vec() })
}

/// `5s`, `200ms` or `10us`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1_000), ("us", 1), ("s", 1_000_000)];
    let found = units.iter().find_map(|(unit, us)| Some((text.trim().strip_suffix(unit)?, us)));
    let (number, us) = found.ok_or_else(|| format!("{text:?} is no time"))?;
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no time"))?;
    Ok(Duration(number * us))
}
