//! The hashes of random values beside those that PostgreSQL gives.
#![allow(clippy::unwrap_used)]

use postgres::{Client, NoTls};
use weir_cluster::key::KeyType;
use weir_pg::{Cluster, Installation, Options};

/// Of each type.
const VALUES: usize = 300;

/// Always the same numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Small ones as well as large ones, of both signs.
    fn integer(&mut self, bits: u64) -> i64 {
        (self.next() as i64) >> (64 - bits + self.below(bits))
    }

    fn text(&mut self) -> String {
        const LETTERS: [&str; 6] = ["a", "Z", "0", " ", "ż", "中"];
        (0..self.below(40)).map(|_| LETTERS[self.below(6) as usize]).collect()
    }

    fn timestamp(&mut self) -> String {
        let [year, month, day] = [self.below(9_999) + 1, self.below(12) + 1, self.below(28) + 1];
        let [hour, minute, second] = [self.below(24), self.below(60), self.below(60)];
        let fraction = ["", ".5", ".123456", ".000001"][self.below(4) as usize];
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}")
    }
}

/// A value as text, and in binary format; where PostgreSQL reads the text, its function gives the hash.
type Value = (String, Option<Vec<u8>>);

#[test]
fn hashes_are_postgresqls() {
    for major in [14, 18] {
        let installation = Installation::preferably(major, &|_| {}).unwrap();
        let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
        let cluster = Cluster::start(&installation, Options { hba, ..Options::default() }).unwrap();
        let mut client =
            Client::connect(&format!("host=127.0.0.1 port={} user=postgres", cluster.port()), NoTls).unwrap();
        let random = &mut Random(u64::from(major));
        let text = KeyType::Text { longest: None };
        agree(&mut client, KeyType::Int2, "hashint2(v::int2)", || integer(random.integer(16), 2));
        agree(&mut client, KeyType::Int4, "hashint4(v::int4)", || integer(random.integer(32), 4));
        agree(&mut client, KeyType::Int8, "hashint8(v::int8)", || integer(random.integer(64), 8));
        agree(&mut client, KeyType::Oid, "hashoid(v::oid)", || integer(random.below(1 << 32) as i64, 4));
        agree(&mut client, text, "hashtext(v)", || string(random.text()));
        agree(&mut client, KeyType::Padded, "hashbpchar(v::bpchar)", || string(random.text()));
        agree(&mut client, KeyType::Uuid, "uuid_hash(v::uuid)", || uuid([random.next(), random.next()]));
        agree(&mut client, KeyType::Timestamp, "timestamp_hash(v::timestamp)", || (random.timestamp(), None));
        let zoned = || (random.timestamp() + "+00", None);
        agree(&mut client, KeyType::TimestampTz, "timestamp_hash(v::timestamptz at time zone 'UTC')", zoned);
        let date = || (random.timestamp()[..10].to_owned(), None);
        agree(&mut client, KeyType::Date, "hashint4(v::date - '2000-01-01'::date)", date);
    }
}

fn integer(value: i64, width: usize) -> Value {
    (value.to_string(), Some(value.to_be_bytes()[8 - width..].to_vec()))
}

fn string(value: String) -> Value {
    let bytes = value.clone().into_bytes();
    (value, Some(bytes))
}

fn uuid(halves: [u64; 2]) -> Value {
    let digits = format!("{:016x}{:016x}", halves[0], halves[1]);
    let text = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-");
    (text, Some(halves.into_iter().flat_map(u64::to_be_bytes).collect()))
}

fn agree(client: &mut Client, key: KeyType, hash: &str, mut value: impl FnMut() -> Value) {
    let values: Vec<_> = (0..VALUES).map(|_| value()).collect();
    let texts: Vec<_> = values.iter().map(|(text, _)| text).collect();
    let sql = format!("select {hash} from unnest($1::text[]) with ordinality u(v, n) order by n");
    let hashes: Vec<i32> = client.query(&sql, &[&texts]).unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(hashes.len(), VALUES);
    for ((text, binary), hash) in values.iter().zip(hashes) {
        assert_eq!(key.hash_of_text(text), Some(hash), "{key:?} {text:?}");
        if let Some(binary) = binary {
            assert_eq!(key.hash_of_binary(0, binary), Some(hash), "{key:?} {text:?} in binary format");
        }
    }
}
