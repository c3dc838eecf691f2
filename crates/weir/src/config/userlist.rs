//! `auth_file`: users and secrets.
//!
//! Owns the format as PgBouncer's `load_auth_file` reads it: `"user" "secret"` per line, a doubled quote for a quote,
//! `;` begins a comment, whatever follows the secret is left alone. Errors name lines and users, never secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::auth::Secret;

use super::problem::{Place, Problems};

/// The longest line: PgBouncer's longest name and secret, each character doubled, and a margin.
pub const LINE_BYTES_MAX: usize = 256 * 1024;
/// PgBouncer's `MAX_USERNAME` less its terminator.
const USER_BYTES_MAX: usize = 127;
/// PgBouncer's `MAX_PASSWORD` less its terminator.
const SECRET_BYTES_MAX: usize = 65_530;

/// Reads the whole file; a line that is wrong is an error and left out. The last of two lines for a user counts.
pub fn parse(name: &str, bytes: &[u8], problems: &mut Problems) -> BTreeMap<Arc<str>, Secret> {
    let file: Arc<str> = name.into();
    let mut secrets = BTreeMap::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some((user, secret))) => {
                secrets.insert(user.into(), Secret::parse(&secret));
            }
            Err(text) => problems.error(&Place::new(&file, u32::try_from(index + 1).unwrap_or(u32::MAX)), text),
        }
    }
    secrets
}

fn parse_line(line: &[u8]) -> Result<Option<(String, String)>, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("the line has {} bytes, at most {LINE_BYTES_MAX} are read", line.len()));
    }
    let line = std::str::from_utf8(line).map_err(|_| "the line is not valid UTF-8")?;
    let line = line.trim_start_matches('\u{feff}').trim();
    if line.is_empty() || line.starts_with(';') {
        return Ok(None);
    }
    let (user, rest) = quoted(line).ok_or("expected a user in double quotes")?;
    if user.is_empty() {
        return Err("the name of a user cannot be empty".to_owned());
    }
    if user.len() > USER_BYTES_MAX {
        return Err(format!("the name of the user has {} bytes, at most {USER_BYTES_MAX} are allowed", user.len()));
    }
    let (secret, _) =
        quoted(rest.trim_start()).ok_or_else(|| format!("expected a secret in double quotes after user \"{user}\""))?;
    if secret.len() > SECRET_BYTES_MAX {
        return Err(format!(
            "the secret of user \"{user}\" has {} bytes, at most {SECRET_BYTES_MAX} are allowed",
            secret.len()
        ));
    }
    Ok(Some((user, secret)))
}

/// A quoted text at the beginning, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut content = String::new();
    loop {
        let (before, after) = rest.split_once('"')?;
        content.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                content.push('"');
                rest = next;
            }
            None => return Some((content, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (BTreeMap<Arc<str>, Secret>, Vec<String>) {
        let mut problems = Problems::default();
        let secrets = parse("users", bytes, &mut problems);
        (secrets, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn good_files() {
        let text = b"; comment\n\n\"a\" \"one\"\r\n  \"b \"\"x\"\"\"\t\"p\"\"w\" ignored \"old\"\n\"a\" \
            \"two\"\n\"c\"\"\" \"\"";
        let (secrets, problems) = read(text);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(secrets.len(), 3);
        assert!(secrets["a"] == Secret::parse("two"), "the last line counts");
        assert!(secrets["b \"x\""] == Secret::parse("p\"w"));
        assert!(secrets["c\""] == Secret::parse(""));
    }

    #[test]
    fn bad_lines_are_named_and_the_rest_is_read() {
        let long_user = format!("\"{}\" \"x\"", "u".repeat(128));
        let long_secret = format!("\"u\" \"{}\"", "s".repeat(SECRET_BYTES_MAX + 1));
        let long_line = "x".repeat(LINE_BYTES_MAX + 1);
        let text = format!(
            "postgres x\n\"open\n\"u\" hunter2\n\"\" \"x\"\n{long_user}\n{long_secret}\n{long_line}\n\"ok\" \"1\""
        );
        let (secrets, problems) = read(text.as_bytes());
        assert_eq!(secrets.len(), 1);
        assert_eq!(
            problems,
            [
                "users:1: error: expected a user in double quotes",
                "users:2: error: expected a user in double quotes",
                "users:3: error: expected a secret in double quotes after user \"u\"",
                "users:4: error: the name of a user cannot be empty",
                "users:5: error: the name of the user has 128 bytes, at most 127 are allowed",
                "users:6: error: the secret of user \"u\" has 65531 bytes, at most 65530 are allowed",
                "users:7: error: the line has 262145 bytes, at most 262144 are read",
            ]
        );
    }

    #[test]
    fn bytes_that_are_not_text() {
        let (_, problems) = read(b"\"a\" \"\xff\"\n\0");
        assert_eq!(
            problems,
            ["users:1: error: the line is not valid UTF-8", "users:2: error: expected a user in double quotes"]
        );
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let alphabet = b"\"\"\"u; \n\t\xff\xc3\xa9\0";
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..24 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.push(alphabet[(state % alphabet.len() as u64) as usize]);
            }
            let (secrets, problems) = read(&bytes);
            assert!(secrets.len() + problems.len() <= bytes.split(|byte| *byte == b'\n').count(), "{bytes:?}");
        }
    }
}
