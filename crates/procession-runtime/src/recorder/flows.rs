//! Which wake-up led to which step.
//!
//! A wake-up has the slot, the generation and the number of the step that it leads to, with few
//! bits of the last. So times decide only between steps of one process that are 256 apart.

use crate::recorder::timeline::Moment;
use crate::scheduler::log::{EventWord, WordKind};
use crate::util::sort::sort;

/// The flows through the moments of each worker.
pub(crate) struct Flows {
    /// The number of the flow that begins at a wake-up, or ends at a step, or 0.
    pub(crate) numbers: Vec<Vec<u64>>,
    /// The greatest number of a flow that begins at a wake-up. Others begin at the step before.
    pub(crate) recorded: u64,
}

/// A moment at which a flow may begin or end. They are in the order of their times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    at: u64,
    worker: u32,
    moment: u32,
}

impl End {
    fn in_numbers(self, numbers: &mut [Vec<u64>]) -> &mut u64 {
        &mut numbers[self.worker as usize][self.moment as usize]
    }
}

/// Finds the flows between these moments. Each has both ends.
pub(crate) fn find(workers: &[Vec<Moment>]) -> Flows {
    let mut numbers: Vec<_> = workers.iter().map(|moments| vec![0; moments.len()]).collect();
    let mut number = 0;
    let wakes = ends(workers, is_wake);
    let steps = if wakes.is_empty() { Vec::new() } else { ends(workers, is_step) };
    let mut steps = &steps[..];
    for wakes in wakes.chunk_by(|one, other| one.0 == other.0) {
        let target = wakes[0].0;
        let before = steps.iter().take_while(|step| step.0 < target).count();
        steps = &steps[before..];
        let same = steps.iter().take_while(|step| step.0 == target).count();
        for (wake, step) in pairs(wakes, &steps[..same]) {
            number += 1;
            *wake.in_numbers(&mut numbers) = number;
            *step.in_numbers(&mut numbers) = number;
        }
    }
    let recorded = number;
    for (moments, numbers) in workers.iter().zip(&mut numbers) {
        let mut follows_step = false;
        for (moment, own) in moments.iter().zip(numbers) {
            follows_step &= !moment.follows_gap;
            if follows_step && *own == 0 && moment.word.kind() == Some(WordKind::NextStep) {
                number += 1;
                *own = number;
            }
            follows_step |= is_step(moment.word);
        }
    }
    Flows { numbers, recorded }
}

pub(crate) fn is_step(word: EventWord) -> bool {
    matches!(word.kind(), Some(WordKind::Step | WordKind::NextStep))
}

pub(crate) fn is_wake(word: EventWord) -> bool {
    matches!(word.kind(), Some(WordKind::Wake | WordKind::Rouse | WordKind::Spawn))
}

/// Returns the ends of flows at some words, in the order of their targets and times.
fn ends(workers: &[Vec<Moment>], is_end: fn(EventWord) -> bool) -> Vec<(u64, End)> {
    let mut ends = Vec::new();
    for (worker, moments) in (0..).zip(workers) {
        let moments = (0..).zip(moments).filter(|(_, moment)| is_end(moment.word));
        ends.extend(moments.map(|(number, &Moment { at, word, .. })| {
            (word.target(), End { at, worker, moment: number })
        }));
    }
    sort(&mut ends);
    ends
}

/// Pairs wake-ups with steps, both in the order of their times. Some have no partner, because a
/// ring has lost the partner.
fn pairs(wakes: &[(u64, End)], steps: &[(u64, End)]) -> Vec<(End, End)> {
    let apart = |wake: usize, step: usize| wakes[wake].1.at.abs_diff(steps[step].1.at);
    let (mut wake, mut step, mut found) = (0, 0, Vec::new());
    while wake < wakes.len() && step < steps.len() {
        if step + 1 < steps.len() && apart(wake, step + 1) < apart(wake, step) {
            step += 1;
        } else if wake + 1 < wakes.len() && apart(wake + 1, step) < apart(wake, step) {
            wake += 1;
        } else {
            found.push((wakes[wake].1, steps[step].1));
            (wake, step) = (wake + 1, step + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::recorder::timeline::Moment;
    use crate::scheduler::log::{EventWord, WordKind};

    fn moment(at: u64, kind: WordKind, step: u32) -> Moment {
        Moment { at, word: EventWord::of_step(kind, 5, 1, step), follows_gap: false }
    }

    #[test]
    fn a_wake_up_leads_to_the_step_with_its_number_even_if_times_are_wrong() {
        let one = vec![moment(10, WordKind::Wake, 1), moment(20, WordKind::Wake, 2)];
        // By the times, the second wake-up would lead to no step.
        let other = vec![moment(9, WordKind::Step, 1), moment(19, WordKind::Step, 2)];
        assert_eq!(find(&[one, other]).numbers, [[1, 2], [1, 2]]);
    }

    #[test]
    fn among_steps_with_the_same_low_bits_the_next_in_time_is_meant() {
        let one = vec![moment(1000, WordKind::Spawn, 1 + 256), moment(2000, WordKind::Rouse, 1)];
        let other = vec![
            moment(10, WordKind::Step, 1),
            moment(1005, WordKind::Step, 1 + 256),
            moment(1500, WordKind::Step, 2),
            moment(2001, WordKind::Step, 1 + 512),
        ];
        assert_eq!(find(&[one, other]).numbers, [vec![1, 2], vec![0, 1, 0, 2]]);
    }

    #[test]
    fn an_end_without_the_other_makes_no_flow() {
        let one = vec![moment(1, WordKind::Wake, 1), moment(2, WordKind::Call, 2)];
        let other = vec![moment(1, WordKind::Step, 2), moment(9, WordKind::Park, 1)];
        assert_eq!(find(&[one, other]).numbers, [[0, 0], [0, 0]]);
    }

    #[test]
    fn a_step_that_follows_the_one_that_woke_it_has_a_flow_from_there() {
        let lost = Moment { follows_gap: true, ..moment(5, WordKind::NextStep, 3) };
        let one = vec![
            moment(1, WordKind::NextStep, 1),
            moment(2, WordKind::Timers, 0),
            moment(3, WordKind::NextStep, 2),
            lost,
            moment(6, WordKind::Wake, 5),
            moment(7, WordKind::Step, 5),
        ];
        let flows = find(&[one]);
        assert_eq!((flows.numbers, flows.recorded), (vec![vec![0, 0, 2, 0, 1, 1]], 1));
    }
}
