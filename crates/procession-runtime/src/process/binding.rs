//! The word of a slot that says which worker may run the process, whether the process has had a
//! priority, and which form its mailbox has.

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

/// The process has, or has had, another priority than the normal one, so it has a level word
/// (`scheduler/levels.rs` of the protocols). Set and cleared under the lock of the levels.
const LEVELED: u16 = 1 << 12;

/// The bits that say how the process is queued.
const QUEUED_BY: u16 = !(HAS_BOUNDED | HAS_BEGUN | HEADED);

/// The bits of the worker.
const WORKER: u16 = LEVELED - 1;

/// The maximum number of threads of a scheduler, as far as processes can be bound to them.
pub(crate) const THREADS_MAX: usize = WORKER as usize;

/// The only worker that may run the process, counted from 1, or 0 for any; and flags, each with its
/// rule. After `occupy`, all changes are read-modify-writes, because the worker that runs the
/// process and threads that change its priority meet here.
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
        debug_assert!(worker <= WORKER, "a scheduler has at most `THREADS_MAX` threads");
        let bounded = if is_bounded { HAS_BOUNDED } else { 0 };
        let headed = if is_headed { HEADED } else { 0 };
        self.0.store(worker | bounded | headed, Relaxed);
    }

    /// Binds the running process to a worker from now on.
    pub(crate) fn bind(&self, seat: SeatId) {
        self.set_worker(seat, 0);
    }

    /// Binds the running process, a coroutine or a local process that begins in this step, to its
    /// worker's thread.
    pub(crate) fn begin(&self, seat: SeatId) {
        self.set_worker(seat, HAS_BEGUN);
    }

    fn set_worker(&self, seat: SeatId, begun: u16) {
        let bound = (seat.0 as u16 + 1) | begun;
        let change = |word| Some(word & (HAS_BOUNDED | HEADED | LEVELED) | bound);
        // Relaxed: the thread that queues the process next is ordered after this worker. Ignored:
        // the change is never refused.
        let _ = self.0.fetch_update(Relaxed, Relaxed, change);
    }

    /// Notes that the process has a level word.
    pub(crate) fn set_leveled(&self) {
        // Relaxed: a thread that queues the process and does not see this yet queues it once as a
        // normal one.
        self.0.fetch_or(LEVELED, Relaxed);
    }

    /// Notes that the process needs no level word, because it is a normal one again.
    pub(crate) fn forget_level(&self) {
        // Relaxed: as in `set_leveled`. The caller has the entry of the process.
        self.0.fetch_and(!LEVELED, Relaxed);
    }

    /// Returns `true` if the process has a level word.
    #[inline]
    pub(crate) fn is_leveled(&self) -> bool {
        // Relaxed: as in `set_leveled`.
        self.0.load(Relaxed) & LEVELED != 0
    }

    /// Returns `true` if any worker may run the process, and it never had another priority than the
    /// normal one.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        // Relaxed: as in `worker` and `set_leveled`.
        self.0.load(Relaxed) & QUEUED_BY == 0
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
        self.0.load(Relaxed) & (HAS_BEGUN | WORKER) == HAS_BEGUN | (seat.0 as u16 + 1)
    }

    /// Returns the worker that the process is bound to, if there is one.
    #[inline]
    pub(crate) fn worker(&self) -> Option<SeatId> {
        // Relaxed: the thread that queues the process has made it ACTIVE, holds its entry, or
        // created it. So it sees the writes of the process's steps.
        match self.0.load(Relaxed) & WORKER {
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
        // Relaxed: as in `mailbox`.
        if headed {
            self.0.fetch_or(HEADED, Relaxed);
        } else {
            self.0.fetch_and(!HEADED, Relaxed);
        }
    }
}
