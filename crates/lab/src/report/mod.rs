//! From a run's journal to what people read: one HTML page, CSV files, pictures for slides, and two runs side by side.
//!
//! Knows what experiments say of themselves, not how anything was measured.

mod chapter;
mod chart;
mod compare;
mod cost;
mod csv;
pub mod figures;
mod law;
mod page;
mod plot;
mod queue;
mod section;
mod shape;
mod slide;
mod tables;
#[cfg(test)]
mod tests;
mod verdicts;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::experiment::values;
use crate::experiments;
use chapter::{Book, Chapter};
pub use compare::compare;
pub use verdicts::Comparison;
use weir_measure::journal::{self, RESULTS};

const PAGE: &str = "report.html";
const CHARTS: &str = "charts";

/// Writes the report of a run's directory, and says which files it wrote. What the journal lacks, the report says.
pub fn write(directory: &Path) -> Result<Vec<PathBuf>> {
    let records = journal::read(&directory.join(RESULTS))?;
    let files = files_of(&Book::of(&records, &experiments::by_name))?;
    let charts = directory.join(CHARTS);
    fs::create_dir_all(&charts).with_context(|| format!("cannot create {}", charts.display()))?;
    let write = |(name, text): (String, String)| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    files.into_iter().map(write).collect()
}

/// Every file of a report, by its name within the directory, the page first.
fn files_of(book: &Book) -> Result<Vec<(String, String)>> {
    let mut files = vec![(PAGE.to_owned(), page::html(book))];
    for (chapter, name) in book.chapters.iter().zip(file_names(book)) {
        files.push((format!("{name}.csv"), csv::text(&chapter.data)?));
        for (key, picture) in pictures(chapter) {
            files.push((format!("{CHARTS}/{name}-{key}.svg"), picture));
        }
    }
    Ok(files)
}

fn pictures(chapter: &Chapter) -> Vec<(String, String)> {
    let plots = chapter.plots().into_iter().map(|(key, plot)| (harmless(key), plot));
    let shape = shape::plot(chapter).map(|(key, plot)| (format!("{}-beside-source", harmless(key)), plot));
    let law = law::plot(chapter, &law::fit(chapter)).map(|plot| (format!("{}-law", values::TPS), plot));
    plots.chain(shape).chain(law).map(|(name, plot)| (name, slide::svg(chapter, &plot))).collect()
}

/// One per chapter, each once: an experiment's name comes from a journal, which anybody may have written.
fn file_names(book: &Book) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for chapter in &book.chapters {
        let wanted = harmless(&chapter.data.experiment);
        let mut name = wanted.clone();
        let mut number = 2;
        while names.contains(&name) {
            name = format!("{wanted}-{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

/// Letters, digits and dashes only.
fn harmless(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().take(60).map(letter).collect();
    if name.chars().all(|letter| letter == '-') { "experiment".to_owned() } else { name }
}
