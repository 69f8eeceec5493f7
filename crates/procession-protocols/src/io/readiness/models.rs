//! Models of the readiness protocol, each with canaries.

use std::sync::Arc as StdArc;
use std::task::{Wake, Waker};

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{AcqRel, Relaxed};
use procession_sync::{Arc, explore, thread};

use super::mutation::{self, SOUND};
use super::{ReadyEvent, Source, Sources, WaiterId, WakerLeft};

/// A waker that records that it was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: StdArc<Self>) {
        self.0.swap(true, AcqRel);
    }
}

fn readable<const MUTATION: u8>(source: &Source<MUTATION>) -> ReadyEvent {
    ReadyEvent {
        token: source.token,
        read: true,
        write: false,
        read_closed: false,
        write_closed: false,
    }
}

/// Data arrives and is reported while a process finds nothing and waits.
fn set<const MUTATION: u8>() {
    explore(|| {
        let sources = Arc::new(Sources::<MUTATION>::none());
        let source = sources.add();
        let data = Arc::new(AtomicBool::new(false));
        let woken = StdArc::new(Woken(AtomicBool::new(false)));
        let poller = {
            let (sources, event, data) =
                (Arc::clone(&sources), readable(&source), Arc::clone(&data));
            thread::spawn(move || {
                // Relaxed: the kernel orders this before the event, and the model has no kernel;
                // the swaps meet.
                data.swap(true, Relaxed);
                let mut wakers = Vec::new();
                sources.set_ready(&[event], &mut wakers);
                wakers.into_iter().for_each(Waker::wake);
            })
        };
        // Two rounds: one more if the direction has become ready during the first.
        let mut waits = false;
        for _ in 0..2 {
            let seen = source.read.see();
            if seen.is_ready() {
                if data.swap(false, Relaxed) {
                    waits = false;
                    break;
                }
                source.read.use_up(seen);
            }
            waits = matches!(
                source.read.leave(&mut Some(WaiterId::ANY), Waker::from(StdArc::clone(&woken))),
                WakerLeft::Waits(_)
            );
            if waits {
                break;
            }
        }
        poller.join().expect("the poller does not panic");
        if waits && data.swap(false, Relaxed) {
            assert!(woken.0.swap(true, AcqRel), "it waits for what is there");
            assert!(source.read.see().is_ready(), "it is woken, and finds it not ready");
        }
    });
}

/// A descriptor is deregistered, and its place reused, while an event of the old one is on its way.
fn reuse<const MUTATION: u8>() {
    explore(|| {
        let sources = Arc::new(Sources::<MUTATION>::none());
        let old = sources.add();
        let poller = {
            let (sources, event) = (Arc::clone(&sources), readable(&old));
            thread::spawn(move || sources.set_ready(&[event], &mut Vec::new()))
        };
        sources.remove(old.token);
        let new = sources.add();
        assert_eq!(new.token.place(), old.token.place(), "the place is used again");
        new.read.use_up(new.read.see());
        poller.join().expect("the poller does not panic");
        assert!(!new.read.see().is_ready(), "the new descriptor got the event of the old one");
    });
}

#[test]
fn set_against_used_up() {
    set::<SOUND>();
}

#[test]
#[should_panic(expected = "it waits for what is there")]
fn canary_use_any() {
    set::<{ mutation::USE_ANY }>();
}

#[test]
#[should_panic(expected = "it waits for what is there")]
fn canary_without_looking() {
    set::<{ mutation::WITHOUT_LOOKING }>();
}

#[test]
fn late_event_against_reuse() {
    reuse::<SOUND>();
}

#[test]
#[should_panic(expected = "the new descriptor got the event of the old one")]
fn canary_any_generation() {
    reuse::<{ mutation::ANY_GENERATION }>();
}
