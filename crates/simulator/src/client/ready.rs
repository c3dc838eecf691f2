//! The end of a request's answers: what its ReadyForQuery says, and what its client knows by then.

use weir_wire::TransactionStatus;
use weir_wire::backend;

use super::replies::Expect;
use super::{Client, Role, Stage};
use crate::postgres::language::Tag;
use crate::postgres::{CONFIGURED, REPORTED, canonical, configured_number};

impl Client {
    pub(super) fn ready(&mut self, stage: &mut Stage, body: &[u8]) {
        if !matches!(self.front(), Some(Expect::Ready | Expect::Anything)) {
            return self.wrong(stage, "ReadyForQuery too early");
        }
        let Some(exchange) = self.owed.pop_front() else { return };
        if self.role == Role::Console {
            stage.counts.console_queries += 1;
            return;
        }
        match backend::ready(body) {
            Ok(status) if status == self.status() => {}
            other => return self.wrong(stage, &format!("status {other:?} and not {:?}", self.status())),
        }
        if exchange.longest > stage.plan.packets().0 {
            stage.checks.fail("limits hold", format!("a message of {} bytes was answered", exchange.longest));
        }
        self.own.queried |= self.explicit && !exchange.plain;
        if exchange.simple {
            self.names.simple_query();
        }
        if !self.explicit {
            if exchange.failed {
                self.roll_back_session();
            }
            self.remember_session();
            self.names.transaction_over();
            let writes: Vec<Tag> = self.writes.drain(..).collect();
            for tag in writes {
                if exchange.failed { stage.checks.rolled_back_told(tag) } else { stage.checks.committed_told(tag) }
            }
        }
        self.compare_told(stage);
        if matches!(self.role, Role::Fresh { .. } | Role::Keyed { .. })
            && self.script.is_empty()
            && self.owed.is_empty()
        {
            self.served = true;
        }
    }

    fn status(&self) -> TransactionStatus {
        match (self.explicit, self.aborted) {
            (false, _) => TransactionStatus::Idle,
            (true, false) => TransactionStatus::InTransaction,
            (true, true) => TransactionStatus::Failed,
        }
    }

    /// What the client was told of its session must be what the session has.
    pub(super) fn compare_told(&mut self, stage: &mut Stage) {
        for name in REPORTED {
            let told = self.told.get(name).and_then(|value| canonical(name, value));
            if told.as_ref() != self.model.get(name) {
                let text = format!("{name} is {:?}, told {told:?}: {}", self.model.get(name), self.describe());
                return stage.checks.fail("session parameters told wrongly", text);
            }
        }
        if let Some(path) = self.model.get(CONFIGURED).filter(|path| self.told.get(CONFIGURED) != Some(path)) {
            let text = format!("{CONFIGURED} is {path}, told {:?}: {}", self.told.get(CONFIGURED), self.describe());
            return stage.checks.fail("session parameters told wrongly", text);
        }
        // A later change may have come behind the row; what a row had is told with its ReadyForQuery.
        let told = self.told.get(CONFIGURED).and_then(|value| configured_number(value));
        if let Some(read) = self.configured.take().filter(|read| told < Some(*read)) {
            let text = format!("{CONFIGURED} was {read}, told {told:?}: {}", self.describe());
            stage.checks.fail("session parameters told wrongly", text);
        }
    }
}
