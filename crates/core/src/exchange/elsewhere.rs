//! What only a cluster's coordinator does right, of a session that is on another node for its transaction, or for what it keeps there: that would be
//! done on that node alone, without a word (Citus 13 refuses the rest by itself).

use weir_cluster::route::{Class, Why};
use weir_wire::FrontendTag;
use weir_wire::frontend::{self, BindNames, Parse};
use weir_wire::report::{Report, Severity};

use super::routed::is_several;
use super::{Exchange, Verdict};
use crate::cluster::recipes::{Said, Session};
use crate::message::Message;
use crate::statements::definition::text_of;

/// Functions of one node alone begin so, or are called so.
const OF_ONE_NODE: [&str; 8] =
    ["nextval", "setval", "currval", "lastval", "advisory", "lo_", "pg_notify", "pg_export_snapshot"];
/// Words that begin what is done on one node alone.
const BEGIN_IT: [&str; 6] = ["create", "alter", "drop", "listen", "unlisten", "notify"];
/// What names behind it mean is not known.
const TURN_NAMES: [&str; 4] = ["search_path", "schema", "role", "authorization"];

impl Exchange<'_> {
    /// `None`: it is carried out.
    pub(super) fn refuse_elsewhere(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if message.present() < message.total {
            let is_text = matches!(message.tag, FrontendTag::Query | FrontendTag::Parse);
            return is_text.then(|| self.fail_message(message, refused("It is too long to be looked at.")));
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
        self.is_of_coordinator_alone(&text).then(|| {
            self.fail_message(message, refused("It would be done on that node alone, or mean something else there."))
        })
    }

    fn is_of_coordinator_alone(&mut self, text: &[u8]) -> bool {
        let Some(known) = self.cx.clusters.get(&self.session.database) else { return false };
        let session = Session {
            parameters: &self.session.parameters,
            user: &self.session.user,
            server_encoding: self.server.encoding(),
            path: self.knowledge.path.as_deref(),
        };
        let route = self.cx.recipes.route(Said { text, types: b"", bound: None }, &session, &known.topology);
        let lower = String::from_utf8_lossy(text).to_ascii_lowercase();
        let says = |part: &&str| lower.contains(*part);
        let words =
            || lower.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty());
        let is_said = |list: &[&str]| words().any(|word| list.contains(&word));
        match (route.class, route.why) {
            (Class::Other, Why::Local) => true,
            (Class::Other, Why::Ddl) => !creates_temporary(&words().take(4).collect::<Vec<_>>()) || is_several(text),
            // Of one statement that was read the words tell nothing more.
            (Class::Other, Why::Function | Why::Unknown | Why::Catalogue | Why::Type | Why::Default)
                if !is_several(text) =>
            {
                OF_ONE_NODE.iter().any(says)
            }
            (Class::Other, _) => OF_ONE_NODE.iter().any(says) || is_said(&BEGIN_IT),
            (Class::Sets | Class::Follows, _) => is_said(&TURN_NAMES),
            _ => false,
        }
    }
}

/// What only its own session has is as good on any node.
fn creates_temporary(words: &[&str]) -> bool {
    matches!(words, ["create", "temp" | "temporary", ..] | ["create", "local" | "global", "temp" | "temporary", ..])
        || matches!(words, ["create", "or", "replace", "temp" | "temporary"])
}

fn refused(detail: &'static str) -> Report {
    let text = "this statement is for the coordinator of the cluster, and its session is on another node";
    Report::new(Severity::Error, "0A000", text)
        .detail(detail)
        .hint("Begin the transaction with it, or set route = coordinator for the user.")
}
