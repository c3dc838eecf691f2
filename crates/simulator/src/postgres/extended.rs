//! The extended query protocol of a simulated backend: statements, portals, and the skip to Sync after an error.

use weir_wire::frontend::{BindNames, Parse, Target};
use weir_wire::{BackendTag, FrontendTag, write};

use super::Scene;
use super::backend::{Backend, Portal, Prepared};
use super::execute::{Task, bare};
use super::language::{self, Statement, Tag, Verb};
use super::types::Belief;
use crate::draws::LOOKER;

/// The type `text` (pg_type.dat).
const TEXT_TYPE: [u8; 4] = 25u32.to_be_bytes();

/// A Bind's names, the tag that its first value carries, and what the second one says of the types.
pub struct Bind<'a> {
    pub names: BindNames<'a>,
    pub tag: Option<Tag>,
    /// The first value.
    pub value: Option<&'a str>,
    pub belief: Option<Belief>,
    /// Or which rows are meant.
    pub key: Option<i64>,
}

/// Reads a Bind whose values are text.
pub fn bind_values(body: &[u8]) -> Option<Bind<'_>> {
    let names = BindNames::parse(body)?;
    let rest = &body[names.len()..];
    let formats = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
    let rest = rest.get(2 + 2 * formats..)?;
    let values = u16::from_be_bytes(*rest.first_chunk()?);
    if values == 0 {
        return Some(Bind { names, tag: None, value: None, belief: None, key: None });
    }
    let (tag, rest) = value(rest.get(2..)?)?;
    let second = if values > 1 { Some(value(rest)?.0) } else { None };
    let (belief, key) = (second.and_then(Belief::parse), second.and_then(|key| key.parse().ok()));
    Some(Bind { names, tag: Tag::parse(tag), value: Some(tag), belief, key })
}

/// The first of some values, and the others.
fn value(values: &[u8]) -> Option<(&str, &[u8])> {
    let length = u32::from_be_bytes(*values.first_chunk()?) as usize;
    let (value, others) = values.get(4..)?.split_at_checked(length)?;
    Some((std::str::from_utf8(value).ok()?, others))
}

impl Backend {
    pub(super) fn extended(&mut self, scene: &mut Scene, tag: FrontendTag, body: &[u8]) {
        if tag == FrontendTag::Sync {
            self.skip_to_sync = false;
            self.unsynced = false;
            return self.ready(scene);
        }
        if self.skip_to_sync {
            return;
        }
        self.begin_work();
        let done = match tag {
            FrontendTag::Flush => {
                self.flush();
                Some(())
            }
            FrontendTag::Parse => self.parse(scene, body),
            FrontendTag::Bind => self.bind(scene, body),
            FrontendTag::Describe => self.describe(scene, body),
            FrontendTag::Execute => self.begin_execute(body),
            FrontendTag::Close => self.close(body),
            _ => None,
        };
        if done.is_none() {
            scene.checks.fail("nonsense to a server", format!("{tag:?} {:?}", String::from_utf8_lossy(body)));
        }
    }

    fn parse(&mut self, scene: &Scene, body: &[u8]) -> Option<()> {
        let parse = Parse::read(body).ok()?;
        let text = parse.definition.split(|byte| *byte == 0).next()?;
        let text = String::from_utf8(text.to_vec()).ok()?;
        let statement = single(&text);
        if self.failed && !matches!(statement.verb, Verb::Commit | Verb::Rollback) {
            self.error(statement.tag, "25P02", "current transaction is aborted", true);
            return Some(());
        }
        if statement.verb == Verb::Refused {
            self.error(None, "42601", "syntax error", true);
            return Some(());
        }
        if statement.is_typed() && self.locked_out(scene, statement.tag, true) {
            return Some(());
        }
        if !parse.name.is_empty() && self.statements.contains_key(parse.name) {
            self.error(statement.tag, "42P05", "prepared statement already exists", true);
            return Some(());
        }
        let zone = self.parameters.0["TimeZone"].clone();
        let types = self.types(scene);
        self.statements.insert(parse.name.to_vec(), Prepared { text, schema_version: 0, types, zone });
        write::parse_complete(&mut self.out);
        Some(())
    }

    fn bind(&mut self, scene: &mut Scene, body: &[u8]) -> Option<()> {
        let bind = bind_values(body)?;
        let (portal, name) = (bind.names.portal.to_vec(), bind.names.statement);
        let Some(prepared) = self.statements.get_mut(name) else {
            let text = format!("prepared statement {:?} does not exist", String::from_utf8_lossy(name));
            self.error(bind.tag, "26000", &text, true);
            return Some(());
        };
        let (text, zone) = (prepared.text.clone(), prepared.zone.clone());
        let types = prepared.types;
        let statement = single(&text);
        let tag = bind.tag.or(statement.tag);
        if self.failed && !matches!(statement.verb, Verb::Commit | Verb::Rollback) {
            self.error(tag, "25P02", "current transaction is aborted", true);
            return Some(());
        }
        if let Verb::Echo { star: true, .. } = statement.verb {
            // The first plan fixes the result type; later ones must have the same.
            let version = scene.cluster.schema_version;
            if prepared.schema_version == 0 || name.is_empty() {
                prepared.schema_version = version;
            }
            if prepared.schema_version != version {
                scene.counts.stale_plans += 1;
                self.error(tag, "0A000", "cached plan must not change result type", true);
                return Some(());
            }
        }
        if statement.is_typed() {
            if self.locked_out(scene, tag, true) {
                return Some(());
            }
            scene.checks.bound(tag, bind.belief.unwrap_or_default(), types);
        }
        let (value, key) = (bind.value.map(str::to_owned), bind.key);
        self.portals.insert(portal, Portal { text, tag, value, key, zone, rows_sent: 0 });
        write::bind_complete(&mut self.out);
        Some(())
    }

    fn describe(&mut self, scene: &mut Scene, body: &[u8]) -> Option<()> {
        let (text, is_statement) = match Target::parse(body).ok()? {
            Target::Statement(name) => (self.statements.get(name).map(|statement| statement.text.clone()), true),
            Target::Portal(name) => (self.portals.get(name).map(|portal| portal.text.clone()), false),
        };
        let Some(text) = text else {
            self.error(None, "26000", "described thing does not exist", true);
            return Some(());
        };
        let statement = single(&text);
        if is_statement && let Target::Statement(name) = Target::parse(body).ok()? {
            if statement.is_typed() && self.locked_out(scene, None, true) {
                return Some(());
            }
            let prepared = self.statements.get_mut(name)?;
            if prepared.schema_version == 0 {
                prepared.schema_version = scene.cluster.schema_version;
            }
            let types = prepared.types;
            self.describe_parameters(&statement, &text, types);
        }
        self.describe_rows(&statement.verb);
        Some(())
    }

    fn describe_parameters(&mut self, statement: &Statement, text: &str, types: u32) {
        if statement.is_typed() {
            let body = [&[0, 2][..], &TEXT_TYPE, &types.to_be_bytes()].concat();
            bare(&mut self.out, BackendTag::ParameterDescription, &body);
        } else if text.contains("$1") {
            bare(&mut self.out, BackendTag::ParameterDescription, &[&[0, 1][..], &TEXT_TYPE].concat());
        } else {
            write::no_parameters(&mut self.out);
        }
    }

    fn begin_execute(&mut self, body: &[u8]) -> Option<()> {
        let end = body.iter().position(|byte| *byte == 0)?;
        let name = body[..end].to_vec();
        let rows_max = u32::from_be_bytes(*body.get(end + 1..)?.first_chunk()?);
        let Some(portal) = self.portals.get(&name) else {
            self.error(None, "34000", "portal does not exist", true);
            return Some(());
        };
        let mut statement = single(&portal.text);
        statement.tag = portal.tag;
        self.tasks.push_back(Task::Execute { portal: name, statement, rows_max });
        Some(())
    }

    pub(super) fn execute(&mut self, scene: &mut Scene, name: &[u8], statement: &Statement, rows_max: u32) {
        match &statement.verb {
            Verb::Echo { rows, bytes, .. } => {
                let Some(portal) = self.portals.get_mut(name) else { return };
                let from = portal.rows_sent;
                let to = if rows_max == 0 { *rows } else { (from + rows_max).min(*rows) };
                portal.rows_sent = to;
                let zone = portal.zone.clone();
                self.rows(statement.tag, from..to, *bytes, &zone);
                // The limit reached counts as suspended even when no row is left (pquery.c, PortalRun).
                if rows_max != 0 && to - from == rows_max {
                    bare(&mut self.out, BackendTag::PortalSuspended, &[]);
                } else {
                    write::command_complete(&mut self.out, &format!("SELECT {}", to - from));
                }
            }
            Verb::Zone => {
                let Some(portal) = self.portals.get(name) else { return };
                let zone = portal.zone.clone();
                self.zone_row(statement.tag, &zone);
            }
            Verb::Secret => self.tell_secret(scene, name),
            Verb::Select(values) => self.select(statement.tag, values, true),
            Verb::Held(deed) => self.holds(statement.tag, deed, true),
            Verb::Access(_) => {
                let bound = self.portals.get(name).and_then(|portal| portal.key);
                self.access(scene, statement, bound, true);
            }
            Verb::CopyIn => self.start_copy_in(statement, true),
            _ => self.command(scene, statement, true),
        }
    }

    fn tell_secret(&mut self, scene: &mut Scene, portal: &[u8]) {
        let Some(user) = self.portals.get(portal).and_then(|portal| portal.value.clone()) else { return };
        if self.user != LOOKER {
            scene.checks.fail("wrong asker", format!("{} asks for the secret of {user}", self.user));
        }
        if scene.rng.chance(scene.cluster.error_permille) {
            return self.error(None, "XX000", "injected error", true);
        }
        let password = scene.cluster.passwords.get(&user);
        if let Some(password) = password {
            write::data_row(&mut self.out, [user.as_bytes(), password.as_bytes()].into_iter().map(Some));
        }
        write::command_complete(&mut self.out, &format!("SELECT {}", usize::from(password.is_some())));
    }

    fn close(&mut self, body: &[u8]) -> Option<()> {
        match Target::parse(body).ok()? {
            Target::Statement(name) => drop(self.statements.remove(name)),
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        write::close_complete(&mut self.out);
        Some(())
    }
}

fn single(text: &str) -> Statement {
    language::parse(text).remove(0)
}
