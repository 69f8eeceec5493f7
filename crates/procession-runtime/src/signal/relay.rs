//! The handlers of signals, and the thread that passes signals on to listeners.
//!
//! The first listener of the program starts the thread, which stays until the program ends. It
//! waits in a socket, and belongs to no scheduler, so a signal is heard whatever the schedulers do.
//! How a handler reaches the thread is described in [`inbox`](procession_protocols::signal::inbox).
//!
//! ## Invariants
//! - `[handler]` What runs in a handler neither locks, allocates, panics nor touches `errno`: it
//!   changes atomics, and makes system calls directly.

use std::ffi::c_int;
use std::io::{self, Read as _};
use std::mem::forget;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use procession_protocols::signal::inbox::Inbox;
use procession_protocols::sync::bell::Bell;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use rustix::net::{SendFlags, send};

use crate::process::served::WakeServed;
use crate::process::unwind::guarded;
use crate::sys::World;
use crate::sys::system::sockets::NO_SIGNAL;

/// One more than the highest number of a signal on Linux.
pub(super) const SIGNALS: usize = 65;
/// The stack of the thread in bytes. Wakers run on it, which are user code.
const STACK_BYTES: usize = 256 << 10;

/// What the listeners of one signal share.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// How often the signal was heard.
    pub(super) count: u64,
    /// `true` if nothing is heard any more.
    pub(super) closed: bool,
}

#[derive(Debug)]
pub(super) struct SignalRelay {
    inbox: Inbox<SIGNALS>,
    writer: UnixStream,
    pub(super) bells: [Bell<Heard>; SIGNALS],
    /// The signals that have a handler.
    handled: Mutex<[bool; SIGNALS]>,
    /// The number of requests to end that exist.
    requests: Mutex<u32>,
    /// Not 0 while there is a request to end.
    ends: AtomicU32,
    /// The first signal that asked the program to end, or 0.
    pub(super) asked: AtomicU32,
}

/// Returns the relay of the program, and starts it if necessary.
fn relay() -> io::Result<Arc<SignalRelay>> {
    static RELAY: Mutex<Option<Arc<SignalRelay>>> = Mutex::new(None);
    let mut relay = RELAY.lock();
    if let Some(relay) = &*relay {
        return Ok(Arc::clone(relay));
    }
    let (reader, writer) = UnixStream::pair()?;
    let started = Arc::new(SignalRelay {
        inbox: Inbox::new(),
        writer,
        bells: std::array::from_fn(|_| Bell::new(Heard::default())),
        handled: Mutex::new([false; SIGNALS]),
        requests: Mutex::new(0),
        ends: AtomicU32::new(0),
        asked: AtomicU32::new(0),
    });
    let own = Arc::clone(&started);
    let pass_on = move || own.pass_on(reader);
    World::real(Some(0)).start_thread_of("signals".to_owned(), Some(STACK_BYTES), pass_on)?;
    Ok(Arc::clone(relay.insert(started)))
}

/// Returns the relay, once the signal has a handler.
pub(super) fn listen(signal: c_int) -> io::Result<Arc<SignalRelay>> {
    let relay = relay()?;
    let number = usize::try_from(signal).ok().filter(|&number| number < SIGNALS);
    let number = number.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut handled = relay.handled.lock();
    if !handled[number] {
        let own = Arc::clone(&relay);
        // SAFETY: [handler]
        unsafe { signal_hook_registry::register(signal, move || own.handle(signal, number)) }?;
        handled[number] = true;
    }
    drop(handled);
    Ok(relay)
}

impl SignalRelay {
    /// The handler of a signal.
    fn handle(&self, signal: c_int, number: usize) {
        let may_end = signal == libc::SIGINT || signal == libc::SIGTERM;
        // Ordering: Acquire pairs with the Release in `begin_request`: `asked` is from this
        // request.
        if may_end && self.ends.load(Acquire) > 0 {
            // Ordering: Release publishes nothing else. It pairs with the Acquire of a request.
            let before = self.asked.compare_exchange(0, number as u32, AcqRel, Relaxed);
            if before.is_err() {
                // SAFETY: it runs no code of the program, and returns to none.
                unsafe { libc::_exit(128 + signal) };
            }
        }
        self.inbox.note(number, || {
            // Ignored: if the socket is full, the thread has something to read.
            let _ = send(&self.writer, &[0], SendFlags::DONTWAIT | NO_SIGNAL);
        });
    }

    /// The main function of the thread.
    fn pass_on(&self, mut reader: UnixStream) {
        let mut bytes = [0; 256];
        let mut drain = || loop {
            match reader.read(&mut bytes) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                drained => return drained.map(drop),
            }
        };
        while self.inbox.take(&mut drain, |signal| self.ring(signal, false)).is_ok() {}
        // Other code has closed or shut down the socket, which it does not own. The number of the
        // descriptor may already belong to something else.
        forget(reader);
        (0..SIGNALS).for_each(|signal| self.ring(signal, true));
    }

    fn ring(&self, signal: usize, closed: bool) {
        let woken = self.bells[signal].ring_all_if(|heard| {
            heard.count += u64::from(!closed);
            heard.closed |= closed;
            true
        });
        // Ignored: a waker is user code, and its panic has been reported.
        drop(guarded(|| woken.wake()));
    }

    /// Begins a request to end the program. The handlers of both signals must exist.
    pub(super) fn begin_request(&self) {
        let mut requests = self.requests.lock();
        *requests += 1;
        // Ordering: Release pairs with the Acquire in `handle`.
        self.ends.store(*requests, Release);
    }

    pub(super) fn end_request(&self) {
        let mut requests = self.requests.lock();
        *requests -= 1;
        self.ends.store(*requests, Release);
        if *requests == 0 {
            // Relaxed: the next request has the lock first.
            self.asked.store(0, Relaxed);
        }
    }
}
