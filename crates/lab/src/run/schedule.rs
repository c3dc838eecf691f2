//! Which places are measured next, and in which order: a ladder on each line, then passes in a random order until figures are narrow
//! enough, with what an experiment wants to see more finely in the same pass as its neighbours.
//!
//! Knows what the journal has; does not measure.

use std::collections::{BTreeMap, BTreeSet};

use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{Course, Stop, values};
use weir_measure::journal::Sizes;

/// Of the median, to either side: an interval that is narrower needs no further round.
const NARROW_PART: f64 = 0.05;
/// Rounds that were spoilt are made up for so many times.
const SPOILT_MAX: usize = 2;
/// With fewer seconds a figure that is measured a second time tells noise, not drift.
const SENTINEL_SECONDS_MIN: u64 = 2;

/// One measurement of one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub series: String,
    pub target: String,
    pub x: f64,
    pub round: usize,
    /// Measured again only to see whether the machine still is what it was; it is in no median.
    pub sentinel: bool,
    /// Places of the same line that go before, where the line ends once these are past their peak.
    pub before: Option<Vec<f64>>,
}

/// A place of a line, by what is told apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    series: String,
    target: String,
    /// The bits of a number that is no less than zero are in its order.
    x: u64,
}

impl Spot {
    fn new(series: &str, target: &str, x: f64) -> Spot {
        Spot { series: series.to_owned(), target: target.to_owned(), x: x.to_bits() }
    }

    fn x(&self) -> f64 {
        f64::from_bits(self.x)
    }

    fn place<'a>(&self, data: &'a Dataset) -> Option<&'a Place> {
        data.line(&self.series, &self.target)?.at(self.x())
    }
}

pub struct Schedule {
    /// The figure whose interval is to be narrow.
    key: &'static str,
    rounds: usize,
    rounds_max: usize,
    sentinels: bool,
    /// Whether places are to be measured in their order: each builds on what the one before left.
    ordered: bool,
    asked: Vec<Course>,
    /// By this process, with what came of them or without.
    attempts: BTreeMap<Spot, usize>,
    passes: u64,
    seed: u64,
}

impl Schedule {
    pub fn new(key: &'static str, sizes: &Sizes, ordered: bool, first: Vec<Course>) -> Schedule {
        Schedule {
            key,
            rounds: sizes.rounds,
            rounds_max: sizes.rounds_max.max(sizes.rounds),
            sentinels: key == values::TPS && sizes.seconds >= SENTINEL_SECONDS_MIN,
            ordered,
            asked: first,
            attempts: BTreeMap::new(),
            passes: 0,
            seed: 0,
        }
    }

    /// Other orders, for whoever runs many.
    #[cfg(test)]
    #[must_use]
    pub fn seeded(self, seed: u64) -> Schedule {
        Schedule { seed, ..self }
    }

    /// The next pass; empty at the end. `wanted` is what the experiment asks for having seen the figures.
    pub fn pass(&mut self, data: &Dataset, wanted: Vec<Course>) -> Vec<Step> {
        self.passes += 1;
        let steps = if self.passes == 1 { self.ladder(data) } else { self.further(data, wanted) };
        for step in steps.iter().filter(|step| !step.sentinel) {
            *self.attempts.entry(Spot::new(&step.series, &step.target, step.x)).or_default() += 1;
        }
        steps
    }

    /// Whether an empty pass is the end: that of a run that goes on has nothing left of its first one.
    pub fn is_over(&self) -> bool {
        self.passes > 1
    }

    /// Each place of each line once, the lines side by side.
    fn ladder(&self, data: &Dataset) -> Vec<Step> {
        let longest = self.asked.iter().map(|course| course.xs.len()).max().unwrap_or(0);
        let at =
            |index: usize| self.asked.iter().filter_map(move |course| Some((course, *course.xs.get(index)?, index)));
        let all = (0..longest).flat_map(at).map(|(course, x, index)| Step {
            series: course.series.clone(),
            target: course.target.clone(),
            x,
            round: 1,
            sentinel: false,
            before: (course.stop == Stop::PastPeak).then(|| course.xs[..index].to_vec()),
        });
        let is_new = |step: &Step| Spot::new(&step.series, &step.target, step.x).place(data).is_none();
        let steps: Vec<Step> = all.filter(is_new).collect();
        // What varies would be taken for the time in which it did, were it measured in its own order.
        let in_order = self.ordered || self.asked.iter().any(|course| course.stop == Stop::PastPeak);
        if in_order { steps } else { self.shuffled(steps) }
    }

    fn further(&mut self, data: &Dataset, wanted: Vec<Course>) -> Vec<Step> {
        let new = self.new_places(wanted);
        let mut spots = if new.is_empty() { self.needy(data) } else { new.clone() };
        if spots.is_empty() {
            // A run of one round: the only thing that it measures twice.
            let alone = self.sentinels && self.passes == 2 && self.rounds_max == 1;
            return if alone { self.sentinel(data).into_iter().collect() } else { Vec::new() };
        }
        let company = self.company(&spots, data);
        spots.extend(company);
        let step = |spot: &Spot| Step {
            series: spot.series.clone(),
            target: spot.target.clone(),
            x: spot.x(),
            round: self.done(spot, data) + 1,
            sentinel: false,
            before: None,
        };
        let mut steps: Vec<Step> = spots.iter().map(step).collect();
        if self.sentinels {
            steps.extend(self.sentinel(data));
        }
        self.shuffled(steps)
    }

    /// Those that nobody has asked for before.
    fn new_places(&mut self, wanted: Vec<Course>) -> BTreeSet<Spot> {
        let of = |course: &Course| -> Vec<Spot> {
            course.xs.iter().map(|x| Spot::new(&course.series, &course.target, *x)).collect()
        };
        let known: BTreeSet<Spot> = self.asked.iter().flat_map(of).collect();
        let new = wanted.iter().flat_map(of).filter(|spot| !known.contains(spot)).collect();
        self.asked.extend(wanted);
        new
    }

    /// How often a place was measured, or at least tried.
    fn done(&self, spot: &Spot, data: &Dataset) -> usize {
        let measured = spot.place(data).map_or(0, Place::rounds);
        measured.max(self.attempts.get(spot).copied().unwrap_or(0))
    }

    /// Places that have too few rounds, or whose rounds differ too much.
    fn needy(&self, data: &Dataset) -> BTreeSet<Spot> {
        let of = |course: &Course| -> Vec<Spot> {
            course.xs.iter().map(|x| Spot::new(&course.series, &course.target, *x)).collect()
        };
        let mut needy: BTreeSet<Spot> = self.asked.iter().flat_map(of).collect();
        needy.retain(|spot| {
            let (Some(place), done) = (spot.place(data), self.done(spot, data)) else { return false };
            // Who asked for a number of rounds gets that.
            let most = self.rounds_max.min(self.rounds + SPOILT_MAX);
            let too_few = place.clean_rounds() < self.rounds && done < most;
            let narrow = place.spread(self.key).is_none_or(|spread| spread.half_width() <= NARROW_PART);
            done < self.rounds || too_few || done < self.rounds_max && place.errors.is_empty() && !narrow
        });
        needy
    }

    /// What these are compared with: their neighbours on the line, and the same place on other lines.
    fn company(&self, spots: &BTreeSet<Spot>, data: &Dataset) -> BTreeSet<Spot> {
        let mut company = BTreeSet::new();
        // One round of each is all there is time for.
        if self.rounds_max == 1 {
            return company;
        }
        for spot in spots {
            if let Some(line) = data.line(&spot.series, &spot.target) {
                company.extend(neighbours(line, spot.x()).map(|x| Spot::new(&spot.series, &spot.target, x)));
            }
            let same = |line: &&Line| line.at(spot.x()).is_some();
            company.extend(data.lines.iter().filter(same).map(|line| Spot::new(&line.series, &line.target, spot.x())));
        }
        // Neighbours may have all of their rounds already, and yet none of this pass.
        let most = self.rounds_max + self.rounds;
        company.retain(|spot| !spots.contains(spot) && self.done(spot, data) < most);
        company
    }

    /// The middle of the first line, as far as it was measured.
    fn sentinel(&self, data: &Dataset) -> Option<Step> {
        let course = self.asked.first()?;
        let line = data.line(&course.series, &course.target)?;
        let well =
            |x: &&f64| line.at(**x).is_some_and(|place| place.errors.is_empty() && place.median(self.key).is_some());
        let measured: Vec<&f64> = course.xs.iter().filter(well).collect();
        let x = **measured.get(measured.len() / 2)?;
        let (series, target) = (course.series.clone(), course.target.clone());
        let round = line.at(x)?.points.len() + 1;
        Some(Step { series, target, x, round, sentinel: true, before: None })
    }

    /// Places in a random order, and lines in a random order at each: a server need not be set up anew for each line, and what is
    /// compared is measured side by side.
    fn shuffled(&self, steps: Vec<Step>) -> Vec<Step> {
        let mut random = fastrand::Rng::with_seed(self.seed ^ self.passes);
        let mut places: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
        for step in steps {
            places.entry(step.x.to_bits()).or_default().push(step);
        }
        let mut places: Vec<Vec<Step>> = places.into_values().collect();
        if !self.ordered {
            random.shuffle(&mut places);
        }
        for steps in &mut places {
            random.shuffle(steps);
        }
        places.concat()
    }
}

/// The places next to `x` on a line, which may have it or not.
fn neighbours(line: &Line, x: f64) -> impl Iterator<Item = f64> {
    let below = line.places.iter().map(|place| place.x).rfind(|other| *other < x);
    let above = line.places.iter().map(|place| place.x).find(|other| *other > x);
    below.into_iter().chain(above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fixtures;
    use weir_measure::journal::{Point, Preset, Record};

    fn course(target: &str, xs: &[f64], stop: Stop) -> Course {
        Course { series: String::new(), target: target.to_owned(), xs: xs.to_vec(), stop }
    }

    fn sizes(rounds: usize, rounds_max: usize) -> Sizes {
        Sizes { rounds, rounds_max, ..fixtures::sizes(Preset::Machine) }
    }

    /// Measures every pass until the end; the figure of a step at its number.
    fn run(
        schedule: &mut Schedule,
        wanted: &[Course],
        figure: impl Fn(&Step, usize) -> f64,
    ) -> (Vec<Vec<Step>>, Dataset) {
        let (mut records, mut passes, mut number) = (Vec::new(), Vec::new(), 0);
        loop {
            let data = Dataset::all(&records).pop().unwrap_or_default();
            let pass = schedule.pass(&data, if passes.is_empty() { Vec::new() } else { wanted.to_vec() });
            if pass.is_empty() {
                return (passes, data);
            }
            for step in &pass {
                let values = BTreeMap::from([(values::TPS.to_owned(), figure(step, number))]);
                let (target, x, round, sentinel) = (step.target.clone(), step.x, step.round, step.sentinel);
                let at = u64::try_from(number).unwrap() + 1;
                number += 1;
                records.push(Record::Point(Point { target, x, round, sentinel, values, at, ..Point::default() }));
            }
            passes.push(pass);
            assert!(passes.len() < 50, "it has no end");
        }
    }

    #[test]
    fn every_place_has_its_rounds_in_another_order_each() {
        let courses =
            vec![course("a", &[1.0, 2.0, 4.0, 8.0], Stop::Never), course("b", &[1.0, 2.0, 4.0, 8.0], Stop::Never)];
        let (passes, data) = run(&mut Schedule::new(values::TPS, &sizes(3, 3), false, courses), &[], |step, _| step.x);
        assert_eq!(passes.len(), 3);
        let orders: Vec<Vec<f64>> = passes.iter().map(|pass| pass.iter().map(|step| step.x).collect()).collect();
        assert!(orders[0] != orders[1] && orders[1] != orders[2], "{orders:?}");
        assert!(passes.iter().flatten().filter(|step| !step.sentinel).count() == 24);
        assert!(data.lines.iter().flat_map(|line| &line.places).all(|place| place.rounds() == 3));
        assert!(passes[1].iter().any(|step| step.sentinel), "a sentinel in each further pass");
    }

    #[test]
    fn a_ladder_that_ends_past_its_peak_goes_up_step_by_step() {
        let courses = vec![course("a", &[1.0, 2.0, 4.0], Stop::PastPeak)];
        let pass = Schedule::new(values::TPS, &sizes(1, 1), false, courses).pass(&Dataset::default(), Vec::new());
        let xs: Vec<(f64, usize)> = pass.iter().map(|step| (step.x, step.before.as_ref().unwrap().len())).collect();
        assert_eq!(xs, [(1.0, 0), (2.0, 1), (4.0, 2)]);
    }

    #[test]
    fn one_round_measures_only_its_sentinel_twice() {
        let courses = vec![course("a", &[1.0, 2.0, 4.0], Stop::Never)];
        let (passes, data) = run(&mut Schedule::new(values::TPS, &sizes(1, 1), false, courses), &[], |step, _| step.x);
        assert_eq!(passes.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
        assert!(passes[1][0].sentinel && passes[1][0].x == 2.0);
        assert!(data.lines[0].places.iter().all(|place| place.rounds() == 1));
    }

    #[test]
    fn rounds_go_on_where_figures_differ_and_only_there() {
        let courses = vec![course("a", &[1.0, 2.0, 4.0, 8.0, 16.0], Stop::Never)];
        let rough = |step: &Step, number: usize| match number % 3 {
            _ if step.x != 16.0 => 100.0,
            0 => 100.0,
            1 => 120.0,
            _ => 140.0,
        };
        let (_, data) = run(&mut Schedule::new(values::TPS, &sizes(3, 8), false, courses), &[], rough);
        let rounds = |x: f64| data.lines[0].at(x).unwrap().rounds();
        assert_eq!((rounds(1.0), rounds(4.0), rounds(16.0)), (3, 3, 8));
        assert_eq!(rounds(8.0), 8, "the neighbour that it is compared with");
    }

    #[test]
    fn what_is_looked_at_more_finely_is_measured_beside_its_neighbours() {
        let courses = vec![course("a", &[1.0, 4.0, 16.0, 64.0], Stop::PastPeak)];
        let finer = [course("a", &[8.0], Stop::Never)];
        let (passes, _) = run(&mut Schedule::new(values::TPS, &sizes(3, 3), false, courses), &finer, |step, _| step.x);
        for pass in passes.iter().filter(|pass| pass.iter().any(|step| step.x == 8.0)) {
            assert!([4.0, 16.0].iter().all(|x| pass.iter().any(|step| step.x == *x)), "{pass:?}");
        }
        let counted = |x: f64| passes.iter().flatten().filter(|step| step.x == x && !step.sentinel).count();
        assert_eq!((counted(8.0), counted(4.0), counted(64.0)), (3, 4, 3));
    }

    /// A flat line on a machine that loses a fifth over the run, with places added late: they lie less than half of it below.
    #[test]
    fn drift_makes_no_peak_and_is_noticed() {
        let courses = vec![course("a", &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], Stop::Never)];
        let finer = [course("a", &[3.0, 6.0, 12.0, 24.0, 48.0], Stop::Never)];
        let drifting = |_: &Step, number: usize| 1_000.0 * (1.0 - 0.2 * fixtures::float(number) / 45.0);
        for seed in 0..50 {
            let mut schedule = Schedule::new(values::TPS, &sizes(3, 3), false, courses.clone()).seeded(seed * 1_000);
            let (_, data) = run(&mut schedule, &finer, drifting);
            let curve = data.lines[0].curve(values::TPS);
            for three in curve.windows(3).filter(|three| finer[0].xs.contains(&three[1].0)) {
                let beside = f64::midpoint(three[0].1, three[2].1);
                assert!((three[1].1 / beside - 1.0).abs() < 0.1, "{three:?} of {curve:?}");
            }
            assert!(data.drift(values::TPS).is_some_and(|part| part < -0.1), "{:?}", data.drift(values::TPS));
        }
    }
}
