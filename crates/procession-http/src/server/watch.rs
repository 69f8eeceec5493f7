//! What the parts of one connection know about the other parts.
//!
//! The parts are the stream, the service, the bodies of requests and responses, and the process
//! that runs the connection and watches its time limits. In HTTP/1.1 all parts run in that process,
//! unless the service hands the body of a request over to another process. In HTTP/2 each request
//! is a process, so the values are atomic. The values only decide when a time limit begins and
//! whether it was reached: each is looked at again when a timer fires, so nothing is ordered by
//! them, and all accesses are relaxed.

use std::sync::Arc;

use procession_runtime::inner::OwnProcess;
use procession_runtime::process::Priority;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

#[derive(Default)]
pub(super) struct ConnectionWatch {
    /// The work that is under way, and, in the high half, how many requests have begun. In
    /// HTTP/1.1, work is a request without a complete response. In HTTP/2, it is a [`StreamWork`].
    requests: AtomicU64,
    /// Bytes were read since the last response was complete: a request has begun to arrive.
    heard: AtomicBool,
    /// The limits of the server hold no more, because the stream was handed over.
    upgraded: AtomicBool,
    /// The client has shut down its write direction, or has closed the connection, while a request
    /// was under way. Only HTTP/1.1 notes it.
    half_closed: AtomicBool,
    /// The connection is about to end, so the next answer is the last one.
    ending: AtomicBool,
    /// The stream took less than the protocol has for it.
    held_up: AtomicBool,
    /// Bodies of requests that have not ended.
    receiving: AtomicU32,
    /// Bytes written.
    written: AtomicU64,
    /// Set for HTTP/2, which counts what follows.
    pub(super) is_multiplexed: bool,
    /// Bodies of responses that have returned a part and were not asked for the next part.
    held: AtomicU32,
    /// A request began, or the body of a response was asked for a part, since the last look.
    moved: AtomicBool,
    /// The protocol has read a part of what a half-closed client has left, since the last look.
    has_read: AtomicBool,
}

const BEGUN: u64 = 1 << 32;

/// The requests of a connection, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    pub(super) active: u32,
    pub(super) begun: u32,
}

impl ConnectionWatch {
    pub(super) fn new(is_multiplexed: bool) -> Self {
        Self { is_multiplexed, ..Self::default() }
    }

    pub(super) fn requests(&self) -> Requests {
        let requests = self.requests.load(Relaxed);
        Requests { active: requests as u32, begun: (requests >> 32) as u32 }
    }

    /// Returns `true` if a part of a request has arrived, and none is being answered.
    pub(super) fn is_heard(&self) -> bool {
        self.heard.load(Relaxed)
    }

    pub(super) fn hear(&self) {
        self.heard.store(true, Relaxed);
    }

    pub(super) fn write(&self, count: usize) {
        self.written.fetch_add(count as u64, Relaxed);
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Notes whether the protocol has bytes that the stream did not take.
    pub(super) fn hold_up(&self, is_held_up: bool) {
        // Most writes go through, so the flag is seldom written.
        if is_held_up != self.held_up.load(Relaxed) {
            self.held_up.store(is_held_up, Relaxed);
        }
    }

    /// Notes the end of a request or of [`StreamWork`]. Returns `false` if it counts as cut off
    /// already.
    fn leave(&self) -> bool {
        let left = |requests| (requests as u32 > 0).then(|| requests - 1);
        self.requests.fetch_update(Relaxed, Relaxed, left).is_ok()
    }

    /// Returns the number of requests that are not completely answered at the client, which count
    /// as cut off from now on. If complete answers wait for the stream, only the last answer is
    /// known.
    pub(super) fn cut_off(&self) -> u64 {
        let active = self.requests.fetch_and(!(BEGUN - 1), Relaxed) % BEGUN;
        active.max(u64::from(self.held_up.load(Relaxed)))
    }

    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Relaxed);
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Relaxed)
    }

    pub(super) fn half_close(&self) {
        self.half_closed.store(true, Relaxed);
    }

    pub(super) fn is_half_closed(&self) -> bool {
        self.half_closed.load(Relaxed)
    }

    pub(super) fn end(&self) {
        self.ending.store(true, Relaxed);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Relaxed)
    }

    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.load(Relaxed) > 0
    }

    /// Returns `true` while a request is answered, or its body arrives.
    pub(super) fn is_busy(&self) -> bool {
        self.requests().active > 0 || self.is_receiving()
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    /// Returns `true` if a request or a response made progress since the last call.
    pub(super) fn take_moved(&self) -> bool {
        self.moved.swap(false, Relaxed)
    }

    pub(super) fn note_read(&self) {
        self.has_read.store(true, Relaxed);
    }

    /// Returns `true` if the protocol has read a part of what a half-closed client has left, since
    /// the last call.
    pub(super) fn take_read(&self) -> bool {
        self.has_read.swap(false, Relaxed)
    }
}

/// A request that has begun. Dropped once its response is complete.
pub(super) struct Begun {
    watch: Arc<ConnectionWatch>,
    holds: bool,
    /// The process that has the priority of the request.
    raised: Option<OwnProcess>,
}

impl Begun {
    pub(super) fn new(watch: &Arc<ConnectionWatch>) -> Self {
        watch.requests.fetch_add(BEGUN + u64::from(!watch.is_multiplexed), Relaxed);
        watch.moved.store(true, Relaxed);
        Self { watch: Arc::clone(watch), holds: false, raised: None }
    }

    pub(super) fn is_multiplexed(&self) -> bool {
        self.watch.is_multiplexed
    }

    /// Gives the running process the priority of the request, until the response is complete.
    pub(super) fn set_priority(&mut self, priority: Priority) {
        self.raised = OwnProcess::get();
        if let Some(own) = &self.raised {
            own.set_priority(priority);
        }
    }

    /// Notes whether the connection has a part of the response that it did not send yet, as far as
    /// the body can know.
    pub(super) fn hold(&mut self, holds: bool) {
        if !self.watch.is_multiplexed {
            return;
        }
        self.watch.moved.store(true, Relaxed);
        if holds != std::mem::replace(&mut self.holds, holds) {
            if holds {
                self.watch.held.fetch_add(1, Relaxed);
            } else {
                self.watch.held.fetch_sub(1, Relaxed);
            }
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.hold(false);
        if let Some(own) = &self.raised {
            own.set_priority(Priority::Normal);
        }
        // What was read belongs to this request, or to a later request that arrived with it. In the
        // second case, the time of the later request counts from its next bytes.
        self.watch.heard.store(false, Relaxed);
        if !self.watch.is_multiplexed {
            self.watch.leave();
        }
    }
}

/// The body of a request that has not ended. It may go on when the response is complete.
pub(super) struct Receiving(Arc<ConnectionWatch>);

impl Receiving {
    pub(super) fn new(watch: &Arc<ConnectionWatch>) -> Self {
        watch.receiving.fetch_add(1, Relaxed);
        Self(Arc::clone(watch))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // As at the end of a request.
        self.0.heard.store(false, Relaxed);
        self.0.receiving.fetch_sub(1, Relaxed);
    }
}

/// A future of hyper that an HTTP/2 connection waits for: a request, or the write direction of an
/// upgraded stream, which goes on when the request and its response are gone.
#[cfg(feature = "http2")]
pub(super) struct StreamWork {
    watch: Arc<ConnectionWatch>,
    /// The process of the connection. `None` once the future has ended.
    connection: Option<OwnProcess>,
}

#[cfg(feature = "http2")]
impl StreamWork {
    pub(super) fn new(watch: &Arc<ConnectionWatch>, connection: Option<OwnProcess>) -> Self {
        watch.requests.fetch_add(1, Relaxed);
        Self { watch: Arc::clone(watch), connection }
    }

    /// Notes that the future has ended in its own way.
    pub(super) fn finish(mut self) {
        self.connection = None;
    }
}

#[cfg(feature = "http2")]
impl Drop for StreamWork {
    fn drop(&mut self) {
        // A shutdown terminates this process and the process of the connection in any order.
        if self.watch.leave()
            && let Some(connection) = &self.connection
            && !std::thread::panicking()
        {
            connection.note_cut_off(1);
            // What the stream did not take is of this request, as far as anybody knows.
            self.watch.hold_up(false);
        }
    }
}
