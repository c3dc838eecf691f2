//! Statements on the tables of a cluster: what their names mean on the node that they have come to, and what they do there.

use weir_wire::write;

use super::Scene;
use super::backend::Backend;
use super::execute::COLUMNS;
use super::language::{Statement, Tag, Verb};
use super::parameters::CONFIGURED;
use super::sharded::{COORDINATOR, Place, Table};

/// The rows that a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Of(i64),
    /// The second value that is bound.
    Bound,
    /// It says nothing of a key.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Read,
    Write(u32),
    /// `early.accounts` is to be there, or not.
    Make(bool),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// As it is written.
    pub name: String,
    pub key: Key,
    pub deed: Deed,
}

impl Access {
    /// `words`: in small letters.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let key = |word: &str| if word == "$2" { Some(Key::Bound) } else { word.parse().ok().map(Key::Of) };
        let (name, key, deed) = match words {
            ["select", "v", "from", name, "where", "aid", "=", word] => (name, key(word)?, Deed::Read),
            ["select", "v" | "count(*)", "from", name] => (name, Key::None, Deed::Read),
            ["update", name, "set", "v", "=", value, "where", "aid", "=", word] => {
                (name, key(word)?, Deed::Write(value.parse().ok()?))
            }
            ["update", name, "set", "v", "=", value] => (name, Key::None, Deed::Write(value.parse().ok()?)),
            ["create", "table", "if", "not", "exists", name, ..] => (name, Key::None, Deed::Make(true)),
            ["drop", "table", "if", "exists", name] => (name, Key::None, Deed::Make(false)),
            _ => return None,
        };
        Some(Self { name: (*name).to_owned(), key, deed })
    }

    pub fn writes(&self) -> bool {
        self.deed != Deed::Read
    }

    pub fn text(&self) -> String {
        let name = &self.name;
        let condition = match self.key {
            Key::Of(key) => format!(" WHERE aid = {key}"),
            Key::Bound => " WHERE aid = $2".to_owned(),
            Key::None => String::new(),
        };
        match self.deed {
            Deed::Read => format!("SELECT v FROM {name}{condition}"),
            Deed::Write(value) => format!("UPDATE {name} SET v = {value}{condition}"),
            Deed::Make(true) => format!("CREATE TABLE IF NOT EXISTS {name} (aid int, v int)"),
            Deed::Make(false) => format!("DROP TABLE IF EXISTS {name}"),
        }
    }

    /// Whether it is the coordinator's, whatever its tables are.
    pub fn is_coordinators(&self, table: Table) -> bool {
        match self.deed {
            Deed::Make(_) => true,
            Deed::Write(_) => table == Table::Colours || self.key == Key::None && table.has_shards(),
            Deed::Read => table == Table::Early || self.key == Key::None && table.has_shards(),
        }
    }
}

/// The table of that name; `early`: there is `early.accounts`.
pub fn table(name: &str, path: &str, early: bool) -> Option<Table> {
    let is_there = |table: &Table| early || *table != Table::Early;
    let in_schema = |schema: &str, name: &str| {
        Table::ALL.into_iter().filter(is_there).find(|table| table.schema() == schema && table.name() == name)
    };
    match name.split_once('.') {
        Some((schema, name)) => in_schema(schema, name),
        None => path.split(',').find_map(|schema| in_schema(schema.trim().trim_matches('"'), name)),
    }
}

impl Backend {
    /// Where this one's statement has come to, and what it does there. `bound`: the key that came with its Bind.
    pub(super) fn access(&mut self, scene: &mut Scene, statement: &Statement, bound: Option<i64>, extended: bool) {
        let Verb::Access(access) = &statement.verb else { return };
        let tag = statement.tag;
        let key = match access.key {
            Key::Of(key) => Some(key),
            Key::Bound => bound,
            Key::None => None,
        };
        let path = self.parameters.get(CONFIGURED);
        let Some(sharded) = scene.sharded.as_deref().filter(|_| self.is_node()) else {
            return scene.checks.fail("simulator", format!("{access:?} where there is no cluster"));
        };
        let own = self.makes.filter(|_| self.cluster == COORDINATOR);
        let early = own.unwrap_or(sharded.early.now && self.cluster == COORDINATOR);
        if let Deed::Make(makes) = access.deed {
            scene.checks.comes_for_coordinator(tag, access, self.cluster);
            self.makes = Some(makes);
            self.sign(tag);
            return write::command_complete(&mut self.out, if makes { "CREATE TABLE" } else { "DROP TABLE" });
        }
        let Some(table) = table(&access.name, &path, early) else {
            return self.error(tag, "42P01", "relation does not exist", extended);
        };
        scene.checks.accesses(tag, sharded, (access, key), (table, &path, own), self.cluster);
        if sharded.asks(self.cluster, table, key) == Some(false) {
            return self.error(tag, "08006", "connection to the remote node failed", extended);
        }
        scene.counts.accesses += 1;
        self.changes_or_tells(scene, tag, (access, table, key), extended);
    }

    fn changes_or_tells(
        &mut self,
        scene: &mut Scene,
        tag: Option<Tag>,
        (access, table, key): (&Access, Table, Option<i64>),
        extended: bool,
    ) {
        let place: Place = (table, key.unwrap_or(0));
        if let Deed::Write(value) = access.deed {
            self.changes.push((place, value));
            self.sign(tag);
            return write::command_complete(&mut self.out, "UPDATE 1");
        }
        let own = self.changes.iter().rev().find(|(changed, _)| *changed == place).map(|(_, value)| *value);
        let committed = scene.sharded.as_ref().and_then(|sharded| sharded.values.get(&place).copied());
        let value = own.or(committed).unwrap_or(0);
        if !extended {
            write::row_description(&mut self.out, &COLUMNS, false);
        }
        let owner = tag.map(|tag| tag.to_string()).unwrap_or_default();
        let told = format!("{table:?} {value} {}", self.modes.description());
        let session = self.description();
        let values = [owner.as_bytes(), b"0", session.as_bytes(), told.as_bytes()];
        write::data_row(&mut self.out, values.into_iter().map(Some));
        write::command_complete(&mut self.out, "SELECT 1");
    }

    /// What its transaction has changed is everybody's.
    pub(super) fn commit_changes(&mut self, scene: &mut Scene) {
        let (changes, makes) = (std::mem::take(&mut self.changes), self.makes.take());
        if let Some(sharded) = scene.sharded.as_deref_mut() {
            sharded.values.extend(changes);
            if let Some(makes) = makes {
                sharded.early.becomes(makes, scene.now);
            }
        }
    }

    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
        self.makes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read_as_they_are_written() {
        for deed in [Deed::Read, Deed::Write(7), Deed::Make(true), Deed::Make(false)] {
            for key in [Key::Of(3), Key::Bound, Key::None] {
                let key = if matches!(deed, Deed::Make(_)) { Key::None } else { key };
                let access = Access { name: "public.accounts".to_owned(), key, deed };
                let text = access.text().to_lowercase();
                assert_eq!(Access::parse(&text.split_whitespace().collect::<Vec<_>>()), Some(access));
            }
        }
    }

    #[test]
    fn a_name_is_that_of_the_first_schema_that_has_it() {
        assert_eq!(table("accounts", "\"$user\", early, public", true), Some(Table::Early));
        assert_eq!(table("accounts", "\"$user\", early, public", false), Some(Table::Accounts));
        assert_eq!(table("notes", "public", true), None);
        assert_eq!(table("tenant.notes", "public", true), Some(Table::Notes));
    }
}
