//! The readiness of the descriptors that processes wait for, and the table that maps the kernel's
//! events to them.
//!
//! # Readiness protocol
//!
//! ## Problem
//! The kernel reports each change of a descriptor once (edge-triggered), to whichever thread polls.
//!
//! - A process calls, finds nothing, and is about to record that. Just then data arrives, and a
//!   worker polls and records that the descriptor is ready. If the process records last, it waits
//!   for data that is there, and the kernel reports no further event.
//! - The same can happen between that record and the moment at which the process leaves its waker.
//! - The kernel may report an event of a descriptor that was closed in the meantime, while its
//!   place in the table already belongs to another descriptor.
//!
//! ## States
//! Each direction of a descriptor has one word, `edges:32 | closed:1 | used up:31`. `edges` counts
//! the events, modulo 2^31. `used up` is the count at which a call found nothing more. The
//! direction is *ready* unless the two are equal, and starts ready. `closed` is set by an event
//! that reports the end of the direction (the peer closed or hung up) or urgent data. It stays set:
//! from then on, a short transfer no longer shows that nothing more is there.
//!
//! The wakers of the waiters are not part of the word, but under a lock. The token of a descriptor
//! is `generation:32 | place:32`. The generation of a place is raised when its descriptor is
//! deregistered.
//!
//! ## Steps
//! Caller:
//! 1. `See`: load the word.
//! 2. If the direction is ready, make the call. If the call finds nothing, `Use`: CAS the count
//!    seen into `used up`, unless `edges` has changed.
//! 3. If the direction is not ready, `Leave` the waker, under the lock, then `LookAgain` at the
//!    word. If it is ready now, start again from `See`.
//!
//! Poller, for each event:
//! 1. `Find` the descriptor by its token, under the table's lock.
//! 2. `Edge`: raise the count.
//! 3. `Take` the wakers, under their lock. They are woken after all locks are released.
//!
//! Deregistration: tell the kernel, then `Remove` the descriptor from the table and raise the
//! generation, under the table's lock, then close it.
//!
//! ## Why it works
//! - `Use` against `Edge`: both change one word. If `Edge` is between `See` and `Use`, `Use` fails
//!   and the word stays ready. If `Edge` is after `Use`, it makes the word ready. Whatever the
//!   kernel knew before the call, the call has seen.
//! - `Leave` against `Take`: if `Take` is second, it finds the waker. If it is first, the lock
//!   orders `Edge` before `LookAgain`.
//! - A late event: its token has the old generation, so `Find` finds nothing. If `Find` is before
//!   `Remove`, the event goes to the old descriptor and its waiters, because the table's lock is
//!   held until the wakers are taken.
//!
//! ## Allowed
//! - A spurious wake-up: the waiter calls, finds nothing, and waits again. One event wakes all
//!   waiters of a direction.
//! - An event is missed by a call during which exactly 2^31 events happen.
//! - A TCP read that returns less than was asked for is taken to have emptied the descriptor
//!   (`epoll(7)`), which saves the call that would confirm it. This holds for no other descriptor:
//!   a read of a Unix stream also ends where descriptors or credentials were sent with the bytes.
//! - A place that has used up its 2^32 - 1 generations stays empty.
//!
//! ## Rejected
//! - One bit for ready or not ready: `Use` cannot distinguish an event before the call from an
//!   event after it. (tokio has a bit and a tick. The tick was once cut to eight bits, and wrapped
//!   around.)
//! - The address of the descriptor's record in the token. This needs no table and no lock, but the
//!   record cannot be freed before the last late event, which the kernel does not announce, and the
//!   code would be unsafe. One acquisition of the lock serves a whole batch.
//! - Prefetching the sources of a batch and the slots of their waiters: no measurable difference
//!   with 1000 connections (`echo_1000`).
//! - Arming for one event at a time (oneshot): about four more system calls per request.
//!
//! ## Checked by
//! `models::set_against_used_up`, `models::late_event_against_reuse`, and their canaries;
//! `it::net`.

#[cfg(all(test, procession_loom))]
mod models;

use std::task::Waker;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use procession_sync::{Arc, Mutex};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("readiness", SOUND);
    /// `Use` ignores events after `See`.
    pub const USE_ANY: u8 = 1;
    /// No `LookAgain` after `Leave`.
    pub const WITHOUT_LOOKING: u8 = 2;
    /// `Find` does not compare generations.
    pub const ANY_GENERATION: u8 = 3;
}

const EDGE: u64 = 1 << 32;
const CLOSED: u64 = 1 << 31;
const USED_UP: u64 = CLOSED - 1;

/// The word of a direction, as a thread has seen it.
#[derive(Clone, Copy, Debug)]
pub struct SeenReadiness(u64);

impl SeenReadiness {
    #[inline]
    fn edges(self) -> u64 {
        (self.0 >> 32) & USED_UP
    }

    /// Returns `true` if an attempt may succeed.
    #[inline]
    pub fn is_ready(self) -> bool {
        self.edges() != self.0 & USED_UP
    }

    #[inline]
    fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    #[inline]
    fn used_up(self) -> Self {
        Self(self.0 & !USED_UP | self.edges())
    }
}

/// Identifies a waiter of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterId(u64);

impl WaiterId {
    /// The waiter that polls without a separate entry. If there are several such waiters, the last
    /// one is woken.
    pub const ANY: Self = Self(0);
}

#[derive(Debug, Default)]
struct DirectionWaiters {
    /// Most directions have at most one waiter.
    first: Option<(WaiterId, Waker)>,
    others: Vec<(WaiterId, Waker)>,
    last: u64,
}

/// One direction of a descriptor: reading or writing.
#[derive(Debug)]
pub struct Direction<const MUTATION: u8 = { mutation::BUILT }> {
    word: AtomicU64,
    waiters: Mutex<DirectionWaiters>,
}

/// The result of leaving a waker.
#[derive(Debug)]
#[must_use]
pub enum WakerLeft {
    /// The waker will be woken. Holds the earlier waker of the same waiter, which it replaced.
    Waits(Option<Waker>),
    /// The direction has become ready: call again. The waker may still be woken.
    Ready(Option<Waker>),
}

impl<const MUTATION: u8> Direction<MUTATION> {
    fn new() -> Self {
        Self { word: AtomicU64::new(EDGE), waiters: Mutex::default() }
    }

    fn change<R>(&self, change: impl FnOnce(&mut DirectionWaiters) -> R) -> R {
        change(&mut self.waiters.lock())
    }

    /// `See`
    #[inline]
    pub fn see(&self) -> SeenReadiness {
        // Ordering: Acquire pairs with the Release of `Edge`: the call that follows sees what the
        // event reports.
        SeenReadiness(self.word.load(Acquire))
    }

    /// `Use`: records that a call after `seen` found nothing more.
    pub fn use_up(&self, seen: SeenReadiness) {
        // Relaxed: publishes nothing but the word itself.
        let mut found = SeenReadiness(self.word.load(Relaxed));
        while mutation::is(MUTATION, mutation::USE_ANY) || found.edges() == seen.edges() {
            match self.word.compare_exchange_weak(found.0, found.used_up().0, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(other) => found = SeenReadiness(other),
            }
        }
    }

    /// `Use` after a short transfer: nothing more is there, except perhaps the end of the stream.
    pub fn use_up_short(&self, seen: SeenReadiness) {
        if !seen.is_closed() {
            self.use_up(seen);
        }
    }

    /// `Leave` and `LookAgain`. Assigns the waiter a number if it has no number yet. The caller
    /// drops the earlier waker.
    pub fn leave(&self, waiter: &mut Option<WaiterId>, waker: Waker) -> WakerLeft {
        let before = self.change(|waiters| {
            let waiter = *waiter.get_or_insert_with(|| {
                waiters.last += 1;
                WaiterId(waiters.last)
            });
            if let Some(place) =
                waiters.first.iter_mut().chain(&mut waiters.others).find(|place| place.0 == waiter)
            {
                return Some(std::mem::replace(&mut place.1, waker));
            }
            match &mut waiters.first {
                free @ None => *free = Some((waiter, waker)),
                Some(_) => waiters.others.push((waiter, waker)),
            }
            None
        });
        if !mutation::is(MUTATION, mutation::WITHOUT_LOOKING) && self.see().is_ready() {
            WakerLeft::Ready(before)
        } else {
            WakerLeft::Waits(before)
        }
    }

    /// Takes back the waker that a waiter left, if it was not woken.
    pub fn forget(&self, waiter: WaiterId) -> Option<Waker> {
        self.change(|waiters| {
            if waiters.first.as_ref().is_some_and(|first| first.0 == waiter) {
                return waiters.first.take();
            }
            let place = waiters.others.iter().position(|other| other.0 == waiter)?;
            Some(waiters.others.swap_remove(place))
        })
        .map(|(_, waker)| waker)
    }

    #[cfg(feature = "tokio")]
    fn is_waited_for(&self) -> bool {
        self.change(|waiters| waiters.first.is_some() || !waiters.others.is_empty())
    }

    /// `Edge` and `Take`.
    fn set(&self, closed: bool, wakers: &mut Vec<Waker>) {
        // Ordering: Release pairs with the Acquire of `See`. At most two read-modify-writes; the
        // first publishes nothing alone.
        if closed {
            self.word.fetch_or(CLOSED, Relaxed);
        }
        self.word.fetch_add(EDGE, AcqRel);
        self.take(wakers);
    }

    /// `Edge`, after the kernel was asked and found the direction ready. Other waiters are woken by
    /// the kernel's own event.
    pub fn note_ready(&self) {
        // Ordering: Release pairs with the Acquire of `See`, as in `set`.
        self.word.fetch_add(EDGE, AcqRel);
    }

    fn take(&self, wakers: &mut Vec<Waker>) {
        self.change(|waiters| {
            wakers.extend(
                waiters
                    .first
                    .take()
                    .into_iter()
                    .chain(waiters.others.drain(..))
                    .map(|(_, waker)| waker),
            );
        });
    }
}

/// The unique name of a registered descriptor. It is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorToken(u64);

impl DescriptorToken {
    #[inline]
    fn new(generation: u32, place: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(place))
    }

    /// Creates the token from the number in an event of the system.
    #[inline]
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the number that the system keeps with the descriptor.
    #[inline]
    pub fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn place(self) -> usize {
        self.0 as u32 as usize
    }
}

/// What the kernel reports about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEvent {
    /// The descriptor of the event.
    pub token: DescriptorToken,
    /// `true` if the descriptor can be read.
    pub read: bool,
    /// `true` if the descriptor can be written.
    pub write: bool,
    /// There will be nothing more to read, or there is urgent data.
    pub read_closed: bool,
    /// Nothing that is written will be read.
    pub write_closed: bool,
}

/// A registered descriptor.
#[derive(Debug)]
pub struct Source<const MUTATION: u8 = { mutation::BUILT }> {
    /// The name of the descriptor in the events of the system.
    pub token: DescriptorToken,
    /// The descriptor while it is registered, for the test clock.
    #[cfg(feature = "tokio")]
    pub descriptor: procession_sync::atomic::AtomicU32,
    /// The readiness to read.
    pub read: Direction<MUTATION>,
    /// The readiness to write.
    pub write: Direction<MUTATION>,
}

/// A place for one descriptor at a time.
#[derive(Debug)]
struct DescriptorPlace<const MUTATION: u8> {
    generation: u32,
    source: Option<Arc<Source<MUTATION>>>,
}

#[derive(Debug)]
struct DescriptorTable<const MUTATION: u8> {
    places: Vec<DescriptorPlace<MUTATION>>,
    free: Vec<u32>,
}

/// The registered descriptors of a scheduler.
#[derive(Debug)]
pub struct Sources<const MUTATION: u8 = { mutation::BUILT }>(Mutex<DescriptorTable<MUTATION>>);

impl<const MUTATION: u8> Sources<MUTATION> {
    /// Creates a table without descriptors.
    pub fn none() -> Self {
        Self(Mutex::new(DescriptorTable { places: Vec::new(), free: Vec::new() }))
    }

    fn change<R>(&self, change: impl FnOnce(&mut DescriptorTable<MUTATION>) -> R) -> R {
        change(&mut self.0.lock())
    }

    /// Adds a descriptor, and assigns it a token that no other descriptor has.
    pub fn add(&self) -> Arc<Source<MUTATION>> {
        self.change(|table| {
            let number = table.free.pop().unwrap_or_else(|| {
                table.places.push(DescriptorPlace { generation: 0, source: None });
                // The index fits: the system counts descriptors in 31 bits.
                (table.places.len() - 1) as u32
            });
            let place = &mut table.places[number as usize];
            let token = DescriptorToken::new(place.generation, number);
            let source = Arc::new(Source {
                token,
                #[cfg(feature = "tokio")]
                descriptor: procession_sync::atomic::AtomicU32::new(0),
                read: Direction::new(),
                write: Direction::new(),
            });
            place.source = Some(Arc::clone(&source));
            source
        })
    }

    /// Returns `true` if a waker is left for one of the descriptors that `which` selects.
    #[cfg(feature = "tokio")]
    pub fn any_waited_for(&self, which: impl Fn(i32) -> bool) -> bool {
        let waited = self.change(|table| {
            let sources = table.places.iter().filter_map(|place| place.source.as_ref());
            let waited = sources
                .filter(|source| source.read.is_waited_for() || source.write.is_waited_for());
            waited.map(|source| source.descriptor.load(Relaxed).cast_signed()).collect::<Vec<_>>()
        });
        waited.into_iter().any(which)
    }

    /// `Remove`. Waiters that are left are found by no event from now on: the caller owns the
    /// descriptor, and no process waits for it.
    pub fn remove(&self, token: DescriptorToken) {
        let removed = self.change(|table| {
            let place = &mut table.places[token.place()];
            if place.generation != token.generation() {
                return None;
            }
            let removed = place.source.take();
            // No descriptor gets the last generation: the token of the bell has it.
            if place.generation < u32::MAX - 1 {
                place.generation += 1;
                table.free.push(token.place() as u32);
            }
            removed
        });
        drop(removed);
    }

    /// `Find`, `Edge` and `Take` for a batch of events. The caller wakes the wakers.
    pub fn set_ready(&self, events: &[ReadyEvent], wakers: &mut Vec<Waker>) {
        self.change(|table| {
            for event in events {
                let place = table.places.get(event.token.place());
                let place = place.filter(|place| {
                    mutation::is(MUTATION, mutation::ANY_GENERATION)
                        || place.generation == event.token.generation()
                });
                let Some(source) = place.and_then(|place| place.source.as_ref()) else { continue };
                if event.read {
                    source.read.set(event.read_closed, wakers);
                }
                if event.write {
                    source.write.set(event.write_closed, wakers);
                }
            }
        });
    }

    /// Takes the wakers of all waiters.
    pub fn take_all(&self, wakers: &mut Vec<Waker>) {
        self.change(|table| {
            for source in table.places.iter().filter_map(|place| place.source.as_ref()) {
                source.read.take(wakers);
                source.write.take(wakers);
            }
        });
    }

    /// Returns the number of registered descriptors.
    pub fn len(&self) -> usize {
        self.change(|table| table.places.iter().filter(|place| place.source.is_some()).count())
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    fn event(source: &Source, closed: bool) -> ReadyEvent {
        ReadyEvent {
            token: source.token,
            read: true,
            write: false,
            read_closed: closed,
            write_closed: false,
        }
    }

    #[test]
    fn a_direction_is_ready_until_it_is_used_up() {
        let sources: Sources = Sources::none();
        let source = sources.add();
        let before = source.read.see();
        assert!(before.is_ready(), "the first call is tried");
        source.read.use_up(before);
        assert!(!source.read.see().is_ready());
        sources.set_ready(&[event(&source, false)], &mut Vec::new());
        assert!(source.read.see().is_ready());
        assert!(source.write.see().is_ready(), "the other direction is its own");
        source.read.use_up(before);
        assert!(source.read.see().is_ready(), "what was seen before the event says nothing of it");
    }

    #[test]
    fn a_short_read_does_not_hide_the_end() {
        let sources: Sources = Sources::none();
        let source = sources.add();
        sources.set_ready(&[event(&source, true)], &mut Vec::new());
        source.read.use_up_short(source.read.see());
        assert!(source.read.see().is_ready());
        source.read.use_up(source.read.see());
        assert!(!source.read.see().is_ready(), "the call itself says that nothing is there");
    }

    #[test]
    fn an_event_takes_all_wakers_and_a_waiter_leaves_one() {
        let sources: Sources = Sources::none();
        let source = sources.add();
        source.read.use_up(source.read.see());
        let (mut any, mut waiter) = (Some(WaiterId::ANY), None);
        for _ in 0..2 {
            for waiter in [&mut any, &mut waiter] {
                assert!(matches!(
                    source.read.leave(waiter, Waker::noop().clone()),
                    WakerLeft::Waits(_)
                ));
            }
        }
        let mut wakers = Vec::new();
        sources.set_ready(&[event(&source, false)], &mut wakers);
        assert_eq!(wakers.len(), 2);
        let number = waiter.expect("it was given one");
        assert!(source.read.forget(number).is_none());
        assert!(matches!(
            source.read.leave(&mut waiter, Waker::noop().clone()),
            WakerLeft::Ready(None)
        ));
        assert!(source.read.forget(number).is_some());
    }

    #[test]
    fn an_old_token_finds_nobody() {
        let sources: Sources = Sources::none();
        let old = sources.add();
        let late = event(&old, true);
        sources.remove(old.token);
        let new = sources.add();
        assert_eq!(
            (sources.len(), new.token.place()),
            (1, late.token.place()),
            "the place is used again"
        );
        new.read.use_up(new.read.see());
        sources.set_ready(&[late], &mut Vec::new());
        sources.remove(late.token);
        assert!(!new.read.see().is_ready());
        assert_eq!(sources.len(), 1);
    }

    #[test]
    fn edges_come_round() {
        let direction: Direction =
            Direction { word: AtomicU64::new(u64::MAX << 32 | USED_UP), waiters: Mutex::default() };
        assert!(!direction.see().is_ready());
        direction.set(false, &mut Vec::new());
        assert!(direction.see().is_ready());
        direction.use_up(direction.see());
        assert!(!direction.see().is_ready());
    }
}
