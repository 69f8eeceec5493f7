//! The end of coroutines and local processes that have begun on callers' threads. What is said of
//! coroutines here and in the code holds for both.
//!
//! A coroutine stays on the thread that began it. If that is the thread of a caller, the seat for
//! callers is reserved for this thread as long as such coroutines are alive. The thread ends them
//! before it ends itself; otherwise no thread could ever use the seat.
//!
//! They end in the destructor of a thread local. A thread destroys its locals in the reverse order
//! of their first use, so this local is first used when the thread leaves the seat: the values in
//! other locals that the coroutines refer to still exist when the coroutines are unwound. A local
//! that is first used after that, in a later drive, is destroyed before the coroutines.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use procession_protocols::scheduler::seat_id::SeatId;

use crate::scheduler::current;
use crate::scheduler::frame::SetAside;
use crate::scheduler::local::Stay;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::sit;
use crate::sys::World;

thread_local! {
    /// The schedulers in which this thread has left coroutines that stay on it.
    static LEFT: SchedulersLeft = const { SchedulersLeft(RefCell::new(Vec::new())) };
}

struct SchedulersLeft(RefCell<Vec<Weak<Shared>>>);

impl Drop for SchedulersLeft {
    fn drop(&mut self) {
        // The main thread ends with the program, which does not wait for destructors of coroutines.
        if World::is_main_thread() {
            return;
        }
        for shared in self.0.take() {
            if let Some(shared) = shared.upgrade() {
                end_coroutines(&shared);
            }
        }
    }
}

/// The visit of a caller's thread in the seat of a scheduler. When the thread has left the seat, it
/// notes the coroutines that it must end before it ends itself.
#[must_use]
pub(crate) struct Visit<'a>(pub(crate) &'a Arc<Shared>);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let counted = self.0.workforce.seat(SeatId(0)).residents();
        if counted == 0 || !self.0.workforce.idle.is_absent_for(current::thread_number()) {
            return;
        }
        let note = |left: &SchedulersLeft| {
            let shared = Arc::downgrade(self.0);
            let mut left = left.0.borrow_mut();
            left.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&shared));
            left.push(shared);
        };
        if LEFT.try_with(note).is_err() {
            // The thread is ending, and can no longer note anything.
            end_coroutines(self.0);
        }
    }
}

/// Ends the coroutines that have begun on this thread and are still alive.
fn end_coroutines(shared: &Arc<Shared>) {
    if !shared.workforce.idle.is_absent_for(current::thread_number()) {
        return;
    }
    let _aside = SetAside::all();
    if let Some((seat, core)) = shared.workforce.take_callers_seat() {
        sit(Arc::clone(shared), seat, core, false, Stay::EndCoroutines(Vec::new()));
    }
    if shared.must_be_drained()
        && let Some((seat, core)) = shared.workforce.take_callers_seat()
    {
        sit(Arc::clone(shared), seat, core, false, Stay::Idle);
    }
}
