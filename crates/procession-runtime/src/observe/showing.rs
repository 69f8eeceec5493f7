//! Sections of a door, which processes of libraries show.

use std::fmt;
use std::sync::Arc;

use crate::mailbox::context::Context;
use crate::observe::section::{DoorSection, Sections};
use crate::process::slot::SlotRef;
use crate::process::unwind::drop_guarded;

/// Available with the crate feature `look`.
impl<M: Send + 'static> Context<M> {
    /// Adds a section to the [door](crate::Builder::door) of the scheduler, until the returned
    /// guard is dropped. For example, a library shows its connections, and a service its orders.
    ///
    /// The door shows it at the path of its name, and its figures among the metrics. Sections with
    /// the same name are shown as one section, with the rows of all. `show` is called on the thread
    /// of the door for each request, so it must be quick and must not block. If it panics, the rest
    /// is left out. If a section has the path of a page of the door itself, such as `metrics`, the
    /// door shows its own page.
    ///
    /// ```
    /// use procession::{Context, run, start};
    ///
    /// run(async {
    ///     let cache = start(|cx: Context<()>| async move {
    ///         let _shown = cx.show_section("cache", |section| {
    ///             section.row("shard", |row| {
    ///                 row.label("shard", 0).counter("hits", "Requests with an answer.", 7);
    ///             });
    ///         });
    ///         // It serves requests here.
    ///     });
    ///     assert_eq!(cache.await, Ok(()));
    /// });
    /// ```
    ///
    /// # Panics
    /// If the name does not consist of lower-case letters, digits and `_`, or does not begin with a
    /// letter.
    pub fn show_section<F>(&self, name: &'static str, show: F) -> ShownSection
    where
        F: Fn(&mut DoorSection) + Send + Sync + 'static,
    {
        let slot = self.slot().clone();
        let number = Sections::of(slot.shared()).add(name, Arc::new(show));
        ShownSection { slot, name, number }
    }
}

/// The guard of a [section](crate::Context::show_section). Dropping it removes the section.
///
/// Available with the crate feature `look`.
#[must_use = "the section is removed when this is dropped"]
pub struct ShownSection {
    slot: SlotRef,
    name: &'static str,
    number: u64,
}

impl Drop for ShownSection {
    fn drop(&mut self) {
        // Its closure is code of the user.
        // A scheduler that is being dropped may have dropped its sections already.
        if let Some(sections) = self.slot.shared().parts.get::<Sections>() {
            drop_guarded(sections.remove(self.name, self.number));
        }
    }
}

impl fmt::Debug for ShownSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShownSection").field(&self.name).finish()
    }
}
