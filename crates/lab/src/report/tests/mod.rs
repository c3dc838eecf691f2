//! The report of a journal with all kinds of trouble: as text, and in a browser.

mod browser;
mod sample;

use std::fs;

use super::chapter::Book;
use super::{compare, files_of, page, write};
use weir_measure::drawing::canvas;
use weir_measure::journal::{Journal, Point, RESULTS, Record};

fn sample_book() -> Book {
    Book::of(&sample::records(), &sample::by_name)
}

#[test]
fn what_comes_from_outside_stays_text() {
    let page = page::html(&sample_book());
    assert!(page.contains(&canvas::escape(sample::HOSTILE)));
    for element in ["<script", "<img", "</pre><b>", "onerror=\""] {
        assert!(!page.contains(element), "{element}");
    }
    for (name, text) in files_of(&sample_book()).unwrap() {
        assert!(!name.ends_with("svg") || !text.contains("<script"), "{name}");
        let within = name.trim_start_matches("charts/");
        assert!(within.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter)), "{name}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let page = page::html(&sample_book());
    let sentences = [
        "The run ended before this experiment did. What follows is what was measured until then.",
        "The run ended before this experiment did. Nothing of it was measured.",
        "does not know an experiment of this name",
        "PostgreSQL 12, 48 active at 10,000 idle connections: the server has room for 4,100 connections",
        "Zero in every round, and not drawn: Errors.",
        "FATAL:",
        "1,234",
        "kept awake by a process",
        "pool_mode = transaction",
    ];
    for sentence in sentences {
        assert!(page.contains(sentence), "{sentence}");
    }
}

#[test]
fn a_directory_gets_a_page_tables_and_pictures() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(directory.path()).unwrap();
    for record in sample::records() {
        journal.add(record).unwrap();
    }
    let written = write(directory.path()).unwrap();
    assert!(written.iter().all(|path| path.starts_with(directory.path()) && path.exists()));
    assert_eq!(written[0], directory.path().join("report.html"));
    assert!(directory.path().join("tomorrow-s.csv").exists());
}

#[test]
fn an_empty_journal_has_a_report_and_a_missing_one_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = format!("{:#}", write(directory.path()).unwrap_err());
    assert!(error.starts_with("cannot read ") && error.contains(RESULTS), "{error}");
    fs::write(directory.path().join(RESULTS), "").unwrap();
    write(directory.path()).unwrap();
    let page = fs::read_to_string(directory.path().join("report.html")).unwrap();
    assert!(page.contains("holds no experiment yet"));
}

#[test]
fn two_runs_stand_side_by_side() {
    let mut faster = sample::records();
    for record in &mut faster {
        match record {
            Record::Run(run) => run.machine.cores = 4,
            Record::Point(point) if point.target == "Weir" => {
                point.values.entry("tps".to_owned()).and_modify(|tps| *tps *= 2.0);
            }
            Record::Target(target) if target.name == "PgBouncer" => "PgBouncer 1.25.2".clone_into(&mut target.version),
            _ => {}
        }
    }
    faster.retain(|record| !matches!(record, Record::Point(point) if point.target == "direct" && point.x > 1.0));
    let faster = Book::of(&faster, &sample::by_name);
    let text = compare::text(&sample_book(), &faster, ["first".to_owned(), "a\u{1b}[31m".to_owned()]);
    let found = |words: &str| assert!(text.contains(words), "{words}\n{text}");
    found("A: first (2026-11-21 09:30 UTC)\nB: a\u{fffd}[31m");
    found("Warning: The machines differ: Intel(R)");
    found("Warning: PgBouncer was PostgreSQL 15.14, behind PgBouncer in A and PgBouncer 1.25.2 in B.");
    found("Weir: peak");
    found("2 (1.52–2.63)  better");
    found("within the noise");
    found("Warning: B was not measured to its end.");
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("direct ")).count(), 2 + 2);
}

/// Whatever an experiment concludes from few figures, or from none of those that it expects, its report is written.
#[test]
fn every_experiment_has_a_report_from_little() {
    for experiment in crate::experiments::ALL {
        let about = experiment.about();
        let point = |x: f64, keys: &[&str]| {
            let values = keys.iter().map(|key| ((*key).to_owned(), 10.0 + x)).collect();
            let [experiment, target] = [about.name, "direct"].map(str::to_owned);
            Record::Point(Point { experiment, target, x, round: 1, values, ..Point::default() })
        };
        let keys: Vec<&str> = about.charts.iter().map(|chart| chart.key).collect();
        let journals = [
            vec![sample::run(about.name)],
            vec![sample::run(about.name), point(1.0, &[])],
            vec![point(0.0, &keys)],
            vec![sample::run(about.name), point(1.0, &keys[..1]), point(8.0, &keys)],
            [1.0, 2.0, 4.0, 8.0, 16.0].map(|x| point(x, &keys)).into(),
        ];
        for records in journals {
            let files = files_of(&Book::of(&records, &crate::experiments::by_name)).unwrap();
            assert!(files[0].1.contains(&canvas::escape(about.question)), "{}", about.name);
            assert!(files.iter().all(|(_, text)| !text.contains("NaN")), "{}", about.name);
        }
    }
}
