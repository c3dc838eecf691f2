//! Queries of ours as text: SET, RESET, and literals that nothing ends but their end.

use weir_wire::write;

/// A Query message of the text that is written, unless none is.
pub(crate) fn write_query(out: &mut Vec<u8>, text: impl FnOnce(&mut Vec<u8>)) -> usize {
    let start = out.len();
    let mut written = false;
    write::query_of(out, |sql| {
        let before = sql.len();
        text(sql);
        written = sql.len() > before;
    });
    if !written {
        out.truncate(start);
    }
    usize::from(written)
}

pub(crate) fn write_reset(sql: &mut Vec<u8>, name: &str) {
    sql.extend_from_slice(b"RESET ");
    write_name(sql, name);
    sql.push(b';');
}

/// One SELECT that sets them all; nothing where there are none.
pub(crate) fn write_set<'a>(sql: &mut Vec<u8>, values: impl Iterator<Item = (&'a str, &'a [u8])>) {
    let mut separator: &[u8] = b"SELECT ";
    for (name, value) in values {
        sql.extend_from_slice(separator);
        sql.extend_from_slice(b"pg_catalog.set_config(");
        write_literal(sql, name.as_bytes());
        sql.push(b',');
        write_literal(sql, value);
        sql.extend_from_slice(b",false)");
        separator = b",";
    }
}

/// An escape string reads the same whatever standard_conforming_strings says. In some encodings the second byte of a
/// character may be a backslash, but never a dollar (`pg_sjis_mblen` and its like, src/common/wchar.c).
pub(crate) fn write_literal(sql: &mut Vec<u8>, value: &[u8]) {
    if !value.is_ascii() {
        return write_dollar_quoted(sql, value);
    }
    sql.extend_from_slice(b"E'");
    for &byte in value {
        if byte == b'\'' || byte == b'\\' {
            sql.push(byte);
        }
        sql.push(byte);
    }
    sql.push(b'\'');
}

/// The tag is as long as it has to be for the value not to contain it.
fn write_dollar_quoted(sql: &mut Vec<u8>, value: &[u8]) {
    let mut tag = b"$w".to_vec();
    while value.windows(tag.len()).any(|window| window == tag) {
        tag.push(b'w');
    }
    tag.push(b'$');
    for part in [&tag, value, &tag] {
        sql.extend_from_slice(part);
    }
}

/// A custom parameter's name has dots between its parts.
fn write_name(sql: &mut Vec<u8>, name: &str) {
    for (count, part) in name.split('.').enumerate() {
        if count > 0 {
            sql.push(b'.');
        }
        sql.push(b'"');
        sql.extend(part.bytes().flat_map(|byte| std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 })));
        sql.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_ends_its_literal() {
        for value in ["é'; drop table a; --", "é$w$", "é$w", "é$", "$w$ww$é\\"] {
            let mut sql = Vec::new();
            write_literal(&mut sql, value.as_bytes());
            let sql = String::from_utf8(sql).unwrap();
            let (tag, _) = sql[1..].split_once('$').unwrap();
            let parts: Vec<_> = sql.split(&format!("${tag}$")).collect();
            assert_eq!(parts, ["", value, ""]);
        }
    }
}
