//! Signals: the first SIGINT or SIGTERM asks for an orderly end, the second one ends the program at
//! once.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream as StdStream;

use procession::net::UnixStream;
use procession_sync::Arc;
use procession_sync::atomic::{AtomicBool, Ordering};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// A flag that is set once a signal has asked for the end.
#[derive(Clone, Debug)]
pub(crate) struct EndAsked(Arc<AtomicBool>);

impl EndAsked {
    /// Installs the handlers. At a second signal, the handler exits the program with 128 plus the
    /// number of the signal, which is how a shell reports a program that the signal has ended.
    pub(crate) fn listen() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in this order, so the first signal still finds the flag unset.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    /// Returns a stream of the calling thread's scheduler that becomes readable at the first
    /// signal.
    pub(crate) fn stream(&self) -> io::Result<UnixStream> {
        let (reader, mut writer) = StdStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            // Registered after the flag: handlers run in the order of their registration.
            pipe::register(signal, writer.try_clone()?)?;
        }
        // A signal before that has only set the flag.
        if self.is_asked() {
            writer.write_all(&[0])?;
        }
        UnixStream::try_from(reader)
    }

    pub(crate) fn is_asked(&self) -> bool {
        // Ordering: Relaxed; the handler publishes nothing else.
        self.0.load(Ordering::Relaxed)
    }
}
