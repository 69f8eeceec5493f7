//! The requests that processes work for, which travel with messages.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::time::Duration;

use procession_queue::Entry;

use crate::mailbox::header::{Header, RequestContext, RequestId};
use crate::process::body::{Queued, System};
use crate::process::request::{MessageDirection, TracedMessage};
use crate::process::slot::{Mailbox, Slot, SlotRef};
use crate::scheduler::current;

thread_local! {
    /// The request of a thread that runs no process.
    /// It has no destructor, so that it can be used while the other locals of the thread are
    /// destroyed. `within` sets it back.
    static OUTSIDE: RefCell<ManuallyDrop<Option<RequestContext>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Returns the request that the calling process works for, or the calling thread, if it runs no
/// process.
///
/// A process works for the request of the message that it received last, until it waits for another
/// message. If that message belongs to no request, neither does the process. Until it first waits
/// for a message, it works for the request of the process that spawned it.
pub fn current() -> Option<RequestId> {
    context().map(|context| context.id())
}

/// Returns the context of the request that the calling process or thread works for. See
/// [`current`].
pub fn context() -> Option<RequestContext> {
    current::current().map_or_else(outside, |slot| slot.extra()?.request())
}

fn outside() -> Option<RequestContext> {
    OUTSIDE.with_borrow(|request| (**request).clone())
}

/// Calls `run`, which works for a request, and returns its result. Messages and processes that
/// `run` sends and spawns belong to that request, which is a [`RequestId`] or a [`RequestContext`].
///
/// Afterwards, the caller works for the same request as before, even if `run` panics.
///
/// See the [module](crate::request) for an example.
pub fn with<R>(request: impl Into<RequestContext>, run: impl FnOnce() -> R) -> R {
    within(Some(request.into()), run)
}

/// Returns a future that runs `future`, and works for a request whenever it is polled: a
/// [`RequestId`] or a [`RequestContext`].
///
/// ```
/// use procession::mailbox::request::{self, RequestId};
///
/// let id = RequestId::new(7).expect("it is not 0");
/// procession::run(async move {
///     request::scope(id, async {
///         procession::yield_now().await;
///         assert_eq!(request::current(), Some(id));
///     })
///     .await;
///     assert_eq!(request::current(), None);
/// });
/// ```
///
/// # Cancellation
/// If this future is dropped, `future` is dropped as well, and its `Drop` does not work for the
/// request.
pub async fn scope<F: Future>(request: impl Into<RequestContext>, future: F) -> F::Output {
    let (request, mut future) = (request.into(), pin!(future));
    poll_fn(|task| with(request.clone(), || future.as_mut().poll(task))).await
}

/// Makes the calling process work for a request, or for none, until it receives a message or calls
/// this again. A thread that runs no process does not change.
///
/// Use it where messages wait in a queue of your own instead of a mailbox: keep the [`context`] of
/// each message, and call this when the process takes a message out.
///
/// ```
/// use procession::Scheduler;
/// use procession::mailbox::request::{self, RequestId};
///
/// # fn main() -> Result<(), procession::scheduler::BuildError> {
/// let scheduler = Scheduler::builder().worker_threads(1).request_ids(true).build()?;
/// let id = RequestId::new(7).expect("it is not 0");
/// let worked = scheduler.spawn(async move {
///     request::work_for(Some(id.into()));
///     let first = request::current();
///     request::work_for(None);
///     [first, request::current()]
/// });
/// assert_eq!(worked.join(), Ok([Some(id), None]));
/// # Ok(())
/// # }
/// ```
pub fn work_for(request: Option<RequestContext>) {
    if let Some(slot) = current::current() {
        resume(&slot, request);
    }
}

/// Calls `run`, which works for this request, or for none.
pub(crate) fn within<R>(request: Option<RequestContext>, run: impl FnOnce() -> R) -> R {
    /// Sets the request back.
    struct Before {
        process: Option<SlotRef>,
        request: Option<RequestContext>,
    }
    impl Drop for Before {
        fn drop(&mut self) {
            replace(self.process.as_ref(), self.request.take());
        }
    }
    let process = current::current();
    let before = replace(process.as_ref(), request);
    let _before = Before { process, request: before };
    run()
}

/// Sets the request of a process, or of this thread. Returns the previous request.
fn replace(process: Option<&SlotRef>, request: Option<RequestContext>) -> Option<RequestContext> {
    match process {
        Some(slot) => slot
            .extra_or_default()
            .handling(|handling| std::mem::replace(&mut handling.request, request)),
        None => ManuallyDrop::into_inner(OUTSIDE.replace(ManuallyDrop::new(request))),
    }
}

/// Returns the header of a message that is sent to the process in `slot` now, if its messages have
/// headers.
#[inline]
pub(crate) fn header_for(slot: &Slot) -> Option<System> {
    slot.bound.has_headers().then(|| header(slot))
}

/// Returns the header of an urgent message, as [`header_for`] does. Its order is its own.
#[cold]
#[cfg_attr(not(feature = "sim"), expect(unused_mut, reason = "nobody looks at the order"))]
pub(crate) fn urgent_header_for(slot: &Slot) -> Option<System> {
    let mut header = header_for(slot);
    #[cfg(feature = "sim")]
    if let Some(System::Header(Header { number: Some(number), .. })) = &mut header {
        number.is_urgent = true;
    }
    header
}

/// Returns the header of a message that is sent to the process in `slot` now.
#[cold]
#[cfg_attr(not(feature = "sim"), expect(unused_variables, reason = "nobody looks at the order"))]
pub(crate) fn header(slot: &Slot) -> System {
    let sender = current::current();
    System::Header(Header {
        request: sender.as_ref().map_or_else(outside, |slot| slot.extra()?.request()),
        sender: sender.map(|slot| slot.seen_pid()),
        #[cfg(feature = "sim")]
        number: slot.shared().world.numbering().map(|os| os.number_message()),
    })
}

/// Returns the message and its header, which the process in `slot` takes out of its mailbox.
#[cold]
#[cfg_attr(not(feature = "sim"), expect(unused_variables, reason = "nobody looks at the order"))]
pub(crate) fn take<M>(slot: &Slot, entry: Entry<(System, M)>) -> (Option<Header>, M) {
    let (header, message) = open(entry);
    #[cfg(feature = "sim")]
    if let Some((os, &Header { sender, number: Some(number), .. })) =
        slot.shared().world.simulated().zip(header.as_ref())
        && !os.takes(slot.seen_pid(), sender, number)
    {
        os.broken("a process takes two messages of one sender in the wrong order");
    }
    (header, message)
}

/// Returns the message and its header.
#[cold]
fn open<M>(entry: Entry<(System, M)>) -> (Option<Header>, M) {
    match entry.into_inner() {
        (System::Header(header), message) => (Some(header), message),
        // Only headers are pushed with messages.
        (_, message) => (None, message),
    }
}

/// Returns the message of an entry with its request, or the entry of the system.
#[inline]
pub(crate) fn message_of<M>(
    queued: Queued<M>,
) -> Result<(Option<RequestContext>, M), Entry<System>> {
    match queued {
        Queued::Message(message) => Ok((None, message)),
        Queued::Headed(entry) => {
            let (header, message) = open(entry);
            Ok((header.and_then(|header| header.request), message))
        }
        Queued::System(entry) => Err(entry),
    }
}

/// Receives the header of a message: the process works for its request from now on.
#[cold]
pub(crate) fn accept(slot: &Slot, header: Header) {
    if !current::is_current(slot) || !slot.handles_requests() {
        return;
    }
    let trace = slot.extra_or_default().handling(|handling| {
        handling.request.clone_from(&header.request);
        handling.trace.clone()
    });
    if let Some(trace) = trace {
        trace.record(
            slot.shared().world.now(),
            TracedMessage {
                after: Duration::ZERO,
                direction: MessageDirection::Received,
                other: header.sender,
                type_name: (slot.kind().message_name)(),
                bytes: slot.kind().message_bytes,
                request: header.request.as_ref().map(RequestContext::id),
            },
        );
    }
    #[cfg(feature = "tracing")]
    crate::process::span::begin_request(slot, header.request, header.sender);
}

/// Lets the process work for the request of an event again that it has put off.
pub(crate) fn resume(slot: &Slot, request: Option<RequestContext>) {
    if !current::is_current(slot) || !slot.handles_requests() {
        return;
    }
    slot.extra_or_default().handling(|handling| handling.request.clone_from(&request));
    #[cfg(feature = "tracing")]
    crate::process::span::begin_request(slot, request, None);
}

/// Arms the mailbox, so that the next push wakes the process. Returns `false` if there are entries.
/// The process has handled its last message, so that it works for no request any more.
#[inline]
pub(crate) fn arm<M>(slot: &Slot, mailbox: Mailbox<'_, M>) -> bool {
    match mailbox {
        Mailbox::Unbounded(queue) => queue.arm(),
        rare => arm_rare(slot, rare),
    }
}

#[cold]
fn arm_rare<M>(slot: &Slot, mailbox: Mailbox<'_, M>) -> bool {
    if slot.handles_requests() && current::is_current(slot) {
        slot.extra_or_default().handling(|handling| handling.request = None);
        #[cfg(feature = "tracing")]
        crate::process::span::end_request(slot);
    }
    match mailbox {
        Mailbox::Unbounded(queue) | Mailbox::Headed(queue) => queue.arm(),
        Mailbox::Bounded(ring) => ring.arm(),
    }
}
