//! Which thread runs, which threads sleep and which thread wakes them, which thread drives the
//! poller, and how a scheduler ends.

pub mod checks;
pub mod dependents;
pub mod driver;
pub mod idle;
pub mod levels;
pub mod lifo_slot;
pub mod pace;
pub mod seat_id;
pub mod shutdown;
pub mod wait_cycle;
pub mod writes {
    //! Writes to files that a scheduler still owes.

    pub mod table;
}
