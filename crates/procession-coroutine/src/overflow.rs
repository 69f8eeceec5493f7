//! The report of a stack overflow.
//!
//! std's own handler knows only the stack of its thread. A fault on any other guard is an ordinary
//! fault for it, so the program dies without a message. The handler here checks if the fault is in
//! the guard of one of this crate's stacks. If so, it writes the name of the coroutine and aborts.
//! It passes all other faults on to the handler that was installed before.
//!
//! ## Invariants
//! - `[range]` an entry of `RANGES` with an `end` that is not 0 names a mapping of stacks that are
//!   `span` bytes apart, each with its guard at the lowest address. The entry is removed before the
//!   mapping is.
//! - `[signal]` the handler allocates nothing, takes no lock, and calls only functions that signal
//!   handlers may call.
//!
//! ## Rejected
//! Unwinding the coroutine out of the handler, so that only the coroutine dies. Frames between the
//! fault and the guard hold locks and half-made values, and there is no landing pad at the place of
//! the fault.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::guard;
use crate::header::Header;

/// The largest number of slabs in one program. With the sizes that `stacks.rs` maps, these can hold
/// sixteen million stacks of the smallest size.
const RANGES_MAX: usize = 4096;

/// The size in bytes of the signal stack for a thread without a signal stack. There is room for
/// this handler, and for the handler that the signal is passed on to.
const SIGNAL_STACK: usize = 64 << 10;

/// The length in bytes of the longest report.
const REPORT_MAX: usize = 512;

struct Range {
    start: AtomicUsize,
    /// 0 while the entry is unused.
    end: AtomicUsize,
    span: AtomicUsize,
    guard: AtomicUsize,
}

static RANGES: [Range; RANGES_MAX] = [const {
    Range {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        span: AtomicUsize::new(0),
        guard: AtomicUsize::new(0),
    }
}; RANGES_MAX];

/// Protects changes of `RANGES`.
static CHANGES: Mutex<()> = Mutex::new(());

/// The previous handlers of the signals. They are set before the handler that reads them is
/// installed.
static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Registers a mapping. Returns `true` if there was room for it.
pub(crate) fn add(start: usize, length: usize, span: usize, guard: usize) -> bool {
    let _changes = CHANGES.lock();
    let Some(range) = RANGES.iter().find(|range| range.end.load(Relaxed) == 0) else {
        return false;
    };
    range.start.store(start, Relaxed);
    range.span.store(span, Relaxed);
    range.guard.store(guard, Relaxed);
    // Ordering: Release pairs with the Acquire of `find`; makes the other fields visible.
    range.end.store(start + length, Release);
    true
}

/// Removes a mapping.
pub(crate) fn remove(start: usize) {
    let _changes = CHANGES.lock();
    let found = RANGES
        .iter()
        .find(|range| range.end.load(Relaxed) != 0 && range.start.load(Relaxed) == start);
    if let Some(range) = found {
        range.end.store(0, Release);
    }
}

/// Returns the end of the stack that has `address` in its guard, and the number of bytes of the
/// stack above the guard.
fn find(address: usize) -> Option<(usize, usize)> {
    RANGES.iter().find_map(|range| {
        // Ordering: Acquire pairs with the Release of `add`.
        let end = range.end.load(Acquire);
        let start = range.start.load(Relaxed);
        if !(start..end).contains(&address) {
            return None;
        }
        let (span, guard) = (range.span.load(Relaxed), range.guard.load(Relaxed));
        let bottom = address - (address - start) % span;
        (address - bottom < guard).then_some((bottom + span, span - guard))
    })
}

/// Installs the handler, once for the program.
pub(crate) fn install() {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock();
    if *installed {
        return;
    }
    for (i, signal) in SIGNALS.into_iter().enumerate() {
        let mut previous = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: only a query; the buffer is large enough.
        if unsafe { libc::sigaction(signal, ptr::null(), previous.as_mut_ptr()) } != 0 {
            continue;
        }
        // SAFETY: the system filled it in.
        let previous = unsafe { previous.assume_init() };
        PREVIOUS[i].get_or_init(|| previous);
        // SAFETY: all zeros is an action without flags.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = handle;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: [signal] the handler keeps the rules of handlers. The result is ignored: without
        // the handler, an overflow is only reported less well.
        let _ = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
    *installed = true;
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes a valid pointer.
    let fault = unsafe { &*info };
    // SAFETY: both signals carry an address.
    let address = unsafe { fault.si_addr() }.addr();
    if let Some((end, size)) = find(address)
        && let Some(end) = NonNull::new(end as *mut u8)
    {
        // SAFETY: [range] a stack of a mapping that exists; its header was touched when the
        // coroutine was made.
        report(unsafe { Header::at(end) }, size);
    }
    pass_on(signal, info, context);
}

/// Text on the signal's stack. Text that does not fit is left out.
struct Line {
    text: [u8; REPORT_MAX],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = REPORT_MAX - self.length;
        let more = &text.as_bytes()[..text.len().min(room)];
        self.text[self.length..self.length + more.len()].copy_from_slice(more);
        self.length += more.len();
        Ok(())
    }
}

fn report(header: &Header, size: usize) -> ! {
    let mut line = Line { text: [0; REPORT_MAX], length: 0 };
    // The results are ignored: a `Line` accepts everything, and a `Tell` that fails has only
    // written less.
    let _ = line.write_str("\n");
    let _ = header.write(&mut line);
    let _ = writeln!(line, " has overflowed its stack of {} KiB; aborting", size >> 10);
    // Not by the C library, because another library of the program may replace its function.
    #[cfg(target_os = "linux")]
    // SAFETY: [signal] `write` may be called, and the text is valid. The result is ignored, because
    // the error could not be reported anywhere.
    let _ = unsafe {
        libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.text.as_ptr(), line.length)
    };
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as above.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.length) };
    // SAFETY: [signal] `abort` may be called.
    unsafe { libc::abort() }
}

/// Does what would have happened without this handler.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(previous) = PREVIOUS[usize::from(signal == SIGNALS[1])].get() else {
        return;
    };
    match previous.sa_sigaction {
        // If the fault were ignored, it would repeat forever. The system does not ignore it either.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeros is the default action.
            let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: [signal] may be called. The fault repeats, and ends the program as it would
            // have without this handler.
            unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the flag shows that the handler is of this type.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag, the handler is of this type.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// A signal stack that this crate gave to its thread.
struct SignalStack(Cell<Option<NonNull<u8>>>);

impl Drop for SignalStack {
    fn drop(&mut self) {
        let Some(stack) = self.0.take() else { return };
        // SAFETY: all zeros is valid for it.
        let mut disabled: libc::stack_t = unsafe { MaybeUninit::zeroed().assume_init() };
        disabled.ss_flags = libc::SS_DISABLE;
        // SAFETY: no handler runs on it: this thread is in its destructors.
        unsafe { libc::sigaltstack(&raw const disabled, ptr::null_mut()) };
        // SAFETY: it was mapped for this, and is out of use.
        unsafe { guard::unmap(stack, SIGNAL_STACK) };
    }
}

thread_local! {
    static OWN_SIGNAL_STACK: SignalStack = const { SignalStack(Cell::new(None)) };
    static PREPARED: Cell<bool> = const { Cell::new(false) };
}

/// Makes sure that this thread has a stack for signal handlers. std provides its own threads with a
/// signal stack, but a thread that another language started may have none.
#[inline]
pub(crate) fn prepare_thread() {
    if !PREPARED.try_with(|prepared| prepared.replace(true)).unwrap_or(true) {
        prepare_thread_once();
    }
}

#[cold]
fn prepare_thread_once() {
    // SAFETY: all zeros is valid for it.
    let mut current: libc::stack_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: only a query.
    let asked = unsafe { libc::sigaltstack(ptr::null(), &raw mut current) };
    if asked != 0 || current.ss_flags & libc::SS_DISABLE == 0 {
        return;
    }
    let Ok(stack) = guard::map(SIGNAL_STACK) else { return };
    let given = libc::stack_t { ss_sp: stack.as_ptr().cast(), ss_flags: 0, ss_size: SIGNAL_STACK };
    // SAFETY: the memory is valid until the thread ends, and nothing else uses it.
    if unsafe { libc::sigaltstack(&raw const given, ptr::null_mut()) } == 0 {
        OWN_SIGNAL_STACK.with(|own| own.0.set(Some(stack)));
    }
}
