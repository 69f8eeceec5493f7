//! The models of the permit protocol, and of the seam between it and the parking protocol.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};
use procession_sync::{Arc, explore, thread};

use crate::scheduler::idle::parking::TakenBack;
use crate::scheduler::idle::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

/// Two seats and one permit. A worker's step blocks, while another thread publishes.
fn give_back<const MUTATION: u8, const RECHECK: bool>() {
    explore(|| {
        let shared = Arc::new((Idle::<MUTATION>::new(2, 1, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // Relaxed: only the fences order queue and word, as for a queue's own operations.
                shared.1.store(1, Relaxed);
                shared.0.claim_one().is_some()
            })
        };
        assert!(shared.0.give_back(SeatId(0)), "nobody else is awake");
        let substituted = RECHECK && shared.1.load(Relaxed) == 1 && shared.0.claim_one().is_some();
        let woken = publisher.join().expect("the publisher does not panic");
        assert!(substituted || woken, "the entry waits for the one who blocks");
    });
}

#[test]
fn publish_against_give_back() {
    give_back::<{ mutation::SOUND }, true>();
}

#[test]
#[should_panic(expected = "the entry waits for the one who blocks")]
fn canary_give_back_without_fence() {
    give_back::<{ mutation::GIVE_BACK_WITHOUT_FENCE }, true>();
}

#[test]
#[should_panic(expected = "the entry waits for the one who blocks")]
fn canary_give_back_without_recheck() {
    give_back::<{ mutation::SOUND }, false>();
}

/// A worker ends its step and parks, while the watchdog takes its permit.
fn revoke<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new(Idle::<MUTATION>::new(3, 2, true));
        assert!(shared.claim_absent(1).is_some(), "the worker has taken its seat");
        assert!(shared.claim_this(SeatId(1)), "another is awake");
        let watchdog = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.give_back(SeatId(0));
            })
        };
        if !shared.is_revoked(SeatId(0)) || !shared.regain(SeatId(0), false) {
            shared.announce(SeatId(0), false);
        }
        watchdog.join().expect("the watchdog does not panic");
        let (_, awake, spare) = shared.counts();
        let parked = u32::from(!shared.come(SeatId(0)));
        assert_eq!((awake + parked, spare), (2, parked), "a permit was given up twice");
    });
}

#[test]
fn park_against_revoke() {
    revoke::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a permit was given up twice")]
fn canary_given_up_twice() {
    revoke::<{ mutation::GIVEN_UP_TWICE }>();
}

/// Two seats and one permit. One worker has no permit, finds an entry, and sleeps. The other has
/// the permit, and blocks.
#[test]
fn park_without_permit_against_the_last_to_block() {
    explore(|| {
        let shared = Arc::new((Idle::<{ mutation::SOUND }>::new(2, 1, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the first has the permit");
        shared.0.give_back(SeatId(0));
        assert_eq!(shared.0.claim_one(), Some(SeatId(1)), "now the second has");
        shared.0.stop_searching();
        let first = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // The entry of its LIFO slot.
                shared.1.store(1, Relaxed);
                if shared.0.regain(SeatId(0), false) || shared.0.claim_one().is_some() {
                    return true;
                }
                shared.0.announce(SeatId(0), false);
                shared.0.take_back(SeatId(0), false) == TakenBack::Yes
            })
        };
        shared.0.give_back(SeatId(1));
        let woken = shared.1.load(Relaxed) == 1 && shared.0.claim_one().is_some();
        let runs = first.join().expect("the first does not panic");
        assert!(woken || runs, "both have left the entry to the other");
    });
}

/// One permit for batch processes, which a worker holds. It ends while another thread queues a
/// batch process, for which a worker is parked.
fn end_of_batch<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new((Idle::<MUTATION>::new(2, 2, true), AtomicU32::new(0)));
        assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
        assert!(shared.0.begin_batch(SeatId(0), false), "nobody else runs one");
        let publisher = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // Relaxed: as in `give_back`.
                shared.1.store(1, Relaxed);
                fence(SeqCst);
                shared.0.has_batch_permit()
            })
        };
        shared.0.end_batch(SeatId(0));
        let found = shared.1.load(Relaxed) == 1;
        let announced = publisher.join().expect("the publisher does not panic");
        assert!(found || announced, "nobody is woken for the batch process");
    });
}

#[test]
fn push_against_end_of_batch() {
    end_of_batch::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "nobody is woken for the batch process")]
fn canary_end_without_fence() {
    end_of_batch::<{ mutation::END_WITHOUT_FENCE }>();
}

/// Two workers want the only permit for batch processes. The step of one of them blocks meanwhile,
/// and comes back.
#[test]
fn two_begin_batch() {
    explore(|| {
        let shared = Arc::new(Idle::<{ mutation::SOUND }>::new(2, 2, true));
        assert!(shared.claim_absent(1).is_some(), "one is awake");
        assert!(shared.claim_this(SeatId(1)), "the other is awake");
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let begins = shared.begin_batch(SeatId(1), false);
                assert!(shared.batch() <= 1, "more than the limit");
                begins
            })
        };
        let begins = shared.begin_batch(SeatId(0), false);
        shared.give_back(SeatId(0));
        let resumes = shared.regain(SeatId(0), false);
        assert!(shared.batch() <= 1, "more than the limit");
        let other = other.join().expect("the other does not panic");
        assert!(begins || other, "nobody has the permit");
        assert!(resumes || other, "the permit was lost");
    });
}

/// One worker ends with the only permit for batch processes, while another is about to park and has
/// a batch process that nobody else can run.
fn park_and_end_of_batch<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new(Idle::<MUTATION>::new(2, 2, true));
        assert!(shared.claim_absent(1).is_some(), "one is awake");
        assert!(shared.claim_this(SeatId(1)), "the other is awake");
        assert!(shared.begin_batch(SeatId(0), false), "nobody else runs one");
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.announce(SeatId(1), false);
                while shared.must_try_batch(SeatId(1)) {
                    assert_eq!(
                        shared.take_back(SeatId(1), true),
                        TakenBack::Yes,
                        "nobody wakes it"
                    );
                    if shared.begin_batch(SeatId(1), true) {
                        return true;
                    }
                    shared.announce(SeatId(1), true);
                }
                false
            })
        };
        shared.end_batch(SeatId(0));
        let woken = shared.is_batch_wanted() && shared.next_for_batch() == Some(SeatId(1));
        let runs = other.join().expect("the other does not panic");
        assert!(woken || runs, "both have left the batch process to the other");
    });
}

#[test]
fn park_against_end_of_batch() {
    park_and_end_of_batch::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "both have left the batch process to the other")]
fn canary_park_without_waiting() {
    park_and_end_of_batch::<{ mutation::PARK_WITHOUT_WAITING }>();
}
