//! The counter-examples of `docs/HOOKS.md`: what goes wrong in libraries that do not expect other
//! coroutines on their thread, and that `coroutine::blocking` helps.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use procession::process::Outcome;
use procession::{Scheduler, coroutine as co};
use procession_c_clients::plain::{OpenSsl, OwnBuffer, recursive_lock, thread_state};

use super::{Begun, builder, coroutine, sockets, write};

fn one_worker() -> Scheduler {
    builder().build().expect("the system has threads")
}

/// Runs a function in two coroutines of one thread. The functions get the numbers 1 and 2. Both
/// wait for their descriptors at the same time, and the first one is woken first.
fn two<T: Outcome + Send + 'static>(
    function: impl Fn(BorrowedFd<'_>, i32) -> T + Copy + Send + 'static,
) -> [T; 2] {
    let scheduler = one_worker();
    let begun = Begun::new();
    let both = [(1, "a"), (2, "b")].map(|(number, text)| {
        let (here, there) = sockets();
        let tell = begun.teller();
        let calls = coroutine(&scheduler, move || {
            tell();
            function(here.as_fd(), number)
        });
        begun.wait(1);
        (calls, there, text)
    });
    both.map(|(calls, there, text)| {
        write(&scheduler, there, text);
        calls.join().expect("it does not panic")
    })
}

/// Calls a function in `coroutine::blocking`.
fn apart<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    co::blocking(function).ok().expect("the system has threads")
}

#[test]
fn two_coroutines_hold_one_recursive_lock() {
    // The second one enters, since the thread has the lock.
    assert_eq!(two(|fd, _| recursive_lock(fd)), [1, 2]);
    assert_eq!(two(|fd, _| apart(|| recursive_lock(fd))), [1, 1]);
}

#[test]
fn coroutines_share_the_state_of_their_thread() {
    assert_eq!(two(thread_state), [2, 2]);
    assert_eq!(two(|fd, number| apart(|| thread_state(fd, number))), [1, 2]);
}

#[test]
fn a_static_buffer_is_overwritten() {
    let scheduler = one_worker();
    let (begun, (here, first), (gate, opened)) = (Begun::new(), sockets(), sockets());
    let tell = begun.teller();
    let reads = coroutine(&scheduler, move || {
        let own = OwnBuffer::read(here.as_fd()).expect("a byte comes");
        let before = own.text();
        tell();
        (&gate).read_exact(&mut [0]).expect("it is opened");
        (before, own.text())
    });
    write(&scheduler, first, "a");
    begun.wait(1);
    let (here, second) = sockets();
    let other = coroutine(&scheduler, move || OwnBuffer::read(here.as_fd()).is_some());
    write(&scheduler, second, "b");
    assert_eq!(other.join(), Ok(true));
    write(&scheduler, opened, "!");
    assert_eq!(reads.join(), Ok((c"a".to_owned(), c"b".to_owned())));
}

#[test]
fn another_coroutine_clears_the_errors_of_openssl() {
    let openssl = OpenSsl::load();
    let keeps = |is_apart: bool| {
        let (scheduler, begun) = (one_worker(), Begun::new());
        let ((here, there), tell) = (sockets(), begun.teller());
        let fails = coroutine(&scheduler, move || {
            tell();
            let call = || openssl.keeps_error(here.as_fd());
            if is_apart { apart(call) } else { call() }
        });
        begun.wait(1);
        let clears = coroutine(&scheduler, move || openssl.clear_errors());
        assert_eq!(clears.join(), Ok(()));
        write(&scheduler, there, "!");
        fails.join().expect("it does not panic")
    };
    assert!(!keeps(false));
    assert!(keeps(true));
}
