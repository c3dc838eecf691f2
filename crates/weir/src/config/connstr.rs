//! The `key=value key='quoted ''value'''` lists of `[databases]`, `[users]` and `[peers]`.
//!
//! Owns the syntax, as PgBouncer's `cstr_get_pair` reads it. Does not know which keys exist. Errors name keys and
//! never values: one of them is a password.

use weir_core::quoted;

/// The most characters of a key that an error repeats.
const KEY_CHARS_SHOWN_MAX: usize = 63;

/// All pairs in order, or what is wrong.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = key(rest)?;
        let (value, after) = value(key, after)?;
        pairs.push((key.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

fn key(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(text.len());
    let (key, rest) = text.split_at(end);
    if key.is_empty() {
        return Err("expected key=value, found \"=\" without a key".to_owned());
    }
    match rest.trim_start().strip_prefix('=') {
        Some(rest) => Ok((key, rest.trim_start())),
        None => Err(format!("expected \"=\" after \"{}\"", shown(key))),
    }
}

fn value<'a>(key: &str, text: &'a str) -> Result<(String, &'a str), String> {
    let (value, rest) = match text.strip_prefix('\'') {
        Some(inner) => {
            quoted(inner, '\'').ok_or_else(|| format!("the quoted value of \"{}\" has no closing quote", shown(key)))?
        }
        None => {
            let end = text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len());
            (text[..end].to_owned(), &text[end..])
        }
    };
    if value.is_empty() {
        return Err(format!("\"{}\" has an empty value", shown(key)));
    }
    Ok((value, rest))
}

fn shown(key: &str) -> String {
    key.chars().take(KEY_CHARS_SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_lists() {
        for (text, expected) in [
            ("", &[][..]),
            ("   ", &[]),
            ("a=1", &[("a", "1")]),
            ("  a = 1\tb=2  ", &[("a", "1"), ("b", "2")]),
            ("a='x ''y'' = z' b=c'd", &[("a", "x 'y' = z"), ("b", "c'd")]),
            ("a='1'b=2", &[("a", "1"), ("b", "2")]),
            ("q=a=b", &[("q", "a=b")]),
        ] {
            let pairs = parse(text).unwrap();
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(pairs, expected, "{text:?}");
        }
    }

    #[test]
    fn bad_lists() {
        for (text, expected) in [
            ("host", "expected \"=\" after \"host\""),
            ("host name=1", "expected \"=\" after \"host\""),
            ("=1", "expected key=value, found \"=\" without a key"),
            ("a=", "\"a\" has an empty value"),
            ("a=''", "\"a\" has an empty value"),
            ("a='open ''", "the quoted value of \"a\" has no closing quote"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_error_does_not_repeat_a_password() {
        let error = parse("user=u password='secret").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }
}
