//! The thread on which a process begins and then stays, and how that thread is chosen.

use procession_protocols::scheduler::seat_id::SeatId;

use crate::process::slot::Slot;
use crate::scheduler::current;
use crate::scheduler::local::LocalWorker;

/// A worker passes new coroutines to another if it has more than twice as many as the other, plus
/// this number. An arbitrary choice: small enough not to matter, and larger than the usual
/// fluctuation.
const COROUTINES_APART: u32 = 8;

/// Maximum number of times that a new process is put off in favour of workers with less to do. It
/// is put off once for each round in which everything that is ready has had a turn. Other workers
/// therefore have time to wake up and take it, and it begins soon even if none does.
const PUT_OFF_MAX: u8 = 16;

/// The thread of a process that stays where it begins: of a coroutine, or of a local process.
pub(crate) struct Residence {
    kind: ResidentKind,
    /// The number of the thread, once the process has begun.
    thread: u64,
    /// The seat that the process is counted for, while it is sent there, begins or has begun.
    seat: Option<SeatId>,
    /// Number of times it was put off.
    put_off: u8,
}

/// The kinds of processes that stay on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResidentKind {
    /// It has a stack.
    Coroutine,
    /// It has a future that is not `Send`.
    Local,
}

/// The place for the next step of a process that has not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Begin {
    /// It begins here.
    Here,
    /// It is bound to another worker now, or is left to any worker behind everything else in the
    /// queue. In both cases it is ready and has not begun.
    Later,
}

impl Residence {
    pub(crate) fn new(kind: ResidentKind) -> Self {
        Self { kind, thread: 0, seat: None, put_off: 0 }
    }

    /// Chooses where a process begins that has not begun and that the worker runs now.
    pub(crate) fn choose(&mut self, slot: &Slot, local: &LocalWorker) -> Begin {
        if slot.bound.worker().is_some() {
            return Begin::Here;
        }
        if let Some(other) = seat_for_coroutine(local) {
            slot.bound.bind(other);
            // Counted now, because otherwise more processes would be sent after it before it begins
            // there.
            self.count(slot, other);
            return Begin::Later;
        }
        if self.put_off < PUT_OFF_MAX && local.queues.puts_coroutines_off() {
            self.put_off += 1;
            return Begin::Later;
        }
        Begin::Here
    }

    /// Binds a process that begins to this thread.
    pub(crate) fn begin(&mut self, slot: &Slot, local: &LocalWorker) {
        slot.bound.begin(local.seat);
        local.stores.begun.set(local.stores.begun.get() + 1);
        self.thread = current::thread_number();
        self.count(slot, local.seat);
    }

    /// Counts the process for the seat, unless it is counted because it was sent there.
    pub(crate) fn count(&mut self, slot: &Slot, seat: SeatId) {
        if self.seat.is_none() {
            slot.shared().workforce.seat(seat).count_resident(self.kind);
            self.seat = Some(seat);
        }
    }

    /// Releases the thread, after the process has ended there or if it does not begin there now. A
    /// second call does nothing.
    pub(crate) fn leave(&mut self, slot: &Slot) {
        if std::mem::take(&mut self.thread) != 0 {
            current::with_local(|local| {
                if let Some(local) = local {
                    local.stores.begun.set(local.stores.begun.get() - 1);
                }
            });
        }
        if let Some(seat) = self.seat.take() {
            slot.shared().workforce.seat(seat).uncount_resident(self.kind);
        }
    }

    /// Aborts on a wrong thread. Called before anything of a process that has begun is touched.
    #[inline]
    pub(crate) fn assert_here(&self) {
        if self.thread != current::thread_number() {
            // [own thread] is broken, and nothing that could be done here is sound.
            std::process::abort();
        }
    }
}

/// Returns another seat on which to begin a coroutine, if one seat has far fewer coroutines than
/// the seat of this thread. It is drawn at random from the eligible seats, which is enough to keep
/// all seats near the mean. A thread that replaces blocked threads will leave again, so it begins a
/// coroutine only if all other threads block.
fn seat_for_coroutine(local: &LocalWorker) -> Option<SeatId> {
    let shared = &*local.shared;
    let first = shared.workforce.seats.first();
    let is_first = local.seat.0 < first;
    let own = shared.workforce.seat(local.seat).residents();
    if is_first && (own < COROUTINES_APART || first == 1) {
        return None;
    }
    let apart = if is_first {
        1 + local.queues.draw(first as usize - 1)
    } else {
        local.queues.draw(first as usize)
    } as u32;
    let from = if is_first { local.seat.0 } else { 0 };
    let other = shared
        .workforce
        .idle
        .first_unblocked((from + apart) % first, first)
        .filter(|&other| other != local.seat)?;
    let theirs = shared.workforce.seat(other).residents();
    (!is_first || own > theirs.saturating_mul(2).saturating_add(COROUTINES_APART)).then_some(other)
}
