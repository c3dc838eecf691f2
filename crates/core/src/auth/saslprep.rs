//! SASLprep (RFC 4013) of passwords, in the order in which PostgreSQL's `pg_saslprep`
//! (`src/common/saslprep.c`) does it, falling back to the raw bytes where that function fails.
//!
//! `stringprep::saslprep` is not used as a whole: it looks for prohibited and bidirectional characters
//! after normalising, PostgreSQL before, and the two then hash some passwords differently. Its tables
//! are used. Does not know what the password is for.

use std::borrow::Cow;

use stringprep::tables;
use unicode_normalization::UnicodeNormalization as _;

/// The bytes that PostgreSQL hashes for `password`.
pub(super) fn normalised_password(password: &[u8]) -> Cow<'_, [u8]> {
    // Also the quick way out of pg_saslprep: ASCII, control characters included, stays as it is.
    if password.is_ascii() {
        return Cow::Borrowed(password);
    }
    let prepared = std::str::from_utf8(password).ok().and_then(saslprep);
    match prepared {
        Some(prepared) => Cow::Owned(prepared.into_bytes()),
        None => Cow::Borrowed(password),
    }
}

/// None where pg_saslprep answers SASLPREP_PROHIBITED.
fn saslprep(password: &str) -> Option<String> {
    let mapped: Vec<char> = password.chars().filter_map(map).collect();
    let refused = mapped.is_empty() || mapped.iter().copied().any(is_prohibited) || breaks_bidirectional_rules(&mapped);
    (!refused).then(|| mapped.into_iter().nfkc().collect())
}

/// RFC 4013 section 2.1. U+200B stands in both tables; as in PostgreSQL, the space wins.
fn map(character: char) -> Option<char> {
    if tables::non_ascii_space_character(character) {
        Some(' ')
    } else if tables::commonly_mapped_to_nothing(character) {
        None
    } else {
        Some(character)
    }
}

/// RFC 4013 sections 2.3 and 2.5.
fn is_prohibited(character: char) -> bool {
    tables::ascii_control_character(character)
        || tables::non_ascii_control_character(character)
        || tables::private_use(character)
        || tables::non_character_code_point(character)
        || tables::surrogate_code(character)
        || tables::inappropriate_for_plain_text(character)
        || tables::inappropriate_for_canonical_representation(character)
        || tables::change_display_properties_or_deprecated(character)
        || tables::tagging_character(character)
        || tables::unassigned_code_point(character)
}

/// RFC 3454 section 6: text with a right-to-left character has no left-to-right one, and has
/// right-to-left ones at both ends.
fn breaks_bidirectional_rules(mapped: &[char]) -> bool {
    let is_right_to_left = |character: Option<&char>| character.is_some_and(|&c| tables::bidi_r_or_al(c));
    if !mapped.iter().any(|&c| tables::bidi_r_or_al(c)) {
        return false;
    }
    mapped.iter().any(|&c| tables::bidi_l(c)) || !is_right_to_left(mapped.first()) || !is_right_to_left(mapped.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(password: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        let normalised = normalised_password(password.as_ref());
        assert_eq!(normalised.as_ref(), expected.as_ref());
    }

    #[test]
    fn examples_of_rfc_4013() {
        check("I\u{ad}X", "IX");
        check("user", "user");
        check("USER", "USER");
        check("\u{aa}", "a");
        check("\u{2168}", "IX");
        // Prohibited and bidirectional ones: the RFC says error, PostgreSQL takes the raw bytes.
        check("\u{7}", "\u{7}");
        check("\u{627}1", "\u{627}1");
    }

    #[test]
    fn examples_of_postgresql() {
        // src/test/authentication/t/002_saslprep.pl
        check("foo\u{7}bar", "foo\u{7}bar");
        check("foo\u{627}1bar", "foo\u{627}1bar");
        check(b"I\xc2\xadX", "IX");
        check(b"\xe2\x85\xa8", "IX");
        check(b"\xc2\xaa", "a");
    }

    #[test]
    fn spaces_become_a_space_and_joiners_nothing() {
        check("a\u{a0}b\u{3000}c", "a b c");
        check("a\u{200b}b", "a b");
        check("a\u{200d}b\u{feff}c", "abc");
    }

    #[test]
    fn what_cannot_be_prepared_stays_raw() {
        check(b"\xff\xfe", b"\xff\xfe");
        check(b"\xc3\xa4\xc3", b"\xc3\xa4\xc3");
        check("\u{ad}", "\u{ad}");
        check("\u{2168}\u{7}", "\u{2168}\u{7}");
        check("\u{2168}\u{e000}", "\u{2168}\u{e000}");
        check("\u{2168}\u{221}", "\u{2168}\u{221}");
        check("", "");
    }

    #[test]
    fn prohibited_is_asked_before_normalising() {
        // U+0340 is prohibited, its normal form U+0300 is not.
        check("\u{e4}\u{340}", "\u{e4}\u{340}");
        // U+FB1D is right-to-left, the last character of its normal form is not.
        check("\u{fb1d}", "\u{5d9}\u{5b4}");
    }

    #[test]
    fn right_to_left_text_needs_right_to_left_ends() {
        check("\u{627}\u{a0}\u{628}", "\u{627} \u{628}");
        check("\u{627}\u{a0}1", "\u{627}\u{a0}1");
        check("1\u{a0}\u{627}", "1\u{a0}\u{627}");
        check("\u{627}\u{a0}a\u{628}", "\u{627}\u{a0}a\u{628}");
    }
}
