//! A moment at which the network does something.

use crate::chance::Chance;
use crate::faults::{Fault, Faults};
use crate::story::Story;

/// The moment at which the network does something, and what decides then.
pub(crate) struct Moment<'a> {
    pub(crate) now: u64,
    pub(crate) chance: &'a mut Chance,
    pub(crate) story: &'a mut Story,
    /// The classes of faults that may happen now.
    pub(crate) faults: Faults,
}

impl Moment<'_> {
    /// Returns a fault of the class, if one happens: one of the values except the first.
    pub(crate) fn fault(&mut self, fault: Fault, values: &[u64]) -> Option<u64> {
        if !self.faults.contains(fault) {
            return None;
        }
        let value = self.chance.io_fault(fault, values.len() as u32) as usize;
        (value > 0).then(|| values[value])
    }

    pub(crate) fn happens(&mut self, fault: Fault) -> bool {
        self.fault(fault, &[0, 1]).is_some()
    }

    pub(crate) fn tell(&mut self, text: impl FnOnce() -> String) {
        self.story.tell(self.now, text);
    }
}
