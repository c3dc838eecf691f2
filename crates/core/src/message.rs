//! One message of a client's, as far as it is there, and how much of it must be there before it is dealt with.

use weir_wire::frontend::{BindNames, NAMING_MESSAGE_LEN_MAX, SMALL_MESSAGE_LEN_MAX, Target};
use weir_wire::{FrontendTag, HEADER_LEN, Header};

use crate::failure::Failure;
use crate::inbox::Piece;
use crate::parameters::meanings::NAME_BYTES;
use crate::parameters::resets::TEXT_BYTES_MAX;
use crate::statements::{STATEMENT_BYTES_MAX, UNNAMED_BYTES_KEPT};

/// The name of a portal in a Bind, with its terminator, is at most this long.
pub(crate) const PORTAL_NAME_MAX: usize = 1024;
/// And so is it together with that of a statement.
const BIND_NAMES_MAX: usize = PORTAL_NAME_MAX + NAMING_MESSAGE_LEN_MAX as usize;

/// Behind a longer message nobody looks for what comes next.
const LOOKED_BEHIND_MAX: usize = 64 * 1024;
/// A longer text may leave anything in its session.
const KEPT_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// A longer query is not looked at for a DEALLOCATE of a statement that is none of ours.
const DEALLOCATE_LEN_MAX: usize = 256;
pub(crate) const DEALLOCATE: &[u8] = b"deallocate";

/// One message, as far as it is there.
pub(crate) struct Message<'a> {
    pub(crate) tag: FrontendTag,
    /// From the header on.
    pub(crate) bytes: &'a [u8],
    /// Where they lie in the input.
    pub(crate) at: Option<usize>,
    /// Header and body.
    pub(crate) total: usize,
}

impl<'a> Message<'a> {
    pub(crate) fn read(piece: &'a Piece<'_>, packet_max: u32) -> Result<Self, Failure> {
        let bytes = piece.bytes();
        let Some((first, _)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(Failure::MessageLength { tag: 0 });
        };
        let header = Header::parse(first);
        let Some(tag) = FrontendTag::from_byte(header.tag) else { return Err(Failure::UnknownMessage(header.tag)) };
        let longest = tag.body_len_max().min(packet_max);
        // A failure that is made ahead would be dropped, which costs something.
        let Some(body_len) = header.body_len.filter(|&length| length <= longest) else {
            return Err(Failure::MessageLength { tag: header.tag });
        };
        Ok(Self { tag, bytes, at: piece.at(), total: HEADER_LEN + body_len as usize })
    }

    pub(crate) fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.bytes.len().min(self.total)]
    }

    /// PostgreSQL does not take it as it is: a Describe or Close.
    pub(crate) fn is_too_long(&self) -> bool {
        self.total > HEADER_LEN + SMALL_MESSAGE_LEN_MAX as usize
    }

    /// How many of its bytes are there.
    pub(crate) fn present(&self) -> usize {
        self.bytes.len().min(self.total)
    }

    /// How much of it must be in one piece before it is dealt with. `tracks`: names are ours. `reads`: what it resets is read in its
    /// text.
    #[inline(always)]
    pub(crate) fn needed(&self, tracks: bool, reads: bool) -> Result<usize, Failure> {
        let total = self.total;
        Ok(match self.tag {
            // Its text is looked through.
            FrontendTag::Query if (tracks || reads) && total <= TEXT_BYTES_MAX => total,
            FrontendTag::Parse if reads && !tracks && total <= TEXT_BYTES_MAX => total,
            FrontendTag::Parse if reads && !tracks => HEADER_LEN + NAME_BYTES,
            FrontendTag::Bind if tracks || reads => {
                if BindNames::parse(self.body()).is_some() {
                    self.present()
                } else {
                    self.names_needed()
                }
            }
            FrontendTag::Describe | FrontendTag::Close => total,
            // Whether it is a DEALLOCATE, and of what.
            FrontendTag::Query => match self.body().first() {
                None => (HEADER_LEN + 1).min(total),
                Some(first) if first.eq_ignore_ascii_case(&DEALLOCATE[0]) && total <= DEALLOCATE_LEN_MAX => total,
                Some(_) => HEADER_LEN,
            },
            FrontendTag::Execute if reads => total,
            // The function's number.
            FrontendTag::FunctionCall if reads => (HEADER_LEN + 4).min(total),
            // The first byte of its portal's name.
            FrontendTag::Execute => (HEADER_LEN + 1).min(total),
            FrontendTag::Parse if tracks => {
                let body_len = total - HEADER_LEN;
                match self.body().first() {
                    None => (HEADER_LEN + 1).min(total),
                    Some(0) if body_len > UNNAMED_BYTES_KEPT => HEADER_LEN,
                    Some(_) if body_len > STATEMENT_BYTES_MAX => {
                        return Err(Failure::StatementTooLong);
                    }
                    Some(_) => total,
                }
            }
            _ => HEADER_LEN,
        })
    }

    /// Of a Bind whose names do not end in what is there. Most are short: values are not waited for.
    #[cold]
    fn names_needed(&self) -> usize {
        let longest = if self.present() < HEADER_LEN + PORTAL_NAME_MAX { PORTAL_NAME_MAX } else { BIND_NAMES_MAX };
        self.total.min(HEADER_LEN + longest)
    }

    /// Whether the very next message describes this portal; or how much must be there in one piece to know that.
    pub(crate) fn describes_next(&self, portal: &[u8]) -> Result<bool, usize> {
        // The letter, and the name's end.
        let described_len = HEADER_LEN + 1 + portal.len() + 1;
        if self.total + described_len > LOOKED_BEHIND_MAX {
            return Ok(false);
        }
        let next = self.bytes.get(self.total..).unwrap_or_default();
        let Some(first) = next.first_chunk::<HEADER_LEN>() else { return Err(self.total + HEADER_LEN) };
        let is_such = first[0] == FrontendTag::Describe as u8
            && Header::parse(first).body_len == Some((described_len - HEADER_LEN) as u32);
        match next.get(HEADER_LEN..described_len) {
            _ if !is_such => Ok(false),
            None => Err(self.total + described_len),
            Some(body) => Ok(Target::parse(body) == Ok(Target::Portal(portal))),
        }
    }

    /// Whether more of it must be there, where what it leaves in its session is kept: its text is looked through.
    pub(crate) fn is_text_cut(&self) -> bool {
        let is_text = matches!(self.tag, FrontendTag::Query | FrontendTag::Parse);
        is_text && self.bytes.len() < self.total && self.total <= KEPT_TEXT_BYTES_MAX
    }
}
