//! A transaction in steady state asks core for no memory.

use weir_guard::allocations::{self, Counting};
use weir_guard::kinds;
use weir_guard::recording::Recording;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TRANSACTIONS: u64 = 10_000;

#[test]
fn no_kind_of_transaction_allocates() {
    let mut found = Vec::new();
    let before = allocations::count_here();
    drop(std::hint::black_box(vec![1u8]));
    assert_eq!(allocations::count_here() - before, 1, "the counter counts");
    for kind in kinds::all() {
        let mut recording = Recording::of(&kind);
        recording.replay(100);
        let before = allocations::count_here();
        let transactions = recording.replay(TRANSACTIONS / kind.transactions);
        let allocated = allocations::count_here() - before;
        assert_eq!(transactions, TRANSACTIONS, "{}", kind.name);
        if allocated > 0 {
            found.push(format!("{}: {allocated} allocations in {transactions} transactions", kind.name));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
