//! The parts of the benchmark: each measures some of the targets, and can be run alone.
//!
//! A part is one file: what it measures, with which peers and loads, and what its figures mean.

pub mod bench;
mod big;
mod churn;
mod connect;
mod crowd;
pub mod few;
mod flat;
mod idle;
mod logins;
mod memory;
mod speed;
mod state;
mod storm;
mod tls;
mod watch;
pub mod workers;

use anyhow::Result;

use bench::Bench;

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    /// Told for the reader, not compared.
    Neither,
}

/// One column of a part's table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub key: &'static str,
    pub title: &'static str,
    pub decimals: usize,
    pub better: Better,
}

impl Figure {
    pub const fn lower(key: &'static str, title: &'static str, decimals: usize) -> Figure {
        Figure { key, title, decimals, better: Better::Lower }
    }

    pub const fn higher(key: &'static str, title: &'static str, decimals: usize) -> Figure {
        Figure { key, title, decimals, better: Better::Higher }
    }

    pub const fn told(key: &'static str, title: &'static str, decimals: usize) -> Figure {
        Figure { key, title, decimals, better: Better::Neither }
    }
}

/// A chart of a part: a row of panels per figure, one panel per load, number of clients across.
pub struct Drawing {
    pub name: &'static str,
    pub title: &'static str,
    /// Keys of figures.
    pub figures: &'static [&'static str],
}

pub struct Part {
    pub name: &'static str,
    pub title: &'static str,
    /// What is measured and how, for the reader of the table.
    pub about: &'static str,
    pub figures: &'static [Figure],
    pub drawing: Option<Drawing>,
    pub run: fn(&mut Bench) -> Result<()>,
}

/// In the order in which they are run and reported.
pub const ALL: [&Part; 14] = [
    &speed::PART,
    &few::PART,
    &tls::PART,
    &connect::PART,
    &flat::PART,
    &memory::PART,
    &churn::PART,
    &crowd::PART,
    &logins::PART,
    &storm::PART,
    &big::PART,
    &workers::PART,
    &state::PART,
    &idle::PART,
];

pub fn find(name: &str) -> Option<&'static Part> {
    ALL.into_iter().find(|part| part.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_and_keys_of_figures_are_unique_and_drawn_figures_exist() {
        for (index, part) in ALL.into_iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != part.name), "{}", part.name);
            for (index, figure) in part.figures.iter().enumerate() {
                assert!(part.figures[..index].iter().all(|other| other.key != figure.key), "{}", figure.key);
            }
            let drawn = part.drawing.as_ref().map_or(&[][..], |drawing| drawing.figures);
            assert!(drawn.iter().all(|key| part.figures.iter().any(|figure| figure.key == *key)), "{}", part.name);
        }
        assert!(find("speed").is_some() && find("nothing").is_none());
    }
}
