//! Closures by which an async process or a coroutine shows itself.

use std::fmt;
use std::sync::Arc;

use super::Context;
use crate::process::request::Inspection;
use crate::process::slot::SlotRef;
use crate::process::unwind::drop_guarded;

impl<M: Send + 'static> Context<M> {
    /// Adds a closure that shows this process to callers of
    /// [`Scheduler::inspect`](crate::Scheduler::inspect), until the returned guard is dropped.
    ///
    /// It is called between two steps, ahead of all messages, and must be quick, because the
    /// process does nothing else until it returns. Several closures are called in the order in
    /// which they were added. If a closure panics, the panic is returned to the caller of
    /// `inspect`, and the process continues.
    ///
    /// The program decides what it shows. Leave out secrets: all that can reach the door of the
    /// program can read it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use procession::{Context, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let counter = scheduler.start(|mut cx: Context<u64>| async move {
    ///     let sum = Arc::new(AtomicU64::new(0));
    ///     let shown = Arc::clone(&sum);
    ///     let _inspecting = cx.inspect_with(move |out| {
    ///         out.field("sum", shown.load(Relaxed));
    ///     });
    ///     while let Some(number) = cx.recv().await {
    ///         sum.fetch_add(number, Relaxed);
    ///     }
    /// });
    /// counter.send(7)?;
    /// // The first step has to add the closure.
    /// scheduler.run_until_idle();
    /// let shown = scheduler.block_on(scheduler.inspect(counter.pid()))?;
    /// assert_eq!(shown.fields().collect::<Vec<_>>(), [("sum", "7")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect_with<F>(&self, show: F) -> Inspecting
    where
        F: Fn(&mut Inspection) + Send + Sync + 'static,
    {
        let slot = self.slot().clone();
        let generation = slot.pins.generation();
        let inspectors = &slot.shared().processes.inspectors;
        let number = inspectors.add(slot.index(), generation, Arc::new(show));
        Inspecting { slot, number }
    }
}

/// The guard of a closure of [`Context::inspect_with`](crate::Context::inspect_with). Dropping it
/// removes the closure.
#[must_use = "the closure is removed when this is dropped"]
pub struct Inspecting {
    slot: SlotRef,
    number: u64,
}

impl Drop for Inspecting {
    fn drop(&mut self) {
        let generation = self.slot.pins.generation();
        let inspectors = &self.slot.shared().processes.inspectors;
        drop_guarded(inspectors.remove(self.slot.index(), generation, self.number));
    }
}

impl fmt::Debug for Inspecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inspecting").field(&self.slot.seen_pid()).finish()
    }
}
