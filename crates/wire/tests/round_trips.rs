//! What a writer wrote, its parser reads back, whatever the values are.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::collection::vec;
use proptest::prelude::*;
use weir_wire::backend::{self, Authentication, ErrorFields, RowShape};
use weir_wire::frontend::{self, BindNames, Parse, Target};
use weir_wire::report::Severity;
use weir_wire::write::{self, ColumnType};
use weir_wire::{BackendTag, FrontendTag, HEADER_LEN, Header, ProtocolVersion, Report, Startup, TransactionStatus};

type Writer = fn(&mut Vec<u8>);

/// The body of the one message that a writer appends, after its header was found to fit.
fn body(tag: u8, writer: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"what was there before".to_vec();
    let start = out.len();
    writer(&mut out);
    assert_eq!(&out[..start], b"what was there before");
    let header = Header::parse(out[start..].first_chunk::<HEADER_LEN>().unwrap());
    let body = out[start + HEADER_LEN..].to_vec();
    assert_eq!(header, Header { tag, body_len: Some(body.len() as u32) });
    body
}

fn from_frontend(tag: FrontendTag, writer: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    assert_eq!(FrontendTag::from_byte(tag as u8), Some(tag));
    let body = body(tag as u8, writer);
    assert!(body.len() <= tag.body_len_max() as usize);
    body
}

fn from_backend(tag: BackendTag, writer: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    assert_eq!(BackendTag::from_byte(tag as u8), Some(tag));
    body(tag as u8, writer)
}

/// A startup packet's body, after its length was found to fit.
fn packet(writer: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    writer(&mut out);
    assert_eq!(Startup::packet_len(out.first_chunk().unwrap()), Ok(out.len()));
    out[4..].to_vec()
}

/// Any bytes that a zero-terminated string can hold.
fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..40)
}

fn text() -> impl Strategy<Value = String> {
    "[^\\x00]{0,30}"
}

fn word() -> impl Strategy<Value = String> {
    "[^\\x00]{1,30}"
}

fn words(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

proptest! {
    #[test]
    fn startup(minor in 0..0x1_0000u32, pairs in vec((word(), text()), 0..8)) {
        let version = ProtocolVersion(0x0003_0000 | minor);
        let parameters: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let body = packet(|out| write::startup(out, version, &parameters));
        prop_assert_eq!(Startup::parse(&body), Ok(Startup::Session { version, parameters }));
    }

    #[test]
    fn cancel_request(process_id: u32, key in vec(any::<u8>(), 4..=256)) {
        let body = packet(|out| write::cancel_request(out, process_id, &key));
        prop_assert_eq!(Startup::parse(&body), Ok(Startup::Cancel { process_id, key: &key }));
    }

    #[test]
    fn cancel_key_of_another_length_is_refused(
        process_id: u32,
        key in prop_oneof![vec(any::<u8>(), 0..4), vec(any::<u8>(), 257..300)],
    ) {
        let body = packet(|out| write::cancel_request(out, process_id, &key));
        prop_assert!(Startup::parse(&body).is_err());
        let body = from_backend(BackendTag::BackendKeyData, |out| write::backend_key(out, process_id, &key));
        prop_assert!(backend::backend_key(&body).is_err());
    }

    #[test]
    fn password(secret in name()) {
        let body = from_frontend(FrontendTag::Password, |out| write::password(out, &secret));
        prop_assert_eq!(frontend::password(&body), Ok(&secret[..]));
    }

    #[test]
    fn sasl(mechanism in word(), data in vec(any::<u8>(), 0..300)) {
        let body = from_frontend(FrontendTag::Password, |out| write::sasl_initial(out, &mechanism, &data));
        prop_assert_eq!(frontend::sasl_initial(&body), Ok((mechanism.as_str(), &data[..])));
        let body = from_frontend(FrontendTag::Password, |out| write::sasl_response(out, &data));
        prop_assert_eq!(body, data);
    }

    #[test]
    fn sasl_initial_whose_length_lies(mechanism in word(), data in vec(any::<u8>(), 0..30), lie: u32) {
        let mut body = from_frontend(FrontendTag::Password, |out| write::sasl_initial(out, &mechanism, &data));
        prop_assume!(lie as usize != data.len());
        let at = mechanism.len() + 1;
        body[at..at + 4].copy_from_slice(&lie.to_be_bytes());
        prop_assert!(frontend::sasl_initial(&body).is_err());
    }

    #[test]
    fn query(sql in name()) {
        let body = from_frontend(FrontendTag::Query, |out| write::query(out, &sql));
        prop_assert_eq!(frontend::query(&body), Ok(&sql[..]));
    }

    #[test]
    fn parse(statement in name(), sql in name(), types in vec(any::<u32>(), 0..9)) {
        let mut definition = sql;
        definition.push(0);
        definition.extend_from_slice(&(types.len() as u16).to_be_bytes());
        definition.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
        let body = from_frontend(FrontendTag::Parse, |out| write::parse(out, &statement, &definition));
        prop_assert_eq!(Parse::read(&body), Ok(Parse { name: &statement, definition: &definition }));
        prop_assert_eq!(Parse::definition_of(&body), Some(&definition[..]));
    }

    #[test]
    fn parse_whose_count_of_types_lies(statement in name(), types in 0..9u16, lie: u16) {
        prop_assume!(lie != types);
        let mut definition = b"select 1\0".to_vec();
        definition.extend_from_slice(&lie.to_be_bytes());
        definition.extend(std::iter::repeat_n(0, usize::from(types) * 4));
        let body = from_frontend(FrontendTag::Parse, |out| write::parse(out, &statement, &definition));
        prop_assert!(Parse::read(&body).is_err());
    }

    #[test]
    fn describe_and_close(statement in name()) {
        let body = from_frontend(FrontendTag::Describe, |out| write::describe_statement(out, &statement));
        prop_assert_eq!(Target::parse(&body), Ok(Target::Statement(&statement)));
        let mut body = from_frontend(FrontendTag::Close, |out| write::close_statement(out, &statement));
        prop_assert_eq!(Target::parse(&body), Ok(Target::Statement(&statement)));
        body[0] = b'P';
        prop_assert_eq!(Target::parse(&body), Ok(Target::Portal(&statement)));
    }

    #[test]
    fn describe_of_neither_statement_nor_portal(kind: u8, target in name()) {
        prop_assume!(kind != b'S' && kind != b'P');
        let mut body = from_frontend(FrontendTag::Describe, |out| write::describe_statement(out, &target));
        body[0] = kind;
        prop_assert!(Target::parse(&body).is_err());
    }

    #[test]
    fn bind_names(portal in name(), statement in name(), values in vec(any::<u8>(), 0..50)) {
        let body = from_frontend(FrontendTag::Bind, |out| {
            write::bind_names(out, &portal, &statement, values.len());
            out.extend_from_slice(&values);
        });
        let names = BindNames::parse(&body).unwrap();
        prop_assert_eq!(names, BindNames { portal: &portal, statement: &statement });
        prop_assert_eq!(&body[names.len()..], &values[..]);
        prop_assert_eq!(names.is_empty(), portal.is_empty() && statement.is_empty());
        for end in 0..names.len() {
            prop_assert_eq!(BindNames::parse(&body[..end]), None);
        }
    }

    #[test]
    fn copy_fail(reason in name()) {
        let body = from_frontend(FrontendTag::CopyFail, |out| write::copy_fail(out, &reason));
        prop_assert_eq!(body, [&reason[..], &[0]].concat());
    }

    #[test]
    fn authentication(salt: [u8; 4], mechanisms in vec(word(), 0..4), data in vec(any::<u8>(), 0..100)) {
        let tag = BackendTag::Authentication;
        let body = from_backend(tag, |out| write::authentication_md5(out, salt));
        prop_assert_eq!(Authentication::parse(&body), Ok(Authentication::Md5Password { salt }));
        let mechanisms = words(&mechanisms);
        let body = from_backend(tag, |out| write::authentication_sasl(out, &mechanisms));
        prop_assert_eq!(Authentication::parse(&body), Ok(Authentication::Sasl { mechanisms }));
        let body = from_backend(tag, |out| write::authentication_sasl_continue(out, &data));
        prop_assert_eq!(Authentication::parse(&body), Ok(Authentication::SaslContinue { data: &data }));
        let body = from_backend(tag, |out| write::authentication_sasl_final(out, &data));
        prop_assert_eq!(Authentication::parse(&body), Ok(Authentication::SaslFinal { data: &data }));
    }

    #[test]
    fn parameter_status(parameter in text(), value in name()) {
        let body = from_backend(BackendTag::ParameterStatus, |out| write::parameter_status(out, &parameter, &value));
        prop_assert_eq!(backend::parameter_status(&body), Ok((parameter.as_str(), &value[..])));
    }

    #[test]
    fn backend_key(process_id: u32, key in vec(any::<u8>(), 4..=256)) {
        let body = from_backend(BackendTag::BackendKeyData, |out| write::backend_key(out, process_id, &key));
        prop_assert_eq!(backend::backend_key(&body), Ok((process_id, &key[..])));
    }

    #[test]
    fn negotiate_version(newest: u32, options in vec(text(), 0..6), lie: u32) {
        let options = words(&options);
        let mut body = from_backend(BackendTag::NegotiateProtocolVersion, |out| {
            write::negotiate_version(out, ProtocolVersion(newest), &options);
        });
        prop_assert_eq!(backend::negotiate_version(&body), Ok((newest, options.clone())));
        prop_assume!(lie as usize != options.len());
        body[4..8].copy_from_slice(&lie.to_be_bytes());
        prop_assert!(backend::negotiate_version(&body).is_err());
    }

    #[test]
    fn command_complete(command in text()) {
        let body = from_backend(BackendTag::CommandComplete, |out| write::command_complete(out, &command));
        prop_assert_eq!(backend::command_tag(&body), Ok(command.as_bytes()));
    }

    /// A zero byte in a text is left out: it would end its field and begin another.
    #[test]
    fn report(
        message in any::<String>(),
        detail in any::<Option<String>>(),
        hint in any::<Option<String>>(),
        which in 0..4usize,
    ) {
        let severity = [Severity::Notice, Severity::Warning, Severity::Error, Severity::Fatal][which];
        let tag = if which < 2 { BackendTag::NoticeResponse } else { BackendTag::ErrorResponse };
        let (text, detail, hint) = (message.clone(), detail.map(Into::into), hint.map(Into::into));
        let report = Report { detail, hint, ..Report::new(severity, "08P01", text) };
        let body = from_backend(tag, |out| write::report(out, &report));
        let fields = ErrorFields::parse(&body).unwrap();
        prop_assert_eq!(fields.severity, severity.as_str().as_bytes());
        prop_assert_eq!(fields.code, b"08P01");
        let without_zeros = message.replace('\0', "");
        prop_assert_eq!(fields.message, without_zeros.as_bytes());
        prop_assert_eq!(fields.routine, b"");
        prop_assert_eq!(fields.ends_session(), severity == Severity::Fatal);
    }

    #[test]
    fn numeric(number: u64) {
        let bytes = write::numeric(number);
        let words: Vec<u16> = bytes.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]])).collect();
        let [count, weight, sign, scale, digits @ ..] = &words[..] else { panic!("{words:?}") };
        prop_assert_eq!((usize::from(*count), *sign, *scale), (digits.len(), 0, 0));
        prop_assert_eq!(usize::from(*weight), digits.len().saturating_sub(1));
        prop_assert_eq!(digits.iter().fold(0, |sum, digit| sum * 10_000 + u64::from(*digit)), number);
    }

    #[test]
    fn data_row(values in vec(proptest::option::of(vec(any::<u8>(), 0..50)), 0..6)) {
        let body = from_backend(BackendTag::DataRow, |out| write::data_row(out, values.iter().map(Option::as_deref)));
        let mut expected = (values.len() as u16).to_be_bytes().to_vec();
        for value in &values {
            match value {
                Some(value) => {
                    expected.extend_from_slice(&(value.len() as i32).to_be_bytes());
                    expected.extend_from_slice(value);
                }
                None => expected.extend_from_slice(&(-1i32).to_be_bytes()),
            }
        }
        prop_assert_eq!(body, expected);
    }

    /// No bytes at all make a parser panic; what each answers is its own affair.
    #[test]
    fn any_bytes_get_an_answer(bytes in vec(any::<u8>(), 0..400)) {
        let _ = Startup::parse(&bytes);
        let _ = Parse::read(&bytes);
        let _ = BindNames::parse(&bytes);
        let _ = Target::parse(&bytes);
        let _ = (frontend::password(&bytes), frontend::sasl_initial(&bytes), frontend::query(&bytes));
        let _ = (backend::ready(&bytes), Authentication::parse(&bytes), backend::parameter_status(&bytes));
        let _ = (backend::backend_key(&bytes), backend::negotiate_version(&bytes), backend::command_tag(&bytes));
        let _ = ErrorFields::parse(&bytes);
        let _ = (RowShape::read(&bytes), frontend::bind_wants_binary(&bytes));
    }
}

#[test]
fn messages_without_values() {
    assert_eq!(Startup::parse(&packet(write::ssl_request)), Ok(Startup::Tls));
    let asks = [
        (FrontendTag::Sync, write::sync as Writer),
        (FrontendTag::Flush, write::flush),
        (FrontendTag::Terminate, write::terminate),
    ];
    for (tag, writer) in asks {
        assert_eq!(from_frontend(tag, writer), b"");
    }
    let empty: [(BackendTag, Writer); 5] = [
        (BackendTag::ParseComplete, write::parse_complete),
        (BackendTag::BindComplete, write::bind_complete),
        (BackendTag::CloseComplete, write::close_complete),
        (BackendTag::NoData, write::no_data),
        (BackendTag::EmptyQueryResponse, write::empty_query_response),
    ];
    for (tag, writer) in empty {
        assert_eq!(from_backend(tag, writer), b"");
    }
    assert_eq!(from_backend(BackendTag::ParameterDescription, write::no_parameters), b"\0\0");
    let tag = BackendTag::Authentication;
    assert_eq!(Authentication::parse(&from_backend(tag, write::authentication_ok)), Ok(Authentication::Ok));
    let body = from_backend(tag, write::authentication_cleartext);
    assert_eq!(Authentication::parse(&body), Ok(Authentication::CleartextPassword));
    for status in [TransactionStatus::Idle, TransactionStatus::InTransaction, TransactionStatus::Failed] {
        let body = from_backend(BackendTag::ReadyForQuery, |out| write::ready(out, status));
        assert_eq!(backend::ready(&body), Ok(status));
    }
}

/// PostgreSQL 15 answered `select 1 as one, null as two` with these bytes (vectors, simple.02).
#[test]
fn row_description_is_that_of_postgresql() {
    let columns = [("one", ColumnType::Int4), ("two", ColumnType::Text)];
    let body = from_backend(BackendTag::RowDescription, |out| write::row_description(out, &columns, false));
    let expected = "00026f6e6500000000000000000000170004ffffffff000074776f0000000000000000000019ffffffffffff0000";
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected);
}
