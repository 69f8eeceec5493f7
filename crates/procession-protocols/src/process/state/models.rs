use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::cell::UnsafeCell;
use procession_sync::{Arc, Mutex, explore, thread};

use super::{Duty, State, WaitPhase, mutation};

/// A process checks for messages, finds none and waits, while two threads leave one each and wake
/// it.
fn wakes_against_wait<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new((State::<MUTATION>::ready(), AtomicU32::new(0)));
        let wakers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // Relaxed: the state word publishes it.
                shared.1.fetch_add(1, Relaxed);
                u32::from(shared.0.wake() == Duty::Enqueue)
            })
        });
        let (state, messages) = &*shared;
        let mut entries = 0;
        let _ = state.start();
        let seen = messages.load(Relaxed);
        if seen < 2 {
            entries += u32::from(state.wait(WaitPhase::Idle) == Duty::Enqueue);
        } else {
            state.yield_step();
            entries += 1;
        }
        for waker in wakers {
            entries += waker.join().expect("the waker does not panic");
        }
        assert_eq!(entries, 1, "a process that was woken has one queue entry");
        let _ = state.start();
        assert_eq!(messages.load(Relaxed), 2, "a step sees what its wakers did");
    });
}

#[test]
fn wake_against_wait() {
    wakes_against_wait::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "one queue entry")]
fn canary_wait_without_looking() {
    wakes_against_wait::<{ mutation::WAIT_WITHOUT_LOOKING }>();
}

#[test]
#[should_panic(expected = "one queue entry")]
fn canary_wake_without_cas() {
    wakes_against_wait::<{ mutation::WAKE_WITHOUT_CAS }>();
}

/// The process has found the message, or has an entry, or will get one from the waker.
fn wake_against_steps<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new((State::<MUTATION>::ready(), AtomicU32::new(0)));
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // Relaxed: the state word publishes it.
                shared.1.store(1, Relaxed);
                shared.0.wake() == Duty::Enqueue
            })
        };
        let (state, message) = &*shared;
        let mut found;
        loop {
            let _ = state.start();
            found = message.load(Relaxed) == 1;
            if state.wait(WaitPhase::Idle) == Duty::Nothing {
                break;
            }
        }
        let queued = waker.join().expect("the waker does not panic");
        assert!(found || queued, "no wake-up is lost");
    });
}

#[test]
fn wake_against_start() {
    wake_against_steps::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "no wake-up is lost")]
fn canary_start_relaxed() {
    wake_against_steps::<{ mutation::START_RELAXED }>();
}

/// A process ends while its handle is dropped and another thread wakes it.
fn end_against_handle<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new((State::<MUTATION>::ready(), UnsafeCell::new(0)));
        let handle = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let disposes = shared.0.release_handle().is_complete();
                if disposes {
                    // SAFETY: [running] complete, so the body is the handle's.
                    shared.1.with(|result| assert_eq!(unsafe { *result }, 7));
                }
                u32::from(disposes)
            })
        };
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || assert_eq!(shared.0.wake(), Duty::Nothing, "it never waits"))
        };
        let (state, body) = &*shared;
        let _ = state.start();
        // SAFETY: [running]
        body.with_mut(|result| unsafe { *result = 7 });
        let disposes =
            u32::from(!state.complete(true).expect("its names are released").has_handle());
        let disposed = disposes + handle.join().expect("the handle does not panic");
        waker.join().expect("the waker does not panic");
        assert_eq!(disposed, 1, "the body is disposed of once");
    });
}

#[test]
fn complete_against_handle_and_wake() {
    end_against_handle::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_complete_relaxed() {
    end_against_handle::<{ mutation::COMPLETE_RELAXED }>();
}

/// A message is sent after a terminate, while the process receives.
fn terminate_against_take<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new((State::<MUTATION>::ready(), AtomicU32::new(0)));
        let terminator = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let wake = shared.0.terminate();
                assert_eq!(wake, Duty::Nothing, "the process is in its step");
                // Ordering: Release pairs with the Acquire of the take, as a mailbox's push does.
                shared.1.store(1, Release);
            })
        };
        let (state, mailbox) = &*shared;
        let _ = state.start();
        let (taken, terminated) = state.take_for_step(|| mailbox.swap(0, Acquire));
        assert!(
            taken == 0 || terminated,
            "a message that was sent after the terminate is received"
        );
        terminator.join().expect("the terminator does not panic");
    });
}

#[test]
fn terminate_against_receive() {
    terminate_against_take::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a message that was sent after the terminate is received")]
fn canary_look_before_take() {
    terminate_against_take::<{ mutation::LOOK_BEFORE_TAKE }>();
}

/// A request is left while the process takes earlier requests.
fn request_against_attend<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new((State::<MUTATION>::ready(), Mutex::new(0)));
        let asker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                *shared.1.lock() += 1;
                shared.0.ask() == Some(Duty::Enqueue)
            })
        };
        let (state, requests) = &*shared;
        let take = || std::mem::take(&mut *requests.lock());
        let mut taken = 0;
        // Twice, so that the flag of one round can be cleared by the next.
        for _ in 0..2 {
            if state.start().is_asked() {
                taken += state.attend(take);
            }
            state.yield_step();
        }
        // Whatever the first rounds have seen: this one is asked without need.
        let _ = state.ask();
        let _ = state.start();
        taken += state.attend(take);
        let mut has_entry = state.wait(WaitPhase::Idle) == Duty::Enqueue;
        has_entry |= asker.join().expect("the asker does not panic");
        if has_entry && state.start().is_asked() {
            taken += state.attend(take);
        }
        assert_eq!(taken, 1, "no request is lost");
    });
}

#[test]
fn ask_against_attend() {
    request_against_attend::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "no request is lost")]
fn canary_take_before_clear() {
    request_against_attend::<{ mutation::TAKE_BEFORE_CLEAR }>();
}

/// A process is terminated while its entry goes to its requests.
fn terminate_against_hold<const MUTATION: u8>() {
    explore(|| {
        let shared = Arc::new((State::<MUTATION>::ready(), Mutex::new(false)));
        let terminator = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let wake = shared.0.terminate();
                assert_eq!(wake, Duty::Nothing, "a suspended process is active");
                shared.0.see().is_asked() && std::mem::take(&mut *shared.1.lock())
            })
        };
        let (state, held) = &*shared;
        let _ = state.start();
        state.yield_step();
        let is_held = {
            let mut held = held.lock();
            *held = state.hold();
            *held
        };
        let released = terminator.join().expect("the terminator does not panic");
        assert_eq!(is_held, released, "a process that ends is not held");
    });
}

#[test]
fn terminate_of_suspended() {
    terminate_against_hold::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a process that ends is not held")]
fn canary_hold_without_looking() {
    terminate_against_hold::<{ mutation::HOLD_WITHOUT_LOOKING }>();
}
