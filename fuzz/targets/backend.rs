//! A stream of backend messages, as a server's session reads it: header, then each body by its parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_wire::backend::{
    Authentication, RowShape, backend_key, command_tag, negotiate_version, parameter_status, ready,
};
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, write};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Some(first) = rest.first_chunk::<HEADER_LEN>() {
        let header = Header::parse(first);
        let (Some(tag), Some(body_len)) = (BackendTag::from_byte(header.tag), header.body_len) else { return };
        let Some(body) = rest[HEADER_LEN..].get(..body_len as usize) else { return };
        message(tag, body, &rest[..HEADER_LEN + body.len()]);
        rest = &rest[HEADER_LEN + body.len()..];
    }
});

/// What parses is written again and must come out as the same bytes.
fn message(tag: BackendTag, body: &[u8], whole: &[u8]) {
    let mut written = Vec::new();
    match tag {
        BackendTag::Authentication => match Authentication::parse(body) {
            Ok(Authentication::Ok) => write::authentication_ok(&mut written),
            Ok(Authentication::CleartextPassword) => write::authentication_cleartext(&mut written),
            Ok(Authentication::Md5Password { salt }) => write::authentication_md5(&mut written, salt),
            Ok(Authentication::Sasl { mechanisms }) => write::authentication_sasl(&mut written, &mechanisms),
            Ok(Authentication::SaslContinue { data }) => write::authentication_sasl_continue(&mut written, data),
            Ok(Authentication::SaslFinal { data }) => write::authentication_sasl_final(&mut written, data),
            Ok(Authentication::Unsupported { .. }) | Err(_) => return,
        },
        BackendTag::BackendKeyData => {
            let Ok((process_id, key)) = backend_key(body) else { return };
            write::backend_key(&mut written, process_id, key);
        }
        BackendTag::ParameterStatus => {
            let Ok((name, value)) = parameter_status(body) else { return };
            write::parameter_status(&mut written, name, value);
        }
        BackendTag::NegotiateProtocolVersion => {
            let Ok((version, options)) = negotiate_version(body) else { return };
            write::negotiate_version(&mut written, ProtocolVersion(version), &options);
        }
        BackendTag::ReadyForQuery => {
            let Ok(status) = ready(body) else { return };
            write::ready(&mut written, status);
        }
        BackendTag::RowDescription => {
            let _ = RowShape::read(body);
            return;
        }
        BackendTag::CommandComplete => {
            let Ok(Ok(command)) = command_tag(body).map(std::str::from_utf8) else { return };
            write::command_complete(&mut written, command);
        }
        _ => return,
    }
    assert_eq!(written, whole);
}
