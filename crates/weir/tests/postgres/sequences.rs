//! What is left in a session that no look finds: what `nextval` gave last, and that there were temporary objects.

use std::collections::BTreeMap;

use postgres::Client;

use super::bench::{Weir, shared};
use super::parameters::{client, said};

/// The same numbers for the same seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A client, and what it was given of each sequence, and last.
struct Person {
    client: Client,
    given: BTreeMap<u64, String>,
    last: Option<String>,
}

impl Person {
    fn is_given(&mut self, sequence: u64) {
        let number = said(&mut self.client, &format!("select nextval('told_{sequence}')")).remove(0);
        self.last = Some(number.clone());
        self.given.insert(sequence, number);
    }

    /// Whether it was told its own number; an error where it was not.
    fn asks(&mut self, sequence: Option<u64>) -> bool {
        let (text, expected) = match sequence {
            Some(sequence) => (format!("select currval('told_{sequence}')"), self.given.get(&sequence)),
            None => ("select lastval()".to_owned(), self.last.as_ref()),
        };
        let expected = expected.map(String::as_str);
        let told = said(&mut self.client, &text).remove(0);
        assert!(told == "55000" || expected == Some(&told), "{text}: {told} is told, not {expected:?}");
        told != "55000"
    }
}

/// In a later transaction too it is a client's own, or an error: never another's, nor an older one of its own.
#[test]
fn what_nextval_gave_last_is_told_or_refused() {
    let mut direct = client(shared(), "");
    for sequence in 0..2 {
        direct
            .batch_execute(&format!("drop sequence if exists told_{sequence}; create sequence told_{sequence}"))
            .unwrap();
    }
    for (round_robin, workers) in [(0, 1), (1, 1), (0, 2)] {
        let settings = format!(
            "session_state = keep\nworkers = {workers}\ndefault_pool_size = 2\nserver_round_robin = {round_robin}"
        );
        let weir = Weir::start(shared(), &settings);
        let mut people = [(); 3].map(|()| Person { client: client(weir.port, ""), given: BTreeMap::new(), last: None });
        // Whoever asks first has the others' forgotten.
        assert!(!people[0].asks(None));
        let (mut chance, mut told) = (Chance(7), 0);
        for step in 0..600 {
            // One goes on for a while: its next one, mostly, is of the same client.
            let person = &mut people[if step % 4 == 0 { chance.below(3) } else { step / 4 % 3 } as usize];
            match chance.below(8) {
                0..3 => person.is_given(chance.below(2)),
                3 => told += usize::from(person.asks(None)),
                4 | 5 => told += usize::from(person.asks(Some(chance.below(2)))),
                6 => {
                    person.client.batch_execute("begin").unwrap();
                    let sequence = chance.below(2);
                    person.is_given(sequence);
                    assert!(person.asks(Some(sequence)) && person.asks(None), "in its own transaction");
                    person.client.batch_execute(if chance.below(2) == 0 { "commit" } else { "rollback" }).unwrap();
                }
                _ => person.client.batch_execute("select 1").unwrap(),
            }
        }
        assert!(told > 20, "in a later transaction: {told}");
    }
    direct.batch_execute("drop sequence told_0, told_1").unwrap();
}

/// PostgreSQL lets `temp_buffers` be set only where nobody had temporary tables. It follows its client, too.
#[test]
fn temp_buffers_are_set_behind_others_temporary_tables() {
    let weir = Weir::start(shared(), "session_state = keep\nworkers = 1\ndefault_pool_size = 1");
    let [mut one, mut two] = [(); 2].map(|()| client(weir.port, ""));
    let uses = "create temp table buffered as select 1 as a; drop table buffered";
    for size in ["1MB", "2MB"] {
        one.batch_execute(uses).unwrap();
        two.batch_execute(&format!("set temp_buffers = '{size}'")).unwrap();
        assert_eq!(said(&mut one, "show temp_buffers"), ["8MB"]);
        one.batch_execute(uses).unwrap();
        assert_eq!(said(&mut two, "show temp_buffers"), [size]);
        two.batch_execute(uses).unwrap();
    }
    assert_eq!(said(&mut one, "show temp_buffers"), ["8MB"]);
    one.batch_execute(uses).unwrap();
    // It comes with them.
    let mut third = client(weir.port, "options='-c temp_buffers=3MB'");
    assert_eq!(said(&mut third, "show temp_buffers"), ["3MB"]);
    // Its own temporary table is there: that is PostgreSQL's error.
    third.batch_execute("create temp table buffered as select 1 as a").unwrap();
    assert_eq!(said(&mut third, "set temp_buffers = '4MB'"), ["22023"]);
}

/// In a session of its own that look would have made the schema, and a transaction that did cannot be prepared.
#[test]
fn a_transaction_that_looks_at_pg_temp_is_not_prepared() {
    let weir = Weir::start(shared(), "session_state = keep\nworkers = 1\ndefault_pool_size = 1");
    let [mut one, mut two] = [(); 2].map(|()| client(weir.port, ""));
    one.batch_execute("create temp table looked_at (a int); drop table looked_at").unwrap();
    two.batch_execute("set search_path = pg_temp; begin; select current_schema()").unwrap();
    assert_eq!(said(&mut two, "prepare transaction 'looked'"), ["0A000"]);
    assert_eq!(said(&mut two, "select 1"), ["25P02"]);
    two.batch_execute("rollback").unwrap();
    assert_eq!(said(&mut two, "select 1"), ["1"]);
}
