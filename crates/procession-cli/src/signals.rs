//! Signals: the first SIGINT or SIGTERM asks for an end in order, the second ends the program at
//! once.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream as StdStream;

use procession::net::UnixStream;
use procession_sync::Arc;
use procession_sync::atomic::{AtomicBool, Ordering};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// Whether somebody has asked for an end.
#[derive(Clone, Debug)]
pub(crate) struct EndAsked(Arc<AtomicBool>);

impl EndAsked {
    /// From here on signals are heard. With a second one the program exits, in the handler, as one
    /// that the signal has ended is reported: with 128 and its number.
    pub(crate) fn listen() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in this order: the first signal finds the flag down.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    /// Returns a stream, of the calling thread's scheduler, that becomes readable with the first
    /// signal.
    pub(crate) fn stream(&self) -> io::Result<UnixStream> {
        let (reader, mut writer) = StdStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            // Behind the flag: handlers run in the order in which they were registered.
            pipe::register(signal, writer.try_clone()?)?;
        }
        // A signal before that has set the flag only.
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
