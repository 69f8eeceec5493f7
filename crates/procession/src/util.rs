//! Tools that know nothing of processes.

#[expect(unsafe_code, reason = "the value is in a cell")]
pub(crate) mod biased_lock;
pub(crate) mod membarrier;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an intrinsic that hints to the processor")
)]
pub(crate) mod prefetch;
pub(crate) mod small_vec;
