//! What the parts of one connection know about the other parts.
//!
//! The parts are the stream, the service, the bodies of requests and responses, and the process
//! that runs the connection and watches its time limits. In HTTP/1.1 all parts run in that process,
//! unless the service hands the body of a request over to another process. In HTTP/2 each request
//! is a process, so the values are atomic. The values only decide when a time limit begins and
//! whether it was reached: each is looked at again when a timer fires, so nothing is ordered by
//! them, and all accesses are relaxed. What is unread has a lock, because the values for one
//! response change together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use procession_runtime::inner::OwnProcess;
use procession_runtime::process::Priority;
use procession_runtime::{Pid, current_pid};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::limits::BYTES_PER_SECOND;

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
    /// Bytes written.
    written: AtomicU64,
    /// Set for HTTP/2.
    pub(super) is_multiplexed: bool,
    /// Bodies of requests that have not ended.
    receiving: AtomicU32,
    /// The responses of HTTP/2 of which the client has to read something, by their processes.
    unread: Mutex<BTreeMap<Pid, UnreadResponse>>,
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

    pub(super) fn is_unread(&self) -> bool {
        self.is_multiplexed && !self.unread.lock().is_empty()
    }

    /// Returns `true` while a request is answered, its body arrives, or the client has to read a
    /// response.
    pub(super) fn is_busy(&self) -> bool {
        self.requests().active > 0 || self.is_receiving() || self.is_unread()
    }

    /// Returns the processes of the responses that the client has hardly read since the last call,
    /// which was `time` ago.
    pub(super) fn take_unread(&self, time: Duration) -> Vec<Pid> {
        let least = time.as_secs() * BYTES_PER_SECOND;
        let stands = |response: &mut UnreadResponse| {
            let (is_new, sent) = (take(&mut response.is_new), take(&mut response.sent));
            !is_new && sent <= least
        };
        let mut unread = self.unread.lock();
        unread.iter_mut().filter_map(|(&pid, response)| stands(response).then_some(pid)).collect()
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
    /// The process that has the priority of the request.
    raised: Option<OwnProcess>,
}

impl Begun {
    pub(super) fn new(watch: &Arc<ConnectionWatch>) -> Self {
        watch.requests.fetch_add(BEGUN + u64::from(!watch.is_multiplexed), Relaxed);
        Self { watch: Arc::clone(watch), raised: None }
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

    /// Notes a part of the response, which the running process has made. HTTP/1.1 needs no note,
    /// because its client reads one response at a time.
    pub(super) fn unread(&self) -> Option<Unread> {
        let process = self.watch.is_multiplexed.then(current_pid).flatten()?;
        let mut unread = self.watch.unread.lock();
        let response = unread.entry(process).or_default();
        response.parts += 1;
        response.is_new = true;
        Some(Unread { watch: Arc::clone(&self.watch), process })
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
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

/// What the client of an HTTP/2 connection has to read of one response.
#[derive(Default)]
struct UnreadResponse {
    /// Parts that are not completely sent.
    parts: u32,
    /// There is a further part since the last look.
    is_new: bool,
    /// Bytes sent since the last look.
    sent: u64,
}

/// A part of a response that is not completely sent. Dropped once it is.
pub(super) struct Unread {
    watch: Arc<ConnectionWatch>,
    process: Pid,
}

impl Unread {
    pub(super) fn note_sent(&self, count: usize) {
        if let Some(response) = self.watch.unread.lock().get_mut(&self.process) {
            response.sent += count as u64;
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let mut unread = self.watch.unread.lock();
        if let Entry::Occupied(mut response) = unread.entry(self.process) {
            response.get_mut().parts -= 1;
            if response.get().parts == 0 {
                response.remove();
            }
        }
    }
}

/// The body of a request that has not ended. It may go on when the response is complete.
pub(super) struct OpenBody(Arc<ConnectionWatch>);

impl OpenBody {
    pub(super) fn new(watch: &Arc<ConnectionWatch>) -> Self {
        watch.receiving.fetch_add(1, Relaxed);
        Self(Arc::clone(watch))
    }
}

impl Drop for OpenBody {
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
