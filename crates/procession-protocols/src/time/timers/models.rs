//! Models of the timers' protocol, each with canaries (see `procession_queue`'s models for the
//! terms, and for what loom cannot do).
//!
//! The threads meet in the transitions of the state word, which are read-modify-writes. Threads
//! that work without the lock call the functions for that directly, whether the lock is held or
//! not; the protocol allows this at any time.
//!
//! Three orderings are justified by argument only, because loom finds no fault without them: the
//! Acquire of `begin_reset`, with the Release of `tick` (loom lets no load see a later store), and
//! the Release of `Lower` with the Acquire of `Raise` (loom lets a swap see the last change of a
//! word, known or not).
//!
//! | model | canaries |
//! |---|---|
//! | `delete_against_fire` | `canary_fire_without_cas` |
//! | `delete_against_tick` | `canary_return_relaxed` |
//! | `delete_sees_the_action` | `canary_arm_relaxed` |
//! | `delete_against_replace` | `canary_replace_without_cas` |
//! | `late_delete_against_reuse` | `canary_end_any_generation` |
//! | `taking_against_reuse` | `canary_taking_unmarked` |
//! | `late_reset_against_reuse` | `canary_end_forgets_resetting` |
//! | `two_resets_against_run` | `canary_begin_twice` |
//! | `two_runners` | `canary_tick_without_spare` |
//! | `replace_against_tick` | `canary_return_any_edition` |
//! | `late_return_against_reuse` | `canary_return_any_generation` |
//! | `reset_to_later_against_run` | `canary_reset_without_begin`, `canary_fire_unsettled` |
//! | `reset_to_earlier_against_run` | `canary_lower_before_push` |
//! | `two_resets_against_settle` | `canary_leave_relaxed`, `canary_read_before_unqueue` |
//! | `reset_against_tick` | `canary_advance_without_cas` |
//! | `reset_against_sleeper` | `canary_raise_without_lowering` |
//! | `add_against_sleeper` | `canary_sleeper_without_fence` |
//! | `push_against_push_and_fetch` | `canary_push_without_cas` |
//! | `wait_for_room_against_delete` | `canary_delete_without_fence` |
//! | | `canary_wait_for_room_without_fence` |
//! | `wait_for_room_against_late_reset` | `canary_reset_without_fence` |
//! | | `canary_reset_without_look` |

use std::cell::Cell;
use std::num::NonZeroU64;

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, fence};
use procession_sync::{Arc, thread};

use super::mutation::{self, SOUND};
use super::{Rearmed, TimerId, TimerRefused, Timers};

type Reset<const MUTATION: u8> = fn(&Timers<Act, MUTATION>, TimerId, u64) -> Option<Rearmed>;
type Shared<const MUTATION: u8> = Arc<Timers<Act, MUTATION>>;

thread_local! {
    /// The number of actions made, less the number of actions dropped, in this execution. The
    /// threads of a model are coroutines of one thread, so a thread local counts them all.
    static ALIVE: Cell<i32> = const { Cell::new(0) };
}

/// An action, identified by its number.
#[derive(Debug, PartialEq, Eq)]
struct Act(u32);

impl Act {
    fn new(number: u32) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self(number)
    }
}

impl Clone for Act {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
    }
}

impl<const MUTATION: u8> Timers<Act, MUTATION> {
    fn put(&self, when: u64, period: u64, action: u32) -> TimerId {
        self.add(when, NonZeroU64::new(period), Act::new(action)).expect("within the limit").id
    }

    /// Returns the actions that a pass fires.
    fn fired(&self, now: u64) -> Vec<u32> {
        let mut fired = Vec::new();
        let _ = self.run(now, &mut |action| fired.push(action.0));
        fired
    }
}

/// Runs `body` in every interleaving within the bound, with new timers each time.
fn explore<const MUTATION: u8>(
    limit: u32,
    body: impl Fn(Shared<MUTATION>) + Sync + Send + 'static,
) {
    procession_sync::explore(move || {
        ALIVE.set(0);
        let timers = Arc::new(Timers::starting_at(limit, 0, 0));
        body(Arc::clone(&timers));
        drop(timers);
        assert_eq!(ALIVE.get(), 0, "an action was lost or doubled");
    });
}

fn spawn<const MUTATION: u8, R: 'static>(
    timers: &Shared<MUTATION>,
    work: impl FnOnce(&Timers<Act, MUTATION>) -> R + 'static,
) -> impl FnOnce() -> R {
    let timers = Arc::clone(timers);
    let thread = thread::spawn(move || work(&timers));
    move || thread.join().expect("the thread does not panic")
}

/// Two threads delete a timer while it fires. Exactly one of the three succeeds, and the slot is
/// free afterwards.
fn cancel_and_fire<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 0, 1);
        let apart = spawn(&timers, move |timers| timers.delete_apart(id).is_some());
        let deleter = spawn(&timers, move |timers| timers.delete(id).is_some());
        let fired = timers.fired(5) == [1];
        let ends = [fired, apart(), deleter()].iter().filter(|&&end| end).count();
        assert!(ends <= 1, "fired and deleted");
        assert!(ends == 1 || timers.fired(5) == [1], "neither fired nor deleted");
        timers.put(6, 0, 2);
        assert_eq!(timers.fired(6), [2]);
    });
}

#[test]
fn delete_against_fire() {
    cancel_and_fire::<SOUND>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_fire_without_cas() {
    cancel_and_fire::<{ mutation::FIRE_WITHOUT_CAS }>();
}

/// A periodic timer is deleted while it ticks. Its action is returned, and both spares are
/// accounted for.
fn cancel_and_tick<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 10, 1);
        let deleter = spawn(&timers, move |timers| timers.delete_apart(id).map(|action| action.0));
        let fired = timers.fired(5);
        assert!(fired.len() <= 1, "one tick is due");
        assert_eq!(deleter(), Some(1), "a periodic timer does not end by itself");
        assert_eq!(timers.fired(100), [], "deleted");
    });
}

#[test]
fn delete_against_tick() {
    cancel_and_tick::<SOUND>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_return_relaxed() {
    cancel_and_tick::<{ mutation::RETURN_RELAXED }>();
}

/// The id reaches the deleter by a path that does not make the action visible. The state word does.
fn cancel_what_was_just_added<const MUTATION: u8>() {
    explore::<MUTATION>(2, |timers| {
        timers.put(5, 0, 1);
        let added = Arc::new(AtomicBool::new(false));
        let deleter = {
            let added = Arc::clone(&added);
            spawn(&timers, move |timers| {
                let id = TimerId { slot: 1, generation: 0 };
                added.load(Relaxed).then(|| timers.delete_apart(id).map(|action| action.0))
            })
        };
        assert_eq!(timers.put(5, 10, 2), TimerId { slot: 1, generation: 0 });
        added.store(true, Relaxed);
        // A thread that does not see the word's new value finds no timer.
        assert!(matches!(deleter(), None | Some(None | Some(2))));
    });
}

#[test]
fn delete_sees_the_action() {
    cancel_what_was_just_added::<SOUND>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_arm_relaxed() {
    cancel_what_was_just_added::<{ mutation::ARM_RELAXED }>();
}

/// An action is replaced while its timer is deleted. The deleter gets the old or the new action,
/// and the other thread gets the other.
fn cancel_and_replace<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 10, 1);
        let deleter = spawn(&timers, move |timers| timers.delete_apart(id).map(|action| action.0));
        let modified = timers.modify(id, 7, NonZeroU64::new(7), Act::new(2));
        let expected = match modified {
            Ok(modified) => {
                assert_eq!(modified.replaced.0, 1);
                2
            }
            Err(TimerRefused(action)) => {
                assert_eq!(action.0, 2);
                1
            }
        };
        assert_eq!(deleter(), Some(expected), "the other action");
        timers.put(6, 0, 3);
        assert_eq!(timers.fired(10), [3], "the deleted timer is gone");
    });
}

#[test]
fn delete_against_replace() {
    cancel_and_replace::<SOUND>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_replace_without_cas() {
    cancel_and_replace::<{ mutation::REPLACE_WITHOUT_CAS }>();
}

/// A slot gets its next timer while a thread still deletes the first.
fn delete_late<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 0, 1);
        let late = spawn(&timers, move |timers| timers.delete_apart(id).map(|action| action.0));
        let deleted = timers.delete(id).map(|action| action.0);
        let next = timers.add(6, None, Act::new(2)).is_ok();
        let deleted_late = late();
        assert_eq!(deleted.or(deleted_late), Some(1));
        assert!(deleted.is_none() || deleted_late.is_none(), "a stranger was deleted");
        assert_eq!(timers.fired(6).len(), usize::from(next), "the next timer fires");
        timers.put(7, 0, 3);
    });
}

#[test]
fn late_delete_against_reuse() {
    delete_late::<SOUND>();
}

#[test]
#[should_panic(expected = "a stranger was deleted")]
fn canary_end_any_generation() {
    delete_late::<{ mutation::END_ANY_GENERATION }>();
}

/// A slot in the inbox is needed again while a deleter still moves its actions out.
fn reuse_while_taking<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 0, 1);
        assert!(timers.reset_apart(id, 4).is_some());
        let deleter = spawn(&timers, move |timers| timers.delete_apart(id).map(|action| action.0));
        let next = timers.add(6, None, Act::new(2)).is_ok();
        assert_eq!(deleter(), Some(1));
        assert_eq!(timers.fired(6).len(), usize::from(next));
        timers.put(7, 0, 3);
    });
}

#[test]
fn taking_against_reuse() {
    reuse_while_taking::<SOUND>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_taking_unmarked() {
    reuse_while_taking::<{ mutation::TAKING_UNMARKED }>();
}

/// A slot gets its next timer while a thread still resets the first.
fn reset_late<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 0, 1);
        let late = spawn(&timers, move |timers| timers.reset_apart(id, 100).is_some());
        assert_eq!(timers.delete(id), Some(Act::new(1)));
        let next = timers.add(6, None, Act::new(2)).is_ok();
        late();
        assert_eq!(timers.fired(6).len(), usize::from(next), "a stranger was reset");
        timers.put(7, 0, 3);
        assert!(timers.add(8, None, Act::new(4)).is_err(), "the slot is free once");
    });
}

#[test]
fn late_reset_against_reuse() {
    reset_late::<SOUND>();
}

#[test]
#[should_panic(expected = "a stranger was reset")]
fn canary_end_forgets_resetting() {
    reset_late::<{ mutation::END_FORGETS_RESETTING }>();
}

/// Two threads reset a timer, to earlier and to later, while it is settled and fired.
fn reset_by_two<const MUTATION: u8>(advance: Reset<MUTATION>, postpone: Reset<MUTATION>) {
    explore::<MUTATION>(1, move |timers| {
        let id = timers.put(7, 0, 1);
        let advance = spawn(&timers, move |timers| advance(timers, id, 5).is_some());
        let postpone = spawn(&timers, move |timers| postpone(timers, id, 100).is_some());
        let early = timers.fired(6);
        let (advanced, postponed) = (advance(), postpone());
        assert!(early.is_empty() || advanced, "early");
        assert!(postponed || early == [1], "it was pending no more");
        let fired = timers.fired(100);
        assert_eq!(early.len() + fired.len(), 1, "a timer fires once");
        timers.put(200, 0, 2);
        assert!(timers.add(200, None, Act::new(3)).is_err(), "a slot was doubled");
        timers.adjust();
        assert!(timers.add(200, None, Act::new(3)).is_err(), "a slot was doubled");
    });
}

#[test]
fn two_resets_against_run() {
    reset_by_two::<SOUND>(Timers::reset_apart, Timers::reset_apart);
    reset_by_two::<SOUND>(Timers::reset_apart, Timers::reset);
    reset_by_two::<SOUND>(Timers::reset, Timers::reset_apart);
}

#[test]
#[should_panic(expected = "a slot was doubled")]
fn canary_begin_twice() {
    reset_by_two::<{ mutation::BEGIN_TWICE }>(Timers::reset_apart, Timers::reset_apart);
}

/// Two threads fire the same heap, the second when the periodic timer is due again.
fn run_twice<const MUTATION: u8>() {
    explore::<MUTATION>(2, |timers| {
        let id = timers.put(5, 10, 1);
        timers.put(5, 0, 2);
        let runner = spawn(&timers, move |timers| timers.fired(15));
        let mut fired = timers.fired(5);
        fired.extend(runner());
        // A thread that found the lock taken left the timers to the other, which may have passed
        // them.
        fired.extend(timers.fired(15));
        assert_eq!(
            fired.iter().filter(|&&action| action == 2).count(),
            1,
            "the other timer fires once"
        );
        let ticks = fired.iter().filter(|&&action| action == 1).count();
        assert!((1..=2).contains(&ticks), "two ticks were due, and one may have been missed");
        assert_eq!(timers.delete(id), Some(Act::new(1)));
    });
}

#[test]
fn two_runners() {
    run_twice::<SOUND>();
}

#[test]
#[should_panic(expected = "an action was lost or doubled")]
fn canary_tick_without_spare() {
    run_twice::<{ mutation::TICK_WITHOUT_SPARE }>();
}

/// A timer is replaced while its tick is made. The old action does not return.
fn replace_while_ticking<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 10, 1);
        let runner = spawn(&timers, move |timers| timers.fired(5));
        let modified = timers.modify(id, 6, None, Act::new(2)).expect("it does not end by itself");
        assert_eq!(modified.replaced.0, 1);
        assert!(runner().len() <= 1);
        assert_eq!(timers.fired(100), [2]);
        assert_eq!(timers.fired(200), []);
    });
}

#[test]
fn replace_against_tick() {
    replace_while_ticking::<SOUND>();
}

#[test]
#[should_panic(expected = "an action was lost or doubled")]
fn canary_return_any_edition() {
    replace_while_ticking::<{ mutation::RETURN_ANY_EDITION }>();
}

/// A slot gets its next timer while a tick of the first is made. The spare does not go to the next
/// timer.
fn reuse_while_ticking<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 10, 1);
        let runner = spawn(&timers, move |timers| timers.fired(5));
        assert_eq!(timers.delete(id), Some(Act::new(1)));
        let next = timers.add(6, None, Act::new(2)).is_ok();
        assert!(runner().len() <= 1);
        assert_eq!(timers.fired(100).len(), usize::from(next));
        timers.put(200, 0, 3);
        assert_eq!(timers.fired(200), [3]);
    });
}

#[test]
fn late_return_against_reuse() {
    reuse_while_ticking::<SOUND>();
}

#[test]
#[should_panic(expected = "an action was lost or doubled")]
fn canary_return_any_generation() {
    reuse_while_ticking::<{ mutation::RETURN_ANY_GENERATION }>();
}

/// A due timer is reset to later while it fires. Either it has fired, or it fires at its new
/// deadline only.
fn postpone<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 0, 1);
        let resetter = spawn(&timers, move |timers| timers.reset_apart(id, 100).is_some());
        let fired = timers.fired(10).len();
        if resetter() {
            assert_eq!(fired, 0, "early");
            assert_eq!(timers.fired(99), [], "early");
            assert_eq!(timers.fired(100), [1]);
        } else {
            assert_eq!(fired, 1, "it was pending no more");
        }
    });
}

#[test]
fn reset_to_later_against_run() {
    postpone::<SOUND>();
}

#[test]
#[should_panic(expected = "early")]
fn canary_reset_without_begin() {
    postpone::<{ mutation::RESET_WITHOUT_BEGIN }>();
}

#[test]
#[should_panic(expected = "early")]
fn canary_fire_unsettled() {
    postpone::<{ mutation::FIRE_UNSETTLED }>();
}

/// A timer is reset to earlier while another thread works on the heap. The reset is not lost.
fn advance<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(100, 0, 1);
        let resetter = spawn(&timers, move |timers| assert!(timers.reset_apart(id, 5).is_some()));
        let mut fired = timers.fired(10);
        resetter();
        if fired.is_empty() {
            assert!(timers.next() <= 5, "a deadline was lost");
            fired = timers.fired(10);
        }
        assert_eq!(fired, [1], "a deadline was lost");
    });
}

#[test]
fn reset_to_earlier_against_run() {
    advance::<SOUND>();
}

#[test]
#[should_panic(expected = "a deadline was lost")]
fn canary_lower_before_push() {
    advance::<{ mutation::LOWER_BEFORE_PUSH }>();
}

/// A timer is reset twice while the inbox is settled. The second reset finds the slot queued, and
/// does not push it.
fn advance_twice<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(100, 0, 1);
        let resetter = spawn(&timers, move |timers| {
            assert!(timers.reset_apart(id, 50).is_some());
            assert!(timers.reset_apart(id, 5).is_some());
        });
        timers.adjust();
        resetter();
        assert_eq!(timers.fired(10), [1], "a deadline was lost");
    });
}

#[test]
fn two_resets_against_settle() {
    advance_twice::<SOUND>();
}

#[test]
#[should_panic(expected = "a deadline was lost")]
fn canary_leave_relaxed() {
    advance_twice::<{ mutation::LEAVE_RELAXED }>();
}

#[test]
#[should_panic(expected = "a deadline was lost")]
fn canary_read_before_unqueue() {
    advance_twice::<{ mutation::READ_BEFORE_UNQUEUE }>();
}

/// A periodic timer is reset while it ticks. Whichever is first, its next deadline is the deadline
/// that was set.
fn reset_while_ticking<const MUTATION: u8>() {
    explore::<MUTATION>(1, |timers| {
        let id = timers.put(5, 10, 1);
        let resetter = spawn(&timers, move |timers| assert!(timers.reset_apart(id, 100).is_some()));
        assert!(timers.fired(7).len() <= 1);
        resetter();
        assert_eq!(timers.fired(99), [], "a reset was lost");
        assert_eq!(timers.fired(100), [1], "a reset was lost");
    });
}

#[test]
fn reset_against_tick() {
    reset_while_ticking::<SOUND>();
}

#[test]
#[should_panic(expected = "a reset was lost")]
fn canary_advance_without_cas() {
    reset_while_ticking::<{ mutation::ADVANCE_WITHOUT_CAS }>();
}

/// A deadline is set while one thread is about to sleep until the earliest deadline, and another
/// settles the inbox.
fn sleeper<const MUTATION: u8>(
    with_fence: bool,
    set: fn(&Timers<Act, MUTATION>, TimerId) -> bool,
    settle: bool,
) {
    explore::<MUTATION>(2, move |timers| {
        let id = timers.put(100, 0, 1);
        let asleep = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let asleep = Arc::clone(&asleep);
            spawn(&timers, move |timers| {
                asleep.store(true, Relaxed);
                if with_fence {
                    fence(SeqCst);
                }
                timers.next()
            })
        };
        let settler = settle.then(|| spawn(&timers, |timers| timers.adjust()));
        let earliest = set(&timers, id);
        fence(SeqCst);
        let woken = earliest && asleep.load(Relaxed);
        let until = sleeper();
        assert!(woken || until <= 5, "a deadline was slept through");
        settler.map(|settler| settler());
    });
}

fn set_by_reset<const MUTATION: u8>(timers: &Timers<Act, MUTATION>, id: TimerId) -> bool {
    timers.reset_apart(id, 5).is_some_and(|rearmed| rearmed.earliest)
}

fn set_by_add<const MUTATION: u8>(timers: &Timers<Act, MUTATION>, _: TimerId) -> bool {
    timers.add(5, None, Act::new(2)).is_ok_and(|armed| armed.earliest)
}

#[test]
fn reset_against_sleeper() {
    sleeper::<SOUND>(true, set_by_reset, true);
}

#[test]
#[should_panic(expected = "a deadline was slept through")]
fn canary_raise_without_lowering() {
    sleeper::<{ mutation::RAISE_WITHOUT_LOWERING }>(true, set_by_reset, true);
}

#[test]
fn add_against_sleeper() {
    sleeper::<SOUND>(true, set_by_add, false);
}

#[test]
#[should_panic(expected = "a deadline was slept through")]
fn canary_sleeper_without_fence() {
    sleeper::<SOUND>(false, set_by_add, false);
}

/// Two slots are pushed while the inbox is fetched. Both are free in the end.
fn push_and_fetch<const MUTATION: u8>() {
    explore::<MUTATION>(2, |timers| {
        let (first, second) = (timers.put(5, 0, 1), timers.put(6, 0, 2));
        let deleter =
            spawn(&timers, move |timers| assert_eq!(timers.delete_apart(first), Some(Act::new(1))));
        let settler = spawn(&timers, move |timers| timers.adjust());
        assert_eq!(timers.delete_apart(second), Some(Act::new(2)));
        deleter();
        let settled = settler();
        assert_eq!(settled + timers.adjust(), 2, "a slot was lost");
        timers.put(7, 0, 3);
        timers.put(8, 0, 4);
        assert_eq!(timers.fired(10), [3, 4]);
    });
}

#[test]
fn push_against_push_and_fetch() {
    push_and_fetch::<SOUND>();
}

#[test]
#[should_panic(expected = "a slot was lost")]
fn canary_push_without_cas() {
    push_and_fetch::<{ mutation::PUSH_WITHOUT_CAS }>();
}

/// A thread finds no room for a timer, leaves word, and tries once more. Returns `true` if there
/// was still none.
fn wait_for_room<const MUTATION: u8>(
    timers: &Timers<Act, MUTATION>,
    word: &AtomicBool,
    with_fence: bool,
) -> bool {
    // Relaxed: nothing but the fences orders the word.
    word.store(true, Relaxed);
    if with_fence {
        fence(SeqCst);
    }
    timers.add(6, None, Act::new(2)).is_err()
}

/// The only timer is deleted while a thread waits for room.
fn room<const MUTATION: u8>(
    with_fence: bool,
    delete: fn(&Timers<Act, MUTATION>, TimerId) -> Option<Act>,
) {
    explore::<MUTATION>(1, move |timers| {
        let id = timers.put(5, 0, 1);
        let word = Arc::new(AtomicBool::new(false));
        let deleter = {
            let word = Arc::clone(&word);
            spawn(&timers, move |timers| {
                assert_eq!(delete(timers, id), Some(Act::new(1)));
                word.load(Relaxed)
            })
        };
        let waits = wait_for_room(&timers, &word, with_fence);
        let told = deleter();
        assert!(!waits || told, "nobody tells of the room");
    });
}

#[test]
fn wait_for_room_against_delete() {
    room::<SOUND>(true, Timers::delete_apart);
    room::<SOUND>(true, Timers::delete);
}

#[test]
#[should_panic(expected = "nobody tells of the room")]
fn canary_delete_without_fence() {
    room::<{ mutation::DELETE_WITHOUT_FENCE }>(true, Timers::delete_apart);
}

#[test]
#[should_panic(expected = "nobody tells of the room")]
fn canary_wait_for_room_without_fence() {
    room::<SOUND>(false, Timers::delete_apart);
}

/// The only timer is deleted while a thread without the lock resets it, and another waits for room.
fn room_after_reset<const MUTATION: u8>(resetter_looks: bool) {
    explore::<MUTATION>(1, move |timers| {
        let id = timers.put(5, 0, 1);
        let word = Arc::new(AtomicBool::new(false));
        let resetter = {
            let word = Arc::clone(&word);
            spawn(&timers, move |timers| {
                timers.reset_apart(id, 100).is_some() && resetter_looks && word.load(Relaxed)
            })
        };
        let deleter = {
            let word = Arc::clone(&word);
            spawn(&timers, move |timers| {
                assert_eq!(timers.delete(id), Some(Act::new(1)));
                word.load(Relaxed)
            })
        };
        let waits = wait_for_room(&timers, &word, true);
        let told = [resetter(), deleter()];
        assert!(!waits || told.contains(&true), "nobody tells of the room");
    });
}

#[test]
fn wait_for_room_against_late_reset() {
    room_after_reset::<SOUND>(true);
}

#[test]
#[should_panic(expected = "nobody tells of the room")]
fn canary_reset_without_fence() {
    room_after_reset::<{ mutation::RESET_WITHOUT_FENCE }>(true);
}

#[test]
#[should_panic(expected = "nobody tells of the room")]
fn canary_reset_without_look() {
    room_after_reset::<SOUND>(false);
}
