//! Two fences that are ordered like two `fence(SeqCst)`, for protocols of which one side passes all the time and the other hardly ever: the first costs
//! nothing, the second is a system call, membarrier(2), which makes every processor that runs a thread of this program pass a fence: some microseconds. To register for
//! it may take some milliseconds, once, if the program has several threads by then.
//!
//! # In models
//!
//! loom has no fence that costs one side nothing, so in models both are fence(SeqCst). Such a light fence does more than the real one.
//! It orders the accesses around it for every thread that passes a fence, also for one that passes a light fence only; and it
//! releases and acquires. A model would therefore not find a proof that relies on an order between two light fences, or a missing
//! Release beside one. The modules that use these fences (`lock.rs`, `next.rs`, `closing.rs`) say under *Checked by* that their
//! proofs set a light fence against heavy ones only, and name what their models cannot see.

#[cfg(not(procession_loom))]
pub(crate) use real::{are_there, heavy, heavy_at_leisure, light};

#[cfg(not(procession_loom))]
mod real {
    use std::sync::OnceLock;
    use std::thread;
    use std::time::Duration;

    use procession_sync::atomic::Ordering::SeqCst;
    use procession_sync::atomic::{compiler_fence, fence};

    /// As long as no processor keeps to itself what it has stored, by orders of magnitude.
    const DRAIN: Duration = Duration::from_millis(1);

    /// Whether this system has them; to be asked before either is passed.
    pub(crate) fn are_there() -> bool {
        static THERE: OnceLock<bool> = OnceLock::new();
        *THERE.get_or_init(system::register)
    }

    /// The one that costs nothing. Without the other it means nothing.
    #[inline]
    pub(crate) fn light() {
        compiler_fence(SeqCst);
    }

    /// The other one. Says whether it was passed, which a system that has said that they are there refuses only if it has been told to since.
    #[cold]
    pub(crate) fn heavy() -> bool {
        system::pass()
    }

    /// As `heavy`, for who has the time: if it is refused, waits for [`DRAIN`].
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "no event tells when a processor has written what it was to store")]
    pub(crate) fn heavy_at_leisure() {
        if !system::pass() {
            fence(SeqCst);
            thread::sleep(DRAIN);
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
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

    #[cfg(not(all(target_os = "linux", not(miri))))]
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
pub(crate) use modelled::{are_there, heavy, heavy_at_leisure, light};

/// In models both are full fences (*In models*).
#[cfg(procession_loom)]
mod modelled {
    use procession_sync::atomic::Ordering::SeqCst;
    use procession_sync::atomic::fence;

    pub(crate) fn are_there() -> bool {
        true
    }

    pub(crate) fn light() {
        fence(SeqCst);
    }

    pub(crate) fn heavy() -> bool {
        fence(SeqCst);
        true
    }

    pub(crate) fn heavy_at_leisure() {
        fence(SeqCst);
    }
}
