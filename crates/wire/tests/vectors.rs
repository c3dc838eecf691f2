//! Messages of real clients and servers mean to weir-wire what they meant to those who sent them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use support::{Side, Vector, meaning, vectors};
use weir_wire::backend::{ErrorFields, RowShape};
use weir_wire::frontend::{BindNames, bind_wants_binary};
use weir_wire::report::Severity;
use weir_wire::{BackendTag, FrontendTag, HEADER_LEN, write};

#[test]
fn each_vector_means_what_was_meant() {
    let vectors = vectors();
    for Vector { name, side, bytes, meaning: meant } in &vectors {
        assert_eq!(meaning(*side, bytes).as_ref(), Ok(meant), "{name}");
    }
    assert!(!vectors.is_empty());
}

/// A message that no vector shows has never been seen by these tests.
#[test]
fn every_message_has_a_vector() {
    let mut seen = BTreeSet::new();
    for vector in vectors() {
        let from_backend = vector.side == Side::Backend;
        if vector.side != Side::Startup {
            seen.insert((from_backend, vector.bytes[0]));
        }
    }
    for tag in 0..=u8::MAX {
        assert_eq!(BackendTag::from_byte(tag).is_some(), seen.contains(&(true, tag)), "backend {:?}", tag as char);
        assert_eq!(FrontendTag::from_byte(tag).is_some(), seen.contains(&(false, tag)), "frontend {:?}", tag as char);
    }
    for word in
        ["Startup 3.0", "Startup 3.2", "CancelRequest", "SSLRequest", "GSSENCRequest", "NegotiateProtocolVersion"]
    {
        assert!(vectors().iter().any(|vector| vector.meaning.starts_with(word)), "{word}");
    }
}

/// What has an open end: any number of bytes may follow, so a shorter body under a fitting header is a message too.
fn open_ended(vector: &Vector) -> bool {
    let word = vector.meaning.split(' ').next().unwrap();
    let unread = vector.meaning.ends_with(" bytes");
    let open =
        ["BackendKeyData", "CancelRequest", "SASLResponse", "AuthenticationSASLContinue", "AuthenticationSASLFinal"];
    // Of a Bind only the names are read.
    unread || open.contains(&word) || word == "Bind"
}

#[test]
fn cut_off_anywhere_nothing_parses() {
    for vector in vectors() {
        for end in 0..vector.bytes.len() {
            let cut = &vector.bytes[..end];
            assert!(meaning(vector.side, cut).is_err(), "{} cut at {end}", vector.name);
        }
    }
}

#[test]
fn a_body_cut_off_under_a_length_that_fits_does_not_parse() {
    let mut cuts = 0;
    for vector in vectors().iter().filter(|vector| !open_ended(vector)) {
        let head = if vector.side == Side::Startup { 4 } else { HEADER_LEN };
        for end in head..vector.bytes.len() {
            let cut = with_length(vector.side, &vector.bytes[..end]);
            assert!(meaning(vector.side, &cut).is_err(), "{} body cut at {end}", vector.name);
            cuts += 1;
        }
    }
    assert!(cuts > 0);
}

#[test]
fn bytes_after_the_end_do_not_parse() {
    for vector in vectors().iter().filter(|vector| !open_ended(vector)) {
        for extra in [0, b'x'] {
            let mut longer = vector.bytes.clone();
            longer.push(extra);
            assert!(meaning(vector.side, &longer).is_err(), "{} and a byte under its old length", vector.name);
            let longer = with_length(vector.side, &longer);
            assert!(meaning(vector.side, &longer).is_err(), "{} and a byte {extra}", vector.name);
        }
    }
}

#[test]
fn a_length_that_lies_does_not_parse() {
    for vector in vectors() {
        let at = usize::from(vector.side != Side::Startup);
        let truth = u32::from_be_bytes(*vector.bytes[at..].first_chunk().unwrap());
        let lies = [0, 1, 3, 4, truth.wrapping_sub(1), truth + 1, truth | 1 << 31, i32::MAX as u32, u32::MAX];
        for lie in lies.into_iter().filter(|&lie| lie != truth) {
            let mut lying = vector.bytes.clone();
            lying[at..at + 4].copy_from_slice(&lie.to_be_bytes());
            assert!(meaning(vector.side, &lying).is_err(), "{} with length {lie}", vector.name);
        }
    }
}

/// Flips every byte in turn: whatever comes of it, it is an answer and not a panic.
#[test]
fn any_changed_byte_gets_an_answer() {
    for vector in vectors() {
        for at in 0..vector.bytes.len() {
            for change in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut changed = vector.bytes.clone();
                changed[at] = change;
                let _ = meaning(vector.side, &changed);
            }
        }
    }
}

#[test]
fn cancel_keys_are_four_bytes_in_3_0_and_thirty_two_in_3_2() {
    let key_lens = |file: &str| -> BTreeSet<usize> {
        vectors()
            .iter()
            .filter(|vector| vector.name.starts_with(file) && vector.meaning.starts_with("BackendKeyData"))
            // The two stories that speak 3.0 to the newer server, or a version that it does not know, stand aside.
            .filter(|vector| !vector.name.contains("/suspended_portal"))
            .map(|vector| weir_wire::backend::backend_key(&vector.bytes[HEADER_LEN..]).unwrap().1.len())
            .collect()
    };
    assert_eq!(key_lens("postgresql-15-protocol-3.0"), BTreeSet::from([4]));
    assert_eq!(key_lens("postgresql-18-protocol-3.2"), BTreeSet::from([32]));
}

#[test]
fn only_fatal_reports_end_the_session() {
    let mut ending = 0;
    for vector in vectors().iter().filter(|vector| vector.meaning.starts_with("ErrorResponse")) {
        let fields = ErrorFields::parse(&vector.bytes[HEADER_LEN..]).unwrap();
        assert_eq!(fields.ends_session(), vector.meaning.contains(" FATAL "), "{}", vector.name);
        ending += usize::from(fields.ends_session());
    }
    assert!(ending > 0);
}

/// All vectors of one message, by its name.
fn of_kind(word: &str) -> Vec<Vector> {
    let vectors: Vec<_> =
        vectors().into_iter().filter(|vector| vector.meaning.split(' ').next() == Some(word)).collect();
    assert!(!vectors.is_empty(), "{word}");
    vectors
}

#[test]
fn the_shape_of_rows_is_read_whole_or_not_at_all() {
    for vector in of_kind("RowDescription") {
        let body = &vector.bytes[HEADER_LEN..];
        let shape = RowShape::read(body).unwrap();
        assert_eq!(shape.columns.to_be_bytes(), body[..2], "{}", vector.name);
        for end in 0..body.len() {
            assert!(RowShape::read(&body[..end]).is_err(), "{} cut at {end}", vector.name);
        }
        assert!(RowShape::read(&[body, b"\0"].concat()).is_err(), "{} and a byte", vector.name);
    }
}

#[test]
fn rows_differ_by_their_columns_and_not_by_their_format() {
    let mut body = of_kind("RowDescription").remove(0).bytes.split_off(HEADER_LEN);
    let shape = RowShape::read(&body).unwrap();
    let format = body.len() - 1;
    body[format] ^= 1;
    assert_eq!(RowShape::read(&body), Ok(shape));
    body[2] ^= 1; // The first letter of the first column's name.
    assert_ne!(RowShape::read(&body), Ok(shape));
}

#[test]
fn a_bind_says_whether_it_wants_binary() {
    let mut seen = BTreeSet::new();
    for vector in of_kind("Bind") {
        let body = &vector.bytes[HEADER_LEN..];
        let values = &body[BindNames::parse(body).unwrap().len()..];
        seen.insert(bind_wants_binary(values).unwrap());
        for end in 0..values.len() {
            assert!(bind_wants_binary(&values[..end]).is_err(), "{} cut at {end}", vector.name);
        }
        assert!(bind_wants_binary(&[values, b"\0"].concat()).is_err(), "{} and a byte", vector.name);
    }
    assert_eq!(seen, BTreeSet::from([false, true]));
}

/// Told on with another severity, a report of PostgreSQL's keeps its words.
#[test]
fn an_error_is_told_on_as_fatal() {
    for vector in of_kind("ErrorResponse") {
        let body = &vector.bytes[HEADER_LEN..];
        let mut out = Vec::new();
        write::error_as(&mut out, Severity::Fatal, body);
        let (was, is) = (ErrorFields::parse(body).unwrap(), ErrorFields::parse(&out[HEADER_LEN..]).unwrap());
        assert_eq!(is, ErrorFields { severity: b"FATAL", ..was }, "{}", vector.name);
    }
}

fn with_length(side: Side, bytes: &[u8]) -> Vec<u8> {
    let at = usize::from(side != Side::Startup);
    let mut bytes = bytes.to_vec();
    let length = (bytes.len() - at) as u32;
    bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
    bytes
}
