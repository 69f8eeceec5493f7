//! Tools that know nothing of processes.

#[expect(unsafe_code, reason = "what is locked is in a cell")]
pub(crate) mod biased_lock;
pub(crate) mod membarrier;
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a hint to the processor, by an intrinsic"))]
pub(crate) mod prefetch;
pub(crate) mod small_vec;
