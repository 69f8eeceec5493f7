//! The defects that canary models plant, one at a time.

pub use crate::util::mutant::is;

/// No defect.
pub const SOUND: u8 = 0;
/// What is built: sound, unless the build has mutants.
pub const BUILT: u8 = crate::util::mutant::planted("pool", SOUND);
/// `Finish` checks the queue, and parks in a second step.
pub const PARK_IN_TWO: u8 = 1;
/// `Expire` leaves without checking whether the worker was claimed.
pub const EXPIRE_BLINDLY: u8 = 2;
/// `Enter` checks in a separate first step if the pool is open.
pub const ENTER_IN_TWO: u8 = 3;
/// A larger capacity serves no waiter.
pub const RESIZE_SILENTLY: u8 = 4;
/// `Withdraw` finds the job and counts its end, and removes it in a second step.
pub const WITHDRAW_IN_TWO: u8 = 5;
/// `Enter` compares the capacity, and starts a worker in a second step.
pub const START_IN_TWO: u8 = 6;
/// `Reap` finds the workers that have rested beyond their time, and removes them in a second step.
pub const REAP_IN_TWO: u8 = 7;
/// A job is queued although its worker is refused and no other worker will come to it. No model
/// plants this: no worker is refused there.
pub const QUEUE_BEHIND_REFUSAL: u8 = 8;
/// `Enter` finds the key of the job busy, and holds the job in a second step.
pub const HOLD_IN_TWO: u8 = 9;
/// `Die` starts no worker in the place of the killed worker.
pub const DIE_SILENTLY: u8 = 10;
/// A waiter for a quiescent pool that was woken looks at the pool, and not for its own entry.
pub const WATCH_THE_STATE: u8 = 11;
/// `Lend` finds the job queued, and starts a worker for it in a second step.
pub const LEND_IN_TWO: u8 = 12;
/// The end of a wait finds that the job waits for no other one, and forgets its waits in a second
/// step.
pub const TAKE_BACK_IN_TWO: u8 = 13;
/// A job that waits for another job lends no place. No model plants this: it breaks a promise, and
/// not the protocol.
pub const LEND_NOTHING: u8 = 14;
/// Jobs that wait for one another are not seen. No model plants this: it breaks a promise, and not
/// the protocol.
pub const STUCK_UNSEEN: u8 = 15;
