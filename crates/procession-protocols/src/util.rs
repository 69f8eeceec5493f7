//! Locks, fences, shared values and queues that know no process.

#[expect(unsafe_code, reason = "the value is in a cell")]
pub mod biased_lock;
pub mod block_queue;
pub mod histogram;
pub mod membarrier;
pub mod mutant;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an intrinsic that hints to the processor")
)]
pub mod prefetch;
#[expect(unsafe_code, reason = "the last of several owners frees")]
pub mod shares;
pub mod small_vec;
pub mod sorted_map;
#[expect(unsafe_code, reason = "the last of two owners frees")]
pub mod twin;
