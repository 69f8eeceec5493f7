//! Traces and other requests that take long, one at a time.

use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::answers::seconds;
use super::request::HttpRequest;
use super::response::{HttpStatus, Response};
use crate::recorder::{Trace, TraceError};
use crate::scheduler::shared::Shared;
use crate::spawn_blocking;

/// The longest window of a trace.
const SECONDS_MAX: u64 = 10;
/// The maximum size of a trace.
const TRACE_BYTES_MAX: usize = 64 << 20;

/// The permit for requests that take long. There is one.
#[derive(Debug, Default)]
pub(super) struct OneAtATime(Arc<AtomicBool>);

/// The permit, while it is taken. Dropping this value returns the permit.
pub(super) struct LongPermit(Arc<AtomicBool>);

impl OneAtATime {
    /// Takes the permit.
    pub(super) fn take(&self) -> Result<LongPermit, Response> {
        // Ordering: Acquire pairs with the Release in the drop of the permit: one request sees
        // what the request before it did.
        match self.0.compare_exchange(false, true, Acquire, Relaxed) {
            Ok(_) => Ok(LongPermit(Arc::clone(&self.0))),
            Err(_) => Err(HttpStatus::TooManyRequests.into()),
        }
    }
}

impl Drop for LongPermit {
    fn drop(&mut self) {
        // Ordering: Release pairs with the Acquire in `take`.
        self.0.store(false, Release);
    }
}

/// Answers `GET /trace`: with `seconds`, the events of a window that begins now; without, the
/// latest events.
pub(super) async fn trace(
    request: &HttpRequest,
    shared: Arc<Shared>,
    long: &OneAtATime,
) -> Result<Response, Response> {
    let seconds = seconds(request, SECONDS_MAX)?.unwrap_or(0);
    let permit = long.take()?;
    // On another thread, so that the door continues to serve. The closure has the permit, because a
    // request that goes away does not end the trace.
    let made = spawn_blocking(move || {
        let trace = match seconds {
            0 => Ok(Trace::of(&shared)),
            seconds => Trace::of_window(&shared, Duration::from_secs(seconds)),
        };
        drop(shared);
        let bytes = trace.map(|trace| trace.to_bytes());
        drop(permit);
        bytes
    });
    match made.await {
        Ok(Ok(bytes)) if bytes.len() > TRACE_BYTES_MAX => Err(Response::error(
            HttpStatus::Unavailable,
            "the trace is larger than 64 MiB: ask for fewer seconds",
        )),
        Ok(Ok(bytes)) => Ok(Response::trace(bytes)),
        Ok(Err(TraceError::Busy)) => Err(HttpStatus::TooManyRequests.into()),
        Ok(Err(error)) => Err(Response::error(HttpStatus::Unavailable, &error.to_string())),
        Err(exit) => Err(Response::error(HttpStatus::Unavailable, &exit.to_string())),
    }
}
