//! What goes where: each line of `decisions.txt` beside what the crate says of it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::collections::HashMap;

use weir_cluster::route::{Class, Parameter, Said, Target, Values};
use weir_cluster::shape::Shape;
use weir_cluster::statement::Recipe;

const DECISIONS: &str = include_str!("decisions.txt");

/// `$1` is 7 as a text without a type, `$2` is 7 as a binary `int8`, `$3` is `b` as a text of `text`, `$4` is null, `$5` is `{7}`, `$6` is a binary array.
struct Bound<'a>(Said<'a>);

impl Values for Bound<'_> {
    fn literal(&self, number: usize) -> Option<&str> {
        self.0.literal(number)
    }

    fn parameter(&self, number: usize) -> Option<Parameter<'_>> {
        let (type_oid, is_binary, value): (_, _, Option<&[u8]>) = match number {
            1 => (0, false, Some(b"7")),
            2 => (20, true, Some(&[0, 0, 0, 0, 0, 0, 0, 7])),
            3 => (25, false, Some(b"b")),
            4 => (0, false, None),
            5 => (0, false, Some(b"{7}")),
            6 => (1007, true, Some(b"\0\0\0\0")),
            _ => return None,
        };
        Some(Parameter { type_oid, is_binary, value })
    }
}

fn decision(text: &str) -> String {
    let topology = cluster::topology();
    let shape = Shape::of(text, true).unwrap();
    let recipe = Recipe::of(text, &shape);
    let route = recipe.route(&topology, &["app", "public"], &Bound(Said { text, shape: &shape }));
    let target = match route.target {
        Target::Owner(group) => format!("node {}", group.0),
        Target::Any => "any".to_owned(),
        Target::Coordinator => "coordinator".to_owned(),
    };
    let class = match route.class {
        Class::Single => String::new(),
        class => format!(" {class:?}"),
    };
    let key = route.key.map(|key| format!(" {key}")).unwrap_or_default();
    format!("{target}{class}: {}{key}", route.why)
}

/// Lines are `statement` and below it, further right, `-> decision`.
#[test]
fn statements_go_where_the_table_says() {
    let lines: Vec<_> = DECISIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let (mut wrong, mut count) = (Vec::new(), HashMap::new());
    for pair in lines.chunks(2) {
        let [text, expected] = pair else { panic!("{pair:?}") };
        let expected = expected.trim().strip_prefix("-> ").unwrap();
        let found = decision(text);
        if found != expected {
            wrong.push(format!("{text}\n    -> {found}\n       not {expected}"));
        }
        *count.entry(text).or_insert(0) += 1;
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count.len() >= 200 && count.values().all(|times| *times == 1), "{}", count.len());
}
