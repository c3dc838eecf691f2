//! Whose time has come: `timers.rs` keeps the entries; what they mean is decided here.

use crate::context::Context;
use crate::mail::Letter;
use crate::names::shown;
use crate::stats::Counters;
use crate::time::Time;
use crate::timers::{Entry, Subject};
use crate::worker::{Process, Service, Traffic};

impl Process {
    /// Does what is due. What becomes due on the way is for the next call, so that no setting can keep one from returning.
    pub(super) fn timeout(&mut self) {
        let mut due = self.service.traffic.cx.timers.take_due(self.service.traffic.cx.now);
        for entry in due.drain(..) {
            self.service.traffic.step();
            self.entry_due(entry);
        }
        self.service.traffic.cx.timers.give_back(due);
    }

    fn entry_due(&mut self, entry: Entry) {
        let Self { service, averages, loads_deadline, handover_deadline, .. } = self;
        let Service { traffic, load, .. } = service;
        let Traffic { cx, clients, servers, pools, unused_deadline, .. } = traffic;
        let Context { now, timers, survey, .. } = cx;
        let now = *now;
        let deadline = match entry.subject {
            Subject::Client(id) => clients.get_mut(id).map(|client| &mut client.deadline),
            Subject::Server(id) => servers.get_mut(id).map(|server| &mut server.deadline),
            Subject::Pool(index) => Some(&mut pools[index].deadline),
            Subject::Survey => Some(&mut survey.deadline),
            Subject::Load => Some(&mut load.deadline),
            Subject::Loads => Some(loads_deadline),
            Subject::Unused => Some(unused_deadline),
            Subject::Handover => Some(handover_deadline),
            Subject::Stats => Some(&mut averages.deadline),
        };
        if !deadline.is_some_and(|deadline| timers.due(entry, deadline, now)) {
            return;
        }
        match entry.subject {
            Subject::Client(id) => service.client_due(id),
            Subject::Server(id) => service.server_due(id),
            Subject::Pool(index) => traffic.pool_due(index),
            Subject::Survey => traffic.survey(),
            Subject::Load => load.due(pools, cx),
            Subject::Loads => self.look_at_loads(),
            Subject::Unused => self.forget_unused(),
            Subject::Handover => self.look_who_goes_over(),
            Subject::Stats => {
                self.take_averages();
                self.arm_stats();
            }
        }
    }

    /// Connections that are gone leave their entries behind.
    #[cold]
    pub(super) fn sweep_timers(&mut self) {
        let Service { traffic, load, .. } = &mut self.service;
        let Traffic { cx, clients, servers, pools, unused_deadline, .. } = traffic;
        let Context { timers, survey, .. } = cx;
        timers.sweep(|entry| match entry.subject {
            Subject::Client(id) => clients.get(id).is_some_and(|client| entry.is_of(&client.deadline)),
            Subject::Server(id) => servers.get(id).is_some_and(|server| entry.is_of(&server.deadline)),
            Subject::Pool(index) => entry.is_of(&pools[index].deadline),
            Subject::Survey => entry.is_of(&survey.deadline),
            Subject::Load => entry.is_of(&load.deadline),
            Subject::Loads => entry.is_of(&self.loads_deadline),
            Subject::Stats => entry.is_of(&self.averages.deadline),
            Subject::Unused => entry.is_of(unused_deadline),
            Subject::Handover => entry.is_of(&self.handover_deadline),
        });
    }

    pub(super) fn arm_stats(&mut self) {
        let cx = &mut self.service.traffic.cx;
        let due = cx.settings.stats_period.limit().map_or(Time::NEVER, |period| cx.now + period);
        cx.timers.set(Subject::Stats, &mut self.averages.deadline, due);
    }

    /// In PgBouncer's words (`cleanup_inactive_pools`, src/janitor.c of its master).
    fn forget_unused(&mut self) {
        let Traffic { cx, pools, .. } = &mut self.service.traffic;
        for (name, unused) in pools.forget_unused(cx.now) {
            let (database, user) = (shown(&name.database), shown(&name.user));
            let age = unused.as_secs();
            cx.log_info(format!(
                "cleaning up idle pool for user {user} on db {database} because: pool idle timeout (age={age}s)"
            ));
        }
        self.service.traffic.look_for_unused();
    }

    fn take_averages(&mut self) {
        let Traffic { cx, pools, .. } = &mut self.service.traffic;
        self.averages.begin(cx.now);
        let mut all = Counters::default();
        for index in pools.indexes() {
            let pool = &mut pools[index];
            let counters = pool.counted_so_far();
            pool.counted = counters.since(&pool.counters_before);
            pool.counters_before = counters;
            all += pool.counted;
        }
        if cx.settings.log.stats {
            cx.tell_steward(Letter::Counted { counted: Box::new(all) });
        }
    }
}
