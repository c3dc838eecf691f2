//! Texts of one shape have one parse tree, but for their literals; and nothing that a client sends does any harm.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::Range;

use serde_json::Value;
use weir_cluster::route::{Said, Target, Why};
use weir_cluster::shape::Shape;
use weir_cluster::statement::Recipe;
use weir_cluster::topology::Topology;

/// Always the same numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len())]
    }
}

/// `#` is a number, `%` a string; a blank may be any white space, and comments.
const STATEMENTS: &[&str] = &[
    "select a , # , % from t where a = # and b = -# or c in ( # , # , % )",
    "select t.a1 , E'\\'x' , $1 , $$a'1$$ , x'1f' , B'01' , \"a'1\" from s.t as t where a -# > # and b=-#",
    "select a::float ( 24 ) , cast ( % as float( 53 ) ) , float8 % , interval % day , n'x' from t limit # offset #",
    "insert into t ( a , b ) values ( # , % ) , ( -# , $2 ) on conflict ( a ) do update set b = excluded.b || %",
    "update t set a = a + # , b = % where c = # returning a -# , -# - -#",
    "with w as ( select # as a ) delete from t using w where t.a = w.a and t.b like % escape %",
    "select current_timestamp ( # ) , numeric ( # , # ) % , a [ # ] from t order by # , a -> % ->> #",
    "set a.b = # ; select % ; begin ; savepoint a",
    "select case when a = % then # else .5 end , extract ( year from date % ) , # . 5 from t",
    "fetch # from c ; copy t from stdin ; select a , % as \"%\" , # - # from t where a @> % :: jsonb",
];
const TOKENS: &[&str] = &[
    "#", "%", "#", "%", "select", "from", "a", "t", "float", "uescape", "U&'x'", "U&\"x\"", "E'\\n'", "e'", "n",
    "x'1'", "(", ")", "[", "]", ",", ";", ".", "=", "-", "+", "--", "/*", "*/", "/", "*", "::", ":", "$1", "$", "$$",
    "$a$", "'", "\"", "\"\"", "é", "_", "e1", "1e", "0x", "1_0", "@-", "|", "not", "values", "in", "where", "\\",
    "\u{b}", "\n", "union", "as",
];
const NUMBERS: &[&str] = &["0", "1", "17", "70000000000", "1.5", ".5", "7.", "1e3", "2.5E-7", "00"];
const STRINGS: &[&str] = &["''", "'a'", "'it''s'", "'--'", "'/*'", "'\\'", "'é'", "'\"'", "'$$'", "'1'"];
const BLANKS: &[&str] = &[" ", "  ", "\n", "\t", "/* a='1' */ ", " -- 'x' 1\n", "\r\n", " /* /* ' */ */", "\u{c}"];

/// A text of a pattern, and whether there is a blank behind each part stays as it is.
fn text(pattern: &[&str], blanks: &[bool], random: &mut Random) -> String {
    let mut text = String::new();
    for (part, blank) in pattern.iter().zip(blanks) {
        match *part {
            "#" => text += random.of(NUMBERS),
            "-#" => text = text + "-" + random.of(NUMBERS),
            "%" => text += random.of(STRINGS),
            part => text += part,
        }
        if *blank {
            text += random.of(BLANKS);
        }
    }
    text
}

/// A parse tree without the places in the text.
fn tree(text: &str) -> Option<Value> {
    let parsed = pg_query::parse(text).ok()?;
    let mut tree = serde_json::to_value(&parsed.protobuf).unwrap();
    forget_places(&mut tree);
    Some(tree)
}

fn forget_places(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for place in ["location", "stmt_location", "stmt_len"] {
                fields.remove(place);
            }
            fields.values_mut().for_each(forget_places);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_places),
        _ => {}
    }
}

/// The first text with the other's literals in it.
fn with_literals(text: &str, shape: &Shape, other: &str, of_other: &Shape) -> String {
    let (mut made, mut at) = (String::new(), 0);
    for (own, others) in shape.literals().iter().zip(of_other.literals()) {
        let Range { start, end } = own.place;
        made = made + &text[at..start] + &other[others.place.clone()];
        at = end;
    }
    made + &text[at..]
}

#[test]
fn texts_of_one_shape_have_one_tree() {
    let random = &mut Random(1);
    let (mut same, mut parsed) = (0, 0);
    for round in 0..6_000 {
        let pattern: Vec<_> = match round % 2 {
            0 => random.of(STATEMENTS).split(' ').collect(),
            _ => std::iter::once("select").chain((0..random.below(8)).map(|_| random.of(TOKENS))).collect(),
        };
        let is_soup = round % 2 == 1;
        let blanks: Vec<_> = pattern.iter().map(|_| !is_soup || random.below(3) > 0).collect();
        let (first, other) = (text(&pattern, &blanks, random), text(&pattern, &blanks, random));
        let (Some(shape), Some(of_other)) = (Shape::of(&first, true), Shape::of(&other, true)) else { continue };
        if shape.key() != of_other.key() {
            assert!(is_soup, "{first:?} and {other:?} have two shapes");
            continue;
        }
        assert_eq!(shape.literals().len(), of_other.literals().len(), "{first:?} {other:?}");
        let made = with_literals(&first, &shape, &other, &of_other);
        let trees = (tree(&made), tree(&other));
        assert_eq!(trees.0, trees.1, "{made:?} is not {other:?}");
        (same, parsed) = (same + 1, parsed + usize::from(trees.1.is_some()));
    }
    assert!(same > 3_000 && parsed > 2_000, "{same} {parsed}");
}

/// Two texts that are made apart, and may be anything.
#[test]
fn texts_that_are_not_alike_have_two_shapes() {
    let random = &mut Random(2);
    let mut known = std::collections::HashMap::new();
    for _ in 0..100_000 {
        let pattern: Vec<_> = (0..1 + random.below(3)).map(|_| random.of(TOKENS)).collect();
        let blanks: Vec<_> = pattern.iter().map(|_| random.below(2) > 0).collect();
        let text = "select ".to_owned() + &text(&pattern, &blanks, random);
        let Some(shape) = Shape::of(&text, true) else { continue };
        let first = known.entry(shape.key().to_vec()).or_insert_with(|| text.clone());
        let of_first = Shape::of(first, true).unwrap();
        if random.below(20) == 0 {
            assert_eq!(tree(&with_literals(first, &of_first, &text, &shape)), tree(&text), "{first:?} {text:?}");
        }
    }
}

/// On a stack as threads have it.
fn on_a_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

fn why(text: &str) -> Option<Why> {
    let shape = Shape::of(text, true)?;
    let recipe = Recipe::of(text, &shape);
    let route = recipe.route(&Topology::default(), &["public"], &Said { text, shape: &shape });
    assert!(route.target != Target::Any || route.class != weir_cluster::route::Class::Other);
    Some(route.why)
}

#[test]
fn soup_does_no_harm() {
    on_a_stack(|| {
        let random = &mut Random(3);
        for _ in 0..20_000 {
            let pattern: Vec<_> = (0..random.below(30)).map(|_| random.of(TOKENS)).collect();
            let blanks: Vec<_> = pattern.iter().map(|_| random.below(3) > 0).collect();
            why(&text(&pattern, &blanks, random));
        }
        // Statements whose parts are out of their places.
        for _ in 0..20_000 {
            let mut pattern: Vec<_> = random.of(STATEMENTS).split(' ').collect();
            for _ in 0..=random.below(3) {
                let (from, to) = (random.below(pattern.len()), random.below(pattern.len()));
                pattern[to] = if random.below(2) == 0 { pattern[from] } else { random.of(TOKENS) };
            }
            let blanks: Vec<_> = pattern.iter().map(|_| true).collect();
            why(&text(&pattern, &blanks, random));
        }
        // Texts that end too soon.
        for statement in STATEMENTS {
            let whole = statement.replace('#', "1").replace('%', "'a'");
            (0..whole.len())
                .filter_map(|end| whole.get(..end))
                .for_each(|text| assert!(why(text).is_none_or(|why| !why.to_string().is_empty())));
        }
    });
}

/// As deep as a text can be, in many ways: none is refused by overflowing a stack, or takes long.
#[test]
fn what_is_deep_does_no_harm() {
    on_a_stack(|| {
        let chains: &[(&str, &str, &str, &str)] = &[
            ("select ", "(", "1", ")"),
            ("", "(", "select 1", ")"),
            ("select ", "not ", "true", ""),
            ("select ", "- ", "1", ""),
            ("select 1", "", "", "+1"),
            ("select 1", "", "", "::int"),
            ("select 1 where true", "", "", " and a=1"),
            ("select 1 where true", "", "", " or a=1"),
            ("select 1", "", "", " union select 1"),
            ("select * from a", "", "", " join b on true"),
            ("", "select (", "select 1", ")"),
            ("", "select * from (", "select 1", ") s"),
            ("select ", "array[", "1", "]"),
            ("select ", "[", "1", "]"),
            ("select ", "lower(", "1", ")"),
            ("select ", "case when true then ", "1", " end"),
            ("select ", "(\"a\",", "1", ")"),
            ("select a", "", "", "[1]"),
            ("select a", "", "", ".b"),
            ("select a", "", "", " collate b"),
            ("select a", "", "", " is null"),
            ("", "with a as (", "select 1", ") select 1"),
            ("", "explain ", "select 1", ""),
            ("select 1", "", "", ";select 1"),
            ("select 1", "", "", ",1"),
            ("select 1 in (1", "", "", ",1"),
            ("insert into t values (1)", "", "", ",(1)"),
        ];
        for (head, before, middle, behind) in chains {
            for times in [10, 30, 60, 500, 1_000, 2_000, 10_000, 100_000] {
                let text = [head, &*before.repeat(times), middle, &behind.repeat(times)].concat();
                if let Some(why) = why(&text) {
                    assert!(times < 10_000 || text.len() < 64 * 1024, "{why} {}", &text[..40]);
                }
            }
        }
        assert_eq!(why(&("select ".to_owned() + &"not ".repeat(10_000) + "true")), Some(Why::Deep));
        assert_eq!(why(&("select ".to_owned() + &"not ".repeat(1_000) + "true")), Some(Why::Deep));
        assert_eq!(why(&("select ".to_owned() + &"(".repeat(100_000) + "1")), None);
        assert_eq!(why(&("select 1".to_owned() + &" and a=1".repeat(600))), Some(Why::NoTable));
        assert_eq!(why(&("select 1".to_owned() + &",1".repeat(8_000))), Some(Why::NoTable));
        assert_eq!(why(&("select 1".to_owned() + &",1".repeat(30_000))), Some(Why::Deep));
    });
}
