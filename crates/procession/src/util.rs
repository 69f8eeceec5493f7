//! Tools that are independent of processes.

#[expect(unsafe_code, reason = "the value is in a cell")]
pub(crate) mod biased_lock;
pub(crate) mod block_queue;
pub(crate) mod bounded_text;
pub(crate) mod caught;
pub(crate) mod column;
#[expect(unsafe_code, reason = "access to the value is exclusive or asks for Sync")]
pub(crate) mod exclusive;
pub(crate) mod generator;
pub(crate) mod histogram;
pub(crate) mod membarrier;
pub(crate) mod mutant;
pub(crate) mod out_of_range;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an intrinsic that hints to the processor")
)]
pub(crate) mod prefetch;
#[expect(unsafe_code, reason = "the last of several owners frees")]
pub(crate) mod shares;
pub(crate) mod small_vec;
#[expect(unsafe_code, reason = "the last of two owners frees")]
pub(crate) mod twin;
