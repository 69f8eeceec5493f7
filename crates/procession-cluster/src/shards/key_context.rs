//! The process of a key.

use std::fmt;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use procession::Exit;
use procession::mailbox::request::work_for;
use procession::process::{cancelled, exit, until_cancelled};
use procession::sync::Notify;
use procession::time::{Instant, sleep_until};
use serde_core::Serialize;
use serde_core::de::DeserializeOwned;

use super::router::{Portable, Router};
use super::slot::{Ended, Envelope, Key, Taken};
use crate::serialize::{from_term, to_term};
use crate::term::Term;
use crate::term::decode::Reader;

/// The bytes that the term of a key may take in memory.
const KEY_MEMORY: usize = 1 << 20;

/// The context of the process of a key: the key, the state of the previous process, and the
/// messages.
pub struct KeyContext<K, M, S> {
    key: K,
    state: Option<S>,
    place: Arc<Place<M>>,
    is_cancelled: bool,
}

impl<K, M, S> KeyContext<K, M, S> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Takes the state that the previous process of the key has returned. There is a state if the
    /// key has moved, or if messages were left when the previous process ended. Later calls
    /// return `None`.
    pub fn take_state(&mut self) -> Option<S> {
        self.state.take()
    }
}

impl<K, M, S> KeyContext<K, M, S>
where
    M: Serialize + DeserializeOwned + Send + 'static,
{
    /// Waits for the next message. Returns `None` if the process should end, because no message
    /// came for the [idle time](super::ShardsBuilder::idle), the key moves to another node, the
    /// process is cancelled, or the shards stop. It returns all accepted messages before that. The
    /// process works for the [request](procession::mailbox::request) of the message then.
    ///
    /// # Cancellation
    /// If the future is dropped, no message is lost.
    pub async fn recv(&mut self) -> Option<M> {
        let Place { router, number, key, process } = &*self.place;
        let until = Instant::now() + router.limits.idle;
        let (mut time, mut cancel) = (pin!(sleep_until(until)), pin!(cancelled()));
        loop {
            let mut woken = pin!(process.notified());
            woken.as_mut().enable();
            let gives_up = Instant::now() >= until;
            match router.take(*number, key, process, (gives_up, self.is_cancelled)) {
                Taken::Message(Envelope { request, message, .. }) => {
                    work_for(request);
                    return Some(message);
                }
                Taken::End => return None,
                Taken::Wait => work_for(None),
            }
            // While the shard waits for an earlier home, only a message ends the wait.
            let is_cancelled = poll_fn(|task| {
                if !self.is_cancelled && cancel.as_mut().poll(task).is_ready() {
                    return Poll::Ready(true);
                }
                let is_late = !gives_up && time.as_mut().poll(task).is_ready();
                match woken.as_mut().poll(task) {
                    Poll::Pending if !is_late => Poll::Pending,
                    _ => Poll::Ready(false),
                }
            });
            self.is_cancelled |= is_cancelled.await;
        }
    }
}

impl<K: fmt::Debug, M, S> fmt::Debug for KeyContext<K, M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyContext").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The place of a process among the keys of its node.
pub(super) struct Place<M> {
    pub(super) router: Arc<Router<M>>,
    pub(super) number: u32,
    pub(super) key: Key,
    /// Wakes the process, and tells it from others of the key.
    pub(super) process: Arc<Notify>,
}

/// Notes the end of the process of a key, also if it fails, is killed, or was not started.
pub(super) struct Ending<M: Portable> {
    place: Arc<Place<M>>,
    ended: (Option<Term>, Ended),
}

impl<M: Portable> Ending<M> {
    /// `state` is the state of the previous process.
    pub(super) fn new(place: Place<M>, state: Option<Term>) -> Self {
        Self { place: Arc::new(place), ended: (state, Ended::Unstarted) }
    }

    /// Runs the process.
    pub(super) async fn run<K, S, P>(mut self, process: impl FnOnce(KeyContext<K, M, S>) -> P)
    where
        K: DeserializeOwned,
        S: Serialize + DeserializeOwned,
        P: Future<Output = Option<S>>,
    {
        let (state, _) = std::mem::replace(&mut self.ended, (None, Ended::Failed));
        let key = Reader::new(&self.place.key, &[], KEY_MEMORY).last_term().ok();
        let Some(key) = key.and_then(|key| from_term(key).ok()) else {
            exit(Exit::failed("the key cannot be read"))
        };
        let state = match state.map(from_term).transpose() {
            Ok(state) => state,
            Err(error) => exit(Exit::failed(format!("the state cannot be read: {error}"))),
        };
        let place = Arc::clone(&self.place);
        let state = process(KeyContext { key, state, place, is_cancelled: false }).await;
        let state = state.map(|state| to_term(&state)).transpose();
        let is_cancelled = until_cancelled(ready(())).await.is_none();
        self.ended = match state {
            Ok(state) if is_cancelled => (state, Ended::Cancelled),
            Ok(state) => (state, Ended::Returned),
            Err(error) => exit(Exit::failed(format!("the state has no term: {error}"))),
        };
    }
}

impl<M: Portable> Drop for Ending<M> {
    fn drop(&mut self) {
        let ended = std::mem::replace(&mut self.ended, (None, Ended::Failed));
        let Place { router, number, key, process } = &*self.place;
        router.end(*number, key, process, ended);
    }
}
