//! What a measurement leaves on a server that is not the lab's is cleared away: at its end, and after Ctrl-C.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::{Signal, raise};
use support::fake::{Fake, Nature};
use support::{cluster, plan, run, tools};
use weir_lab::experiments;
use weir_lab::run::site::{Site, Surroundings, Wishes};
use weir_lab::run::tools::Tools;
use weir_lab::targets::stand::Stand;
use weir_measure::journal::{Point, Preset, Sizes};
use weir_measure::url::Url;

/// A signal is for the whole program: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ctrl-C, once something has come about; `work` has installed its handler before. Nothing, if it does not.
fn interrupted_when<T>(is_time: impl Fn() -> bool + Sync, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..6_000 {
                if is_time() {
                    return raise(Signal::SIGINT).unwrap();
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        work()
    })
}

/// Working ones beside twelve that sleep.
fn beside_twelve_sleepers(tools: &Tools, url: Url) -> Result<()> {
    let sizes = Sizes { preset: Preset::Quick, seconds: 1, rounds: 1, rounds_max: 1, scale: 1 };
    let wishes = Wishes::default();
    let mut stand = Stand::given(&[("theirs".to_owned(), url)], tools);
    let target = stand.targets[0].clone();
    let stand = &mut stand;
    let surroundings = Surroundings { sizes: &sizes, wishes: &wishes, tools, stand, awake: None, tps_guess: None };
    let mut point = Point { series: "8 working, the rest asleep".to_owned(), x: 20.0, ..Point::default() };
    experiments::by_name("max-connections").unwrap().measure(&mut point, &mut Site::new(&target, surroundings))
}

#[test]
fn sleepers_are_ended_on_every_node() {
    let _alone = alone();
    let (one, other) = (Fake::start(Nature::default()), Fake::start(Nature::default()));
    let url = cluster(&[&one.url(), &other.url()]);
    beside_twelve_sleepers(&tools(None).unwrap(), url).unwrap();
    assert_eq!((one.slept(), other.slept()), (6, 6));
    assert_eq!((one.asleep(), other.asleep()), (0, 0));
}

#[test]
fn sleepers_are_ended_after_ctrl_c() {
    let _alone = alone();
    let (one, other) = (Fake::start(Nature::default()), Fake::start(Nature::default()));
    let url = cluster(&[&one.url(), &other.url()]);
    let tools = tools(None).unwrap();
    let all_sleep = || one.asleep() == 6 && other.asleep() == 6;
    let result = interrupted_when(all_sleep, || beside_twelve_sleepers(&tools, url));
    assert!(result.unwrap_err().to_string().starts_with("interrupted"));
    assert_eq!((one.asleep(), other.asleep()), (0, 0));
}

#[test]
fn a_server_does_not_work_on_what_nobody_waits_for() {
    let _alone = alone();
    let fake = Fake::start(Nature::default());
    let tools = tools(None).unwrap();
    let sleep = || tools.psql.run(&fake.url(), "select pg_sleep(3600);");
    let result = interrupted_when(|| fake.asleep() == 1, sleep);
    assert!(result.unwrap_err().to_string().starts_with("interrupted"));
    assert_eq!(fake.asleep(), 0);
}

#[test]
fn tables_are_dropped_at_the_end_and_after_ctrl_c() {
    let _alone = alone();
    let cache_bloat = experiments::by_name("cache-bloat").unwrap();
    let quick = |url: Url| {
        let mut plan = plan(&[("theirs", url)]);
        plan.asked.quick = true;
        plan
    };
    let (whole, cut_short) = (Fake::start(Nature::default()), Fake::start(Nature::default()));
    let directory = tempfile::tempdir().unwrap();
    let (result, data) = run(cache_bloat, &quick(whole.url()), directory.path());
    result.unwrap();
    assert_eq!(data.line("", "theirs").unwrap().curve("cache_mib").len(), 3);
    assert!(whole.heard("create schema") && whole.heard("drop schema weir_lab_tables"));

    let directory = tempfile::tempdir().unwrap();
    let plan = quick(cut_short.url());
    let is_time = || cut_short.heard("create schema");
    let (result, data) = interrupted_when(is_time, || run(cache_bloat, &plan, directory.path()));
    assert!(result.unwrap_err().to_string().starts_with("interrupted"));
    assert!(!data.complete && cut_short.heard("drop schema weir_lab_tables"));
}
