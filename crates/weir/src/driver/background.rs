//! What would make a worker wait: key derivation, names of hosts and of users, on threads of their own. Knows nothing of loops.
//!
//! Should such a thread end, no login would work again, and nobody would say why: so then the process ends with an error.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, TrySendError};
use std::thread;

use nix::unistd::{Uid, User};
use weir_core::{ClientId, ConnId};

use super::derive::{self, Derivation};
use super::events::{DriverEvent, Speaker};
use super::mailbox::{Letter, Sender};
use super::options::DnsOptions;
use super::resolve::{self, Desk, Question, Resolver};

/// Clients whose system user is to be named, at most: where a directory over a network does not answer, each login adds one.
const USERS_WAITING_MAX: usize = 16 * 1024;

/// The way to the helper threads, which end when the last of these is gone.
#[derive(Debug, Clone)]
pub struct Background {
    derivations: mpsc::Sender<(Sender, Derivation)>,
    questions: Arc<Desk>,
    users: mpsc::SyncSender<(Sender, ClientId, u32)>,
    events: Speaker,
}

impl Background {
    pub fn start(dns: DnsOptions, events: &Speaker) -> io::Result<Self> {
        let (derivations, derive) = mpsc::channel();
        let (questions, resolve) = mpsc::channel();
        let log = events.clone();
        watched("weir-derive", events, move || derive::answer(&derive, log))?;
        let resolver = Resolver::new(dns, &questions, resolve::ask_system);
        watched("weir-resolve", events, move || resolver.answer(&resolve))?;
        let (users, name) = mpsc::sync_channel(USERS_WAITING_MAX);
        watched("weir-users", events, move || name_users(&name))?;
        Ok(Self { derivations, questions: Arc::new(Desk(questions)), users, events: events.clone() })
    }

    /// `Letter::Derived` follows.
    pub fn derive(&self, answer_to: &Sender, derivation: Derivation) {
        if self.derivations.send((answer_to.clone(), derivation)).is_err() {
            self.has_ended("weir-derive");
        }
    }

    /// `Letter::Resolved` follows.
    pub fn resolve(&self, answer_to: &Sender, conn: ConnId, host: Arc<str>, port: u16) {
        let question = Question { answer_to: answer_to.clone(), conn, port };
        if self.questions.0.send(resolve::Message::Question(host, question)).is_err() {
            self.has_ended("weir-resolve");
        }
    }

    /// `Letter::HostsTold` follows.
    pub fn tell_hosts(&self, answer_to: &Sender, asker: ClientId) {
        if self.questions.0.send(resolve::Message::Tell(answer_to.clone(), asker)).is_err() {
            self.has_ended("weir-resolve");
        }
    }

    /// `Letter::UserNamed` follows.
    pub fn name_user(&self, answer_to: &Sender, client: ClientId, uid: u32) {
        match self.users.try_send((answer_to.clone(), client, uid)) {
            Ok(()) => {}
            // The system does not answer, and whoever waits may have left: it cannot tell this one either.
            Err(TrySendError::Full(_)) => answer_to.send(Letter::UserNamed { client, name: None }),
            Err(TrySendError::Disconnected(_)) => self.has_ended("weir-users"),
        }
    }

    /// New options for names.
    pub fn options(&self, dns: DnsOptions) {
        if self.questions.0.send(resolve::Message::Options(dns)).is_err() {
            self.has_ended("weir-resolve");
        }
    }

    fn has_ended(&self, name: &str) {
        self.events.say(DriverEvent::Failed { text: format!("the thread {name} has ended") });
    }
}

/// As the system knows them: /etc/passwd, or whatever nsswitch.conf says, which may be another machine's to tell.
fn name_users(questions: &mpsc::Receiver<(Sender, ClientId, u32)>) {
    while let Ok(first) = questions.recv() {
        // Whoever has come while the system was asked for others. Each user is asked for once for all of them.
        let mut waiting = BTreeMap::<u32, Vec<(Sender, ClientId)>>::new();
        for (answer_to, client, uid) in std::iter::once(first).chain(questions.try_iter()).take(USERS_WAITING_MAX) {
            waiting.entry(uid).or_default().push((answer_to, client));
        }
        for (uid, clients) in waiting {
            // Whom it cannot tell it does not know.
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
            for (answer_to, client) in clients {
                answer_to.send(Letter::UserNamed { client, name: user.as_ref().map(|user| user.name.as_str().into()) });
            }
        }
    }
}

/// A thread whose panic is heard.
fn watched(name: &'static str, events: &Speaker, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let events = events.clone();
    let body = move || {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            events.say(DriverEvent::Failed { text: format!("the thread {name} failed: a bug") });
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::events;
    use std::time::Duration;

    #[test]
    fn a_thread_that_panics_is_heard_of() {
        let (speaker, listener) = events::queue();
        watched("weir-test", &speaker, || panic!("told to")).unwrap();
        let said = listener.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(matches!(&said, DriverEvent::Failed { text } if text.contains("weir-test")), "{said:?}");
    }

    #[test]
    fn a_thread_that_has_ended_is_heard_of() {
        let (speaker, listener) = events::queue();
        let (derivations, ended) = mpsc::channel();
        drop(ended);
        let (questions, _resolve) = mpsc::channel();
        let (users, _name) = mpsc::sync_channel(1);
        let background = Background { derivations, questions: Arc::new(Desk(questions)), users, events: speaker };
        let (mailbox, _receiver) = crate::driver::mailbox::mailbox().unwrap();
        let derivation = Derivation { job: 1, password: "p".into(), salt: b"s".to_vec(), iterations: 1 };
        background.derive(&mailbox, derivation);
        assert!(matches!(listener.try_recv(), Ok(DriverEvent::Failed { .. })));
    }
}
