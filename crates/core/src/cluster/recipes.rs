//! What is known of statements by their shapes: each is parsed once, and what it says of where it goes is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_cluster::route::{Class, Route, Target, Values, Why};
use weir_cluster::shape::Shape;
use weir_cluster::statement::Recipe;
use weir_cluster::topology::Topology;
use weir_wire::frontend::BoundValue;

use crate::parameters::ParameterSet;
use crate::parameters::encodings::{reads_alike, reads_bytes};
use crate::parameters::meanings::NAME_BYTES;
use crate::time::Time;

/// Shapes that are known at once, and bytes of them. Where there are more all are forgotten, and those that are still used come again.
const SHAPES_MAX: usize = 4096;
const BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
struct Known {
    recipe: Recipe,
    uses: Uses,
}

/// What SHOW ROUTES has of a shape.
#[derive(Debug, Default, Clone)]
pub(crate) struct Uses {
    /// The beginning of its first text.
    pub(crate) text: Arc<str>,
    /// How many transactions it gave their node, by that one's group; `None`: the entry's servers.
    pub(crate) counts: BTreeMap<Option<i32>, u64>,
    /// How it was last routed.
    pub(crate) last: Option<(Time, Route)>,
}

#[derive(Debug, Default)]
pub(crate) struct Recipes {
    by_shape: BTreeMap<Arc<[u8]>, Known>,
    bytes: usize,
    /// Of statements that have no shape, or whose sessions are not followed.
    doubtful: Uses,
    /// What was routed last, while nobody knows whether it decides for its transaction.
    routed: Option<(Option<Arc<[u8]>>, Route)>,
}

fn doubtful() -> Route {
    Route { target: Target::Coordinator, class: Class::Other, why: Why::NotFollowed, table: None, key: None }
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
        schemas(path, self.user)
    }
}

/// The schemas of a `search_path`.
pub(crate) fn schemas(path: &str, user: &str) -> Option<Vec<String>> {
    let schemas = names(path)?;
    Some(schemas.into_iter().map(|name| if name == "$user" { user.to_owned() } else { name }).collect())
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
        // A letter of another encoding may be another one in the server's, in binary, too.
        let is_readable =
            self.is_legible || bound.value.is_none_or(<[u8]>::is_ascii) || (bound.is_binary && !is_text(type_oid));
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
    /// Where a statement goes.
    pub(crate) fn route(&mut self, said: Said<'_>, session: &Session<'_>, topology: &Topology) -> Route {
        let (shape, route) = match self.known_route(said, session, topology) {
            Some((shape, route)) => (Some(shape), route),
            None => (None, doubtful()),
        };
        self.routed = Some((shape, route.clone()));
        route
    }

    /// With its shape. `None`: nobody may guess.
    fn known_route(
        &mut self,
        said: Said<'_>,
        session: &Session<'_>,
        topology: &Topology,
    ) -> Option<(Arc<[u8]>, Route)> {
        let text = std::str::from_utf8(said.text).ok().filter(|_| session.is_plain(said.text))?;
        let shape = Shape::of(text, session.parameters.has_standard_strings())?;
        let schemas = session.schemas()?;
        let path: Vec<&str> = schemas.iter().map(String::as_str).collect();
        let (key, known) = self.of_shape(text, &shape);
        let is_legible = session.is_legible();
        let route = known.recipe.route(topology, &path, &Given { said, text, shape: &shape, is_legible });
        Some((Arc::clone(key), route))
    }

    fn of_shape(&mut self, text: &str, shape: &Shape) -> (&Arc<[u8]>, &Known) {
        if self.by_shape.len() >= SHAPES_MAX || self.bytes >= BYTES_MAX {
            (self.by_shape, self.bytes) = (BTreeMap::new(), 0);
        }
        // An entry by reference, which maps do not have.
        if !self.by_shape.contains_key(shape.key()) {
            self.bytes += 2 * text.len();
            let shown = text[..text.floor_char_boundary(TEXT_SHOWN_MAX)].into();
            let uses = Uses { text: shown, counts: BTreeMap::new(), last: None };
            self.by_shape.insert(shape.key().into(), Known { recipe: Recipe::of(text, shape), uses });
        }
        self.by_shape.get_key_value(shape.key()).expect("it was put there")
    }

    /// Nothing is routed yet of what decides next.
    pub(crate) fn begin(&mut self) {
        self.routed = None;
    }

    /// Whether what was routed last needs rows of several nodes.
    pub(crate) fn fans_out(&self) -> bool {
        self.routed.as_ref().is_some_and(|(_, route)| route.class == Class::FanOut)
    }

    /// What was routed last has decided: its transaction goes there.
    pub(crate) fn decided(&mut self, node: Option<i32>, now: Time) {
        let Some((shape, route)) = self.routed.take() else { return };
        let uses = match shape {
            Some(shape) => self.by_shape.get_mut(&shape).map(|known| &mut known.uses),
            None => Some(&mut self.doubtful),
        };
        if let Some(uses) = uses {
            *uses.counts.entry(node).or_default() += 1;
            uses.last = Some((now, route));
        }
    }

    /// By their shapes, those that have decided; `None`: the doubtful ones.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (Option<&Arc<[u8]>>, &Uses)> {
        let of_shapes = self.by_shape.iter().map(|(shape, known)| (Some(shape), &known.uses));
        of_shapes.chain([(None, &self.doubtful)]).filter(|(_, uses)| uses.last.is_some())
    }
}

impl Uses {
    /// And what another worker has of the same shape.
    pub(crate) fn add(&mut self, other: Self) {
        for (node, count) in other.counts {
            *self.counts.entry(node).or_default() += count;
        }
        let at = |last: &Option<(Time, Route)>| last.as_ref().map(|(at, _)| *at);
        if at(&other.last) > at(&self.last) {
            self.last = other.last;
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Bytes of a text that SHOW ROUTES shows.
const TEXT_SHOWN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_postgresql_does() {
        assert_eq!(names("\"$user\", public").unwrap(), ["$user", "public"]);
        assert_eq!(names("A ,\"B\"\"c, d\",e").unwrap(), ["a", "B\"c, d", "e"]);
        assert_eq!(names("").unwrap(), Vec::<String>::new());
        assert_eq!((names("a b"), names("\"a"), names("É")), (None, None, None));
    }

    #[test]
    fn what_decides_is_counted_once_by_its_shape() {
        let (mut parameters, topology) = (ParameterSet::default(), Topology::default());
        parameters.set("client_encoding", b"UTF8", true);
        let session =
            Session { parameters: &parameters, user: "alice", server_encoding: b"UTF8", path: Some("public") };
        let mut recipes = Recipes::default();
        let mut says = |text: &[u8], node: Option<i32>| {
            recipes.begin();
            recipes.route(Said { text, types: b"", bound: None }, &session, &topology);
            recipes.decided(node, Time(1));
            recipes.decided(node, Time(1));
        };
        says(b"select 1", Some(0));
        says(b"select  2", Some(1));
        says(b"select 'a'", None);
        says(b"\xff", None);
        recipes.route(Said { text: b"begin", types: b"", bound: None }, &session, &topology);
        let told: Vec<_> = recipes.uses().map(|(_, uses)| (&*uses.text, uses.counts.clone())).collect();
        let counts = |counts: &[(Option<i32>, u64)]| counts.iter().copied().collect::<BTreeMap<_, _>>();
        let numbers = ("select 1", counts(&[(Some(0), 1), (Some(1), 1)]));
        assert_eq!(told, [numbers, ("select 'a'", counts(&[(None, 1)])), ("", counts(&[(None, 1)]))]);
    }
}
