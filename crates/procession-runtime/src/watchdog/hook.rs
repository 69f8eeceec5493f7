//! The program's hook for stalls.

use crate::scheduler::builder::Builder;
use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::scheduler::stalls::Stall;

type StallObserver = dyn Fn(&Stall) + Send + Sync;

/// The function that the program wants to be called for each stall.
#[derive(Default)]
pub(crate) struct StallHook(Option<Box<StallObserver>>);

impl Part for StallHook {}

impl StallHook {
    /// Returns the hook of a scheduler, if its builder was given one.
    pub(super) fn of(shared: &Shared) -> Option<&StallObserver> {
        let hook = shared.parts.get::<Self>();
        hook.expect("`assembly.rs` gives each scheduler this part").0.as_deref()
    }
}

impl Builder {
    /// Sets a hook that is called once for each stalled step, when the watchdog finds it, at most
    /// ten times per second. Further stalls are only counted
    /// ([`StallSnapshot`](crate::scheduler::stalls::StallSnapshot)). Blocking sections are not
    /// stalls.
    ///
    /// The hook runs on the watchdog's thread, so it must not block. A panic of the hook is caught.
    pub fn on_stall(mut self, observer: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        let hook = self.parts.get_mut::<StallHook>();
        hook.expect("`assembly.rs` gives each scheduler this part").0 = Some(Box::new(observer));
        self
    }
}
