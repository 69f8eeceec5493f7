//! The hooks, called as a library in C calls them.

mod ends;
mod equal;
mod lineage;
mod parts;
mod passes;
mod quiet;
mod waits;

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use procession::coroutine::Context;
use procession::process::Outcome;
use procession::{Child, Scheduler, SpawnOptions};
use procession_hook as _;

/// A scheduler with one thread. A call that blocks it blocks everything.
fn one_thread() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).max_threads(1);
    // SAFETY: none of the coroutines holds a scoped thread-local pointer across a wait.
    unsafe { builder.enable_coroutines() }.build().expect("the system has threads and memory")
}

/// A scheduler that may replace a blocked worker.
fn several_threads() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1);
    // SAFETY: as above.
    unsafe { builder.enable_coroutines() }.build().expect("the system has threads and memory")
}

fn coroutine<T: Outcome + Send + 'static>(
    scheduler: &Scheduler,
    function: impl FnOnce() -> T + Send + 'static,
) -> Child<(), T> {
    SpawnOptions::new()
        .on(scheduler)
        .try_start_coroutine(move |_: Context<()>| function())
        .expect("coroutines are enabled")
}

/// The place of the calling thread's error number.
fn errno() -> *mut c_int {
    // SAFETY: it has no preconditions.
    unsafe { libc::__errno_location() }
}

/// Starts a thread that the runtime does not know.
#[expect(clippy::disallowed_methods, reason = "as a library in C starts it")]
fn foreign_thread<R: Send + 'static>(
    function: impl FnOnce() -> R + Send + 'static,
) -> std::thread::JoinHandle<R> {
    std::thread::spawn(function)
}

fn soon<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(Duration::from_secs(60)).expect("it comes")
}

/// What a call returned, and its error number if it failed.
type Answer = (i64, c_int);

fn answer(result: impl Into<i64>) -> Answer {
    let result = result.into();
    let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    (result, if result < 0 { number } else { 0 })
}

fn read(fd: c_int, room: usize) -> (Answer, Vec<u8>) {
    let mut bytes = vec![0; room];
    // SAFETY: the room is as large as is said.
    let answer = answer(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), room) } as i64);
    bytes.truncate(usize::try_from(answer.0).unwrap_or(0));
    (answer, bytes)
}

fn write(fd: c_int, bytes: &[u8]) -> Answer {
    // SAFETY: the bytes are there.
    answer(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) } as i64)
}

fn recv(fd: c_int, room: usize, flags: c_int) -> (Answer, Vec<u8>) {
    let mut bytes = vec![0; room];
    // SAFETY: the room is as large as is said.
    let answer = answer(unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), room, flags) } as i64);
    bytes.truncate(usize::try_from(answer.0).unwrap_or(0));
    (answer, bytes)
}

fn send(fd: c_int, bytes: &[u8], flags: c_int) -> Answer {
    // SAFETY: the bytes are there.
    answer(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) } as i64)
}

fn poll(entries: &mut [libc::pollfd], timeout: c_int) -> Answer {
    // SAFETY: these are the entries.
    answer(unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as u64, timeout) })
}

/// Connected descriptors.
type Ends = (OwnedFd, OwnedFd);

fn sockets(kind: c_int) -> Ends {
    let mut ends = [0; 2];
    // SAFETY: there is room for two.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
    own(ends)
}

/// A pipe: the end to read, and the end to write.
fn pipe() -> Ends {
    let mut ends = [0; 2];
    // SAFETY: there is room for two.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    own(ends)
}

fn own([one, other]: [c_int; 2]) -> Ends {
    use std::os::fd::FromRawFd;
    // SAFETY: it was just opened, and nothing else has it.
    let one = unsafe { OwnedFd::from_raw_fd(one) };
    // SAFETY: as above.
    (one, unsafe { OwnedFd::from_raw_fd(other) })
}

/// A terminal without echo, and the end at which its characters come out. It is read byte by byte,
/// or line by line.
fn terminal(by_lines: bool) -> Ends {
    let (mut main, mut other) = (0, 0);
    // SAFETY: the mode is plain memory, which is filled below.
    let mut mode: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for both.
    let opened = unsafe {
        libc::openpty(&raw mut main, &raw mut other, ptr::null_mut(), ptr::null(), ptr::null())
    };
    assert_eq!(opened, 0);
    let (main, other) = own([main, other]);
    // SAFETY: there is room for the mode.
    unsafe { libc::cfmakeraw(&raw mut mode) };
    mode.c_cc[libc::VMIN] = 1;
    if by_lines {
        mode.c_lflag |= libc::ICANON;
        // Nothing else is special.
        mode.c_cc = [0; libc::NCCS];
    }
    mode.c_cflag |= libc::CREAD;
    // SAFETY: the mode is there.
    assert_eq!(unsafe { libc::tcsetattr(other.as_raw_fd(), libc::TCSANOW, &raw const mode) }, 0);
    (other, main)
}

/// A regular file twice, with one position.
fn file() -> Ends {
    // SAFETY: the name ends with a zero.
    let file = unsafe { libc::memfd_create(c"file".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: it has no preconditions.
    own([file, unsafe { libc::dup(file) }])
}

fn tcp() -> Ends {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let address = listener.local_addr().expect("it is bound");
    let client = std::net::TcpStream::connect(address).expect("it listens");
    let (server, _) = listener.accept().expect("there is one");
    (client.into(), server.into())
}

fn limit_waits(fd: &OwnedFd, option: c_int, limit: Duration) {
    let limit =
        libc::timeval { tv_sec: limit.as_secs() as i64, tv_usec: i64::from(limit.subsec_micros()) };
    set_option(fd, option, &limit);
}

fn set_option<T>(fd: &OwnedFd, option: c_int, value: &T) {
    let (fd, value, length) = (fd.as_raw_fd(), ptr::from_ref(value), size_of::<T>() as u32);
    // SAFETY: the value is as large as is said.
    let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, value.cast(), length) };
    assert_eq!(set, 0);
}

fn set_nonblocking(fd: c_int, on: bool) {
    let flags = flags(fd) & !libc::O_NONBLOCK | if on { libc::O_NONBLOCK } else { 0 };
    // SAFETY: these are flags of the file.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }, 0);
}

fn flags(fd: c_int) -> c_int {
    // SAFETY: it only returns the flags.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}

/// A channel, for tests that wait for a thread.
fn told<T>() -> (std::sync::mpsc::Sender<T>, Receiver<T>) {
    channel()
}
