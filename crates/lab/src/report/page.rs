//! The whole report as one HTML file, which needs no network and runs no script.
//!
//! Knows what stands above and below the experiments; their sections come from others. Whatever comes from outside passes
//! through maud, which escapes it; and the page forbids scripts, so that what slipped through would still do nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chapter::{Book, Chapter};
use super::figures::{counted, number};
use super::section;
use crate::experiment::FindingKind;
use weir_measure::drawing::canvas::{DARK, LIGHT, Palette};
use weir_measure::ground::machine::Machine;
use weir_measure::journal::{Preset, Run, Sizes};

const STYLE: &str = include_str!("page.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// The first findings of an experiment, which the overview repeats.
const FINDINGS_IN_OVERVIEW: usize = 2;

/// Colours around the pictures: the ground under all, edges of boxes, links.
const AROUND_LIGHT: &str = "--ground:#f6f7f9;--edge:#dde1e6;--link:#0b57a8;color-scheme:light;";
const AROUND_DARK: &str = "--ground:#0f1114;--edge:#2b3138;--link:#8ab8ff;color-scheme:dark;";

pub fn html(book: &Book) -> String {
    let lines = book.chapters.iter().map(|chapter| chapter.data.lines.len()).max().unwrap_or_default();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { (title(book)) }
                style { (PreEscaped(style(lines))) }
            }
            body {
                a.skip href="#overview" { "To the findings" }
                (head(book))
                main {
                    (overview(book))
                    @for (index, chapter) in book.chapters.iter().enumerate() { (section::section(chapter, index)) }
                }
                (foot())
            }
        }
    };
    page.into_string()
}

fn title(book: &Book) -> String {
    match book.chapters.as_slice() {
        [] => "Nothing measured yet".to_owned(),
        [chapter] => chapter.title().to_owned(),
        _ => "How connections scale here".to_owned(),
    }
}

/// The scheme is the reader's system's, unless one is chosen on the page; paper is always light.
fn style(lines: usize) -> String {
    let (light, dark) = (variables(&LIGHT) + AROUND_LIGHT, variables(&DARK) + AROUND_DARK);
    let mut style = format!(
        ":root{{{light}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root:not(:has(#scheme-light:checked)){{{dark}}}}}\n\
         @media screen{{:root:has(#scheme-dark:checked){{{dark}}}}}\n{STYLE}"
    );
    for line in 0..lines {
        style += &format!(".experiment:has(.show-{line}:not(:checked)) .line-{line}{{display:none}}\n");
    }
    style
}

fn variables(palette: &Palette) -> String {
    let lines = palette.lines.iter().enumerate().map(|(index, colour)| format!("--line-{index}:{colour};"));
    let Palette { text, faint, grid, paper, doubt, error, .. } = palette;
    lines.collect::<String>()
        + &format!("--text:{text};--faint:{faint};--grid:{grid};--paper:{paper};--doubt:{doubt};--error:{error};")
}

fn head(book: &Book) -> Markup {
    let runs: Vec<&Run> = book.runs().collect();
    html! {
        header.head {
            fieldset.theme aria-label="Colours of this page" {
                label { input type="radio" name="scheme" id="scheme-auto" checked autocomplete="off"; "Auto" }
                label { input type="radio" name="scheme" id="scheme-light" autocomplete="off"; "Light" }
                label { input type="radio" name="scheme" id="scheme-dark" autocomplete="off"; "Dark" }
            }
            p.kicker { "Weir lab" }
            h1 { (title(book)) }
            @if let Some(run) = runs.last() { (facts(book, &runs, run)) }
            @if differing(&runs) {
                div.notice {
                    p { "The experiments did not all run on the same machine. Compare figures within an experiment, not \
                         between experiments." }
                }
            }
        }
    }
}

fn facts(book: &Book, runs: &[&Run], last: &Run) -> Markup {
    let machine = &last.machine;
    let first = runs.first().map_or(last.date.as_str(), |run| run.date.as_str());
    let errors: u64 = book.chapters.iter().map(Chapter::errors).sum();
    let interrupted = book.chapters.iter().filter(|chapter| !chapter.data.complete).count();
    let experiments = counted(book.chapters.len() as u64, "experiment", "experiments");
    html! {
        dl.facts {
            div { dt { "Measured" } dd { (first) @if first != last.date { " to " (last.date) } } }
            div { dt { "Machine" } dd {
                (counted(machine.cores as u64, "core", "cores")) ", " (gibibytes(machine)) " of memory"
                @if machine.virtual_machine { ", a virtual machine" }
            } }
            div { dt { "Processor" } dd { (machine.processor) } }
            div { dt { "System" } dd { (machine.system) ", Linux " (machine.kernel) } }
            div { dt { "Load" } dd { (last.pgbench) } }
            div { dt { "Sizes" } dd { (all_sizes(book)) } }
            div { dt { "Experiments" } dd {
                (experiments) @if interrupted > 0 { ", " (interrupted) " not to the end" }
            } }
            div { dt { "Errors seen" } dd {
                @if errors == 0 { "none" } @else { (counted(errors, "error", "errors")) ", listed by kind below" }
            } }
        }
    }
}

pub fn gibibytes(machine: &Machine) -> String {
    let mebibytes = u32::try_from(machine.memory_mib).unwrap_or(u32::MAX);
    format!("{} GiB", number(f64::from(mebibytes) / 1024.0))
}

pub fn sizes(sizes: Option<&Sizes>) -> String {
    let Some(sizes) = sizes else { return "of each load its own".to_owned() };
    let preset = match sizes.preset {
        Preset::Quick => "quick",
        Preset::Machine => "fit to this machine",
        Preset::Source => "the source's own",
    };
    let rounds = counted(sizes.rounds as u64, "round", "rounds");
    format!("{preset}: {} s each, {rounds}, pgbench scale {}", sizes.seconds, sizes.scale)
}

/// Each once: experiments of one journal may have been measured differently long.
fn all_sizes(book: &Book) -> String {
    let mut all: Vec<String> = Vec::new();
    for sizes in book.runs().map(|run| sizes(run.sizes.as_ref())) {
        if !all.contains(&sizes) {
            all.push(sizes);
        }
    }
    all.join("; ")
}

fn differing(runs: &[&Run]) -> bool {
    runs.windows(2).any(|pair| pair[0].machine != pair[1].machine)
}

fn overview(book: &Book) -> Markup {
    html! {
        section.overview id="overview" {
            @if book.chapters.is_empty() {
                div.notice { p {
                    "This directory's journal holds no experiment yet. The run was stopped before it began its first one, \
                     or nothing could be written."
                } }
            } @else {
                h2 { "What was found" }
                ol { @for (index, chapter) in book.chapters.iter().enumerate() {
                    li {
                        div {
                            h3 { a href={ "#" (section::anchor(index)) } { (chapter.title()) } }
                            @if let Some(state) = section::state(chapter) { p.doubt { (state) } }
                        }
                        div { p { (summary(chapter)) } }
                    }
                } }
            }
        }
    }
}

fn summary(chapter: &Chapter) -> String {
    let shown = chapter.of_kind(FindingKind::Shows);
    let all =
        if shown.is_empty() { chapter.findings.iter().map(|finding| finding.text.as_str()).collect() } else { shown };
    if !all.is_empty() {
        return all.into_iter().take(FINDINGS_IN_OVERVIEW).collect::<Vec<_>>().join(" ");
    }
    if chapter.about.is_none() {
        return "This version does not know the experiment; its figures are shown as they were written.".to_owned();
    }
    if chapter.data.lines.is_empty() { "Nothing was measured." } else { "The figures allow no conclusion yet." }
        .to_owned()
}

fn foot() -> Markup {
    html! {
        footer.foot {
            p {
                "Beside this file: " code { "results.jsonl" } " with every single measurement, a CSV file per experiment, and "
                code { "charts/" } " with pictures for slides. " code { "weir lab report DIR" } " writes this page anew; "
                code { "weir lab compare A B" } " sets two runs side by side."
            }
        }
    }
}
