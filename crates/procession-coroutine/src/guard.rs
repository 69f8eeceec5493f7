//! The guard below each stack: memory that faults when a stack overflows into it.
//!
//! `MADV_GUARD_INSTALL` (Linux 6.13) puts guards into the page tables. These guards split no
//! mapping, so every stack can have one.
//!
//! If a probe finds that the kernel does not support that, each guard is a mapping made by
//! `mprotect`. It costs two of the mappings that a process may have (`vm.max_map_count`, 65530 by
//! default). When a process has used up its mappings, even `malloc` fails. These guards therefore
//! have a budget, and a stack beyond the budget is refused.
//!
//! ## Rejected
//! - Stacks without guards beyond the budget: an overflow would silently corrupt another stack.
//! - Checking the kernel's version: gVisor and kernels with back-ported features make it wrong in
//!   both directions, and `mlockall` refuses guards in every version.
//! - Believing the result of the probe: emulators of user programs such as QEMU 7.2 accept every
//!   advice and do nothing, so no overflow would fault. The probe makes the kernel read the guard.
//!
//! ## Invariants
//! - `[mapped]` callers pass ranges of whole pages inside a mapping that they own.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

/// The advice `MADV_GUARD_INSTALL`.
#[cfg(all(target_os = "linux", not(procession_portable)))]
const GUARD_INSTALL: i32 = 102;

/// The share of a process's mappings that guards may use, in percent. The value leaves the larger
/// part to the rest of the program.
const BUDGET_PERCENT: usize = 40;
/// A guard costs this many mappings, because it splits the mapping around it.
const MAPPINGS_PER_GUARD: usize = 2;
/// The number of mappings that a process may have if the system does not report it: Linux's
/// default.
const MAPPINGS_DEFAULT: usize = 65530;

/// The number of `mprotect` guards of all slabs of this program.
static PROTECTED: AtomicUsize = AtomicUsize::new(0);

/// The way in which a guard was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    InPageTables,
    Protected,
}

#[derive(Debug)]
pub(crate) enum GuardError {
    /// The budget of `mprotect` guards, which is given here, is used up.
    Budget(usize),
    System(io::Error),
}

pub(crate) fn page_size() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: this call has no preconditions.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096)
    })
}

/// Returns `true` if this kernel puts guards into page tables. The first call makes one to find
/// out.
pub(crate) fn has_page_table_guards() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let length = page_size();
        let Ok(page) = map(length) else { return false };
        let made = install(page, length).is_ok() && is_guarded(page);
        // SAFETY: [mapped] just made, and used for nothing else.
        unsafe { unmap(page, length) };
        made
    })
}

/// Returns `true` if the kernel cannot read the text at `start`. Without a guard, the memory is
/// zero, which is the empty text and the name of no file.
fn is_guarded(start: NonNull<u8>) -> bool {
    // SAFETY: [mapped] by the caller. The kernel reads it, and the C library does not.
    let found = unsafe { libc::access(start.as_ptr().cast(), libc::F_OK) };
    found != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// Makes a guard of `length` bytes, in the way that is `wanted` if the system allows it.
///
/// # Safety
/// `[mapped]`, and the range is not in use.
pub(crate) unsafe fn make(
    start: NonNull<u8>,
    length: usize,
    wanted: Made,
) -> Result<Made, GuardError> {
    // The kernel refuses this guard in a mapping that is locked into memory. `mprotect` still works
    // there.
    if wanted == Made::InPageTables && install(start, length).is_ok() {
        return Ok(Made::InPageTables);
    }
    let budget = budget();
    // In one step, because another thread must not see a guard that is refused here.
    let one_more = |protected| (protected < budget).then_some(protected + 1);
    if PROTECTED.fetch_update(Relaxed, Relaxed, one_more).is_err() {
        return Err(GuardError::Budget(budget));
    }
    // SAFETY: [mapped] by the caller.
    if unsafe { libc::mprotect(start.as_ptr().cast(), length, libc::PROT_NONE) } == 0 {
        return Ok(Made::Protected);
    }
    PROTECTED.fetch_sub(1, Relaxed);
    Err(GuardError::System(io::Error::last_os_error()))
}

/// Removes a guard that was made by `mprotect`, and returns it to the budget. Returns `false` if
/// the system refuses that, and the guard stays.
///
/// # Safety
/// `[mapped]`, and the range is the guard of a stack that is not in use.
pub(crate) unsafe fn remove(start: NonNull<u8>, length: usize) -> bool {
    let open = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: [mapped] by the caller.
    let removed = unsafe { libc::mprotect(start.as_ptr().cast(), length, open) } == 0;
    return_to_budget(usize::from(removed));
    removed
}

/// Returns guards to the budget, after they are gone.
pub(crate) fn return_to_budget(protected: usize) {
    PROTECTED.fetch_sub(protected, Relaxed);
}

fn budget() -> usize {
    static BUDGET: OnceLock<usize> = OnceLock::new();
    *BUDGET.get_or_init(|| {
        let stated = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let mappings = stated.and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_DEFAULT);
        mappings / 100 * BUDGET_PERCENT / MAPPINGS_PER_GUARD
    })
}

#[cfg(all(target_os = "linux", not(procession_portable)))]
fn install(start: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: [mapped] by the callers, all in this file.
    match unsafe { libc::madvise(start.as_ptr().cast(), length, GUARD_INSTALL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(all(target_os = "linux", not(procession_portable))))]
fn install(_: NonNull<u8>, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Maps fresh memory that costs nothing until it is touched, in pages of the normal size.
pub(crate) fn map(length: usize) -> io::Result<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    const FLAGS: i32 =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    #[cfg(not(target_os = "linux"))]
    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANON;
    // SAFETY: a fresh mapping touches nothing that exists.
    let start = unsafe {
        libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, FLAGS, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // With a huge page, one touched page of a stack would cost two megabytes. The result is
    // ignored, because kernels without huge pages refuse the advice.
    #[cfg(target_os = "linux")]
    // SAFETY: [mapped] just made.
    let _ = unsafe { libc::madvise(start, length, libc::MADV_NOHUGEPAGE) };
    Ok(NonNull::new(start.cast()).expect("the system maps nothing at address 0 unless asked to"))
}

/// Unmaps a range.
///
/// # Safety
/// `[mapped]`, and nothing in the range is used any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, length: usize) {
    // SAFETY: by the caller. The result is ignored, because the system refuses only ranges that are
    // not pages.
    let _ = unsafe { libc::munmap(start.as_ptr().cast(), length) };
}

/// Releases the memory of a range to the system. When the memory is next touched, it reads as
/// zeros. If it is released `lazily`, it may also read as before.
///
/// # Safety
/// `[mapped]`, and nothing in the range is used any more.
pub(crate) unsafe fn release(start: NonNull<u8>, length: usize, lazily: bool) {
    let advice = if lazily { libc::MADV_FREE } else { libc::MADV_DONTNEED };
    // SAFETY: by the caller. The result is ignored, because keeping the memory costs only memory.
    let _ = unsafe { libc::madvise(start.as_ptr().cast(), length, advice) };
}
