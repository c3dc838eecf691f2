//! One simulated backend: its state, its message queue, and the watch that nobody shares it.

use std::collections::{BTreeMap, VecDeque};

use weir_core::time::{Duration, Time};
use weir_wire::report::Severity;
use weir_wire::{BackendTag, FrontendTag, HEADER_LEN, Header, ProtocolVersion, Report, TransactionStatus, write};

use super::execute::Task;
use super::held::Held;
use super::language::{self, Tag};
use super::login::Login;
use super::modes::Modes;
use super::notes::{Ask, Channels};
use super::parameters::Parameters;
use super::sharded::Place;
use super::{Retyped, Scene};

/// How far a backend has come.
pub enum Phase {
    Startup,
    TlsMarker,
    Login(Login),
    Ready,
    /// Says no more; what was said is still sent.
    Ended,
}

pub struct Prepared {
    pub text: String,
    pub schema_version: u32,
    /// Those of its parameters, for good.
    pub types: u32,
    /// TimeZone at its Parse: PostgreSQL turns literals into values then.
    pub zone: String,
}

/// A portal and how far it was read.
pub struct Portal {
    pub text: String,
    pub tag: Option<Tag>,
    pub value: Option<String>,
    pub key: Option<i64>,
    pub zone: String,
    pub rows_sent: u32,
}

/// COPY FROM STDIN in progress.
pub struct CopyIn {
    pub tag: Option<Tag>,
    pub extended: bool,
    pub messages: u32,
}

/// A statement in work.
pub struct Running {
    pub task: Task,
    pub until: Time,
}

pub struct Backend {
    pub link: usize,
    pub cluster: usize,
    /// The node of a cluster that it was connected to as.
    pub node: Option<usize>,
    pub phase: Phase,
    pub is_cancel: bool,
    /// Counts among the cluster's sessions.
    pub counted: bool,
    pub user: String,
    pub database: String,
    pub pid: u32,
    pub key: Vec<u8>,
    pub version: ProtocolVersion,
    pub input: Vec<u8>,
    pub(super) messages: VecDeque<(u8, Vec<u8>)>,
    pub(super) out: Vec<u8>,
    /// So much of `out` may be sent.
    pub(super) flushed: usize,
    pub(super) tasks: VecDeque<Task>,
    pub running: Option<Running>,
    pub(super) defaults: Parameters,
    pub(super) parameters: Parameters,
    pub(super) reported: Parameters,
    pub(super) statements: BTreeMap<Vec<u8>, Prepared>,
    pub(super) portals: BTreeMap<Vec<u8>, Portal>,
    pub(super) copy: Option<CopyIn>,
    /// An explicit transaction is open; `failed`: it only waits for its end.
    pub(super) explicit: bool,
    pub(super) failed: bool,
    pub(super) held: Held,
    /// To go back to; there while a transaction, explicit or not, is open.
    pub(super) snapshot: Option<(Parameters, Held)>,
    /// Those that hold again after a commit; there while some are set for the transaction only.
    pub(super) outlasting: Option<Parameters>,
    pub(super) writes: Vec<Tag>,
    /// What it listens to, what its transaction asks for, and how many notes it has read.
    pub(super) channels: Channels,
    pub(super) asks: Vec<(Option<Tag>, Ask)>,
    pub(super) heard: usize,
    pub(super) notified_itself: bool,
    /// The types that its transaction has made.
    pub(super) retyped: Option<Retyped>,
    /// What its transaction is, whether it has asked for anything yet, and what it has changed in a cluster's tables.
    pub(super) modes: Modes,
    pub(super) queried: bool,
    pub(super) changes: Vec<(Place, u32)>,
    /// Whether it leaves `early.accounts` there.
    pub(super) makes: Option<bool>,
    pub(super) skip_to_sync: bool,
    /// Extended messages came since the last Sync.
    pub(super) unsynced: bool,
    /// The client that the work in hand belongs to.
    occupant: Option<u32>,
}

impl Backend {
    pub fn new(link: usize, cluster: usize, node: Option<usize>) -> Self {
        let parameters = Parameters::new("");
        Self {
            link,
            cluster,
            node,
            phase: Phase::Startup,
            is_cancel: false,
            counted: false,
            user: String::new(),
            database: String::new(),
            pid: 0,
            key: Vec::new(),
            version: ProtocolVersion::V3_0,
            input: Vec::new(),
            messages: VecDeque::new(),
            out: Vec::new(),
            flushed: 0,
            tasks: VecDeque::new(),
            running: None,
            defaults: parameters.clone(),
            parameters: parameters.clone(),
            reported: parameters,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            copy: None,
            explicit: false,
            failed: false,
            held: Held::default(),
            snapshot: None,
            outlasting: None,
            writes: Vec::new(),
            channels: Channels::new(),
            asks: Vec::new(),
            heard: 0,
            notified_itself: false,
            retyped: None,
            modes: Modes::default(),
            queried: false,
            changes: Vec::new(),
            makes: None,
            skip_to_sync: false,
            unsynced: false,
            occupant: None,
        }
    }

    pub fn ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// In a transaction, or with anything begun and not finished.
    pub fn busy(&self) -> bool {
        self.status() != TransactionStatus::Idle
            || self.running.is_some()
            || self.copy.is_some()
            || self.unsynced
            || !self.tasks.is_empty()
            || !self.messages.is_empty()
    }

    pub fn is_session(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Bytes taken from the network and not worked on: beyond a limit a backend stops reading.
    pub fn reads(&self) -> bool {
        self.input.len() + self.messages.iter().map(|(_, body)| body.len()).sum::<usize>() < 64 * 1024
    }

    pub fn take_output(&mut self) -> Vec<u8> {
        let rest = self.out.split_off(self.flushed);
        self.flushed = 0;
        std::mem::replace(&mut self.out, rest)
    }

    pub(super) fn flush(&mut self) {
        self.flushed = self.out.len();
    }

    pub fn receive(&mut self, scene: &mut Scene, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let more = match self.phase {
                Phase::Startup => self.startup_packet(scene),
                Phase::TlsMarker => self.tls_marker(scene),
                Phase::Login(_) => self.login_message(scene),
                Phase::Ready => self.message_arrived(scene),
                Phase::Ended => {
                    self.input.clear();
                    false
                }
            };
            if !more || scene.checks.violation.is_some() {
                return;
            }
        }
    }

    fn message_arrived(&mut self, scene: &mut Scene) -> bool {
        let Some(header) = self.input.first_chunk::<HEADER_LEN>() else { return false };
        let header = Header::parse(header);
        let tag = FrontendTag::from_byte(header.tag);
        let (Some(tag), Some(length)) = (tag, header.body_len) else {
            scene
                .checks
                .fail("nonsense to a server", format!("message {:?} {:?}", header.tag as char, header.body_len));
            return false;
        };
        let end = HEADER_LEN + length as usize;
        if self.input.len() < end {
            return false;
        }
        let body: Vec<u8> = self.input.drain(..end).skip(HEADER_LEN).collect();
        self.watch_occupant(scene, tag, &body);
        self.unsynced |= matches!(
            tag,
            FrontendTag::Parse | FrontendTag::Bind | FrontendTag::Describe | FrontendTag::Execute | FrontendTag::Close
        );
        self.messages.push_back((header.tag, body));
        true
    }

    /// Fails if work of one client arrives while work of another is in hand.
    fn watch_occupant(&mut self, scene: &mut Scene, tag: FrontendTag, body: &[u8]) {
        if !self.busy() {
            self.occupant = None;
        }
        let Some(asker) = asker(tag, body) else { return };
        if let Some(occupant) = self.occupant.filter(|occupant| *occupant != asker.client) {
            let text = format!(
                "backend {} got {asker} while work of client {occupant} is in hand (status {:?})",
                self.pid,
                self.status()
            );
            scene.checks.fail("server shared", text);
        }
        scene.checks.runs_at(asker.client, &self.database, &self.user);
        self.occupant = Some(asker.client);
    }

    pub fn status(&self) -> TransactionStatus {
        match (self.explicit, self.failed) {
            (false, _) => TransactionStatus::Idle,
            (true, false) => TransactionStatus::InTransaction,
            (true, true) => TransactionStatus::Failed,
        }
    }

    /// Works until something takes time, nothing is left, or the output must drain first.
    pub fn work(&mut self, scene: &mut Scene, blocked: bool) {
        while self.is_session() && !blocked && scene.checks.violation.is_none() && self.out.len() < 256 * 1024 {
            if let Some(running) = self.running.take() {
                if running.until > scene.now {
                    self.running = Some(running);
                    break;
                }
                self.perform(scene, running.task);
            } else if self.copy.is_none()
                && let Some(task) = self.tasks.pop_front()
            {
                self.start(scene, task);
            } else if let Some((tag, body)) = self.messages.pop_front() {
                self.message(scene, tag, &body);
            } else {
                self.rest(scene);
                break;
            }
            // Its send buffer holds this much (pqcomm.c, PQ_SEND_BUFFER_SIZE); then it sends unasked.
            if self.out.len() > 8 * 1024 {
                self.flush();
            }
        }
    }

    /// It waits for the next message, and is told of others' notifications where no transaction is open.
    fn rest(&mut self, scene: &Scene) {
        if self.snapshot.is_none() && !self.explicit && self.copy.is_none() && self.heard < scene.cluster.notes.len() {
            self.tell_notes(scene);
            self.flush();
        }
    }

    fn start(&mut self, scene: &mut Scene, task: Task) {
        let pause = task.duration_us(scene);
        if pause == 0 {
            self.perform(scene, task);
        } else {
            self.running = Some(Running { task, until: scene.now + Duration(pause) });
        }
    }

    /// A cancel request with our key came. It hits what runs at this moment, or nothing (postgres.c, ProcessInterrupts).
    pub fn cancel(&mut self, scene: &mut Scene) {
        let (tag, extended) = match (&self.running, &self.copy) {
            (Some(running), _) if running.task.is_statement() => (running.task.tag(), running.task.is_extended()),
            (None, Some(copy)) => (copy.tag, copy.extended),
            _ => {
                scene.counts.cancels_idle += 1;
                return;
            }
        };
        scene.counts.cancels_hit += 1;
        scene.checks.cancel_hit(tag);
        self.running = None;
        self.copy = None;
        self.error(tag, "57014", "canceling statement due to user request", extended);
    }

    pub(super) fn error(&mut self, tag: Option<Tag>, code: &'static str, message: &str, extended: bool) {
        let text = tag.map_or_else(|| message.to_owned(), |tag| format!("{message} tag={tag}"));
        if code == "0A000" {
            revalidation_error(&mut self.out, &text);
        } else {
            write::report(&mut self.out, &Report::new(Severity::Error, code, text));
        }
        self.flush();
        self.failed = true;
        if extended {
            self.skip_to_sync = true;
        } else {
            self.tasks.retain(|task| matches!(task, Task::EndSimple));
        }
    }

    pub fn fatal(&mut self, code: &'static str, message: &str) {
        write::report(&mut self.out, &Report::new(Severity::Fatal, code, message.to_owned()));
        self.end();
    }

    pub fn end(&mut self) {
        self.flush();
        self.phase = Phase::Ended;
        self.running = None;
        self.tasks.clear();
        self.messages.clear();
    }
}

/// Whose work a message is, where it says so.
fn asker(tag: FrontendTag, body: &[u8]) -> Option<Tag> {
    let text = match tag {
        FrontendTag::Query => body.split(|byte| *byte == 0).next()?,
        FrontendTag::Parse => body.split(|byte| *byte == 0).nth(1)?,
        FrontendTag::Bind => return super::extended::bind_values(body).and_then(|bind| bind.tag),
        _ => return None,
    };
    language::parse(std::str::from_utf8(text).ok()?).first()?.tag
}

/// The one error whose routine clients and poolers look at (plancache.c, RevalidateCachedQuery).
fn revalidation_error(out: &mut Vec<u8>, text: &str) {
    let fields = format!("SERROR\0VERROR\0C0A000\0M{text}\0Fplancache.c\0RRevalidateCachedQuery\0\0");
    out.push(BackendTag::ErrorResponse as u8);
    out.extend_from_slice(&(fields.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(fields.as_bytes());
}
