//! What the workers of a test are born with.

use weir_core::{Numbers, WorkerConfig, WorkerId};

pub fn of_worker(index: u16, workers: u16, numbers: &Numbers) -> WorkerConfig {
    WorkerConfig {
        id: WorkerId(index),
        workers,
        seed: [index as u8 + 1; 32],
        process_secret: [9; 32],
        epoch_us: 1_000_000,
        uid: None,
        numbers: numbers.clone(),
        predecessor: None,
        place: None,
    }
}
