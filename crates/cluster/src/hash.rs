//! PostgreSQL's 32-bit hash functions, those that a hash-distributed table of Citus finds a row's shard by.
//!
//! They are support function 1 of each type's default hash operator class (`hash_any` and `hash_uint32`, src/common/hashfn.c;
//! src/backend/access/hash/hashfunc.c, at REL_18_0): without a seed, other than those of `PARTITION BY HASH`. The mixing is Bob Jenkins' lookup3,
//! on a machine that stores the lowest byte first.

/// What a hash of so many bytes begins with.
fn start(length: usize) -> u32 {
    0x9e37_79b9_u32.wrapping_add(length as u32).wrapping_add(3_923_095)
}

/// The state is three words; each round moves every bit of one into the others.
struct State {
    a: u32,
    b: u32,
    c: u32,
}

impl State {
    fn of(length: usize) -> Self {
        let start = start(length);
        Self { a: start, b: start, c: start }
    }

    fn add(&mut self, [a, b, c]: [u32; 3]) {
        self.a = self.a.wrapping_add(a);
        self.b = self.b.wrapping_add(b);
        self.c = self.c.wrapping_add(c);
    }

    fn mix(&mut self) {
        let Self { mut a, mut b, mut c } = *self;
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
        *self = Self { a, b, c };
    }

    fn end(self) -> u32 {
        let Self { mut a, mut b, mut c } = self;
        c = (c ^ b).wrapping_sub(b.rotate_left(14));
        a = (a ^ c).wrapping_sub(c.rotate_left(11));
        b = (b ^ a).wrapping_sub(a.rotate_left(25));
        c = (c ^ b).wrapping_sub(b.rotate_left(16));
        a = (a ^ c).wrapping_sub(c.rotate_left(4));
        b = (b ^ a).wrapping_sub(a.rotate_left(14));
        (c ^ b).wrapping_sub(b.rotate_left(24))
    }
}

/// `hash_bytes`.
pub fn bytes(bytes: &[u8]) -> i32 {
    let mut state = State::of(bytes.len());
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        state.add(std::array::from_fn(|word| word_of(&block[word * 4..])));
        state.mix();
    }
    let rest = blocks.remainder();
    let mut padded = [0; 12];
    padded[..rest.len()].copy_from_slice(rest);
    let [a, b, c] = std::array::from_fn(|word| word_of(&padded[word * 4..]));
    // The lowest byte of the third word is the length's.
    state.add([a, b, c << 8]);
    state.end() as i32
}

fn word_of(bytes: &[u8]) -> u32 {
    bytes[..4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// `hash_bytes_uint32`.
pub fn word(value: u32) -> i32 {
    let mut state = State::of(size_of::<u32>());
    state.add([value, 0, 0]);
    state.end() as i32
}

/// `hashint2`, `hashint4` and `hashint8`, which agree on equal values.
pub fn integer(value: i64) -> i32 {
    let (low, high) = (value as u32, (value >> 32) as u32);
    word(low ^ if value >= 0 { high } else { !high })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 has given them (`SELECT hashint8(...)`, `hashtext(...)`).
    #[test]
    fn known_values() {
        let integers = [
            (0, -272_711_505),
            (1, -1_905_060_026),
            (-1, 385_747_274),
            (42, 1_509_752_520),
            (100_000, 1_001_413_960),
            (i64::from(i32::MAX), -96_758_253),
            (i64::from(i32::MIN), -1_524_351_049),
            (1 << 32, -1_905_060_026),
            (-(1 << 32) - 1, -1_242_090_879),
            (i64::MAX, -1_524_351_049),
        ];
        for (value, hash) in integers {
            assert_eq!(integer(value), hash, "{value}");
        }
        let texts = [
            ("", -1_477_818_771),
            ("a", 1_075_015_857),
            ("abc", -785_388_649),
            ("tenant-1", -475_081_847),
            ("0123456789ab", -1_437_215_093),
            ("0123456789abc", -1_125_236_995),
            ("zażółć", 1_209_709_485),
        ];
        for (text, hash) in texts {
            assert_eq!(bytes(text.as_bytes()), hash, "{text}");
        }
    }
}
