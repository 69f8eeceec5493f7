//! The log of events: what each worker records of its steps, in a ring of its own. The room
//! `recorder` makes traces of it.

pub(crate) mod places;
pub(crate) mod record;
pub(crate) mod rings;
pub(crate) mod word;
