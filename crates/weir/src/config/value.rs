//! Values as files spell them: switches, numbers, times, words.
//!
//! Owns the spelling. An error is what was expected, to be put behind the setting's name; the value itself is added
//! by those who know that it is no secret.

use weir_core::time::Duration;

/// The longest time that a setting may name: beyond it nobody can tell it from "never".
const SECONDS_MAX: u64 = i32::MAX as u64;

pub fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "on" | "true" => Ok(true),
        "0" | "no" | "off" | "false" => Ok(false),
        _ => Err("expected 0 or 1 (also yes, no, on, off, true, false)".to_owned()),
    }
}

pub fn integer(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let expected = || format!("expected a whole number from {min} to {max}");
    // `parse` alone would take a plus sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(expected());
    }
    let number: u64 = text.parse().map_err(|_| expected())?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(expected()) }
}

/// Seconds with up to six decimals that count.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected seconds, a number from 0 to {SECONDS_MAX}, decimals allowed");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(expected());
    }
    let whole = integer(whole, 0, SECONDS_MAX).map_err(|_| expected())?;
    let micros = fraction.bytes().chain(std::iter::repeat(b'0')).take(6);
    let micros = micros.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Ok(Duration(whole * 1_000_000 + micros))
}

/// As C reads numbers: octal behind a zero, else decimal (493 is what YAML makes of 0755). What is no mode in decimal, 700 or 777, is meant
/// to be octal.
pub fn file_mode(text: &str) -> Result<u32, String> {
    let read = |radix| u32::from_str_radix(text, radix).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    let decimal = if text.starts_with('0') { None } else { read(10) };
    decimal.or_else(|| read(8)).ok_or_else(|| "expected a file mode from 0000 to 0777".to_owned())
}

pub fn choice(text: &str, words: &[&'static str]) -> Result<&'static str, String> {
    let found = words.iter().copied().find(|word| word.eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("expected one of {}", words.join(", ")))
}

/// Words between commas and blanks.
pub fn list(text: &str) -> Vec<String> {
    text.split(|c: char| c == ',' || c.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches() {
        for (text, expected) in
            [("1", true), ("yes", true), ("On", true), ("TRUE", true), ("0", false), ("no", false), ("off", false)]
        {
            assert_eq!(switch(text), Ok(expected), "{text}");
        }
        for text in ["", "2", "-1", "y", "enabled"] {
            assert_eq!(switch(text).unwrap_err(), "expected 0 or 1 (also yes, no, on, off, true, false)", "{text}");
        }
    }

    #[test]
    fn integers() {
        assert_eq!(integer("0", 0, 9), Ok(0));
        assert_eq!(integer("9", 0, 9), Ok(9));
        for text in ["", "10", "-1", "+1", "1.0", "1k", "99999999999999999999"] {
            assert_eq!(integer(text, 0, 9).unwrap_err(), "expected a whole number from 0 to 9", "{text}");
        }
    }

    #[test]
    fn times_have_decimals() {
        for (text, micros) in [
            ("0", 0),
            ("15", 15_000_000),
            ("0.5", 500_000),
            ("1.0000019", 1_000_001),
            ("2147483647", 2_147_483_647_000_000),
        ] {
            assert_eq!(seconds(text), Ok(Duration(micros)), "{text}");
        }
        for text in ["", "-1", ".5", "1.", "1s", "inf", "1e3", "2147483648"] {
            assert_eq!(
                seconds(text).unwrap_err(),
                "expected seconds, a number from 0 to 2147483647, decimals allowed",
                "{text}"
            );
        }
    }

    #[test]
    fn modes_choices_and_lists() {
        for (text, mode) in
            [("0777", 0o777), ("0600", 0o600), ("493", 0o755), ("511", 0o777), ("700", 0o700), ("777", 0o777)]
        {
            assert_eq!(file_mode(text), Ok(mode), "{text}");
        }
        for text in ["", "08", "800", "1000", "01000", "+7", "rwx"] {
            assert_eq!(file_mode(text).unwrap_err(), "expected a file mode from 0000 to 0777", "{text}");
        }
        assert_eq!(choice("Session", &["session", "statement"]), Ok("session"));
        assert_eq!(choice("x", &["session", "statement"]).unwrap_err(), "expected one of session, statement");
        assert_eq!(list(" a, b,,c d "), ["a", "b", "c", "d"]);
    }
}
