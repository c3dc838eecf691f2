//! The order of a run: each experiment's servers and poolers, then rounds of places of lines, interleaved; all written down
//! as it comes.
//!
//! Does not know any experiment, nor how one place is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::awake::Awake;
use super::peak;
use super::schedule::{Schedule, Step};
use super::screen::Screen;
use super::site::{self, Site, Surroundings, Wishes};
use super::sizes::{self, Asked};
use super::tools::Tools;
use crate::dataset::Dataset;
use crate::experiment::{Course, Experiment, Stop, values};
use crate::experiments::places;
use crate::targets::stand::Stand;
use crate::targets::{Needs, Tables, Target, Whereabouts};
use weir_measure::ground::machine;
use weir_measure::journal::{
    Absent, End, Journal, Note, Point, Preset, Record, Run, Script, Sizes, TargetRecord, Topic, line_name,
};
use weir_measure::statistics;
use weir_measure::url::Url;

/// What a quick run of one experiment may take, its preparations apart.
const QUICK_SECONDS_MAX: u64 = 100;
/// Starting and ending pgbench, beside the seconds asked for and those of warming up.
const BESIDE_SECONDS: u64 = 1;
const WARM_UP_SECONDS: u64 = 1;
/// Of a place that is tried again when the same run is continued.
const DIED: &str = "the target died while it was measured";
/// A target that has just thrown out its clients may be busy with that.
const ALIVE_PATIENCE: Duration = Duration::from_secs(5);

/// What a user asked of all experiments.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// None: the lab starts its own.
    pub targets: Vec<(String, Url)>,
    /// Of the lab's own servers.
    pub majors: Vec<u32>,
    pub asked: Asked,
    pub wishes: Wishes,
    pub cores_awake: bool,
    /// The command line behind `weir lab run NAME`, without passwords.
    pub command: String,
}

pub struct Runner<'a> {
    pub tools: &'a Tools,
    pub plan: &'a Plan,
    pub journal: Journal,
}

/// One experiment in the course of being measured.
struct Session<'a> {
    experiment: &'a dyn Experiment,
    sizes: Sizes,
    stand: Stand,
    targets: Vec<Target>,
    awake: Option<Awake>,
    screen: Screen,
    /// Targets that have died.
    dead: BTreeSet<String>,
}

impl<'a> Runner<'a> {
    pub fn open(directory: &Path, tools: &'a Tools, plan: &'a Plan) -> Result<Runner<'a>> {
        Ok(Runner { tools, plan, journal: Journal::open(directory)? })
    }

    /// Measures one experiment to its end, or from where an earlier run of the same journal left off.
    pub fn run(&mut self, experiment: &dyn Experiment) -> Result<()> {
        let name = experiment.about().name;
        let began = Instant::now();
        let mut sizes = sizes::of(&self.plan.asked, &self.tools.machine);
        let known = self.dataset(name);
        if known.complete {
            self.check_same_command(&known)?;
            let left_out: Vec<&str> = known.left_out().collect();
            if left_out.is_empty() {
                eprintln!("{name}: measured to its end already");
                return Ok(());
            }
            eprintln!("{name}: measured already, without {}: these are tried again", left_out.join(", "));
        }
        let screen = Screen::of(name);
        screen.say(&format!("{name}: {}", experiment.about().title));
        screen.now("preparing");
        let stand = self.prepare(experiment, &mut sizes)?;
        let targets = stand.targets.clone();
        let courses = self.courses(experiment, &sizes, &targets)?;
        fit_quick(&mut sizes, &courses, self.plan.wishes.warm_up);
        self.check_same(&known, &sizes)?;
        self.write_head(name, &sizes, &stand)?;
        let awake = self.keep_awake(name, &targets)?;
        let mut session = Session { experiment, sizes, stand, targets, awake, screen, dead: BTreeSet::new() };
        let measured = self.measure_all(&mut session, courses);
        self.clear(&mut session);
        measured?;
        if session.targets.is_empty() {
            bail!("{name}: there is nothing to measure; see above");
        }
        self.journal.add(Record::End(End { experiment: name.to_owned(), seconds: began.elapsed().as_secs_f64() }))
    }

    fn dataset(&self, name: &str) -> Dataset {
        let mut all = Dataset::all(self.journal.records()).into_iter();
        all.find(|set| set.experiment == name).unwrap_or_default()
    }

    /// The experiment's, or the numbers of clients that were wished.
    fn courses(&self, experiment: &dyn Experiment, sizes: &Sizes, targets: &[Target]) -> Result<Vec<Course>> {
        let courses = experiment.courses(sizes, targets);
        let wished: Vec<f64> = self.plan.wishes.clients.iter().copied().map(statistics::place).collect();
        if wished.is_empty() {
            return Ok(courses);
        }
        let name = experiment.about().name;
        if !experiment.about().fit {
            bail!("{name}: --clients says nothing to it: it varies {}", experiment.about().axis.label);
        }
        Ok(courses.into_iter().map(|course| Course { xs: wished.clone(), stop: Stop::Never, ..course }).collect())
    }

    fn needs(&self, experiment: &dyn Experiment, sizes: &Sizes) -> Needs {
        let wishes = &self.plan.wishes;
        let mut needs = experiment.needs(sizes);
        // A script of the user's own needs what is there.
        if wishes.script.is_some() && !self.plan.targets.is_empty() {
            needs.tables = Tables::None;
        }
        let most = wishes.clients.iter().copied().max().unwrap_or(0);
        if wishes.pool_size.is_some() || most > 0 {
            needs.pool_size = wishes.pool_size.filter(|_| !needs.poolers.is_empty()).unwrap_or(needs.pool_size);
            let pool_size = usize::try_from(needs.pool_size).unwrap_or(usize::MAX);
            let wanted = places::needs(most, needs.tables, &needs.poolers, pool_size);
            needs.max_connections = needs.max_connections.max(wanted.max_connections);
        }
        needs
    }

    fn prepare(&self, experiment: &dyn Experiment, sizes: &mut Sizes) -> Result<Stand> {
        let needs = self.needs(experiment, sizes);
        if self.plan.targets.is_empty() {
            return Stand::own(&self.plan.majors, &needs, sizes, self.tools);
        }
        let mut stand = Stand::given(&self.plan.targets, self.tools);
        if needs.tables != Tables::None {
            take_scale(&mut stand, sizes, self.tools);
        }
        Ok(stand)
    }

    /// A journal holds one run: other sizes, or another machine, would make medians of what cannot be compared.
    fn check_same(&self, known: &Dataset, sizes: &Sizes) -> Result<()> {
        let Some(run) = known.runs.last() else { return Ok(()) };
        if known.lines.is_empty() {
            return Ok(());
        }
        if run.sizes.as_ref() != Some(sizes) {
            bail!(
                "{}: this directory holds a run with other sizes ({}) than now ({}): give the same, or another --out",
                known.experiment,
                run.sizes.as_ref().map_or_else(|| "none".to_owned(), words),
                words(sizes)
            );
        }
        self.check_same_command(known)?;
        if let Some(file) = &self.plan.wishes.script
            && let Some(before) = known.scripts.get(&file.display().to_string())
            && fs::read_to_string(file).is_ok_and(|text| text != *before)
        {
            bail!("{}: {} has changed since this run began: give another --out", known.experiment, file.display());
        }
        if run.machine != self.tools.machine {
            bail!("{}: this directory holds a run on another machine: give another --out", known.experiment);
        }
        for (name, url) in &self.plan.targets {
            let before = known.targets.iter().find(|target| target.name == *name);
            if let Some(before) = before.filter(|before| before.url != url.to_string()) {
                bail!("{}: this directory has {name} as {}: give another --out", known.experiment, before.url);
            }
        }
        Ok(())
    }

    fn check_same_command(&self, known: &Dataset) -> Result<()> {
        let (Some(run), command) = (known.runs.last(), self.command(&known.experiment)) else { return Ok(()) };
        if run.command != command {
            bail!(
                "this directory holds a run of {:?}, and this is {command:?}: give the same, or another --out",
                run.command
            );
        }
        Ok(())
    }

    fn command(&self, name: &str) -> String {
        format!("weir lab run {name}{}", self.plan.command)
    }

    fn write_head(&mut self, name: &str, sizes: &Sizes, stand: &Stand) -> Result<()> {
        self.journal.add(Record::Run(Run {
            experiment: name.to_owned(),
            date: machine::date(),
            command: self.command(name),
            machine: self.tools.machine.clone(),
            pgbench: self.tools.pgbench.version.clone(),
            sizes: Some(sizes.clone()),
        }))?;
        for target in &stand.targets {
            self.journal.add(Record::Target(record_of(name, target)))?;
        }
        for (target, reason) in &stand.missing {
            eprintln!("{name}: {target} is left out: {reason}");
            self.absent(name, "", target, None, reason)?;
        }
        Ok(())
    }

    /// Each once: commands name them.
    fn write_scripts(&mut self, experiment: &str, scripts: BTreeMap<String, String>) -> Result<()> {
        for (name, text) in scripts {
            let script = Record::Script(Script { experiment: experiment.to_owned(), name, text });
            if !self.journal.records().contains(&script) {
                self.journal.add(script)?;
            }
        }
        Ok(())
    }

    /// Says so in the journal: without it, figures of few clients would not be repeated.
    fn keep_awake(&mut self, name: &str, targets: &[Target]) -> Result<Option<Awake>> {
        if !self.plan.cores_awake || targets.iter().all(|target| target.place == Whereabouts::Elsewhere) {
            return Ok(None);
        }
        let (awake, text) = match Awake::start() {
            Ok(Some(awake)) => {
                let text = awake.sentence();
                (Some(awake), text)
            }
            Ok(None) => (
                None,
                "Cores were left as they are: nothing that the lab can do made messages between them faster."
                    .to_owned(),
            ),
            Err(error) => {
                (None, format!("Cores were left to sleep ({error:#}): figures of few clients may be too low."))
            }
        };
        let topic = Some(Topic::CoresAwake);
        let says =
            |record: &Record| matches!(record, Record::Note(note) if note.experiment == name && note.topic == topic);
        if !self.journal.records().iter().any(says) {
            self.journal.add(Record::Note(Note { experiment: name.to_owned(), text, topic }))?;
        }
        Ok(awake)
    }

    /// What was asked for, and what the experiment asks for having seen it, until figures are narrow enough.
    fn measure_all(&mut self, session: &mut Session, first: Vec<Course>) -> Result<()> {
        let about = session.experiment.about();
        let key = about.charts.first().map_or(values::TPS, |chart| chart.key);
        let mut schedule = Schedule::new(key, &session.sizes, session.experiment.is_ordered(), first);
        loop {
            let data = self.dataset(about.name);
            let asks = self.plan.wishes.clients.is_empty() && !data.lines.is_empty();
            let mut wanted =
                if asks { session.experiment.next(&session.sizes, &session.targets, &data) } else { Vec::new() };
            wanted.retain(|course| !session.dead.contains(&course.target));
            let steps = schedule.pass(&data, wanted);
            session.screen.more(steps.len());
            for step in &steps {
                self.measure_step(session, step)?;
                session.screen.done();
            }
            if steps.is_empty() && schedule.is_over() {
                return Ok(());
            }
        }
    }

    /// Nothing where there is nothing to measure: the line is past its peak, or its target dead.
    fn measure_step(&mut self, session: &mut Session, step: &Step) -> Result<()> {
        self.tools.interrupt.check()?;
        let name = session.experiment.about().name;
        if session.dead.contains(&step.target) {
            return Ok(());
        }
        let figure = |x: &f64| {
            let mut points = self.points(name, step).filter(|point| point.x == *x && point.round == 1);
            let whole = points.next().filter(|point| point.errors.is_empty());
            whole.and_then(|point| point.values.get(values::TPS).copied())
        };
        let before: Vec<Option<f64>> = step.before.iter().flatten().map(figure).collect();
        if peak::is_past(&before) {
            return Ok(());
        }
        // Of the nearest place below: a log of transactions need not be exactly as long as it could be.
        let below = self.points(name, step).filter(|point| point.x <= step.x);
        let nearest = below.max_by(|one, other| one.x.total_cmp(&other.x));
        let tps_guess = nearest.and_then(|point| point.values.get(values::TPS).copied());
        self.measure_place(session, step, tps_guess)
    }

    /// What the journal has of a line.
    fn points<'b>(&'b self, name: &'b str, step: &'b Step) -> impl Iterator<Item = &'b Point> {
        let points = self.journal.records().iter().filter_map(|record| match record {
            Record::Point(point) => Some(point),
            _ => None,
        });
        points
            .filter(move |point| point.experiment == name && point.series == step.series && point.target == step.target)
    }

    fn measure_place(&mut self, session: &mut Session, step: &Step, tps_guess: Option<f64>) -> Result<()> {
        let experiment = session.experiment;
        let name = experiment.about().name;
        let (series, target_name, x) = (step.series.clone(), step.target.clone(), step.x);
        let target = session.targets.iter().find(|target| target.name == target_name);
        let target =
            target.with_context(|| format!("{name} wants to measure {target_name}, which is no target"))?.clone();
        let place = format!(
            "{}, {x} {}, round {}",
            line_name(&step.target, &step.series),
            experiment.about().axis.label,
            step.round
        );
        session.screen.now(&place);
        let (round, sentinel, experiment_name) = (step.round, step.sentinel, name.to_owned());
        let mut point =
            Point { experiment: experiment_name, series, target: target_name, x, round, sentinel, ..Point::default() };
        let surroundings = Surroundings {
            sizes: &session.sizes,
            wishes: &self.plan.wishes,
            tools: self.tools,
            stand: &mut session.stand,
            awake: session.awake.as_ref(),
            tps_guess,
        };
        let mut site = Site::new(&target, surroundings);
        let result = experiment.measure(&mut point, &mut site);
        self.write_scripts(name, std::mem::take(&mut site.scripts))?;
        // Half a measurement is none.
        self.tools.interrupt.check()?;
        session.screen.say(&format!("{place}: {}", said(&point, result.as_ref().err())));
        let died = if result.is_err() || !point.errors.is_empty() { self.died(session, &target)? } else { None };
        if let Err(error) = &result {
            self.absent(name, &step.series, &target.name, Some(x), &format!("{error:#}"))?;
        } else if died.is_some() {
            // What a crash leaves is no figure, and its errors are no limit of so many clients.
            self.absent(name, &step.series, &target.name, Some(x), DIED)?;
        } else {
            point.at = machine::moment();
            self.journal.add(Record::Point(point))?;
        }
        if let Some(reason) = died {
            session.screen.say(&format!("{name}: {} is left out from now on: {reason}", target.name));
            self.absent(name, "", &target.name, None, &reason)?;
            session.dead.insert(target.name);
        }
        Ok(())
    }

    /// Why a target that gave errors answers no more; `None` when it does.
    fn died(&self, session: &mut Session, target: &Target) -> Result<Option<String>> {
        let mut reason = String::new();
        let alive = self.tools.interrupt.wait_for(ALIVE_PATIENCE, || {
            let answer = session.stand.check(target).and_then(|()| self.tools.psql.check(&target.url));
            self.tools.interrupt.check()?;
            Ok(answer.map_err(|error| reason = format!("{error:#}")).ok())
        })?;
        Ok(if alive.is_some() { None } else { Some(reason) })
    }

    /// Also after errors, and when somebody wants us to stop.
    fn clear(&self, session: &mut Session) {
        for target in &session.targets {
            let surroundings = Surroundings {
                sizes: &session.sizes,
                wishes: &self.plan.wishes,
                tools: self.tools,
                stand: &mut session.stand,
                awake: None,
                tps_guess: None,
            };
            if let Err(error) = session.experiment.clear(&mut Site::new(target, surroundings)) {
                session.screen.say(&format!("{error:#}"));
            }
        }
    }

    fn absent(&mut self, experiment: &str, series: &str, target: &str, x: Option<f64>, reason: &str) -> Result<()> {
        let (experiment, series, target) = (experiment.to_owned(), series.to_owned(), target.to_owned());
        self.journal.add(Record::Absent(Absent { experiment, series, target, x, reason: reason.to_owned() }))
    }
}

fn said(point: &Point, error: Option<&anyhow::Error>) -> String {
    let errors: u64 = point.errors.values().sum();
    let kinds = point.errors.keys().next().map_or(String::new(), |kind| format!(", {errors} errors ({kind})"));
    match (error, point.values.get(values::TPS)) {
        (Some(error), _) => format!("{error:#}"),
        (None, Some(tps)) => format!("{tps:.0} TPS{kinds}"),
        (None, None) if errors > 0 => format!("nothing measured{kinds}"),
        (None, None) => {
            let values: Vec<String> = point.values.iter().map(|(key, value)| format!("{key} {value:.1}")).collect();
            values.join(", ")
        }
    }
}

fn words(sizes: &Sizes) -> String {
    let preset = match sizes.preset {
        Preset::Quick => "quick",
        Preset::Machine => "this machine's",
        Preset::Source => "the source's",
    };
    let rounds = match sizes.rounds_max > sizes.rounds {
        true => format!("{} to {}", sizes.rounds, sizes.rounds_max),
        false => sizes.rounds.to_string(),
    };
    format!("{preset}, {} s, {rounds} rounds, scale {}", sizes.seconds, sizes.scale)
}

/// A quick run measures shorter rather than longer than two minutes.
fn fit_quick(sizes: &mut Sizes, courses: &[Course], warm_up: Option<u64>) {
    if sizes.preset != Preset::Quick {
        return;
    }
    let places: usize = courses.iter().map(|course| course.xs.len()).sum();
    let measurements = u64::try_from(places * sizes.rounds).unwrap_or(u64::MAX).max(1);
    let beside = BESIDE_SECONDS + warm_up.unwrap_or(WARM_UP_SECONDS);
    let each = (QUICK_SECONDS_MAX / measurements).saturating_sub(beside);
    sizes.seconds = sizes.seconds.min(each.max(1));
}

/// pgbench's tables of somebody else have a scale of their own: the smallest counts, so that scripts hit rows everywhere.
fn take_scale(stand: &mut Stand, sizes: &mut Sizes, tools: &Tools) {
    let scales: Vec<Option<u32>> = stand.targets.iter().map(|target| site::scale_of(&tools.psql, target)).collect();
    let mut missing = Vec::new();
    let mut filled = scales.iter();
    stand.targets.retain(|target| {
        let has_tables = filled.next().is_some_and(Option::is_some);
        if !has_tables {
            let reason =
                format!("it has no tables of pgbench: `pgbench -i -s {} '{}'` makes them", sizes.scale, target.url);
            missing.push((target.name.clone(), reason));
        }
        has_tables
    });
    stand.missing.extend(missing);
    if let Some(smallest) = scales.into_iter().flatten().min() {
        sizes.scale = smallest;
    }
}

fn record_of(experiment: &str, target: &Target) -> TargetRecord {
    TargetRecord {
        experiment: experiment.to_owned(),
        name: target.name.clone(),
        url: target.url.to_string(),
        version: target.version.clone(),
        configuration: target.configuration.clone(),
        profile: String::new(),
        local: target.place == Whereabouts::Here,
        role: target.role,
        server_major: target.server_major,
    }
}
