//! What would make a worker wait: key derivation and names of hosts, each on a thread of its own. Knows nothing of loops.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use weir_core::ConnId;

use super::mailbox::{Letter, Sender};
use super::options::DnsOptions;
use super::resolve::Resolver;

#[derive(Debug)]
pub struct Derivation {
    pub job: u32,
    pub password: Arc<str>,
    pub salt: Vec<u8>,
    pub iterations: u32,
}

#[derive(Debug)]
struct Question {
    conn: ConnId,
    host: Arc<str>,
    port: u16,
}

/// The way to the helper threads, which end when the last of these is gone.
#[derive(Debug, Clone)]
pub struct Background {
    derivations: mpsc::Sender<(Sender, Derivation)>,
    questions: mpsc::Sender<(Sender, Question)>,
}

impl Background {
    pub fn start(dns: DnsOptions) -> io::Result<Self> {
        let (derivations, derive) = mpsc::channel();
        let (questions, resolve) = mpsc::channel();
        thread::Builder::new().name("weir-derive".to_owned()).spawn(move || answer_derivations(&derive))?;
        thread::Builder::new().name("weir-resolve".to_owned()).spawn(move || answer_questions(&resolve, dns))?;
        Ok(Self { derivations, questions })
    }

    /// `Letter::Derived` follows.
    pub fn derive(&self, answer_to: &Sender, derivation: Derivation) {
        // The thread ends only after all senders.
        let _ = self.derivations.send((answer_to.clone(), derivation));
    }

    /// `Letter::Resolved` follows.
    pub fn resolve(&self, answer_to: &Sender, conn: ConnId, host: Arc<str>, port: u16) {
        let _ = self.questions.send((answer_to.clone(), Question { conn, host, port }));
    }
}

fn answer_derivations(jobs: &mpsc::Receiver<(Sender, Derivation)>) {
    for (answer_to, Derivation { job, password, salt, iterations }) in jobs {
        let salted_password = weir_core::auth::salted_password(&*password, &salt, iterations);
        answer_to.send(Letter::Derived { job, salted_password });
    }
}

fn answer_questions(jobs: &mpsc::Receiver<(Sender, Question)>, dns: DnsOptions) {
    let mut resolver = Resolver::new(dns);
    for (answer_to, Question { conn, host, port }) in jobs {
        let result = resolver.resolve(&host, port);
        answer_to.send(Letter::Resolved { conn, result });
    }
}
