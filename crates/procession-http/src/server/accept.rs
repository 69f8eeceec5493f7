//! The connections of a server: how they are accepted, counted, and ended.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use hyper::body::Body;
use hyper::{Request, Response};
use procession_runtime::inner::{self, OwnProcess, poll_last};
use procession_runtime::sync::Semaphore;
use procession_runtime::{Context, Pid, SpawnOptions};
use procession_sync::Mutex;
use tower_service::Service;

use super::body::RequestBody;
use super::limits::waiting_max;
use super::{BoxError, Listener, Peer, Settings, is_told};

/// Most connections that are taken from the backlog once the server accepts no more. A backlog is
/// not longer (`net::accept::BACKLOG`).
const BACKLOG_MAX: usize = 4096;

/// The connections that are open. Dropping this asks them to end.
struct Connections {
    open: Arc<Open>,
    /// Where the program has called `serve`. It is the place of the spawn for people.
    location: &'static Location<'static>,
    /// The number of the next connection.
    next: u64,
    is_draining: bool,
}

struct Open {
    /// The number of connections that there may be.
    max: usize,
    places: Semaphore,
    /// The connections by number. A connection that is about to be started has no process yet.
    pids: Mutex<BTreeMap<u64, Option<Pid>>>,
}

impl Open {
    fn pids(&self) -> Vec<Pid> {
        self.pids.lock().values().copied().flatten().collect()
    }
}

/// The right to one connection.
struct ConnectionPlace {
    open: Arc<Open>,
    number: u64,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.open.pids.lock().remove(&self.number);
        self.open.places.add_permits(1);
    }
}

impl Connections {
    fn new(max: usize, location: &'static Location<'static>) -> Self {
        // What a semaphore can count.
        let max = max.min(usize::MAX / 8);
        let (places, pids) = (Semaphore::new(max), Mutex::new(BTreeMap::new()));
        let open = Arc::new(Open { max, places, pids });
        Self { open, location, next: 0, is_draining: false }
    }

    /// Waits until there may be one more connection.
    async fn place(&mut self) -> ConnectionPlace {
        if let Ok(permit) = self.open.places.acquire(1).await {
            permit.forget();
        }
        self.enter()
    }

    fn try_place(&mut self) -> Option<ConnectionPlace> {
        self.open.places.try_acquire(1).ok()?.forget();
        Some(self.enter())
    }

    fn enter(&mut self) -> ConnectionPlace {
        let number = self.next;
        self.next += 1;
        self.open.pids.lock().insert(number, None);
        ConnectionPlace { open: Arc::clone(&self.open), number }
    }

    /// Starts the process of a connection. If it is refused, the connection is closed. In a drain,
    /// the process is asked to end.
    fn start<F>(&self, place: ConnectionPlace, peer: Peer, connection: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let number = place.number;
        // A connection counts the requests that it loses.
        let options = SpawnOptions::new().label(format!("http {peer}")).expendable();
        let options = options.called_at(self.location);
        // Not `spawn`: a cancel must not drop it.
        let child = options.try_start(move |_: Context<Infallible>| async move {
            // Dropped: an error concerns only the client and the service, and is no failure here.
            drop(connection.await);
            drop(place);
        });
        let Ok(child) = child else { return };
        if let Some(entry) = self.open.pids.lock().get_mut(&number) {
            *entry = Some(child.pid());
        }
        if self.is_draining {
            child.cancel();
        }
    }

    /// Asks all connections to end. Starts the connections of `waiting` as places become free, and
    /// waits until all have ended.
    async fn drain<A>(&mut self, waiting: Vec<A>, start: impl Fn(&Self, ConnectionPlace, A)) {
        self.is_draining = true;
        self.cancel();
        for accepted in waiting {
            let place = self.place().await;
            start(self, place, accepted);
        }
        drop(self.open.places.acquire(self.open.max).await);
        self.is_draining = false;
    }

    fn cancel(&self) {
        self.open.pids().into_iter().for_each(inner::cancel);
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if !self.is_draining {
            return self.cancel();
        }
        // The server was ended without more time to wait.
        self.open.pids().into_iter().for_each(inner::terminate);
    }
}

/// Accepts connections until the process is cancelled or `until` is complete. Then ends in order.
pub(super) async fn serve<L, S, B>(
    (settings, location): (Arc<Settings>, &'static Location<'static>),
    listener: L,
    service: S,
    until: impl Future<Output = ()>,
) -> io::Result<()>
where
    L: Listener,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let mut connections = Connections::new(settings.limits.connections.get(), location);
    let mut until = pin!(until);
    let start = move |connections: &Connections, place, (stream, peer): (L::Stream, Peer)| {
        let (settings, service) = (Arc::clone(&settings), service.clone());
        connections.start(place, peer, super::serve_stream(settings, stream, Some(peer), service));
    };
    while let Some(place) = unless_told(until.as_mut(), connections.place()).await {
        match unless_told(until.as_mut(), listener.next()).await {
            Some(accepted) => start(&connections, place, accepted?),
            None => break,
        }
    }
    // The clients of these connections may have sent a request. Without a place, a connection waits
    // here instead of in the backlog, so that the listener can close now.
    let (mut waiting, waiting_max) = (Vec::new(), waiting_max());
    for _ in 0..BACKLOG_MAX {
        let place = connections.try_place();
        if place.is_none() && waiting.len() >= waiting_max {
            break;
        }
        let mut next = pin!(listener.next());
        match poll_fn(|task| poll_last(task, |task| next.as_mut().poll(task))).await {
            Some(Ok(accepted)) => match place {
                Some(place) => start(&connections, place, accepted),
                None => waiting.push(accepted),
            },
            Some(Err(_)) | None => break,
        }
    }
    if OwnProcess::get().is_some_and(|own| own.is_in_shutdown()) {
        listener.refuse();
    }
    drop(listener);
    connections.drain(waiting, start).await;
    Ok(())
}

/// Returns the output of a future, or `None` once the running process is cancelled or `until` is
/// complete.
async fn unless_told<F: Future>(
    mut until: Pin<&mut impl Future<Output = ()>>,
    future: F,
) -> Option<F::Output> {
    let own = OwnProcess::get();
    let mut future = pin!(future);
    poll_fn(|task| {
        if is_told(own.as_ref(), task) || until.as_mut().poll(task).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(task).map(Some)
    })
    .await
}
