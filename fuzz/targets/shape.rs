//! A statement's text. Its literals are where they are said to be, and a text of its shape's other literals has the same shape; its recipe is made without a fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_cluster::shape::{Kind, Shape};
use weir_cluster::statement::Recipe;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some(shape) = Shape::of(text, true) else { return };
    let (mut other, mut at) = (String::new(), 0);
    for literal in shape.literals() {
        let said = &text[literal.place.clone()];
        let is_string = said.starts_with('\'') && said.ends_with('\'') && said.len() > 1;
        assert_eq!(is_string, literal.kind == Kind::String, "{said:?}");
        other += &text[at..literal.place.start];
        // Digits behind a word would be a part of it.
        other += if is_string { "'it''s'" } else if said.starts_with('.') { ".17" } else { "17" };
        at = literal.place.end;
    }
    other += &text[at..];
    assert_eq!(Shape::of(&other, true).as_ref().map(Shape::key), Some(shape.key()), "{text:?} {other:?}");
    let _ = Recipe::of(text, &shape);
});
