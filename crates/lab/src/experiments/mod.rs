//! The experiments that the lab knows, by name.
//!
//! Does not know how they are run.

mod beside;
mod cache_bloat;
pub(crate) mod curve;
mod delays;
mod fan_out;
#[cfg(test)]
pub(crate) mod fixtures;
mod fleet;
mod idle;
mod max_connections;
mod memory;
mod mostly_idle;
mod peaks;
pub(crate) mod places;
mod reconnect;
mod saturation;
mod single_shard;
pub(crate) mod sources;
pub(crate) mod words;

use crate::experiment::Experiment;

/// In the order of `weir lab list`.
pub const ALL: &[&dyn Experiment] = &[
    &single_shard::SINGLE_SHARD,
    &fan_out::FAN_OUT,
    &reconnect::Reconnect,
    &fleet::Fleet,
    &idle::Idle,
    &mostly_idle::MostlyIdle,
    &delays::Delays,
    &max_connections::MaxConnections,
    &memory::Memory,
    &cache_bloat::CacheBloat,
    &saturation::Saturation,
];

pub fn by_name(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.about().name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Dataset;
    use crate::experiments::fixtures;
    use crate::targets::Kind;
    use weir_measure::journal::Preset;

    #[test]
    fn every_experiment_says_what_it_is() {
        for experiment in ALL {
            let about = experiment.about();
            assert!(
                std::ptr::addr_eq(by_name(about.name).unwrap(), *experiment),
                "{} is a name of its own",
                about.name
            );
            assert!(
                about.question.ends_with('?') && !about.method.is_empty() && !about.charts.is_empty(),
                "{}",
                about.name
            );
            assert!(about.sources.iter().all(|source| source.url.starts_with("https://")), "{}", about.name);
            for sentence in about.method {
                assert!(sentence.ends_with('.'), "{}: {sentence}", about.name);
            }
            for published in about.published {
                assert!(
                    about.charts.iter().any(|chart| chart.key == published.key),
                    "{}: {} is drawn",
                    about.name,
                    published.name
                );
                assert!(
                    published.points.is_sorted_by(|left, right| left.0 < right.0),
                    "{}: {}",
                    about.name,
                    published.name
                );
            }
        }
    }

    #[test]
    fn every_experiment_has_places_within_what_it_needs_and_concludes_nothing_from_nothing() {
        let targets = [fixtures::target("direct", Kind::Server)];
        for experiment in ALL {
            let name = experiment.about().name;
            for preset in [Preset::Quick, Preset::Machine, Preset::Source] {
                let sizes = fixtures::sizes(preset);
                let courses = experiment.courses(&sizes, &targets);
                assert!(
                    !courses.is_empty() && courses.iter().all(|course| !course.xs.is_empty()),
                    "{name}, {preset:?}"
                );
                assert!(experiment.needs(&sizes).max_connections > 0, "{name}, {preset:?}");
                assert!(experiment.next(&sizes, &targets, &Dataset::default()).is_empty(), "{name}, {preset:?}");
            }
            assert_eq!(fixtures::texts(&experiment.conclude(&Dataset::default())), ["Nothing was measured."], "{name}");
        }
    }
}
