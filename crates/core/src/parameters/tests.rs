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

/// What a client has on a server of these defaults, and what it was greeted with then.
fn carried(
    client: &ParameterSet,
    defaults: &ParameterSet,
    greeted: &ParameterSet,
) -> Result<(ParameterSet, ParameterSet), String> {
    client.as_reported_by(defaults, greeted, |name| name == "asked").map_err(|name| name.to_string())
}

#[test]
fn what_is_reported_is_the_servers_matter() {
    let older = set(&[("TimeZone", "UTC", true)]);
    let newer = set(&[("TimeZone", "UTC", true), ("asked", "d", true), ("search_path", "b", true)]);
    // What it has where that is not reported is its own, and is told where it is.
    let client = set(&[("asked", "x", false), ("search_path", "a", false), ("TimeZone", "CET", true)]);
    let (there, greeted) = carried(&client, &newer, &older).unwrap();
    assert_eq!(there, set(&[("asked", "x", true), ("search_path", "a", true), ("TimeZone", "CET", true)]));
    assert!(there.reports_alike(&newer));
    assert!(greeted.iter().all(|own| !own.reported), "{greeted:?}");
    assert_eq!(carried(&there, &older, &greeted).unwrap_err(), "search_path");
    // As PostgreSQL spells it, where it tells that.
    let packet = set(&[("ASKED", "x", false), ("TimeZone", "CET", true)]);
    assert!(carried(&packet, &newer, &older).unwrap().0.reports_alike(&newer));
    assert!(packet.reported_as(&newer).iter().any(|own| &*own.name == "asked"));
    // What it has never changed follows the server, in both directions.
    let plain = set(&[("TimeZone", "CET", true)]);
    let (there, greeted) = carried(&plain, &newer, &older).unwrap();
    assert_eq!(there.get("search_path"), newer.get("search_path"));
    assert!(greeted.has_untouched("search_path", b"b") && !greeted.has_untouched("TimeZone", b"UTC"));
    let (back, greeted) = carried(&there, &older, &greeted).unwrap();
    assert_eq!((back, greeted.get("search_path")), (plain.clone(), None));
}

#[test]
fn what_was_changed_and_changed_back_is_not_left_behind() {
    let mut sets = ParameterSets::default();
    let older = set(&[("TimeZone", "UTC", true)]);
    let newer = set(&[("b", "1", true), ("TimeZone", "UTC", true)]);
    let mut greeted = sets.intern(newer.clone());
    sets.touch(&mut greeted, |name| name == "c");
    assert_eq!(greeted.unreported().count(), 0);
    assert_eq!(carried(&newer, &older, &greeted).unwrap().0, older);
    // The default of a server that has another is as little known.
    assert_eq!(carried(&set(&[("b", "2", true)]), &older, &greeted).unwrap_err(), "b");
    sets.touch(&mut greeted, |name| name == "b");
    assert_eq!(carried(&newer, &older, &greeted).unwrap_err(), "b");
    let another = set(&[("b", "3", true), ("c", "4", true)]);
    let (there, greeted) = carried(&newer, &another, &greeted).unwrap_or_else(|name| panic!("{name}"));
    assert_eq!(there.get("b").map(|own| &*own.value), Some(&b"1"[..]));
    assert!(!greeted.has_untouched("b", b"1") && greeted.has_untouched("c", b"4"));
}

#[test]
fn no_servers_make_a_clients_parameters_grow_without_end() {
    let mut client = set(&[("asked", &"x".repeat(REPORTED_BYTES_MAX), false)]);
    assert!(client.is_had_within_bounds());
    client.set("asked", &[b'x'; HAD_BYTES_MAX], false);
    assert!(!client.is_had_within_bounds());
    client.set("asked", b"", false);
    (0..HAD_MAX).for_each(|number| client.set(&format!("own.p{number}"), b"", false));
    assert!(!client.is_had_within_bounds());
    let reported = |name| [(name, &*"x".repeat(REPORTED_BYTES_MAX), true)].map(|own| set(&[own]));
    assert!(reported("a").iter().all(|own| !own.is_had_within_bounds()));
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
fn amid_a_transaction_what_all_may_set_takes_no_snapshot() {
    let client = set(&[("DateStyle", "German'", true), ("search_path", "a, b", true), ("work_mem", "1MB", false)]);
    let statements = client.settings_amid(|own| own.reported);
    let sent: Vec<_> = statements.iter().map(|sql| std::str::from_utf8(sql).unwrap()).collect();
    let search_path = "SELECT pg_catalog.set_config(E'search_path',E'a, b',false)";
    assert_eq!(sent, ["SET \"DateStyle\"=E'German'''", search_path]);
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

#[test]
fn a_packet_is_described_with_what_became_of_it() {
    let packet = [("datestyle", "ISO"), ("search_path", "a'b"), ("work_mem", "1MB")];
    let packet = packet.map(|(name, value)| (name.into(), value.into()));
    let session = set(&[("DateStyle", "ISO, MDY", true), ("search_path", "a'b", true)]);
    let mut startup = startup::Startup::telling(None, "C-0x1:", &packet, &session);
    assert!(startup.as_ref().is_some_and(|startup| startup.is_untold()));
    assert_eq!(
        startup::Startup::take_untold(&mut startup),
        [
            "C-0x1: varcache_apply: SET DateStyle='ISO';SET search_path='a''b';SET work_mem='1MB';",
            "C-0x1: varcache_set_canonical: setting DateStyle to its canonical version ISO -> ISO, MDY",
        ]
    );
    assert!(startup.is_none(), "nothing else is kept of it");
    assert!(startup::Startup::telling(None, "C-0x1:", &[], &session).is_none());
}
