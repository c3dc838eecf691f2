//! A client's unnamed statement: what it is, and what its client was told of it.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_wire::backend::{RowShape, StatementShape};

use super::{Effect, UNNAMED_BYTES_KEPT, UNNAMED_SENT_BYTES_MAX, reads_nothing};
use crate::parameters::ParameterSet;
use crate::sparse::{Blank, Sparse};

mod saved;

pub(crate) use saved::SavedUnnamed;

/// A longer description is kept as a digest.
const ROWS_BYTES_KEPT: usize = 1024;

/// A client's unnamed statement, kept so that it can be used on another server. It is the last one whose ParseComplete has
/// come; those that were sent since stand in the order in which they are answered.
#[derive(Debug, Default)]
pub(crate) struct Unnamed {
    /// Which one it is; 0 while there is none.
    pub(crate) id: u64,
    /// The parameters as they stood when it was parsed.
    pub(crate) parameters: Option<Arc<ParameterSet>>,
    under: Under,
    /// Of the one that was sent last.
    pub(crate) effect: Effect,
    /// Its text was too long to be read.
    unread: bool,
    pub(crate) kept: Sparse<UnnamedTexts>,
}

/// Whether it is known under which parameters one is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Under {
    #[default]
    Known,
    /// The next ReadyForQuery tells: what was executed ahead of it in its batch may have changed them by what it calls.
    Told,
    /// The server is asked in the same batch.
    Asked,
    /// Nobody can tell: it is of use on the server alone that has it.
    Unknown,
}

/// The definitions of a client's unnamed statement.
#[derive(Debug, Default)]
pub(crate) struct UnnamedTexts {
    /// Of the one that is there; empty where it is too long for that: then its server has it (`Mirror`).
    pub(crate) definition: Vec<u8>,
    sent: VecDeque<Sent>,
    sent_bytes: Vec<u8>,
    told: Told,
    /// The parameters that one is parsed under which was sent, where its server was asked ahead of it.
    asked: Option<(u64, Arc<ParameterSet>)>,
}

/// What the client was told of its unnamed statement.
#[derive(Debug, Default)]
struct Told {
    of_rows: bool,
    /// Their digest, where it was told of the parameters.
    parameters: Option<u64>,
    /// The body of a RowDescription, empty for none: most statements are never prepared again, so it is read only where one is.
    rows: Vec<u8>,
    /// Of a longer one.
    long: Option<RowShape>,
}

impl Blank for UnnamedTexts {
    const BLANK: &'static Self = &Self {
        definition: Vec::new(),
        sent: VecDeque::new(),
        sent_bytes: Vec::new(),
        told: Told { of_rows: false, parameters: None, rows: Vec::new(), long: None },
        asked: None,
    };
}

/// A Parse that is not answered yet.
#[derive(Debug)]
struct Sent {
    id: u64,
    len: u32,
    unread: bool,
    under: Under,
}

impl Unnamed {
    /// Whether one more may be on its way.
    pub(crate) fn has_room_for(&self, len: usize) -> bool {
        let kept = &*self.kept;
        kept.sent.is_empty() || kept.sent_bytes.len() + len <= UNNAMED_SENT_BYTES_MAX
    }

    /// A Parse is sent; there is no `definition` where that is too long to be read.
    pub(crate) fn sends(&mut self, id: u64, definition: Option<&[u8]>, under: Under) {
        let unread = definition.is_none();
        let definition = definition.unwrap_or_default();
        self.effect = Effect::of(definition);
        let kept = &mut *self.kept;
        kept.sent.push_back(Sent { id, len: definition.len() as u32, unread, under });
        kept.sent_bytes.extend_from_slice(definition);
    }

    /// The first that was sent is there. Whether its text is too long to be kept for another server.
    pub(crate) fn parsed(&mut self, parameters: &Arc<ParameterSet>) -> bool {
        let UnnamedTexts { definition, sent, sent_bytes, told, .. } = &mut *self.kept;
        let Some(Sent { id, len, unread, under }) = sent.pop_front() else { return false };
        (told.of_rows, told.parameters) = (false, None);
        (self.id, self.unread) = (id, unread);
        if sent.is_empty() {
            std::mem::swap(definition, sent_bytes);
            sent_bytes.clear();
        } else {
            definition.clear();
            definition.extend(sent_bytes.drain(..len as usize));
        }
        self.parsed_under(parameters);
        self.under = under;
        if under == Under::Asked {
            self.was_asked_ahead();
        }
        len as usize > UNNAMED_BYTES_KEPT
    }

    /// It is there without a server that has it. Apart from `sends` and `parsed`, which are in the way of every query.
    #[cold]
    pub(crate) fn parsed_nowhere(&mut self, id: u64, definition: &[u8], parameters: &Arc<ParameterSet>) {
        (self.id, self.unread, self.effect) = (id, false, Effect::of(definition));
        let kept = &mut *self.kept;
        (kept.told.of_rows, kept.told.parameters) = (false, None);
        kept.definition = definition.to_vec();
        self.parsed_under(parameters);
    }

    /// PostgreSQL had told them before it was parsed.
    pub(crate) fn was_parsed_under(&mut self, parameters: &Arc<ParameterSet>) {
        if self.under == Under::Known {
            self.parsed_under(parameters);
        }
    }

    /// PostgreSQL had told that they are not as they were known, and what they are it tells behind the transaction.
    pub(crate) fn was_parsed_behind_a_set(&mut self) {
        if self.under == Under::Known && !reads_nothing(&self.kept.definition) {
            self.under = Under::Unknown;
        }
    }

    fn parsed_under(&mut self, parameters: &Arc<ParameterSet>) {
        self.under = Under::Known;
        if !self.parameters.as_ref().is_some_and(|known| Arc::ptr_eq(known, parameters)) {
            self.parameters = Some(Arc::clone(parameters));
        }
    }

    #[inline]
    pub(crate) fn awaits_parameters(&self) -> bool {
        matches!(self.under, Under::Told | Under::Asked)
    }

    /// The server has answered under which parameters that one was parsed; none where the answer cannot be read.
    pub(crate) fn parameters_answered(&mut self, id: u64, parameters: Option<&Arc<ParameterSet>>) {
        let Some(parameters) = parameters else { return };
        if self.id == id && self.under == Under::Asked {
            self.parsed_under(parameters);
        } else {
            self.kept.asked = Some((id, Arc::clone(parameters)));
        }
    }

    /// That may have come ahead of it.
    #[cold]
    #[inline(never)]
    fn was_asked_ahead(&mut self) {
        if let Some((_, parameters)) = self.kept.asked.take_if(|(id, _)| *id == self.id) {
            self.parsed_under(&parameters);
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.exists() && self.under == Under::Unknown
    }

    /// Parameters are told with a ReadyForQuery: also those that it was parsed under, if they could have changed before.
    #[inline]
    pub(crate) fn reported(&mut self, parameters: &Arc<ParameterSet>, is_certain: bool) {
        match self.under {
            Under::Told if is_certain => self.parsed_under(parameters),
            Under::Told | Under::Asked => self.under = Under::Unknown,
            Under::Known | Under::Unknown => {}
        }
    }

    /// The first that was sent is never carried out.
    pub(crate) fn skipped(&mut self) {
        let UnnamedTexts { definition, sent, sent_bytes, .. } = &mut *self.kept;
        if let Some(skipped) = sent.pop_front() {
            sent_bytes.drain(..skipped.len as usize);
        }
        if sent.is_empty() {
            sent_bytes.shrink_to(UNNAMED_SENT_BYTES_MAX);
            self.effect = Effect::of(definition);
        }
    }

    /// The text of the one that is there, for its server to keep.
    pub(crate) fn take_definition(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept.definition)
    }

    /// Whether nobody has read the text of the one that was sent last, or is there.
    pub(crate) fn is_unread(&self) -> bool {
        self.kept.sent.back().map_or(self.unread, |last| last.unread)
    }

    /// The definition of the one that was sent last, or is there; empty where that is too long to be kept (`Mirror::unnamed_definition`).
    pub(crate) fn last(&self) -> &[u8] {
        let UnnamedTexts { definition, sent, sent_bytes, .. } = &*self.kept;
        match sent.back() {
            Some(last) => &sent_bytes[sent_bytes.len() - last.len as usize..],
            None => definition,
        }
    }

    /// The definition of the first that was sent, and is not answered; empty where that is too long to be read. None where it is not known yet
    /// under which parameters it is parsed.
    pub(crate) fn first_sent(&self) -> Option<&[u8]> {
        let UnnamedTexts { sent, sent_bytes, .. } = &*self.kept;
        sent.front().filter(|first| first.under == Under::Known).map(|first| &sent_bytes[..first.len as usize])
    }

    /// One was sent, and is not answered.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.kept.sent.is_empty()
    }

    /// The client is told what parameters it takes.
    pub(crate) fn takes(&mut self, body: &[u8]) {
        self.kept.told.parameters = Some(StatementShape::parameters(body));
    }

    /// And what rows it returns, none where there is no description. False where that cannot be read.
    pub(crate) fn returns(&mut self, body: &[u8]) -> bool {
        let told = &mut self.kept.told;
        told.of_rows = true;
        told.rows.clear();
        told.long = None;
        if body.len() <= ROWS_BYTES_KEPT {
            told.rows.extend_from_slice(body);
            return true;
        }
        told.long = RowShape::read(body).ok();
        told.long.is_some()
    }

    /// A portal was described that may be of it.
    #[cold]
    pub(crate) fn described_one(&mut self) {
        let told = &mut self.kept.told;
        if !told.of_rows {
            (told.of_rows, told.long) = (true, Some(RowShape::OTHER));
        }
    }

    /// Its client was told of these rows and of those.
    #[cold]
    pub(crate) fn was_told_two(&mut self) {
        self.kept.told.long = Some(RowShape::OTHER);
    }

    pub(crate) fn is_described(&self) -> bool {
        self.kept.told.of_rows || self.kept.told.parameters.is_some()
    }

    /// Whether a server makes of it what the client was told.
    pub(crate) fn is_as_told(&self, shape: StatementShape) -> bool {
        self.rows_told().is_some_and(|rows| shape.agrees(&StatementShape::new(rows, self.kept.told.parameters)))
    }

    /// The client was told of other rows than these.
    pub(crate) fn returns_others_than(&self, rows: impl FnOnce() -> Option<RowShape>) -> bool {
        self.kept.told.of_rows && self.rows_told() != rows()
    }

    fn rows_told(&self) -> Option<RowShape> {
        let Told { of_rows, rows, long, .. } = &self.kept.told;
        match (long, &**rows) {
            _ if !of_rows => Some(RowShape::UNKNOWN),
            (Some(rows), _) => Some(*rows),
            (None, b"") => Some(RowShape::NO_ROWS),
            (None, rows) => RowShape::read(rows).ok(),
        }
    }

    /// One that was parsed while statements are ours.
    pub(crate) fn exists(&self) -> bool {
        self.id != 0
    }

    /// It can be prepared on another server.
    pub(crate) fn is_portable(&self) -> bool {
        self.exists() && !self.is_lost() && !self.kept.definition.is_empty()
    }

    /// There is none any more.
    pub(crate) fn gone(&mut self) {
        self.id = 0;
    }

    /// For the way to another worker.
    pub(crate) fn part(&mut self) {
        self.parameters = self.parameters.as_ref().map(|set| Arc::new(set.own_copy()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::tests::reading;

    #[test]
    fn the_unnamed_statement_is_the_last_that_was_parsed() {
        let (mut unnamed, set) = (Unnamed::default(), reading());
        unnamed.sends(1, Some(b"one"), Under::Known);
        unnamed.sends(2, Some(b"second"), Under::Known);
        assert!(!unnamed.parsed(&set));
        assert_eq!((unnamed.id, &*unnamed.kept.definition), (1, &b"one"[..]));
        unnamed.skipped();
        unnamed.sends(3, Some(b"3"), Under::Known);
        assert_eq!((unnamed.id, &*unnamed.kept.definition), (1, &b"one"[..]));
        assert!(!unnamed.parsed(&set));
        assert_eq!(unnamed.id, 3);
        assert_eq!((&*unnamed.kept.definition, unnamed.kept.sent_bytes.len()), (&b"3"[..], 0));
    }
}
