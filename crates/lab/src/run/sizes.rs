//! How large a run is: what a user asked for, and what this machine makes of the rest.
//!
//! Does not know experiments; each derives its own numbers from these.

use weir_measure::ground::machine::Machine;
use weir_measure::journal::{Preset, Sizes};

/// What a user said of sizes; what is `None` follows from the preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub quick: bool,
    pub source: bool,
    pub seconds: Option<u64>,
    pub rounds: Option<usize>,
    pub scale: Option<u32>,
}

/// Of the sources, one says how long it measured: Microsoft's of 2026, 600 s at scale 3000.
const SOURCE: Sizes = Sizes { preset: Preset::Source, seconds: 600, rounds: 1, rounds_max: 1, scale: 3000 };
const QUICK: Sizes = Sizes { preset: Preset::Quick, seconds: 2, rounds: 1, rounds_max: 1, scale: 10 };
const MACHINE_SECONDS: u64 = 10;
const MACHINE_ROUNDS: usize = 3;
/// Where three rounds do not tell a figure within a few per cent.
const MACHINE_ROUNDS_MAX: usize = 8;
/// A scale factor is about 16 MiB; so much of memory leaves room for everything else, and loads within a minute or two.
const MEMORY_MIB_PER_SCALE: u64 = 512;
const MACHINE_SCALE_MIN: u64 = 10;
const MACHINE_SCALE_MAX: u64 = 100;

pub fn of(asked: &Asked, machine: &Machine) -> Sizes {
    let preset = match (asked.quick, asked.source) {
        (true, _) => QUICK,
        (_, true) => SOURCE,
        _ => Sizes {
            preset: Preset::Machine,
            seconds: MACHINE_SECONDS,
            rounds: MACHINE_ROUNDS,
            rounds_max: MACHINE_ROUNDS_MAX,
            scale: (machine.memory_mib / MEMORY_MIB_PER_SCALE)
                .clamp(MACHINE_SCALE_MIN, MACHINE_SCALE_MAX)
                .try_into()
                .unwrap_or(u32::MAX),
        },
    };
    Sizes {
        preset: preset.preset,
        seconds: asked.seconds.unwrap_or(preset.seconds).max(1),
        rounds: asked.rounds.unwrap_or(preset.rounds).max(1),
        rounds_max: asked.rounds.unwrap_or(preset.rounds_max).max(1),
        scale: asked.scale.unwrap_or(preset.scale).max(1),
    }
}

/// As the command line says it again.
pub fn options(asked: &Asked) -> String {
    let mut text = String::new();
    for (is_asked, option) in [(asked.quick, " --quick"), (asked.source, " --source-sizes")] {
        if is_asked {
            text.push_str(option);
        }
    }
    let rounds = asked.rounds.and_then(|rounds| u64::try_from(rounds).ok());
    for (option, number) in [("seconds", asked.seconds), ("rounds", rounds), ("scale", asked.scale.map(u64::from))] {
        if let Some(number) = number {
            text.push_str(&format!(" --{option} {number}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(memory_mib: u64) -> Machine {
        Machine { memory_mib, ..Machine::describe() }
    }

    #[test]
    fn sizes_follow_the_machine_and_the_wishes() {
        let scale = |memory_mib| of(&Asked::default(), &machine(memory_mib)).scale;
        assert_eq!((scale(1024), scale(16_384), scale(1_000_000)), (10, 32, 100));
        let asked = Asked { quick: true, seconds: Some(5), ..Asked::default() };
        let sizes = of(&asked, &machine(8192));
        assert_eq!((sizes.preset, sizes.seconds, sizes.rounds), (Preset::Quick, 5, 1));
        assert_eq!(options(&asked), " --quick --seconds 5");
        let rounds = |asked: Option<usize>| {
            let sizes = of(&Asked { rounds: asked, ..Asked::default() }, &machine(8192));
            (sizes.rounds, sizes.rounds_max)
        };
        assert_eq!((rounds(None), rounds(Some(5))), ((3, 8), (5, 5)), "who asks for a number gets that");
        assert_eq!(of(&Asked { source: true, ..Asked::default() }, &machine(8192)).scale, 3000);
    }
}
