//! What is concluded of an experiment's figures: what it says of those that can be trusted, and nothing where too few can.
//!
//! Does not know any experiment.

use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{Experiment, Finding, FindingKind, values};
use crate::experiments::words;

/// Of all places: where more of them are not to be trusted, those that are left are no curve.
const LOST_PART: f64 = 0.25;
/// So many places are named.
const NAMED_MAX: usize = 3;

/// What an experiment concludes.
pub fn of(experiment: &dyn Experiment, data: &Dataset) -> Vec<Finding> {
    let trusted = data.trusted();
    let mut findings = match reason_for_none(data) {
        Some(reason) => {
            // What is to be read with care is so all the more.
            let cautions = experiment.conclude(data).into_iter().filter(|finding| finding.kind == FindingKind::Caution);
            let none = words::caution(format!("Nothing is concluded from these figures: {reason}"));
            return std::iter::once(none).chain(cautions).collect();
        }
        None => experiment.conclude(&trusted),
    };
    findings.extend(left_out(data));
    findings
}

/// The figures from which something may be concluded; none where that is too few of them.
pub fn basis(data: &Dataset) -> Option<Dataset> {
    reason_for_none(data).is_none().then(|| data.trusted())
}

/// Why nothing is concluded, as a sentence.
pub fn reason_for_none(data: &Dataset) -> Option<String> {
    if let Some(part) = data.drift(values::TPS) {
        let change = if part < 0.0 { "less" } else { "more" };
        return Some(format!(
            "the machine drifted. The same places gave {} {change} at the end of the run than at its beginning, so what was measured \
             early and late cannot be compared.",
            words::percent(part.abs())
        ));
    }
    let all = data.lines.iter().map(|line| line.places.len()).sum::<usize>();
    let lost = forbidden(data);
    let much = LOST_PART * words::float(all);
    (words::float(lost.len()) > much).then(|| {
        let (_, place) = lost[0];
        format!("{} of {all} places are worth nothing. {}", lost.len(), reasons(place))
    })
}

fn forbidden(data: &Dataset) -> Vec<(&Line, &Place)> {
    let places = data.lines.iter().flat_map(|line| line.places.iter().map(move |place| (line, place)));
    places.filter(|(_, place)| !place.forbids.is_empty()).collect()
}

fn reasons(place: &Place) -> String {
    place.forbids.join(" ")
}

fn left_out(data: &Dataset) -> Option<Finding> {
    let lost = forbidden(data);
    let (_, first) = lost.first()?;
    let mut names: Vec<String> =
        lost.iter().take(NAMED_MAX).map(|(line, place)| format!("{} at {}", line.name(), place.x)).collect();
    if lost.len() > NAMED_MAX {
        names.push(format!("{} more", lost.len() - NAMED_MAX));
    }
    Some(words::caution(format!("Not used for any conclusion: {}. {}", words::list(&names), reasons(first))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;
    use crate::experiments::fixtures::{self, Facts};
    use weir_measure::doubt::Doubt;

    const CURVE: [(f64, f64); 5] = [(1.0, 100.0), (2.0, 190.0), (4.0, 300.0), (8.0, 290.0), (16.0, 200.0)];

    fn concluded(facts: Facts) -> (Vec<String>, usize) {
        let saturation = experiments::by_name("saturation").unwrap();
        let findings = of(saturation, &facts.data());
        let said = findings.iter().filter(|finding| finding.kind != FindingKind::Caution).count();
        (fixtures::kind(&findings, FindingKind::Caution), said)
    }

    fn curve() -> Facts {
        Facts::new("saturation").server("direct", 15).line("", "direct", "tps", &CURVE).end()
    }

    #[test]
    fn good_figures_are_concluded_from() {
        let (cautions, said) = concluded(curve());
        assert!(said >= 2 && !cautions.iter().any(|text| text.contains("concluded")), "{cautions:?}");
    }

    #[test]
    fn who_made_figures_worthless_is_named_and_nothing_is_concluded() {
        let burner = Doubt::Strangers(Some("cargo".to_owned()));
        let full = Doubt::LoadAtItsLimit { whole: false, threads: 2 };
        for (doubt, named) in [(burner, "cargo"), (full, "One of pgbench's threads"), (Doubt::StillCold, "not warm")] {
            let spoilt = CURVE.iter().fold(Facts::new("saturation").server("direct", 15), |facts, place| {
                facts.line("", "direct", "tps", &[*place]).forbidden(&doubt)
            });
            let (cautions, said) = concluded(spoilt.end());
            assert!(said == 0 && cautions[0].contains("5 of 5 places") && cautions[0].contains(named), "{cautions:?}");
        }
    }

    #[test]
    fn one_worthless_place_is_left_out_and_named() {
        let facts = curve().line("", "direct", "tps", &[(32.0, 900.0)]).forbidden(&Doubt::Steal);
        let (cautions, said) = concluded(facts);
        assert!(said >= 2, "{cautions:?}");
        assert!(
            cautions.iter().any(|text| text.starts_with("Not used for any conclusion: direct at 32.")),
            "{cautions:?}"
        );
        let findings = of(
            experiments::by_name("saturation").unwrap(),
            &curve().line("", "direct", "tps", &[(32.0, 900.0)]).forbidden(&Doubt::Steal).data(),
        );
        assert!(!fixtures::texts(&findings).iter().any(|text| text.contains("900 TPS")), "{findings:?}");
    }

    #[test]
    fn a_machine_that_drifts_is_named_and_nothing_is_concluded() {
        let drifting = |each: f64| {
            let mut facts = Facts::new("saturation").server("direct", 15);
            for round in 0..3 {
                let factor = 1.0 - each * fixtures::float(round);
                let places = CURVE.map(|(x, tps)| (x, tps * factor));
                facts = facts.line("", "direct", "tps", &places);
            }
            facts.end().in_time()
        };
        let (cautions, said) = concluded(drifting(0.1));
        assert!(said == 0 && cautions[0].contains("the machine drifted"), "{cautions:?}");
        assert!(concluded(drifting(0.0)).1 >= 2);
    }
}
