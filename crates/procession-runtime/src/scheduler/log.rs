//! The log of events: what each worker records about its steps, in its own ring. The room
//! `recorder` makes traces from the log.

pub(crate) mod places;
pub(crate) mod record;
pub(crate) mod rings;
pub(crate) mod word;
