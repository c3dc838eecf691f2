//! As much of SQL as it takes to find the statements of a text and their first words (src/backend/parser/scan.l of
//! PostgreSQL 18).

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Tokens of a statement that matter.
const TOKENS_MAX: usize = 12;

/// No names but in quotes, in any release (`RESERVED_KEYWORD` in src/include/parser/kwlist.h at 15; `system_user` is one since 16).
const RESERVED: &str = "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create \
    current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc \
    distinct do else end except false fetch for foreign from grant group having in initially intersect into \
    lateral leading limit localtime localtimestamp not null offset on only or order placing primary references \
    returning select session_user some symmetric table then to trailing true union unique user using \
    variadic when where window with";
/// Names of functions, and of nothing else (`TYPE_FUNC_NAME_KEYWORD`).
const OF_FUNCTIONS: &str = "authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left \
    like natural notnull outer overlaps right similar tablesample verbose";

/// Whether a word without quotes, in lower case, is the name of nothing; `or_function`: or of functions alone.
pub(crate) fn is_keyword(word: &[u8], or_function: bool) -> bool {
    static KEYWORDS: LazyLock<BTreeMap<&[u8], bool>> = LazyLock::new(|| {
        let of = |words: &'static str, functions| words.split(' ').map(move |word| (word.as_bytes(), functions));
        of(RESERVED, false).chain(of(OF_FUNCTIONS, true)).collect()
    });
    KEYWORDS.get(word).is_some_and(|of_functions| or_function || !of_functions)
}

#[derive(Debug, Clone)]
pub(crate) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    /// In each string a backslash is one.
    escapes: bool,
    /// A string was read in which a backslash may be an escape or not.
    backslash: bool,
    /// Something was read that may be anything: a name in escapes, or what releases read each in its way.
    illegible: bool,
    /// A comment was read that does not end.
    open_comment: bool,
    /// So was a string, or a name in quotes.
    open_quote: bool,
}

/// A token as it stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Raw<'a> {
    Word(&'a [u8]),
    /// In quotes: what stands between them.
    Name(&'a [u8]),
    /// A string in single quotes: what stands between them.
    Text(&'a [u8]),
    /// What stands between `$tag$` and `$tag$`.
    Dollars(&'a [u8]),
    Sign(u8),
}

impl<'a> Tokens<'a> {
    pub(crate) fn of(text: &'a [u8]) -> Self {
        let end = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\n' | b';')).map_or(0, |last| last + 1);
        Self {
            text: &text[..end],
            at: 0,
            escapes: false,
            backslash: false,
            illegible: false,
            open_comment: false,
            open_quote: false,
        }
    }

    /// Whether what is left has the same tokens with `standard_conforming_strings` on and off: a backslash in front of a quote makes others.
    pub(crate) fn are_alike(mut self) -> bool {
        let mut escaped = Self { escapes: true, ..self.clone() };
        loop {
            let (own, other) = (self.raw(), escaped.raw());
            if own != other || self.at != escaped.at {
                return false;
            }
            if own.is_none() {
                return true;
            }
        }
    }

    /// The next statement's first tokens, words in lower case and those in quotes behind a `"`, as no keyword is; of statements that cannot be of interest only the first.
    pub(crate) fn statement(&mut self) -> Option<Vec<String>> {
        let mut words = vec![self.token()?];
        if words[0] == ";" {
            return Some(words);
        }
        let interesting = matches!(&*words[0], "set" | "reset" | "discard" | "rollback" | "deallocate" | "execute");
        if !interesting && !self.text[self.at..].contains(&b';') {
            self.at = self.text.len();
        }
        while let Some(word) = self.token().filter(|word| word != ";") {
            if interesting && words.len() < TOKENS_MAX {
                words.push(word);
            }
        }
        Some(words)
    }

    /// With `standard_conforming_strings` off a backslash is an escape. What is said of the statements from there on may be wrong, as it may
    /// behind what is illegible.
    pub(crate) fn are_uncertain(&self) -> bool {
        self.backslash || self.illegible
    }

    pub(crate) fn has_backslash(&self) -> bool {
        self.backslash
    }

    /// PostgreSQL refuses the whole text.
    pub(crate) fn has_open_comment(&self) -> bool {
        self.open_comment
    }

    pub(crate) fn are_illegible(&self) -> bool {
        self.illegible
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Option<String> {
        Some(match self.raw()? {
            Raw::Text(_) => "'".to_owned(),
            Raw::Name(name) => format!("\"{}", String::from_utf8_lossy(name).replace("\"\"", "\"")),
            Raw::Dollars(_) => "$".to_owned(),
            Raw::Word(word) => String::from_utf8_lossy(word).to_ascii_lowercase(),
            Raw::Sign(sign) => char::from(sign).to_string(),
        })
    }

    /// The next token. `E` and `U&` in front of a string are no tokens of their own.
    #[inline]
    pub(crate) fn raw(&mut self) -> Option<Raw<'a>> {
        self.skip_blank();
        let text = self.text;
        let start = self.at;
        let first = *text.get(start)?;
        Some(match first {
            b'\'' => {
                self.skip_quoted(b'\'', self.escapes);
                Raw::Text(self.between_quotes(start))
            }
            b'"' => {
                self.skip_quoted(b'"', false);
                Raw::Name(self.between_quotes(start))
            }
            b'$' => self.dollars(),
            // A word may stand right behind it, up to 14 a keyword or a name; and where a dollar follows, releases differ in what that begins.
            b'0'..=b'9' => {
                let behind = behind_number(&text[start..]);
                self.at = text.len() - behind.len();
                self.illegible |= begins_dollars(behind);
                Raw::Word(&text[start..self.at])
            }
            _ if is_of_word(first) => {
                self.at += text[start..].iter().take_while(|&&byte| is_of_word(byte) || byte == b'$').count();
                let word = &text[start..self.at];
                let is = |letter: &str| word.eq_ignore_ascii_case(letter.as_bytes());
                match (self.peek(0), self.peek(1)) {
                    (b'\'', _) if is("e") => {
                        let quote = self.at;
                        self.skip_quoted(b'\'', true);
                        self.skip_continued();
                        return Some(Raw::Text(self.between_quotes(quote)));
                    }
                    // A name in escapes.
                    (b'&', b'"') if is("u") => self.illegible = true,
                    _ => {}
                }
                Raw::Word(word)
            }
            _ => {
                self.at += 1;
                Raw::Sign(first)
            }
        })
    }

    /// The parts of an escape string that follow it on further lines are escape strings too (`quotecontinue`): behind the end of a line, and no
    /// other comment than `--`.
    fn skip_continued(&mut self) {
        loop {
            let (end, mut on_another_line) = (self.at, false);
            loop {
                match (self.peek(0), self.peek(1)) {
                    (b'\n' | b'\r', _) => on_another_line = true,
                    (b' ' | b'\t' | 0x0c, _) => {}
                    (b'-', b'-') => {
                        self.skip_line();
                        continue;
                    }
                    _ => break,
                }
                self.at += 1;
            }
            if !on_another_line || self.peek(0) != b'\'' {
                self.at = end;
                return;
            }
            self.skip_quoted(b'\'', true);
        }
    }

    fn between_quotes(&self, start: usize) -> &'a [u8] {
        let end = self.at.saturating_sub(usize::from(!self.open_quote));
        &self.text[start + 1..end.max(start + 1)]
    }

    fn skip_blank(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0c, _) => self.at += 1,
                // A blank since 16.
                (0x0b, _) => (self.illegible, self.at) = (true, self.at + 1),
                (b'-', b'-') => self.skip_line(),
                (b'/', b'*') => self.skip_comment(),
                _ => return,
            }
        }
    }

    /// Up to its end.
    fn skip_line(&mut self) {
        self.at += self.text[self.at..].iter().take_while(|&&byte| !matches!(byte, b'\n' | b'\r')).count();
    }

    /// Comments nest.
    fn skip_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.text.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => depth += 1,
                (b'*', b'/') => depth -= 1,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                return;
            }
        }
        self.open_comment = true;
    }

    /// A doubled quote stands for itself.
    fn skip_quoted(&mut self, quote: u8, escapes: bool) {
        self.at += 1;
        while self.at < self.text.len() {
            match self.peek(0) {
                b'\\' if escapes => self.at += 1,
                b'\\' => self.backslash |= quote == b'\'',
                byte if byte == quote && self.peek(1) == quote => self.at += 1,
                byte if byte == quote => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
        (self.at, self.open_quote) = (self.text.len(), true);
    }

    /// `$tag$ ... $tag$`; a dollar before a digit begins a parameter.
    fn dollars(&mut self) -> Raw<'a> {
        let rest = &self.text[self.at..];
        let len = 1 + rest[1..].iter().take_while(|&&byte| is_of_word(byte)).count();
        if self.peek(1).is_ascii_digit() {
            // A parameter, whose number has no fraction: behind a dot stands a name.
            let behind = behind_digits(&rest[1..]);
            self.at = self.text.len() - behind.len();
            self.illegible |= begins_dollars(behind);
            return Raw::Sign(b'$');
        }
        if rest.get(len) != Some(&b'$') {
            self.at += 1;
            return Raw::Sign(b'$');
        }
        let (tag, inner) = rest.split_at(len + 1);
        let end = inner.windows(tag.len()).position(|window| window == tag).unwrap_or(inner.len());
        self.at = (self.at + end + 2 * tag.len()).min(self.text.len());
        Raw::Dollars(&inner[..end])
    }
}

/// Whether a dollar, or a word that has one, stands right behind a number: what it begins releases read each in its way. But for a parameter.
fn begins_dollars(behind: &[u8]) -> bool {
    let is_parameter = matches!(behind, [b'$', digit, ..] if digit.is_ascii_digit());
    !is_parameter && behind.iter().find(|byte| !is_of_word(**byte)) == Some(&b'$')
}

/// A text from its first word on: blanks, comments and empty statements say nothing.
pub(crate) fn from_first_word(text: &[u8]) -> &[u8] {
    if text.first().is_some_and(u8::is_ascii_alphabetic) {
        return text;
    }
    let mut tokens = Tokens { text, ..Tokens::of(b"") };
    loop {
        tokens.skip_blank();
        if tokens.peek(0) != b';' {
            return &text[tokens.at..];
        }
        tokens.at += 1;
    }
}

/// A name, which may have dots, in lower case: PostgreSQL finds parameters without regard to it.
pub(crate) fn dotted_name(tokens: &mut Tokens<'_>) -> String {
    let mut name = String::new();
    loop {
        match tokens.raw() {
            Some(Raw::Word(part) | Raw::Name(part)) => {
                name.push_str(&String::from_utf8_lossy(part).to_ascii_lowercase().replace("\"\"", "\""));
            }
            _ => return name,
        }
        let mut behind = tokens.clone();
        if !matches!(behind.raw(), Some(Raw::Sign(b'.'))) {
            return name;
        }
        *tokens = behind;
        name.push('.');
    }
}

/// The name that these words are, which may have dots.
pub(crate) fn name_of(words: &[&str]) -> String {
    words.iter().map(|word| word.trim_start_matches('"')).collect()
}

/// Whether a text speaks of the schema of temporary objects, in a string perhaps.
pub(crate) fn names_temporary(text: &[u8]) -> bool {
    const NAME: &[u8] = b"pg_temp";
    let begins = |at: usize| at.checked_sub(1).is_none_or(|before| !is_of_word(text[before]));
    text.windows(NAME.len()).enumerate().any(|(at, word)| word.eq_ignore_ascii_case(NAME) && begins(at))
}

/// What follows a number, of which the text begins with a digit: `real` in scan.l.
pub(crate) fn behind_number(text: &[u8]) -> &[u8] {
    let digits = behind_digits(text);
    let fraction = match digits {
        // A range in PL/pgSQL.
        [b'.', b'.', ..] => digits,
        [b'.', fraction @ ..] => behind_digits(fraction),
        _ => digits,
    };
    behind_exponent(fraction)
}

/// `e5`, with a sign or without.
pub(crate) fn behind_exponent(text: &[u8]) -> &[u8] {
    let exponent = text.strip_prefix(b"e").or_else(|| text.strip_prefix(b"E")).unwrap_or_default();
    let unsigned = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
    if unsigned.first().is_some_and(u8::is_ascii_digit) { behind_digits(unsigned) } else { text }
}

fn behind_digits(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|byte| byte.is_ascii_digit()).count()..]
}

/// A letter, also of another alphabet, a digit or an underscore.
fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_begins_at_its_first_word() {
        for (text, expected) in [
            ("select", "select"),
            ("  \n;; /* a /* b */ ; */ -- c\n discard all; x", "discard all; x"),
            ("/* never ends", ""),
            ("--", ""),
            (" ; ", ""),
            ("'a'", "'a'"),
        ] {
            assert_eq!(from_first_word(text.as_bytes()), expected.as_bytes(), "{text}");
        }
    }

    /// Each text beside its tokens, strings without what is in them.
    #[test]
    fn tokens_are_postgresql_s() {
        let tokens = |text: &str| {
            let mut tokens = Tokens::of(text.as_bytes());
            std::iter::from_fn(|| tokens.token()).collect::<Vec<_>>().join(" ")
        };
        for (text, expected) in [
            ("1then listen a", "1 then listen a"),
            ("1e5into t", "1e5 into t"),
            ("1e-5into t", "1e-5 into t"),
            ("1.e5into t", "1.e5 into t"),
            ("1.into t", "1. into t"),
            ("1..2loop", "1 . . 2 loop"),
            ("1efoo", "1 efoo"),
            ("0x1f2into t", "0 x1f2into t"),
            ("a$$ ; $$ b", "a$$ ; $"),
            ("1e'\\'' b", "1 ' b"),
            ("e'a' 'b\\' c 'd'", "' ' c '"),
            ("e'a' /* \n */ 'b\\' c", "' ' c"),
            ("e'a' -- ' \n -- ' \n 'b\\' c' d", "' d"),
            ("e'a' --", "'"),
            ("E'a'\n'b\\' c' d", "' d"),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn what_releases_read_each_in_its_way_is_illegible() {
        let is_illegible = |text: &str| {
            let mut tokens = Tokens::of(text.as_bytes());
            while tokens.raw().is_some() {}
            tokens.are_illegible()
        };
        for text in [
            "1$$",
            "$1$$",
            "1e-5e5$$;",
            "$1e5$$",
            "1.e5$$",
            "1_000$$",
            "0x1f$$",
            "1a$b",
            "a\u{b}b",
            "e'a'\n\u{b}'b'",
            "u&\"a\"",
        ] {
            assert!(is_illegible(text), "{text}");
        }
        for text in ["$1", "a$$", "1.$1", "$1, 2", "1e5, 0x1f, 1_000, 1.5", "$a$ 1$ $a$"] {
            assert!(!is_illegible(text), "{text}");
        }
    }

    #[test]
    fn a_backslash_matters_in_front_of_a_quote() {
        let are_alike = |text: &str| Tokens::of(text.as_bytes()).are_alike();
        for text in ["select 'a\\d', E'\\''", "select 'C:\\x' || '\\\\'", "select 1"] {
            assert!(are_alike(text), "{text}");
        }
        for text in ["select '\\', 'a'", "select b'\\', ' $q$ '"] {
            assert!(!are_alike(text), "{text}");
        }
    }
}
