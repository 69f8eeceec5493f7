//! Requests to end the program.

use std::ffi::c_int;
use std::future::Future;
use std::future::pending;
use std::io;
use std::sync::Arc;

use super::listener::{Signal, SignalKind, signal};
use super::relay::SignalRelay;
use crate::scheduler::budget;
use crate::sync::select::Select;

/// Treats SIGINT and SIGTERM as requests to end the program: the first signal asks for an orderly
/// end, the second ends the program immediately.
///
/// A service needs only [`Scheduler::run_until_signal`](crate::Scheduler::run_until_signal). Use
/// this function if your program ends in its own order.
///
/// # Errors
/// See [`signal`].
pub fn end_request() -> io::Result<EndRequest> {
    drop(signal(SignalKind::interrupt())?);
    let relay = Arc::clone(signal(SignalKind::terminate())?.relay());
    relay.begin_request();
    Ok(EndRequest { relay })
}

/// A request to end the program, which a signal may make while this exists. See [`end_request`].
///
/// While an `EndRequest` exists, the second signal among all SIGINT and SIGTERM ends the program in
/// the handler of the signal, with the exit code 128 plus the number of the signal. If several
/// exist, all get the same request. Once all are dropped, the count of signals restarts with the
/// next `EndRequest`.
#[derive(Debug)]
#[must_use = "dropping it ends its effect"]
pub struct EndRequest {
    relay: Arc<SignalRelay>,
}

impl EndRequest {
    /// Returns the signal that has asked the program to end, if one has.
    pub fn signal(&self) -> Option<SignalKind> {
        let number = self.relay.asked();
        (number != 0).then(|| SignalKind::from_raw(number as c_int))
    }

    /// Waits until a signal has asked the program to end. If a signal has done so before, returns
    /// it immediately.
    ///
    /// # Cancellation
    /// If the future is dropped, nothing is lost.
    #[track_caller]
    pub fn asked(&self) -> impl Future<Output = SignalKind> {
        crate::scheduler::placed::placed(async move {
            budget::charged().await;
            loop {
                let listen = |kind| Signal::new(Arc::clone(&self.relay), kind);
                let mut interrupt = listen(SignalKind::interrupt());
                let mut terminate = listen(SignalKind::terminate());
                // Looked at after the listeners have begun, because the handler notes the request
                // before it informs the listeners.
                if let Some(signal) = self.signal() {
                    return signal;
                }
                let heard = Select::new()
                    .wait_for(interrupt.recv(), |heard| heard)
                    .wait_for(terminate.recv(), |heard| heard);
                if heard.await.is_none() {
                    // No request can come any more.
                    pending::<()>().await;
                }
            }
        })
    }
}

impl Drop for EndRequest {
    fn drop(&mut self) {
        self.relay.end_request();
    }
}
