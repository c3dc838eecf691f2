//! The kinds of transactions whose cost is guarded: what clients say, and when the server answers.

use weir_core::settings::SessionState;
use weir_wire::write;

use crate::messages;

/// Who sees bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Client(usize),
    Server,
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Act {
    /// A client sends bytes.
    Say(usize, Vec<u8>),
    /// The server sends all that it has to say.
    Answer,
    /// It sends so many bytes of it.
    AnswerFirst(usize),
}

/// A kind of transaction. A cycle leaves everything as it was, so that it can be repeated for ever.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// The `application_name` that each client asks for.
    pub clients: &'static [&'static str],
    pub session_state: SessionState,
    pub prelude: Vec<Act>,
    pub cycle: Vec<Act>,
    /// Transactions in a cycle.
    pub transactions: u64,
    /// The tags of the messages that each end gets in a cycle.
    pub sees: Vec<(End, &'static str)>,
}

/// All of them, in the order of `bounds.txt`.
pub fn all() -> Vec<Kind> {
    let mut all =
        vec![simple(), rows(), extended(), prepared(), described(), transaction(), waiting(), parameters(), split()];
    all.extend([("keep-simple", literals()), ("keep-extended", extended()), ("keep-prepared", prepared())].map(kept));
    all
}

/// No text is like the one before.
fn literals() -> Kind {
    Kind {
        cycle: vec![say(SELECT), Act::Answer, say(&SELECT.replace('5', "6")), Act::Answer],
        transactions: 2,
        sees: vec![(End::Server, "QQ"), (End::Client(0), "TDCZTDCZ")],
        ..simple()
    }
}

/// The same where what clients leave in sessions is kept, and they leave nothing.
fn kept((name, kind): (&'static str, Kind)) -> Kind {
    Kind { name, session_state: SessionState::Keep, ..kind }
}

const ONE: &[&str] = &["one"];
const SELECT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;";
const PREPARED: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = $1;";

fn say(text: &str) -> Act {
    Act::Say(0, messages::query(text))
}

/// A client's batch of messages.
fn batch(write: impl FnOnce(&mut Vec<u8>)) -> Act {
    let mut out = Vec::new();
    write(&mut out);
    write::sync(&mut out);
    Act::Say(0, out)
}

/// One simple query with one row.
fn simple() -> Kind {
    Kind {
        name: "simple",
        clients: ONE,
        session_state: SessionState::Pgbouncer,
        prelude: Vec::new(),
        cycle: vec![say(SELECT), Act::Answer],
        transactions: 1,
        sees: vec![(End::Server, "Q"), (End::Client(0), "TDCZ")],
    }
}

/// One simple query with ten rows: what each further message costs.
fn rows() -> Kind {
    Kind {
        name: "rows",
        cycle: vec![say("rows 10"), Act::Answer],
        sees: vec![(End::Server, "Q"), (End::Client(0), "TDDDDDDDDDDCZ")],
        ..simple()
    }
}

/// The extended protocol with the unnamed statement, as drivers speak it for a query with parameters.
fn extended() -> Kind {
    let messages = batch(|out| {
        messages::parse(out, "", PREPARED);
        messages::bind(out, "", "12345");
        messages::describe_portal(out);
        messages::execute(out);
    });
    Kind {
        name: "extended",
        cycle: vec![messages, Act::Answer],
        sees: vec![(End::Server, "PBDES"), (End::Client(0), "12TDCZ")],
        ..simple()
    }
}

fn prepare() -> Vec<Act> {
    vec![batch(|out| messages::parse(out, "P_0", PREPARED)), Act::Answer]
}

/// A prepared statement, by drivers that remember its description.
fn prepared() -> Kind {
    let messages = batch(|out| {
        messages::bind(out, "P_0", "12345");
        messages::execute(out);
    });
    Kind {
        name: "prepared",
        prelude: prepare(),
        cycle: vec![messages, Act::Answer],
        sees: vec![(End::Server, "BES"), (End::Client(0), "2DCZ")],
        ..simple()
    }
}

/// A prepared statement as libpq executes it (`PQsendQueryGuts`): described each time.
fn described() -> Kind {
    let messages = batch(|out| {
        messages::bind(out, "P_0", "12345");
        messages::describe_portal(out);
        messages::execute(out);
    });
    Kind {
        name: "described",
        prelude: prepare(),
        cycle: vec![messages, Act::Answer],
        sees: vec![(End::Server, "BDES"), (End::Client(0), "2TDCZ")],
        ..simple()
    }
}

/// BEGIN, a query, COMMIT.
fn transaction() -> Kind {
    Kind {
        name: "transaction",
        cycle: vec![say("BEGIN"), Act::Answer, say(SELECT), Act::Answer, say("COMMIT"), Act::Answer],
        sees: vec![(End::Server, "QQQ"), (End::Client(0), "CZTDCZCZ")],
        ..simple()
    }
}

/// Two clients and one server: each waits for the other.
fn waiting() -> Kind {
    let second = Act::Say(1, messages::query(SELECT));
    Kind {
        name: "waiting",
        clients: &["one", "one"],
        prelude: vec![say(SELECT)],
        cycle: vec![second, Act::Answer, say(SELECT), Act::Answer],
        transactions: 2,
        sees: vec![(End::Server, "QQ"), (End::Client(0), "TDCZ"), (End::Client(1), "TDCZ")],
        ..simple()
    }
}

/// Two clients with different parameters share a server: each transaction changes them first.
fn parameters() -> Kind {
    Kind {
        name: "parameters",
        clients: &["one", "two"],
        cycle: vec![say(SELECT), Act::Answer, Act::Say(1, messages::query(SELECT)), Act::Answer],
        transactions: 2,
        // The client is told of its own parameter, which is harmless: PostgreSQL may report one at any time.
        sees: vec![(End::Server, "QQQQ"), (End::Client(0), "TDCZ"), (End::Client(1), "TDCZ")],
        ..simple()
    }
}

/// Messages that come in pieces: a query cut in its header, a reply cut in the CommandComplete and in the ReadyForQuery.
fn split() -> Kind {
    let query = messages::query(SELECT);
    let (first, second) = query.split_at(3);
    let mut reply = Vec::new();
    messages::row_description(&mut reply);
    messages::row(&mut reply, "12345");
    let to_command = reply.len() + 7;
    write::command_complete(&mut reply, "SELECT 1");
    let to_ready = reply.len() + 2;
    Kind {
        name: "split",
        cycle: vec![
            Act::Say(0, first.to_vec()),
            Act::Say(0, second.to_vec()),
            Act::AnswerFirst(to_command),
            Act::AnswerFirst(to_ready - to_command),
            Act::Answer,
        ],
        ..simple()
    }
}
