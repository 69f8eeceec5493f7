//! The door as a part of a scheduler.

use std::sync::Arc;

use procession_sync::Mutex;

use super::open;
use super::opened::Opened;
use super::settings::DoorChoice;
use crate::scheduler::builder::Builder;
use crate::scheduler::error::BuildError;
use crate::scheduler::part::{Part, PartError};
use crate::scheduler::shared::Shared;

/// The choice of a program about its door, and the door while it is open.
#[derive(Default)]
pub(crate) struct DoorPart {
    choice: DoorChoice,
    opened: Mutex<Option<Opened>>,
}

impl DoorPart {
    /// Calls `look` with the door of a scheduler, if it is open.
    pub(super) fn look<T>(shared: &Shared, look: impl FnOnce(&Opened) -> T) -> Option<T> {
        let part = shared.parts.get::<Self>()?;
        part.opened.lock().as_ref().map(look)
    }
}

impl Part for DoorPart {
    fn begin(&self, shared: &Arc<Shared>) -> Result<(), PartError> {
        let opened = open::open(shared, &self.choice).map_err(BuildError::Door)?;
        *self.opened.lock() = opened;
        Ok(())
    }

    fn last_handle_dropped(&self) {
        let opened = self.opened.lock().take();
        drop(opened);
    }
}

/// Available with the crate feature `door`.
impl Builder {
    /// Makes the builder's choice about its door.
    pub(super) fn door_choice(mut self, choice: DoorChoice) -> Self {
        let part = self.parts.get_mut::<DoorPart>();
        part.expect("`assembly.rs` gives each builder this part").choice = choice;
        self
    }
}
