//! What the processor is told about memory.
//!
//! ## Invariants
//! - `[hint]` a prefetch reads nothing that the program could see, and accepts every address, also one that is not mapped.

/// Has the processor fetch a cache line that will be needed soon; elsewhere than on x86-64 it does nothing.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: [hint]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
