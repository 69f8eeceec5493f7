//! The counter of the processor, which takes a third of the time of a clock.
//!
//! ## Invariants
//! - `[x86-64]` Every processor of this architecture has `CPUID` and `RDTSC`. The system may refuse
//!   `RDTSC` only if the program has asked it to.

/// Returns the counter.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn now() -> u64 {
    // SAFETY: [x86-64]
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// There is no such counter.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn now() -> u64 {
    0
}

/// Returns `true` if the counter runs at one rate, whatever the processor does, and is the same on
/// all processors.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "CPUID is a safe function for newer compilers than the minimum")]
pub(super) fn is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    use std::sync::OnceLock;

    /// The function that returns the highest one of the extended range.
    const HIGHEST: u32 = 0x8000_0000;
    /// The function about power management.
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    static KNOWN: OnceLock<bool> = OnceLock::new();
    // SAFETY: [x86-64]
    let ask = |function| unsafe { __cpuid(function) };
    // CPUID leaves a virtual machine, so it is asked once.
    *KNOWN.get_or_init(|| ask(HIGHEST).eax >= POWER && ask(POWER).edx & INVARIANT != 0)
}

/// There is no such counter.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn is_invariant() -> bool {
    false
}
