//! What is set, reset and told of parameters, as text.

use super::*;

fn set(values: &[(&str, &str, bool)]) -> ParameterSet {
    let mut set = ParameterSet::default();
    for (name, value, reported) in values {
        set.set(name, value.as_bytes(), *reported);
    }
    set
}

fn difference(from: &ParameterSet, to: &ParameterSet) -> String {
    let mut out = Vec::new();
    from.write_difference(to, &mut out);
    texts(&out).join(" | ")
}

/// The texts of Query messages.
fn texts(mut out: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some((header, rest)) = out.split_first_chunk::<5>() {
        let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize - 4;
        texts.push(String::from_utf8_lossy(&rest[..len - 1]).into_owned());
        out = &rest[len..];
    }
    texts
}

#[test]
fn equal_sets_need_no_message() {
    let one = set(&[("TimeZone", "UTC", true), ("DateStyle", "ISO, MDY", true)]);
    assert_eq!(difference(&one, &one.clone()), "");
}

#[test]
fn what_another_client_set_is_reset() {
    let server = set(&[("TimeZone", "UTC", true), ("statement_timeout", "5s", false)]);
    let client = set(&[("timezone", "Europe/Berlin", true)]);
    assert_eq!(
        difference(&server, &client),
        "RESET \"statement_timeout\";SELECT pg_catalog.set_config(E'timezone',E'Europe/Berlin',false)"
    );
}

#[test]
fn quotes_and_backslashes_stay_inside_the_literal() {
    let client = set(&[("application_name", "a'b\\c", true)]);
    assert_eq!(
        difference(&ParameterSet::default(), &client),
        "SELECT pg_catalog.set_config(E'application_name',E'a''b\\\\c',false)"
    );
}

#[test]
fn what_is_not_reported_is_set_again() {
    let one = set(&[("TimeZone", "UTC", true), ("work_mem", "64MB", false)]);
    assert!(one.has_unreported());
    assert_eq!(difference(&one, &one.clone()), "SELECT pg_catalog.set_config(E'work_mem',E'64MB',false)");
}

#[test]
fn what_is_reported_is_the_servers_matter() {
    let none = ParameterSet::default();
    let client = set(&[("TimeZone", "CET", true), ("search_path", "a", true), ("work_mem", "1MB", false)]);
    let newer = set(&[("TimeZone", "UTC", true), ("search_path", "b", true)]);
    assert!(client.reports_alike(&newer));
    let older = set(&[("TimeZone", "UTC", true), ("work_mem", "4MB", false)]);
    let (there, adopted) = client.as_reported_by(&older, &older.reported_only(), &none);
    let flags = [("TimeZone", "CET", true), ("search_path", "a", false), ("work_mem", "1MB", false)];
    assert_eq!((there, adopted.is_empty()), (set(&flags), true));
    assert_eq!(set(&flags).as_reported_by(&newer, &newer, &none).0, client);
    // What others left there is not its own, nor what only that server reports.
    let left = set(&[("TimeZone", "UTC", true), ("my.own", "x", true), ("search_path", "b", true)]);
    let [defaults, plain] = [[("search_path", "c", true)], [("TimeZone", "CET", true)]].map(|values| set(&values));
    let (here, _) = plain.as_reported_by(&left, &defaults, &none);
    assert_eq!(here, set(&[("TimeZone", "CET", true), ("search_path", "c", true)]));
    assert!(difference(&left, &here).starts_with("RESET \"my\".\"own\";SELECT"));
}

#[test]
fn what_was_adopted_is_left_behind_unless_it_was_changed() {
    let [older, newer, another] = [
        &[("TimeZone", "UTC", true)][..],
        &[("TimeZone", "UTC", true), ("b", "1", true)],
        &[("b", "2", true), ("c", "3", true)],
    ]
    .map(set);
    let client = set(&[("TimeZone", "CET", true)]);
    let (mut there, adopted) = client.as_reported_by(&newer, &newer, &ParameterSet::default());
    assert_eq!((&there, &adopted), (&set(&[("TimeZone", "CET", true), ("b", "1", true)]), &set(&[("b", "1", true)])));
    assert_eq!(there.as_reported_by(&older, &older, &adopted).0, client);
    let (elsewhere, adopted_there) = there.as_reported_by(&another, &another, &adopted);
    assert_eq!(elsewhere, set(&[("TimeZone", "CET", false), ("b", "1", true), ("c", "3", true)]));
    assert_eq!(adopted_there, set(&[("b", "1", true), ("c", "3", true)]));
    there.set("b", b"own", true);
    let back = there.as_reported_by(&older, &older, &adopted).0;
    assert_eq!(back, set(&[("TimeZone", "CET", true), ("b", "own", false)]));
}

#[test]
fn no_servers_make_a_clients_parameters_grow_without_end() {
    let mut client = set(&[("TimeZone", "CET", true)]);
    // Each reports others, and tells the client of another value of each.
    let grows = |number: usize| {
        let names: Vec<_> = (0..REPORTED_MAX / 2).map(|own| format!("s{number}.p{own}")).collect();
        let server = |value: &str| set(&names.iter().map(|name| (&**name, value, true)).collect::<Vec<_>>());
        let (told, adopted) = client.as_reported_by(&server("v"), &server("v"), &ParameterSet::default());
        assert_eq!(adopted, server("v"));
        assert!(told.is_told_within_bounds(|_| true), "what it has asked for itself is no server's");
        client = told;
        let within = client.is_told_within_bounds(|_| false);
        server("w").iter().for_each(|own| client.set(&own.name, &own.value, true));
        within
    };
    assert_eq!([0, 1, 2, 3, 4].map(grows), [true, true, true, false, false]);
    let mut long = set(&[("a", "b", true)]);
    long.set("a", &[b'x'; RELEASES_MAX * REPORTED_BYTES_MAX + STARTUP_LEN_MAX], true);
    assert!(!long.is_told_within_bounds(|_| true), "the name is its own, and not the value");
}

#[test]
fn only_the_name_may_be_anothers_for_a_moment() {
    let [one, two, three] = [("UTC", "a"), ("UTC", "b"), ("CET", "b")]
        .map(|(zone, name)| set(&[("application_name", name, true), ("TimeZone", zone, true)]));
    assert!(one.differs_by_name_only(&two) && !two.differs_by_name_only(&three));
    assert!(!one.differs_by_name_only(&set(&[("TimeZone", "UTC", true), ("role", "a", true)])));
    assert!(!one.differs_by_name_only(&set(&[("application_name", "b", true), ("TimeZone", "UTC", false)])));
}

#[test]
fn a_value_is_tried_on_the_default() {
    let server = set(&[("DateStyle", "ISO, DMY", true), ("role", "bob", false), ("work_mem", "1MB", false)]);
    let startup = [("datestyle", "ISO"), ("Work_mem", "2MB")].map(|(name, value)| (name.into(), value.into()));
    let mut out = Vec::new();
    server.write_trial(&startup, &set(&[("DateStyle", "ISO, MDY", true)]), &mut out);
    assert_eq!(
        texts(&out).join(" | "),
        "RESET \"role\";RESET \"datestyle\";RESET \"Work_mem\";SELECT pg_catalog.set_config(E'datestyle',E'ISO',false),\
         pg_catalog.set_config(E'Work_mem',E'2MB',false)"
    );
}

#[test]
fn the_role_is_set_last_and_reset_first() {
    let server = set(&[("lc_messages", "C", false), ("role", "bob", false), ("TimeZone", "CET", true)]);
    let client = set(&[("Role", "eve", false), ("track_io_timing", "on", false), ("TimeZone", "UTC", true)]);
    assert_eq!(
        difference(&server, &client),
        "RESET \"role\";RESET \"lc_messages\";SELECT pg_catalog.set_config(E'track_io_timing',E'on',false),\
         pg_catalog.set_config(E'TimeZone',E'UTC',false),pg_catalog.set_config(E'Role',E'eve',false)"
    );
    let plain = set(&[("TimeZone", "CET", true)]);
    assert_eq!(difference(&server, &plain), "RESET \"role\";RESET \"lc_messages\";");
    assert_eq!(
        String::from_utf8(client.settings(|own| !own.reported)).unwrap(),
        "SELECT pg_catalog.set_config(E'weir.kept_role',pg_catalog.current_setting(E'role',true),true),\
         pg_catalog.set_config(E'role',E'none',true),pg_catalog.set_config(E'track_io_timing',E'on',false),\
         pg_catalog.set_config(E'role',pg_catalog.current_setting(E'weir.kept_role',true),true),\
         pg_catalog.set_config(E'Role',E'eve',false)"
    );
    assert_eq!(
        String::from_utf8(client.settings(|own| own.reported)).unwrap(),
        "SELECT pg_catalog.set_config(E'TimeZone',E'UTC',false)"
    );
}

#[test]
fn a_packet_is_tried_in_an_order_in_which_set_takes_it() {
    let order = |names: &[&str]| {
        let startup: Vec<_> = names.iter().map(|name| ((*name).into(), "".into())).collect();
        in_order(&startup).iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order(&["role", "log_statement", "a"]), "log_statement a role");
    let texts = "default_text_search_config";
    assert_eq!(order(&["ROLE", "search_path", texts, "b"]), format!("search_path ROLE {texts} b"));
    assert_eq!(order(&[texts, "search_path", "role"]), format!("{texts} search_path role"));
}

#[test]
fn a_text_search_configuration_is_known_with_its_schema() {
    let server = set(&[("TimeZone", "UTC", true)]);
    let startup =
        [("role", "r"), ("default_text_search_config", "mine")].map(|(name, value)| (name.into(), value.into()));
    let row = [Some(&b"r"[..]), Some(&b"a.mine"[..])];
    let tried = server.with_tried(&startup, &row).unwrap();
    assert_eq!(&*tried.get("default_text_search_config").unwrap().value, b"a.mine");
    assert!(server.with_tried(&startup, &row[1..]).is_none());
    assert!(server.with_tried(&startup[..1], &row[..1]).is_none());
}

#[test]
fn values_are_set_whatever_the_encoding_is() {
    let bytes = |hex: &str| {
        format!("pg_catalog.convert_from(pg_catalog.decode(E'{hex}',E'hex'),pg_catalog.getdatabaseencoding())")
    };
    let server = set(&[("client_encoding", "LATIN1", true), ("search_path", "a", true)]);
    let client = set(&[("client_encoding", "SJIS", true), ("role", "表", false), ("search_path", "b", true)]);
    assert_eq!(
        difference(&server, &client),
        format!(
            "SELECT pg_catalog.set_config(E'client_encoding',E'SJIS',false),pg_catalog.set_config(E'search_path',E'b',false),\
             pg_catalog.length(pg_catalog.set_config(E'role',{},false))",
            bytes("e8a1a8")
        )
    );
    let startup = [("search_path".into(), "é".into())];
    let mut out = Vec::new();
    server.write_trial(&startup, &set(&[("client_encoding", "UTF8", true)]), &mut out);
    assert_eq!(
        texts(&out).join(" | "),
        format!(
            "RESET \"client_encoding\";RESET \"search_path\";\
             SELECT pg_catalog.length(pg_catalog.set_config(E'search_path',{},false))",
            bytes("c3a9")
        )
    );
}

#[test]
fn what_is_told_is_legible_in_the_servers_encoding() {
    let told = |encoding: &str, value: &str| set(&[("client_encoding", encoding, true), ("search_path", value, true)]);
    for (encoding, value, legible) in [
        ("UTF8", "é", true),
        ("UNICODE", "é", true),
        ("SQL_ASCII", "é", true),
        ("LATIN1", "é", false),
        ("LATIN1", "e", true),
    ] {
        assert_eq!(told(encoding, value).is_legible(b"UTF8"), legible, "{encoding} {value}");
    }
    assert!(told("LATIN1", "é").is_legible(b"SQL_ASCII") && told("UTF8", "é").is_legible(b"SQL_ASCII"));
    assert!(!told("SJIS", "é").is_legible(b"SQL_ASCII") && !told("EUC_JP", "é").is_legible(b"SQL_ASCII"));
    let hidden = set(&[("client_encoding", "LATIN1", true), ("my.name", "é", false)]);
    assert!(hidden.is_legible(b"UTF8"), "nothing of it is told");
}

#[test]
fn a_value_is_told_unlike_where_another_encoding_is_asked_for() {
    let packet = |values: &[(&str, &str)]| {
        values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect::<Vec<_>>()
    };
    let [plain, own] =
        ["public", "é"].map(|path| set(&[("client_encoding", "UTF8", true), ("search_path", path, true)]));
    for (values, of_plain, of_own) in [
        (&[("client_encoding", "LATIN1"), ("search_path", "é")][..], true, true),
        (&[("client_encoding", "latin-1"), ("my.own", "é")], false, true),
        (&[("client_encoding", "LATIN1"), ("Search_Path", "a")], false, false),
        (&[("client_encoding", "utf-8"), ("search_path", "é")], false, false),
        (&[("search_path", "é")], false, false),
    ] {
        assert_eq!(is_told_unlike(&packet(values), &plain, b"UTF8"), of_plain, "{values:?}");
        assert_eq!(is_told_unlike(&packet(values), &own, b"UTF8"), of_own, "{values:?}");
    }
}
