//! What a person sees while a run goes on: a bar with the time left, or a line per measurement where there is no terminal.
//!
//! Does not know what is measured.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const TEMPLATE: &str = "{prefix} [{bar:30}] {pos}/{len}, {eta} left: {msg}";
const TICK: Duration = Duration::from_secs(1);

pub struct Screen {
    bar: Option<ProgressBar>,
}

impl Screen {
    /// Of one experiment.
    pub fn of(experiment: &str) -> Screen {
        if !stderr().is_terminal() {
            return Screen { bar: None };
        }
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(experiment.to_owned());
        bar.enable_steady_tick(TICK);
        Screen { bar: Some(bar) }
    }

    /// What is being done now.
    pub fn now(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// How many measurements there are to come, and how many of them are done.
    pub fn more(&self, measurements: usize) {
        if let Some(bar) = &self.bar {
            bar.inc_length(measurements.try_into().unwrap_or(u64::MAX));
        }
    }

    /// One measurement is done, or has become unnecessary.
    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
