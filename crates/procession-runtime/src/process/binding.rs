//! The word of a slot that says which worker may run the process, and which form its mailbox has.

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::AtomicU16;
use procession_sync::atomic::Ordering::Relaxed;

/// The mailbox is bounded. Fixed while occupied.
const HAS_BOUNDED: u16 = 1 << 15;

/// The process is a coroutine or a local process that has begun on the worker, so only the worker's
/// thread may run it.
const HAS_BEGUN: u16 = 1 << 14;

/// Messages to the process are sent with headers. Written while the slot is free, and by the
/// process itself in a step.
const HEADED: u16 = 1 << 13;

/// The bits that are no worker.
const FLAGS: u16 = HAS_BOUNDED | HAS_BEGUN | HEADED;

/// The only worker that may run the process, counted from 1, or 0 for any; `FLAGS`. Written while
/// the slot is free, and by the worker that binds the process to itself in a step.
#[derive(Debug, Default)]
pub(crate) struct Binding(AtomicU16);

/// The forms of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailboxForm {
    Unbounded,
    /// Unbounded, and messages are sent to it with a header.
    Headed,
    Bounded,
}

impl Binding {
    /// Sets the word of a new process. Its slot is free.
    #[inline]
    pub(super) fn occupy(&self, affinity: Option<u32>, is_bounded: bool, is_headed: bool) {
        let worker = affinity.map_or(0, |seat| seat as u16 + 1);
        debug_assert!(worker < HEADED, "a scheduler has at most 4096 threads");
        let bounded = if is_bounded { HAS_BOUNDED } else { 0 };
        let headed = if is_headed { HEADED } else { 0 };
        self.0.store(worker | bounded | headed, Relaxed);
    }

    /// Binds the running process to a worker from now on.
    pub(crate) fn bind(&self, seat: SeatId) {
        // Relaxed, and no read-modify-write: only the running worker writes it now, and the thread
        // that queues the process next is ordered after this worker.
        self.0.store(self.0.load(Relaxed) & (HAS_BOUNDED | HEADED) | (seat.0 as u16 + 1), Relaxed);
    }

    /// Binds the running process, a coroutine or a local process that begins in this step, to its
    /// worker's thread.
    pub(crate) fn begin(&self, seat: SeatId) {
        self.bind(seat);
        // Relaxed, and no read-modify-write: as in `bind`.
        self.0.store(self.0.load(Relaxed) | HAS_BEGUN, Relaxed);
    }

    /// Returns `true` if the process is a coroutine or a local process that has begun and stays on
    /// its worker.
    pub(crate) fn has_begun(&self) -> bool {
        // Relaxed: for people only.
        self.0.load(Relaxed) & HAS_BEGUN != 0
    }

    /// Returns `true` if the process is a coroutine or a local process that has begun on this
    /// worker. Exact only for the thread that sits there.
    pub(crate) fn has_begun_on(&self, seat: SeatId) -> bool {
        // Relaxed: the thread that asks has written the word itself, or asks only to show it to a
        // person.
        self.0.load(Relaxed) & !(HAS_BOUNDED | HEADED) == HAS_BEGUN | (seat.0 as u16 + 1)
    }

    /// Returns the worker that the process is bound to, if there is one.
    #[inline]
    pub(crate) fn worker(&self) -> Option<SeatId> {
        // Relaxed: the thread that queues the process has made it ACTIVE, holds its entry, or
        // created it. So it sees the writes of the process's steps.
        match self.0.load(Relaxed) & !FLAGS {
            0 => None,
            seat => Some(SeatId(u32::from(seat) - 1)),
        }
    }

    /// Returns the form of the mailbox.
    #[inline]
    pub(super) fn mailbox(&self) -> MailboxForm {
        // Relaxed: fixed while occupied, like `Slot::extra`, except for `HEADED`, which publishes
        // nothing: a sender that does not see it yet sends its message without a header.
        match self.0.load(Relaxed) & (HAS_BOUNDED | HEADED) {
            0 => MailboxForm::Unbounded,
            HEADED => MailboxForm::Headed,
            _ => MailboxForm::Bounded,
        }
    }

    #[inline]
    pub(super) fn has_bounded_mailbox(&self) -> bool {
        // Relaxed: as in `mailbox`.
        self.0.load(Relaxed) & HAS_BOUNDED != 0
    }

    /// Returns `true` if messages to the process are sent with headers.
    #[inline]
    pub(crate) fn has_headers(&self) -> bool {
        // Relaxed: as in `mailbox`.
        self.0.load(Relaxed) & HEADED != 0
    }

    /// Sets whether messages to the running process are sent with headers from now on.
    pub(super) fn set_headed(&self, headed: bool) {
        let others = self.0.load(Relaxed) & !HEADED;
        // Relaxed, and no read-modify-write: as in `bind`.
        self.0.store(if headed { others | HEADED } else { others }, Relaxed);
    }
}
