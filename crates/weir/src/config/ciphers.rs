//! `*_tls_ciphers` and `*_tls13_ciphers`: cipher suites as OpenSSL's lists name them ("CIPHER LIST FORMAT" in openssl-ciphers(1)), of those that the
//! TLS library has.
//!
//! It has no other than with ephemeral keys on elliptic curves and authenticated encryption: of most lists of good suites something is left, and
//! whatever a list forbids of the others is not there.

use rustls::CipherSuite;

/// By their names in OpenSSL, the first wanted most.
const BEFORE_TLS13: [(&str, CipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];
const OF_TLS13: [(&str, CipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// Words of PgBouncer for a whole list (`tls_config_set_ciphers` of libtls), in any case.
const LISTS: [&str; 8] = ["default", "secure", "normal", "fast", "compat", "legacy", "insecure", "all"];
/// What a list may begin with and nothing behind it counts (`check_suiteb_cipher_list`, ssl/ssl_ciph.c of OpenSSL 3.0).
const SUITE_B: [(&str, &[usize]); 4] =
    [("SUITEB128ONLY", &[1]), ("SUITEB128C2", &[0]), ("SUITEB128", &[1, 0]), ("SUITEB192", &[0])];
/// Words of OpenSSL that all six have.
const OF_ALL: [&str; 8] = ["ALL", "HIGH", "ECDH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "TLSv1.2"];
/// Words for those whose names say so.
const OF_SOME: [(&str, &str); 9] = [
    ("aRSA", "-RSA-"),
    ("aECDSA", "-ECDSA-"),
    ("ECDSA", "-ECDSA-"),
    ("AES", "-AES"),
    ("AESGCM", "-AES"),
    ("AES256", "-AES256-"),
    ("AES128", "-AES128-"),
    ("CHACHA20", "-CHACHA20-"),
    // By what is written of their strength there.
    ("FIPS", "-AES"),
];
/// From that level of security on 128 bits are too few ("SSL_CTX_set_security_level(3)").
const LEVEL_OF_192_BITS: u32 = 4;
const LEVEL_MAX: u32 = 5;

/// Of TLS 1.2. A word that OpenSSL has for none of them is passed over, as there.
pub fn before_tls13(list: &str) -> Vec<CipherSuite> {
    if LISTS.iter().any(|own| list.trim().eq_ignore_ascii_case(own)) {
        return BEFORE_TLS13.map(|(_, own)| own).to_vec();
    }
    if let Some((_, places)) = SUITE_B.iter().find(|(word, _)| list.starts_with(word)) {
        return places.iter().map(|place| BEFORE_TLS13[*place].1).collect();
    }
    let mut left = Suites::default();
    let mut rules = list;
    if let Some(behind) = list.strip_prefix("DEFAULT") {
        left.apply(Sign::Add, "ALL");
        rules = behind;
    }
    loop {
        rules = rules.trim_start_matches(is_between);
        if rules.is_empty() {
            return left.chosen;
        }
        let Some((sign, words, behind)) = first_rule(rules) else { return Vec::new() };
        let is_known = left.apply(sign, words);
        let ends_here = behind.starts_with(is_between) || behind.starts_with(['!', '-', '+', '@']);
        // Behind a word that is none there the rest is passed over, up to the next.
        rules = if sign != Sign::Special && (is_known || ends_here) {
            behind
        } else {
            behind.find(is_between).map_or("", |at| &behind[at..])
        };
    }
}

/// What a rule does to the suites that its words name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Add,
    /// Those of them that are there go to the end.
    Last,
    Remove,
    /// They do not come back.
    Forbid,
    /// Not about suites that are named: their order, or their strength.
    Special,
}

/// The first rule of a list, and what is behind it: whatever cannot be in a word ends it, without a blank too (`ssl_cipher_process_rulestr`,
/// ssl/ssl_ciph.c of OpenSSL 3.0). `None`: OpenSSL refuses the list.
fn first_rule(list: &str) -> Option<(Sign, &str, &str)> {
    let (sign, words) = match list.as_bytes()[0] {
        b'-' => (Sign::Remove, &list[1..]),
        b'+' => (Sign::Last, &list[1..]),
        b'!' => (Sign::Forbid, &list[1..]),
        b'@' => (Sign::Special, &list[1..]),
        _ => (Sign::Add, list),
    };
    let in_words = |letter: char| letter.is_ascii_alphanumeric() || "-.=+".contains(letter);
    let end = words.find(|letter| !in_words(letter)).unwrap_or(words.len());
    let (words, behind) = words.split_at(end);
    let is_right = if sign == Sign::Special {
        words == "STRENGTH" || level(words).is_some()
    } else {
        !words.split('+').any(str::is_empty)
    };
    is_right.then_some((sign, words, behind))
}

/// Of `SECLEVEL=n`.
fn level(words: &str) -> Option<u32> {
    let level = words.strip_prefix("SECLEVEL=")?;
    level.parse().ok().filter(|number| level.len() == 1 && *number <= LEVEL_MAX)
}

fn is_between(letter: char) -> bool {
    matches!(letter, ':' | ',' | ';' | ' ')
}

#[derive(Debug, Default)]
struct Suites {
    chosen: Vec<CipherSuite>,
    forbidden: Vec<CipherSuite>,
}

impl Suites {
    /// Whether it named any.
    fn apply(&mut self, sign: Sign, words: &str) -> bool {
        let mut named: Vec<_> =
            BEFORE_TLS13.iter().filter(|(name, _)| is_meant(name, words)).map(|(_, own)| *own).collect();
        let is_known = !named.is_empty();
        match sign {
            Sign::Add => {
                named.retain(|own| !self.chosen.contains(own) && !self.forbidden.contains(own));
                self.chosen.append(&mut named);
            }
            Sign::Last => {
                let moved: Vec<_> = self.chosen.extract_if(.., |own| named.contains(own)).collect();
                self.chosen.extend(moved);
            }
            Sign::Remove => self.chosen.retain(|own| !named.contains(own)),
            Sign::Forbid => {
                self.chosen.retain(|own| !named.contains(own));
                self.forbidden.append(&mut named);
            }
            Sign::Special => {
                if level(words).is_some_and(|level| level >= LEVEL_OF_192_BITS) {
                    self.apply(Sign::Forbid, "AES128");
                }
            }
        }
        is_known
    }
}

/// Of TLS 1.3, by their names alone; an empty list is all of them.
pub fn of_tls13(list: &str) -> Vec<CipherSuite> {
    if words(list).next().is_none() {
        return OF_TLS13.map(|(_, own)| own).to_vec();
    }
    words(list).filter_map(|word| OF_TLS13.iter().find(|(name, _)| *name == word)).map(|(_, own)| *own).collect()
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(is_between).filter(|word| !word.is_empty())
}

/// Words with a plus between them are all meant.
fn is_meant(name: &str, word: &str) -> bool {
    let is = |word: &str| {
        let some = OF_SOME.iter().any(|(own, part)| *own == word && name.contains(part));
        name == word || some || OF_ALL.contains(&word)
    };
    word.split('+').all(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let chosen = before_tls13(list);
        let name = |own: &CipherSuite| BEFORE_TLS13.iter().find(|(_, suite)| suite == own).unwrap().0;
        chosen.iter().map(name).collect()
    }

    /// As `openssl ciphers -s -tls1_2` of OpenSSL 3.0.19 has them, of the six, in any order. 3 600 random lists of its words were compared by hand: four
    /// differed, which OpenSSL refuses, or where a word that it does not know stands before a `!` without a blank.
    #[test]
    fn lists_are_openssl_s() {
        const GCM: [&str; 4] = [
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
        ];
        const CHACHA: [&str; 2] = ["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"];
        let mut all = BEFORE_TLS13.map(|(name, _)| name);
        all.sort_unstable();
        for (list, expected) in [
            ("default", &all[..]),
            ("Secure", &all),
            ("HIGH:MEDIUM:+3DES:!aNULL", &all),
            ("HIGH:!aNULL:!MD5@STRENGTH", &all),
            ("ECDHE+AESGCM:ECDHE+CHACHA20", &all),
            ("DEFAULT:!MD5", &all),
            ("HIGH:!DEFAULT", &all),
            ("HIGH:!SHA384:!RSA:!DH:!kRSA:!CBC:!AESCCM", &all),
            ("HIGH:!AES+NOTHING", &all),
            ("HIGH:@SECLEVEL=2", &all),
            ("HIGH:!CHACHA20", &GCM),
            ("HIGH:-FIPS", &CHACHA),
            ("HIGH:!FIPS", &CHACHA),
            ("FIPS", &GCM),
            ("HIGH:!ECDH", &[]),
            ("!ECDH+AES:HIGH", &CHACHA),
            ("HIGH:!AES128!CHACHA20", &["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"]),
            ("HIGH!AES", &CHACHA),
            ("HIGH:!AES128@STRENGTH:-aRSA", &["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"]),
            ("CHACHA20:TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", &CHACHA),
            ("SUITEB128", &["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"]),
            ("SUITEB192:HIGH", &["ECDHE-ECDSA-AES256-GCM-SHA384"]),
            ("ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-SHA", &["ECDHE-RSA-AES128-GCM-SHA256"]),
            ("aRSA+AES256", &["ECDHE-RSA-AES256-GCM-SHA384"]),
            ("HIGH:!AES:-aECDSA:HIGH", &CHACHA),
            ("HIGH:!AES_128", &[]),
            ("HIGH:!", &[]),
            ("HIGH:@STRONG", &[]),
            ("AEAD", &[]),
            ("RC4:3DES", &[]),
            ("!HIGH:HIGH", &[]),
            ("", &[]),
        ] {
            let mut named = names(list);
            named.sort_unstable();
            assert_eq!(named, expected, "{list}");
        }
    }

    #[test]
    fn what_comes_first_is_wanted_most() {
        let others_first = ["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"];
        assert_eq!(names("HIGH:!AES:-aECDSA:HIGH"), others_first);
        assert_eq!(names("CHACHA20:+aECDSA"), others_first);
    }

    #[test]
    fn suites_of_tls_1_3_have_names() {
        assert_eq!(of_tls13("").len(), 3);
        let two = "TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256:TLS_AES_256_GCM_SHA384";
        let expected = [CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS13_AES_256_GCM_SHA384];
        assert_eq!(of_tls13(two), expected);
        assert_eq!(of_tls13("HIGH"), []);
    }
}
