//! As much of SQL as it takes to find the statements of a text and their first words (src/backend/parser/scan.l of
//! PostgreSQL 18).

/// Tokens of a statement that matter.
const TOKENS_MAX: usize = 12;

pub(crate) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    uncertain: bool,
}

impl<'a> Tokens<'a> {
    pub(crate) fn of(text: &'a [u8]) -> Self {
        let end = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\n' | b';')).map_or(0, |last| last + 1);
        Self { text: &text[..end], at: 0, uncertain: false }
    }

    /// The next statement's first tokens, words in lower case and those in quotes behind a `"`, as no keyword is; of statements that cannot be of interest only the first.
    pub(crate) fn statement(&mut self) -> Option<Vec<String>> {
        let mut words = vec![self.token()?];
        let interesting = matches!(&*words[0], "set" | "reset" | "discard" | "rollback" | "deallocate");
        if !interesting && !self.text[self.at..].contains(&b';') {
            self.at = self.text.len();
        }
        if words[0] == ";" {
            return Some(words);
        }
        while let Some(word) = self.token().filter(|word| word != ";") {
            if interesting && words.len() < TOKENS_MAX {
                words.push(word);
            }
        }
        Some(words)
    }

    /// Whether a string was read in which a backslash may be an escape or not (with `standard_conforming_strings` off it is), or a
    /// name in escapes. What is said of the statements from there on may be wrong.
    pub(crate) fn are_uncertain(&self) -> bool {
        self.uncertain
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Option<String> {
        self.skip_blank();
        let first = *self.text.get(self.at)?;
        let start = self.at;
        match first {
            b'\'' => {
                self.skip_quoted(b'\'', false);
                Some("'".to_owned())
            }
            b'"' => {
                self.skip_quoted(b'"', false);
                let inner = &self.text[start..self.at.saturating_sub(1).max(start + 1)];
                Some(String::from_utf8_lossy(inner).replace("\"\"", "\""))
            }
            b'$' => {
                self.skip_dollar_quoted();
                Some("$".to_owned())
            }
            _ if is_word(first) => {
                self.at += self.text[start..].iter().take_while(|&&byte| is_word(byte) || byte == b'$').count();
                let word = String::from_utf8_lossy(&self.text[start..self.at]).to_ascii_lowercase();
                match (&*word, self.peek(0), self.peek(1)) {
                    ("e", b'\'', _) => self.skip_quoted(b'\'', true),
                    // A name in escapes.
                    ("u", b'&', b'"') => self.uncertain = true,
                    _ => {}
                }
                Some(word)
            }
            _ => {
                self.at += 1;
                Some(char::from(first).to_string())
            }
        }
    }

    fn skip_blank(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, _) => self.at += 1,
                (b'-', b'-') => {
                    self.at += self.text[self.at..].iter().take_while(|&&byte| !matches!(byte, b'\n' | b'\r')).count();
                }
                (b'/', b'*') => self.skip_comment(),
                _ => return,
            }
        }
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
    }

    /// A doubled quote stands for itself.
    fn skip_quoted(&mut self, quote: u8, escapes: bool) {
        self.at += 1;
        while self.at < self.text.len() {
            match self.peek(0) {
                b'\\' if escapes => self.at += 1,
                b'\\' => self.uncertain |= quote == b'\'',
                byte if byte == quote && self.peek(1) == quote => self.at += 1,
                byte if byte == quote => {
                    self.at += 1;
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.at = self.text.len();
    }

    /// `$tag$ ... $tag$`; a dollar before a digit begins a parameter.
    fn skip_dollar_quoted(&mut self) {
        let rest = &self.text[self.at..];
        let len = 1 + rest[1..].iter().take_while(|&&byte| is_word(byte)).count();
        if self.peek(1).is_ascii_digit() || rest.get(len) != Some(&b'$') {
            self.at += 1;
            return;
        }
        let tag = &rest[..=len];
        let end = rest[tag.len()..].windows(tag.len()).position(|window| window == tag);
        self.at += end.map_or(rest.len(), |end| end + 2 * tag.len());
    }
}

/// A text from its first word on: blanks, comments and empty statements say nothing.
pub(crate) fn from_first_word(text: &[u8]) -> &[u8] {
    if text.first().is_some_and(u8::is_ascii_alphabetic) {
        return text;
    }
    let mut tokens = Tokens { text, at: 0, uncertain: false };
    loop {
        tokens.skip_blank();
        if tokens.peek(0) != b';' {
            return &text[tokens.at..];
        }
        tokens.at += 1;
    }
}

/// The name that these words are, which may have dots.
pub(crate) fn name_of(words: &[&str]) -> String {
    words.iter().map(|word| word.trim_start_matches('"')).collect()
}

/// A letter, also of another alphabet, a digit or an underscore.
fn is_word(byte: u8) -> bool {
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
}
