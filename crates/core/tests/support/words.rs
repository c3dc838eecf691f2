//! The words of a line: values, and patterns that values are compared with.
//!
//! Knows how words are written, not what they mean.

use std::collections::BTreeMap;
use std::fmt;

/// How SQL's NULL is told from the text "null" among values.
pub const NULL: &[u8] = b"\0null";

/// A word of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Exactly these bytes.
    Exact(Vec<u8>),
    /// `$name`: any one value, and from then on that value.
    Bound(String),
    /// `*`: any one value.
    Any,
    /// `~text`: a value that contains the text.
    Contains(Vec<u8>),
    /// `...`: whatever follows.
    Rest,
}

/// What `$name` stands for.
pub type Bindings = BTreeMap<String, Vec<u8>>;

impl Word {
    /// The bytes this word stands for when something is sent.
    pub fn value(&self, bindings: &Bindings) -> Result<Vec<u8>, String> {
        match self {
            Self::Exact(bytes) => Ok(bytes.clone()),
            Self::Bound(name) => bindings.get(name).cloned().ok_or_else(|| format!("${name} stands for nothing yet")),
            _ => Err(format!("{self} can only be received")),
        }
    }

    fn matches(&self, value: &[u8], bindings: &mut Bindings) -> bool {
        match self {
            Self::Exact(bytes) => bytes == value,
            Self::Bound(name) => bindings.entry(name.clone()).or_insert_with(|| value.to_vec()) == value,
            Self::Any | Self::Rest => true,
            Self::Contains(part) => value.windows(part.len().max(1)).any(|window| window == part),
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(bytes) => f.write_str(&shown(bytes)),
            Self::Bound(name) => write!(f, "${name}"),
            Self::Any => f.write_str("*"),
            Self::Contains(part) => write!(f, "~{}", shown(part)),
            Self::Rest => f.write_str("..."),
        }
    }
}

/// Whether the values are those of the words.
pub fn matches(words: &[Word], values: &[Vec<u8>], bindings: &mut Bindings) -> bool {
    let open_end = words.last() == Some(&Word::Rest);
    let words = if open_end { &words[..words.len() - 1] } else { words };
    let fits = if open_end { words.len() <= values.len() } else { words.len() == values.len() };
    fits && words.iter().zip(values).all(|(word, value)| word.matches(value, bindings))
}

/// Splits a line into words.
///
/// A word ends at white space; quotes keep white space and everything else literal, with `\n`, `\"`, `\\` and `\xHH`.
/// `"text"*N` is the text N times. What begins outside of quotes with `$`, `*`, `~` or `...` is a pattern.
pub fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = next_word(rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn next_word(line: &str) -> Result<(Word, &str), String> {
    let contains = line.strip_prefix('~');
    let mut rest = contains.unwrap_or(line);
    let plain = !rest.starts_with('"');
    let mut bytes = Vec::new();
    while let Some(first) = rest.chars().next().filter(|first| !first.is_whitespace()) {
        if first == '"' {
            let (quoted, after) = quoted(&rest[1..])?;
            let (times, after) = times(after)?;
            (0..times).for_each(|_| bytes.extend_from_slice(&quoted));
            rest = after;
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..first.len_utf8()]);
            rest = &rest[first.len_utf8()..];
        }
    }
    let word = match &bytes[..] {
        _ if contains.is_some() => Word::Contains(bytes),
        b"*" if plain => Word::Any,
        b"..." if plain => Word::Rest,
        b"null" if plain => Word::Exact(NULL.to_vec()),
        [b'$', name @ ..] if plain => Word::Bound(String::from_utf8_lossy(name).into_owned()),
        _ => Word::Exact(bytes),
    };
    Ok((word, rest))
}

fn times(rest: &str) -> Result<(usize, &str), String> {
    let Some(number) = rest.strip_prefix('*') else { return Ok((1, rest)) };
    let end = number.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(number.len());
    let times = number[..end].parse().map_err(|_| "a number of times follows \"text\"*".to_owned())?;
    Ok((times, &number[end..]))
}

fn quoted(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut at = text.char_indices();
    while let Some((position, character)) = at.next() {
        match character {
            '"' => return Ok((bytes, &text[position + 1..])),
            '\\' => match at.next() {
                Some((_, 'n')) => bytes.push(b'\n'),
                Some((position, 'x')) => {
                    let digits = text.get(position + 1..position + 3).ok_or("two digits follow \\x")?;
                    bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "two digits follow \\x")?);
                    at.nth(1);
                }
                Some((_, kept)) => bytes.extend_from_slice(kept.encode_utf8(&mut [0; 4]).as_bytes()),
                None => break,
            },
            _ => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Err("a quote is not closed".to_owned())
}

/// A value as a script would write it, long ones cut.
pub fn shown(bytes: &[u8]) -> String {
    if bytes == NULL {
        return "null".to_owned();
    }
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.:=-,/".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) && bytes.len() < 80 {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut text = String::from("\"");
    for &byte in bytes.iter().take(300) {
        match byte {
            b'"' | b'\\' => text.extend(['\\', byte as char]),
            b'\n' => text.push_str("\\n"),
            0x20..0x7f => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if bytes.len() > 300 {
        text.push_str(&format!("... {} bytes", bytes.len()));
    }
    text + "\""
}

/// All values of a message in one line.
pub fn shown_all(values: &[Vec<u8>]) -> String {
    values.iter().map(|value| shown(value)).collect::<Vec<_>>().join(" ")
}

/// Reads values one after another; the messages' encoders take what they need.
pub struct Values<'a> {
    rest: &'a [Vec<u8>],
}

impl<'a> Values<'a> {
    pub fn new(values: &'a [Vec<u8>]) -> Self {
        Self { rest: values }
    }

    pub fn next(&mut self) -> Result<&'a [u8], String> {
        let (first, rest) = self.rest.split_first().ok_or("a word is missing")?;
        self.rest = rest;
        Ok(first)
    }

    pub fn text(&mut self) -> Result<String, String> {
        Ok(String::from_utf8_lossy(self.next()?).into_owned())
    }

    pub fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let text = self.text()?;
        text.parse().map_err(|_| format!("{text} is no number that fits here"))
    }

    /// What is left.
    pub fn rest(&mut self) -> &'a [Vec<u8>] {
        std::mem::take(&mut self.rest)
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Reads a message's body, independently of weir-wire; `None` where bytes are missing.
pub struct Body<'a> {
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub fn string(&mut self) -> Option<Vec<u8>> {
        let end = self.rest.iter().position(|&byte| byte == 0)?;
        let text = self.take(end)?.to_vec();
        self.take(1)?;
        Some(text)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A value with its length before it, -1 for NULL.
    pub fn value(&mut self) -> Option<Vec<u8>> {
        match self.u32()? as i32 {
            -1 => Some(NULL.to_vec()),
            length => Some(self.take(usize::try_from(length).ok()?)?.to_vec()),
        }
    }

    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest).to_vec()
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

pub fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

pub fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    if value == NULL {
        out.extend_from_slice(&(-1i32).to_be_bytes());
    } else {
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        out.extend_from_slice(value);
    }
}

/// A message of a tag and a body; no tag for a startup packet.
pub fn framed(tag: Option<u8>, body: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = tag.into_iter().collect();
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

pub fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

pub fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = String::from_utf8_lossy(text);
    let pairs =
        (0..text.len()).step_by(2).map(|at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()));
    pairs.collect::<Option<_>>().ok_or_else(|| format!("{text} is not hexadecimal"))
}
