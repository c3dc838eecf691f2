//! What only a cluster's coordinator does right, of a session that is on another node for its transaction, or for what it keeps there: that would be
//! done on that node alone, without a word (Citus 13 refuses the rest by itself).

use weir_cluster::route::{Class, Why};
use weir_wire::FrontendTag;
use weir_wire::frontend::{self, BindNames, Parse};
use weir_wire::report::{Report, Severity};

use super::{Exchange, Verdict};
use crate::cluster::recipes::{Said, Session};
use crate::message::Message;
use crate::statements::definition::text_of;

/// Functions of one node alone begin so, or are called so.
const OF_ONE_NODE: [&[u8]; 7] = [b"nextval", b"setval", b"currval", b"lastval", b"advisory", b"lo_", b"pg_notify"];

impl Exchange<'_> {
    /// `None`: it is carried out.
    pub(super) fn refuse_elsewhere(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if message.present() < message.total {
            return None;
        }
        let text = match message.tag {
            FrontendTag::Query => frontend::query(message.body()).ok()?.to_vec(),
            FrontendTag::Parse => text_of(Parse::read(message.body()).ok()?.definition).to_vec(),
            FrontendTag::Bind => match BindNames::parse(message.body())?.statement {
                b"" => text_of(self.session.unnamed.last()).to_vec(),
                name => text_of(&self.session.statements.get(name)?.statement.definition).to_vec(),
            },
            _ => return None,
        };
        if !self.is_of_coordinator_alone(&text) {
            return None;
        }
        let text = "this statement is for the coordinator of the cluster, and its session is on another node";
        let report = Report::new(Severity::Error, "0A000", text)
            .detail("It would be done on that node alone.")
            .hint("Begin the transaction with it, or set route = coordinator for the user.");
        Some(self.fail_message(message, report))
    }

    fn is_of_coordinator_alone(&mut self, text: &[u8]) -> bool {
        let Some(known) = self.cx.clusters.get(&self.session.database) else { return false };
        // What names stand for does not matter here.
        let session = Session { parameters: &self.session.parameters, user: "", server_encoding: b"", path: Some("") };
        let route = self.cx.recipes.route(Said { text, types: b"", bound: None }, &session, &known.topology);
        let lower = text.to_ascii_lowercase();
        let says = |word: &[u8]| lower.windows(word.len()).any(|at| at == word);
        match (route.class, route.why) {
            (Class::Other, Why::Ddl) => !says(b"temp"),
            (Class::Other, Why::Utility) => [&b"listen"[..], b"notify"].into_iter().any(says),
            (Class::Other, _) => OF_ONE_NODE.into_iter().any(says),
            _ => false,
        }
    }
}
