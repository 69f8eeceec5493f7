//! Who may run, who sleeps and who wakes whom, who drives the poller, and how a scheduler ends.

pub mod dependents;
pub mod driver;
pub mod idle;
pub mod lifo_slot;
pub mod pace;
pub mod seat_id;
pub mod shutdown;
pub mod wait_cycle;
pub mod writes {
    //! Writes to files that a scheduler still owes.

    pub mod table;
}
