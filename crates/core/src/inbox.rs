//! Splitting a stream of bytes into messages without holding them.
//!
//! A message's header is enough to forward or skip it; only what must be read whole is gathered. The bytes of a piece are
//! kept here while it is not complete, or its message waits.

use weir_wire::HEADER_LEN;

/// A buffer of this size is kept once it was needed: the pieces that are gathered most are headers and short replies that
/// the end of a receive buffer cut.
const PARTIAL_BYTES_KEPT: usize = 64;

/// What happens to the rest of a message whose beginning was dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    /// Goes on to the other side of the link.
    Forward(u32),
    Skip(u32),
}

/// One side's half-read stream.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) body: Body,
    partial: Vec<u8>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { body: Body::None, partial: Vec::new() }
    }
}

impl Inbox {
    /// Where this was received, of which nothing has been dealt with.
    pub(crate) fn of_partial(partial: Vec<u8>) -> Self {
        Self { body: Body::None, partial }
    }

    pub(crate) fn partial(&self) -> &[u8] {
        &self.partial
    }
}

/// The input being handled, and how far it was taken.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    input: &'a [u8],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0 }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.input[self.at..]
    }

    /// Takes up to `count` bytes; answers the range taken.
    pub(crate) fn take(&mut self, count: u32) -> (usize, usize) {
        let from = self.at;
        self.at += (self.input.len() - from).min(count as usize);
        (from, self.at)
    }
}

/// Bytes in one piece, from the start of a message.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// All that is left of the input, at this offset.
    Received(&'a [u8], usize),
    /// Gathered over several inputs.
    Gathered(Vec<u8>),
}

impl Piece<'_> {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Received(bytes, _) => bytes,
            Self::Gathered(bytes) => bytes,
        }
    }

    /// Where the piece lies in the input, if it does.
    #[inline]
    pub(crate) fn at(&self) -> Option<usize> {
        match self {
            Self::Received(_, at) => Some(*at),
            Self::Gathered(_) => None,
        }
    }
}

/// What became of a piece.
pub(crate) enum Verdict<S> {
    /// This many bytes must be in one piece.
    More(usize),
    /// Dealt with, up to here; the inbox knows about the rest of the message.
    Used(usize),
    /// Not dealt with, and nothing behind it is.
    Stop(S),
}

/// Has `who` deal with the next message, of which it is handed as much in one piece as it says that it needs. True where it has dealt
/// with it, false where more has to come first, or why it stops.
#[inline]
pub(crate) fn next_message<W, S>(
    who: &mut W,
    inbox: impl Fn(&mut W) -> &mut Inbox,
    cursor: &mut Cursor<'_>,
    deal: impl Fn(&mut W, &Piece<'_>) -> Verdict<S>,
) -> Result<bool, S> {
    let mut need = HEADER_LEN;
    loop {
        let Some(piece) = inbox(who).gather(cursor, need) else { return Ok(false) };
        match deal(who, &piece) {
            Verdict::More(more) => {
                inbox(who).put_back(piece);
                need = more;
            }
            Verdict::Used(used) => {
                inbox(who).used(cursor, piece, used);
                return Ok(true);
            }
            Verdict::Stop(why) => {
                inbox(who).put_back(piece);
                return Err(why);
            }
        }
    }
}

impl Inbox {
    /// At least `need` bytes in one piece. `None`: there are not that many yet; what there is was taken and kept.
    #[inline]
    pub(crate) fn gather<'a>(&mut self, cursor: &mut Cursor<'a>, need: usize) -> Option<Piece<'a>> {
        if self.partial.is_empty() {
            let rest = cursor.rest();
            if rest.len() >= need {
                return Some(Piece::Received(rest, cursor.at));
            }
        }
        self.gather_slowly(cursor, need)
    }

    #[cold]
    fn gather_slowly<'a>(&mut self, cursor: &mut Cursor<'a>, need: usize) -> Option<Piece<'a>> {
        let missing = need.saturating_sub(self.partial.len());
        let (from, to) = cursor.take(missing as u32);
        self.partial.extend_from_slice(&cursor.input[from..to]);
        (self.partial.len() >= need).then(|| Piece::Gathered(std::mem::take(&mut self.partial)))
    }

    /// The piece's first `used` bytes were dealt with. A gathered piece is used up, but for what was looked at of the message behind it.
    #[inline]
    pub(crate) fn used(&mut self, cursor: &mut Cursor<'_>, piece: Piece<'_>, used: usize) {
        match piece {
            Piece::Received(..) => cursor.at += used,
            Piece::Gathered(mut bytes) => {
                bytes.drain(..used);
                if !bytes.is_empty() || bytes.capacity() <= PARTIAL_BYTES_KEPT {
                    self.partial = bytes;
                }
            }
        }
    }

    /// The piece was not dealt with: it is there again the next time.
    pub(crate) fn put_back(&mut self, piece: Piece<'_>) {
        if let Piece::Gathered(bytes) = piece {
            self.partial = bytes;
        }
    }

    /// The next message as a whole, out of the stream. `total_len` reads its length from its first `HEAD` bytes, or says that
    /// there is no such message. `None`: it is not all there yet; what there is was taken and kept.
    pub(crate) fn take_whole<const HEAD: usize, E>(
        &mut self,
        cursor: &mut Cursor<'_>,
        total_len: impl FnOnce(&[u8; HEAD]) -> Result<usize, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let Some(mut piece) = self.gather(cursor, HEAD) else { return Ok(None) };
        let head = piece.bytes().first_chunk().expect("so many were gathered");
        let total = total_len(head)?;
        if piece.bytes().len() < total {
            self.put_back(piece);
            let Some(whole) = self.gather(cursor, total) else { return Ok(None) };
            piece = whole;
        }
        let message = piece.bytes()[..total].to_vec();
        self.used(cursor, piece, total);
        Ok(Some(message))
    }

    /// Of a message of `total` bytes so many were there; the rest goes on to the other side, or is for nobody.
    #[inline]
    pub(crate) fn expect_rest(&mut self, total: usize, present: usize, forwards: bool) {
        self.body = match (total - present) as u32 {
            0 => Body::None,
            left if forwards => Body::Forward(left),
            left => Body::Skip(left),
        };
    }

    /// Takes what is there of a message's rest: its range, and whether it goes on to the other side.
    pub(crate) fn take_rest(&mut self, cursor: &mut Cursor<'_>) -> (usize, usize, bool) {
        let (count, forwards) = match self.body {
            Body::None => (0, false),
            Body::Forward(count) => (count, true),
            Body::Skip(count) => (count, false),
        };
        let (from, to) = cursor.take(count);
        self.expect_rest(count as usize, to - from, forwards);
        (from, to, forwards)
    }

    pub(crate) fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// The tag of the message of which a part is kept.
    pub(crate) fn partial_tag(&self) -> Option<u8> {
        self.partial.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_gathered_over_inputs_and_can_be_put_back() {
        let mut inbox = Inbox::default();
        let mut cursor = Cursor::new(b"ab");
        assert!(inbox.gather(&mut cursor, 3).is_none());
        assert_eq!(cursor.at, 2);
        let mut cursor = Cursor::new(b"cdef");
        let piece = inbox.gather(&mut cursor, 3).unwrap();
        assert_eq!(piece.bytes(), b"abc");
        inbox.put_back(piece);
        let piece = inbox.gather(&mut cursor, 5).unwrap();
        assert_eq!((piece.bytes(), piece.at()), (&b"abcde"[..], None));
        inbox.used(&mut cursor, piece, 5);
        let piece = inbox.gather(&mut cursor, 1).unwrap();
        assert_eq!((piece.bytes(), piece.at()), (&b"f"[..], Some(3)));
    }

    #[test]
    fn a_whole_message_is_taken_wherever_inputs_cut_it() {
        let total_len = |head: &[u8; 2]| if head[0] == b'm' { Ok(usize::from(head[1])) } else { Err("no message") };
        let stream = b"m\x05abcm\x02m\x03d";
        for cut in 0..=stream.len() {
            let (mut inbox, mut messages) = (Inbox::default(), Vec::new());
            for input in [&stream[..cut], &stream[cut..]] {
                let mut cursor = Cursor::new(input);
                while let Some(message) = inbox.take_whole(&mut cursor, total_len).unwrap() {
                    messages.push(message);
                }
                assert!(cursor.rest().is_empty());
            }
            assert_eq!(messages, [&b"m\x05abc"[..], b"m\x02", b"m\x03d"], "cut at {cut}");
        }
        assert_eq!(Inbox::default().take_whole(&mut Cursor::new(b"xy"), total_len), Err("no message"));
    }
}
