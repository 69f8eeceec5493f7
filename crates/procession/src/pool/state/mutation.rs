//! The defects that canary models plant, one at a time.

pub(crate) const SOUND: u8 = 0;
/// `Finish` looks into the queue, then parks in a step of its own.
pub(crate) const PARK_IN_TWO: u8 = 1;
/// `Expire` leaves without a look whether it was claimed.
pub(crate) const EXPIRE_BLINDLY: u8 = 2;
/// `Enter` looks whether the pool is open in a step of its own.
pub(crate) const ENTER_IN_TWO: u8 = 3;
/// A larger capacity serves nobody who waits.
pub(crate) const RESIZE_SILENTLY: u8 = 4;
/// `Withdraw` looks for the job and counts its end, then takes it in a step of its own.
pub(crate) const WITHDRAW_IN_TWO: u8 = 5;
/// `Enter` compares the capacity, then starts a worker in a step of its own.
pub(crate) const START_IN_TWO: u8 = 6;
/// `Reap` looks who has rested too long, and counts them out in a step of its own.
pub(crate) const REAP_IN_TWO: u8 = 7;
