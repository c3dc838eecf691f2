//! What would make a worker wait: key derivation, names of hosts, what others know of clients, on threads of their own. Knows nothing of loops.
//!
//! Should such a thread end, no login would work again, and nobody would say why: so then the process ends with an error.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use weir_core::outside::Inquiry;
use weir_core::{ClientId, ConnId, WorkerId};

use super::derive::{self, Derivation};
use super::events::{DriverEvent, Speaker};
use super::mailbox::Sender;
use super::options::DnsOptions;
use super::outside::Outside;
use super::resolve::{self, Asks, Desk, Question, Resolver};

/// The way to the helper threads, which end when the last of these is gone.
#[derive(Debug, Clone)]
pub struct Background {
    derivations: mpsc::Sender<(Sender, Derivation)>,
    questions: Arc<Desk>,
    outside: Outside,
    events: Speaker,
}

impl Background {
    pub fn start(dns: DnsOptions, events: &Speaker) -> io::Result<Self> {
        let (derivations, derive) = mpsc::channel();
        let (questions, resolve) = mpsc::channel();
        let log = events.clone();
        watched("weir-derive", events, move || derive::answer(&derive, log))?;
        let resolver = Resolver::new(dns, &questions, Asks::OUTSIDE, events.clone());
        watched("weir-resolve", events, move || resolver.answer(&resolve))?;
        let questions = Arc::new(Desk(questions));
        Ok(Self { derivations, questions, outside: Outside::new(), events: events.clone() })
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

    /// `Letter::NamesTold` follows.
    pub fn tell_names(&self, answer_to: &Sender, asker: ClientId) {
        if self.questions.0.send(resolve::Message::Tell(answer_to.clone(), asker)).is_err() {
            self.has_ended("weir-resolve");
        }
    }

    /// `Letter::Answered` follows.
    pub fn ask(&self, answer_to: &Sender, asker: (WorkerId, ClientId), inquiry: Inquiry) {
        self.outside.ask(answer_to, asker, inquiry);
    }

    pub fn ask_no_more(&self, asker: (WorkerId, ClientId)) {
        self.outside.ask_no_more(asker);
    }

    /// Who is to hear where names of hosts lead elsewhere.
    pub fn has_workers(&self, workers: Vec<Sender>) {
        if self.questions.0.send(resolve::Message::Workers(workers)).is_err() {
            self.has_ended("weir-resolve");
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
        let questions = Arc::new(Desk(questions));
        let background = Background { derivations, questions, outside: Outside::new(), events: speaker };
        let (mailbox, _receiver) = crate::driver::mailbox::mailbox().unwrap();
        let derivation = Derivation { job: 1, password: "p".into(), salt: b"s".to_vec(), iterations: 1 };
        background.derive(&mailbox, derivation);
        assert!(matches!(listener.try_recv(), Ok(DriverEvent::Failed { .. })));
    }
}
