//! What is known of statements by their shapes: each is parsed once, and what it says of where it goes is kept.

use std::collections::BTreeMap;

use weir_cluster::route::{Class, Route, Target, Values, Why};
use weir_cluster::shape::Shape;
use weir_cluster::statement::Recipe;
use weir_cluster::topology::Topology;
use weir_wire::frontend::BoundValue;

use crate::parameters::ParameterSet;
use crate::parameters::encodings::{reads_alike, reads_bytes};
use crate::parameters::meanings::NAME_BYTES;

/// Shapes that are known at once, and bytes of them. Where there are more all are forgotten, and those that are still used come again.
const SHAPES_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;

/// One shape, as it was said first.
#[derive(Debug)]
pub(crate) struct Known {
    recipe: Recipe,
    /// The beginning of its first text.
    pub(crate) text: Box<str>,
    /// How often it went to each node, by its group.
    pub(crate) counts: BTreeMap<Option<i32>, u64>,
    /// How it was last routed.
    pub(crate) last: Option<Route>,
}

#[derive(Debug, Default)]
pub(crate) struct Recipes {
    by_shape: BTreeMap<Box<[u8]>, Known>,
    bytes: usize,
}

/// A statement as a client sends it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) text: &'a [u8],
    /// The types of its parameters, as its Parse has them.
    pub(crate) types: &'a [u8],
    /// What a Bind brings. `None`: there is none yet.
    pub(crate) bound: Option<&'a [BoundValue<'a>]>,
}

/// By what a session reads and is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) parameters: &'a ParameterSet,
    pub(crate) user: &'a str,
    pub(crate) server_encoding: &'a [u8],
    /// `search_path`, as a session has it that has set none. `None`: nobody knows.
    pub(crate) path: Option<&'a str>,
}

impl Session<'_> {
    /// As another role, or where letters are not what they seem, nobody knows what a name stands for.
    fn is_plain(&self, text: &[u8]) -> bool {
        let sets = |name: &str| self.parameters.get(name).is_some_and(|own| !own.reported);
        let encoding = self.parameters.encoding();
        !sets("role")
            && self.parameters.get("session_authorization").is_none_or(|own| *own.value == *self.user.as_bytes())
            && reads_bytes(encoding)
            && (text.is_ascii() || self.is_legible())
    }

    /// What a client says beyond ASCII is what the server stores.
    fn is_legible(&self) -> bool {
        let encoding = self.parameters.encoding();
        reads_alike(encoding, self.server_encoding) && reads_alike(b"utf8", self.server_encoding)
    }

    /// The schemas that an unqualified name is looked for in.
    fn schemas(&self) -> Option<Vec<String>> {
        let own = self.parameters.get("search_path").map(|own| std::str::from_utf8(&own.value));
        let path = match own {
            Some(Ok(path)) => path,
            Some(Err(_)) => return None,
            None => self.path?,
        };
        let schemas = names(path)?;
        Some(schemas.into_iter().map(|name| if name == "$user" { self.user.to_owned() } else { name }).collect())
    }
}

/// A list of names between commas, as `SplitIdentifierString` reads it (src/backend/utils/adt/varlena.c at REL_18_0).
fn names(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let (name, behind) = match rest.strip_prefix('"') {
            Some(quoted) => crate::names::quoted(quoted, '"')?,
            None => {
                let end = rest.find(|letter: char| letter == ',' || letter.is_whitespace()).unwrap_or(rest.len());
                let (name, behind) = rest.split_at(end);
                (name.is_ascii().then(|| name.to_ascii_lowercase())?, behind)
            }
        };
        // PostgreSQL cuts it.
        if name.len() > NAME_BYTES {
            return None;
        }
        names.push(name);
        let behind = behind.trim_start();
        rest = match behind.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if behind.is_empty() => "",
            None => return None,
        };
    }
    Some(names)
}

/// The values of one statement.
struct Given<'a> {
    said: Said<'a>,
    text: &'a str,
    shape: &'a Shape,
    is_legible: bool,
}

impl Values for Given<'_> {
    fn literal(&self, number: usize) -> Option<&str> {
        self.text.get(self.shape.literals().get(number)?.place.clone())
    }

    fn parameter(&self, number: usize) -> Option<weir_cluster::route::Parameter<'_>> {
        let place = number.checked_sub(1)?;
        let bound = self.said.bound?.get(place)?;
        let type_oid = self.said.types.get(place * 4..place * 4 + 4).and_then(|bytes| bytes.first_chunk());
        let type_oid = type_oid.map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let is_readable = bound.is_binary || self.is_legible || bound.value.is_none_or(<[u8]>::is_ascii);
        // A letter of another encoding may be another one in the server's, in binary, too.
        let is_readable =
            is_readable && (self.is_legible || bound.value.is_none_or(<[u8]>::is_ascii) || !is_text(type_oid));
        is_readable.then_some(weir_cluster::route::Parameter {
            type_oid,
            is_binary: bound.is_binary,
            value: bound.value,
        })
    }
}

/// Types whose binary form is their text (src/include/catalog/pg_type.dat), and those that are left to PostgreSQL.
fn is_text(type_oid: u32) -> bool {
    [0, 25, 705, 1042, 1043].contains(&type_oid)
}

impl Recipes {
    /// Where a statement goes, and the shape's place in what is counted.
    pub(crate) fn route(&mut self, said: Said<'_>, session: &Session<'_>, topology: &Topology) -> Route {
        let doubtful = || Route {
            target: Target::Coordinator,
            class: Class::Other,
            why: Why::NotFollowed,
            table: None,
            key: None,
        };
        let Ok(text) = std::str::from_utf8(said.text) else { return doubtful() };
        if !session.is_plain(said.text) {
            return doubtful();
        }
        let Some(shape) = Shape::of(text, session.parameters.has_standard_strings()) else { return doubtful() };
        let Some(schemas) = session.schemas() else { return doubtful() };
        let path: Vec<&str> = schemas.iter().map(String::as_str).collect();
        let known = self.of_shape(text, &shape);
        let is_legible = session.is_legible();
        let route = known.recipe.route(topology, &path, &Given { said, text, shape: &shape, is_legible });
        known.last = Some(route.clone());
        route
    }

    fn of_shape(&mut self, text: &str, shape: &Shape) -> &mut Known {
        if self.by_shape.len() >= SHAPES_MAX || self.bytes >= BYTES_MAX {
            (self.by_shape, self.bytes) = (BTreeMap::new(), 0);
        }
        let bytes = &mut self.bytes;
        // An entry by reference, which maps do not have.
        if !self.by_shape.contains_key(shape.key()) {
            *bytes += 2 * text.len();
            let known = Known {
                recipe: Recipe::of(text, shape),
                text: text[..text.floor_char_boundary(TEXT_SHOWN_MAX)].into(),
                counts: BTreeMap::new(),
                last: None,
            };
            self.by_shape.insert(shape.key().into(), known);
        }
        self.by_shape.get_mut(shape.key()).expect("it was put there")
    }

    /// That text's transaction went there.
    pub(crate) fn went(&mut self, text: &[u8], conforming: bool, node: Option<i32>) {
        let shape = std::str::from_utf8(text).ok().and_then(|text| Shape::of(text, conforming));
        if let Some(known) = shape.and_then(|shape| self.by_shape.get_mut(shape.key())) {
            *known.counts.entry(node).or_default() += 1;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.by_shape.values()
    }
}

/// Bytes of a text that SHOW ROUTES shows.
const TEXT_SHOWN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_path_is_read_as_postgresql_does() {
        assert_eq!(names("\"$user\", public").unwrap(), ["$user", "public"]);
        assert_eq!(names("A ,\"B\"\"c, d\",e").unwrap(), ["a", "B\"c, d", "e"]);
        assert_eq!(names("").unwrap(), Vec::<String>::new());
        assert_eq!((names("a b"), names("\"a"), names("É")), (None, None, None));
    }
}
