//! Two asymmetric fences that order like two `fence(SeqCst)`.
//!
//! They serve protocols in which one side passes its fence all the time and the other side hardly
//! ever. The light fence costs nothing. The heavy fence is the system call membarrier(2): it makes
//! every processor that runs a thread of this program pass a fence, which takes some microseconds.
//! Registering for it happens once. It may take some milliseconds if the program already has
//! several threads.
//!
//! # In models
//! loom has no fence that is free on one side, so in models both are fence(SeqCst). Such a light
//! fence does more than the real fence: it releases and acquires, and it orders the accesses around
//! it for every thread that passes a fence, even for a thread that passes only a light fence. A
//! model therefore does not reveal a proof that relies on an order between two light fences, or a
//! missing Release or Acquire next to a light fence. The modules that use these fences
//! (`util/biased_lock.rs`, `scheduler/lifo_slot.rs`, `scheduler/shutdown.rs`) state under *Checked
//! by* that their proofs set a light fence against heavy fences only, and name what their models
//! cannot see. Under the cfg `procession_sim` both fences are what they are on the real machine. A
//! processor as weak as the memory model of Rust allows is simulated there, and finds what the
//! models do not reveal (`procession-sim/tests/it/atomics/fences.rs`).

#[cfg(all(feature = "sim", not(procession_loom)))]
pub use real::simulate;
#[cfg(not(procession_loom))]
pub use real::{are_there, heavy, heavy_at_leisure, light};

#[cfg(not(procession_loom))]
mod real {
    use std::sync::OnceLock;
    use std::thread;
    use std::time::Duration;

    use procession_sync::atomic::Ordering::SeqCst;
    use procession_sync::atomic::{compiler_fence, fence};

    /// Longer, by orders of magnitude, than a processor can keep a store to itself.
    const DRAIN: Duration = Duration::from_millis(1);

    /// Returns `true` if the system has these fences. Call this before passing either fence.
    pub fn are_there() -> bool {
        #[cfg(feature = "sim")]
        if let Some(there) = SIMULATED.get() {
            return there;
        }
        are_in_system()
    }

    /// Returns `true` if the real system has these fences, and registers for them.
    fn are_in_system() -> bool {
        static THERE: OnceLock<bool> = OnceLock::new();
        *THERE.get_or_init(system::register)
    }

    #[cfg(feature = "sim")]
    thread_local! {
        /// What a simulated system answers on this thread.
        static SIMULATED: std::cell::Cell<Option<bool>> = const { std::cell::Cell::new(None) };
    }

    /// Replaces the answer of [`are_there`] on the calling thread. Returns the previous one.
    ///
    /// The fences stay real, because threads that are not simulated may use the same scheduler.
    /// They are cheap in a simulation: no other simulated thread runs, so no processor is
    /// interrupted. A system without the fences cannot simulate them.
    #[cfg(feature = "sim")]
    pub fn simulate(there: Option<bool>) -> Option<bool> {
        SIMULATED.replace(there.map(|there| there && are_in_system()))
    }

    /// Passes the light fence, which costs nothing. It orders only together with the heavy fence.
    #[inline]
    pub fn light() {
        compiler_fence(SeqCst);
    }

    /// Passes the heavy fence. Returns `false` if the system refuses. After `are_there` has
    /// returned `true`, that happens only if the system was told since to refuse it.
    #[cold]
    pub fn heavy() -> bool {
        #[cfg(procession_sim)]
        if procession_sync::simulated::heavy_fence() {
            return true;
        }
        system::pass()
    }

    /// Passes the heavy fence for a caller that has time. If the system refuses, waits for a
    /// millisecond.
    #[cold]
    #[expect(
        clippy::disallowed_methods,
        reason = "no event tells when a processor has written what it was to store"
    )]
    pub fn heavy_at_leisure() {
        if !heavy() {
            fence(SeqCst);
            thread::sleep(DRAIN);
        }
    }

    #[cfg(all(target_os = "linux", not(miri), not(procession_portable)))]
    mod system {
        use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

        pub(super) fn register() -> bool {
            membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        }

        pub(super) fn pass() -> bool {
            membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri), not(procession_portable))))]
    mod system {
        pub(super) fn register() -> bool {
            false
        }

        pub(super) fn pass() -> bool {
            false
        }
    }
}

#[cfg(procession_loom)]
pub use modelled::{are_there, heavy, heavy_at_leisure, light};

/// In models both are full fences; see *In models*.
#[cfg(procession_loom)]
mod modelled {
    use procession_sync::atomic::Ordering::SeqCst;
    use procession_sync::atomic::fence;

    /// Returns `true`: a model has these fences.
    pub fn are_there() -> bool {
        true
    }

    /// Passes a full fence.
    pub fn light() {
        fence(SeqCst);
    }

    /// Passes a full fence, which is never refused.
    pub fn heavy() -> bool {
        fence(SeqCst);
        true
    }

    /// Passes a full fence, without waiting.
    pub fn heavy_at_leisure() {
        fence(SeqCst);
    }
}
