//! What names leave by what is behind them.

use super::*;

fn words(rows: &[(&str, &str)]) -> Words {
    let mut reading = Reading::default();
    for (name, text) in rows {
        reading.row(name.as_bytes(), text.as_bytes());
    }
    reading.words()
}

fn makes(words: &Words, text: &str) -> Kinds {
    words.leaves(text.as_bytes()).map_or(Kinds::NONE, |leaves| leaves.makes)
}

#[test]
fn what_a_session_begins_with_may_leave_something() {
    let left = |text| words(&[(" login", "audits"), ("audits", text)]).left_at_login;
    assert!(left("begin set work_mem = '6MB'; end") && left("begin execute f(); end"));
    assert!(!left("begin insert into logins values (current_user); end"));
}

#[test]
fn a_name_leaves_what_is_behind_it() {
    let words = words(&[
        ("locks", "begin perform pg_advisory_lock(1); end"),
        ("select", "begin perform pg_advisory_lock(1); end"),
        ("Sets", "begin perform set_config('app.tenant', '1', false); end"),
        ("plain", "begin return 1; end"),
        ("calls", "select locks() + plain()"),
        ("audited", "calls"),
        ("seen", "\"Sets\""),
        ("a\"\"b", "select 1"),
        ("a\"b", "locks"),
        (&"n".repeat(63), "locks"),
        ("newest", "begin return currval('s'); end"),
        ("local", "begin perform set_config('app.tenant', '1', true); set local work_mem = 1; end"),
        ("dynamic", "begin execute 'select ' || $1; end"),
        ("one", "select two()"),
        ("two", "select one()"),
    ]);
    assert_eq!(makes(&words, "select locks()"), Kinds::LOCKS);
    assert_eq!(makes(&words, "insert into Audited values (1)"), Kinds::LOCKS);
    assert_eq!(makes(&words, "select * from \"seen\""), Kinds::PARAMETERS);
    assert_eq!(makes(&words, "select dynamic('x')"), Kinds::ANY.with(Kinds::LASTING));
    assert_eq!(makes(&words, "select \"a\"\"b\"()"), Kinds::LOCKS);
    assert_eq!(makes(&words, &format!("select {}()", "n".repeat(70))), Kinds::LOCKS);
    assert!(words.leaves(b"select newest()").unwrap().reads_sequences);
    assert_eq!(makes(&words, "select own.\"select\"()"), Kinds::LOCKS);
    for text in ["select plain()", "select local(), one()", "select 'locks()'", "select 1"] {
        assert_eq!(makes(&words, text), Kinds::NONE, "{text}");
    }
    let names = words.leaves(b"select sets()").unwrap().names;
    assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["app.tenant"]);
}

#[test]
fn code_that_stands_too_deep_may_leave_anything() {
    let nested = |depth: usize| {
        let quotes: String = (0..depth).map(|at| format!("$a{at}$")).collect();
        let ends: String = (0..depth).rev().map(|at| format!("$a{at}$")).collect();
        format!("{quotes}locks{ends}")
    };
    let of = |depth| makes(&words(&[("locks", "select pg_advisory_lock(1)"), ("f", &nested(depth))]), "select f()");
    assert_eq!(of(NESTED_MAX), Kinds::LOCKS);
    assert_eq!(of(NESTED_MAX + 1), Kinds::ANY.with(Kinds::LASTING));
    assert_eq!(of(100_000), Kinds::ANY.with(Kinds::LASTING));
    assert_eq!(makes(&words(&[("f", &"'".repeat(100_000))]), "select f()"), Kinds::ANY.with(Kinds::LASTING));
}

#[test]
fn a_keyword_behind_a_dot_is_a_name() {
    let words = words(&[("user", "begin perform pg_advisory_lock(1); end"), ("f", "select public . /* x */ USER()")]);
    for text in ["insert into public.user values (1)", "select f()", "select \"user\"()"] {
        assert_eq!(makes(&words, text), Kinds::LOCKS, "{text}");
    }
    assert_eq!(makes(&words, "select user"), Kinds::NONE);
    assert_eq!(makes(&words, "select $1.user"), Kinds::LOCKS);
}

#[test]
fn behind_a_parameter_stands_no_exponent() {
    let words = words(&[("e5", "select pg_advisory_lock(1)"), ("f", "select $1.e5")]);
    for text in ["select $1.e5", "select f()"] {
        assert_eq!(makes(&words, text), Kinds::LOCKS, "{text}");
    }
}

#[test]
fn what_is_cut_ahead_of_its_letters_is_a_name_in_ascii() {
    let name = |len| "n".repeat(len);
    for (len, calls) in [(63, true), (61, true), (60, true), (59, false)] {
        let words = words(&[(&name(len), "select pg_advisory_lock(1)"), ("f", &format!("select {}éé()", name(len)))]);
        let expected = if calls { Kinds::LOCKS } else { Kinds::NONE };
        assert_eq!(makes(&words, &format!("select {}é()", name(len))), expected, "{len}");
        assert_eq!(makes(&words, "select f()"), expected, "{len}");
    }
}

#[test]
fn a_function_in_sql_creates_a_table_by_into() {
    let makes_of = |text: &str| makes(&words(&[("f", text)]), "select f()");
    assert_eq!(makes_of("\x01select 1 as a into t"), Kinds::OBJECTS);
    assert_eq!(makes_of("\x01select 1 as insert into t"), Kinds::OBJECTS);
    assert_eq!(makes_of("\x01insert into t values (1)"), Kinds::NONE);
    assert_eq!(makes_of("begin select 1 into a; end"), Kinds::NONE);
}

#[test]
fn who_inserts_creates_nothing() {
    let words = words(&[("into", "select pg_advisory_lock(1)")]);
    assert_eq!(makes(&words, "insert into t values (1)"), Kinds::NONE);
    assert_eq!(makes(&words, "select 1 into t"), Kinds::LOCKS);
}

#[test]
fn a_types_number_leads_to_what_is_behind_it() {
    let words = words(&[(" 16400", "d"), ("d", "leaves"), ("leaves", "select pg_advisory_lock(1)"), (" 16401", "e")]);
    let definition = |number: u32| [b"select $1\0\0\x01", &number.to_be_bytes()[..]].concat();
    let makes = |number| words.leaves(&definition(number)).map_or(Kinds::NONE, |leaves| leaves.makes);
    assert_eq!([16400, 16401, 23].map(makes), [Kinds::LOCKS, Kinds::NONE, Kinds::NONE]);
    assert_eq!(super::tests::makes(&words, "select 16400"), Kinds::NONE);
}

#[test]
fn what_no_word_calls_any_text_may_leave() {
    let words = words(&[("", "casts"), ("casts", "begin create temp table t (a int); end")]);
    assert_eq!(makes(&words, "select 1"), Kinds::OBJECTS);
}

#[test]
fn a_word_beyond_ascii_is_any_of_those() {
    let words = words(&[("größe", "select pg_advisory_lock(1)")]);
    assert_eq!(makes(&words, "select gr\u{f6}\u{df}e2()"), Kinds::LOCKS);
    assert_eq!(makes(&words, "select 1"), Kinds::NONE);
}

#[test]
fn what_cannot_be_known_may_be_anything() {
    let mut reading = Reading::default();
    reading.told(None);
    let all = Kinds::ANY.with(Kinds::LASTING);
    assert_eq!(makes(&reading.words(), "select 1"), all);
    assert_eq!(Code::Unknown.left_unseen(true).makes, Kinds::ANY);
    assert!(Code::Unknown.is_blind());
}

#[test]
fn what_has_changed_may_set_what_was_known_and_what_is_new() {
    let known = Code::Known(Arc::new(words(&[("f", "begin set a.b = 1; end")])));
    let by = Changed { names: ["c.d".into()].into(), lasting: false, asks_statements: false };
    let leaves = known.changed(&by).left_unseen(false);
    assert_eq!(leaves.makes, Kinds::ANY);
    assert_eq!(leaves.names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.b", "c.d"]);
    assert!(!known.changed(&by).is_blind());
    assert!(known.changed(&Changed { lasting: true, ..by }).is_blind());
}
