//! Names of hosts. The C library looks a name up in files and by questions to servers. It waits
//! inside, where no hook reaches, so each question runs on a helper thread. A numeric address is no
//! question for `getaddrinfo`.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ptr;
use std::str::FromStr;

use libc::{addrinfo, hostent, size_t, socklen_t};
use procession::coroutine::{self, Local};

use crate::wait::{block, is_possible, may_wait};
use crate::{errno, real};

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

/// A value that goes to a helper thread and back, while the coroutine waits.
struct Lent<T>(T);

// SAFETY: [lent] the pointers in it are arguments of a call of the C library. The coroutine that
// made the call waits until the helper has made it, so only one thread uses them at a time.
unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    /// Not a pattern: a closure that names only the field would not be `Send`.
    fn into_inner(self) -> T {
        self.0
    }
}

/// Makes a call on a helper thread, and copies its error number back.
fn on_helper<R>(call: impl FnOnce() -> R) -> R {
    let entry = errno::get();
    let call = Lent(call);
    let made = coroutine::blocking_foreign(move || {
        let call = call.into_inner();
        errno::set(entry);
        let result = call();
        Lent((result, errno::get()))
    });
    match made {
        Ok(made) => {
            let (result, number) = made.into_inner();
            errno::set(number);
            result
        }
        // The system has no thread for it. This one is left.
        Err(call) => {
            let (result, number) = block(call).into_inner();
            errno::set(number);
            result
        }
    }
}

/// # Safety
/// The contract of `getaddrinfo(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: by the caller.
    let plain = || unsafe { real::getaddrinfo(node, service, hints, found) };
    // SAFETY: by the caller.
    let is_address = || unsafe { is_parsed::<IpAddr>(node) };
    // SAFETY: by the caller.
    let is_port = || unsafe { is_parsed::<u16>(service) };
    if !is_possible() || !may_wait() || is_address() && is_port() {
        return plain();
    }
    on_helper(plain)
}

/// Returns `true` for a text that the C library need not look up: a number of this kind, or none.
///
/// # Safety
/// `text` is null, or ends with a zero.
unsafe fn is_parsed<T: FromStr>(text: *const c_char) -> bool {
    if text.is_null() {
        return true;
    }
    // SAFETY: by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().is_ok_and(|text| text.parse::<T>().is_ok())
}

/// The room for the answer to one question. A larger answer is refused with `ERANGE`.
struct Host {
    found: MaybeUninit<hostent>,
    buffer: [u8; ROOM],
}

const ROOM: usize = 16 * 1024;

/// The answer to the last question of each coroutine. In the C library it is one for the program.
static HOST: Local<UnsafeCell<Box<Host>>> = Local::new(|| {
    UnsafeCell::new(Box::new(Host { found: MaybeUninit::zeroed(), buffer: [0; ROOM] }))
});

/// The room that a question fills: the answer, the buffer, its size, the pointer to the answer, and
/// the error of the lookup.
type Room = (*mut hostent, *mut c_char, size_t, *mut *mut hostent, *mut c_int);

fn look_up(question: impl FnOnce(Room) -> c_int) -> *mut hostent {
    // The value stays in its box until the coroutine ends or asks again.
    let host: *mut Host = HOST.with(|host| {
        // SAFETY: nothing else refers to the box: a coroutine has one question at a time.
        let host = unsafe { &mut *host.get() };
        ptr::from_mut(&mut **host)
    });
    let (mut result, mut error) = (ptr::null_mut(), 0);
    // SAFETY: it is in bounds, and is not read.
    let found = unsafe { (&raw mut (*host).found).cast::<hostent>() };
    // SAFETY: as above.
    let buffer = unsafe { (&raw mut (*host).buffer).cast::<c_char>() };
    let room = (found, buffer, 16 * 1024, &raw mut result, &raw mut error);
    on_helper(|| question(room));
    // SAFETY: it has no preconditions.
    let place = unsafe { __h_errno_location() };
    // SAFETY: it is this thread's own.
    unsafe { place.write(error) };
    result
}

/// # Safety
/// The contract of `gethostbyname(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gethostbyname(name: *const c_char) -> *mut hostent {
    if !is_possible() || !may_wait() {
        // SAFETY: by the caller.
        return unsafe { real::gethostbyname(name) };
    }
    look_up(|(found, buffer, count, result, error)| {
        // SAFETY: by the caller; the room is as large as is said.
        unsafe { real::gethostbyname_r(name, found, buffer, count, result, error) }
    })
}

/// # Safety
/// The contract of `gethostbyname2(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
    if !is_possible() || !may_wait() {
        // SAFETY: by the caller.
        return unsafe { real::gethostbyname2(name, family) };
    }
    look_up(|(found, buffer, count, result, error)| {
        // SAFETY: by the caller; the room is as large as is said.
        unsafe { real::gethostbyname2_r(name, family, found, buffer, count, result, error) }
    })
}

/// # Safety
/// The contract of `gethostbyaddr(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gethostbyaddr(
    address: *const c_void,
    length: socklen_t,
    family: c_int,
) -> *mut hostent {
    if !is_possible() || !may_wait() {
        // SAFETY: by the caller.
        return unsafe { real::gethostbyaddr(address, length, family) };
    }
    look_up(|(found, buffer, count, result, error)| {
        // SAFETY: by the caller; the room is as large as is said.
        unsafe {
            real::gethostbyaddr_r(address, length, family, found, buffer, count, result, error)
        }
    })
}

/// Answers into the caller's own buffer, by a plain call or on a helper thread.
fn answer(call: impl Fn() -> c_int) -> c_int {
    if is_possible() && may_wait() { on_helper(call) } else { call() }
}

/// # Safety
/// The contract of `gethostbyname_r(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gethostbyname_r(
    name: *const c_char,
    found: *mut hostent,
    buffer: *mut c_char,
    count: size_t,
    result: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: by the caller.
    answer(|| unsafe { real::gethostbyname_r(name, found, buffer, count, result, error) })
}

/// # Safety
/// The contract of `gethostbyname2_r(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gethostbyname2_r(
    name: *const c_char,
    family: c_int,
    found: *mut hostent,
    buffer: *mut c_char,
    count: size_t,
    result: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: by the caller.
    answer(|| unsafe { real::gethostbyname2_r(name, family, found, buffer, count, result, error) })
}

/// # Safety
/// The contract of `gethostbyaddr_r(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn gethostbyaddr_r(
    address: *const c_void,
    length: socklen_t,
    family: c_int,
    found: *mut hostent,
    buffer: *mut c_char,
    count: size_t,
    result: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: by the caller.
    answer(|| unsafe {
        real::gethostbyaddr_r(address, length, family, found, buffer, count, result, error)
    })
}
