//! Queries of ours as text: SET, RESET, and literals that nothing ends but their end.

use std::borrow::Cow;
use std::io::Write;

use weir_wire::write;

const TIME_ZONE: &[u8] = b"TimeZone";

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

/// None, or empty: what a RESET leaves of a name without a definition.
pub(crate) fn is_blank(name: &[u8], value: &[u8]) -> bool {
    value.is_empty() && name.contains(&b'.')
}

/// A call that sets a parameter, up to and with the `end` of its arguments. It returns the value, and of one that the client's encoding may not
/// have only how long it is.
pub(crate) fn write_set_config(sql: &mut Vec<u8>, name: &[u8], value: &[u8], end: &[u8]) {
    // Where the name has a definition, it is as it is by default; but for what logins begin with.
    let is_blank = is_blank(name, value);
    if is_blank {
        sql.extend_from_slice(b"CASE WHEN pg_catalog.current_setting(");
        write_literal(sql, name);
        sql.extend_from_slice(b",true)IS NULL OR ");
        write_has_default(sql, name);
        sql.extend_from_slice(b"THEN ");
    }
    let shown = value.is_ascii();
    if !shown {
        sql.extend_from_slice(b"pg_catalog.length(");
    }
    sql.extend_from_slice(b"pg_catalog.set_config(");
    write_literal(sql, name);
    sql.push(b',');
    write_literal(sql, &as_set(name, value));
    sql.extend_from_slice(end);
    if !shown {
        sql.push(b')');
    }
    if is_blank {
        sql.extend_from_slice(b"END");
    }
}

/// What is written to set a value that PostgreSQL has told. Of a time zone that was set as an interval, or as a number, with seconds it tells what it takes
/// for a name, and no name has seconds (`check_timezone`, src/backend/commands/variable.c at 18): that is set as an interval.
pub(crate) fn as_set<'a>(name: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
    let offset = || {
        let offset = value.strip_prefix(b"<")?.split(|&byte| byte == b'>').next()?;
        let seconds = offset.split(|&byte| byte == b':').count() == 3;
        let is_one = offset.iter().all(|byte| byte.is_ascii_digit() || b"+-:".contains(byte));
        (seconds && is_one && name.eq_ignore_ascii_case(TIME_ZONE)).then_some(offset)
    };
    offset().map_or(Cow::Borrowed(value), |offset| Cow::Owned([b"INTERVAL '", offset, b"'"].concat()))
}

/// The same of a value that an expression has.
pub(crate) fn write_as_set(sql: &mut Vec<u8>, name: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
    if !name.eq_ignore_ascii_case(TIME_ZONE) {
        return value(sql);
    }
    sql.extend_from_slice(b"pg_catalog.regexp_replace(");
    value(sql);
    sql.extend_from_slice(br",E'^<([-+][0-9]+:[0-9]+:[0-9]+)>.*',E'INTERVAL ''\\1''')");
}

/// Whether somebody's logins begin with a value of this parameter: then another one, an empty one too, is a session's own.
pub(crate) fn write_has_default(sql: &mut Vec<u8>, name: &[u8]) {
    sql.extend_from_slice(
        b"EXISTS(SELECT FROM pg_catalog.pg_db_role_setting d,pg_catalog.unnest(d.setconfig)c(line) \
        WHERE pg_catalog.lower(pg_catalog.split_part(c.line,E'=',1))OPERATOR(pg_catalog.=)pg_catalog.lower(",
    );
    write_literal(sql, name);
    sql.extend_from_slice(b"))");
}

/// One SELECT that sets them all; nothing where there are none.
pub(crate) fn write_set<'a>(sql: &mut Vec<u8>, values: impl Iterator<Item = (&'a str, &'a [u8])>) {
    let mut separator: &[u8] = b"SELECT ";
    for (name, value) in values {
        sql.extend_from_slice(separator);
        write_set_config(sql, name.as_bytes(), value, b",false)");
        separator = b",";
    }
}

/// An escape string reads the same whatever standard_conforming_strings says. What is not ASCII is in the server's encoding, and written so
/// that it is read the same whatever client_encoding says.
pub(crate) fn write_literal(sql: &mut Vec<u8>, value: &[u8]) {
    if !value.is_ascii() {
        return write_bytes(sql, value);
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

fn write_bytes(sql: &mut Vec<u8>, value: &[u8]) {
    sql.extend_from_slice(b"pg_catalog.convert_from(pg_catalog.decode(E'");
    for byte in value {
        let _ = write!(sql, "{byte:02x}");
    }
    sql.extend_from_slice(b"',E'hex'),pg_catalog.getdatabaseencoding())");
}

/// A custom parameter's name has dots between its parts.
pub(crate) fn write_name(sql: &mut Vec<u8>, name: &str) {
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
    fn a_time_zone_with_seconds_is_set_as_an_interval() {
        let set =
            |name: &str, value: &str| String::from_utf8(as_set(name.as_bytes(), value.as_bytes()).into()).unwrap();
        assert_eq!(set("TimeZone", "<+03:19:59>-03:19:59"), "INTERVAL '+03:19:59'");
        assert_eq!(set("timezone", "<-00:00:01>+00:00:01"), "INTERVAL '-00:00:01'");
        for (name, value) in [
            ("TimeZone", "<+05:30>-05:30"),
            ("TimeZone", "Europe/Berlin"),
            ("TimeZone", "<a:b:c>1"),
            ("search_path", "<+03:19:59>-03:19:59"),
        ] {
            assert_eq!(set(name, value), value);
        }
    }

    #[test]
    fn no_value_ends_its_literal() {
        let literal = |value: &str| {
            let mut sql = Vec::new();
            write_literal(&mut sql, value.as_bytes());
            String::from_utf8(sql).unwrap()
        };
        assert_eq!(literal("a'; drop table a; --\\"), r"E'a''; drop table a; --\\'");
        let bytes = "pg_catalog.convert_from(pg_catalog.decode(E'c3a927',E'hex'),pg_catalog.getdatabaseencoding())";
        assert_eq!(literal("é'"), bytes);
    }
}
