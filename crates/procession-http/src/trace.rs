//! W3C trace contexts in the headers of requests.

#[cfg(feature = "client")]
use std::task::{Context, Poll};

#[cfg(feature = "serve")]
use hyper::header::HeaderMap;
#[cfg(feature = "client")]
use hyper::{Request, header::HeaderValue};
#[cfg(feature = "serve")]
use procession_runtime::inner::carries_requests;
#[cfg(feature = "client")]
use procession_runtime::request;
#[cfg(feature = "serve")]
use procession_runtime::request::RequestContext;
#[cfg(feature = "client")]
use tower_service::Service;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Returns the trace context of a request, if contexts travel in this scheduler and the request has
/// a valid one.
///
/// A `traceparent` that is not valid, or that is there twice, is ignored together with the
/// `tracestate`. A `tracestate` that is not valid is ignored alone.
#[cfg(feature = "serve")]
pub(crate) fn context(headers: &HeaderMap) -> Option<RequestContext> {
    if !carries_requests() {
        return None;
    }
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (parent, None) = (parents.next()?, parents.next()) else { return None };
    let context: RequestContext = parent.to_str().ok()?.parse().ok()?;
    let states = headers.get_all(TRACESTATE).iter().map(|state| state.to_str());
    let states: Vec<&str> = states.collect::<Result<_, _>>().unwrap_or_default();
    Some(context.with_state(&states.join(",")))
}

/// A client that sends the trace context of the request that the caller works for.
///
/// It sets the headers `traceparent` and `tracestate` of each request, unless the request has a
/// `traceparent`, or the caller works for no [request](procession_runtime::request). The context is
/// sent on as it came. If the request is known by an id alone, that is the trace id.
///
/// ```
/// use std::future::{Ready, ready};
/// use std::task::{Context, Poll};
///
/// use hyper::Request;
/// use procession::http::TracedClient;
/// use procession::mailbox::request::{self, RequestContext};
/// use tower_service::Service;
///
/// /// Stands for the client of hyper-util.
/// struct Client;
///
/// impl Service<Request<()>> for Client {
///     type Response = Option<String>;
///     type Error = ();
///     type Future = Ready<Result<Option<String>, ()>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, request: Request<()>) -> Self::Future {
///         let header = request.headers().get("traceparent");
///         ready(Ok(header.and_then(|header| header.to_str().ok()).map(str::to_owned)))
///     }
/// }
///
/// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let mut client = TracedClient::new(Client);
/// procession::run(async {
///     let context: RequestContext = header.parse()?;
///     let call = request::with(context, || client.call(Request::new(())));
///     assert_eq!(call.await, Ok(Some(header.to_owned())));
///     assert_eq!(client.call(Request::new(())).await, Ok(None));
///     Ok::<(), procession::process::ParseError>(())
/// })?;
/// # Ok::<(), procession::process::ParseError>(())
/// ```
#[cfg(feature = "client")]
#[derive(Clone, Copy, Debug, Default)]
pub struct TracedClient<S>(S);

#[cfg(feature = "client")]
impl<S> TracedClient<S> {
    /// Wraps a client, for example the client of hyper-util.
    pub const fn new(client: S) -> Self {
        Self(client)
    }

    /// Returns the client.
    pub fn into_inner(self) -> S {
        self.0
    }
}

#[cfg(feature = "client")]
impl<S: Service<Request<B>>, B> Service<Request<B>> for TracedClient<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(task)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let headers = request.headers_mut();
        if !headers.contains_key(TRACEPARENT)
            && let Some(context) = request::context()
            && let Ok(parent) = HeaderValue::try_from(context.traceparent())
        {
            headers.insert(TRACEPARENT, parent);
            // A state belongs to the context that it came with.
            headers.remove(TRACESTATE);
            if let Some(Ok(state)) = context.state().map(HeaderValue::from_str) {
                headers.insert(TRACESTATE, state);
            }
        }
        self.0.call(request)
    }
}
