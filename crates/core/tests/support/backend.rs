//! Backend messages in the words of a conversation, to bytes and back.
//!
//! Written without weir-wire on purpose: an error there must not cancel itself out here.

use super::words::{Body, Values, framed, hex, put_string, put_value, unhex};

const TAGS: [(&str, u8); 24] = [
    ("Authentication", b'R'),
    ("BackendKeyData", b'K'),
    ("BindComplete", b'2'),
    ("CloseComplete", b'3'),
    ("CommandComplete", b'C'),
    ("CopyBothResponse", b'W'),
    ("CopyData", b'd'),
    ("CopyDone", b'c'),
    ("CopyInResponse", b'G'),
    ("CopyOutResponse", b'H'),
    ("DataRow", b'D'),
    ("EmptyQueryResponse", b'I'),
    ("ErrorResponse", b'E'),
    ("FunctionCallResponse", b'V'),
    ("NegotiateProtocolVersion", b'v'),
    ("NoData", b'n'),
    ("NoticeResponse", b'N'),
    ("NotificationResponse", b'A'),
    ("ParameterDescription", b't'),
    ("ParameterStatus", b'S'),
    ("ParseComplete", b'1'),
    ("PortalSuspended", b's'),
    ("ReadyForQuery", b'Z'),
    ("RowDescription", b'T'),
];

const AUTHENTICATION: [(&str, u32); 6] = [
    ("AuthenticationOk", 0),
    ("AuthenticationCleartextPassword", 3),
    ("AuthenticationMD5Password", 5),
    ("AuthenticationSASL", 10),
    ("AuthenticationSASLContinue", 11),
    ("AuthenticationSASLFinal", 12),
];

const STATUS: [(&str, u8); 3] = [("idle", b'I'), ("transaction", b'T'), ("failed", b'E')];

/// The bytes of one message.
pub fn encode(name: &str, words: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let mut values = Values::new(words);
    match name {
        "Byte" => return Ok(values.next()?.to_vec()),
        "Bytes" => {
            let parts: Result<Vec<_>, _> = values.rest().iter().map(|part| unhex(part)).collect();
            return Ok(parts?.concat());
        }
        _ => {}
    }
    let mut body = Vec::new();
    let tag = match AUTHENTICATION.iter().find(|(known, _)| *known == name) {
        Some((_, code)) => {
            body.extend_from_slice(&code.to_be_bytes());
            b'R'
        }
        None => TAGS.iter().find(|(known, _)| *known == name).ok_or_else(|| format!("no backend message {name}"))?.1,
    };
    encode_body(name, &mut values, &mut body)?;
    if values.is_empty() { Ok(framed(Some(tag), &body)) } else { Err(format!("too many words for {name}")) }
}

fn encode_body(name: &str, values: &mut Values<'_>, body: &mut Vec<u8>) -> Result<(), String> {
    match name {
        "AuthenticationMD5Password" => body.extend(unhex(values.next()?)?),
        "AuthenticationSASL" => {
            values.rest().iter().for_each(|mechanism| put_string(body, mechanism));
            body.push(0);
        }
        "AuthenticationSASLContinue" | "AuthenticationSASLFinal" | "CopyData" => body.extend_from_slice(values.next()?),
        "BackendKeyData" => {
            body.extend_from_slice(&values.number::<u32>()?.to_be_bytes());
            body.extend(unhex(values.next()?)?);
        }
        "CommandComplete" => put_string(body, values.next()?),
        "CopyInResponse" | "CopyOutResponse" | "CopyBothResponse" => {
            let columns: u16 = values.number()?;
            body.push(0);
            body.extend_from_slice(&columns.to_be_bytes());
            body.extend(std::iter::repeat_n(0, usize::from(columns) * 2));
        }
        "DataRow" => {
            let row = values.rest();
            body.extend_from_slice(&(row.len() as u16).to_be_bytes());
            row.iter().for_each(|value| put_value(body, value));
        }
        "ErrorResponse" | "NoticeResponse" => encode_report(values, body)?,
        "FunctionCallResponse" => put_value(body, values.next()?),
        "NegotiateProtocolVersion" => encode_negotiation(values, body)?,
        "NotificationResponse" => {
            body.extend_from_slice(&values.number::<u32>()?.to_be_bytes());
            put_string(body, values.next()?);
            put_string(body, values.next()?);
        }
        "ParameterDescription" => {
            let types = values.rest();
            body.extend_from_slice(&(types.len() as u16).to_be_bytes());
            for oid in types {
                body.extend_from_slice(&Values::new(std::slice::from_ref(oid)).number::<u32>()?.to_be_bytes());
            }
        }
        "ParameterStatus" => {
            put_string(body, values.next()?);
            put_string(body, values.next()?);
        }
        "ReadyForQuery" => {
            let status = values.text()?;
            let byte = STATUS.iter().find(|(known, _)| *known == status).ok_or("idle, transaction or failed?")?.1;
            body.push(byte);
        }
        "RowDescription" => encode_columns(values, body)?,
        _ => {}
    }
    Ok(())
}

/// `ERROR 42P05 "message"`, then further fields: `D="detail"`.
fn encode_report(values: &mut Values<'_>, body: &mut Vec<u8>) -> Result<(), String> {
    let severity = values.next()?;
    for (field, value) in [(b'S', severity), (b'V', severity), (b'C', values.next()?), (b'M', values.next()?)] {
        body.push(field);
        put_string(body, value);
    }
    for field in values.rest() {
        let [kind, b'=', value @ ..] = &field[..] else { return Err("a further field is X=value".to_owned()) };
        body.push(*kind);
        put_string(body, value);
    }
    body.push(0);
    Ok(())
}

fn encode_negotiation(values: &mut Values<'_>, body: &mut Vec<u8>) -> Result<(), String> {
    let version = values.text()?;
    let minor: u32 = version.strip_prefix("3.").and_then(|minor| minor.parse().ok()).ok_or("a version 3.x")?;
    body.extend_from_slice(&(3 << 16 | minor).to_be_bytes());
    let options = values.rest();
    body.extend_from_slice(&(options.len() as u32).to_be_bytes());
    options.iter().for_each(|option| put_string(body, option));
    Ok(())
}

/// Columns `name` (text) or `name:oid`.
fn encode_columns(values: &mut Values<'_>, body: &mut Vec<u8>) -> Result<(), String> {
    let columns = values.rest();
    body.extend_from_slice(&(columns.len() as u16).to_be_bytes());
    for column in columns {
        let text = String::from_utf8_lossy(column);
        let (name, oid) = text.rsplit_once(':').unwrap_or((&text, "25"));
        let oid: u32 = oid.parse().map_err(|_| format!("{text}: the type is its number"))?;
        put_string(body, name.as_bytes());
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&oid.to_be_bytes());
        body.extend_from_slice(&size_of_type(oid).to_be_bytes());
        body.extend_from_slice(&(-1i32).to_be_bytes());
        body.extend_from_slice(&[0; 2]);
    }
    Ok(())
}

fn size_of_type(oid: u32) -> i16 {
    match oid {
        20 => 8,
        23 => 4,
        _ => -1,
    }
}

/// A message's words: its name first. `None` where the bytes are no message.
pub fn decode(tag: u8, body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let name = TAGS.iter().find(|(_, known)| *known == tag)?.0;
    let mut body = Body::new(body);
    let name = if name == "Authentication" {
        let code = body.u32()?;
        AUTHENTICATION.iter().find(|(_, known)| *known == code)?.0
    } else {
        name
    };
    let mut words = vec![name.as_bytes().to_vec()];
    decode_body(name, &mut body, &mut words)?;
    body.is_empty().then_some(words)
}

fn decode_body(name: &str, body: &mut Body<'_>, words: &mut Vec<Vec<u8>>) -> Option<()> {
    match name {
        "AuthenticationMD5Password" => words.push(hex(body.take(4)?)),
        "AuthenticationSASL" => loop {
            let mechanism = body.string()?;
            if mechanism.is_empty() {
                break;
            }
            words.push(mechanism);
        },
        "AuthenticationSASLContinue" | "AuthenticationSASLFinal" | "CopyData" => words.push(body.rest()),
        "BackendKeyData" => {
            words.push(body.u32()?.to_string().into_bytes());
            words.push(hex(&body.rest()));
        }
        "CommandComplete" => words.push(body.string()?),
        "CopyInResponse" | "CopyOutResponse" | "CopyBothResponse" => {
            (body.take(1)? == [0]).then_some(())?;
            let columns = body.u16()?;
            (body.take(usize::from(columns) * 2)?.iter().all(|&byte| byte == 0)).then_some(())?;
            words.push(columns.to_string().into_bytes());
        }
        "DataRow" => {
            for _ in 0..body.u16()? {
                words.push(body.value()?);
            }
        }
        "ErrorResponse" | "NoticeResponse" => decode_report(body, words)?,
        "FunctionCallResponse" => words.push(body.value()?),
        "NegotiateProtocolVersion" => {
            let version = body.u32()?;
            words.push(format!("{}.{}", version >> 16, version & 0xffff).into_bytes());
            for _ in 0..body.u32()? {
                words.push(body.string()?);
            }
        }
        "NotificationResponse" => {
            words.push(body.u32()?.to_string().into_bytes());
            words.push(body.string()?);
            words.push(body.string()?);
        }
        "ParameterDescription" => {
            for _ in 0..body.u16()? {
                words.push(body.u32()?.to_string().into_bytes());
            }
        }
        "ParameterStatus" => {
            words.push(body.string()?);
            words.push(body.string()?);
        }
        "ReadyForQuery" => {
            let byte = body.take(1)?[0];
            words.push(STATUS.iter().find(|(_, known)| *known == byte)?.0.into());
        }
        "RowDescription" => decode_columns(body, words)?,
        _ => {}
    }
    Some(())
}

fn decode_report(body: &mut Body<'_>, words: &mut Vec<Vec<u8>>) -> Option<()> {
    let (mut severities, mut code, mut message, mut others) = (Vec::new(), None, None, Vec::new());
    loop {
        match body.take(1)?[0] {
            0 => break,
            b'S' | b'V' => severities.push(body.string()?),
            b'C' => code = Some(body.string()?),
            b'M' => message = Some(body.string()?),
            kind => others.push([&[kind, b'='], &body.string()?[..]].concat()),
        }
    }
    // PostgreSQL 9.6 and newer send the severity twice, here always untranslated.
    (severities.len() == 2 && severities[0] == severities[1]).then_some(())?;
    words.extend([severities.remove(0), code?, message?]);
    words.append(&mut others);
    Some(())
}

fn decode_columns(body: &mut Body<'_>, words: &mut Vec<Vec<u8>>) -> Option<()> {
    for _ in 0..body.u16()? {
        let mut column = body.string()?;
        let no_table = body.take(6)? == [0; 6];
        let oid = body.u32()?;
        let size = body.u16()? as i16;
        let no_modifier = body.u32()? == u32::MAX;
        let text_format = body.u16()? == 0;
        (no_table && no_modifier && text_format && size == size_of_type(oid)).then_some(())?;
        if oid != 25 {
            column.extend_from_slice(format!(":{oid}").as_bytes());
        }
        words.push(column);
    }
    Some(())
}
