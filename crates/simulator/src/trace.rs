//! Telling a run: readable lines for a human, and a digest that two runs of one seed must share.

use weir_core::{ConnId, Output, Span};

/// Message types and the beginning of the text, for a line of the trace.
pub fn preview(bytes: &[u8]) -> String {
    let shown: String = bytes[..bytes.len().min(160)]
        .iter()
        .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { byte as char } else { '.' })
        .collect();
    format!("{} {shown}", bytes.len())
}

/// A running hash of everything core put out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn mix(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    pub fn add(&mut self, now: u64, worker: usize, output: &Output) {
        self.mix(now);
        self.mix(worker as u64);
        if let Some(ConnId { slot, generation, .. }) = output.conn() {
            self.mix(u64::from(slot) << 32 | u64::from(generation));
        }
        match output {
            Output::Send { span: Span::Received { start, end } | Span::Made { start, end }, .. } => {
                self.mix(u64::from(*start) << 32 | u64::from(*end));
            }
            Output::Read { on, .. } => self.mix(u64::from(*on) + 10),
            Output::Connect { .. } => self.mix(12),
            Output::StartTls { .. } => self.mix(13),
            Output::Close { .. } => self.mix(14),
            Output::Derive { .. } => self.mix(15),
            Output::TellNames { .. } => self.mix(18),
            Output::Ask { .. } => self.mix(17),
            Output::AskNoMore { .. } => self.mix(19),
            Output::Mail { to, .. } => self.mix(16 + u64::from(to.0)),
            Output::Event(_) => self.mix(9),
        }
    }
}
