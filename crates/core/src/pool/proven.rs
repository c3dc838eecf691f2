//! What PostgreSQL made of the parameters of startup packets.
//!
//! Of a packet as a whole: a value may come to something else beside another. `DateStyle=ISO` keeps the order that stands before
//! it, in `options` perhaps, and what is not ASCII is reported in the packet's `client_encoding`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::parameters::{ParameterSet, is_text_search};

/// Packets that are remembered, by pool and worker.
const PROVEN_MAX: usize = 512;

/// Names and values as a client wrote them, in the order in which PostgreSQL takes them.
type Packet = [(Arc<str>, Arc<str>)];

#[derive(Debug, Default)]
pub(crate) struct Proven {
    /// What was reported of a packet's parameters in the end, or learned in its trial.
    reported: BTreeMap<Arc<Packet>, ParameterSet>,
    /// The oldest is forgotten first.
    order: VecDeque<Arc<Packet>>,
}

impl Proven {
    /// What PostgreSQL reports of a packet's parameters where it has said so; of some it need not be asked.
    pub(crate) fn of(&self, packet: &Packet) -> Option<ParameterSet> {
        let asked = asked(packet);
        if asked.is_empty() { Some(ParameterSet::default()) } else { self.reported.get(&asked[..]).cloned() }
    }

    /// PostgreSQL took this packet, and the session's parameters are these now.
    pub(crate) fn remember(&mut self, packet: &Packet, session: &ParameterSet) {
        let asked: Arc<Packet> = asked(packet).into();
        let mut reported = ParameterSet::default();
        for parameter in asked.iter().filter_map(|(name, _)| session.get(name)) {
            if parameter.reported || is_text_search(&parameter.name) {
                reported.set(&parameter.name, &parameter.value, parameter.reported);
            }
        }
        if self.reported.insert(Arc::clone(&asked), reported).is_none() {
            self.order.push_back(asked);
        }
        if self.order.len() > PROVEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.reported.remove(&oldest);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn asked(packet: &Packet) -> Vec<(Arc<str>, Arc<str>)> {
    packet.iter().filter(|(name, value)| !is_harmless(name, value)).cloned().collect()
}

/// PostgreSQL takes any application_name; one in plain ASCII is kept as it is (`check_application_name`).
fn is_harmless(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case("application_name")
        && value.len() < 64
        && value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(parameters: &[(&str, &str)]) -> Vec<(Arc<str>, Arc<str>)> {
        parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn a_value_is_proven_only_beside_what_it_was_tried_with() {
        let mut proven = Proven::default();
        let mut session = ParameterSet::default();
        session.set("DateStyle", b"ISO, DMY", true);
        let both = packet(&[("datestyle", "iso,dmy"), ("DateStyle", "ISO"), ("application_name", "a")]);
        proven.remember(&both, &session);
        assert_eq!(&*proven.of(&both).unwrap().get("DateStyle").unwrap().value, b"ISO, DMY");
        assert!(proven.of(&packet(&[("DateStyle", "ISO")])).is_none());
        assert!(proven.of(&packet(&[("application_name", "b")])).unwrap().is_empty());
    }

    #[test]
    fn the_oldest_packets_are_forgotten() {
        let (mut proven, session) = (Proven::default(), ParameterSet::default());
        for number in 0..=PROVEN_MAX {
            proven.remember(&packet(&[("a.b", &number.to_string())]), &session);
        }
        assert!(proven.of(&packet(&[("a.b", "0")])).is_none() && proven.of(&packet(&[("a.b", "1")])).is_some());
        assert_eq!(proven.reported.len(), PROVEN_MAX);
    }
}
