//! A copy of the registers and of the stack of another thread of this program.
//!
//! The thread is interrupted by a signal. Its handler copies, and does nothing else: the copy is
//! read afterwards, by the thread that asked. The kernel does the copying of the stack, page by
//! page, so that an address that is not mapped ends the copy and not the program.
//!
//! ## Invariants
//! - `[handover]` `BUFFER` is written by the handler that has begun, and read by the thread that
//!   asked once the handler has finished (`sys/handover.rs`).
//! - `[signal]` the handler allocates nothing, takes no lock, makes system calls only, and leaves
//!   `errno` as it was.
//! - `[context]` the kernel passes a `ucontext_t` to a handler that was installed with
//!   `SA_SIGINFO`.
//!
//! ## Checked by
//! `handover::models`, `it::requests::stacks`.

use std::mem;
use std::ptr;

use libc::{c_int, c_void, siginfo_t};
use procession_protocols::sys::handover::Handover;
use procession_sync::Mutex;
use procession_sync::cell::UnsafeCell;

/// The signal. It is ignored by default, and few programs use it. Go uses it for the same purpose.
const SIGNAL: c_int = libc::SIGURG;
/// The number of bytes of the stack that are copied.
const STACK_BYTES: usize = 128 << 10;
/// The size of the parts in which the stack is copied. No page is smaller.
const PART: usize = 4096;
/// The number of parts in one system call.
const PARTS: usize = 16;
/// The number of registers, by their DWARF numbers.
pub(crate) const REGISTERS: usize = 33;

/// The DWARF number of the stack pointer.
#[cfg(target_arch = "x86_64")]
pub(crate) const STACK_POINTER: usize = 7;
#[cfg(target_arch = "aarch64")]
pub(crate) const STACK_POINTER: usize = 31;

/// A copy of the registers and the stack of a thread.
pub(crate) struct ThreadStack {
    /// The registers, by their DWARF numbers.
    pub(crate) registers: [u64; REGISTERS],
    /// The address of the next instruction.
    pub(crate) next: u64,
    /// The memory from the stack pointer on.
    pub(crate) stack: Vec<u8>,
}

struct Buffer {
    registers: [u64; REGISTERS],
    next: u64,
    length: usize,
    stack: [u8; STACK_BYTES],
}

struct SampleBuffer(UnsafeCell<Buffer>);

// SAFETY: [handover]
unsafe impl Sync for SampleBuffer {}

static BUFFER: SampleBuffer = SampleBuffer(UnsafeCell::new(Buffer {
    registers: [0; REGISTERS],
    next: 0,
    length: 0,
    stack: [0; STACK_BYTES],
}));
static HANDOVER: Handover = Handover::new();

/// A question to a thread.
pub(crate) struct Sample {
    thread: u32,
}

impl Sample {
    /// Asks a thread for a copy. Returns `None` if the program has its own handler for the signal,
    /// if another copy is being taken, or if there is no such thread. One thread asks at a time.
    pub(crate) fn ask(thread: u32) -> Option<Self> {
        if !install() || !HANDOVER.ask(thread) {
            return None;
        }
        let sample = Self { thread };
        // SAFETY: a system call on numbers. A thread of another program is never meant.
        let sent = unsafe {
            libc::syscall(libc::SYS_tgkill, libc::c_long::from(std::process::id()), thread, SIGNAL)
        };
        (sent == 0).then_some(sample)
    }

    /// Returns the copy, once it is there.
    pub(crate) fn take(&self) -> Option<ThreadStack> {
        if !HANDOVER.is_full() {
            return None;
        }
        // SAFETY: [handover] the handler has finished, and no other question is asked before this
        // one is dropped.
        Some(BUFFER.0.with(|buffer| copied(unsafe { &*buffer })))
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = HANDOVER.recall(self.thread);
    }
}

fn copied(buffer: &Buffer) -> ThreadStack {
    ThreadStack {
        registers: buffer.registers,
        next: buffer.next,
        stack: buffer.stack[..buffer.length].to_vec(),
    }
}

/// Installs the handler. Returns `false` if the program has its own.
fn install() -> bool {
    static IS_INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut is_installed = IS_INSTALLED.lock();
    if *is_installed {
        return true;
    }
    // SAFETY: zero is a valid value of the type, which is plain data.
    let mut before: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: `before` is a `sigaction` of this function.
    let asked = unsafe { libc::sigaction(SIGNAL, ptr::null(), &raw mut before) };
    if asked != 0 || ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
        return false;
    }
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: [signal] the handler is fit for one; `action` outlives the call.
    *is_installed = unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) } == 0;
    *is_installed
}

extern "C" fn on_signal(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the address of the calling thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is valid as long as the thread.
    let before = unsafe { *errno };
    // SAFETY: a system call without arguments.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    if HANDOVER.begin(thread) {
        // SAFETY: [context]
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        // SAFETY: [handover] this handler has begun.
        BUFFER.0.with_mut(|buffer| fill(unsafe { &mut *buffer }, context));
        HANDOVER.finish();
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Copies the registers and the stack of the thread that was interrupted.
fn fill(buffer: &mut Buffer, context: &libc::ucontext_t) {
    set_registers(buffer, context);
    let begin = buffer.registers[STACK_POINTER] as usize;
    buffer.length = 0;
    while buffer.length < STACK_BYTES {
        let Some(copied) = copy_some(buffer, begin) else { return };
        if copied == 0 {
            return;
        }
        buffer.length += copied;
    }
}

#[cfg(target_arch = "x86_64")]
fn set_registers(buffer: &mut Buffer, context: &libc::ucontext_t) {
    // In the order of the DWARF numbers.
    const ORDER: [c_int; 17] = [
        libc::REG_RAX,
        libc::REG_RDX,
        libc::REG_RCX,
        libc::REG_RBX,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_RBP,
        libc::REG_RSP,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
        libc::REG_RIP,
    ];
    for (register, place) in buffer.registers.iter_mut().zip(ORDER) {
        *register = context.uc_mcontext.gregs[place as usize].cast_unsigned();
    }
    buffer.next = buffer.registers[16];
}

#[cfg(target_arch = "aarch64")]
fn set_registers(buffer: &mut Buffer, context: &libc::ucontext_t) {
    let (general, _) = buffer.registers.split_at_mut(31);
    general.copy_from_slice(&context.uc_mcontext.regs);
    buffer.registers[STACK_POINTER] = context.uc_mcontext.sp;
    buffer.next = context.uc_mcontext.pc;
}

/// Copies the next parts of the stack that begins at `begin`. Returns the number of bytes, or
/// `None` if nothing more can be read.
fn copy_some(buffer: &mut Buffer, begin: usize) -> Option<usize> {
    let from = begin.checked_add(buffer.length)?;
    let room = &mut buffer.stack[buffer.length..];
    let mut parts = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PARTS];
    let mut wanted = 0;
    let mut count = 0;
    for part in &mut parts {
        let at = from.checked_add(wanted)?;
        // To the end of the page: a part is copied whole or not at all.
        let length = (PART - at % PART).min(room.len() - wanted);
        if length == 0 {
            break;
        }
        *part = libc::iovec { iov_base: ptr::without_provenance_mut(at), iov_len: length };
        wanted += length;
        count += 1;
    }
    let into = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: wanted };
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::getpid() };
    // SAFETY: the kernel writes to `room` only, and checks the addresses that it reads.
    let copied =
        unsafe { libc::process_vm_readv(own, &raw const into, 1, parts.as_ptr(), count, 0) };
    usize::try_from(copied).ok()
}

#[cfg(test)]
mod tests {
    use super::Sample;
    use crate::sys::World;

    #[test]
    fn a_thread_finds_its_own_locals_in_the_copy() {
        let mark = std::hint::black_box(*b"a mark on the stack");
        // A signal to the calling thread is handled before the call returns.
        let sample = Sample::ask(World::thread_number()).expect("the signal has no handler");
        let taken = sample.take().expect("it was handled");
        let holds = |stack: &[u8]| stack.windows(mark.len()).any(|bytes| bytes == mark);
        assert!(holds(&taken.stack), "{} bytes", taken.stack.len());
        assert_ne!(taken.next, 0);
        std::hint::black_box(&mark);
    }
}
