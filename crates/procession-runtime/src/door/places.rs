//! The connections of a door: how many there may be, and which connection is closed if there are
//! more.
//!
//! The two ways into a door are counted apart, so that neither can close the other: anybody on this
//! machine can connect by TCP. A connection first *arrives*. It is *admitted* once its request has
//! passed all checks, and only connections that were admitted take one of the few places. If more
//! connections arrive than are allowed, the oldest arrival is closed, because a client that knows
//! the door sends its request immediately.

use std::collections::VecDeque;
use std::sync::Arc;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::JoinHandle;

/// The maximum number of connections of one way with requests that are answered concurrently.
pub(super) const ADMITTED_MAX: usize = 8;
/// The maximum number of connections of one way that were not admitted, including connections that
/// are being refused.
const ARRIVALS_MAX: usize = 32;

/// The connections of one way.
#[derive(Default)]
pub(super) struct DoorPlaces {
    admitted: AtomicUsize,
    arrivals: Mutex<Arrivals>,
}

#[derive(Default)]
struct Arrivals {
    /// The number of the next connection.
    next: u64,
    /// The processes of the connections that were not admitted, the oldest first. A connection that
    /// is about to be started has no process yet.
    waiting: VecDeque<(u64, Option<JoinHandle<()>>)>,
}

impl Arrivals {
    fn take(&mut self, number: u64) -> Option<(u64, Option<JoinHandle<()>>)> {
        let at = self.waiting.iter().position(|(other, _)| *other == number)?;
        self.waiting.remove(at)
    }
}

/// A connection of a door. Dropping it releases its place.
pub(super) struct Entrant {
    places: Arc<DoorPlaces>,
    number: u64,
    is_admitted: bool,
}

impl Entrant {
    /// Counts a connection that arrives. If the limit is exceeded, closes the oldest arrival.
    pub(super) fn new(places: &Arc<DoorPlaces>) -> Self {
        let mut arrivals = places.arrivals.lock();
        let is_full = arrivals.waiting.len() >= ARRIVALS_MAX;
        let oldest = if is_full { arrivals.waiting.pop_front() } else { None };
        let number = arrivals.next;
        arrivals.next += 1;
        arrivals.waiting.push_back((number, None));
        drop(arrivals);
        if let Some((_, Some(process))) = oldest {
            process.cancel();
        }
        Self { places: Arc::clone(places), number, is_admitted: false }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Takes a place for a request that has passed all checks. Returns `false` if there is none.
    pub(super) fn admit(&mut self) -> bool {
        let places = &self.places;
        // Relaxed: only the number matters, and all accesses are on one worker.
        if places.admitted.fetch_add(1, Relaxed) >= ADMITTED_MAX {
            places.admitted.fetch_sub(1, Relaxed);
            return false;
        }
        self.is_admitted = true;
        let own = places.arrivals.lock().take(self.number);
        drop(own);
        true
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        let places = &self.places;
        if self.is_admitted {
            places.admitted.fetch_sub(1, Relaxed);
        } else {
            let own = places.arrivals.lock().take(self.number);
            drop(own);
        }
    }
}

impl DoorPlaces {
    /// Notes the process of a connection, unless the connection has ended.
    pub(super) fn attach(&self, number: u64, process: JoinHandle<()>) {
        let mut arrivals = self.arrivals.lock();
        if let Some((_, place)) = arrivals.waiting.iter_mut().find(|(other, _)| *other == number) {
            *place = Some(process);
        }
    }
}
