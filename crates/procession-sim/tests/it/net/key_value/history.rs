//! A checker of histories of one register that can be set and read (Wing and Gong, with memory).

use std::collections::BTreeSet;

use procession::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// If it is not known to be done, it may take effect at any time from its call on, or never.
    Set { value: u64, is_done: bool },
    /// The value that was read, or 0 if there was none.
    Get(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) call: Instant,
    pub(super) answer: Instant,
    pub(super) action: Action,
}

impl Operation {
    pub(super) fn is_read_of_value(&self) -> bool {
        matches!(self.action, Action::Get(1..))
    }

    /// Returns `true` if this operation was answered before the other was called.
    fn precedes(&self, other: &Self) -> bool {
        let is_answered = !matches!(self.action, Action::Set { is_done: false, .. });
        is_answered && self.answer < other.call
    }

    fn must_happen(&self) -> bool {
        !matches!(self.action, Action::Set { is_done: false, .. })
    }
}

/// Returns `true` if there is an order of the operations that keeps the order of operations that
/// did not overlap, and in which each read returns the last value that was set.
pub(super) fn is_linearizable(history: &[Operation]) -> bool {
    assert!(history.len() <= 64, "a set of operations is a word");
    let all = history.iter().enumerate().filter(|(_, operation)| operation.must_happen());
    let needed = all.fold(0, |set, (at, _)| set | 1 << at);
    let mut seen = BTreeSet::new();
    let mut open = vec![(0_u64, 0_u64)];
    while let Some((done, value)) = open.pop() {
        if done & needed == needed {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let is_left = |at: usize| done & 1 << at == 0;
        for (at, operation) in history.iter().enumerate().filter(|&(at, _)| is_left(at)) {
            // An operation that ended before this one began must come first.
            let is_next = history
                .iter()
                .enumerate()
                .all(|(other, before)| !is_left(other) || !before.precedes(operation));
            match operation.action {
                _ if !is_next => {}
                Action::Set { value, .. } => open.push((done | 1 << at, value)),
                Action::Get(read) if read == value => open.push((done | 1 << at, value)),
                Action::Get(_) => {}
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use procession::time::Instant;

    use super::{Action, Operation, is_linearizable};

    fn history(operations: &[(u64, u64, Action)]) -> bool {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let operations: Vec<_> = operations
            .iter()
            .map(|&(call, answer, action)| Operation { call: at(call), answer: at(answer), action })
            .collect();
        is_linearizable(&operations)
    }

    #[test]
    fn histories_are_judged() {
        let set = |value| Action::Set { value, is_done: true };
        let lost = |value| Action::Set { value, is_done: false };
        assert!(history(&[(0, 1, set(1)), (2, 3, Action::Get(1))]));
        assert!(!history(&[(0, 1, set(1)), (2, 3, Action::Get(0))]), "a stale read");
        assert!(history(&[(0, 3, set(1)), (1, 2, Action::Get(0)), (4, 5, Action::Get(1))]));
        assert!(!history(&[(0, 9, set(1)), (1, 2, Action::Get(1)), (3, 4, Action::Get(0))]));
        assert!(history(&[(0, 1, lost(1)), (2, 3, Action::Get(0)), (4, 5, Action::Get(1))]));
        assert!(history(&[(0, 1, lost(1)), (2, 3, Action::Get(0)), (4, 5, Action::Get(0))]));
        assert!(!history(&[(0, 1, Action::Get(1))]), "a value that nobody has set");
    }
}
