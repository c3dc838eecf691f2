//! The program `weir-lab`, which `weir lab` and `weir advise` run. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_lab::cli::main()
}
