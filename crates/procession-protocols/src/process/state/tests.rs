//! Goal: the table of the module documentation, cell by cell. Method: bring a word into each phase,
//! raise each event, and check the word.

use super::ProcessPhase::{self, Active, Blocked, Complete, Idle};
use super::{Duty, State, WaitPhase};

type Word = State<0>;

const PHASES: [ProcessPhase; 4] = [Active, Blocked, Idle, Complete];

fn in_phase(phase: ProcessPhase) -> Word {
    let state = Word::ready();
    if phase != Active {
        let _ = state.start();
    }
    match phase {
        Blocked => assert_eq!(state.wait(WaitPhase::Blocked), Duty::Nothing),
        Idle => assert_eq!(state.wait(WaitPhase::Idle), Duty::Nothing),
        Complete => assert!(state.complete(true).expect("its names are released").has_handle()),
        _ => {}
    }
    assert_eq!(state.see().phase(), phase);
    state
}

#[test]
fn every_event_in_every_phase() {
    for phase in PHASES {
        let (after, wake) = match phase {
            Blocked | Idle => (Active, Duty::Enqueue),
            other => (other, Duty::Nothing),
        };
        let events = [
            (Word::wake as fn(&Word) -> Duty, false, false),
            (Word::cancel, true, false),
            (Word::terminate, true, true),
            (Word::cancel_by_drop, true, true),
        ];
        for (event, cancels, terminates) in events {
            let state = in_phase(phase);
            assert_eq!(event(&state), wake, "{phase:?}");
            let seen = state.see();
            assert_eq!(seen.phase(), after, "{phase:?}");
            assert_eq!(seen.is_cancelled(), cancels && phase != Complete, "{phase:?}");
            assert_eq!(seen.is_terminated(), terminates && phase != Complete, "{phase:?}");
        }
        let state = in_phase(phase);
        let _ = (state.terminate(), state.cancel_by_drop());
        assert!(!state.see().has_cancel(), "the first reason to end decides");
        let _ = state.cancel();
        assert_eq!(state.see().has_cancel(), phase != Complete);
        let state = in_phase(phase);
        assert_eq!(state.watch().is_complete(), phase == Complete);
        assert!(state.see().has_waiter());
        assert_eq!(state.unwatch().is_complete(), phase == Complete);
        assert!(!state.see().has_waiter());
        assert_eq!(state.relate().is_complete(), phase == Complete);
        assert!(state.see().is_related());
        assert_eq!(state.release_handle().is_complete(), phase == Complete);
        assert!(!state.see().has_handle());
        let state = in_phase(phase);
        assert_eq!(state.ask(), (phase != Complete).then_some(wake), "{phase:?}");
        assert_eq!(state.see().is_asked(), phase != Complete, "{phase:?}");
        assert_eq!(state.see().phase(), after, "{phase:?}");
        let state = in_phase(Active);
        let _ = (state.cancel(), state.start());
        if phase == Complete {
            let _ = state.complete(true).expect("its names are released");
        }
        let _ = state.release_handle();
        assert!(state.see().is_cancelled(), "it is never forgotten");
        let state = in_phase(phase);
        assert_eq!(state.see().phase(), phase, "handles do not move a process");
    }
}

fn in_step() -> Word {
    let state = in_phase(Active);
    let _ = state.start();
    state
}

#[test]
fn a_process_woken_in_its_step_does_not_wait() {
    for wait_phase in [WaitPhase::Blocked, WaitPhase::Idle] {
        let state = in_step();
        assert_eq!(state.wake(), Duty::Nothing);
        assert_eq!(state.wait(wait_phase), Duty::Enqueue);
        assert_eq!(state.see().phase(), Active);
        let _ = state.start();
        assert_eq!(state.wait(wait_phase), Duty::Nothing, "the wake-up counts for one wait");
    }
}

#[test]
fn a_wake_before_its_step_is_used_up_by_it() {
    let state = in_phase(Active);
    assert_eq!(state.wake(), Duty::Nothing);
    let _ = state.start();
    assert_eq!(state.wait(WaitPhase::Blocked), Duty::Nothing);
}

#[test]
fn an_end_that_is_asked_for_before_the_step_is_known_to_it() {
    let state = in_phase(Active);
    assert_eq!(state.terminate(), Duty::Nothing);
    assert!(state.start().is_terminated());
    assert_eq!(state.wait(WaitPhase::Blocked), Duty::Nothing, "it was the wake-up, too");
}

#[test]
fn an_end_that_nobody_else_sees_is_an_end() {
    let state = in_step();
    state.complete_alone();
    assert!(state.see().is_complete() && !state.see().has_handle());
    assert_eq!(state.wake(), Duty::Nothing);
}

#[test]
fn a_yield_uses_up_a_wake() {
    let state = in_step();
    assert_eq!(state.wake(), Duty::Nothing);
    state.yield_step();
    let _ = state.start();
    assert_eq!(state.wait(WaitPhase::Blocked), Duty::Nothing);
}

#[test]
fn of_several_wakes_one_queues() {
    let state = in_phase(Idle);
    let queued = [state.wake(), state.cancel(), state.terminate(), state.wake()];
    assert_eq!(queued, [Duty::Enqueue, Duty::Nothing, Duty::Nothing, Duty::Nothing]);
}

#[test]
fn a_request_makes_a_step_special_once() {
    let state = in_phase(Idle);
    assert_eq!(state.ask(), Some(Duty::Enqueue));
    let seen = state.start();
    assert!(seen.is_special() && seen.is_asked() && !seen.leaves_nothing());
    assert_eq!(state.attend(|| 7), 7);
    assert_eq!(state.wait(WaitPhase::Blocked), Duty::Nothing);
    assert!(!state.see().is_special());
}

#[test]
fn a_process_that_ends_is_not_held() {
    let state = in_step();
    assert!(state.hold() && state.see().is_asked());
    let _ = state.terminate();
    assert!(!state.hold());
}
