//! An event in 8 bytes: `slot:32 | argument:24 | kind:8`.
//!
//! A word about a step or a wake-up has `generation:16 | steps:8` as its argument: the low bits of
//! the process's generation and of the number of the step. They name the step that a wake-up leads
//! to, so a reader needs no times to find it.

/// An event, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventWord(pub(crate) u64);

/// The kinds of words, which are written as their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WordKind {
    /// A step of a process begins.
    Step = 1,
    /// A step begins of a process that the step before made ready.
    NextStep,
    /// The running step, or the last one, made a process ready that does not run next.
    Wake,
    /// The worker made a process ready between two steps, for a timer or a descriptor.
    Rouse,
    /// A process was started. The argument belongs to its first wake-up.
    Spawn,
    /// The process that ran the last step has ended. The argument is the number of its place.
    End,
    /// Like `End`, with a failure.
    Fail,
    /// The process of the running step called a process, and waits for its reply.
    Call,
    /// The worker took processes from the seat in the argument. The slot is the slot of the first
    /// process.
    Steal,
    /// The worker found nothing in its own queues, and looks elsewhere.
    Search,
    Park,
    Unpark,
    /// Timers fired; the low half is their number.
    Timers,
    /// Descriptors became ready; the low half is the number of events.
    Descriptors,
    /// The running step enters a blocking section.
    Block,
    /// The running step leaves a blocking section.
    Unblock,
    /// The watchdog found a stalled step. The argument is the seat, the low half the slot.
    Stall,
    /// The low 56 bits of the time in nanoseconds.
    Clock,
    /// The low 56 bits of the time of the next word: the counter of the processor, or nanoseconds
    /// where that is of no use.
    Stamp,
    /// Of the watchdog: the low half of the position of the ring of the seat in the argument, at
    /// the time before it.
    Position,
    /// Of the watchdog: the number of processes in queues.
    Queued,
    /// Of the watchdog: the number of workers that are awake.
    Awake,
    /// Of the watchdog: the low half of the number of messages sent so far.
    Sent,
    /// Of the watchdog: the process is in a step. The argument has the low bits of its generation,
    /// as in a word about a step.
    Sample,
}

impl WordKind {
    const ALL: [Self; 24] = [
        Self::Step,
        Self::NextStep,
        Self::Wake,
        Self::Rouse,
        Self::Spawn,
        Self::End,
        Self::Fail,
        Self::Call,
        Self::Steal,
        Self::Search,
        Self::Park,
        Self::Unpark,
        Self::Timers,
        Self::Descriptors,
        Self::Block,
        Self::Unblock,
        Self::Stall,
        Self::Clock,
        Self::Stamp,
        Self::Position,
        Self::Queued,
        Self::Awake,
        Self::Sent,
        Self::Sample,
    ];
}

/// The number of bits of a kind, which is in the low bits: small numbers are cheap there.
const KIND: u32 = 8;
/// The bits of a time.
const TIME: u64 = u64::MAX >> KIND;

impl EventWord {
    #[inline]
    pub(crate) const fn new(kind: WordKind, argument: u32, slot: u32) -> Self {
        Self((slot as u64) << 32 | (argument << KIND) as u64 | kind as u64)
    }

    /// A word about the step with this number.
    #[inline]
    pub(crate) const fn of_step(kind: WordKind, slot: u32, generation: u32, step: u32) -> Self {
        let argument = generation << 16 | (step as u8 as u32) << KIND;
        Self((slot as u64) << 32 | argument as u64 | kind as u64)
    }

    /// A word with a time, of which the high bits are lost.
    #[inline]
    pub(crate) const fn of_time(kind: WordKind, time: u64) -> Self {
        Self(time << KIND | kind as u64)
    }

    /// Returns the kind, or `None` if this is no word that was written.
    pub(crate) fn kind(self) -> Option<WordKind> {
        WordKind::ALL.get(usize::from(self.0 as u8).checked_sub(1)?).copied()
    }

    pub(crate) const fn argument(self) -> u32 {
        self.0 as u32 >> KIND
    }

    pub(crate) const fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the low bits of the generation.
    pub(crate) const fn generation(self) -> u16 {
        (self.0 as u32 >> 16) as u16
    }

    /// Returns everything but the kind.
    pub(crate) const fn target(self) -> u64 {
        self.0 >> KIND
    }

    /// Returns the time, given a time that is not before it and less than two years after it.
    pub(crate) const fn time(self, later: u64) -> u64 {
        later.wrapping_sub(later.wrapping_sub(self.0 >> KIND) & TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventWord, WordKind};

    #[test]
    fn words_keep_what_they_are_made_of() {
        for (at, kind) in WordKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at + 1, "the numbers are the order");
            let word = EventWord::new(kind, 0xab_cdef, 0x1234_5678);
            assert_eq!(
                (word.kind(), word.argument(), word.slot()),
                (Some(kind), 0xab_cdef, 0x1234_5678)
            );
        }
        let word = EventWord::of_step(WordKind::Wake, 7, 0xabc_1234, 0x5_06);
        assert_eq!((word.generation(), word.argument() & 0xff, word.slot()), (0x1234, 0x06, 7));
        assert_eq!(EventWord(0).kind(), None);
        assert_eq!(EventWord(u64::MAX).kind(), None);
    }

    #[test]
    fn times_are_found_again_behind_their_high_bits() {
        for now in [5, 1 << 55, (1 << 56) + 3, (9 << 56) + 1] {
            for before in [0, 1, 4, 1 << 50] {
                let time = u64::saturating_sub(now, before);
                assert_eq!(EventWord::of_time(WordKind::Clock, time).time(now), time);
            }
        }
    }
}
