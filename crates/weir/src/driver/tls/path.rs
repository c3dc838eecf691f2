//! The path from a peer's certificate to whoever is trusted: by names and signatures, before webpki looks at each of it.
//!
//! webpki tries every order of what a peer shows. A stranger who shows some authorities of one name, and no signature that is right, has it
//! at work for a minute. Here a step is taken once its signature is right, and there is a bound on how many are looked at.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, Error};
use webpki::RawPublicKeyEntity;
use x509_parser::certificate::X509Certificate;

use super::authorities::{Authorities, is_self_issued};
use super::certificate::{self, KeyNames, parse};

/// Authorities that a peer may show.
const SHOWN_MAX: usize = 32;
/// Signatures that are looked at: of the largest keys that is some ten milliseconds.
const SIGNATURES_MAX: u32 = 64;
/// Authorities between the two ends, as in webpki.
const BETWEEN_MAX: usize = 6;

/// An authority of a path.
#[derive(Debug)]
pub struct Authority<'a> {
    pub der: &'a CertificateDer<'a>,
    pub parsed: X509Certificate<'a>,
}

impl<'a> Authority<'a> {
    pub fn read(der: &'a CertificateDer<'a>) -> Option<Self> {
        parse(der).map(|parsed| Self { der, parsed })
    }
}

/// Hands in paths, each from the leaf's issuer up to an anchor, until one is taken. The error is the last one's.
pub fn find(
    leaf: &CertificateDer<'_>,
    shown: &[CertificateDer<'_>],
    trusted: &Authorities,
    algorithms: &WebPkiSupportedAlgorithms,
    now: UnixTime,
    mut take: impl FnMut(&[&Authority<'_>]) -> Result<(), Error>,
) -> Result<(), Error> {
    if shown.len() > SHOWN_MAX {
        return Err(Error::General(format!("the peer shows more than {SHOWN_MAX} authorities")));
    }
    let leaf = parse(leaf).ok_or(CertificateError::BadEncoding)?;
    let anchors: Vec<_> = trusted.anchors(now).filter_map(Authority::read).collect();
    let is_now = |other: &&CertificateDer<'_>| certificate::check_validity(other, now).is_ok();
    let between = trusted.between(shown).filter(is_now).filter_map(Authority::read);
    let between: Vec<_> = between.filter(|other| trusted.may_be_between(&other.parsed)).collect();
    let mut search = Search {
        anchors: &anchors,
        between: &between,
        algorithms,
        signatures_left: SIGNATURES_MAX,
        path: Vec::new(),
        failure: CertificateError::UnknownIssuer.into(),
    };
    if search.leads_to_anchor(&leaf, &mut take) { Ok(()) } else { Err(search.failure) }
}

struct Search<'a> {
    anchors: &'a [Authority<'a>],
    between: &'a [Authority<'a>],
    algorithms: &'a WebPkiSupportedAlgorithms,
    signatures_left: u32,
    path: Vec<&'a Authority<'a>>,
    failure: Error,
}

impl<'a> Search<'a> {
    fn leads_to_anchor(
        &mut self,
        below: &X509Certificate<'_>,
        take: &mut impl FnMut(&[&Authority<'_>]) -> Result<(), Error>,
    ) -> bool {
        for anchor in self.anchors {
            if self.has_issued(anchor, below) {
                self.path.push(anchor);
                let taken = take(&self.path);
                self.path.pop();
                match taken {
                    Ok(()) => return true,
                    Err(failure) => self.failure = failure,
                }
            }
        }
        for issuer in self.between {
            if self.path.len() < BETWEEN_MAX && self.has_issued(issuer, below) {
                self.path.push(issuer);
                let taken = self.leads_to_anchor(&issuer.parsed, take);
                self.path.pop();
                if taken {
                    return true;
                }
            }
        }
        false
    }

    fn has_issued(&mut self, issuer: &'a Authority<'a>, below: &X509Certificate<'_>) -> bool {
        let is_named = issuer.parsed.subject().as_raw() == below.issuer().as_raw();
        let is_there = self.path.iter().any(|other| std::ptr::eq(*other, issuer));
        let may_be = is_named && !is_there && key_may_be(&issuer.parsed, below) && self.may_be_so_long(&issuer.parsed);
        if !may_be || self.signatures_left == 0 {
            return false;
        }
        self.signatures_left -= 1;
        self.has_signed(&issuer.parsed, below)
    }

    fn has_signed(&self, issuer: &X509Certificate<'_>, other: &X509Certificate<'_>) -> bool {
        let is_consistent = other.tbs_certificate.signature == other.signature_algorithm;
        if !is_consistent || other.signature_value.unused_bits != 0 {
            return false;
        }
        let key = SubjectPublicKeyInfoDer::from(issuer.public_key().raw);
        let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
        let (signed, signature) = (other.tbs_certificate.as_ref(), &other.signature_value.data);
        let name = other.signature_algorithm.algorithm.as_bytes();
        // Several for one name differ in their parameters or curves: each looks at the kind of the key itself.
        let mut of_that_name =
            self.algorithms.all.iter().filter(|algorithm| is_named(&algorithm.signature_alg_id(), name));
        of_that_name.any(|algorithm| key.verify_signature(*algorithm, signed, signature).is_ok())
    }

    /// RFC 5280, 4.2.1.9: those that are issued by themselves do not count.
    fn may_be_so_long(&self, issuer: &X509Certificate<'_>) -> bool {
        let below = self.path.iter().filter(|other| !is_self_issued(&other.parsed)).count();
        match issuer.basic_constraints() {
            Ok(constraints) => constraints
                .and_then(|constraints| constraints.value.path_len_constraint)
                .is_none_or(|most| u32::try_from(below).is_ok_and(|below| below <= most)),
            Err(_) => false,
        }
    }
}

/// Whether that is the key that the other one names, if it names one: of many of one name the right one is found by that.
fn key_may_be(issuer: &X509Certificate<'_>, other: &X509Certificate<'_>) -> bool {
    let (own, wanted) = (KeyNames::of(issuer).own, KeyNames::of(other).issuer_s);
    own.zip(wanted).is_none_or(|(own, wanted)| own == wanted)
}

/// `identifier`: the content of an AlgorithmIdentifier, which begins with the object identifier (tag, length).
fn is_named(identifier: &[u8], name: &[u8]) -> bool {
    identifier.get(2..).is_some_and(|rest| rest.starts_with(name))
}
