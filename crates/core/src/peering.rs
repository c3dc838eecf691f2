//! Cancel keys of processes that pass cancel requests on to each other (`[peers]`): which process a key is of, and which session.
//!
//! Of what a client is told, its process id and its key, the first eight bytes are laid out as PgBouncer lays them out (`src/proto.c` and `src/objects.c`,
//! release 1.25.2), so that either's peers find the other's sessions:
//!
//! ```text
//! byte   0       1, 2      3 to 6   7
//!        7 bits  peer_id   32 bits  6 bits, and 2 that say how often the request may still be passed on
//! ```
//!
//! PgBouncer draws the other 45 bits by lot, and compares them with all its clients'. Here they are the session's number, which finds it, and random bits,
//! enciphered with the process's secret: of all that may be guessed, one for each session is right, as by lot.

use crate::auth::hmac_sha256;

const NUMBER_BITS: u32 = 31;
const RANDOM_BITS: u32 = BITS - NUMBER_BITS;
const BITS: u32 = 45;
/// A Feistel network's halves; the other one has a bit more.
const RIGHT_BITS: u32 = 22;
const ROUNDS: u8 = 8;
/// The bits of the last byte that say how often the request may be passed on: three times, when it is told.
const PASSES: u8 = 0b11;

/// The first eight bytes of what a session is cancelled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerKey([u8; 8]);

impl PeerKey {
    /// Of that session of this process, with fourteen random bits. `None`: its process id could be one of the system's (`whereabouts.rs`); others are to be
    /// tried.
    pub(crate) fn seal(number: u32, random: u16, peer: u16, secret: &[u8; 32]) -> Option<Self> {
        let random = u64::from(random) & mask(RANDOM_BITS);
        let bits = encipher(u64::from(number) << RANDOM_BITS | random, secret);
        let [.., first, second, third, fourth, fifth, sixth] = (bits << 2).to_be_bytes();
        let [low, high] = peer.to_le_bytes();
        (first != 0).then_some(Self([first, low, high, second, third, fourth, fifth, sixth | PASSES]))
    }

    /// Of a cancel request; `None`: its key is too short to be of ours.
    pub(crate) fn of(process_id: u32, key: &[u8]) -> Option<Self> {
        let (first, second) = (process_id.to_be_bytes(), key.first_chunk::<4>()?);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first);
        bytes[4..].copy_from_slice(second);
        Some(Self(bytes))
    }

    /// The session's number, if the key is of this process.
    pub(crate) fn number(self, secret: &[u8; 32]) -> u32 {
        let [first, _, _, second, third, fourth, fifth, sixth] = self.0;
        let bits = u64::from_be_bytes([0, 0, first, second, third, fourth, fifth, sixth]) >> 2;
        (decipher(bits & mask(BITS), secret) >> RANDOM_BITS) as u32
    }

    pub(crate) fn peer(self) -> u16 {
        u16::from_le_bytes([self.0[1], self.0[2]])
    }

    /// As it was told, however often it was passed on.
    pub(crate) fn as_told(mut self) -> Self {
        self.0[7] |= PASSES;
        self
    }

    /// As the next process gets it; `None`: it was passed on too often.
    pub(crate) fn passed_on(mut self) -> Option<Self> {
        if self.0[7] & PASSES == 0 {
            return None;
        }
        self.0[7] -= 1;
        Some(self)
    }

    pub(crate) fn process_id(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The four bytes behind it.
    pub(crate) fn key(&self) -> &[u8] {
        &self.0[4..]
    }
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

fn encipher(bits: u64, secret: &[u8; 32]) -> u64 {
    rounds(0..ROUNDS, bits, secret)
}

fn decipher(bits: u64, secret: &[u8; 32]) -> u64 {
    rounds((0..ROUNDS).rev(), bits, secret)
}

/// Each undoes itself.
fn rounds(order: impl Iterator<Item = u8>, bits: u64, secret: &[u8; 32]) -> u64 {
    let (mut left, mut right) = (bits >> RIGHT_BITS, bits & mask(RIGHT_BITS));
    for round in order {
        if round % 2 == 0 {
            left ^= mix(round, right, secret) & mask(BITS - RIGHT_BITS);
        } else {
            right ^= mix(round, left, secret) & mask(RIGHT_BITS);
        }
    }
    left << RIGHT_BITS | right
}

/// A pseudo-random function of one half: HMAC-SHA-256 under the process's secret, the label of its own.
fn mix(round: u8, half: u64, secret: &[u8; 32]) -> u64 {
    let hash = hmac_sha256(secret, &[b"cancel key", &[round], &half.to_be_bytes()]);
    hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_process_and_to_it_alone_its_session() {
        let secret = [7; 32];
        for number in [1 << 22, 12_345_678, i32::MAX as u32] {
            for (random, peer) in [(0, 1), (1, 16_383), (0x3fff, 300)] {
                let Some(key) = PeerKey::seal(number, random, peer, &secret) else { continue };
                assert_eq!((key.number(&secret), key.peer()), (number, peer));
                assert_ne!(key.number(&[8; 32]), number);
                assert!((1 << 22..=i32::MAX as u32).contains(&key.process_id()), "{key:?}");
                let told = key.process_id();
                assert_eq!(PeerKey::of(told, key.key()), Some(key));
                assert_eq!(PeerKey::of(told, &key.key()[1..]), None);
            }
        }
    }

    #[test]
    fn a_request_is_passed_on_three_times() {
        let key = PeerKey::of(1 << 24, &[1, 2, 3, 0xff]).unwrap();
        let passed: Vec<_> = std::iter::successors(Some(key), |key| key.passed_on()).collect();
        assert_eq!(passed.len(), 4);
        assert!(passed.iter().all(|passed| passed.as_told() == key && passed.peer() == key.peer()));
    }

    #[test]
    fn numbers_beside_each_other_have_keys_that_are_not() {
        let secret = [9; 32];
        let keys: Vec<_> = (0..1000).filter_map(|count| PeerKey::seal((1 << 22) + count, 0, 1, &secret)).collect();
        let mut firsts: Vec<_> = keys.iter().map(|key| key.process_id()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        // Fifteen of a process id's bits are drawn: some of a thousand are alike, and seven more have none.
        assert!((950..=keys.len()).contains(&firsts.len()) && keys.len() > 950, "{} of {}", firsts.len(), keys.len());
    }
}
