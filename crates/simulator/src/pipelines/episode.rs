//! One client's life: two sessions, one at PostgreSQL directly and one through Weir, that are sent the same and must
//! answer the same.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use weir_wire::TransactionStatus;

use super::ground::{Ground, WARM};
use super::people::Person;
use super::session::{Cuts, Session};
use super::steps::{Step, end_mark};

/// How long it may take until PostgreSQL has ended all its sessions because one has crashed.
const CRASH_NOTICED: Duration = Duration::from_secs(2);

/// A client's two sessions.
pub struct Twins {
    person: Person,
    direct: Session,
    pooled: Session,
    /// Makes texts of this episode its own, where they ask for that.
    episode: u64,
    /// What PostgreSQL answered since it was idle last.
    since_idle: Vec<String>,
}

/// Where the two first differ.
#[derive(Debug, Clone)]
pub struct Difference {
    pub direct: Vec<String>,
    pub pooled: Vec<String>,
    pub at: usize,
    /// What PostgreSQL had answered of the same transaction before, and of the batch that it began in.
    pub earlier: Vec<String>,
    /// What PostgreSQL did when an answer was late: whether a lock or the pooler holds it up.
    pub activity: Vec<String>,
}

/// A Bind of too many or too few values in a transaction that has failed: where the server has not prepared the statement yet, it
/// cannot do so there any more, and that is the error (docs/pooling-modes.md). The Bind fails either way.
fn bound_wrongly_after_failure(direct: &str, pooled: &str) -> bool {
    direct.starts_with("ERROR 08P01 bind message supplies ") && pooled.starts_with("ERROR 25P02 ")
}

/// The same of a statement whose temporary table is gone: the server that it is prepared on again says that first.
fn bound_wrongly_to_what_is_gone(direct: &str, pooled: &str) -> bool {
    direct.starts_with("ERROR 08P01 bind message supplies ")
        && pooled == "ERROR 42P01 relation \"pg_temp.held\" does not exist"
}

impl Difference {
    fn between(direct: Vec<String>, pooled: Vec<String>) -> Option<Self> {
        let excused = [bound_wrongly_after_failure, bound_wrongly_to_what_is_gone];
        let alike = |(one, other): &(&String, &String)| one == other || excused.iter().any(|may_be| may_be(one, other));
        let at = direct.iter().zip(&pooled).take_while(alike).count();
        let (earlier, activity) = (Vec::new(), Vec::new());
        (at < direct.len().max(pooled.len())).then_some(Self { direct, pooled, at, earlier, activity })
    }

    /// The first lines that differ: PostgreSQL's and Weir's.
    pub fn lines<'a>(&'a self) -> (&'a str, &'a str) {
        let line = |lines: &'a [String]| lines.get(self.at).map_or("(nothing)", String::as_str);
        (line(&self.direct), line(&self.pooled))
    }

    /// What PostgreSQL had answered before the two differed, within the same transaction or request.
    fn before(&self) -> impl Iterator<Item = &String> {
        self.earlier.iter().chain(&self.direct[..self.at])
    }

    /// Whether both may be right. The episode ends all the same: from here on the two have carried out different things.
    pub fn may_be(&self, person: Person) -> bool {
        (person.alters() && (self.by_stale_plan() || self.by_changed_type()))
            || (person.misleads() && self.by_what_it_read())
            || self.by_describing_after_failure()
            || self.by_not_standing_alone()
            || self.by_failing_behind_discard()
            || self.by_query_behind_ours()
            || self.by_lost_state()
            || self.by_freed_portal()
            || self.by_portal_of_a_refused_bind()
            || self.by_planning_with_values()
            || self.by_rows_behind_suspended_portal()
            || self.by_discarded_plans()
            || self.by_hidden_table()
            || self.by_channels_heard_elsewhere()
            || self.by_role_of_another_time()
            || self.by_first_sequence()
            || self.by_statements_elsewhere()
            || self.by_unnamed_parsed_behind_a_set()
    }

    /// Whether PostgreSQL alone may have made it, and would not each time: a session that falls behind what others change in the catalog
    /// analyses all again that it has prepared, under the parameters of then (`resetState` and `MAXNUMMESSAGES`,
    /// src/backend/storage/ipc/sinvaladt.c at 18; `ResetPlanCache`). Then a row has another number, date or interval.
    pub fn may_be_chance(&self, person: Person) -> bool {
        !person.innocent() && self.by_columns(|column| !column.contains('@'))
    }

    /// A number is another one.
    fn by_what_it_read(&self) -> bool {
        self.by_columns(|column| column.parse::<i64>().is_ok())
    }

    /// One row for another, and what differs is such.
    fn by_columns(&self, such: impl Fn(&str) -> bool) -> bool {
        let columns =
            |line: &str| Some(line.strip_prefix("DataRow ")?.split('"').map(str::to_owned).collect::<Vec<_>>());
        let (direct, pooled) = self.lines();
        let (Some(direct), Some(pooled)) = (columns(direct), columns(pooled)) else { return false };
        let mut differing = direct.iter().zip(&pooled).filter(|(one, other)| one != other);
        direct.len() == pooled.len() && differing.all(|(one, other)| such(one) && such(other))
    }

    /// DISCARD ALL has PostgreSQL analyse again what was prepared before it, under the parameters of then (`ResetPlanCache`,
    /// src/backend/utils/cache/plancache.c); not what a pooler's server had to prepare behind it (docs/pooling-modes.md).
    fn by_discarded_plans(&self) -> bool {
        let (direct, pooled) = self.lines();
        let batch = self.direct[..self.at].rsplit(|line| line.starts_with("ReadyForQuery ")).next();
        let discards = batch.is_some_and(|batch| batch.iter().any(|line| line == "CommandComplete DISCARD ALL"));
        discards && [direct, pooled].iter().all(|line| line.starts_with("DataRow "))
    }

    /// A temporary table hides one of a statement that the client prepared before. PostgreSQL goes on with the table that it knows until
    /// it plans anew; a server that had to prepare the statement there reads the temporary one, which is empty
    /// (docs/pooling-modes.md).
    fn by_hidden_table(&self) -> bool {
        let (direct, pooled) = self.lines();
        let hides = self.before().any(|line| line == "CommandComplete CREATE TABLE");
        let is_described = |line: &str| line.starts_with("ParameterDescription [");
        let otherwise = is_described(direct) && is_described(pooled);
        hides && (otherwise || (direct.starts_with("DataRow ") && pooled == "CommandComplete SELECT 0"))
    }

    /// In the midst of a transaction or batch it is not known what an UNLISTEN leaves where another server listens for the client: it is refused
    /// (docs/session-state.md).
    fn by_channels_heard_elsewhere(&self) -> bool {
        self.lines().1.starts_with("ERROR 0A000 what this session listens to cannot be ended or shown")
    }

    /// In the midst of a batch, or where a text begins with the end of a failed transaction (docs/session-state.md).
    fn by_statements_elsewhere(&self) -> bool {
        self.lines().1.starts_with("ERROR 0A000 SQL does not reach what is prepared by the protocol at this point")
    }

    /// One that was parsed in a transaction behind a change of parameters, and is used behind that on another server (docs/pooling-modes.md).
    fn by_unnamed_parsed_behind_a_set(&self) -> bool {
        self.lines().1 == "ERROR 26000 unnamed prepared statement does not exist any more"
    }

    /// The first text of a pool that reads what `nextval` gave, in the midst of a transaction or batch (docs/session-state.md).
    fn by_first_sequence(&self) -> bool {
        self.lines().1.starts_with("ERROR 0A000 what currval() and lastval() would return ")
    }

    /// What was prepared under a role cannot be prepared again by a session that has become a user who may not take it
    /// (docs/session-state.md).
    fn by_role_of_another_time(&self) -> bool {
        let (direct, pooled) = self.lines();
        pooled.starts_with("ERROR 42501 permission denied to set role ") && !direct.starts_with("ERROR 42501 ")
    }

    /// What a suspended `INSERT ... RETURNING` has inserted is seen by what is bound behind a Parse, not by what is bound at once
    /// (each Parse counts as a command: `exec_parse_message`, src/backend/tcop/postgres.c at 18), and a pooler may have to prepare
    /// there (docs/decisions/statements-and-parameters.md). So rows of the table may be more in the rest of the batch.
    fn by_rows_behind_suspended_portal(&self) -> bool {
        let (direct, pooled) = self.lines();
        let batch = self.direct[..self.at].rsplit(|line| line.starts_with("ReadyForQuery ")).next();
        let suspended = batch.is_some_and(|batch| batch.iter().any(|line| line == "PortalSuspended"));
        let alike = match [direct, pooled].map(|line| line.split(' ').collect::<Vec<_>>()).each_ref().map(Vec::as_slice)
        {
            // Whose, how many, and their sum.
            [["DataRow", one, _, _], ["DataRow", other, _, _]] => one == other,
            [["CommandComplete", "DELETE", _], ["CommandComplete", "DELETE", _]] => true,
            _ => false,
        };
        suspended && alike
    }

    /// PostgreSQL plans a statement's first uses with the values of their Bind, and may fail then where otherwise only an Execute
    /// would (`choose_custom_plan`, src/backend/utils/cache/plancache.c at 18). One that was prepared again is counted anew.
    fn by_planning_with_values(&self) -> bool {
        let (direct, pooled) = self.lines();
        let differ = |bound: &str, failed: &str| bound == "BindComplete" && failed == "ERROR 22012 division by zero";
        differ(direct, pooled) || differ(pooled, direct)
    }

    /// Told of a changed result type where PostgreSQL is not, or the other way: a pooler's server may have met the
    /// statement earlier or later than a session of one's own.
    fn by_stale_plan(&self) -> bool {
        let (direct, pooled) = self.lines();
        [direct, pooled].iter().any(|line| line.contains("cached plan must not change result type"))
    }

    /// A parameter's type was changed by DDL, and PostgreSQL finds no operator for the former one, or the former one does not take
    /// the value. A server that did not know the statement takes it as it finds the table (docs/pooling-modes.md).
    fn by_changed_type(&self) -> bool {
        let (direct, pooled) = self.lines();
        if pooled == "BindComplete" && direct.starts_with("ERROR 22P02 invalid input syntax for type integer: \"@") {
            return true;
        }
        // Either may have it for the former type: a pooler's server that prepares again what was prepared in a transaction takes it as
        // it is outside of that.
        let lost = |at: usize| {
            let lines = [self.direct.get(at), self.pooled.get(at)];
            let types =
                lines.into_iter().flatten().map(|line| line.strip_prefix("ERROR 42883 operator does not exist: "));
            types.flatten().any(|types| matches!(types, "text = integer" | "integer = text"))
        };
        // Of a Describe, behind what it takes.
        lost(self.at) || (direct.starts_with("ParameterDescription ") && lost(self.at + 1))
    }

    /// Where the server had to prepare a statement of the batch under other parameters than those of now, was asked for them behind
    /// a ROLLBACK, or was given startup values again behind a DISCARD ALL, what must stand alone is not the first that is executed
    /// (docs/pooling-modes.md).
    fn by_not_standing_alone(&self) -> bool {
        let (direct, pooled) = self.lines();
        ["DISCARD ALL", "VACUUM"].iter().any(|command| {
            direct.strip_prefix("CommandComplete ") == Some(command)
                && pooled.starts_with(&format!("ERROR 25001 {command} cannot "))
        })
    }

    /// A transaction that begins in the batch of a DISCARD ALL takes the startup values with it when it fails. The client is told,
    /// and told again with its end (docs/pooling-modes.md).
    fn by_failing_behind_discard(&self) -> bool {
        let (direct, pooled) = self.lines();
        let discards = self.before().any(|line| line == "CommandComplete DISCARD ALL");
        discards && direct == "ReadyForQuery E" && pooled.starts_with("ReadyForQuery E ")
    }

    /// A simple query that has no Sync in front of it is refused behind a query of the pooler's own, since it might be part of that
    /// query's transaction; so is one that resets what the startup packet had said (docs/pooling-modes.md).
    fn by_query_behind_ours(&self) -> bool {
        let (direct, pooled) = self.lines();
        let refused =
            ["a simple query cannot be sent here ", "giving the startup values again would end the transaction"];
        !direct.starts_with("FATAL ") && refused.iter().any(|text| pooled.starts_with(&format!("FATAL 0A000 {text}")))
    }

    /// PostgreSQL lost track of its own transaction: it does so now and then behind a simple query that has no Sync in front of it
    /// (18.6; not 15.19).
    fn by_lost_state(&self) -> bool {
        self.lines().0.starts_with("ERROR XX000 StartTransactionCommand: unexpected state ")
    }

    /// A simple query that failed within a transaction leaves its portal behind, whose statements PostgreSQL has freed; an Execute of it
    /// reads them all the same, and says which of the two it is by what it finds there, or crashes (`exec_execute_message`,
    /// src/backend/tcop/postgres.c; 18.6).
    fn by_freed_portal(&self) -> bool {
        let (direct, pooled) = self.lines();
        let either = |line: &str| line == "ERROR 55000 portal \"\" cannot be run" || line.starts_with("ERROR 25P02 ");
        either(direct) && either(pooled)
    }

    /// A Bind that fails since the result type has changed leaves a portal behind that a Describe still finds, in a transaction that has
    /// failed. Where the pooler knows of the change it sends no Bind (docs/pooling-modes.md).
    fn by_portal_of_a_refused_bind(&self) -> bool {
        let (direct, pooled) = self.lines();
        let refused = |line: &String| line == "ERROR 0A000 cached plan must not change result type";
        direct == "NoData" && pooled.starts_with("ERROR 34000 portal ") && self.direct[..self.at].iter().any(refused)
    }

    /// As [`bound_wrongly_after_failure`], of a Describe of what returns no rows: PostgreSQL answers it even then.
    fn by_describing_after_failure(&self) -> bool {
        let (direct, pooled) = self.lines();
        let no_rows = self.direct.get(self.at + 1).is_some_and(|next| next == "NoData");
        direct.starts_with("ParameterDescription ") && no_rows && pooled.starts_with("ERROR 25P02 ")
    }

    /// A line of Weir's with another client's mark in it.
    pub fn foreign(&self, person: Person) -> bool {
        let own = person.mark();
        self.pooled.iter().any(|line| line.replace(&own, "").contains('@'))
    }
}

impl Twins {
    /// Both log in, in a fresh schema. What they are told then must be the same already.
    pub fn begin(ground: &Ground, person: Person, episode: u64, patience: Duration) -> Result<Self, String> {
        ground.reset(person)?;
        let direct = ground.log_in(person, false, patience)?;
        let pooled = ground.log_in(person, true, patience)?;
        Ok(Self { person, direct, pooled, episode, since_idle: Vec::new() })
    }

    /// What they were told when they came in, and whether it differs.
    pub fn greeting(&mut self) -> Option<Difference> {
        let difference = Difference::between(self.direct.transcript.take(), self.pooled.transcript.take());
        // As the pooler's servers.
        self.direct.query(WARM);
        difference
    }

    pub fn person(&self) -> Person {
        self.person
    }

    pub fn status(&self) -> Option<TransactionStatus> {
        self.direct.transcript.status
    }

    pub fn bytes(&self, steps: &[Step]) -> Vec<u8> {
        let mut bytes = self.unended(steps);
        end_mark(&mut bytes);
        bytes
    }

    /// Without the mark that ends a pipeline.
    pub fn unended(&self, steps: &[Step]) -> Vec<u8> {
        let mut bytes = Vec::new();
        steps.iter().for_each(|step| step.write(&mut bytes, self.episode));
        bytes
    }

    pub fn ask(&mut self, ground: &Ground, steps: &[Step], cuts: &Cuts) -> Option<Difference> {
        let bytes = self.bytes(steps);
        let late = self.pooled.patience * 3 / 4;
        let (direct, pooled) = (&mut self.direct, &mut self.pooled);
        let (direct, pooled, activity) = std::thread::scope(|scope| {
            let (answered, answers) = channel::<()>();
            let looked = scope.spawn(move || match answers.recv_timeout(late) {
                Err(RecvTimeoutError::Timeout) => ground.activity(),
                _ => Vec::new(),
            });
            let asked = scope.spawn(|| direct.ask(&bytes, &Cuts::new()));
            let pooled = pooled.ask(&bytes, cuts);
            let direct = asked.join().unwrap_or_default();
            drop(answered);
            (direct, pooled, looked.join().unwrap_or_default())
        });
        let earlier = std::mem::take(&mut self.since_idle);
        self.since_idle = match direct.iter().rposition(|line| line.starts_with("ReadyForQuery I")) {
            Some(idle) => direct[idle + 1..].to_vec(),
            None => [earlier.as_slice(), direct.as_slice()].concat(),
        };
        let difference = Difference::between(direct, pooled);
        let difference = difference.map(|difference| Difference { earlier, activity, ..difference });
        // PostgreSQL crashes now and then on what is sent here, and takes all sessions with it: then nothing was compared.
        difference.filter(|_| self.ground_stands())
    }

    fn ground_stands(&mut self) -> bool {
        if self.pooled.transcript.broken {
            // One backend has crashed: PostgreSQL ends the others when it notices.
            std::thread::sleep(CRASH_NOTICED);
        }
        let mut bytes = Vec::new();
        end_mark(&mut bytes);
        !self.direct.transcript.broken && {
            self.direct.ask(&bytes, &Cuts::new());
            !self.direct.transcript.broken
        }
    }

    /// True if one of the sessions can answer no more.
    pub fn broken(&self) -> bool {
        self.direct.transcript.broken || self.pooled.transcript.broken
    }

    /// Both send a part and leave.
    pub fn vanish(self, steps: &[Step], keep: usize) {
        let bytes = self.bytes(steps);
        let part = &bytes[..keep.min(bytes.len())];
        self.direct.vanish(part);
        self.pooled.vanish(part);
    }
}

/// Replays pipelines in a new episode: the first difference, if there is one.
pub fn replay(
    ground: &Ground,
    person: Person,
    episode: u64,
    pipelines: &[Vec<Step>],
    patience: Duration,
) -> Option<(usize, Difference)> {
    let mut twins = Twins::begin(ground, person, episode, patience).ok()?;
    if let Some(difference) = twins.greeting() {
        return Some((0, difference));
    }
    for (place, steps) in pipelines.iter().enumerate() {
        if let Some(difference) = twins.ask(ground, steps, &Cuts::new()) {
            return Some((place, difference)).filter(|(_, difference)| !difference.may_be(person));
        }
        if twins.broken() {
            return None;
        }
    }
    None
}
