//! Encodings by their names: which are read alike, and which of them keep ASCII as it is.

/// Whether what is told in this client_encoding is what the server has: PostgreSQL converts nothing to SQL_ASCII, and nothing from it,
/// but there it still looks whether a value has letters of the other (`pg_server_to_any`, src/backend/utils/mb/mbutils.c at 18): it has of one
/// whose letters are bytes, and what startup packets say is UTF-8. It takes an encoding by many names, and tells it by one, or as
/// `UNICODE` (`check_client_encoding`, src/backend/commands/variable.c).
pub(crate) fn reads_alike(encoding: &[u8], server_encoding: &[u8]) -> bool {
    const OF_BYTES: [&[u8]; 6] = [b"latin", b"iso8859", b"win125", b"win866", b"win874", b"koi8"];
    let [encoding, server] = [encoding, server_encoding].map(clean_encoding);
    let takes_any = || encoding == b"utf8" || OF_BYTES.iter().any(|own| encoding.starts_with(own));
    encoding == server || encoding == b"sqlascii" || (server == b"sqlascii" && takes_any())
}

/// Whether a byte that is ASCII is one in every text of this client_encoding: not the second half of a letter.
pub(crate) fn reads_bytes(encoding: &[u8]) -> bool {
    const PLAIN: [&[u8]; 10] =
        [b"utf8", b"sqlascii", b"euc", b"mule", b"latin", b"iso8859", b"win125", b"win866", b"win874", b"koi8"];
    let encoding = clean_encoding(encoding);
    PLAIN.iter().any(|own| encoding.starts_with(own))
}

/// Whether a letter beyond ASCII may be made a small one that is not, in a database of this encoding: the Turkish İ (`downcase_identifier`,
/// src/backend/parser/scansup.c, goes by single bytes, and in SQL_ASCII by those of the locale).
pub(crate) fn lowers_to_ascii(server_encoding: &[u8]) -> bool {
    [&b"latin3"[..], b"latin5", b"sqlascii", b"win1254"].contains(&&*clean_encoding(server_encoding))
}

/// Without what counts for nothing in its name (`clean_encoding_name`, src/common/encnames.c), and by one name.
fn clean_encoding(name: &[u8]) -> Vec<u8> {
    let clean: Vec<u8> = name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect();
    match &*clean {
        b"unicode" => b"utf8".to_vec(),
        b"iso88591" => b"latin1".to_vec(),
        b"iso88592" => b"latin2".to_vec(),
        b"iso88599" => b"latin5".to_vec(),
        b"iso885915" => b"latin9".to_vec(),
        _ => clean,
    }
}
