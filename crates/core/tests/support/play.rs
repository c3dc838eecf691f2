//! Plays a conversation: drives a worker as its lines say, and compares every message with them.

use std::collections::{BTreeMap, VecDeque};

use weir_core::{ClientId, ConnId, Settings};

use super::driver::{Driver, State};
use super::login::{ClientLogin, Reply, ServerStart};
use super::peer::{Machine, Peer, encode};
use super::script::{Action, Message, Script, Step};
use super::words::{Bindings, Word, matches, shown, shown_all};
use super::{frontend, outside, settings};

/// How a conversation is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    AsWritten,
    /// Every byte comes alone.
    Split,
    /// Whoever gives this input is cut off after it, or in the middle of its bytes: only what always holds is checked then.
    Cut {
        input: usize,
        halfway: bool,
    },
}

pub(super) enum Stop {
    Failed(String),
    Cut(ConnId),
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<&str> for Stop {
    fn from(text: &str) -> Self {
        Self::Failed(text.to_owned())
    }
}

pub(super) struct Play<'a> {
    pub(super) script: &'a Script,
    pub(super) mode: Mode,
    pub(super) driver: Driver,
    pub(super) settings: Settings,
    pub(super) bindings: Bindings,
    pub(super) peers: BTreeMap<String, Peer>,
    /// Whom others were asked about, and have not answered.
    pub(super) asked: BTreeMap<String, ClientId>,
    pub(super) inputs: usize,
}

/// Plays a conversation as its lines say; answers how many inputs it has.
pub fn check(script: &Script, mode: Mode) -> Result<usize, String> {
    let mut settings = settings::initial();
    let told = script.steps.iter().take_while(|step| is_setting(&step.action)).count();
    let (settings_steps, steps) = script.steps.split_at(told);
    for step in settings_steps {
        set(&mut settings, &step.action).map_err(|error| format!("line {}: {error}: {}", step.line, step.text))?;
    }
    let driver = Driver::new(settings.clone());
    let (bindings, peers) = (Bindings::new(), BTreeMap::new());
    let mut play = Play { script, mode, driver, settings, bindings, peers, asked: BTreeMap::new(), inputs: 0 };
    let mut rest = steps;
    while let Some(step) = rest.first() {
        let count = group(rest);
        match play.step(&rest[..count]) {
            Ok(()) => {}
            Err(Stop::Failed(error)) => return Err(play.told(step, &error)),
            Err(Stop::Cut(conn)) => {
                play.aftermath(conn).map_err(|error| play.told(step, &error))?;
                return Ok(play.inputs);
            }
        }
        rest = &rest[count..];
    }
    let last = script.steps.last().ok_or("nothing is said")?;
    play.quiet(None).map_err(|error| play.told(last, &format!("at the end: {error}")))?;
    play.all_noticed().map_err(|error| play.told(last, &error))?;
    play.end_all().map_err(|error| play.told(last, &error))?;
    Ok(play.inputs)
}

fn is_setting(action: &Action) -> bool {
    matches!(action, Action::Settings(_) | Action::Database(_) | Action::User(_) | Action::Record(_))
}

pub(super) fn set(settings: &mut Settings, action: &Action) -> Result<(), String> {
    match action {
        Action::Settings(words) | Action::Reload(words) => settings::global(settings, words),
        Action::Database(words) => settings::database(settings, words),
        Action::User(words) => settings::user(settings, words),
        Action::Record(words) => outside::record(settings, words),
        _ => Err("no setting".to_owned()),
    }
}

/// Lines of one peer that follow each other are sent at once.
fn group(steps: &[Step]) -> usize {
    let Action::Sends { peer: first, .. } = &steps[0].action else { return 1 };
    steps.iter().take_while(|step| matches!(&step.action, Action::Sends { peer, .. } if peer == first)).count()
}

impl Play<'_> {
    fn told(&self, step: &Step, error: &str) -> String {
        let log: String = self.driver.log.iter().map(|line| format!("\n      log: {line}")).collect();
        format!("{}.conv:{} ({:?}): {}\n    {error}{log}", self.script.name, step.line, self.mode, step.text)
    }

    fn step(&mut self, steps: &[Step]) -> Result<(), Stop> {
        let result = match &steps[0].action {
            Action::Sends { peer, .. } => self.send(peer, steps),
            Action::Receives { peer, message } => self.receive(peer, message),
            Action::Does { peer, verb, words } => self.does(peer, verb, words),
            Action::Absent { peer } => self.absent(peer),
            Action::After(duration) => self.pass(*duration),
            Action::Reload(_) => self.reload(&steps[0].action),
            Action::Command(name) => self.command(name),
            Action::Event(words) => self.event(words),
            Action::Log(words) => self.log(words),
            _ => Err("settings come first".into()),
        };
        result?;
        self.advance()?;
        match self.driver.violations.first() {
            None => Ok(()),
            Some(violation) => Err(format!("the contract is broken: {violation}").into()),
        }
    }

    // Peers.

    fn peer(&mut self, name: &str) -> Result<&mut Peer, Stop> {
        if !self.peers.contains_key(name) {
            let conn = self.new_conn(name)?;
            let peer = Peer {
                name: name.to_owned(),
                conn,
                machine: None,
                bytes_due: 0,
                before_startup: name.starts_with('S'),
                started: false,
                console: false,
                rest: Vec::new(),
                begun: Vec::new(),
            };
            self.peers.insert(name.to_owned(), peer);
        }
        Ok(self.peers.get_mut(name).ok_or("nobody")?)
    }

    /// A client connects when it is first spoken of; the n-th server is the n-th connection that core asked for.
    fn new_conn(&mut self, name: &str) -> Result<ConnId, Stop> {
        let number: usize = name[1..].parse().map_err(|_| "nobody")?;
        if name.starts_with('C') {
            return Ok(self.driver.accept(50_000 + number as u16));
        }
        let asked = self.driver.connects.get(number - 1);
        asked.copied().ok_or_else(|| format!("core asked for {} servers only", self.driver.connects.len()).into())
    }

    fn conn(&mut self, name: &str) -> Result<ConnId, Stop> {
        self.peer(name).map(|peer| peer.conn)
    }

    /// Nobody has received what no line speaks of.
    pub(super) fn quiet(&mut self, but: Option<&str>) -> Result<(), String> {
        for peer in self.peers.values().filter(|peer| peer.machine.is_none() && Some(peer.name.as_str()) != but) {
            let end = self.driver.end(peer.conn);
            if !end.received.is_empty() {
                let mut first = self.peers[&peer.name].preview(&end.received);
                first.truncate(600);
                return Err(format!("{} received what no line speaks of: {first}", peer.name));
            }
            if end.closed_unseen {
                return Err(format!("{} was closed, which no line says", peer.name));
            }
            if end.tls_asked {
                return Err(format!("{} is to start TLS, which no line says", peer.name));
            }
        }
        if let Some((_, inquiry)) = self.driver.inquiries.front() {
            return Err(format!("somebody is asked, which no line says: {}", outside::words(inquiry)));
        }
        match self.driver.events.front() {
            Some(event) => Err(format!("the program was told {event}, which no line says")),
            None => Ok(()),
        }
    }

    /// Every connection that core asked for is in the script, and nobody is still logging in.
    fn all_noticed(&self) -> Result<(), String> {
        let known: Vec<ConnId> = self.peers.values().map(|peer| peer.conn).collect();
        for (number, conn) in self.driver.connects.iter().enumerate() {
            if !known.contains(conn) {
                return Err(format!("core asked for S{}, which no line says", number + 1));
            }
        }
        match self.peers.values().find(|peer| peer.machine.is_some()) {
            Some(peer) => Err(format!("{} has not come in", peer.name)),
            None => Ok(()),
        }
    }

    // What peers do. Each is one input.

    /// Counts an input. In a conversation that is cut here, answers that it is.
    fn counted(&mut self) -> Option<bool> {
        self.inputs += 1;
        match self.mode {
            Mode::Cut { input, halfway } if input == self.inputs => Some(halfway),
            _ => None,
        }
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Stop> {
        if self.driver.end(conn).state == State::Ended {
            return Err("it is closed already".into());
        }
        match self.counted() {
            Some(true) => self.driver.bytes(conn, &bytes[..bytes.len() / 2]),
            _ if self.mode == Mode::Split => {
                // Long messages are cut small only where they begin and end.
                let (head, rest) = bytes.split_at(bytes.len().min(2_000));
                let (middle, tail) = rest.split_at(rest.len().saturating_sub(2_000));
                head.chunks(1)
                    .chain(middle.chunks(997))
                    .chain(tail.chunks(1))
                    .for_each(|part| self.driver.bytes(conn, part));
            }
            _ => self.driver.bytes(conn, bytes),
        }
        self.cut_here(conn)
    }

    /// After an input that is the one to be cut at.
    fn cut_here(&self, conn: ConnId) -> Result<(), Stop> {
        match self.mode {
            Mode::Cut { input, .. } if input == self.inputs => Err(Stop::Cut(conn)),
            _ => Ok(()),
        }
    }

    fn send(&mut self, name: &str, steps: &[Step]) -> Result<(), Stop> {
        if self.peers.contains_key(name) {
            self.in_session(name)?;
        }
        self.quiet(None)?;
        let mut bytes = Vec::new();
        for step in steps {
            let Action::Sends { message, .. } = &step.action else { continue };
            self.peer(name)?;
            bytes.extend(self.message_bytes(name, message).map_err(|error| format!("line {}: {error}", step.line))?);
        }
        let conn = self.conn(name)?;
        self.bytes(conn, &bytes)
    }

    fn in_session(&self, name: &str) -> Result<(), Stop> {
        match self.peers.get(name).and_then(|peer| peer.machine.as_ref()) {
            Some(_) => Err(format!("{name} has not come in yet").into()),
            None => Ok(()),
        }
    }

    fn message_bytes(&mut self, name: &str, message: &Message) -> Result<Vec<u8>, String> {
        let (words, part) = match message {
            Message::Whole(words) => (words, None),
            Message::Part { bytes, words } => (words, Some(*bytes)),
            Message::RestOfPart => return Ok(std::mem::take(&mut self.peers.get_mut(name).ok_or("nobody")?.rest)),
        };
        let values: Result<Vec<_>, _> = words.iter().map(|word| word.value(&self.bindings)).collect();
        let values = values?;
        let message = String::from_utf8_lossy(values.first().ok_or("no message")?).into_owned();
        let mut bytes = encode(name, &message, &values[1..])?;
        let peer = self.peers.get_mut(name).ok_or("nobody")?;
        peer.bytes_due += usize::from(matches!(message.as_str(), "SSLRequest" | "GSSENCRequest"));
        peer.started |= message == "ReadyForQuery";
        if let Some(part) = part {
            peer.rest = bytes.split_off(part.min(bytes.len()));
        }
        Ok(bytes)
    }

    fn receive(&mut self, name: &str, words: &[Word]) -> Result<(), Stop> {
        self.in_session(name)?;
        let Some(values) = self.take(name)? else { return Err(format!("{name} received nothing").into()) };
        if matches(words, &values, &mut self.bindings) {
            return Ok(());
        }
        let expected = words.iter().map(|word| self.bound(word)).collect::<Vec<_>>().join(" ");
        Err(format!("received {}\n    not the    {expected}", shown_all(&values)).into())
    }

    fn bound(&self, word: &Word) -> String {
        match word {
            Word::Bound(name) => self.bindings.get(name).map_or(word.to_string(), |value| shown(value)),
            _ => word.to_string(),
        }
    }

    /// The next message that a peer received.
    fn take(&mut self, name: &str) -> Result<Option<Vec<Vec<u8>>>, Stop> {
        let conn = self.conn(name)?;
        let peer = self.peers.get_mut(name).ok_or("nobody")?;
        let received = &mut self.driver.end_mut(conn).received;
        if !received.is_empty() {
            received.splice(..0, std::mem::take(&mut peer.begun));
        }
        match peer.message(received)? {
            None if received.is_empty() => Ok(None),
            None => Err(format!("{name} received part of a message: {}", shown(received)).into()),
            Some((values, length)) => {
                received.drain(..length);
                Ok(Some(values))
            }
        }
    }

    fn does(&mut self, name: &str, verb: &str, words: &[Word]) -> Result<(), Stop> {
        if verb == "closed" {
            return self.closed(name);
        }
        if verb == "is" && words == [Word::Exact(b"in".to_vec())] {
            return self.in_session(name);
        }
        if verb == "asks" {
            return self.asks(name, words);
        }
        self.quiet(Some(name))?;
        let known = self.peers.contains_key(name);
        let conn = self.conn(name)?;
        match verb {
            "connects" if name.starts_with('C') && !known => {
                self.counted();
                self.cut_here(conn)
            }
            "connects" | "refuses" => {
                self.is_asked_for_at(conn, &settings::phrases(words)?.1)?;
                if verb == "connects" {
                    return self.connected(conn);
                }
                self.counted();
                self.driver.connect_failed(conn, "connection refused");
                self.cut_here(conn)
            }
            "logs" => self.logs_in(name, words),
            "hears" => self.hears(name, words),
            "starts" if words == [Word::Exact(b"TLS".to_vec())] => self.starts_tls(name),
            "fails" => {
                self.counted();
                let reason = words.get(1).ok_or("fails TLS and why")?.value(&self.bindings)?;
                self.driver.tls_failed(conn, &String::from_utf8_lossy(&reason));
                self.cut_here(conn)
            }
            "starts" => self.starts(name, words),
            "breaks" | "closes" | "ends" => {
                self.counted();
                match verb {
                    "breaks" => self.driver.fail(conn),
                    "ends" => self.driver.half_close(conn),
                    _ => {
                        self.driver.close(conn);
                        self.peer(name)?.machine = None;
                    }
                }
                self.cut_here(conn)
            }
            "stops" | "reads" => {
                if verb == "stops" {
                    self.driver.stall(conn)
                } else {
                    self.driver.read_on(conn)
                }
                Ok(())
            }
            "has" => self.has_part(name),
            "finishes" => self.finishes_login(name),
            "is" if words == [Word::Exact(b"held".to_vec())] => match self.driver.held_len(conn) {
                0 => Err(format!("all that {name} sent was taken").into()),
                _ => Ok(()),
            },
            _ => Err(format!("nobody knows how to {verb}").into()),
        }
    }

    /// Others than PostgreSQL are asked about a client.
    fn asks(&mut self, name: &str, words: &[Word]) -> Result<(), Stop> {
        if matches!(words, [Word::Exact(no), Word::Exact(more)] if no == b"no" && more == b"more") {
            let client = self.asked.remove(name).ok_or("nothing was asked about it")?;
            return if self.driver.given_up.contains(&client) { Ok(()) } else { Err("that is not said".into()) };
        }
        let conn = self.conn(name)?;
        let (client, inquiry) = self.driver.inquiries.pop_front().ok_or("nobody was asked anything")?;
        let (asked, expected) =
            (outside::words(&inquiry), words.iter().map(Word::to_string).collect::<Vec<_>>().join(" "));
        if ConnId::from(client) != conn || asked != expected {
            return Err(format!("{asked} was asked").into());
        }
        self.asked.insert(name.to_owned(), client);
        Ok(())
    }

    /// They say what they know.
    fn hears(&mut self, name: &str, words: &[Word]) -> Result<(), Stop> {
        let client = self.asked.remove(name).ok_or("nothing was asked about it")?;
        let finding = outside::finding(words)?;
        let conn = self.conn(name)?;
        self.counted();
        self.driver.answered(client, finding);
        self.advance()?;
        self.cut_here(conn)
    }

    fn has_part(&mut self, name: &str) -> Result<(), Stop> {
        let conn = self.conn(name)?;
        let received = std::mem::take(&mut self.driver.end_mut(conn).received);
        let is_part = self.peers.get_mut(name).ok_or("nobody")?.has_part(&received)?;
        is_part.then_some(()).ok_or_else(|| format!("it received {}", shown(&received)).into())
    }

    fn connected(&mut self, conn: ConnId) -> Result<(), Stop> {
        if self.driver.end(conn).state != State::Connecting {
            return Err("it is not being connected".into());
        }
        self.counted();
        self.driver.connected(conn);
        self.cut_here(conn)
    }

    fn closed(&mut self, name: &str) -> Result<(), Stop> {
        let conn = self.conn(name)?;
        if let Some(values) = self.take(name)? {
            return Err(format!("before that it received {}", shown_all(&values)).into());
        }
        let end = self.driver.end_mut(conn);
        if std::mem::take(&mut end.closed_unseen) { Ok(()) } else { Err(format!("{name} was not closed").into()) }
    }

    fn starts_tls(&mut self, name: &str) -> Result<(), Stop> {
        let conn = self.conn(name)?;
        if !self.driver.end(conn).tls_asked {
            return Err("core has not asked for TLS".into());
        }
        self.counted();
        self.driver.tls_ready(conn);
        self.cut_here(conn)
    }

    fn absent(&mut self, name: &str) -> Result<(), Stop> {
        let number: usize = name[1..].parse().map_err(|_| "nobody")?;
        let asked = self.driver.connects.len() >= number;
        if asked { Err(format!("core asked for {name}").into()) } else { Ok(()) }
    }

    // Abbreviations.

    /// `logs in [as USER] [to DATABASE] [password=P] [version=3.2] [name=value ...]`
    fn logs_in(&mut self, name: &str, words: &[Word]) -> Result<(), Stop> {
        let (mut options, phrases) = settings::phrases(&words[1..])?;
        let user = phrases.get("as").cloned().unwrap_or_else(|| "alice".to_owned());
        let database = phrases.get("to").cloned().unwrap_or_else(|| "app".to_owned());
        let mut option = |wanted: &str, default: &str| {
            let at = options.iter().position(|(name, _)| name == wanted);
            at.map_or(default.to_owned(), |at| options.remove(at).1)
        };
        let (password, version) = (option("password", "secret"), option("version", "3.0"));
        let mut startup = vec![version.into_bytes()];
        let own = [("user".to_owned(), user.clone()), ("database".to_owned(), database.clone())];
        startup.extend(own.iter().chain(&options).map(|(name, value)| format!("{name}={value}").into_bytes()));
        let bytes = frontend::encode("Startup", &startup)?;
        let peer = self.peer(name)?;
        peer.console = matches!(database.as_str(), "pgbouncer" | "weir");
        let login = ClientLogin { peer: name.to_owned(), user, password, proof: None, authenticated: false };
        peer.machine = Some(Machine::Login(login));
        let conn = peer.conn;
        self.bytes(conn, &bytes)
    }

    /// What follows AuthenticationOk, whatever it is.
    fn finishes_login(&mut self, name: &str) -> Result<(), Stop> {
        let peer = self.peer(name)?;
        let [user, password] = [String::new(), String::new()];
        let login = ClientLogin { peer: name.to_owned(), user, password, proof: None, authenticated: true };
        peer.machine = Some(Machine::Login(login));
        self.advance()?;
        self.in_session(name)
    }

    /// `starts [as USER] [in DATABASE] [at HOST] [auth=A] [password=P] [version=3.0] [reported=value ...]`
    fn starts(&mut self, name: &str, words: &[Word]) -> Result<(), Stop> {
        let (mut options, phrases) = settings::phrases(words)?;
        let mut option = |wanted: &str, default: &str| {
            let at = options.iter().position(|(name, _)| name == wanted);
            at.map_or(default.to_owned(), |at| options.remove(at).1)
        };
        let (auth, password) = (option("auth", "trust"), option("password", "secret"));
        let minor = option("version", "3.2").strip_prefix("3.").and_then(|minor| minor.parse().ok());
        let number = name[1..].parse().map_err(|_| "nobody")?;
        let start = ServerStart {
            peer: name.to_owned(),
            number,
            user: phrases.get("as").cloned(),
            database: phrases.get("in").cloned(),
            auth,
            password,
            minor: minor.ok_or("version 3.x")?,
            reported: options,
            startup: None,
            first: None,
        };
        let peer = self.peer(name)?;
        peer.machine = Some(Machine::Start(start));
        let conn = peer.conn;
        self.is_asked_for_at(conn, &phrases)?;
        self.connected(conn)?;
        self.advance()?;
        if self.peer(name)?.machine.is_some() { Err(format!("{name} could not start").into()) } else { Ok(()) }
    }

    /// At the host that the line names, if it names any.
    fn is_asked_for_at(&self, conn: ConnId, phrases: &BTreeMap<String, String>) -> Result<(), Stop> {
        let host = self.driver.host(conn);
        match phrases.get("at") {
            Some(expected) if *expected != host => Err(format!("it is asked for at {host}").into()),
            _ => Ok(()),
        }
    }

    /// Lets machines answer until they have nothing more to say.
    fn advance(&mut self) -> Result<(), Stop> {
        let mut names: VecDeque<String> = self.peers.keys().cloned().collect();
        while let Some(name) = names.pop_front() {
            if self.peers[&name].machine.is_none() {
                continue;
            }
            let Some(message) = self.take_for_machine(&name)? else { continue };
            let peer = self.peers.get_mut(&name).ok_or("nobody")?;
            let reply = match peer.machine.as_mut() {
                Some(Machine::Login(login)) => login.on(&message, &mut self.bindings),
                Some(Machine::Start(start)) => start.on(&message, &mut self.bindings),
                None => continue,
            };
            let messages = match reply.map_err(|error| format!("{name}: {error}"))? {
                Reply::Nothing => Vec::new(),
                Reply::Send(messages) => messages,
                Reply::Done(messages) => {
                    peer.machine = None;
                    peer.started = true;
                    messages
                }
            };
            let conn = peer.conn;
            let mut bytes = Vec::new();
            for (message, words) in &messages {
                bytes.extend(encode(&name, message, words)?);
            }
            if !bytes.is_empty() {
                self.bytes(conn, &bytes)?;
            }
            // It may have more to say, and what it said may have given others something to answer.
            names = self.peers.keys().cloned().collect();
        }
        Ok(())
    }

    fn take_for_machine(&mut self, name: &str) -> Result<Option<Vec<Vec<u8>>>, Stop> {
        let conn = self.conn(name)?;
        let peer = self.peers.get_mut(name).ok_or("nobody")?;
        let received = &mut self.driver.end_mut(conn).received;
        let Some((values, length)) = peer.message(received)? else { return Ok(None) };
        if values[0] == b"ErrorResponse" {
            // The login is over, and the lines that follow say how.
            peer.machine = None;
            return Ok(None);
        }
        received.drain(..length);
        Ok(Some(values))
    }
}
