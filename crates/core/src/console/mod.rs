//! The administration console: the databases `pgbouncer` and `weir`, over both query protocols.
//!
//! Owns what a console session holds and how its messages are answered. What a worker does when asked is `orders.rs`, what it
//! reports `report.rs` and `sockets.rs`, how that looks as rows `show.rs`. One command is carried out at a time; while workers are
//! asked, the console's client is not read.

pub(crate) mod command;
mod orders;
mod report;
mod show;
mod sockets;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::frontend::{self, BindNames, Parse, Target};
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, HEADER_LEN, Header, TransactionStatus, write};

use crate::client::ClientState;
use crate::contract::event::Event;
use crate::failure::Failure;
use crate::id::{ClientId, WorkerId};
use crate::inbox::Cursor;
use crate::mail::Letter;
use crate::worker::Worker;

use command::{COMMAND_BYTES_MAX, Command, Show};
use report::Cell;
pub(crate) use report::{Answer, Census, Question};

/// Statements and portals that one console session may hold.
const NAMES_MAX: usize = 64;

/// How the command in hand came, and so how its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// RowDescription, rows, CommandComplete, ReadyForQuery.
    Simple,
    /// Rows and CommandComplete; the client has described it and will sync.
    Extended { binary: bool },
}

#[derive(Debug)]
struct Pending {
    command: Command,
    form: Form,
    answers_due: u16,
    answer: Answer,
    /// Rows that are told in portions go on with this worker, from this slot on.
    rest: Option<(WorkerId, u32)>,
    /// Who was asked for the last of them.
    asked: WorkerId,
}

impl Pending {
    fn asks_for_portions(&self) -> bool {
        matches!(self.command, Command::Show(Show::Clients | Show::Servers))
    }
}

#[derive(Debug, Clone)]
struct Portal {
    line: Arc<str>,
    binary: bool,
}

/// One session of the console.
#[derive(Debug)]
pub(crate) struct Console {
    user: Arc<str>,
    /// May do everything; otherwise only SHOW.
    admin: bool,
    statements: BTreeMap<Vec<u8>, Arc<str>>,
    portals: BTreeMap<Vec<u8>, Portal>,
    /// After an error in the extended protocol, up to the next Sync.
    skipping: bool,
    pending: Option<Box<Pending>>,
}

impl Console {
    pub(crate) fn new(user: Arc<str>, admin: bool) -> Self {
        let (statements, portals) = (BTreeMap::new(), BTreeMap::new());
        Self { user, admin, statements, portals, skipping: false, pending: None }
    }

    /// A command has yet to be answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    pub(crate) fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// Rows that were asked for have come, and there are more.
    pub(crate) fn has_rest(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.rest.is_some())
    }

    /// What PgBouncer's console reports, and tools look at.
    pub(crate) fn parameters(version: &str) -> [(&'static str, String); 8] {
        [
            ("server_version", format!("{version}/bouncer")),
            ("client_encoding", "UTF8".to_owned()),
            ("server_encoding", "UTF8".to_owned()),
            ("DateStyle", "ISO".to_owned()),
            ("TimeZone", "GMT".to_owned()),
            ("standard_conforming_strings", "on".to_owned()),
            ("integer_datetimes", "on".to_owned()),
            ("is_superuser", "on".to_owned()),
        ]
    }
}

impl Worker {
    fn console(&mut self, id: ClientId) -> Option<&mut Console> {
        match &mut self.clients.get_mut(id)?.state {
            ClientState::Console(console) => Some(console),
            _ => None,
        }
    }

    pub(crate) fn console_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        loop {
            let Some(client) = self.clients.get_mut(id) else { return cursor.at };
            let ClientState::Console(console) = &client.state else { return cursor.at };
            if console.pending.is_some() || client.congested {
                self.hold_client(id);
                return cursor.at;
            }
            match self.console_piece(id, &mut cursor) {
                Ok(true) => {}
                Ok(false) => return cursor.at,
                Err(failure) => {
                    self.fail_client(id, &failure);
                    return cursor.at;
                }
            }
        }
    }

    /// One whole message; false where it is not there yet.
    fn console_piece(&mut self, id: ClientId, cursor: &mut Cursor<'_>) -> Result<bool, Failure> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(false) };
        let mut known = None;
        let total_len = |head: &[u8; HEADER_LEN]| -> Result<usize, Failure> {
            let header = Header::parse(head);
            let tag = FrontendTag::from_byte(header.tag).ok_or(Failure::UnknownMessage(header.tag))?;
            known = Some(tag);
            let fits = |length: &u32| *length <= tag.body_len_max() && *length as usize <= COMMAND_BYTES_MAX;
            let length = header.body_len.filter(fits).ok_or(Failure::MessageLength { tag: header.tag })?;
            Ok(HEADER_LEN + length as usize)
        };
        let message = client.inbox.take_whole(cursor, total_len)?;
        let Some((message, tag)) = message.zip(known) else { return Ok(false) };
        self.console_message(id, tag, &message[HEADER_LEN..])?;
        Ok(true)
    }

    fn console_message(&mut self, id: ClientId, tag: FrontendTag, body: &[u8]) -> Result<(), Failure> {
        let Some(console) = self.console(id) else { return Ok(()) };
        if console.skipping && !matches!(tag, FrontendTag::Sync | FrontendTag::Terminate | FrontendTag::Query) {
            return Ok(());
        }
        match tag {
            FrontendTag::Query => {
                let line = String::from_utf8_lossy(frontend::query(body)?).into_owned();
                self.console_line(id, &line, Form::Simple);
            }
            FrontendTag::Parse => {
                let parse = Parse::read(body)?;
                let text = parse.definition.split(|&byte| byte == 0).next().unwrap_or_default();
                let line: Arc<str> = String::from_utf8_lossy(text).into();
                if console.statements.len() >= NAMES_MAX && !console.statements.contains_key(parse.name) {
                    self.console_error(id, "53400", "too many prepared statements".to_owned());
                    return Ok(());
                }
                console.statements.insert(parse.name.to_vec(), line);
                self.cx.out.send(id, write::parse_complete);
            }
            FrontendTag::Bind => self.console_bind(id, body)?,
            FrontendTag::Describe => self.console_describe(id, Target::parse(body)?),
            FrontendTag::Execute => {
                let name = body.split(|&byte| byte == 0).next().unwrap_or_default();
                match console.portals.get(name).cloned() {
                    Some(portal) => self.console_line(id, &portal.line, Form::Extended { binary: portal.binary }),
                    None => self.console_error(id, "34000", "portal does not exist".to_owned()),
                }
            }
            FrontendTag::Close => {
                match Target::parse(body)? {
                    Target::Statement(name) => drop(console.statements.remove(name)),
                    Target::Portal(name) => drop(console.portals.remove(name)),
                }
                self.cx.out.send(id, write::close_complete);
            }
            FrontendTag::Sync => {
                console.skipping = false;
                console.portals.clear();
                self.cx.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
            }
            FrontendTag::Flush | FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {}
            FrontendTag::Terminate => self.end_client(id, "client close request"),
            FrontendTag::FunctionCall | FrontendTag::Password => {
                return Err(Failure::UnknownMessage(tag as u8));
            }
        }
        Ok(())
    }

    fn console_bind(&mut self, id: ClientId, body: &[u8]) -> Result<(), Failure> {
        let names = BindNames::parse(body).ok_or(Failure::NameTooLong)?;
        let binary = frontend::bind_wants_binary(&body[names.len()..])?;
        let Some(console) = self.console(id) else { return Ok(()) };
        let Some(line) = console.statements.get(names.statement).cloned() else {
            self.console_error(id, "26000", "prepared statement does not exist".to_owned());
            return Ok(());
        };
        if console.portals.len() >= NAMES_MAX && !console.portals.contains_key(names.portal) {
            self.console_error(id, "53400", "too many portals".to_owned());
            return Ok(());
        }
        console.portals.insert(names.portal.to_vec(), Portal { line, binary });
        self.cx.out.send(id, write::bind_complete);
        Ok(())
    }

    fn console_describe(&mut self, id: ClientId, target: Target<'_>) {
        let Some(console) = self.console(id) else { return };
        let (line, binary, statement) = match target {
            Target::Statement(name) => (console.statements.get(name).cloned(), false, true),
            Target::Portal(name) => {
                let portal = console.portals.get(name);
                (portal.map(|portal| Arc::clone(&portal.line)), portal.is_some_and(|portal| portal.binary), false)
            }
        };
        let Some(line) = line else {
            return self.console_error(id, "26000", "no such statement or portal".to_owned());
        };
        let columns = match Command::parse(&line) {
            Ok(Command::Show(show)) => show::columns(show),
            _ => &[],
        };
        self.cx.out.send(id, |out| {
            if statement {
                write::no_parameters(out);
            }
            if columns.is_empty() {
                write::no_data(out);
            } else {
                write::row_description(out, columns, binary);
            }
        });
    }

    fn console_error(&mut self, id: ClientId, code: &'static str, text: String) {
        let report = Report::new(Severity::Error, code, text);
        self.cx.out.send(id, |out| write::report(out, &report));
        if let Some(console) = self.console(id) {
            console.skipping = true;
        }
    }

    fn console_line(&mut self, id: ClientId, line: &str, form: Form) {
        let Some(console) = self.console(id) else { return };
        let admin = console.admin;
        let command = match Command::parse(line) {
            Ok(command) => command,
            Err(text) => return self.console_refuse(id, form, "42601", text),
        };
        if !admin && !matches!(command, Command::Show(_) | Command::Empty) {
            return self.console_refuse(id, form, "42501", "admin access needed".to_owned());
        }
        self.console_counters.queries += 1;
        self.console_counters.transactions += 1;
        let question = match &command {
            Command::Empty => {
                self.cx.out.send(id, write::empty_query_response);
                return self.console_ready(id, form);
            }
            Command::Show(Show::Help) => {
                self.cx.out.send(id, |out| write::report(out, &show::help()));
                return self.console_done(id, form, "SHOW");
            }
            Command::Show(show @ (Show::Clients | Show::Servers)) => return self.console_begin_rows(id, form, *show),
            Command::Show(Show::Config | Show::Version) => None,
            Command::Show(show) => Some(Question::Report(*show)),
            Command::Pause(name) => Some(Question::Pause(name.clone())),
            Command::Resume(name) => Some(Question::Resume(name.clone())),
            Command::Disable(name) => Some(Question::Disable(Arc::clone(name))),
            Command::Enable(name) => Some(Question::Enable(Arc::clone(name))),
            Command::Reconnect(name) => Some(Question::Reconnect(name.clone())),
            Command::Kill(name) => Some(Question::Kill(name.clone())),
            Command::KillClient(number) => Some(Question::KillClient(*number)),
            Command::WaitClose(name) => Some(Question::WaitClose(name.clone())),
            Command::Reload | Command::Shutdown(_) => None,
        };
        if let Some(name) = database_of(&command)
            && self.cx.settings.database(name).is_none()
        {
            return self.console_refuse(id, form, "3D000", format!("no such database: {name}"));
        }
        let workers = self.cx.config.workers;
        let answers_due = if question.is_some() { workers } else { 0 };
        let pending = Pending {
            command: command.clone(),
            form,
            answers_due,
            answer: Answer::default(),
            rest: None,
            asked: WorkerId(0),
        };
        if let Some(console) = self.console(id) {
            console.pending = Some(Box::new(pending));
        }
        match (question, command) {
            (Some(question), _) => {
                for worker in 0..workers {
                    self.cx.post(WorkerId(worker), Letter::Ask { question: question.clone(), asker: Some(id) });
                }
            }
            (None, Command::Reload) => {
                self.reloading.push(id);
                self.cx.out.event(Event::Reload);
            }
            (None, Command::Shutdown(command)) => {
                self.console_finish(id);
                self.cx.tell_steward(Letter::Order { command });
            }
            _ => self.console_finish(id),
        }
    }

    /// One worker's share of an answer.
    pub(crate) fn console_told(&mut self, id: ClientId, share: Answer) {
        let Some(console) = self.console(id) else { return };
        let Some(pending) = &mut console.pending else { return };
        if pending.asks_for_portions() {
            return self.console_told_rows(id, share);
        }
        pending.answer.merge(share);
        pending.answers_due = pending.answers_due.saturating_sub(1);
        if pending.answers_due == 0 {
            self.console_finish(id);
            self.wake_client(id);
        }
    }

    /// A reload that the console asked for has ended.
    pub(crate) fn reload_done(&mut self, result: &Result<(), String>) {
        for id in std::mem::take(&mut self.reloading) {
            let Some(pending) = self.console(id).and_then(|console| console.pending.take()) else { continue };
            match result {
                Ok(()) => self.console_done(id, pending.form, "RELOAD"),
                Err(text) => {
                    let text = format!("RELOAD failed: {text}");
                    self.console_refuse(id, pending.form, "F0000", text);
                }
            }
            self.wake_client(id);
        }
    }

    /// All answers are there.
    fn console_finish(&mut self, id: ClientId) {
        let Some(pending) = self.console(id).and_then(|console| console.pending.take()) else { return };
        let Pending { command, form, mut answer, .. } = *pending;
        if let Some(text) = answer.refusal {
            return self.console_refuse(id, form, "08P01", text);
        }
        if matches!(command, Command::KillClient(_)) && !answer.found {
            return self.console_refuse(id, form, "08P01", "client not found".to_owned());
        }
        let word = match &command {
            Command::Show(Show::Clients | Show::Servers) => "SHOW",
            Command::Show(show) => {
                let rows = show::rows(*show, &mut answer, &self.cx.settings);
                self.console_describe_rows(id, form, *show);
                self.console_rows(id, form, *show, &rows);
                "SHOW"
            }
            Command::Pause(_) => "PAUSE",
            Command::Resume(_) => "RESUME",
            Command::Disable(_) => "DISABLE",
            Command::Enable(_) => "ENABLE",
            Command::Reconnect(_) => "RECONNECT",
            Command::Kill(_) => "KILL",
            Command::KillClient(_) => "KILL_CLIENT",
            Command::WaitClose(_) => "WAIT_CLOSE",
            Command::Reload => "RELOAD",
            Command::Shutdown(_) => "SHUTDOWN",
            Command::Empty => "",
        };
        self.console_done(id, form, word);
    }

    fn console_describe_rows(&mut self, id: ClientId, form: Form, show: Show) {
        if form == Form::Simple {
            self.cx.out.send(id, |out| write::row_description(out, show::columns(show), false));
        }
    }

    fn console_rows(&mut self, id: ClientId, form: Form, show: Show, rows: &[Vec<Cell>]) {
        let binary = matches!(form, Form::Extended { binary: true });
        let columns = show::columns(show);
        self.cx.out.send(id, |out| rows.iter().for_each(|row| show::write_row(out, columns, row, binary)));
    }

    /// Where there may be a row for each of many connections, workers are asked one after the other, a portion at a time.
    fn console_begin_rows(&mut self, id: ClientId, form: Form, show: Show) {
        self.console_describe_rows(id, form, show);
        let rest = Some((WorkerId(0), 0));
        let pending = Pending {
            command: Command::Show(show),
            form,
            answers_due: 1,
            answer: Answer::default(),
            rest,
            asked: WorkerId(0),
        };
        if let Some(console) = self.console(id) {
            console.pending = Some(Box::new(pending));
        }
        self.console_goes_on(id);
    }

    /// Asks for the next portion, unless the client does not take what it was told.
    pub(crate) fn console_goes_on(&mut self, id: ClientId) {
        if self.clients.get(id).is_none_or(|client| client.congested) {
            return;
        }
        let Some(pending) = self.console(id).and_then(|console| console.pending.as_mut()) else { return };
        let Command::Show(show) = pending.command else { return };
        let Some((worker, slot)) = pending.rest.take() else { return };
        pending.asked = worker;
        self.cx.post(worker, Letter::Ask { question: Question::Rows { show, slot }, asker: Some(id) });
    }

    /// A portion. The next is asked for in the next moment, so that others have their turn.
    fn console_told_rows(&mut self, id: ClientId, share: Answer) {
        let workers = self.cx.config.workers;
        let Some(pending) = self.console(id).and_then(|console| console.pending.as_mut()) else { return };
        let (form, Command::Show(show)) = (pending.form, &pending.command) else { return };
        let (show, next) = (*show, WorkerId(pending.asked.0 + 1));
        pending.rest = match share.next_slot {
            Some(slot) => Some((pending.asked, slot)),
            None => Some((next, 0)).filter(|_| next.0 < workers),
        };
        let is_last = pending.rest.is_none();
        self.console_rows(id, form, show, &share.rows);
        if is_last {
            self.console_finish(id);
            self.wake_client(id);
        } else {
            self.arm_client(id);
        }
    }

    fn console_done(&mut self, id: ClientId, form: Form, word: &str) {
        self.cx.out.send(id, |out| write::command_complete(out, word));
        self.console_ready(id, form);
    }

    fn console_refuse(&mut self, id: ClientId, form: Form, code: &'static str, text: String) {
        if let Some(console) = self.console(id) {
            console.pending = None;
        }
        self.console_error(id, code, text);
        self.console_ready(id, form);
    }

    fn console_ready(&mut self, id: ClientId, form: Form) {
        if form == Form::Simple {
            if let Some(console) = self.console(id) {
                console.skipping = false;
            }
            self.cx.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
        }
    }

    pub(crate) fn console_ended(&mut self, id: ClientId) {
        self.reloading.retain(|&waiting| waiting != id);
    }
}

fn database_of(command: &Command) -> Option<&Arc<str>> {
    match command {
        Command::Disable(name) | Command::Enable(name) => Some(name),
        Command::Pause(name)
        | Command::Resume(name)
        | Command::Reconnect(name)
        | Command::Kill(name)
        | Command::WaitClose(name) => name.as_ref(),
        _ => None,
    }
}
