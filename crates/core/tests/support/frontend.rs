//! Frontend messages in the words of a conversation, to bytes and back.
//!
//! Written without weir-wire on purpose: an error there must not cancel itself out here.

use super::words::{Body, Values, framed, hex, put_string, put_value, unhex};

const TAGS: [(&str, u8); 17] = [
    ("Bind", b'B'),
    ("Close", b'C'),
    ("CopyData", b'd'),
    ("CopyDone", b'c'),
    ("CopyFail", b'f'),
    ("Describe", b'D'),
    ("Execute", b'E'),
    ("Flush", b'H'),
    ("FunctionCall", b'F'),
    ("Parse", b'P'),
    ("Password", b'p'),
    ("SASLInitialResponse", b'p'),
    ("SASLResponse", b'p'),
    ("AuthData", b'p'),
    ("Query", b'Q'),
    ("Sync", b'S'),
    ("Terminate", b'X'),
];

/// The bytes of one message.
pub fn encode(name: &str, words: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    let mut values = Values::new(words);
    if let Some(bytes) = encode_untagged(name, &mut values)? {
        return Ok(bytes);
    }
    let tag = TAGS.iter().find(|(known, _)| *known == name).ok_or_else(|| format!("no frontend message {name}"))?.1;
    let mut body = Vec::new();
    encode_body(name, &mut values, &mut body)?;
    if values.is_empty() { Ok(framed(Some(tag), &body)) } else { Err(format!("too many words for {name}")) }
}

fn encode_untagged(name: &str, values: &mut Values<'_>) -> Result<Option<Vec<u8>>, String> {
    let code = |code: u32| code.to_be_bytes().to_vec();
    let body = match name {
        "SSLRequest" => code(80_877_103),
        "GSSENCRequest" => code(80_877_104),
        "CancelRequest" => {
            let mut body = code(80_877_102);
            body.extend_from_slice(&values.number::<u32>()?.to_be_bytes());
            body.extend_from_slice(&unhex(values.next()?)?);
            body
        }
        "Startup" => {
            let version = values.text()?;
            let (major, minor) = version.split_once('.').ok_or("Startup begins with a version")?;
            let number = |text: &str| text.parse::<u32>().map_err(|_| "Startup begins with a version".to_owned());
            let mut body = code(number(major)? << 16 | number(minor)?);
            for pair in values.rest() {
                let at = pair.iter().position(|&byte| byte == b'=').ok_or("name=value expected")?;
                put_string(&mut body, &pair[..at]);
                put_string(&mut body, &pair[at + 1..]);
            }
            body.push(0);
            body
        }
        "Bytes" => {
            let mut bytes = Vec::new();
            for part in values.rest() {
                bytes.extend(unhex(part)?);
            }
            return Ok(Some(bytes));
        }
        _ => return Ok(None),
    };
    Ok(Some(framed(None, &body)))
}

fn encode_body(name: &str, values: &mut Values<'_>, body: &mut Vec<u8>) -> Result<(), String> {
    match name {
        "Query" | "Password" | "CopyFail" => put_string(body, values.next()?),
        "SASLResponse" | "AuthData" | "CopyData" => body.extend_from_slice(values.next()?),
        "SASLInitialResponse" => {
            put_string(body, values.next()?);
            put_value(body, values.next()?);
        }
        "Parse" => {
            put_string(body, values.next()?);
            put_string(body, values.next()?);
            let types = values.rest();
            body.extend_from_slice(&(types.len() as u16).to_be_bytes());
            for oid in types {
                body.extend_from_slice(&Values::new(std::slice::from_ref(oid)).number::<u32>()?.to_be_bytes());
            }
        }
        "Bind" => {
            put_string(body, values.next()?);
            put_string(body, values.next()?);
            body.extend_from_slice(&[0, 0]);
            put_arguments(body, values.rest());
            body.extend_from_slice(&[0, 0]);
        }
        "Describe" | "Close" => {
            body.push(match values.next()? {
                b"statement" => b'S',
                b"portal" => b'P',
                _ => return Err(format!("{name} statement or portal?")),
            });
            put_string(body, values.next()?);
        }
        "Execute" => {
            put_string(body, values.next()?);
            let rows: u32 = if values.is_empty() { 0 } else { values.number()? };
            body.extend_from_slice(&rows.to_be_bytes());
        }
        "FunctionCall" => {
            body.extend_from_slice(&values.number::<u32>()?.to_be_bytes());
            body.extend_from_slice(&[0, 0]);
            put_arguments(body, values.rest());
            body.extend_from_slice(&[0, 0]);
        }
        _ => {}
    }
    Ok(())
}

fn put_arguments(body: &mut Vec<u8>, arguments: &[Vec<u8>]) {
    body.extend_from_slice(&(arguments.len() as u16).to_be_bytes());
    arguments.iter().for_each(|argument| put_value(body, argument));
}

/// A startup packet's words: its name first.
pub fn decode_startup(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut body = Body::new(body);
    let code = body.u32()?;
    let mut words = match code {
        80_877_103 => vec![b"SSLRequest".to_vec()],
        80_877_104 => vec![b"GSSENCRequest".to_vec()],
        80_877_102 => {
            let process_id = body.u32()?;
            vec![b"CancelRequest".to_vec(), process_id.to_string().into_bytes(), hex(&body.rest())]
        }
        version => vec![b"Startup".to_vec(), format!("{}.{}", version >> 16, version & 0xffff).into_bytes()],
    };
    if words[0] == b"Startup" {
        loop {
            let mut pair = body.string()?;
            if pair.is_empty() {
                break;
            }
            pair.push(b'=');
            pair.extend(body.string()?);
            words.push(pair);
        }
    }
    body.is_empty().then_some(words)
}

/// A message's words: its name first. `None` where the bytes are no message.
pub fn decode(tag: u8, body: &[u8]) -> Option<Vec<Vec<u8>>> {
    // The three messages that share the password's tag cannot be told apart here.
    let name = if tag == b'p' { "AuthData" } else { TAGS.iter().find(|(_, known)| *known == tag)?.0 };
    let mut words = vec![name.as_bytes().to_vec()];
    let mut body = Body::new(body);
    match name {
        "Query" | "CopyFail" => words.push(body.string()?),
        "AuthData" | "CopyData" => words.push(body.rest()),
        "Parse" => {
            words.push(body.string()?);
            words.push(body.string()?);
            for _ in 0..body.u16()? {
                words.push(body.u32()?.to_string().into_bytes());
            }
        }
        "Bind" => {
            words.push(body.string()?);
            words.push(body.string()?);
            decode_arguments(&mut body, &mut words)?;
        }
        "Describe" | "Close" => {
            words.push(match body.take(1)? {
                b"S" => b"statement".to_vec(),
                b"P" => b"portal".to_vec(),
                _ => return None,
            });
            words.push(body.string()?);
        }
        "Execute" => {
            words.push(body.string()?);
            match body.u32()? {
                0 => {}
                rows => words.push(rows.to_string().into_bytes()),
            }
        }
        "FunctionCall" => {
            words.push(body.u32()?.to_string().into_bytes());
            decode_arguments(&mut body, &mut words)?;
        }
        _ => {}
    }
    body.is_empty().then_some(words)
}

/// Arguments in text format, the result too: what [`encode`] writes.
fn decode_arguments(body: &mut Body<'_>, words: &mut Vec<Vec<u8>>) -> Option<()> {
    (body.u16()? == 0).then_some(())?;
    for _ in 0..body.u16()? {
        words.push(body.value()?);
    }
    (body.u16()? == 0).then_some(())
}
