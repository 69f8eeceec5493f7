//! The small clients of `c/plain.h`, the one that is loaded by name, and those that do not expect
//! other coroutines on their thread during a wait.
//!
//! ## Invariants
//! - `[room]` The buffer has the room that is passed with it.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

mod c {
    use super::*;

    unsafe extern "C" {
        pub(super) fn stdio_line(fd: c_int, line: *mut c_char, room: usize) -> c_long;
        pub(super) safe fn fortified_read(fd: c_int, count: usize) -> c_long;
        pub(super) safe fn fortified_recv(fd: c_int, count: usize) -> c_long;
        pub(super) safe fn fortified_recvfrom(fd: c_int, count: usize) -> c_long;
        pub(super) safe fn fortified_poll(fd: c_int, timeout: c_int) -> c_int;
        pub(super) safe fn deep_read(fd: c_int, bytes: usize) -> c_long;
        pub(super) safe fn recursive_lock(fd: c_int) -> c_int;
        pub(super) safe fn thread_state(fd: c_int, number: c_int) -> c_int;
        pub(super) safe fn static_buffer(fd: c_int) -> *const c_char;
        pub(super) safe fn openssl_load() -> c_int;
        pub(super) fn openssl_error(fd: c_int) -> c_int;
        pub(super) fn openssl_clear();
    }
}

/// Reads a line on stdio. Returns `None` at the end of the stream.
pub fn stdio_line(fd: BorrowedFd<'_>) -> Option<CString> {
    let mut line = [0; 64];
    // SAFETY: [room].
    let length = unsafe { c::stdio_line(fd.as_raw_fd(), line.as_mut_ptr(), line.len()) };
    // SAFETY: a line that was read ends with a zero.
    (length >= 0).then(|| unsafe { CStr::from_ptr(line.as_ptr()) }.to_owned())
}

/// A form of a read with a buffer of 16 bytes, which the C library checks.
pub type CheckedRead = fn(BorrowedFd<'_>, usize) -> c_long;

/// All forms of reads that are checked.
pub const CHECKED_READS: [CheckedRead; 3] = [
    |fd, count| c::fortified_read(fd.as_raw_fd(), count),
    |fd, count| c::fortified_recv(fd.as_raw_fd(), count),
    |fd, count| c::fortified_recvfrom(fd.as_raw_fd(), count),
];

/// Asks about a descriptor, with a timeout in milliseconds, and checked. Returns the number of
/// entries with a report.
pub fn checked_poll(fd: BorrowedFd<'_>, timeout: c_int) -> c_int {
    c::fortified_poll(fd.as_raw_fd(), timeout)
}

/// Reads a byte below frames that take so many bytes of the stack.
pub fn deep_read(fd: BorrowedFd<'_>, bytes: usize) -> c_long {
    c::deep_read(fd.as_raw_fd(), bytes)
}

/// Waits inside a recursive lock. Returns how often the lock is held then.
pub fn recursive_lock(fd: BorrowedFd<'_>) -> c_int {
    c::recursive_lock(fd.as_raw_fd())
}

/// Notes a number in a thread-local, waits, and returns what is noted.
pub fn thread_state(fd: BorrowedFd<'_>, number: c_int) -> c_int {
    c::thread_state(fd.as_raw_fd(), number)
}

/// The text in a library's own buffer.
#[derive(Clone, Copy, Debug)]
pub struct OwnBuffer(*const c_char);

// SAFETY: the buffer is there for as long as the program. It is read by the thread that its library
// runs on.
unsafe impl Send for OwnBuffer {}

impl OwnBuffer {
    /// Reads a byte into the buffer. Returns `None` at the end of the stream.
    pub fn read(fd: BorrowedFd<'_>) -> Option<Self> {
        let text = c::static_buffer(fd.as_raw_fd());
        (!text.is_null()).then_some(Self(text))
    }

    /// Copies the text.
    pub fn text(self) -> CString {
        // SAFETY: the buffer has two bytes, and the last one is always zero.
        unsafe { CStr::from_ptr(self.0) }.to_owned()
    }
}

/// OpenSSL, with a queue of errors for each thread.
#[derive(Clone, Copy, Debug)]
pub struct OpenSsl(());

impl OpenSsl {
    /// Loads it.
    ///
    /// # Panics
    /// Panics if there is no `libcrypto.so.3`.
    pub fn load() -> Self {
        assert_eq!(c::openssl_load(), 0, "cannot load libcrypto.so.3");
        Self(())
    }

    /// Fails, waits, and returns `true` if the error is still in the queue.
    pub fn keeps_error(self, fd: BorrowedFd<'_>) -> bool {
        // SAFETY: it was loaded.
        unsafe { c::openssl_error(fd.as_raw_fd()) == 1 }
    }

    /// Empties the queue of this thread.
    pub fn clear_errors(self) {
        // SAFETY: it was loaded.
        unsafe { c::openssl_clear() };
    }
}

/// The library that is loaded by name, after the program has begun.
#[derive(Clone, Copy, Debug)]
pub struct Loaded(unsafe extern "C" fn(c_int) -> c_int);

impl Loaded {
    /// Loads it.
    ///
    /// # Panics
    /// Panics if the library is not where it was built.
    pub fn load() -> Self {
        let path = CString::new(env!("LOADED")).expect("a path has no zero");
        // SAFETY: the library has no code that runs when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "cannot load {path:?}");
        // SAFETY: the library was loaded, and is never unloaded.
        let echo = unsafe { libc::dlsym(library, c"loaded_echo".as_ptr()) };
        assert!(!echo.is_null(), "{path:?} has no function loaded_echo");
        // SAFETY: the function has this type.
        Self(unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> c_int>(echo)
        })
    }

    /// Sends a word to a peer that sends it back. Returns `true` if it comes.
    pub fn echo(self, fd: BorrowedFd<'_>) -> bool {
        // SAFETY: it has no preconditions.
        unsafe { (self.0)(fd.as_raw_fd()) == 0 }
    }
}
