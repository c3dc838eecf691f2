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

/// PgBouncer's words, and those of OpenSSL that all six have.
const OF_ALL: [&str; 16] = [
    "default", "secure", "normal", "fast", "compat", "legacy", "all", "ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH",
    "kECDHE", "kEECDH", "AEAD", "TLSv1.2",
];
/// Words for those whose names say so.
const OF_SOME: [(&str, &str); 8] = [
    ("aRSA", "-RSA-"),
    ("aECDSA", "-ECDSA-"),
    ("ECDSA", "-ECDSA-"),
    ("AES", "-AES"),
    ("AESGCM", "-AES"),
    ("AES256", "-AES256-"),
    ("AES128", "-AES128-"),
    ("CHACHA20", "-CHACHA20-"),
];

/// Of TLS 1.2. A word that OpenSSL has for none of them is passed over, as there.
pub fn before_tls13(list: &str) -> Vec<CipherSuite> {
    let (mut chosen, mut forbidden) = (Vec::new(), Vec::new());
    for word in words(list) {
        let (sign, word) = match word.split_at_checked(1) {
            // How strong, or how ordered: nothing that is here is weak.
            Some(("@", _)) => continue,
            Some((sign @ ("!" | "-" | "+"), rest)) => (sign, rest),
            _ => ("", word),
        };
        let mut named: Vec<_> =
            BEFORE_TLS13.iter().filter(|(name, _)| is_meant(name, word)).map(|(_, own)| *own).collect();
        match sign {
            "" => {
                named.retain(|own| !chosen.contains(own) && !forbidden.contains(own));
                chosen.append(&mut named);
            }
            // Those of them that are there go to the end.
            "+" => {
                let moved: Vec<_> = chosen.extract_if(.., |own| named.contains(own)).collect();
                chosen.extend(moved);
            }
            _ => {
                chosen.retain(|own| !named.contains(own));
                if sign == "!" {
                    forbidden.append(&mut named);
                }
            }
        }
    }
    chosen
}

/// Of TLS 1.3, by their names alone; an empty list is all of them.
pub fn of_tls13(list: &str) -> Vec<CipherSuite> {
    if words(list).next().is_none() {
        return OF_TLS13.map(|(_, own)| own).to_vec();
    }
    words(list).filter_map(|word| OF_TLS13.iter().find(|(name, _)| *name == word)).map(|(_, own)| *own).collect()
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([':', ',', ';', ' ']).filter(|word| !word.is_empty())
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

    /// As `openssl ciphers -v -tls1_2` has them, of the six.
    #[test]
    fn lists_are_openssl_s() {
        let all = BEFORE_TLS13.map(|(name, _)| name).to_vec();
        for list in [
            "default",
            "secure",
            "fast",
            "HIGH:MEDIUM:+3DES:!aNULL",
            "HIGH:!aNULL:!MD5@STRENGTH",
            "ECDHE+AESGCM:ECDHE+CHACHA20",
        ] {
            let mut named = names(list);
            named.sort_unstable();
            let mut all = all.clone();
            all.sort_unstable();
            assert_eq!(named, all, "{list}");
        }
        for (list, expected) in [
            ("ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-SHA", &["ECDHE-RSA-AES128-GCM-SHA256"][..]),
            ("aRSA+AES256", &["ECDHE-RSA-AES256-GCM-SHA384"]),
            ("HIGH:!AES:-aECDSA:HIGH", &["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"]),
            ("CHACHA20:+aECDSA", &["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"]),
            ("RC4:3DES", &[]),
            ("!HIGH:HIGH", &[]),
            ("", &[]),
        ] {
            assert_eq!(names(list), expected, "{list}");
        }
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
