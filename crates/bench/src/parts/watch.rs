//! The pooler's CPU clock and memory while a load runs, looked at again and again.
//!
//! Does not know the load.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::peers::endpoint::Endpoint;

/// Reading a process's mappings is not free; ten times in a run are enough for a maximum.
const MEMORY_EVERY: usize = 25;

#[derive(Default)]
pub struct Watch {
    clock: Vec<(Instant, Duration)>,
    pub private_kib_max: Option<u64>,
}

impl Watch {
    pub fn look(&mut self, endpoint: &Endpoint) -> Result<()> {
        let Some(cpu) = endpoint.cpu_time()? else { return Ok(()) };
        self.clock.push((Instant::now(), cpu));
        if self.clock.len().is_multiple_of(MEMORY_EVERY) {
            let memory = endpoint.memory()?.map(|memory| memory.private_kib);
            self.private_kib_max = self.private_kib_max.max(memory);
        }
        Ok(())
    }

    /// What the clock showed so long before the last look.
    pub fn cpu_at(&self, before_end: Duration) -> Option<Duration> {
        let moment = self.clock.last()?.0.checked_sub(before_end)?;
        interpolate(&self.clock, moment)
    }
}

fn interpolate(clock: &[(Instant, Duration)], moment: Instant) -> Option<Duration> {
    let after = clock.iter().position(|(at, _)| *at >= moment)?;
    let (late, late_cpu) = clock[after];
    let Some((early, early_cpu)) = after.checked_sub(1).map(|before| clock[before]) else { return Some(late_cpu) };
    let share = (moment - early).as_secs_f64() / (late - early).as_secs_f64().max(f64::MIN_POSITIVE);
    Some(early_cpu + late_cpu.saturating_sub(early_cpu).mul_f64(share.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_between_two_looks() {
        let begin = Instant::now();
        let at = |ms: u64, cpu_ms: u64| (begin + Duration::from_millis(ms), Duration::from_millis(cpu_ms));
        let clock = [at(0, 0), at(100, 50), at(200, 60)];
        let read = |ms: u64| interpolate(&clock, begin + Duration::from_millis(ms)).unwrap().as_millis();
        assert_eq!((read(0), read(50), read(100), read(150)), (0, 25, 50, 55));
        assert_eq!(interpolate(&clock, begin + Duration::from_millis(201)), None);
        let watch = Watch { clock: clock.to_vec(), private_kib_max: None };
        assert_eq!(watch.cpu_at(Duration::from_millis(150)).unwrap().as_millis(), 25);
    }
}
