//! What a node says of its cluster: the answers to the queries that the pooler asks.

use weir_cluster::catalogue::{COLUMNS, FINGERPRINT, NAMESAKES, NODES, PLACEMENTS, SCHEMAS};
use weir_wire::write::{self, ColumnType};

use super::Scene;
use super::backend::Backend;
use super::parameters::CONFIGURED;
use super::sharded::{COORDINATOR, SHARDED, SHARDS, Sharded, Table, hashes};
use crate::traffic::FIRST_PORT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// With the search path that sessions begin with.
    Fingerprint,
    Nodes,
    Placements,
    Schemas,
    Columns,
    Namesakes,
}

impl Question {
    pub fn parse(text: &str) -> Option<Self> {
        const QUESTIONS: [(&str, Question); 5] = [
            (NODES, Question::Nodes),
            (PLACEMENTS, Question::Placements),
            (SCHEMAS, Question::Schemas),
            (COLUMNS, Question::Columns),
            (NAMESAKES, Question::Namesakes),
        ];
        if text.strip_prefix("SELECT (").is_some_and(|rest| rest.starts_with(FINGERPRINT)) {
            return Some(Self::Fingerprint);
        }
        QUESTIONS.into_iter().find(|(known, _)| *known == text).map(|(_, question)| question)
    }
}

type Row = Vec<Option<String>>;

fn row<const N: usize>(values: [&str; N]) -> Row {
    values.map(|value| Some(value.to_owned())).to_vec()
}

/// What a server that is a node is called by the others.
pub fn host(server: usize) -> String {
    format!("node{server}")
}

impl Sharded {
    /// `server`: the node that is asked, whose own relations it tells of.
    fn answer(&self, question: Question, server: usize) -> Vec<Row> {
        let placement = &self.placement.now;
        match question {
            Question::Fingerprint => Vec::new(),
            Question::Nodes => {
                let told = |(group, server): (&i32, &usize)| {
                    row([&group.to_string(), &host(*server), &(usize::from(FIRST_PORT) + server).to_string(), "t"])
                };
                placement.nodes.iter().map(told).collect()
            }
            Question::Placements => self.placements(),
            Question::Schemas => vec![row(["tenant"])],
            Question::Columns => {
                let of = |table: &Table| [*table; 2].into_iter().zip(["aid", "v"]);
                let tables = Table::ALL.iter().filter(|table| **table != Table::Early);
                tables.flat_map(of).map(|(table, column)| row([table.schema(), table.name(), column, "f"])).collect()
            }
            Question::Namesakes if self.early.now && server == COORDINATOR => {
                vec![row([Table::Early.schema(), Table::Early.name()])]
            }
            Question::Namesakes => Vec::new(),
        }
    }

    fn placements(&self) -> Vec<Row> {
        let placement = &self.placement.now;
        let told = |table: Table, kind: [&str; 3], column: [Option<&str>; 3], hashes: [Option<i64>; 2], group: i32| {
            let mut row = row([table.schema(), table.name(), kind[0], kind[1], kind[2]]);
            row.extend(column.map(|value| value.map(str::to_owned)));
            row.extend(hashes.map(|hash| hash.map(|hash| hash.to_string())));
            row.push(Some(group.to_string()));
            row
        };
        let mut rows = Vec::new();
        for table in [Table::Accounts, Table::History] {
            for shard in 0..SHARDS {
                let (first, last) = hashes(shard);
                let column = [Some("aid"), Some("int4"), Some("-1")];
                let group = placement.owners[shard];
                rows.push(told(table, ["h", "s", "1"], column, [Some(first), Some(last)], group));
            }
        }
        for group in placement.nodes.keys() {
            rows.push(told(Table::Colours, ["n", "t", "2"], [None; 3], [None; 2], *group));
        }
        rows.push(told(Table::Notes, ["n", "s", "3"], [None; 3], [None; 2], placement.tenant));
        rows
    }

    /// One text for each state that it is in.
    fn fingerprint(&self) -> String {
        format!("{:?} {}", self.placement.now, self.early.now)
    }
}

impl Backend {
    pub fn is_node(&self) -> bool {
        crate::draws::name_here(&self.database) == SHARDED
    }

    pub(super) fn tell_of_cluster(&mut self, scene: &mut Scene, question: Question) {
        let Some(sharded) = scene.sharded.as_deref().filter(|_| self.is_node()) else {
            return scene
                .checks
                .fail("nonsense to a server", "the catalogue of a cluster where there is none".to_owned());
        };
        if scene.rng.chance(scene.cluster.error_permille) {
            return self.error(None, "XX000", "injected error", false);
        }
        let path = || self.defaults.get(CONFIGURED);
        let rows = match question {
            Question::Fingerprint => vec![row([&sharded.fingerprint(), &path()])],
            _ => sharded.answer(question, self.cluster),
        };
        scene.counts.catalogues += u64::from(question == Question::Namesakes);
        write::row_description(
            &mut self.out,
            &vec![("value", ColumnType::Text); rows.first().map_or(1, Vec::len)],
            false,
        );
        for row in &rows {
            write::data_row(&mut self.out, row.iter().map(|value| value.as_ref().map(String::as_bytes)));
        }
        write::command_complete(&mut self.out, &format!("SELECT {}", rows.len()));
    }
}
