//! The exits of processes that return errors.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::process::exit::{Exit, REASON_MAX};
use crate::util::bounded_text::bounded_text;

impl Exit {
    /// Creates the exit of a process that returns `error`: a failure, or
    /// [`Disconnected`](Self::Disconnected) if `error` or one of its [sources](Error::source) says
    /// that the other side of a connection has gone. The reason is the text of `error`, followed by
    /// the texts of its sources, each after `": "`. A source is left out if the text before it ends
    /// with the source's text, because many errors print their cause. An error that is an `Exit`
    /// stays as it is.
    ///
    /// The reason has at most 4096 bytes.
    ///
    /// ```
    /// use procession::Exit;
    ///
    /// let full = std::io::Error::other("no space left");
    /// assert_eq!(Exit::from_error(&full), Exit::failed("no space left"));
    /// assert_eq!(Exit::from_error(&Exit::Shutdown), Exit::Shutdown);
    ///
    /// let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    /// assert_eq!(Exit::from_error(&reset), Exit::disconnected("connection reset"));
    /// ```
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        if let Some(exit) = error.downcast_ref::<Self>() {
            return exit.clone();
        }
        let (mut reason, mut is_whole) = bounded_text(error, REASON_MAX);
        let mut source = error.source();
        while let Some(error) = source.filter(|_| is_whole) {
            let (text, fits) = bounded_text(error, REASON_MAX);
            if !fits || !reason.ends_with(&text) {
                (reason, is_whole) = bounded_text(format_args!("{reason}: {text}"), REASON_MAX);
                is_whole &= fits;
            }
            source = error.source();
        }
        Self::with_reason(reason, is_disconnect(error))
    }

    /// Creates the exit of a process that returns an error with this text, whose sources are
    /// unknown. The reason has at most 4096 bytes.
    pub(crate) fn from_text(text: fmt::Arguments<'_>) -> Self {
        Self::with_reason(bounded_text(text, REASON_MAX).0, false)
    }

    fn with_reason(reason: String, is_disconnect: bool) -> Self {
        let is_disconnect = is_disconnect || system_error(&reason).is_some_and(is_lost);
        if is_disconnect { Self::disconnected(reason) } else { Self::failed(reason) }
    }
}

/// Returns the kind of the system's error with which a text ends. The standard library ends the
/// text of such an error with its number, and the text of a wrapping error often ends with the text
/// of its cause.
fn system_error(text: &str) -> Option<io::ErrorKind> {
    let (_, number) = text.strip_suffix(')')?.rsplit_once("(os error ")?;
    Some(io::Error::from_raw_os_error(number.parse().ok()?).kind())
}

/// Returns `true` if the error says that the other side of a connection has gone, or that both
/// sides were silent for longer than allowed.
fn is_disconnect(error: &(dyn Error + 'static)) -> bool {
    // Only of the error itself, because the reader of a format wraps this error when a file is
    // shorter than it should be.
    let ends_early = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    error.downcast_ref().is_some_and(ends_early) || successors(error).any(is_lost_connection)
}

/// Returns an error and its sources. The source that an [`io::Error`] wraps is included, which
/// [`Error::source`] skips.
fn successors<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref().and_then(io::Error::get_ref);
        wrapped.map(|error| -> &(dyn Error + 'static) { error }).or_else(|| error.source())
    })
}

fn is_lost_connection(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().map(io::Error::kind).is_some_and(is_lost) || error.is::<Idle>()
}

fn is_lost(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset)
}

/// The error of a connection in which no data has moved for this time.
#[derive(Debug)]
pub(crate) struct Idle(pub(crate) Duration);

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no data has moved in either direction for {:?}", self.0)
    }
}

impl Error for Idle {}
