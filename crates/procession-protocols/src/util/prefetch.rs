//! Hints to the processor about memory.
//!
//! ## Invariants
//! - `[hint]` A prefetch reads nothing that the program could see. It accepts every address,
//!   including an unmapped one.

/// Asks the processor to fetch a cache line that will be needed soon. Does nothing on other
/// architectures than x86-64.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: [hint]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
