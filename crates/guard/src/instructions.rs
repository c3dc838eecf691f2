//! Instructions that core spends on a transaction, counted by callgrind.
//!
//! A replay of many cycles less one of few is what the cycles between cost: start-up and warm-up cancel out. The figure
//! depends on the compiler, which rust-toolchain.toml pins, and not on the machine's speed or load. It includes the
//! loop that hands inputs in and takes outputs out, some twenty instructions for each.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::bounds::Figure;
use crate::kinds;

const CYCLES_FEW: u64 = 100;
const CYCLES_MANY: u64 = 1_100;
/// The C library copies and compares with what the processor has; every processor has SSE2.
const PLAIN_COPIES: &str = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-SSE4_2,-BMI2,-MOVBE";

/// Why nothing can be counted here, if so.
pub fn unavailable() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the bounds are for x86_64");
    }
    let found = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if found { None } else { Some("valgrind is not installed (apt-get install valgrind libc6-dbg)") }
}

/// The figures of all kinds; `replay` is the program that goes through cycles: `replay KIND CYCLES`.
pub fn measure(replay: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for kind in kinds::all() {
        let [few, many] = [CYCLES_FEW, CYCLES_MANY].map(|cycles| count(replay, kind.name, cycles));
        let transactions = (CYCLES_MANY - CYCLES_FEW) * kind.transactions;
        let value = (many?.saturating_sub(few?)) as f64 / transactions as f64;
        figures.push(Figure { name: format!("instructions {}", kind.name), value });
    }
    Ok(figures)
}

fn count(replay: &Path, kind: &str, cycles: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(replay)
        .args(["replay", kind, &cycles.to_string()])
        // The environment lies on the stack: where things are must not depend on it.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GLIBC_TUNABLES", PLAIN_COPIES)
        .output()
        .context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    match collected(&text) {
        Some(count) if output.status.success() => Ok(count),
        _ => bail!("valgrind failed on {kind}: {text}"),
    }
}

/// `==123== Collected : 456`
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_in_a_line_of_its_own() {
        let text = "==7== Events    : Ir\n==7== Collected : 123456\n==7==\n==7== I   refs:      123,456\n";
        assert_eq!(collected(text), Some(123_456));
        assert_eq!(collected("==7== nothing"), None);
    }
}
