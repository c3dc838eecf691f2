//! Ctrl-C and its relatives: a flag that every wait looks at, so that a stop goes through the same clean-up as an end.
//!
//! Does not know what is being waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a wait looks at the flag: short beside a person's patience, long beside a measured transaction.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn install() -> Result<Interrupt> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .with_context(|| format!("cannot handle signal {signal}"))?;
        }
        Ok(Interrupt(flag))
    }

    /// One that nobody raises: for clearing away what a stop would leave behind.
    pub fn never() -> Interrupt {
        Interrupt(Arc::default())
    }

    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted: everything that was started has been stopped");
        }
        Ok(())
    }

    /// Calls `ready` until it gives a value, the time is over (`None`) or somebody wants us to stop (an error).
    pub fn wait_for<T>(&self, patience: Duration, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        let deadline = Instant::now() + patience;
        loop {
            self.check()?;
            if let Some(value) = ready()? {
                return Ok(Some(value));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }

    pub fn sleep(&self, time: Duration) -> Result<()> {
        self.wait_for(time, || Ok(None::<()>)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_value_the_deadline_or_the_interrupt() {
        let interrupt = Interrupt(Arc::new(AtomicBool::new(false)));
        let mut calls = 0;
        let value = interrupt.wait_for(Duration::from_secs(5), || {
            calls += 1;
            Ok((calls == 2).then_some(calls))
        });
        assert_eq!(value.unwrap(), Some(2));
        assert!(interrupt.wait_for(Duration::from_millis(1), || Ok(None::<()>)).unwrap().is_none());
        interrupt.0.store(true, Ordering::Relaxed);
        assert!(interrupt.sleep(Duration::from_secs(5)).is_err());
    }
}
