//! System calls that suspend a coroutine instead of blocking its thread, for unchanged client
//! libraries in C.
//!
//! A client library such as hiredis or libpq calls `connect`, `send`, `recv` and `poll`, and each
//! call may block the thread. In a program that links this crate, the same calls suspend the
//! coroutine that makes them, and its worker runs other processes during the wait. Nothing in the
//! library changes.
//!
//! ```
//! use procession_hook as _;
//! use std::ffi::c_int;
//! use std::os::fd::AsRawFd;
//! use std::os::unix::net::UnixStream;
//!
//! // Stands for a library in C: it reads in blocking mode.
//! fn client(fd: c_int) -> u8 {
//!     let mut byte = 0_u8;
//!     // SAFETY: there is room for one byte.
//!     let count = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
//!     assert_eq!(count, 1);
//!     byte
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SAFETY: the coroutines keep the residual rule.
//! let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
//! let (here, there) = UnixStream::pair()?;
//! let options = procession::SpawnOptions::new().on(&scheduler);
//! let reads = options.try_start_coroutine(move |_: procession::coroutine::Context<()>| {
//!     client(here.as_raw_fd())
//! })?;
//! // The worker is not blocked by the read.
//! scheduler.spawn(async move { std::io::Write::write_all(&mut &there, b"!") }).join()??;
//! assert_eq!(reads.join()?, b'!');
//! # Ok(())
//! # }
//! ```
//!
//! # What is hooked
//!
//! | family | functions |
//! |---|---|
//! | connections | `connect`, `accept`, `accept4` |
//! | reads | `read`, `readv`, `recv`, `recvfrom`, `recvmsg`, `recvmmsg` |
//! | writes | `write`, `writev`, `send`, `sendto`, `sendmsg`, `sendmmsg` |
//! | options | `setsockopt`, only to learn that the program uses `SO_RCVLOWAT` |
//! | several descriptors | `poll`, `ppoll`, `select`, `pselect`, `epoll_wait`, `epoll_pwait` |
//! | sleeps | `nanosleep`, `clock_nanosleep`, `usleep`, `sleep` |
//! | names, on helper threads | `getaddrinfo` |
//! | | `gethostbyname`, `gethostbyname2`, `gethostbyaddr`, and each with `_r` |
//!
//! Besides, the forms with checked sizes that compilers call (`__read_chk` and others) and the
//! aliases that the C library exports (`__read` and others).
//!
//! Functions that call the kernel from inside the C library reach no hook. Among them are the
//! functions of `stdio` (`fread`, `fgets`), locks of `pthread`, and `getnameinfo`. Other functions
//! are not hooked: `flock`, `sendfile`, `splice`, `waitpid`. Such calls block the thread, and the
//! [watchdog](procession::scheduler) reports it as a stall.
//!
//! # The descriptor is not changed
//!
//! Descriptors stay in the mode in which the library has put them. A call on a descriptor in
//! non-blocking mode never waits. `SO_RCVTIMEO` and `SO_SNDTIMEO` limit the waits, as always. The
//! system determines results, error numbers and partial counts. There is one exception: `connect`
//! puts a socket into non-blocking mode while it runs the call, which is visible to other threads
//! that use the same socket at that moment.
//!
//! # Where the plain call is made
//!
//! The hooks only add waits in coroutines. Everywhere else they make the plain call:
//! - outside of coroutines, in threads that the runtime does not know, before it begins and after
//!   it has ended,
//! - in coroutines that [migrate](procession::SpawnOptions::try_start_migratable), and where a
//!   coroutine [cannot be suspended](procession::coroutine#where-a-coroutine-cannot-be-suspended),
//! - in a child process that a coroutine forks, until it executes another program,
//! - in signal handlers, and where the thread blocks other signals than when its first coroutine
//!   began. Clients that block `SIGPIPE` around a call do so.
//!
//! A plain call in a coroutine that may not be suspended blocks its thread. The scheduler then
//! starts another thread: immediately if the runtime knows that the call blocks, and otherwise as
//! soon as the [watchdog](procession::scheduler) sees it.
//!
//! Writes to the standard output and error are plain calls, because Rust's library holds a lock of
//! the thread during the write.
//!
//! # Ends
//!
//! If the coroutine is cancelled or terminated, the call that waits fails with `ECANCELED`, and so
//! does each later call that would wait. `sleep` returns the seconds that are left. Nothing is
//! unwound below the library's frames. If the coroutine has made a hundred such calls and still
//! runs, it is abandoned: its stack is leaked, and
//! [`Snapshot::stuck_coroutines`](procession::observe::Snapshot) lists it.
//!
//! Some waits end only with their event: a wait for a regular file, for a name, in `recvmsg` with
//! `MSG_WAITALL`, or in `accept` after another thread has taken the connection first.
//!
//! # Limits
//!
//! - A call that would wait first lets other processes run that are ready on its thread, and then
//!   tries again. Like any wait, it may last longer than its time limit.
//! - A signal does not interrupt a call that has suspended its coroutine: there is no `EINTR`, so
//!   `alarm` ends no wait.
//! - A signal handler that was installed with `SA_NODEFER` and an empty mask is not recognised. Its
//!   calls suspend the coroutine inside of the handler.
//! - A clock that is set forward, and a suspended system, end an absolute sleep up to a second
//!   late.
//! - A stream may be reset in the moment in which a call is about to transfer a further part. The
//!   error of the reset is then lost, and the next call finds the end of the stream.
//! - `SO_RCVLOWAT` counts only for TCP, and only if this program has set it, on any socket.
//! - `write` and `writev` on a socket of the type `SOCK_SEQPACKET` do not add `MSG_EOR`.
//! - A call that waits holds a duplicate of the descriptor. If another thread closes the descriptor
//!   and the number is used again, the call continues with its own file. `poll` and `select` of
//!   several descriptors are not protected, because they register and ask again by the numbers.
//!   Such a call needs two more descriptors, and any other call needs one. Duplicates have numbers
//!   from 1024 on, if the limit of the program allows that.
//! - When the duplicate is closed, the `fcntl` locks that the process has on the file are released,
//!   for example on a terminal or a FIFO. Regular files, directories and block devices are never
//!   duplicated.
//! - The crate needs Linux with glibc, dynamically linked. A library that is preloaded
//!   (`LD_PRELOAD`) and contains a copy of this crate sees no coroutine of the program.
//! - A lock that is held across such a call is held while other coroutines run on the same thread.
//!   `docs/HOOKS.md` shows what goes wrong with recursive locks, with OpenSSL's queue of errors and
//!   with `static` buffers. Wrap such calls in
//!   [`coroutine::blocking`](procession::coroutine::blocking()), which runs them on a helper
//!   thread.
//! - A stack overflows if its size is less than the library needs. The report names the coroutine
//!   and the size. `getaddrinfo` runs on a helper thread and needs no stack, except for numeric
//!   addresses.

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "procession-hook replaces functions of glibc, so it needs glibc, on x86-64 or AArch64"
);

mod errno;
mod hooks;
mod real;
mod transfer;
mod wait;
