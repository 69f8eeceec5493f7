//! The bodies of requests and responses.

use std::fmt;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Buf, Bytes, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use procession_runtime::time::{Instant, Sleep, sleep_until};

use super::limits::{ServerLimits, TIME_PER_BYTE};
use super::watch::{Begun, ConnectionWatch, OpenBody, Unread};
use crate::Error;

/// The body of a request to a [`Server`](super::Server).
///
/// It is hyper's [`Incoming`] with the time limits of the server
/// ([`body_stall_timeout`](super::Server::body_stall_timeout),
/// [`body_timeout`](super::Server::body_timeout)). If a limit is reached, the body returns an error
/// for which [`is_timeout`](Error::is_timeout) is `true`, and ends. The connection is closed after
/// the response.
pub struct RequestBody {
    /// `None` once the body has ended, or a limit was reached. hyper then reads no more of it.
    incoming: Option<Incoming>,
    stall: Option<Duration>,
    whole: Option<Duration>,
    received: u64,
    /// Present until the body has ended.
    receiving: Option<OpenBody>,
    /// Present once the body had to be waited for.
    waits: Option<Box<Waits>>,
}

/// The waits for the parts of one body.
struct Waits {
    sleep: Pin<Box<Sleep>>,
    /// The time at which the whole body must have arrived.
    end: Instant,
    /// The duration of all waits before the present one.
    waited: Duration,
    /// The begin of the present wait.
    since: Option<Instant>,
}

impl RequestBody {
    pub(super) fn new(
        incoming: Incoming,
        limits: &ServerLimits,
        watch: &Arc<ConnectionWatch>,
    ) -> Self {
        Self {
            receiving: (!incoming.is_end_stream()).then(|| OpenBody::new(watch)),
            incoming: Some(incoming),
            stall: limits.body_stall,
            whole: limits.body,
            received: 0,
            waits: None,
        }
    }

    /// Returns `true` if the wait for the next part has exceeded its limit.
    fn is_late(&mut self, task: &mut Context<'_>) -> bool {
        if self.stall.is_none() && self.whole.is_none() {
            return false;
        }
        let waits = self.waits.get_or_insert_with(|| {
            let end = self.whole.map_or(Instant::NEVER, |whole| Instant::now() + whole);
            let sleep = Box::pin(sleep_until(Instant::NEVER));
            Box::new(Waits { sleep, end, waited: Duration::ZERO, since: None })
        });
        if waits.since.is_none() {
            let now = Instant::now();
            waits.since = Some(now);
            let deadline = self.stall.map_or(Instant::NEVER, |stall| {
                let count = u32::try_from(self.received).unwrap_or(u32::MAX);
                now + stall.saturating_add(TIME_PER_BYTE * count).saturating_sub(waits.waited)
            });
            waits.sleep.as_mut().reset(deadline.min(waits.end));
        }
        waits.sleep.as_mut().poll(task).is_ready()
    }

    fn receive(&mut self, frame: &Frame<Bytes>) {
        if let Some(bytes) = frame.data_ref() {
            self.received += bytes.len() as u64;
        }
        if let Some(waits) = &mut self.waits
            && let Some(since) = waits.since.take()
        {
            waits.waited += Instant::now() - since;
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let body = &mut *self;
        let Some(incoming) = &mut body.incoming else { return Poll::Ready(None) };
        let next = match Pin::new(&mut *incoming).poll_frame(task) {
            Poll::Ready(Some(Ok(frame))) => {
                body.receive(&frame);
                Some(Ok(frame))
            }
            Poll::Ready(end) => end.map(|end| end.map_err(Error::from)),
            Poll::Pending if body.is_late(task) => {
                Some(Err(Error::timed_out("the body of the request did not arrive")))
            }
            Poll::Pending => return Poll::Pending,
        };
        if !matches!(next, Some(Ok(_))) || body.is_end_stream() {
            // Once the response is complete, hyper tells the end of a body only with the next
            // request, or as an error when the connection closes.
            (body.incoming, body.receiving) = (None, None);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("received", &self.received).finish_non_exhaustive()
    }
}

/// A part of a response.
pub(super) struct DataPart<D> {
    data: D,
    /// Present with HTTP/2, until the connection has sent the part.
    unread: Option<Unread>,
}

impl<D: Buf> Buf for DataPart<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, parts: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(parts)
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
        if let Some(unread) = &self.unread {
            unread.note_sent(count);
        }
    }
}

pin_project! {
    /// The body of a response, which notes how far it was sent.
    pub(super) struct ResponseBody<B> {
        // `None` for the answer to a request that no service has seen.
        #[pin]
        body: Option<B>,
        begun: Begun,
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: B, begun: Begun) -> Self {
        Self { body: Some(body), begun }
    }

    pub(super) fn empty(begun: Begun) -> Self {
        Self { body: None, begun }
    }
}

impl<B: Body> Body for ResponseBody<B>
where
    B::Data: Buf,
{
    type Data = DataPart<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, B::Error>>> {
        let body = self.project();
        let Some(frames) = body.body.as_pin_mut() else { return Poll::Ready(None) };
        let next = ready!(frames.poll_frame(task)?);
        let part = |data| DataPart { data, unread: body.begun.unread() };
        Poll::Ready(next.map(|frame| Ok(frame.map_data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
