//! How the console's messages are answered. What comes of it for the client's connection is the worker's business.

use std::sync::Arc;

use weir_wire::frontend::{self, BindNames, Parse, Target};
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, HEADER_LEN, Header, TransactionStatus, write};

use crate::context::Context;
use crate::contract::Names;
use crate::contract::event::{Change, Event, Reloaded};
use crate::failure::Failure;
use crate::id::{ClientId, WorkerId};
use crate::inbox::{Cursor, Inbox};
use crate::mail::Letter;
use crate::stats::Counters;

use super::clusters;
use super::command::{COMMAND_BYTES_MAX, Command, Show};
use super::report::{Answer, Cell, Question};
use super::session::{Console, Form, NAMES_MAX, Pending, Portal};
use super::show::{self, Columns};

/// What comes of it for the client.
pub(crate) enum Then {
    Nothing,
    /// It is not read until its command is done.
    Hold,
    /// Its command is done: it is read again.
    Wake,
    /// The next rows are asked for in the next moment, so that others have their turn.
    Later,
    /// Terminate.
    End,
    Fail(Failure),
}

/// A session of the console, for the length of one input.
pub(crate) struct Talk<'w> {
    pub(crate) cx: &'w mut Context,
    pub(crate) id: ClientId,
    pub(crate) console: &'w mut Console,
    /// Its client does not take what it was told.
    pub(crate) congested: bool,
    pub(crate) counters: &'w mut Counters,
}

impl Talk<'_> {
    /// Takes what it can of the client's bytes.
    pub(crate) fn bytes(&mut self, inbox: &mut Inbox, cursor: &mut Cursor<'_>) -> Then {
        loop {
            if self.congested || (self.console.pending.is_some() && !self.may_leave(inbox, cursor)) {
                return Then::Hold;
            }
            let (tag, message) = match next_message(inbox, cursor) {
                Ok(Some(found)) => found,
                Ok(None) => return Then::Nothing,
                Err(failure) => return Then::Fail(failure),
            };
            if tag == FrontendTag::Terminate {
                return Then::End;
            }
            if let Err(failure) = self.message(tag, &message[HEADER_LEN..]) {
                return Then::Fail(failure);
            }
        }
    }

    /// While its command waits it is read up to its next message, which may be that it leaves.
    fn may_leave(&self, inbox: &Inbox, cursor: &Cursor<'_>) -> bool {
        let next = inbox.partial_tag().or(cursor.rest().first().copied());
        self.console.waits() && next.is_none_or(|tag| tag == FrontendTag::Terminate as u8)
    }

    fn message(&mut self, tag: FrontendTag, body: &[u8]) -> Result<(), Failure> {
        let console = &mut *self.console;
        if console.skipping && !matches!(tag, FrontendTag::Sync | FrontendTag::Query) {
            return Ok(());
        }
        match tag {
            FrontendTag::Query => {
                let line = String::from_utf8_lossy(frontend::query(body)?).into_owned();
                self.line(&line, Form::Simple);
            }
            FrontendTag::Parse => {
                let parse = Parse::read(body)?;
                let text = parse.definition.split(|&byte| byte == 0).next().unwrap_or_default();
                let line: Arc<str> = String::from_utf8_lossy(text).into();
                if console.statements.len() >= NAMES_MAX && !console.statements.contains_key(parse.name) {
                    self.error("53400", "too many prepared statements".to_owned());
                    return Ok(());
                }
                console.statements.insert(parse.name.to_vec(), line);
                self.cx.out.send(self.id, write::parse_complete);
            }
            FrontendTag::Bind => self.bind(body)?,
            FrontendTag::Describe => self.describe(Target::parse(body)?),
            FrontendTag::Execute => {
                let name = body.split(|&byte| byte == 0).next().unwrap_or_default();
                match console.portals.get(name).cloned() {
                    Some(portal) => self.line(&portal.line, Form::Extended { binary: portal.binary }),
                    None => self.error("34000", "portal does not exist".to_owned()),
                }
            }
            FrontendTag::Close => {
                match Target::parse(body)? {
                    Target::Statement(name) => drop(console.statements.remove(name)),
                    Target::Portal(name) => drop(console.portals.remove(name)),
                }
                self.cx.out.send(self.id, write::close_complete);
            }
            FrontendTag::Sync => {
                console.skipping = false;
                console.portals.clear();
                self.cx.out.send(self.id, |out| write::ready(out, TransactionStatus::Idle));
            }
            FrontendTag::Flush | FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {}
            FrontendTag::Terminate | FrontendTag::FunctionCall | FrontendTag::Password => {
                return Err(Failure::UnknownMessage(tag as u8));
            }
        }
        Ok(())
    }

    fn bind(&mut self, body: &[u8]) -> Result<(), Failure> {
        let names = BindNames::parse(body).ok_or(Failure::NameTooLong)?;
        let binary = frontend::bind_wants_binary(&body[names.len()..])?;
        let console = &mut *self.console;
        let Some(line) = console.statements.get(names.statement).cloned() else {
            self.error("26000", "prepared statement does not exist".to_owned());
            return Ok(());
        };
        if console.portals.len() >= NAMES_MAX && !console.portals.contains_key(names.portal) {
            self.error("53400", "too many portals".to_owned());
            return Ok(());
        }
        console.portals.insert(names.portal.to_vec(), Portal { line, binary });
        self.cx.out.send(self.id, write::bind_complete);
        Ok(())
    }

    fn describe(&mut self, target: Target<'_>) {
        let console = &mut *self.console;
        let (line, binary, statement) = match target {
            Target::Statement(name) => (console.statements.get(name).cloned(), false, true),
            Target::Portal(name) => {
                let portal = console.portals.get(name);
                (portal.map(|portal| Arc::clone(&portal.line)), portal.is_some_and(|portal| portal.binary), false)
            }
        };
        let Some(line) = line else {
            return self.error("26000", "no such statement or portal".to_owned());
        };
        let columns = match Command::parse(&line) {
            Ok(command) => columns(&command),
            Err(_) => &[],
        };
        self.cx.out.send(self.id, |out| {
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

    fn error(&mut self, code: &'static str, text: String) {
        let report = Report::new(Severity::Error, code, text);
        self.cx.out.send(self.id, |out| write::report(out, &report));
        self.console.skipping = true;
    }

    fn line(&mut self, line: &str, form: Form) {
        let command = match Command::parse(line) {
            Ok(command) => command,
            Err(text) => return self.refuse(form, "08P01", text),
        };
        if !self.console.admin && !is_open(&command) {
            return self.refuse(form, "42501", "admin access needed".to_owned());
        }
        self.counters.queries += 1;
        self.counters.transactions += 1;
        let question = match &command {
            Command::Empty => {
                self.cx.out.send(self.id, write::empty_query_response);
                return self.ready(form);
            }
            Command::Show(Show::Help) => {
                self.cx.out.send(self.id, |out| write::report(out, &show::help()));
                return self.done(form, "SHOW");
            }
            Command::SetIgnored => return self.ignored(form),
            Command::Show(show) if show.has_portions() => return self.begin_rows(form, *show),
            _ => question(&command),
        };
        if let Some(name) = database_of(&command)
            && self.cx.settings.database(name).is_none()
        {
            return self.refuse(form, "08P01", format!("no such database: {name}"));
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
        self.console.pending = Some(Box::new(pending));
        match (question, command) {
            (Some(question), _) => self.cx.ask_workers(&question, Some(self.id)),
            (None, Command::Show(Show::DnsHosts | Show::DnsZones)) => self.cx.out.tell_names(self.id),
            (None, Command::Reload) => self.cx.out.event(Event::Reload { asker: Some(self.id), change: None }),
            (None, Command::Set(change)) => {
                self.cx.out.event(Event::Reload { asker: Some(self.id), change: Some(change) });
            }
            (None, Command::Shutdown(command)) => {
                self.finish();
                self.cx.tell_steward(Letter::Order { command });
            }
            _ => self.finish(),
        }
    }

    fn ignored(&mut self, form: Form) {
        let notice = Report::new(Severity::Notice, "00000", "SET ignored");
        self.cx.out.send(self.id, |out| write::report(out, &notice));
        self.done(form, "SET");
    }

    /// One worker's share of an answer.
    pub(crate) fn told(&mut self, share: Answer) -> Then {
        let Some(pending) = &mut self.console.pending else { return Then::Nothing };
        if pending.asks_for_portions() {
            return self.told_rows(share);
        }
        pending.answer.merge(share);
        pending.answers_due = pending.answers_due.saturating_sub(1);
        if pending.answers_due > 0 {
            return Then::Nothing;
        }
        if matches!(pending.command, Command::Show(Show::Lists)) {
            self.cx.out.tell_names(self.id);
            return Then::Nothing;
        }
        self.finish();
        Then::Wake
    }

    pub(crate) fn names_told(&mut self, names: Names) -> Then {
        let Some(pending) = &mut self.console.pending else { return Then::Nothing };
        pending.answer.names = names;
        self.finish();
        Then::Wake
    }

    /// A RELOAD or SET that it asked for has ended.
    pub(crate) fn reloaded(&mut self, result: &Reloaded) -> Then {
        let Some(pending) = self.console.pending.take() else { return Then::Nothing };
        if let Ok(Some(text)) = result {
            let warning = Report::new(Severity::Warning, "01000", text.clone());
            self.cx.out.send(self.id, |out| write::report(out, &warning));
        }
        match (&pending.command, result) {
            (Command::Set(Change { key, value }), Ok(_)) => self.done(pending.form, &format!("SET {key}={value}")),
            (_, Ok(_)) => self.done(pending.form, "RELOAD"),
            (Command::Set(_), Err(text)) => self.refuse(pending.form, "08P01", format!("SET failed: {text}")),
            (_, Err(text)) => {
                self.refuse(pending.form, "F0000", format!("RELOAD failed, see logs for additional details: {text}"))
            }
        }
        Then::Wake
    }

    /// All answers are there.
    fn finish(&mut self) {
        let Some(pending) = self.console.pending.take() else { return };
        let Pending { command, form, mut answer, .. } = *pending;
        if let Some(text) = answer.refusal {
            return self.refuse(form, "08P01", text);
        }
        if matches!(command, Command::KillClient(_)) && !answer.found {
            return self.refuse(form, "08P01", "client not found".to_owned());
        }
        let word = match &command {
            Command::Show(show) if show.has_portions() => "SHOW",
            Command::Show(show) => {
                let rows = show::rows(*show, &mut answer, &self.cx.settings, &self.cx.clusters);
                self.describe_rows(form, &command);
                self.rows(form, &command, &rows);
                "SHOW"
            }
            Command::ExplainRoute(asked) => {
                match clusters::explain(asked, &answer.paths, &self.cx.settings, &self.cx.clusters) {
                    Ok(row) => {
                        self.describe_rows(form, &command);
                        self.rows(form, &command, &[row]);
                    }
                    Err(text) => return self.refuse(form, "08P01", text),
                }
                "EXPLAIN"
            }
            Command::Pause(_) => "PAUSE",
            Command::Resume(_) => "RESUME",
            Command::Suspend => "SUSPEND",
            Command::Disable(_) => "DISABLE",
            Command::Enable(_) => "ENABLE",
            Command::Reconnect(_) => "RECONNECT",
            Command::Kill(_) => "KILL",
            Command::KillClient(_) => "KILL_CLIENT",
            Command::WaitClose(_) => "WAIT_CLOSE",
            Command::Shutdown(_) => "SHUTDOWN",
            Command::Reload | Command::Set(_) | Command::SetIgnored | Command::Empty => "",
        };
        self.done(form, word);
    }

    fn describe_rows(&mut self, form: Form, command: &Command) {
        if form == Form::Simple {
            self.cx.out.send(self.id, |out| write::row_description(out, columns(command), false));
        }
    }

    fn rows(&mut self, form: Form, command: &Command, rows: &[Vec<Cell>]) {
        let binary = matches!(form, Form::Extended { binary: true });
        let columns = columns(command);
        self.cx.out.send(self.id, |out| rows.iter().for_each(|row| show::write_row(out, columns, row, binary)));
    }

    /// Where there may be a row for each of many connections, workers are asked one after the other, a portion at a time.
    fn begin_rows(&mut self, form: Form, show: Show) {
        let command = Command::Show(show);
        self.describe_rows(form, &command);
        let rest = Some((WorkerId(0), 0));
        let pending = Pending { command, form, answers_due: 1, answer: Answer::default(), rest, asked: WorkerId(0) };
        self.console.pending = Some(Box::new(pending));
        self.goes_on();
    }

    /// Asks for the next portion, unless the client does not take what it was told.
    pub(crate) fn goes_on(&mut self) {
        if self.congested {
            return;
        }
        let Some(pending) = self.console.pending.as_mut() else { return };
        let Command::Show(show) = pending.command else { return };
        let Some((worker, slot)) = pending.rest.take() else { return };
        pending.asked = worker;
        self.cx.post(worker, Letter::Ask { question: Question::Rows { show, slot }, asker: Some(self.id) });
    }

    /// A portion. The next is asked for in the next moment, so that others have their turn.
    fn told_rows(&mut self, share: Answer) -> Then {
        let workers = self.cx.config.workers;
        let Some(pending) = self.console.pending.as_mut() else { return Then::Nothing };
        let (form, Command::Show(show)) = (pending.form, &pending.command) else { return Then::Nothing };
        let (show, next) = (*show, WorkerId(pending.asked.0 + 1));
        pending.rest = match share.next_slot {
            Some(slot) => Some((pending.asked, slot)),
            None => Some((next, 0)).filter(|_| next.0 < workers),
        };
        let is_last = pending.rest.is_none();
        self.rows(form, &Command::Show(show), &share.rows);
        if !is_last {
            return Then::Later;
        }
        self.finish();
        Then::Wake
    }

    fn done(&mut self, form: Form, word: &str) {
        self.cx.out.send(self.id, |out| write::command_complete(out, word));
        self.ready(form);
    }

    fn refuse(&mut self, form: Form, code: &'static str, text: String) {
        self.console.pending = None;
        self.error(code, text);
        self.ready(form);
    }

    fn ready(&mut self, form: Form) {
        if form == Form::Simple {
            self.console.skipping = false;
            self.cx.out.send(self.id, |out| write::ready(out, TransactionStatus::Idle));
        }
    }
}

/// One whole message, if it is there.
fn next_message(inbox: &mut Inbox, cursor: &mut Cursor<'_>) -> Result<Option<(FrontendTag, Vec<u8>)>, Failure> {
    let mut known = None;
    let total_len = |head: &[u8; HEADER_LEN]| -> Result<usize, Failure> {
        let header = Header::parse(head);
        let tag = FrontendTag::from_byte(header.tag).ok_or(Failure::UnknownMessage(header.tag))?;
        known = Some(tag);
        let fits = |length: &u32| *length <= tag.body_len_max() && *length as usize <= COMMAND_BYTES_MAX;
        let length = header.body_len.filter(fits).ok_or(Failure::MessageLength { tag: header.tag })?;
        Ok(HEADER_LEN + length as usize)
    };
    let message = inbox.take_whole(cursor, total_len)?;
    Ok(known.zip(message))
}

/// What all workers are asked. `None`: nobody is.
fn question(command: &Command) -> Option<Question> {
    match command {
        Command::Show(Show::Version | Show::DnsHosts | Show::DnsZones) => None,
        // The rows of SHOW CONFIG are nobody's to tell; but a pipeline of them has to wait for each as for others, so that its client
        // is held when it does not take them.
        Command::Show(show) => Some(Question::Report(*show)),
        Command::Pause(name) => Some(Question::Pause(name.clone())),
        Command::Resume(name) => Some(Question::Resume(name.clone())),
        Command::Suspend => Some(Question::Suspend),
        Command::Disable(name) => Some(Question::Disable(Arc::clone(name))),
        Command::Enable(name) => Some(Question::Enable(Arc::clone(name))),
        Command::Reconnect(name) => Some(Question::Reconnect(name.clone())),
        Command::Kill(name) => Some(Question::Kill(name.clone())),
        Command::KillClient(number) => Some(Question::KillClient(*number)),
        Command::WaitClose(name) => Some(Question::WaitClose(name.clone())),
        Command::ExplainRoute(_) => Some(Question::SearchPaths),
        Command::Reload | Command::Set(_) | Command::Shutdown(_) | Command::SetIgnored | Command::Empty => None,
    }
}

fn columns(command: &Command) -> Columns {
    match command {
        Command::Show(show) => show::columns(*show),
        Command::ExplainRoute(_) => clusters::EXPLAINED,
        _ => &[],
    }
}

/// Whoever may look may use it.
fn is_open(command: &Command) -> bool {
    matches!(command, Command::Show(_) | Command::ExplainRoute(_) | Command::SetIgnored | Command::Empty)
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
