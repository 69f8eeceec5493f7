//! The models of the parking protocol.

use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Arc, explore, explore_to, thread};

use super::TakenBack;
use super::coming::LATE;
use crate::scheduler::idle::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

/// One worker parks while another thread publishes. Only the decisions are modelled: if the worker
/// would block, the publisher must have claimed it.
fn publish<const MUTATION: u8, const RECHECK: bool>() {
    explore(|| {
        let shared = Arc::new((Idle::<MUTATION>::new(1, 1, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // Relaxed: only the fences order queue and word, as for a queue's own operations.
                shared.1.store(1, Relaxed);
                shared.0.claim_one().is_some()
            })
        };
        let found = shared.0.start_searching() && {
            let found = shared.1.load(Relaxed) == 1;
            if found {
                shared.0.stop_searching();
            }
            found
        };
        let blocks = !found && {
            shared.0.announce(SeatId(0), true);
            let late = RECHECK && shared.1.load(Relaxed) == 1;
            !(late && shared.0.take_back(SeatId(0), false) != TakenBack::ByWaker)
        };
        let woken = publisher.join().expect("the publisher does not panic");
        assert!(!blocks || woken, "the wake-up was lost");
    });
}

/// A searcher finds work and leaves the search while another worker publishes.
fn leave<const MUTATION: u8, const LOOK: bool>() {
    explore(|| {
        let shared = Arc::new((Idle::<MUTATION>::new(3, 3, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the publisher's worker is awake");
        assert!(shared.0.claim_this(SeatId(1)), "so is the other, which searches");
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.store(1, Relaxed);
                shared.0.claim_one().is_some()
            })
        };
        let queued = shared.0.leave_search(|| LOOK && shared.1.load(Relaxed) == 1);
        let wakes = queued == Some(true) && shared.0.claim_one().is_some();
        let woken = publisher.join().expect("the publisher does not panic");
        assert!(wakes || woken, "the wake-up was lost");
    });
}

#[test]
fn publish_against_leave() {
    leave::<{ mutation::SOUND }, true>();
}

#[test]
#[should_panic(expected = "the wake-up was lost")]
fn canary_leave_without_fence() {
    leave::<{ mutation::WITHOUT_FENCE }, true>();
}

#[test]
#[should_panic(expected = "the wake-up was lost")]
fn canary_leave_without_a_look() {
    leave::<{ mutation::SOUND }, false>();
}

/// One worker parks while another thread queues an entry that only that worker can run.
fn bound<const RECHECK: bool>() {
    explore(|| {
        let shared = Arc::new((Idle::<{ mutation::SOUND }>::new(1, 1, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.store(1, Relaxed);
                shared.0.claim_this(SeatId(0))
            })
        };
        let found = shared.1.load(Relaxed) == 1;
        let blocks = !found && {
            shared.0.announce(SeatId(0), false);
            let late = RECHECK && shared.1.load(Relaxed) == 1;
            !(late && shared.0.take_back(SeatId(0), true) == TakenBack::Yes)
        };
        let woken = waker.join().expect("the waker does not panic");
        assert!(!blocks || woken, "the wake-up was lost");
    });
}

/// A worker naps, and without a permit looks once more before it parks without a timeout. At the
/// same time, another worker publishes the only entry in its own deque. With `LATE`, the nap lasts
/// until the worker has looked.
fn nap<const MUTATION: u8, const LATE: bool>() {
    explore(|| {
        let shared = Arc::new((Idle::<MUTATION>::new(2, 2, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the publisher's worker is awake");
        assert!(shared.0.claim_this(SeatId(1)), "so is the other, which searches");
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.store(1, Relaxed);
                shared.0.claim_one_unless_napping().is_some()
            })
        };
        let nap = shared.0.nap();
        shared.0.announce(SeatId(1), true);
        let nap = LATE.then_some(nap);
        // The time of the nap is over.
        let found = shared.1.load(Relaxed) == 1;
        drop(nap);
        let woken = publisher.join().expect("the publisher does not panic");
        assert!(found || woken, "the wake-up was lost");
    });
}

#[test]
fn nap_against_publish() {
    nap::<{ mutation::SOUND }, false>();
}

#[test]
#[should_panic(expected = "the wake-up was lost")]
fn canary_nap_to_the_end() {
    nap::<{ mutation::SOUND }, true>();
}

#[test]
#[should_panic(expected = "the wake-up was lost")]
fn canary_nap_without_fence() {
    nap::<{ mutation::WITHOUT_FENCE }, false>();
}

#[test]
fn bound_wake_against_park() {
    bound::<true>();
}

#[test]
#[should_panic(expected = "the wake-up was lost")]
fn canary_bound_without_recheck() {
    bound::<false>();
}

/// A thread that has begun coroutines leaves the callers' seat, while a coroutine is woken and
/// another thread tries to take the seat.
fn keep_seat<const KEPT: bool>() {
    explore(|| {
        let shared = Arc::new((Idle::<{ mutation::SOUND }>::new(1, 1, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the first thread has taken its seat");
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.store(1, Relaxed);
                let claimed = shared.0.claim_this(SeatId(0));
                (claimed, shared.0.claim_absent(2).is_some())
            })
        };
        shared.0.leave(SeatId(0), true, u64::from(KEPT));
        let (claimed, sits) = other.join().expect("the other does not panic");
        assert!(!claimed, "a seat that is absent is not parked");
        assert!(!sits, "a coroutine would run on another thread");
        assert!(
            shared.0.claim_absent(1).is_some() && shared.1.load(Relaxed) == 1,
            "the first finds it"
        );
    });
}

#[test]
fn leaving_against_a_bound_wake() {
    keep_seat::<true>();
}

#[test]
#[should_panic(expected = "a coroutine would run on another thread")]
fn canary_seat_for_anybody() {
    keep_seat::<false>();
}

/// A thread claims a parked seat, and is slow to wake its worker. The worker wakes by itself,
/// parks, and leaves. The system refuses a thread for the seat.
fn start<const MUTATION: u8>() {
    explore(|| {
        // Whether a thread is in the seat.
        let shared = Arc::new((Idle::<MUTATION>::new(3, 1, false), AtomicU32::new(1)));
        for seat in [SeatId(1), SeatId(2), SeatId(0)] {
            assert!(shared.0.claim_this(seat) && shared.0.come(seat), "it is vacant");
            shared.0.announce(seat, true);
        }
        let claimer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert_eq!(shared.0.claim(), Some(SeatId(0)), "it parked last");
                // Relaxed: in `wake_seat`, a lock orders it.
                let is_vacant = shared.1.fetch_add(0, Relaxed) == 0;
                if is_vacant && shared.0.begin_start(SeatId(0)) {
                    shared.0.decline(SeatId(0));
                }
            })
        };
        if shared.0.come(SeatId(0)) {
            shared.0.announce(SeatId(0), true);
            assert!(shared.0.retire(SeatId(0)), "there are too many threads");
            shared.1.store(0, Relaxed);
            shared.0.leave(SeatId(0), false, 0);
            claimer.join().expect("the claimer does not panic");
            assert_eq!(shared.0.counts().0, 0, "a worker that has left counts as searching");
        } else {
            claimer.join().expect("the claimer does not panic");
        }
    });
}

#[test]
fn start_against_leave() {
    start::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a worker that has left counts as searching")]
fn canary_start_blindly() {
    start::<{ mutation::START_BLINDLY }>();
}

/// A worker parks, and finds in its `Recheck` an entry that was queued before. At the same time,
/// another thread asks whether all is idle.
fn survey<const MUTATION: u8>() {
    explore(|| {
        // Whether the entry is queued, and whether it has run.
        let shared =
            Arc::new((Idle::<MUTATION>::new(1, 1, true), AtomicU32::new(1), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
        shared.0.announce(SeatId(0), false);
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert_eq!(
                    shared.0.take_back(SeatId(0), false),
                    TakenBack::Yes,
                    "nobody claims it"
                );
                // Relaxed: the lock orders it.
                shared.1.fetch_sub(1, Relaxed);
                shared.2.fetch_add(1, Relaxed);
            })
        };
        if shared.0.all_parked_and(|| shared.1.fetch_add(0, Relaxed) == 0) {
            assert_eq!(shared.2.fetch_add(0, Relaxed), 1, "it was called idle while a process ran");
        }
        worker.join().expect("the worker does not panic");
    });
}

/// Two parked workers. One finds all parked, and checks whether the test clock may move to a far
/// deadline. The other finds the near timer due, fires it, leaves something outstanding, and parks
/// again.
fn advance<const LOOKS_AGAIN: bool>() {
    explore_to(3, || {
        // Whether the near timer is there, and what is outstanding.
        let shared = Arc::new((
            Idle::<{ mutation::SOUND }>::new(2, 2, true),
            AtomicU32::new(1),
            AtomicU32::new(0),
        ));
        assert!(shared.0.claim_absent(1).is_some(), "the first has taken its seat");
        assert!(shared.0.claim_this(SeatId(1)), "the second is awake");
        shared.0.announce(SeatId(0), false);
        shared.0.announce(SeatId(1), true);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.0.take_back(SeatId(1), false) == TakenBack::Yes {
                    // Relaxed: the lock orders it.
                    shared.1.store(0, Relaxed);
                    shared.2.store(1, Relaxed);
                    shared.0.announce(SeatId(1), true);
                }
            })
        };
        if let Some(awakenings) = shared.0.take_back_if_all_parked(SeatId(0)) {
            let nothing_comes = shared.2.load(Relaxed) == 0;
            let is_far = shared.1.load(Relaxed) == 0;
            let is_alone = !LOOKS_AGAIN || shared.0.is_alone_since(awakenings);
            assert!(
                !(nothing_comes && is_far && is_alone),
                "the clock went on while something was on its way"
            );
        }
        other.join().expect("the other does not panic");
    });
}

#[test]
fn advance_against_take_back() {
    advance::<true>();
}

#[test]
#[should_panic(expected = "the clock went on while something was on its way")]
fn canary_advance_without_looking_again() {
    advance::<false>();
}

/// Two seats are claimed. One worker never runs; the other searches, finds nothing, and parks. At
/// the same time, a worker publishes, and the watchdog looks.
fn never_comes<const MUTATION: u8, const RECHECK: bool>() {
    explore(|| {
        let shared = Arc::new((Idle::<MUTATION>::new(4, 4, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the publisher's worker is awake");
        for seat in [1, 2] {
            assert_eq!(shared.0.claim(), Some(SeatId(seat)));
            shared.0.note_waking(SeatId(seat), 0);
        }
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // Relaxed: only the fences order queue and word, as for a queue's own operations.
                shared.1.store(1, Relaxed);
                shared.0.claim_one().is_some()
            })
        };
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert!(shared.0.come(SeatId(2)), "it was claimed");
                shared.0.announce(SeatId(2), true);
                shared.1.load(Relaxed) == 1
            })
        };
        let is_late = shared.0.write_off(LATE) > 0;
        let rescued =
            RECHECK && is_late && shared.1.load(Relaxed) == 1 && shared.0.claim_one().is_some();
        let woken = publisher.join().expect("the publisher does not panic");
        let found = worker.join().expect("the worker does not panic");
        assert!(rescued || woken || found, "the entry waits for one that never comes");
    });
}

/// A seat is claimed, and its worker executes `Come` while the watchdog writes the seat off.
/// Another worker searches all the time.
fn come_late<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new(Idle::<MUTATION>::new(3, 3, true));
        assert!(shared.claim_absent(1).is_some() && shared.start_searching(), "one searches");
        assert_eq!(shared.claim(), Some(SeatId(1)));
        shared.note_waking(SeatId(1), 0);
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || assert!(shared.come(SeatId(1)), "it was claimed"))
        };
        shared.write_off(LATE);
        worker.join().expect("the worker does not panic");
        assert_eq!(shared.counts().0, 2, "the word does not count those who search");
    });
}

#[test]
fn publish_beside_one_that_never_comes() {
    never_comes::<{ mutation::SOUND }, true>();
}

#[test]
#[should_panic(expected = "the entry waits for one that never comes")]
fn canary_write_off_without_fence() {
    never_comes::<{ mutation::WRITE_OFF_WITHOUT_FENCE }, true>();
}

#[test]
#[should_panic(expected = "the entry waits for one that never comes")]
fn canary_write_off_without_recheck() {
    never_comes::<{ mutation::SOUND }, false>();
}

#[test]
fn come_against_write_off() {
    come_late::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "the word does not count those who search")]
fn canary_come_uncounted() {
    come_late::<{ mutation::COME_UNCOUNTED }>();
}

#[test]
fn survey_against_recheck() {
    survey::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "it was called idle while a process ran")]
fn canary_survey_in_two() {
    survey::<{ mutation::SURVEY_IN_TWO }>();
}

#[test]
fn publish_against_park() {
    publish::<{ mutation::SOUND }, true>();
}

#[test]
#[should_panic(expected = "the wake-up was lost")]
fn canary_without_recheck() {
    publish::<{ mutation::SOUND }, false>();
}

#[test]
#[should_panic(expected = "the wake-up was lost")]
fn canary_without_fence() {
    publish::<{ mutation::WITHOUT_FENCE }, true>();
}
