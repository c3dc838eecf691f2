//! The `options` of a startup packet.

/// Splits the `options` of a startup packet: words, where a backslash keeps the next character as it is
/// (`pg_split_opts`, src/backend/utils/init/postinit.c), of the forms `-c name=value`, `-cname=value` and `--name=value`.
pub(super) fn split_options(options: &str) -> Result<Vec<(String, String)>, String> {
    let mut parameters = Vec::new();
    let mut words = words(options).into_iter();
    while let Some(word) = words.next() {
        let assignment = if word == "-c" {
            words.next().ok_or_else(|| unsupported(&word))?
        } else if let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            rest.to_owned()
        } else {
            return Err(unsupported(&word));
        };
        let (name, value) = assignment.split_once('=').ok_or_else(|| unsupported(&assignment))?;
        let name = name.replace('-', "_");
        if is_key(&name) {
            return Err(format!("unrecognized configuration parameter \"{name}\""));
        }
        parameters.push((name, value.to_owned()));
    }
    Ok(parameters)
}

/// In PgBouncer's words.
fn unsupported(word: &str) -> String {
    format!(
        "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed, not \"{word}\""
    )
}

/// What a startup packet names and no session has as a parameter. A connection for replication has its client's parameters in a packet of
/// ours: there a user from the options would be logged in, whoever had proved to be another.
fn is_key(name: &str) -> bool {
    let keys = ["user", "database", "options", "replication"];
    // An empty one would be the packet's end.
    name.is_empty() || keys.iter().any(|key| name.eq_ignore_ascii_case(key)) || name.starts_with("_pq_.")
}

fn words(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        if character.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let kept = if character == '\\' { characters.next() } else { Some(character) };
        word.get_or_insert_default().extend(kept);
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_as_postgresql_does() {
        let parsed = split_options("-c statement_timeout=5s  --search-path=a,\\ b -cgeqo=off").unwrap();
        let expected = [("statement_timeout", "5s"), ("search_path", "a, b"), ("geqo", "off")];
        assert_eq!(parsed, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(split_options("-B 4").is_err());
        assert!(split_options("-c").is_err());
        for key in
            ["-c user=b", "--replication=database", "-cDatabase=b", "-c options=a", "---pq-.a=b", "-c =a", "--=a"]
        {
            assert!(split_options(key).is_err(), "{key}");
        }
    }
}
