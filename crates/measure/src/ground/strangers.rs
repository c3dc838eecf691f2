//! Whose the machine's CPU time was: the server's, the pooler's, the load's, threads' of the kernel, others', or a hypervisor's.
//!
//! Knows `/proc`; does not know what is measured, nor what is too much.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::family::ticks_time;

/// How often all processes are looked at.
const EVERY: Duration = Duration::from_millis(500);
/// A look at thousands of processes is a load too: it may take a hundredth of a core.
const COST_FACTOR: u32 = 100;
/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: i64 = 0x0020_0000;
/// `SCHED_IDLE`: it runs when nobody else wants to, and takes nothing from anybody.
const ONLY_WHEN_IDLE: i64 = 5;
/// Longer chains of parents are none.
const ANCESTORS_MAX: usize = 64;

/// To whom a process and all its descendants belong that are not known to be somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    Server,
    Pooler,
    /// pgbench, and the program that started it.
    Load,
}

/// One process at a moment.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    name: String,
    parent: i32,
    is_kernel: bool,
    only_when_idle: bool,
    /// Its own time, and that of children that have ended.
    used: Duration,
}

/// The machine at a moment.
#[derive(Clone, Debug)]
pub struct Look {
    at: Instant,
    machine: Machine,
    processes: BTreeMap<i32, Seen>,
}

/// Time of all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Machine {
    /// In programs and threads; what interrupts take is nobody's.
    tasks: Duration,
    steal: Duration,
}

impl Look {
    /// `None` where the machine has other cores than the `cores` that are ours: what runs on those is not ours to tell.
    pub fn now(cores: usize) -> Option<Look> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let machine = Machine::read(&stat).filter(|_| counted_cores(&stat) == cores)?;
        let pids = fs::read_dir("/proc").ok()?.flatten();
        let mut pids: Vec<i32> = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // Children before their parents, for the most part: one that ends meanwhile is counted twice rather than not at all, and not
        // taken for a stranger that nobody saw.
        pids.sort_unstable_by(|one, other| other.cmp(one));
        let seen = |pid: i32| Some((pid, Seen::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?));
        Some(Look { at: Instant::now(), machine, processes: pids.into_iter().filter_map(seen).collect() })
    }

    /// The nearest of a process and its ancestors that is somebody's.
    fn whose(&self, pid: i32, known: &[(i32, Whose)]) -> Option<Whose> {
        let mut pid = pid;
        for _ in 0..ANCESTORS_MAX {
            if let Some((_, whose)) = known.iter().find(|(root, _)| *root == pid) {
                return Some(*whose);
            }
            pid = self.processes.get(&pid)?.parent;
        }
        None
    }
}

impl Machine {
    /// `cpu user nice system idle iowait irq softirq steal ...` of proc(5).
    fn read(stat: &str) -> Option<Machine> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<i64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _iowait, _irq, _softirq, steal, ..] = fields[..] else { return None };
        Some(Machine { tasks: ticks_time(user + nice + system), steal: ticks_time(steal) })
    }
}

/// Those that a `/proc/stat` counts.
pub fn counted_cores(stat: &str) -> usize {
    let number =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    stat.lines().filter(number).count()
}

impl Seen {
    /// A `/proc/PID/stat`; the name may hold blanks and parentheses.
    fn read(stat: &str) -> Option<Seen> {
        let (head, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        // As proc(5) counts: the first field behind the name is the third.
        let field = |number: usize| fields.get(number - 3).and_then(|field| field.trim_end().parse::<i64>().ok());
        let used = field(14)? + field(15)? + field(16)?.max(0) + field(17)?.max(0);
        Some(Seen {
            name: head.split_once('(')?.1.to_owned(),
            parent: i32::try_from(field(4)?).ok()?,
            is_kernel: field(9)? & KERNEL_THREAD != 0,
            only_when_idle: field(41) == Some(ONLY_WHEN_IDLE),
            used: ticks_time(used),
        })
    }
}

/// What was used between two looks, in cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    pub server: f64,
    pub pooler: f64,
    pub load: f64,
    /// Threads of the kernel by name, the largest first.
    pub kernel: Vec<(String, f64)>,
    /// Programs that are nobody's here, the largest first.
    pub others: Vec<(String, f64)>,
    /// Of programs that had ended before the second look, or that cannot be seen.
    pub unseen: f64,
    pub steal: f64,
}

impl Shares {
    /// What strangers used, and the name of the largest where one is known.
    pub fn strangers(&self) -> (f64, Option<&str>) {
        let named: f64 = self.others.iter().map(|(_, cores)| cores).sum();
        let largest = self.others.first().filter(|(_, cores)| *cores >= self.unseen);
        (named + self.unseen, largest.map(|(name, _)| name.as_str()))
    }

    pub fn of_kernel(&self) -> f64 {
        self.kernel.iter().map(|(_, cores)| cores).sum()
    }

    /// Of one family all together, whatever of it has ended in between. `None` where no time has passed.
    fn between(before: &Look, after: &Look, (known, servers): (&[(i32, Whose)], &[&str])) -> Option<Shares> {
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let mut used: BTreeMap<i32, f64> = BTreeMap::new();
        for (pid, seen) in &after.processes {
            *used.entry(*pid).or_default() += seen.used.as_secs_f64();
        }
        for (pid, seen) in &before.processes {
            // What a process that has ended had used until then is in its parent's time now.
            let heir = if after.processes.contains_key(pid) { *pid } else { seen.parent };
            *used.entry(heir).or_default() -= seen.used.as_secs_f64();
        }
        let mut shares = Shares::default();
        let (mut others, mut kernel): (BTreeMap<&str, f64>, BTreeMap<&str, f64>) = (BTreeMap::new(), BTreeMap::new());
        let mut all = 0.0;
        for (pid, used) in used {
            let Some(seen) = after.processes.get(&pid) else { continue };
            let cores = used.max(0.0) / seconds;
            all += cores;
            match after.whose(pid, known) {
                Some(Whose::Server) => shares.server += cores,
                Some(Whose::Pooler) => shares.pooler += cores,
                Some(Whose::Load) => shares.load += cores,
                None if servers.contains(&seen.name.as_str()) => shares.server += cores,
                None if seen.only_when_idle => {}
                None if seen.is_kernel => *kernel.entry(&seen.name).or_default() += cores,
                None => *others.entry(&seen.name).or_default() += cores,
            }
        }
        let machine = |of: fn(&Machine) -> Duration| {
            of(&after.machine).saturating_sub(of(&before.machine)).as_secs_f64() / seconds
        };
        shares.unseen = (machine(|machine| machine.tasks) - all).max(0.0);
        shares.steal = machine(|machine| machine.steal);
        (shares.others, shares.kernel) = (largest_first(others), largest_first(kernel));
        Some(shares)
    }
}

fn largest_first(shares: BTreeMap<&str, f64>) -> Vec<(String, f64)> {
    let some = shares.into_iter().filter(|(_, cores)| *cores > 0.0);
    let mut all: Vec<(String, f64)> = some.map(|(name, cores)| (name.to_owned(), cores)).collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    all
}

/// Looks again and again while something is measured; afterwards those around the measured time count.
pub struct Watch {
    cores: usize,
    known: Vec<(i32, Whose)>,
    /// Programs of these names are the server's.
    servers: &'static [&'static str],
    looks: Vec<Look>,
    next: Option<Instant>,
}

impl Watch {
    /// On a machine of so many cores. This program itself is of the load.
    pub fn new(cores: usize, known: &[(Pid, Whose)]) -> Watch {
        let mut known: Vec<(i32, Whose)> = known.iter().map(|(pid, whose)| (pid.as_raw(), *whose)).collect();
        known.push((Pid::this().as_raw(), Whose::Load));
        Watch { cores, known, servers: &[], looks: Vec::new(), next: None }
    }

    /// Where it is not known which processes serve, those of such names do.
    #[must_use]
    pub fn with_servers(self, servers: &'static [&'static str]) -> Watch {
        Watch { servers, ..self }
    }

    /// To be called every few milliseconds; `at_once` at the measurement's end.
    pub fn look(&mut self, at_once: bool) {
        let began = Instant::now();
        if !at_once && self.next.is_some_and(|next| began < next) {
            return;
        }
        self.looks.extend(Look::now(self.cores));
        self.next = Some(began + EVERY.max(began.elapsed() * COST_FACTOR));
    }

    /// Between the last look before this time and the first after it, as far as there are any.
    pub fn shares(&self, from: Instant, to: Instant) -> Option<Shares> {
        let before = self.looks.iter().rfind(|look| look.at <= from).or(self.looks.first())?;
        let after = self.looks.iter().find(|look| look.at >= to).or(self.looks.last())?;
        Shares::between(before, after, (&self.known, self.servers))
    }

    /// Over all looks.
    pub fn all(&self) -> Option<Shares> {
        Shares::between(self.looks.first()?, self.looks.last()?, (&self.known, self.servers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, parent: i32, used_ms: u64) -> Seen {
        let (name, used) = (name.to_owned(), Duration::from_millis(used_ms));
        Seen { name, parent, is_kernel: parent == 2, only_when_idle: false, used }
    }

    fn look(at: Instant, tasks_ms: u64, steal_ms: u64, processes: &[(i32, Seen)]) -> Look {
        let machine = Machine { tasks: Duration::from_millis(tasks_ms), steal: Duration::from_millis(steal_ms) };
        Look { at, machine, processes: processes.iter().cloned().collect() }
    }

    const KNOWN: [(i32, Whose); 3] = [(10, Whose::Server), (20, Whose::Pooler), (30, Whose::Load)];

    #[test]
    fn everybody_gets_what_is_theirs() {
        let start = Instant::now();
        let idle = |used| Seen { only_when_idle: true, ..seen("spinner", 1, used) };
        let before = look(
            start,
            0,
            0,
            &[
                (10, seen("postgres", 1, 100)),
                (11, seen("postgres", 10, 500)),
                (20, seen("pgbouncer", 30, 0)),
                (30, seen("weir-lab", 1, 0)),
                (40, seen("kdamond.0", 2, 7)),
                (50, seen("cargo", 1, 0)),
                (51, seen("rustc", 50, 300)),
                (60, idle(0)),
            ],
        );
        let after = look(
            start + Duration::from_secs(2),
            5_000,
            200,
            &[
                // Its backend has ended: 500 ms of it were used before, 700 since.
                (10, seen("postgres", 1, 100 + 1_200)),
                (20, seen("pgbouncer", 30, 400)),
                (30, seen("weir-lab", 1, 100)),
                (31, seen("pgbench", 30, 500)),
                (40, seen("kdamond.0", 2, 1_007)),
                (50, seen("cargo", 1, 300 + 600)),
                (60, idle(1_000)),
            ],
        );
        let shares = Shares::between(&before, &after, (&KNOWN, &[])).unwrap();
        let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
        let ours = [shares.server, shares.pooler, shares.load].map(rounded);
        assert_eq!(ours, [0.35, 0.2, 0.3], "a pooler that the lab started is no load");
        assert_eq!((shares.kernel[0].0.as_str(), rounded(shares.kernel[0].1)), ("kdamond.0", 0.5));
        assert_eq!((shares.others[0].0.as_str(), rounded(shares.others[0].1)), ("cargo", 0.3));
        // 5 s of all; 4.3 s of these.
        assert_eq!((rounded(shares.unseen), rounded(shares.steal)), (0.35, 0.1));
        assert_eq!((rounded(shares.strangers().0), shares.strangers().1), (0.65, None), "more of it is unseen");
        assert_eq!(Shares::between(&before, &before, (&KNOWN, &[])), None);
        let by_name = Shares::between(&before, &after, (&KNOWN[1..], &["postgres"])).unwrap();
        assert_eq!(rounded(by_name.server), 0.35);
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 2097216 0 0 0 0 150 50 30 20 20 0 1 0 5 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 5 0 0 0\n";
        let seen = Seen::read(stat).unwrap();
        assert_eq!((seen.name.as_str(), seen.parent, seen.is_kernel, seen.only_when_idle), ("a) b (c", 1, true, true));
        assert_eq!(seen.used, ticks_time(250));
        assert_eq!(Seen::read("77 (short) S 1"), None);
        let stat = "cpu  10 20 30 1000 500 1 2 77 0 0\ncpu0 1\ncpu1 2\nintr 5\n";
        let machine = Machine { tasks: ticks_time(60), steal: ticks_time(77) };
        assert_eq!((Machine::read(stat), counted_cores(stat)), (Some(machine), 2));
        assert_eq!(Machine::read("intr 5\n"), None);
    }

    #[test]
    fn what_this_program_burns_is_the_load_s() {
        let cores = counted_cores(&fs::read_to_string("/proc/stat").unwrap());
        let mut watch = Watch::new(cores, &[]);
        watch.look(true);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            std::hint::black_box(began);
        }
        watch.look(true);
        assert!(watch.all().unwrap().load > 0.05, "{:?}", watch.all());
        assert!(Look::now(cores + 1).is_none(), "a machine that is not ours alone");
    }
}
