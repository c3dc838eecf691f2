//! Executing statements: time, rows, transactions, parameters, COPY, and the end of a simple query.

use weir_wire::report::Severity;
use weir_wire::write::{self, ColumnType};
use weir_wire::{BackendTag, FrontendTag, Report, TransactionStatus};

use super::Scene;
use super::access;
use super::backend::{Backend, CopyIn, Phase};
use super::expression::{Expression, Session};
use super::held::{Deed, Held, Kind};
use super::language::{self, Statement, Tag, Verb};
use super::modes::Modes;
use super::notes::Ask;
use super::parameters::UNREPORTED;

/// One piece of work.
#[derive(Debug)]
pub enum Task {
    /// A statement of a simple query.
    Simple(Statement),
    /// The end of a simple query: implicit commit and ReadyForQuery.
    EndSimple,
    /// Execute of a portal.
    Execute { portal: Vec<u8>, statement: Statement, rows_max: u32 },
}

impl Task {
    pub fn tag(&self) -> Option<Tag> {
        match self {
            Self::Simple(statement) | Self::Execute { statement, .. } => statement.tag,
            Self::EndSimple => None,
        }
    }

    pub fn is_statement(&self) -> bool {
        !matches!(self, Self::EndSimple)
    }

    pub fn is_extended(&self) -> bool {
        matches!(self, Self::Execute { .. })
    }

    pub fn duration_us(&self, scene: &mut Scene) -> u64 {
        let (Self::Simple(statement) | Self::Execute { statement, .. }) = self else { return 0 };
        let own = if let Verb::Echo { sleep_us, .. } = statement.verb { sleep_us } else { 0 };
        let typical = scene.cluster.service_us;
        own + if scene.rng.chance(300) { 0 } else { scene.rng.spread(typical) }
    }
}

/// A channel of which sessions are told that do not listen to it any more.
pub const NOISE: &str = "channel";

pub(super) const COLUMNS: [(&str, ColumnType); 4] =
    [("tag", ColumnType::Text), ("row", ColumnType::Text), ("session", ColumnType::Text), ("filler", ColumnType::Text)];

/// `NOTIFY_PAYLOAD_MAX_LENGTH` (src/include/commands/async.h).
const NOTIFY_PAYLOAD_MAX: usize = 8000;

/// A line that no table takes.
pub const BAD_DATA: &[u8] = b" bad\n";

impl Backend {
    /// One message outside of the login.
    pub(super) fn message(&mut self, scene: &mut Scene, tag: u8, body: &[u8]) {
        let changed = scene.rng.chance(scene.cluster.configured_permille);
        scene.cluster.configuration += u64::from(changed);
        self.read_configuration(scene.cluster.configuration);
        if scene.rng.chance(scene.cluster.noise_permille) {
            write::report(&mut self.out, &Report::new(Severity::Notice, "00000", "noise"));
        }
        if self.copy.is_some() {
            return self.copy_message(scene, tag, body);
        }
        match FrontendTag::from_byte(tag) {
            Some(FrontendTag::Query) => self.query(scene, body),
            // Left over from a COPY that failed here before the client knew (protocol chapter, COPY Operations).
            Some(FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail) => {}
            Some(FrontendTag::Terminate) => self.end(),
            Some(tag) => self.extended(scene, tag, body),
            None => {}
        }
    }

    fn query(&mut self, scene: &mut Scene, body: &[u8]) {
        self.skip_to_sync = false;
        self.unsynced = false;
        let text = weir_wire::frontend::query(body).ok().and_then(|text| std::str::from_utf8(text).ok());
        let Some(text) = text else { return scene.checks.fail("nonsense to a server", "Query".to_owned()) };
        self.begin_work();
        // postgres.c, exec_simple_query: drop_unnamed_stmt.
        self.statements.remove(&b""[..]);
        self.tasks.extend(language::parse(text).into_iter().map(Task::Simple));
        self.tasks.push_back(Task::EndSimple);
    }

    pub(super) fn perform(&mut self, scene: &mut Scene, task: Task) {
        match task {
            Task::Simple(statement) => {
                scene.counts.statements += 1;
                self.notes_place(scene, &statement);
                if !self.refused(scene, &statement, false) {
                    self.simple(scene, &statement);
                }
            }
            Task::Execute { portal, statement, rows_max } => {
                scene.counts.statements += 1;
                self.notes_place(scene, &statement);
                if !self.refused(scene, &statement, true) {
                    self.execute(scene, &portal, &statement, rows_max);
                }
            }
            Task::EndSimple => self.ready(scene),
        }
    }

    /// ReadyForQuery, with what belongs before it.
    pub(super) fn ready(&mut self, scene: &mut Scene) {
        if !self.explicit {
            if self.failed { self.roll_back(scene) } else { self.commit(scene) }
        }
        for (name, value) in &self.parameters.0 {
            if *name != UNREPORTED && self.reported.0[name] != *value {
                write::parameter_status(&mut self.out, name, value.as_bytes());
            }
        }
        self.reported = self.parameters.clone();
        let status = self.status();
        if status == TransactionStatus::Idle && (self.notified_itself || scene.rng.chance(500)) {
            self.tell_notes(scene);
        }
        write::ready(&mut self.out, status);
        if status == TransactionStatus::Idle && scene.rng.chance(scene.cluster.noise_permille) {
            self.notified(scene.rng.index(NOTIFY_PAYLOAD_MAX));
        }
        self.flush();
    }

    /// Another session has said something on a channel that nobody listens to any more; one between two transactions is told
    /// (`ProcessClientReadInterrupt`, src/backend/tcop/postgres.c).
    fn notified(&mut self, payload: usize) {
        let mut body = self.pid.to_be_bytes().to_vec();
        body.extend_from_slice(NOISE.as_bytes());
        body.push(0);
        body.resize(body.len() + payload, b'n');
        body.push(0);
        bare(&mut self.out, BackendTag::NotificationResponse, &body);
    }

    /// Ahead of any message (`PostgresMain`, src/backend/tcop/postgres.c).
    pub(super) fn read_configuration(&mut self, value: u64) {
        let Self { defaults, parameters, snapshot, outlasting, .. } = self;
        let kept = snapshot.iter_mut().map(|(parameters, _)| parameters).chain(outlasting);
        [defaults, parameters].into_iter().chain(kept).for_each(|set| set.read_configuration(value));
    }

    /// What a ROLLBACK goes back to.
    pub(super) fn begin_work(&mut self) {
        self.snapshot.get_or_insert_with(|| (self.parameters.clone(), self.held.clone()));
    }

    fn commit(&mut self, scene: &mut Scene) {
        if let Some(outlasting) = self.outlasting.take() {
            self.parameters = outlasting;
        }
        scene.checks.committed.extend(self.writes.drain(..));
        self.commit_types(scene);
        self.commit_notes(scene);
        self.commit_changes(scene);
        self.over();
    }

    fn roll_back(&mut self, scene: &mut Scene) {
        if let Some((parameters, held)) = self.snapshot.take() {
            self.parameters = parameters;
            self.held.roll_back(&held);
        }
        self.writes.clear();
        self.asks.clear();
        self.unlock_types(&mut scene.cluster.types);
        self.forget_changes();
        self.over();
    }

    fn over(&mut self) {
        self.snapshot = None;
        self.outlasting = None;
        self.explicit = false;
        self.failed = false;
        self.modes = Modes::default();
        self.queried = false;
        self.portals.clear();
    }

    /// Errors that come before a statement does anything. True if there was one.
    fn refused(&mut self, scene: &mut Scene, statement: &Statement, extended: bool) -> bool {
        let ends =
            matches!(statement.verb, Verb::Commit | Verb::Rollback | Verb::Held(Deed::Around { recovers: true, .. }));
        if self.failed && !ends {
            self.error(statement.tag, "25P02", "current transaction is aborted", extended);
            return true;
        }
        if statement.tag.is_some() && !ends && scene.rng.chance(scene.cluster.error_permille) {
            scene.counts.faults.add("server error");
            self.error(statement.tag, "XX000", "injected error", extended);
            return true;
        }
        match &statement.verb {
            Verb::Fail => self.error(statement.tag, "22012", "division by zero", extended),
            Verb::Refused => self.error(None, "42601", "syntax error", extended),
            Verb::Fatal => {
                self.fatal("57P01", "terminating connection due to administrator command");
            }
            Verb::Unknown(text) => {
                scene.checks.fail("nonsense to a server", format!("unknown statement {text:?}"));
            }
            Verb::DiscardAll if self.explicit => {
                self.error(statement.tag, "25001", "DISCARD ALL cannot run inside a transaction block", extended);
            }
            Verb::Retype { .. } => return self.locked_out(scene, statement.tag, extended),
            _ => return self.is_kept_by_modes(statement, extended),
        }
        true
    }

    fn simple(&mut self, scene: &mut Scene, statement: &Statement) {
        match &statement.verb {
            Verb::Echo { rows, bytes, .. } => {
                write::row_description(&mut self.out, &COLUMNS, false);
                let zone = self.parameters.0["TimeZone"].clone();
                self.rows(statement.tag, 0..*rows, *bytes, &zone);
                write::command_complete(&mut self.out, &format!("SELECT {rows}"));
            }
            Verb::Zone => {
                write::row_description(&mut self.out, &COLUMNS, false);
                let zone = self.parameters.0["TimeZone"].clone();
                self.zone_row(statement.tag, &zone);
            }
            Verb::CopyIn => self.start_copy_in(statement, false),
            Verb::Select(values) => self.select(statement.tag, values, false),
            Verb::Held(deed) => self.holds(statement.tag, deed, false),
            Verb::Access(_) => self.access(scene, statement, None, false),
            Verb::Catalogue(question) => self.tell_of_cluster(scene, *question),
            _ => self.command(scene, statement, false),
        }
    }

    /// Statements without rows.
    pub(super) fn command(&mut self, scene: &mut Scene, statement: &Statement, extended: bool) {
        let done = match &statement.verb {
            Verb::Empty => return write::empty_query_response(&mut self.out),
            Verb::Begin { .. } | Verb::Modes(_) | Verb::Set { .. } | Verb::SetLocal { .. } => {
                let Some(done) = self.set_up(statement, extended) else { return };
                done
            }
            Verb::Commit if self.failed => {
                self.roll_back(scene);
                "ROLLBACK"
            }
            Verb::Commit => {
                self.commit(scene);
                "COMMIT"
            }
            Verb::Rollback => {
                self.roll_back(scene);
                "ROLLBACK"
            }
            Verb::Ask(ask) => {
                self.asks(statement.tag, ask.clone());
                ask.done()
            }
            Verb::Write => {
                self.writes.extend(statement.tag);
                "INSERT 0 1"
            }
            Verb::Do(values) | Verb::SelectWhere(values) => {
                if let Some(code) = values.iter().find_map(|value| value.evaluate(self).err()) {
                    return self.error(statement.tag, code, "invalid value for parameter", extended);
                }
                if matches!(statement.verb, Verb::Do(_)) { "DO" } else { "SELECT 0" }
            }
            Verb::Reset(name) => {
                self.parameters.reset(name, &self.defaults);
                "RESET"
            }
            Verb::ResetAll => {
                self.parameters.reset_all(&self.defaults);
                self.outlasting = None;
                "RESET"
            }
            Verb::DiscardAll => {
                self.parameters = self.defaults.clone();
                self.snapshot = None;
                self.outlasting = None;
                self.statements.clear();
                self.portals.clear();
                self.held = Held::default();
                self.asks(statement.tag, Ask::UnlistenAll);
                "DISCARD ALL"
            }
            Verb::DeallocateAll => {
                self.statements.clear();
                self.held.without(Kind::Prepared);
                "DEALLOCATE ALL"
            }
            Verb::AlterTable | Verb::Retype { .. } => self.alter_table(scene, statement),
            Verb::CopyOut { rows, bytes } => return self.copy_out(statement.tag, *rows, *bytes),
            _ => return scene.checks.fail("simulator", format!("not a command: {statement:?}")),
        };
        self.sign(statement.tag);
        write::command_complete(&mut self.out, done);
    }

    pub(super) fn select(&mut self, tag: Option<Tag>, values: &[Expression], extended: bool) {
        let values: Result<Vec<_>, _> = values.iter().map(|value| value.evaluate(self)).collect();
        let values = match values {
            Ok(values) => values,
            Err(code) => return self.error(tag, code, "invalid value for parameter", extended),
        };
        if !extended {
            write::row_description(&mut self.out, &vec![("set_config", ColumnType::Text); values.len()], false);
        }
        write::data_row(&mut self.out, values.iter().map(|value| value.as_ref().map(String::as_bytes)));
        write::command_complete(&mut self.out, "SELECT 1");
    }

    /// A notice that says whose statement is done, as the command tag cannot.
    pub(super) fn sign(&mut self, tag: Option<Tag>) {
        if let Some(tag) = tag {
            write::report(&mut self.out, &Report::new(Severity::Notice, "00000", format!("done tag={tag}")));
        }
    }

    pub(super) fn describe_rows(&mut self, verb: &Verb) {
        match verb {
            Verb::Echo { .. } | Verb::Zone => write::row_description(&mut self.out, &COLUMNS, false),
            Verb::Access(access) if access.deed == access::Deed::Read => {
                write::row_description(&mut self.out, &COLUMNS, false)
            }
            _ => write::no_data(&mut self.out),
        }
    }

    /// `zone`: TimeZone when the statement was parsed, which each row repeats as often as it has room.
    pub(super) fn rows(&mut self, tag: Option<Tag>, which: std::ops::Range<u32>, bytes: u32, zone: &str) {
        let tag = tag.map(|tag| tag.to_string()).unwrap_or_default();
        let session = self.description();
        let filler: Vec<u8> = zone.bytes().cycle().take(bytes as usize).collect();
        for row in which {
            let row = row.to_string();
            let values = [tag.as_bytes(), row.as_bytes(), session.as_bytes(), &filler];
            write::data_row(&mut self.out, values.into_iter().map(Some));
        }
    }

    pub(super) fn zone_row(&mut self, tag: Option<Tag>, zone: &str) {
        let tag = tag.map(|tag| tag.to_string()).unwrap_or_default();
        let session = self.description();
        let values = [tag.as_bytes(), b"0", session.as_bytes(), zone.as_bytes()];
        write::data_row(&mut self.out, values.into_iter().map(Some));
        write::command_complete(&mut self.out, "SELECT 1");
    }

    fn copy_out(&mut self, tag: Option<Tag>, rows: u32, bytes: u32) {
        copy_response(&mut self.out, BackendTag::CopyOutResponse);
        let text = tag.map(|tag| tag.to_string()).unwrap_or_default();
        for row in 0..rows {
            let line = format!("tag={text} {row} {}\n", "x".repeat(bytes as usize));
            bare(&mut self.out, BackendTag::CopyData, line.as_bytes());
        }
        bare(&mut self.out, BackendTag::CopyDone, &[]);
        write::command_complete(&mut self.out, &format!("COPY {rows}"));
    }

    pub(super) fn start_copy_in(&mut self, statement: &Statement, extended: bool) {
        copy_response(&mut self.out, BackendTag::CopyInResponse);
        self.flush();
        self.copy = Some(CopyIn { tag: statement.tag, extended, messages: 0 });
    }

    /// A message while COPY FROM STDIN runs. Flush and Sync are ignored (protocol chapter, COPY Operations).
    fn copy_message(&mut self, scene: &mut Scene, tag: u8, body: &[u8]) {
        let Some(copy) = &mut self.copy else { return };
        let (owner, extended) = (copy.tag, copy.extended);
        match FrontendTag::from_byte(tag) {
            Some(FrontendTag::CopyData) => {
                copy.messages += 1;
                let named = std::str::from_utf8(body).ok().and_then(Tag::find);
                if owner.is_some() && named != owner {
                    scene.checks.fail("data of another", format!("COPY of {owner:?} got {named:?}"));
                }
                if body.ends_with(BAD_DATA) {
                    // From here on nothing is read in the copy: what comes behind is not for it (copyfromparse.c,
                    // CopyGetData swallows Flush and Sync only while it reads).
                    self.copy = None;
                    self.error(owner, "22P02", "invalid input syntax", extended);
                }
            }
            Some(FrontendTag::CopyDone) => {
                let messages = copy.messages;
                self.copy = None;
                self.sign(owner);
                write::command_complete(&mut self.out, &format!("COPY {messages}"));
            }
            Some(FrontendTag::CopyFail) => {
                self.copy = None;
                self.error(owner, "57014", "COPY from stdin failed", extended);
            }
            Some(FrontendTag::Flush | FrontendTag::Sync) => {}
            Some(FrontendTag::Terminate) => self.end(),
            _ => {
                self.copy = None;
                self.error(owner, "08P01", "unexpected message during COPY from stdin", extended);
                // What interrupted it is not lost: PostgreSQL treats it as an error of the COPY and goes on after it.
            }
        }
    }

    /// An administrator ends this session.
    pub fn terminate_by_administrator(&mut self) {
        if matches!(self.phase, Phase::Ready) {
            self.fatal("57P01", "terminating connection due to administrator command");
        }
    }

    pub fn in_transaction(&self) -> bool {
        self.status() != TransactionStatus::Idle
    }
}

impl Session for Backend {
    fn current(&self, name: &str) -> String {
        self.parameters.get(name)
    }

    fn own(&self, name: &str) -> Option<String> {
        let value = self.parameters.0.get(name)?;
        (self.defaults.0.get(name) != Some(value)).then(|| value.clone())
    }

    fn set(&mut self, name: &str, value: &str, local: bool) -> Result<(), &'static str> {
        if local {
            // What is set for the transaction goes again with its end.
            self.outlasting.get_or_insert_with(|| self.parameters.clone());
        } else if let Some(outlasting) = &mut self.outlasting {
            outlasting.set(name, value)?;
        }
        self.parameters.set(name, value)
    }
}

fn copy_response(out: &mut Vec<u8>, tag: BackendTag) {
    bare(out, tag, &[0, 0, 0]); // Text, no columns.
}

pub(super) fn bare(out: &mut Vec<u8>, tag: BackendTag, body: &[u8]) {
    out.push(tag as u8);
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}
