//! A statement's shape: its text without comments, white space folded, and a mark in place of each number and string.
//!
//! Texts of one shape have the same parse tree but for the literals' values. What the text means is not known here. The tokens are those of
//! `src/backend/parser/scan.l` at REL_17_0; what an older release reads otherwise (`0x10`, `1_000`, `1a`) has no shape.

use std::ops::Range;

/// Of a longer text there is no shape.
pub const LONGEST: usize = 64 * 1024;

/// Comments within one.
const INNER_COMMENTS_MAX: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Digits, with a point or an exponent: a sign before them is an operator.
    Number,
    /// `'...'`, and nothing else that is in quotes.
    String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    pub kind: Kind,
    /// Where it is in the text, its quotes included.
    pub place: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    key: Vec<u8>,
    literals: Vec<Literal>,
    /// Words and operators, each of which may put the rest of the tree one level lower.
    words: usize,
    /// Literals, parameters and names in quotes.
    constants: usize,
    brackets: Brackets,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Brackets {
    open: usize,
    most: usize,
}

/// A literal in the key; outside of quotes a text that has this byte has no shape.
const fn mark(kind: Kind) -> u8 {
    match kind {
        Kind::Number => 1,
        Kind::String => 2,
    }
}

impl Shape {
    /// `None`: nobody may guess what the text is, and it is for the coordinator. `conforming` is `standard_conforming_strings`: where it is off, no string
    /// may have a backslash. The text is in UTF-8, or in ASCII.
    pub fn of(text: &str, conforming: bool) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let key = Vec::with_capacity(text.len());
        let shape = Self { key, literals: Vec::new(), words: 0, constants: 0, brackets: Brackets::default() };
        let mut lexer = Lexer { text: text.as_bytes(), at: 0, conforming, before: Before::Start, shape };
        while lexer.at < lexer.text.len() {
            lexer.token()?;
        }
        // No token ends with a blank.
        lexer.shape.key.pop_if(|last| *last == b' ');
        Some(lexer.shape)
    }

    /// Equal for equal shapes, and for no others.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// In the order of the text; a recipe numbers them from 0.
    pub fn literals(&self) -> &[Literal] {
        &self.literals
    }

    /// No parse tree of it has more levels, but for a few of each.
    pub(crate) fn levels_max(&self) -> usize {
        self.words + self.brackets.most
    }

    pub(crate) fn constants(&self) -> usize {
        self.constants
    }
}

/// The token before, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Start,
    /// A string that another one would go on with, behind a new line.
    String,
    /// The number behind it, in parentheses, is a part of a type's name.
    Float,
    FloatOf,
    Other,
}

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    conforming: bool,
    before: Before,
    shape: Shape,
}

impl Lexer<'_> {
    /// One token, or what stands between tokens.
    fn token(&mut self) -> Option<()> {
        let next = self.text.get(self.at + 1).copied().unwrap_or_default();
        match self.text[self.at] {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c => self.blank(self.at + 1),
            b'-' if next == b'-' => self.blank(self.past_line()),
            b'/' if next == b'*' => self.blank(self.past_comment()?),
            b'\'' => self.string()?,
            b'"' => self.constant(self.past_quote(self.at, b'"')?, Before::Other),
            b'$' => self.constant(self.past_dollar(next)?, Before::Other),
            b'0'..=b'9' => self.number()?,
            b'.' if next.is_ascii_digit() => self.number()?,
            byte if is_of_word(byte) => self.word(next)?,
            byte if byte.is_ascii_graphic() => self.sign(byte),
            _ => return None,
        }
        Some(())
    }

    /// All up to `end` is as good as one blank.
    fn blank(&mut self, end: usize) {
        self.at = end;
        if self.shape.key.last().is_some_and(|last| *last != b' ') {
            self.shape.key.push(b' ');
        }
    }

    fn copy(&mut self, end: usize, before: Before) {
        self.shape.key.extend_from_slice(&self.text[self.at..end]);
        (self.at, self.before) = (end, before);
    }

    fn constant(&mut self, end: usize, before: Before) {
        self.shape.constants += 1;
        self.copy(end, before);
    }

    fn literal(&mut self, kind: Kind, end: usize) {
        self.shape.constants += 1;
        self.shape.key.push(mark(kind));
        self.shape.literals.push(Literal { kind, place: self.at..end });
        self.at = end;
        self.before = if kind == Kind::String { Before::String } else { Before::Other };
    }

    fn string(&mut self) -> Option<()> {
        let end = self.past_plain(self.at)?;
        if self.before == Before::String {
            return None;
        }
        self.literal(Kind::String, end);
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let mut end = self.past_digits(self.at);
        if self.text.get(end) == Some(&b'.') {
            end = self.past_digits(end + 1);
        }
        if let Some(b'e' | b'E') = self.text.get(end) {
            let sign = usize::from(matches!(self.text.get(end + 1), Some(b'+' | b'-')));
            end = self.past_digits(end + 1 + sign);
            // Without digits it is another token, or none.
            self.text[end - 1].is_ascii_digit().then_some(())?;
        }
        if self.text.get(end).is_some_and(|byte| is_of_word(*byte) || *byte == b'.') {
            return None;
        }
        match self.before {
            Before::FloatOf => self.copy(end, Before::Other),
            _ => self.literal(Kind::Number, end),
        }
        Some(())
    }

    /// A name or a keyword, or a string that begins with a letter.
    fn word(&mut self, next: u8) -> Option<()> {
        let behind = self.text.get(self.at + 2).copied().unwrap_or_default();
        match (self.text[self.at] | 0x20, next, behind) {
            (b'e', b'\'', _) => self.constant(self.past_escapes(self.at + 1)?, Before::String),
            (b'b' | b'x' | b'n', b'\'', _) => self.constant(self.past_plain(self.at + 1)?, Before::String),
            // What it means may be told behind it, unless a comment stands between (`base_yylex`, src/backend/parser/parser.c).
            (b'u', b'&', b'\'' | b'"') => return None,
            _ => {
                let length = self.text[self.at..].iter().position(|byte| !is_of_word(*byte) && *byte != b'$');
                let end = length.map_or(self.text.len(), |length| self.at + length);
                let is_float = self.text[self.at..end].eq_ignore_ascii_case(b"float");
                let before = if is_float { Before::Float } else { Before::Other };
                self.shape.words += 1;
                self.copy(end, before);
            }
        }
        Some(())
    }

    /// A bracket, or an operator or a part of one.
    fn sign(&mut self, byte: u8) {
        let shape = &mut self.shape;
        match byte {
            b'(' | b'[' => shape.brackets.open += 1,
            b')' | b']' => shape.brackets.open = shape.brackets.open.saturating_sub(1),
            b',' | b';' | b'.' => {}
            _ => shape.words += 1,
        }
        shape.brackets.most = shape.brackets.most.max(shape.brackets.open);
        let is_of_float = byte == b'(' && self.before == Before::Float;
        self.copy(self.at + 1, if is_of_float { Before::FloatOf } else { Before::Other });
    }

    fn past_line(&self) -> usize {
        let length = self.text[self.at..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        length.map_or(self.text.len(), |length| self.at + length)
    }

    /// Comments may stand in comments. The parser takes a time for them that grows with the square of how many do.
    fn past_comment(&self) -> Option<usize> {
        let (mut depth, mut inner, mut at) = (0, 0, self.at);
        loop {
            match self.text.get(at..at + 2)? {
                b"/*" => (depth, inner, at) = (depth + 1, inner + 1, at + 2),
                b"*/" => (depth, at) = (depth - 1, at + 2),
                _ => at += 1,
            }
            if depth == 0 {
                return Some(at);
            }
            if inner > INNER_COMMENTS_MAX {
                return None;
            }
        }
    }

    fn past_digits(&self, from: usize) -> usize {
        let digits = self.text.get(from..).unwrap_or_default();
        from + digits.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    /// From a quote to behind the one that ends it; two of them are one in it.
    fn past_quote(&self, from: usize, quote: u8) -> Option<usize> {
        let mut at = from + 1;
        loop {
            at += self.text[at..].iter().position(|byte| *byte == quote)? + 1;
            if self.text.get(at) != Some(&quote) {
                return Some(at);
            }
            at += 1;
        }
    }

    /// A string that has no escapes, unless the server's setting lets it.
    fn past_plain(&self, from: usize) -> Option<usize> {
        let end = self.past_quote(from, b'\'')?;
        (self.conforming || !self.text[from..end].contains(&b'\\')).then_some(end)
    }

    fn past_escapes(&self, from: usize) -> Option<usize> {
        let mut at = from + 1;
        loop {
            match (*self.text.get(at)?, self.text.get(at + 1)) {
                (b'\\', _) | (b'\'', Some(b'\'')) => at += 2,
                (b'\'', _) => return Some(at + 1),
                _ => at += 1,
            }
        }
    }

    /// `$1`, or a string in dollars.
    fn past_dollar(&self, next: u8) -> Option<usize> {
        if next.is_ascii_digit() {
            let end = self.past_digits(self.at + 1);
            return (!self.text.get(end).is_some_and(|byte| is_of_word(*byte))).then_some(end);
        }
        let tag = self.text[self.at + 1..].iter().position(|byte| !is_of_word(*byte))?;
        let begins = self.at + 1 + tag + 1;
        let tag = &self.text[self.at..begins];
        // Each `$` may begin the tag that ends it.
        let mut at = begins;
        loop {
            at += self.text[at..].iter().position(|byte| *byte == b'$')?;
            if self.text[at..].starts_with(tag) {
                return (tag.last() == Some(&b'$')).then_some(at + tag.len());
            }
            at += 1;
        }
    }
}

/// Letters, digits, and whatever is not ASCII (`ident_cont`, but for the dollar).
const fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shape as one reads it: numbers are `#`, strings `%`.
    fn read(text: &str) -> Option<String> {
        let shape = Shape::of(text, true)?;
        Some(String::from_utf8(shape.key().to_vec()).unwrap().replace('\u{1}', "#").replace('\u{2}', "%"))
    }

    #[test]
    fn shapes_are_read() {
        let known = [
            ("  select 1 ;\n", "select # ;"),
            ("select  -1.5e-3,.5 , 7.", "select -#,# , #"),
            ("select/* a /* b */ c */'it''s' -- end", "select %"),
            ("select a1, $1::int, \"a'1\", E'\\'1', x'1f', N'1'", "select a1, $1::int, \"a'1\", E'\\'1', x'1f', N'1'"),
            ("select $$1$$, $a$ $b$ 1 $a$, a$1", "select $$1$$, $a$ $b$ 1 $a$, a$1"),
            ("select 1::float(24), float4 '1'", "select #::float(24), float4 %"),
            ("/*a='1'*/ update t set a=2--x\nwhere b='x'", "update t set a=# where b=%"),
            ("sélect 1", "sélect #"),
            ("", ""),
        ];
        for (text, shape) in known {
            assert_eq!(read(text).as_deref(), Some(shape), "{text}");
        }
    }

    #[test]
    fn what_may_be_read_in_two_ways_has_no_shape() {
        let texts = [
            "'a' \n 'b'",
            "E'a'\n'b'",
            "'a",
            "\"a",
            "/* /* */",
            "$a$ $b$",
            "$a",
            "$1a",
            "1a",
            "0x10",
            "1_000",
            "1..2",
            "1e",
            "1.e+",
            "E'\\'",
            "\u{1}",
            "a \u{b} b",
            "$a$ $a",
            "$-$ $-$",
            "U&'a'",
            "u&\"a\"",
        ];
        for text in texts {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Shape::of(&" ".repeat(LONGEST + 1), true), None);
        assert_eq!(Shape::of("select '\\'", false), None);
        assert!(Shape::of("select '\\', E'\\''", true).is_some());
        assert!(Shape::of("select E'\\''", false).is_some());
    }

    #[test]
    fn literals_are_where_they_are() {
        let text = "select -17, 'a''b' from t where a1 = 2";
        let shape = Shape::of(text, true).unwrap();
        let said: Vec<_> = shape.literals().iter().map(|literal| &text[literal.place.clone()]).collect();
        assert_eq!(said, ["17", "'a''b'", "2"]);
    }
}
