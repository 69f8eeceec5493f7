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
use procession_sync::atomic::Ordering::Relaxed;
use rustix::net::{SendFlags, send};

use crate::process::served::WakeServed;
use crate::process::unwind::guarded;
use crate::sys::World;
use crate::sys::system::sockets::NO_SIGNAL;

/// One more than the highest number of a signal on Linux.
pub(super) const SIGNALS: usize = 65;
/// One request in [`SignalRelay::ends`]. It exceeds the highest number of a signal.
const END_REQUEST: u32 = 1 << 8;
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
    /// The number of requests to end that exist, in units of [`END_REQUEST`], plus the first signal
    /// that asked the program to end, or 0. They share a word, because otherwise a handler that is
    /// slow could note its signal after the last request is gone, and end the next request.
    ends: AtomicU32,
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
        ends: AtomicU32::new(0),
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
        if signal == libc::SIGINT || signal == libc::SIGTERM {
            let is_first = |ends: u32| ends >= END_REQUEST && ends.is_multiple_of(END_REQUEST);
            let ask = |ends| is_first(ends).then_some(ends + number as u32);
            // Relaxed: the word publishes nothing else.
            if let Err(ends) = self.ends.fetch_update(Relaxed, Relaxed, ask)
                && ends >= END_REQUEST
            {
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
        self.ends.fetch_add(END_REQUEST, Relaxed);
    }

    /// Ends a request. With the last request, the signal that has asked is forgotten.
    pub(super) fn end_request(&self) {
        let end = |ends| Some(if ends < 2 * END_REQUEST { 0 } else { ends - END_REQUEST });
        // Ignored: it never fails.
        let _ = self.ends.fetch_update(Relaxed, Relaxed, end);
    }

    /// Returns the first signal that has asked the program to end, or 0.
    pub(super) fn asked(&self) -> u32 {
        self.ends.load(Relaxed) % END_REQUEST
    }
}
