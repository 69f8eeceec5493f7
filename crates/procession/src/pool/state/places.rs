//! Places that are reserved, and those who wait for one.

use std::task::Waker;

use super::busy::Busy;
use super::outcome::Verdict;
use crate::sync::wait_list::{Another, Place, Waiters, Who};

/// Somebody who waits for a place.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) verdict: Option<Verdict>,
    /// The worker whose job waits, if it waits without a limit of time.
    pub(super) own: Option<Busy>,
}

/// The places of a pool that are spoken for.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) open: bool,
    pub(super) generation: u64,
    pub(super) reserved: usize,
    waiters: Waiters<Wish>,
    pub(super) waiting: usize,
}

impl Places {
    pub(super) fn new() -> Self {
        Self { open: true, generation: 0, reserved: 0, waiters: Waiters::new(), waiting: 0 }
    }

    /// Whether the next place is for somebody who waits.
    pub(super) fn are_awaited(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Reserves a place; its generation.
    pub(super) fn reserve(&mut self) -> u64 {
        self.reserved += 1;
        self.generation
    }

    /// Uses a reserved place, or gives it back; says whether it was valid.
    pub(super) fn unreserve(&mut self, generation: u64) -> bool {
        let valid = self.open && generation == self.generation;
        self.reserved -= usize::from(valid);
        valid
    }

    pub(super) fn enlist(&mut self, waker: Waker, own: Option<Busy>) -> Place {
        self.waiting += 1;
        self.waiters.push(Who::Alone(waker), Wish { verdict: None, own })
    }

    /// Whether who waits was served; if so, frees his place in the list.
    pub(super) fn served(&mut self, place: &mut Option<Place>, another: &mut Another<'_>) -> Option<Verdict> {
        let waiting = place.take()?;
        if self.waiters.is_served(&waiting) {
            return self.waiters.remove(waiting).0.verdict;
        }
        self.waiters.renew(&waiting, another);
        *place = Some(waiting);
        None
    }

    /// Serves the first who waits: his waker, and the worker whose job waits.
    pub(super) fn serve(&mut self, verdict: Verdict) -> Option<(Who, Option<Busy>)> {
        let served = self.waiters.serve(|wish| {
            wish.verdict = Some(verdict);
            wish.own.take()
        })?;
        self.waiting -= 1;
        Some(served)
    }

    /// Takes somebody out of the list.
    pub(super) fn remove(&mut self, place: Place) -> (Wish, Option<Who>) {
        let (wish, who) = self.waiters.remove(place);
        self.waiting -= usize::from(wish.verdict.is_none());
        (wish, who)
    }

    /// Takes no more jobs, and makes reservations void. Says whether it did until now.
    pub(super) fn close(&mut self) -> bool {
        let was_open = std::mem::replace(&mut self.open, false);
        if was_open {
            self.generation += 1;
            self.reserved = 0;
        }
        was_open
    }
}
