//! Others than PostgreSQL are asked about clients: the system, name servers, machines, PAM, directories.
//!
//! Each of them may take its time, or not answer at all: each kind has threads of its own, so that it holds up no other, and
//! no worker. What may wait for them is bounded.

mod hosts;
mod ident;
mod ldap;
mod library;
mod pam;

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};
use weir_core::outside::{Authority, Finding, Inquiry};
use weir_core::{ClientId, WorkerId};

use super::mailbox::{Letter, Sender};

pub use ldap::check as check_ldap;
pub use pam::check as check_pam;

/// Inquiries of one kind that wait, at most: where nobody answers, each login adds one.
const WAITING_MAX: usize = 16 * 1024;
/// Whoever has waited this long has left, or is better told.
const WAIT_MAX: Duration = Duration::from_secs(60);
const TOO_LATE: &str = "others are asked first, which takes too long";
/// Of one kind at the same time.
const THREADS_MAX: usize = 16;
/// Modules of PAM need not be made for threads (Linux-PAM's Module Writers' Guide): they are asked one thing after the other.
const PAM_THREADS_MAX: usize = 1;
/// A thread without work ends after this.
const IDLE: Duration = Duration::from_secs(10);

type Ask = fn(&Inquiry) -> Finding;
/// A client, which has asked one thing at most.
type Asker = (WorkerId, ClientId);

/// Whom to ask.
#[derive(Debug, Clone)]
pub struct Outside {
    users: Crew,
    hosts: Crew,
    machines: Crew,
    pam: Crew,
    directories: Crew,
}

impl Outside {
    pub fn new() -> Self {
        let crew = |name, threads| Crew::new(name, threads, ask);
        Self {
            users: crew("weir-users", THREADS_MAX),
            hosts: crew("weir-hosts", THREADS_MAX),
            machines: crew("weir-ident", THREADS_MAX),
            pam: crew("weir-pam", PAM_THREADS_MAX),
            directories: crew("weir-ldap", THREADS_MAX),
        }
    }

    /// `Letter::Answered` follows.
    pub fn ask(&self, answer_to: &Sender, asker: Asker, inquiry: Inquiry) {
        let crew = match &inquiry {
            Inquiry::UserOf { .. } => &self.users,
            Inquiry::HostOf { .. } => &self.hosts,
            Inquiry::OwnerOf { .. } => &self.machines,
            Inquiry::Password { authority: Authority::Pam { .. }, .. } => &self.pam,
            Inquiry::Password { authority: Authority::Directory(_), .. } => &self.directories,
        };
        crew.take(Job { answer_to: answer_to.clone(), asker, inquiry, since: Instant::now() });
    }

    /// It has gone: others are not to wait for what was to be asked about it.
    pub fn ask_no_more(&self, asker: Asker) {
        for crew in [&self.users, &self.hosts, &self.machines, &self.pam, &self.directories] {
            crew.shared.lock().take_of(asker);
        }
    }
}

fn ask(inquiry: &Inquiry) -> Finding {
    match inquiry {
        // As the system knows them: /etc/passwd, or whatever nsswitch.conf says. Whom it cannot tell it does not know.
        Inquiry::UserOf { uid } => {
            let user = User::from_uid(Uid::from_raw(*uid)).ok().flatten();
            Finding::Name(user.map(|user| user.name.as_str().into()))
        }
        Inquiry::HostOf { ip } => Finding::Name(hosts::name_of(*ip).map(Into::into)),
        Inquiry::OwnerOf { theirs, ours } => Finding::Name(ident::owner_of(*theirs, *ours).ok().map(Into::into)),
        Inquiry::Password { user, password, authority, from } => {
            let checked = match authority {
                Authority::Pam { service } => pam::check_password(service, user, &password.0, *from),
                Authority::Directory(directory) => ldap::check_password(directory, user, &password.0),
            };
            checked.map_or_else(Finding::Wrong, |()| Finding::Right)
        }
    }
}

/// Nobody can say.
fn unknown(inquiry: &Inquiry, why: &str) -> Finding {
    match inquiry {
        Inquiry::Password { .. } => Finding::Wrong(why.to_owned()),
        Inquiry::UserOf { .. } | Inquiry::HostOf { .. } | Inquiry::OwnerOf { .. } => Finding::Name(None),
    }
}

struct Job {
    answer_to: Sender,
    asker: Asker,
    inquiry: Inquiry,
    since: Instant,
}

impl Job {
    fn answer(self, finding: Finding) {
        let (_, client) = self.asker;
        self.answer_to.send(Letter::Answered { client, finding });
    }

    fn give_up(self, why: &str) {
        let finding = unknown(&self.inquiry, why);
        self.answer(finding);
    }

    fn run(self, ask: Ask) {
        if self.since.elapsed() > WAIT_MAX {
            return self.give_up(TOO_LATE);
        }
        match catch_unwind(AssertUnwindSafe(|| ask(&self.inquiry))) {
            Ok(finding) => self.answer(finding),
            Err(_) => self.give_up("a bug"),
        }
    }
}

/// Threads that ask one kind.
#[derive(Clone)]
struct Crew {
    name: &'static str,
    threads_max: usize,
    ask: Ask,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    comes: Condvar,
}

#[derive(Default)]
struct Work {
    /// In the order of their numbers.
    waiting: BTreeMap<u64, Job>,
    number: u64,
    /// The numbers of those that wait.
    of: BTreeMap<Asker, u64>,
    threads: usize,
    idle: usize,
    /// Somebody sees to it that nobody waits too long.
    is_watched: bool,
}

impl Work {
    fn add(&mut self, job: Job) {
        self.number += 1;
        self.of.insert(job.asker, self.number);
        self.waiting.insert(self.number, job);
    }

    fn take_first(&mut self) -> Option<Job> {
        let (_, job) = self.waiting.pop_first()?;
        self.of.remove(&job.asker);
        Some(job)
    }

    fn take_of(&mut self, asker: Asker) -> Option<Job> {
        self.waiting.remove(&self.of.remove(&asker)?)
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Crew {
    fn new(name: &'static str, threads_max: usize, ask: Ask) -> Self {
        Self { name, threads_max, ask, shared: Arc::default() }
    }

    fn take(&self, job: Job) {
        let mut work = self.shared.lock();
        if work.waiting.len() >= WAITING_MAX {
            drop(work);
            return job.give_up("too many others are asked about");
        }
        work.add(job);
        if work.waiting.len() <= work.idle {
            return self.shared.comes.notify_one();
        }
        if work.threads >= self.threads_max {
            let is_watched = std::mem::replace(&mut work.is_watched, true);
            drop(work);
            if !is_watched && self.start(Shared::watch).is_err() {
                self.shared.lock().is_watched = false;
            }
            return;
        }
        work.threads += 1;
        drop(work);
        let ask = self.ask;
        let run = move |shared: &Shared| {
            while let Some(job) = shared.next() {
                job.run(ask);
            }
        };
        if let Err(error) = self.start(run) {
            let mut work = self.shared.lock();
            work.threads -= 1;
            let mut left = Vec::new();
            while work.threads == 0
                && let Some(job) = work.take_first()
            {
                left.push(job);
            }
            drop(work);
            left.into_iter().for_each(|job| job.give_up(&format!("no thread: {error}")));
        }
    }

    fn start(&self, body: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name(self.name.to_owned()).spawn(move || body(&shared)).map(drop)
    }
}

impl Shared {
    /// Nobody panics with it.
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All threads may hang: whoever has waited too long is told so by none of them. As long as somebody waits.
    fn watch(&self) {
        self.watch_for(WAIT_MAX);
    }

    fn watch_for(&self, longest: Duration) {
        loop {
            let mut work = self.lock();
            let Some(first) = work.waiting.values().next() else {
                work.is_watched = false;
                return;
            };
            let left = longest.saturating_sub(first.since.elapsed());
            let late = if left.is_zero() { work.take_first() } else { None };
            drop(work);
            match late {
                Some(job) => job.give_up(TOO_LATE),
                None => thread::sleep(left),
            }
        }
    }

    /// The next one. `None`: there was nothing to do for long, and this thread is not counted any more.
    fn next(&self) -> Option<Job> {
        let mut work = self.lock();
        if work.waiting.is_empty() {
            work.idle += 1;
            let nothing = |work: &mut Work| work.waiting.is_empty();
            work = self.comes.wait_timeout_while(work, IDLE, nothing).unwrap_or_else(PoisonError::into_inner).0;
            work.idle -= 1;
        }
        let job = work.take_first();
        work.threads -= usize::from(job.is_none());
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::mailbox::{self, Receiver};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use weir_core::{ConnId, Party, Side};

    fn client(slot: u32) -> ClientId {
        let Party::Client(client) = (ConnId { side: Side::Client, slot, generation: 0 }).party() else { panic!() };
        client
    }

    fn job(answer_to: &Sender, uid: u32) -> Job {
        let inquiry = Inquiry::UserOf { uid };
        Job { answer_to: answer_to.clone(), asker: (WorkerId(0), client(uid)), inquiry, since: Instant::now() }
    }

    fn answers(mailbox: &mut Receiver, count: usize) -> Vec<(ClientId, Finding)> {
        let end = Instant::now() + Duration::from_secs(20);
        let mut answers = Vec::new();
        while answers.len() < count {
            assert!(Instant::now() < end, "{answers:?}");
            match mailbox.take() {
                Some(Letter::Answered { client, finding }) => answers.push((client, finding)),
                Some(_) => panic!("another letter"),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
        answers
    }

    #[test]
    fn everybody_is_answered_and_no_more_are_asked_at_once_than_may_be() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let crew = Crew::new("weir-test", 3, |inquiry| {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
            NOW.fetch_sub(1, Ordering::SeqCst);
            match inquiry {
                Inquiry::UserOf { uid: 7 } => panic!("told to"),
                _ => Finding::Name(Some("somebody".into())),
            }
        });
        let (sender, mut mailbox) = mailbox::mailbox().unwrap();
        (0..200).for_each(|uid| crew.take(job(&sender, uid)));
        let answers = answers(&mut mailbox, 200);
        assert_eq!(MOST.load(Ordering::SeqCst), 3);
        let unknown: Vec<_> = answers.iter().filter(|(_, finding)| *finding == Finding::Name(None)).collect();
        assert_eq!(unknown.len(), 1, "a panic is an answer to one");
        assert_eq!(unknown[0].0, client(7));
    }

    #[test]
    fn what_would_wait_without_end_is_not_taken() {
        let crew = Crew::new("weir-test", 1, |_| {
            thread::sleep(Duration::from_secs(3));
            Finding::Right
        });
        let (sender, mut mailbox) = mailbox::mailbox().unwrap();
        for uid in 0..WAITING_MAX as u32 + 10 {
            crew.take(job(&sender, uid));
        }
        let answers = answers(&mut mailbox, 9);
        assert!(answers.iter().all(|(_, finding)| *finding == Finding::Name(None)), "one of them may have been begun");
        crew.shared.lock().waiting.clear();
    }

    #[test]
    fn where_all_hang_whoever_waits_is_told_in_time() {
        let shared = Shared::default();
        let (sender, mut mailbox) = mailbox::mailbox().unwrap();
        (0..3).for_each(|uid| shared.lock().add(job(&sender, uid)));
        shared.lock().is_watched = true;
        shared.watch_for(Duration::from_millis(50));
        assert_eq!(answers(&mut mailbox, 3).len(), 3);
        let work = shared.lock();
        assert!(work.waiting.is_empty() && work.of.is_empty() && !work.is_watched);
    }

    #[test]
    fn nobody_waits_for_who_has_gone() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let crew = Crew::new("weir-test", 1, |_| {
            ASKED.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(200));
            Finding::Right
        });
        let outside = Outside { users: crew, ..Outside::new() };
        let (sender, mut mailbox) = mailbox::mailbox().unwrap();
        let asker = |slot| (WorkerId(0), client(slot));
        for slot in 0..100 {
            outside.ask(&sender, asker(slot), Inquiry::UserOf { uid: slot });
        }
        (1..99).for_each(|slot| outside.ask_no_more(asker(slot)));
        // Another worker's client of the same name is another one.
        outside.ask_no_more((WorkerId(1), client(99)));
        let answered = answers(&mut mailbox, 2);
        assert_eq!(answered.last().unwrap().0, client(99));
        assert!(ASKED.load(Ordering::SeqCst) <= 3, "one of them may have been begun");
        let work = outside.users.shared.lock();
        assert!(work.waiting.is_empty() && work.of.is_empty());
    }

    #[test]
    fn whoever_has_waited_too_long_is_not_asked_about() {
        let (sender, mut mailbox) = mailbox::mailbox().unwrap();
        let since = Instant::now().checked_sub(WAIT_MAX + Duration::from_secs(1)).unwrap();
        Job { since, ..job(&sender, 1) }.run(|_| Finding::Right);
        assert_eq!(answers(&mut mailbox, 1)[0].1, Finding::Name(None));
    }

    #[test]
    fn the_system_is_asked() {
        let outside = Outside::new();
        let (sender, mut mailbox) = mailbox::mailbox().unwrap();
        for (uid, name) in [(0, Some("root")), (4_123_456_789, None)] {
            outside.ask(&sender, (WorkerId(0), client(1)), Inquiry::UserOf { uid });
            assert_eq!(answers(&mut mailbox, 1)[0].1, Finding::Name(name.map(Into::into)));
        }
    }
}
