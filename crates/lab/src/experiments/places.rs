//! Which numbers of clients and connections are worth measuring: ladders, what this machine has room for, and where to look finer.
//!
//! Knows the machine's cores and memory; does not know what any experiment does with the numbers.

use crate::dataset::Line;
use crate::experiment::{Course, Stop};
use crate::targets::{Needs, PoolerKind, Tables, Target};
use weir_measure::ground::{descriptors, machine::Machine};
use weir_measure::statistics;

/// Private memory and page tables of a backend that has run small queries; measured by the experiment `memory`.
const CONNECTION_KIB: u64 = 2_304;
/// Of all memory, what connections may take: the rest is for shared buffers, pgbench and the machine itself.
const MEMORY_PART: u64 = 2;
/// Files that a process has open beside its connections.
const FILES_BESIDE: u64 = 200;
/// What `max_connections` allows beyond those that an experiment opens: the lab's own, and those that are still ending.
const CONNECTIONS_BESIDE: usize = 40;
/// Neighbours nearer than this are near enough.
const NEIGHBOUR_RATIO: f64 = 1.34;

/// What this machine has room for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    pub cores: usize,
    pub memory_mib: u64,
    /// Open files of one process.
    pub files: u64,
}

impl Room {
    pub fn here() -> Room {
        let machine = Machine::describe();
        // A limit that cannot be read limits later, with its own words.
        let files = descriptors::limit().unwrap_or(u64::MAX);
        Room { cores: machine.cores.max(1), memory_mib: machine.memory_mib, files }
    }

    /// The connections that memory and open files allow at once, as a round number.
    pub fn connections_max(&self) -> usize {
        let by_memory = self.memory_mib / MEMORY_PART * 1024 / CONNECTION_KIB;
        let by_files = self.files.saturating_sub(FILES_BESIDE);
        let both = usize::try_from(by_memory.min(by_files)).unwrap_or(usize::MAX);
        if both >= 200 { both / 100 * 100 } else { both }
    }
}

/// A server for `most` clients at once, beside whom every pooler may hold all of its server connections.
pub fn needs(most: usize, tables: Tables, poolers: &[PoolerKind], pool_size: usize) -> Needs {
    // A fleet rounds each process's part up.
    let pools = poolers.len() * pool_size * 2;
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Needs {
        max_connections: number(most + pools + CONNECTIONS_BESIDE),
        settings: Vec::new(),
        tables,
        poolers: poolers.to_vec(),
        pool_size: number(pool_size),
    }
}

/// The last of a ladder, where most things are open at once.
pub fn most(xs: &[f64]) -> usize {
    xs.last().map_or(0, |most| statistics::count(*most))
}

/// Of an experiment that varies one thing alone.
pub const ONE_SERIES: &[&str] = &[""];

/// A line of each series on each target, over the same places.
pub fn courses<'a>(
    series: &[&str],
    targets: impl IntoIterator<Item = &'a Target>,
    xs: &[f64],
    stop: Stop,
) -> Vec<Course> {
    let of = |target: &'a Target| series.iter().map(move |series| Course::new(series, target, xs, stop));
    targets.into_iter().flat_map(of).collect()
}

/// 1, 2, 4, ... up to `last`, which is the last.
pub fn doubling(last: usize) -> Vec<f64> {
    let mut numbers: Vec<usize> = std::iter::successors(Some(1), |number: &usize| number.checked_mul(2))
        .take_while(|number| *number < last)
        .collect();
    numbers.push(last.max(1));
    floats(&numbers)
}

/// Those of `numbers` that are not beyond `most`, and `most` itself where a large part of the way there would be left out.
pub fn up_to(numbers: &[usize], most: usize) -> Vec<f64> {
    let mut kept: Vec<usize> = numbers.iter().copied().filter(|number| *number <= most).collect();
    let left_out = kept.len() < numbers.len();
    if left_out && kept.last().is_none_or(|last| most > last + last / 2) {
        kept.push(most);
    }
    floats(&kept)
}

pub fn floats(numbers: &[usize]) -> Vec<f64> {
    // No number of connections is beyond 32 bits.
    numbers.iter().map(|number| f64::from(u32::try_from(*number).unwrap_or(u32::MAX))).collect()
}

/// The whole numbers half way (on a logarithmic scale) from the peak to its neighbours, where these are far.
pub fn around_peak(line: &Line, key: &str) -> Vec<f64> {
    let curve = line.curve(key);
    let Some(peak) = line.peak(key).map(|place| place.x) else { return Vec::new() };
    let below = curve.iter().map(|(x, _)| *x).rfind(|x| *x < peak);
    let above = curve.iter().map(|(x, _)| *x).find(|x| *x > peak);
    let between = [below.map(|below| (below, peak)), above.map(|above| (peak, above))];
    let far = between.into_iter().flatten().filter(|(low, high)| *low > 0.0 && high / low > NEIGHBOUR_RATIO);
    let middles = far.map(|(low, high)| ((low * high).sqrt().round(), low, high));
    middles.filter(|(middle, low, high)| middle > low && middle < high).map(|(middle, _, _)| middle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fixtures;

    #[test]
    fn memory_and_files_both_bound_connections() {
        let room = Room { cores: 2, memory_mib: 24_000, files: 1_000_000 };
        assert_eq!(room.connections_max(), 5_300);
        assert_eq!(Room { files: 1_024, ..room }.connections_max(), 800);
        assert_eq!(Room { memory_mib: 512, ..room }.connections_max(), 113);
    }

    #[test]
    fn a_server_has_room_for_clients_and_all_pools() {
        let needs = needs(256, Tables::None, &[PoolerKind::PgBouncer, PoolerKind::Weir], 32);
        assert!(needs.max_connections > 256 + 2 * 32 + 3, "the reserved ones as well");
        assert_eq!(needs.pool_size, 32);
    }

    #[test]
    fn ladders_end_at_their_last_number() {
        assert_eq!(doubling(20), [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]);
        assert_eq!(doubling(16), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(doubling(0), [1.0]);
        assert_eq!(up_to(&[0, 100, 1_000, 5_000, 10_000], 5_300), [0.0, 100.0, 1_000.0, 5_000.0]);
        assert_eq!(up_to(&[0, 100, 1_000, 5_000], 3_000), [0.0, 100.0, 1_000.0, 3_000.0]);
        assert_eq!(up_to(&[0, 100], 3_000), [0.0, 100.0]);
    }

    #[test]
    fn a_finer_look_stops_where_neighbours_are_near() {
        let line = |places: &[(f64, f64)]| fixtures::line("", "a", "tps", places);
        assert_eq!(around_peak(&line(&[(8.0, 10.0), (16.0, 12.0), (32.0, 11.0)]), "tps"), [11.0, 23.0]);
        assert_eq!(around_peak(&line(&[(1.0, 12.0), (2.0, 11.0)]), "tps"), [0.0; 0]);
        assert_eq!(around_peak(&line(&[(8.0, 10.0), (16.0, 12.0)]), "tps"), [11.0]);
        assert_eq!(around_peak(&line(&[(13.0, 1.0), (16.0, 12.0), (20.0, 11.0)]), "tps"), [0.0; 0]);
        assert_eq!(around_peak(&Line::default(), "tps"), [0.0; 0]);
    }
}
