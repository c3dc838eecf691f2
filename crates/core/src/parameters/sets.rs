//! The sets of parameters that there are in a worker.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ParameterSet;

/// Interned sets above which those nobody uses any more are dropped.
const SETS_SWEPT_ABOVE: usize = 1024;

/// Equal sets are one value, so that the usual comparison is that of two pointers.
#[derive(Debug, Default)]
pub(crate) struct ParameterSets {
    sets: BTreeSet<Arc<ParameterSet>>,
    sweep_above: usize,
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<crate::planted::Planted>,
}

impl ParameterSets {
    /// PostgreSQL reports a parameter's value: most often the one that is known. `reported`: as each of its pool does. False where that is more
    /// than any server has to report; the set is then as it was.
    pub(crate) fn change(&mut self, set: &mut Arc<ParameterSet>, name: &str, value: &[u8], reported: bool) -> bool {
        if set.get(name).is_some_and(|known| known.reported == reported && *known.value == *value) {
            return true;
        }
        let mut changed = (**set).clone();
        changed.set(name, value, reported);
        if !(if reported { changed.is_within_bounds() } else { changed.is_had_within_bounds() }) {
            return false;
        }
        let before = std::mem::replace(set, self.intern(changed));
        // Ours and the list's: a server that reports on and on leaves nothing behind.
        if Arc::strong_count(&before) == 2 {
            self.sets.remove(&*before);
        }
        true
    }

    /// Of the defaults that a client was greeted with it has not left these as they were.
    pub(crate) fn touch(&mut self, greeted: &mut Arc<ParameterSet>, touched: impl Fn(&str) -> bool) {
        if greeted.iter().any(|own| own.reported && touched(&own.name)) {
            let mut left = (**greeted).clone();
            left.touch(touched);
            *greeted = self.intern(left);
        }
    }

    /// What parsing reads of this set, interned: the part of a prepared statement's meaning that is not in its text.
    pub(crate) fn reading(&mut self, set: &ParameterSet) -> Arc<ParameterSet> {
        #[cfg(feature = "planted")]
        if self.planted == Some(crate::planted::Planted::ShareAcrossParameters) {
            return self.intern(ParameterSet::default());
        }
        self.intern(set.read_by_parsing())
    }

    pub(crate) fn intern(&mut self, set: ParameterSet) -> Arc<ParameterSet> {
        if let Some(known) = self.sets.get(&set) {
            return Arc::clone(known);
        }
        if self.sets.len() > self.sweep_above.max(SETS_SWEPT_ABOVE) {
            self.sets.retain(|set| Arc::strong_count(set) > 1);
            self.sweep_above = self.sets.len() * 2;
        }
        let set = Arc::new(set);
        self.sets.insert(Arc::clone(&set));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::super::{REPORTED_BYTES_MAX, REPORTED_MAX};
    use super::*;

    #[test]
    fn a_server_cannot_report_without_end() {
        let mut sets = ParameterSets::default();
        let mut set = sets.intern(ParameterSet::default());
        for number in 0..REPORTED_MAX {
            assert!(sets.change(&mut set, &format!("parameter_{number}"), b"on", true));
        }
        assert!(!sets.change(&mut set, "one_more", b"on", true));
        assert!(set.get("one_more").is_none());
        assert!(!sets.change(&mut set, "parameter_0", &[b'x'; REPORTED_BYTES_MAX], true));
        for number in 0..10 * SETS_SWEPT_ABOVE {
            assert!(sets.change(&mut set, "parameter_0", number.to_string().as_bytes(), true));
        }
        assert!(sets.sets.len() <= 2, "{} sets are kept of one server", sets.sets.len());
        // What a client sets is bounded by its startup packet, and is not the server's to answer for.
        let mut set = ParameterSet::default();
        (0..1000).for_each(|number| set.set(&format!("my.{number}"), b"on", false));
        assert!(set.is_within_bounds());
    }
}
