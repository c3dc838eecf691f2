//! A stream of frontend messages, as a client's session reads it: header, then each body by its parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_wire::frontend::{BindNames, Parse, Target, bind_wants_binary, password, query, sasl_initial};
use weir_wire::{FrontendTag, HEADER_LEN, Header, write};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Some(first) = rest.first_chunk::<HEADER_LEN>() {
        let header = Header::parse(first);
        let (Some(tag), Some(body_len)) = (FrontendTag::from_byte(header.tag), header.body_len) else { return };
        if body_len > tag.body_len_max() {
            return;
        }
        let Some(body) = rest[HEADER_LEN..].get(..body_len as usize) else { return };
        message(tag, body, &rest[..HEADER_LEN + body.len()]);
        rest = &rest[HEADER_LEN + body.len()..];
    }
});

/// What parses is written again and must come out as the same bytes.
fn message(tag: FrontendTag, body: &[u8], whole: &[u8]) {
    let mut written = Vec::new();
    match tag {
        FrontendTag::Parse => {
            let Ok(parse) = Parse::read(body) else { return };
            write::parse(&mut written, parse.name, parse.definition);
        }
        FrontendTag::Bind => {
            let Some(names) = BindNames::parse(body) else { return };
            let values = &body[names.len()..];
            let _ = bind_wants_binary(values);
            write::bind_names(&mut written, names.portal, names.statement, values.len());
            written.extend_from_slice(values);
        }
        FrontendTag::Describe => {
            let Ok(Target::Statement(name)) = Target::parse(body) else { return };
            write::describe_statement(&mut written, name);
        }
        FrontendTag::Close => {
            let Ok(Target::Statement(name)) = Target::parse(body) else { return };
            write::close_statement(&mut written, name);
        }
        FrontendTag::Query => {
            let Ok(text) = query(body) else { return };
            write::query(&mut written, text);
        }
        FrontendTag::Password => {
            if let Ok(secret) = password(body) {
                let mut written = Vec::new();
                write::password(&mut written, secret);
                assert_eq!(written, whole);
            }
            let Ok((mechanism, data)) = sasl_initial(body) else { return };
            write::sasl_initial(&mut written, mechanism, data);
        }
        _ => return,
    }
    assert_eq!(written, whole);
}
