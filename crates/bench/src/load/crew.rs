//! Several threads of clients, led through their stages.
//!
//! Does not know what a stage is good for, nor what answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::engine::Engine;
use super::plan::{Control, Plan, Stage};
use super::tally::Tally;
use weir_measure::ground::interrupt::Interrupt;

/// Logins that bring nobody in for so long have come to an end. PgBouncer lets nobody in for 15 s behind one failed login to its server
/// (`server_login_retry`).
const STALL: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub struct Crew {
    control: Arc<Control>,
    threads: Vec<JoinHandle<Result<Tally>>>,
    clients: usize,
}

impl Crew {
    /// Starts to log in.
    pub fn start(plan: &Plan, threads: usize) -> Crew {
        let control = Arc::new(Control::default());
        let threads = threads.clamp(1, plan.clients.max(1));
        let share = |whole: usize, number: usize| whole / threads + usize::from(number < whole % threads);
        let start = |number: usize| {
            let plan = Plan {
                clients: share(plan.clients, number),
                at_once: share(plan.at_once, number).max(1),
                eager: share(plan.eager, number),
                ..plan.clone()
            };
            let control = Arc::clone(&control);
            let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
            thread::spawn(move || Engine::new(&plan, &control, seed)?.run())
        };
        let threads = (0..threads).map(start).collect();
        Crew { control, threads, clients: plan.clients }
    }

    pub fn logged_in(&self) -> usize {
        self.control.logged_in.load(Ordering::Relaxed)
    }

    pub fn lost(&self) -> usize {
        self.control.lost.load(Ordering::Relaxed)
    }

    /// Waits until everybody is in, was refused, or nothing moves any more. Gives how many are in.
    pub fn wait_for_logins(&self, interrupt: &Interrupt) -> Result<usize> {
        self.wait_while_it_moves(interrupt, || (self.logged_in() + self.lost(), self.clients))?;
        Ok(self.logged_in())
    }

    /// All are in, or it is an error.
    pub fn log_in(plan: &Plan, threads: usize, interrupt: &Interrupt) -> Result<Crew> {
        let crew = Crew::start(plan, threads);
        let count = crew.wait_for_logins(interrupt)?;
        if count < plan.clients {
            let reason = crew.stop()?.first_failure.unwrap_or_else(|| "no answer".to_owned());
            bail!("only {count} of {} clients could log in: {reason}", plan.clients);
        }
        Ok(crew)
    }

    /// Lets each client ask one query.
    pub fn ask_once(&self, interrupt: &Interrupt) -> Result<()> {
        self.control.set(Stage::Once);
        let asked = || self.control.asked_once.load(Ordering::Relaxed);
        self.wait_while_it_moves(interrupt, || (asked(), self.logged_in()))?;
        self.control.set(Stage::Hold);
        Ok(())
    }

    fn wait_while_it_moves(&self, interrupt: &Interrupt, progress: impl Fn() -> (usize, usize)) -> Result<()> {
        let mut last = (0, Instant::now());
        loop {
            interrupt.check()?;
            let (now, all) = progress();
            if now >= all || (now == last.0 && last.1.elapsed() > STALL) || self.has_ended() {
                return Ok(());
            }
            if now != last.0 {
                last = (now, Instant::now());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    pub fn ask(&self) {
        self.control.set(Stage::Ask);
    }

    pub fn phase(&self, phase: usize) {
        self.control.phase.store(phase, Ordering::Relaxed);
    }

    /// Ends all clients and gives what they saw.
    pub fn stop(mut self) -> Result<Tally> {
        self.control.set(Stage::Stop);
        let mut all = Tally::new()?;
        for thread in self.threads.drain(..) {
            all.add(thread.join().map_err(|_| anyhow!("a thread of the load generator panicked"))??)?;
        }
        Ok(all)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.control.set(Stage::Stop);
        for thread in self.threads.drain(..) {
            // Whoever drops a crew has no use for what it saw.
            let _ = thread.join();
        }
    }
}
