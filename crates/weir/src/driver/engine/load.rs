//! How busy a worker is.
//!
//! Time between waking and waiting is not all work: on a full machine the thread waits for a core in it, and another worker
//! awake would only wait as well. CPU time is not all work either: some of it is looking for work. The lesser counts.

use rustix::time::{ClockId, clock_gettime};
use weir_core::Time;
use weir_core::time::Duration;

/// How often the worker's load is handed in at most.
const PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Load {
    since: Time,
    /// The thread's CPU time then, in microseconds.
    cpu_time_us: u64,
    awake_us: u64,
    worked: bool,
}

impl Load {
    /// The thread was awake for that long, besides looking for work.
    pub fn awake(&mut self, time: Duration) {
        self.awake_us += time.0;
    }

    pub fn worked(&mut self) {
        self.worked = true;
    }

    /// The load since it was told last, if it is time to tell it.
    pub fn tell(&mut self, now: Time) -> Option<u16> {
        let period = now.since(self.since);
        if !self.worked || period < PERIOD {
            return None;
        }
        let cpu_time_us = thread_cpu_time_us();
        let busy_us = self.awake_us.min(cpu_time_us.saturating_sub(self.cpu_time_us));
        *self = Self { since: now, cpu_time_us, awake_us: 0, worked: false };
        Some(permille(busy_us, period))
    }
}

fn permille(busy_us: u64, period: Duration) -> u16 {
    u16::try_from(busy_us.saturating_mul(1000) / period.0.max(1)).unwrap_or(u16::MAX).min(1000)
}

fn thread_cpu_time_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_core_is_no_work() {
        let mut load = Load::default();
        load.worked();
        // Awake for a whole second of its clock, in which this thread hardly ran.
        let _ = load.tell(Time(1_000_000));
        load.worked();
        load.awake(Duration(1_000_000));
        let told = load.tell(Time(2_000_000)).unwrap();
        assert!(told < 500, "{told}");
    }

    #[test]
    fn looking_for_work_is_no_work() {
        let mut load = Load::default();
        load.worked();
        let _ = load.tell(Time(1_000_000));
        load.worked();
        let before = thread_cpu_time_us();
        while thread_cpu_time_us() < before + 2_000 {
            std::hint::spin_loop();
        }
        assert_eq!(load.tell(Time(1_100_000)), Some(0));
    }

    #[test]
    fn told_once_a_period_and_only_after_work() {
        let mut load = Load::default();
        assert_eq!(load.tell(Time(5_000_000)), None, "nothing was done");
        load.worked();
        assert!(load.tell(Time(5_000_000)).is_some());
        load.worked();
        assert_eq!(load.tell(Time(5_050_000)), None, "too soon");
        assert_eq!(permille(50_000, Duration(100_000)), 500);
        assert_eq!(permille(200_000, Duration(100_000)), 1000);
    }
}
