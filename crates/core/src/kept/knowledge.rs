//! When PostgreSQL is asked what texts call, by whom, and what is known of it: a pool's part of `words.rs`.

use std::sync::Arc;

use super::words::{Changed, Code, Reading};
use crate::id::ServerId;
use crate::time::{Duration, Time};

/// After so long PostgreSQL is asked again: others than Weir's clients may have changed the code.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// And no sooner, however often it changes.
pub(crate) const READ_APART: Duration = Duration::from_secs(1);
/// Where there is much code a pause is so many times as long as the answer took, also where it is known to have changed.
const READ_SELDOM: [u64; 2] = [100, 10];
/// But no longer than that.
const READ_AT_LAST: Duration = Duration::from_secs(600);
/// Where no server was free to be asked for so long behind that, what is known is too old to go by.
const READ_LATE: Duration = Duration::from_secs(10);

/// What a pool knows of the code of its database.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    /// Where names lead in a session that has said nothing of that; asked where its database is a cluster's.
    pub(crate) path: Option<Box<str>>,
    pub(crate) code: Code,
    /// Which database that is, as its last login has told it (`exact.rs`).
    database: Option<Box<[u8]>>,
    /// When it was asked for last.
    asked_at: Option<Time>,
    /// How long the last answer took.
    took: Duration,
    /// When it is to be asked again, from these.
    due_at: Time,
    /// Who is asked, since when, and what came.
    reading: Option<(ServerId, Time, Reading)>,
    /// It is free then.
    frees: bool,
    /// What has changed since it was asked for.
    since: Option<Changed>,
    /// Readings in a row that failed.
    failures: u32,
    /// Servers that are free when it is known.
    waiting: Vec<ServerId>,
    /// Moves on with what is known.
    pub(crate) version: u64,
}

impl Knowledge {
    /// Whether the next server that is free is to be asked.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.due_at && self.reading.is_none()
    }

    /// The same for a server that is kept only until that is known, while others wait for one: for them half of the time may be spent on it.
    pub(crate) fn is_due_for_others(&self, now: Time) -> bool {
        self.reading.is_none()
            && self.since.is_some()
            && now >= self.after_pause(READ_APART.0 << self.failures.min(6), 1)
    }

    /// Whoever has prepared something, and sends anything before that is known, would get its own names (`exchange/own_names.rs`), and keep its
    /// server up to its end.
    fn is_urgent(&self) -> bool {
        self.code.may_ask_statements() && self.failures == 0
    }

    fn set_due(&mut self) {
        self.due_at = match self.since.is_some() {
            true if self.is_urgent() => Time(0),
            true => self.after_pause(READ_APART.0 << self.failures.min(6), READ_SELDOM[1]),
            false => self.after_pause(READ_AGAIN.0, READ_SELDOM[0]),
        };
    }

    /// `times`: as long as the last answer took.
    fn after_pause(&self, least: u64, times: u64) -> Time {
        let pause = least.min(READ_AGAIN.0).max(self.took.0.saturating_mul(times).min(READ_AT_LAST.0));
        self.asked_at.map_or(Time(0), |asked_at| asked_at + Duration(pause))
    }

    /// The code may be another now.
    pub(crate) fn changed(&mut self, by: &Changed) {
        self.code = self.code.changed(by);
        self.since = Some(self.since.take().map_or_else(|| by.clone(), |before| before.with(by)));
        self.version += 1;
        self.set_due();
    }

    /// A server of that database was made. Whether those that were here before may be of another. `alone`: none of them is there for certain. A database
    /// to which nobody is connected may have been dropped, and made anew with its number.
    pub(crate) fn learns_database(&mut self, database: Option<Box<[u8]>>, alone: bool) -> bool {
        let told = database.as_ref();
        let before = if told.is_some() || alone { self.database.take() } else { return false };
        // What was read while nobody told of which it was may be any other's.
        let is_another = before.as_ref().zip(told).is_none_or(|(before, told)| number(before) != number(told));
        let is_same = before.as_ref().zip(told).is_some_and(|(before, told)| match alone {
            true => is_same(before, told),
            // Copies of it behind one address or on several hosts have postmasters of their own.
            false => words(before)[..3] == words(told)[..3],
        });
        let is_told = told.is_some();
        // What was read was told by the one that was there first: the other's postmaster is met as another one where it is alone.
        let stays = is_same && !alone;
        let is_first = before.is_none() && self.code.is_unknown() && self.reading.is_none();
        self.database = if stays { before } else { database };
        if is_same || is_first {
            return false;
        }
        self.forget();
        is_told && (is_another || alone)
    }

    /// Whether a server of that database may be judged by what is known here.
    pub(crate) fn agrees_with(&mut self, database: Box<[u8]>) -> bool {
        let Some(before) = &self.database else {
            let is_to_be_read = self.code.is_blind();
            self.database = Some(database).filter(|_| is_to_be_read);
            return is_to_be_read;
        };
        if number(before) != number(&database) {
            return false;
        }
        self.learns_database(Some(database), false);
        true
    }

    /// Whether that database is another than this one for certain.
    pub(crate) fn is_of_another_than(&self, database: &[u8]) -> bool {
        self.database.as_ref().is_some_and(|known| number(known) != number(database))
    }

    /// All servers that stay are of it.
    pub(crate) fn database(&self) -> Option<Box<[u8]>> {
        self.database.clone()
    }

    /// Servers are made under other settings, of the same database or not.
    pub(crate) fn renewed(&mut self, same: bool) {
        if same {
            self.changed(&Changed::default());
        } else {
            self.database = None;
            self.forget();
        }
    }

    /// What is known is another database's.
    fn forget(&mut self) {
        self.changed(&Changed::by_others());
        (self.asked_at, self.took) = (None, Duration::ZERO);
        self.set_due();
    }

    /// Somebody's texts are judged by it. Where no server was free for long, they are again when the code is known anew.
    #[inline]
    pub(crate) fn is_gone_by(&mut self, now: Time) {
        if now >= self.due_at + READ_LATE && self.reading.is_none() && !self.code.is_blind() {
            self.changed(&Changed::by_others());
        }
    }

    /// The server waits until it is known, if it is asked for the first time, or urgently.
    pub(crate) fn has_to_wait(&mut self, server: ServerId) -> bool {
        // Who is served before is kept until it is known.
        let is_first = self.code.is_unknown() && self.failures == 0;
        let waits = self.reading.is_some() && (is_first || self.is_urgent());
        // It may have been here before: a cancel on its way is waited for too.
        if waits && !self.waiting.contains(&server) {
            self.waiting.push(server);
        }
        waits
    }

    /// The server is nobody's any more.
    pub(crate) fn forgets(&mut self, server: ServerId) {
        self.waiting.retain(|waiting| *waiting != server);
    }

    /// Servers that are free when it is known, the one that is asked perhaps among them.
    pub(crate) fn keeps_waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.reading.is_some() && self.frees)
    }

    /// `frees`: it has no client, and is free when it has answered.
    pub(crate) fn begins(&mut self, server: ServerId, frees: bool, now: Time) {
        (self.asked_at, self.since) = (Some(now), None);
        (self.reading, self.frees) = (Some((server, now, Reading::default())), frees);
    }

    /// Whether this server was asked, and has not answered for so long.
    pub(crate) fn is_unanswered(&self, by: ServerId, now: Time, patience: Duration) -> bool {
        self.reading.as_ref().is_some_and(|(asked, since, _)| *asked == by && *since + patience <= now)
    }

    /// That one is not waited for any more. How long it took says nothing of others.
    pub(crate) fn gives_up(&mut self, now: Time) {
        if let Some((_, since, _)) = &mut self.reading {
            *since = now;
        }
    }

    pub(crate) fn read_by(&mut self, server: ServerId) -> Option<&mut Reading> {
        self.reading.as_mut().filter(|(by, ..)| *by == server).map(|(.., reading)| reading)
    }

    /// The server has answered, or never will (`failed`), for a table that was dropped meanwhile perhaps: then it is tried again. Answers who has
    /// waited for that.
    pub(crate) fn ended(&mut self, server: ServerId, failed: bool, now: Time) -> Vec<ServerId> {
        let Some((_, since, reading)) = self.reading.take_if(|(by, ..)| *by == server) else { return Vec::new() };
        self.failures = if failed { self.failures + 1 } else { 0 };
        self.took = now.since(since);
        self.asked_at = Some(now);
        let was = std::mem::take(&mut self.code);
        let words = reading.words();
        self.code = match (failed, was) {
            // What is there is what there was, and perhaps more.
            (true, was) => was.changed(&Changed::by_others()),
            // Who is here need not look.
            (false, Code::Known(known)) if *known == words => {
                self.code = Code::Known(known);
                self.set_due();
                return std::mem::take(&mut self.waiting);
            }
            (false, _) => Code::Known(Arc::new(words)),
        };
        if let Some(since) = &self.since {
            self.code = self.code.changed(since);
        }
        if failed {
            self.since.get_or_insert_with(Changed::by_others);
        }
        self.set_due();
        self.version += 1;
        std::mem::take(&mut self.waiting)
    }
}

/// The words that a login tells of its database; those that are missing are empty.
fn words(database: &[u8]) -> [&[u8]; 4] {
    let mut words = database.split(|byte| *byte == b' ');
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

/// Which database it is in its cluster, and which cluster.
fn number(database: &[u8]) -> [&[u8]; 2] {
    let [number, cluster, ..] = words(database);
    [number, cluster]
}

/// Whether what two logins have told is one database for certain, which stands since the earlier of them.
pub(crate) fn is_same(own: &[u8], told: &[u8]) -> bool {
    own == told && is_certain(told)
}

/// Whether another one that tells the same is the same. Fresh clusters have the same rows, and copies have the same rows and numbers.
fn is_certain(database: &[u8]) -> bool {
    let [_, _, row, postmaster] = words(database);
    !row.is_empty() && !postmaster.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::leaves::Leaves;

    fn told(database: &str) -> Option<Box<[u8]>> {
        Some(database.as_bytes().into())
    }

    #[test]
    fn where_the_answer_takes_long_it_is_asked_for_seldom() {
        let at = |seconds: u64| Time::default() + Duration::from_secs(seconds);
        let server = crate::id::Table::<ServerId, ()>::default().insert(());
        for (takes, again, changed) in [(0, 60, 1), (1, 100, 10), (5, 500, 50), (20, 600, 200), (90, 600, 600)] {
            let mut knowledge = Knowledge::default();
            assert!(knowledge.is_due(at(0)));
            knowledge.begins(server, true, at(0));
            knowledge.ended(server, false, at(takes));
            assert!(!knowledge.is_due(at(takes + again - 1)) && knowledge.is_due(at(takes + again)), "{takes}");
            knowledge.changed(&Changed::default());
            assert!(!knowledge.is_due(at(takes + changed - 1)) && knowledge.is_due(at(takes + changed)), "{takes}");
            let waited = takes.max(1);
            assert!(!knowledge.is_due_for_others(at(takes + waited - 1)), "{takes}");
            assert!(knowledge.is_due_for_others(at(takes + waited)), "{takes}");
        }
    }

    #[test]
    fn what_may_ask_which_statements_are_prepared_is_asked_about_at_once() {
        let mut servers = crate::id::Table::<ServerId, ()>::default();
        let [asked, other] = [(); 2].map(|()| servers.insert(()));
        let mut knowledge = Knowledge::default();
        knowledge.begins(asked, true, Time(0));
        knowledge.ended(asked, false, Time(5));
        knowledge.changed(&Changed::by(&Leaves::of(b"create view v as select name from pg_prepared_statements")));
        assert!(knowledge.is_due(Time(5)));
        knowledge.begins(asked, true, Time(5));
        assert!(knowledge.has_to_wait(other));
        // Where that fails nobody waits for it.
        assert_eq!(knowledge.ended(asked, true, Time(6)), [other]);
        assert!(!knowledge.is_due(Time(6)) && !knowledge.has_to_wait(other));
    }

    #[test]
    fn what_changes_while_it_is_asked_for_the_first_time_is_not_forgotten() {
        let asked = crate::id::Table::<ServerId, ()>::default().insert(());
        let named = Changed::by(&Leaves::of(
            b"create function f() returns text as $$select set_config('app.is', 'x', false)$$ language sql",
        ));
        for (by, lasting) in [(named, false), (Changed::by_others(), true)] {
            let mut knowledge = Knowledge::default();
            knowledge.begins(asked, true, Time(0));
            knowledge.changed(&by);
            knowledge.ended(asked, false, Time(5));
            let unseen = knowledge.code.left_unseen(true);
            assert_eq!(
                (knowledge.code.is_blind(), unseen.names.iter().any(|name| &**name == "app.is")),
                (lasting, !lasting)
            );
        }
    }

    #[test]
    fn what_was_read_of_nobody_knows_which_may_be_another_s() {
        let asked = crate::id::Table::<ServerId, ()>::default().insert(());
        let mut knowledge = Knowledge::default();
        knowledge.begins(asked, true, Time(0));
        knowledge.ended(asked, false, Time(5));
        assert!(knowledge.learns_database(told("16384 7 3 1"), false) && knowledge.code.is_blind());
        assert!(!Knowledge::default().learns_database(told("16384 7 3 1"), false));
        let mut knowledge = Knowledge::default();
        assert!(
            knowledge.agrees_with(told("16384 7 3 1").unwrap()) && knowledge.agrees_with(told("16384 7 3 1").unwrap())
        );
        assert!(!knowledge.agrees_with(told("16385 7 3 1").unwrap()));
    }

    #[test]
    fn a_database_that_is_another_while_the_first_is_asked_is_told_from_it() {
        let asked = crate::id::Table::<ServerId, ()>::default().insert(());
        let mut knowledge = Knowledge::default();
        assert!(!knowledge.learns_database(told("16384 7 3 1"), true));
        knowledge.begins(asked, true, Time(0));
        assert!(knowledge.learns_database(told("16384 8 3 1"), false), "its servers are another's");
        knowledge.ended(asked, false, Time(5));
        assert!(knowledge.code.is_blind(), "what the first has told");
    }

    #[test]
    fn a_copy_that_joins_is_not_what_was_read() {
        let asked = crate::id::Table::<ServerId, ()>::default().insert(());
        let mut knowledge = Knowledge::default();
        knowledge.learns_database(told("16384 7 3 1"), true);
        knowledge.begins(asked, true, Time(0));
        knowledge.ended(asked, false, Time(5));
        assert!(!knowledge.learns_database(told("16384 7 3 2"), false) && knowledge.code.is_known());
        assert!(knowledge.learns_database(told("16384 7 3 2"), true) && knowledge.code.is_blind());
    }

    #[test]
    fn a_database_made_anew_has_its_own_code() {
        let asked = crate::id::Table::<ServerId, ()>::default().insert(());
        let mut knowledge = Knowledge::default();
        knowledge.learns_database(told("16384 7 3 1"), false);
        knowledge.begins(asked, true, Time(0));
        knowledge.ended(asked, false, Time(5));
        knowledge.learns_database(told("16384 7 3 1"), false);
        assert!(knowledge.code.is_known() && !knowledge.is_due(Time(5)));
        knowledge.learns_database(told("16385 7 3 1"), false);
        assert!(knowledge.code.is_blind() && knowledge.is_due(Time(5)));
        // It has another row or postmaster, or not enough is told and nobody was connected to it meanwhile.
        for (told_then, alone, is_anew) in [
            ("16385 7 4 1", false, true),
            ("16385 7 4 1", true, false),
            ("16385 7 4 2", false, false),
            ("16385 7 4 3", true, true),
            ("16385 7 4", false, false),
            ("16385 7 4", true, true),
            ("16385 7  2", false, true),
            ("16385 7  2", true, true),
        ] {
            knowledge.begins(asked, true, Time(5));
            knowledge.ended(asked, false, Time(6));
            assert_eq!(knowledge.learns_database(told(told_then), alone), is_anew && alone, "{told_then}");
            assert_eq!(knowledge.code.is_blind(), is_anew, "{told_then}");
        }
        knowledge.begins(asked, true, Time(7));
        knowledge.ended(asked, false, Time(8));
        assert!(!knowledge.learns_database(None, false) && knowledge.code.is_known());
        assert!(!knowledge.learns_database(None, true) && knowledge.code.is_blind(), "nothing is told at all");
        knowledge.learns_database(told("16385 7 4 1"), false);
        assert!(knowledge.learns_database(told("16385 9 4 1"), false), "another cluster's");
    }

    #[test]
    fn who_waits_counts_once_and_while_it_is_there() {
        let mut servers = crate::id::Table::<ServerId, ()>::default();
        let [asked, one, two] = [(); 3].map(|()| servers.insert(()));
        let mut knowledge = Knowledge::default();
        knowledge.begins(asked, true, Time(0));
        for server in [one, two, one] {
            assert!(knowledge.has_to_wait(server));
        }
        assert_eq!(knowledge.keeps_waiting(), 3);
        knowledge.forgets(two);
        assert_eq!(knowledge.keeps_waiting(), 2);
        assert_eq!(knowledge.ended(asked, false, Time(1)), [one]);
    }
}
