//! The settings of a scheduler, its health, and the errors of both.
//!
//! A [`Scheduler`](crate::Scheduler) itself is in the root of the crate. To build a scheduler with
//! different settings than the default scheduler, begin with
//! [`Scheduler::builder`](crate::Scheduler::builder).

#[doc(inline)]
pub use procession_runtime::Builder;
#[doc(inline)]
pub use procession_runtime::scheduler::{
    BlockOnError, BuildError, EnterGuard, Health, MisplacedCall, NotReady, OutOfRange,
};
