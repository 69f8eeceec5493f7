//! The system's own functions, behind the hooks.
//!
//! ## Invariants
//! - `[real]` [`Real`] holds the address of the function of its name in the next library after this
//!   program. That function has the type that is stated here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;

use libc::{
    addrinfo, epoll_event, fd_set, hostent, iovec, mmsghdr, msghdr, nfds_t, pollfd, sigset_t,
    size_t, sockaddr, socklen_t, ssize_t, timespec, timeval, useconds_t,
};
use procession_sync::atomic::AtomicPtr;
use procession_sync::atomic::Ordering::Relaxed;

struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        // Relaxed: the code behind the address was there before this program, and all threads that
        // look it up find the same.
        let address = self.address.load(Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            // The C library lacks a function that the program calls. Without the hook, the program
            // would not have started.
            std::process::abort();
        }
        self.address.store(address, Relaxed);
        address
    }
}

macro_rules! real {
    ($($(#[$lint:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            mod $name {
                pub(super) static REAL: super::Real = super::Real::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    },
                );
            }

            /// Calls the system's function of this name.
            ///
            /// # Safety
            /// The contract of that function.
            $(#[$lint])*
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                let address = $name::REAL.address();
                // SAFETY: [real]
                let function = unsafe {
                    transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(address)
                };
                // SAFETY: by the caller.
                unsafe { function($($argument),*) }
            }
        )*

        /// Looks all functions up, so that no hook has to.
        extern "C" fn look_all_up() {
            $($name::REAL.look_up();)*
        }
    };
}

/// Runs before `main`, and before most other code of the program.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_ALL_UP: extern "C" fn() = look_all_up;

real! {
    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    fn recv(fd: c_int, buffer: *mut c_void, count: size_t, flags: c_int) -> ssize_t;
    fn recvfrom(fd: c_int, buffer: *mut c_void, count: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    fn send(fd: c_int, buffer: *const c_void, count: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, buffer: *const c_void, count: size_t, flags: c_int, address: *const sockaddr, length: socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    fn poll(entries: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(entries: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_wait(fd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(fd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn nanosleep(duration: *const timespec, rest: *mut timespec) -> c_int;
    fn clock_nanosleep(clock: c_int, flags: c_int, duration: *const timespec, rest: *mut timespec) -> c_int;
    fn usleep(duration: useconds_t) -> c_int;
    fn sleep(duration: c_uint) -> c_uint;
    fn getaddrinfo(node: *const c_char, service: *const c_char, hints: *const addrinfo, found: *mut *mut addrinfo) -> c_int;
    fn gethostbyname_r(name: *const c_char, found: *mut hostent, buffer: *mut c_char, count: size_t, result: *mut *mut hostent, error: *mut c_int) -> c_int;
    fn gethostbyname2_r(name: *const c_char, family: c_int, found: *mut hostent, buffer: *mut c_char, count: size_t, result: *mut *mut hostent, error: *mut c_int) -> c_int;
    #[expect(clippy::too_many_arguments, reason = "the C library's function has them")]
    fn gethostbyaddr_r(address: *const c_void, length: socklen_t, family: c_int, found: *mut hostent, buffer: *mut c_char, count: size_t, result: *mut *mut hostent, error: *mut c_int) -> c_int;
    fn gethostbyname(name: *const c_char) -> *mut hostent;
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent;
    fn gethostbyaddr(address: *const c_void, length: socklen_t, family: c_int) -> *mut hostent;
    fn __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t, flags: c_int, address: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    fn __poll_chk(entries: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    fn __ppoll_chk(entries: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
}
