//! Signals: the first SIGINT or SIGTERM asks for an end in order, the second ends the program at once.

use std::io;

use procession_sync::Arc;
use procession_sync::atomic::{AtomicBool, Ordering};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether somebody has asked for an end.
#[derive(Clone, Debug)]
pub(crate) struct EndAsked(Arc<AtomicBool>);

impl EndAsked {
    /// From here on signals are heard. With a second one the program exits, in the handler, as one that the signal has ended is reported: with 128
    /// and its number.
    pub(crate) fn listen() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Handlers run in this order: the first signal finds the flag down.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    pub(crate) fn is_asked(&self) -> bool {
        // Ordering: Relaxed; the handler publishes nothing else.
        self.0.load(Ordering::Relaxed)
    }
}
