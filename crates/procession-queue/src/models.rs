//! Models of the queues' protocols.
//!
//! Loom runs each model through every interleaving and every allowed stale read, up to a bound on
//! preemptions (`LOOM_MAX_PREEMPTIONS`, 2 by default).
//!
//! Each model has a canary: the same code with one planted defect, which the model must find. If
//! the primitives of the crate were not loom's, no canary would be found, and the suite would fail.
//!
//! Loom decides where to switch threads from the last access to each atomic only. If one thread
//! loads an atomic between another thread's load and its read-modify-write, loom does not reorder
//! that pair of accesses. The threads of a model therefore meet in read-modify-writes (`close`
//! rather than `take`), and the canary shows that they do.
//!
//! | model | canaries |
//! |---|---|
//! | `owner_pop_against_steal` | `canary_pop_without_cas` |
//! | `two_thieves` | `canary_claim_without_cas` |
//! | `wrap_around` | `canary_pops_carry` |
//! | `refill_while_a_thief_copies` | `canary_done_relaxed` |
//! | `refill_while_half_is_copied` | `canary_done_before_copy` |
//! | `refill_while_two_thieves_copy` | `canary_head_before_done` |
//! | `overflow_while_stolen` | `canary_overflow_without_cas` |
//! | `fifo_ring_against_thief` | `canary_oldest_without_cas` |
//! | `push_against_steal` | `canary_publish_relaxed` |
//! | `never_seen_empty` | `canary_claim_relaxed` |
//! | `close_against_push` | `canary_push_without_check` |
//! | `item_visible_to_its_taker` | `canary_event_published_relaxed` |
//! | `arm_against_push` | `canary_arm_without_cas` |
//! | `count_against_take` | `canary_carry_unchecked`, `canary_headed_uncounted` |
//! | `leave_against_leave` | `canary_leave_relaxed` |
//! | `give_up_against_take` | `canary_leave_without_rmw`, `canary_keep_at_end` |
//! | `close_against_push_in_block` | `canary_block_without_check` |
//! | `chase_lev_half_steal_doubles_an_item` | itself: the structure as Wippy describes it |

use std::convert::Infallible;

use procession_sync::cell::UnsafeCell;
use procession_sync::{Arc, explore, thread};

use crate::event::{self, SHARERS, SharedNodes, Stack};
use crate::ring::{Arrange, Owned, Ring, mutation};
use crate::{Event, Global, Pushed};

/// Small enough that every interleaving is reached, and that a few pushes wrap around the ring.
const CAPACITY: usize = 4;

type Shared<const MUTATION: u8> = Arc<Ring<u32, CAPACITY, MUTATION>>;

/// Panics unless `taken` contains each number from 0 to `count - 1` exactly once, in any order.
fn assert_each_once(mut taken: Vec<u32>, count: u32) {
    taken.sort_unstable();
    if let Some(pair) = taken.windows(2).find(|pair| pair[0] == pair[1]) {
        panic!("item {} was taken twice: {taken:?}", pair[0]);
    }
    assert!(taken == (0..count).collect::<Vec<_>>(), "an item was lost: {taken:?}");
}

fn steal_half<const MUTATION: u8>(victim: &Shared<MUTATION>) -> Vec<u32> {
    let own = Owned::<u32, CAPACITY, MUTATION>::new();
    let first = own.steal_half(victim, Arrange::OldestLast).success();
    first.into_iter().chain(std::iter::from_fn(|| own.pop_newest())).collect()
}

fn push_all<const MUTATION: u8>(
    owner: &Owned<u32, CAPACITY, MUTATION>,
    items: std::ops::Range<u32>,
) {
    for item in items {
        owner.push(item).expect("the model pushes no more than fits");
    }
}

fn drain<const MUTATION: u8>(owner: &Owned<u32, CAPACITY, MUTATION>) -> impl Iterator<Item = u32> {
    std::iter::from_fn(|| owner.pop_newest())
}

/// The owner pops three of four items while a thief steals half, twice.
fn pop_against_steal<const MUTATION: u8>(head: u32, pops: u32) {
    explore(move || {
        let owner = Owned::<u32, CAPACITY, MUTATION>::starting_at(head, pops);
        push_all(&owner, 0..3);
        let victim = Arc::clone(owner.ring());
        let thief = thread::spawn(move || {
            let mut taken = steal_half(&victim);
            taken.extend(steal_half(&victim));
            taken
        });
        let mut taken: Vec<u32> = owner.pop_newest().into_iter().collect();
        push_all(&owner, 3..4);
        taken.extend(owner.pop_newest());
        taken.extend(owner.pop_newest());
        taken.extend(thief.join().expect("the thief does not panic"));
        taken.extend(drain(&owner));
        assert_each_once(taken, 4);
    });
}

#[test]
fn owner_pop_against_steal() {
    pop_against_steal::<{ mutation::SOUND }>(0, 0);
}

#[test]
#[should_panic(expected = "was taken twice")]
fn canary_pop_without_cas() {
    pop_against_steal::<{ mutation::POP_WITHOUT_CAS }>(0, 0);
}

#[test]
fn wrap_around() {
    pop_against_steal::<{ mutation::SOUND }>(u32::MAX, u32::MAX);
    pop_against_steal::<{ mutation::SOUND }>(u32::MAX - 1, u32::MAX);
}

#[test]
#[should_panic(expected = "an item was lost")]
fn canary_pops_carry() {
    pop_against_steal::<{ mutation::POPS_CARRY }>(7, u32::MAX);
}

fn two_thieves_against_pop<const MUTATION: u8>() {
    explore(|| {
        let owner = Owned::<u32, CAPACITY, MUTATION>::new();
        push_all(&owner, 0..4);
        let thieves = [(); 2].map(|()| {
            let victim = Arc::clone(owner.ring());
            thread::spawn(move || steal_half(&victim))
        });
        let mut taken: Vec<u32> = owner.pop_newest().into_iter().collect();
        for thief in thieves {
            taken.extend(thief.join().expect("the thief does not panic"));
        }
        taken.extend(drain(&owner));
        assert_each_once(taken, 4);
    });
}

#[test]
fn two_thieves() {
    two_thieves_against_pop::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "was taken twice")]
fn canary_claim_without_cas() {
    two_thieves_against_pop::<{ mutation::CLAIM_WITHOUT_CAS }>();
}

/// A full ring is pushed to again as soon as it has room.
fn refill<const MUTATION: u8>(thieves: usize) {
    explore(move || {
        let owner = Owned::<u32, 2, MUTATION>::new();
        owner.push(0).expect("empty");
        owner.push(1).expect("half full");
        let thieves: Vec<_> = (0..thieves)
            .map(|_| {
                let victim = Arc::clone(owner.ring());
                thread::spawn(move || victim.steal_one().success())
            })
            .collect();
        let mut refused = Vec::new();
        for item in 2..4 {
            refused.extend(owner.push(item).err().map(|full| full.0));
        }
        let mut taken = refused;
        for thief in thieves {
            taken.extend(thief.join().expect("the thief does not panic"));
        }
        taken.extend(std::iter::from_fn(|| owner.pop_newest()));
        assert_each_once(taken, 4);
    });
}

#[test]
fn refill_while_a_thief_copies() {
    refill::<{ mutation::SOUND }>(1);
}

/// Like `refill`, with a thief that takes half, so that one addition to `done` covers the copies of
/// several slots.
fn refill_behind_half<const MUTATION: u8>() {
    explore(|| {
        let owner = Owned::<u32, CAPACITY, MUTATION>::new();
        push_all(&owner, 0..4);
        let victim = Arc::clone(owner.ring());
        let thief = thread::spawn(move || steal_half(&victim));
        let mut taken: Vec<u32> = owner.push(4).err().map(|full| full.0).into_iter().collect();
        taken.extend(thief.join().expect("the thief does not panic"));
        taken.extend(drain(&owner));
        assert_each_once(taken, 5);
    });
}

#[test]
fn refill_while_half_is_copied() {
    refill_behind_half::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_done_relaxed() {
    refill::<{ mutation::DONE_RELAXED }>(1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_done_before_copy() {
    refill_behind_half::<{ mutation::DONE_BEFORE_COPY }>();
}

#[test]
fn refill_while_two_thieves_copy() {
    refill::<{ mutation::SOUND }>(2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_head_before_done() {
    refill::<{ mutation::HEAD_BEFORE_DONE }>(2);
}

fn overflow<const MUTATION: u8>() {
    explore(|| {
        let global = Global::new();
        let owner = Owned::<u32, CAPACITY, MUTATION>::new();
        push_all(&owner, 0..4);
        let victim = Arc::clone(owner.ring());
        let thief = thread::spawn(move || steal_half(&victim));
        owner.push_overflowing(4, &global);
        let mut taken = thief.join().expect("the thief does not panic");
        taken.extend(drain(&owner));
        taken.extend(std::iter::from_fn(|| global.pop()));
        assert_each_once(taken, 5);
    });
}

#[test]
fn overflow_while_stolen() {
    overflow::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_overflow_without_cas() {
    overflow::<{ mutation::OLDEST_WITHOUT_CAS }>();
}

fn fifo_against_thief<const MUTATION: u8>() {
    explore(|| {
        let owner = Owned::<u32, CAPACITY, MUTATION>::new();
        push_all(&owner, 0..2);
        let victim = Arc::clone(owner.ring());
        let thief = thread::spawn(move || {
            let own = Owned::<u32, CAPACITY, MUTATION>::new();
            let first = own.steal_half(&victim, Arrange::OldestFirst).success();
            let taken: Vec<u32> =
                first.into_iter().chain(std::iter::from_fn(|| own.pop_oldest())).collect();
            assert!(taken.is_sorted(), "a FIFO thief keeps the order");
            taken
        });
        push_all(&owner, 2..4);
        let mut taken: Vec<u32> = (0..2).filter_map(|_| owner.pop_oldest()).collect();
        assert!(taken.is_sorted(), "a FIFO owner keeps the order");
        taken.extend(thief.join().expect("the thief does not panic"));
        taken.extend(drain(&owner));
        assert_each_once(taken, 4);
    });
}

#[test]
fn fifo_ring_against_thief() {
    fifo_against_thief::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "was taken twice")]
fn canary_oldest_without_cas() {
    fifo_against_thief::<{ mutation::OLDEST_WITHOUT_CAS }>();
}

/// A thief takes the very item that is being pushed.
fn push_against_thief<const MUTATION: u8>() {
    explore(|| {
        let owner = Owned::<u32, CAPACITY, MUTATION>::new();
        let victim = Arc::clone(owner.ring());
        let thief = thread::spawn(move || victim.steal_one().success());
        push_all(&owner, 0..2);
        let mut taken: Vec<u32> = drain(&owner).collect();
        taken.extend(thief.join().expect("the thief does not panic"));
        assert_each_once(taken, 2);
    });
}

#[test]
fn push_against_steal() {
    push_against_thief::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_publish_relaxed() {
    push_against_thief::<{ mutation::PUBLISH_RELAXED }>();
}

/// A ring that holds an item throughout is never seen empty, whatever is pushed and popped above
/// that item.
fn looked_at_while_used<const MUTATION: u8>() {
    explore(|| {
        let owner = Owned::<u32, CAPACITY, MUTATION>::new();
        push_all(&owner, 0..1);
        let watched = Arc::clone(owner.ring());
        let watcher = thread::spawn(move || watched.len());
        push_all(&owner, 1..2);
        assert_eq!(owner.pop_newest(), Some(1));
        assert_ne!(watcher.join().expect("the watcher does not panic"), 0, "it was seen empty");
    });
}

#[test]
fn never_seen_empty() {
    looked_at_while_used::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "it was seen empty")]
fn canary_claim_relaxed() {
    looked_at_while_used::<{ mutation::CLAIM_RELAXED }>();
}

/// Two pushers against a close: each message is in a batch or was returned.
fn close_against_pushes<const MUTATION: u8>() {
    explore(|| {
        let queue = Arc::new(Stack::<u32, Infallible, MUTATION>::new());
        let pushers = [0, 2].map(|first| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let returned =
                    [first, first + 1].map(|item| queue.push(item).err().map(|closed| closed.0));
                returned.into_iter().flatten().collect::<Vec<_>>()
            })
        });
        let mut taken: Vec<u32> = queue.take().map(Event::into_inner).collect();
        taken.extend(queue.close().map(Event::into_inner));
        for pusher in pushers {
            taken.extend(pusher.join().expect("the pusher does not panic"));
        }
        assert_eq!(queue.take().len(), 0, "a closed queue stays empty");
        assert_each_once(taken, 4);
    });
}

#[test]
fn close_against_push() {
    close_against_pushes::<{ event::mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "an item was lost")]
fn canary_push_without_check() {
    explore(|| {
        let queue =
            Arc::new(Stack::<u32, Infallible, { event::mutation::PUSH_WITHOUT_CHECK }>::new());
        let pusher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(0).err().map(|closed| closed.0))
        };
        let closed: Vec<u32> = queue.close().map(Event::into_inner).collect();
        let returned = pusher.join().expect("the pusher does not panic");
        assert_each_once(closed.into_iter().chain(returned).collect(), 1);
    });
}

/// The thread that takes an item reads everything that its pusher wrote before the push.
fn taker_sees_the_item<const MUTATION: u8>() {
    explore(|| {
        let queue = Arc::new(Stack::<UnsafeCell<u32>, Infallible, MUTATION>::new());
        let pusher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let item = UnsafeCell::new(0);
                // SAFETY: no other thread has the cell yet.
                item.with_mut(|value| unsafe { value.write(7) });
                drop(queue.push(item));
            })
        };
        for item in queue.close().map(Event::into_inner) {
            // SAFETY: the cell was taken out of the queue and belongs to this thread; loom checks
            // that the write happened before.
            assert_eq!(item.with(|value| unsafe { value.read() }), 7);
        }
        pusher.join().expect("the pusher does not panic");
    });
}

#[test]
fn item_visible_to_its_taker() {
    taker_sees_the_item::<{ event::mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_event_published_relaxed() {
    taker_sees_the_item::<{ event::mutation::PUBLISH_RELAXED }>();
}

/// Exactly one of two pushers wakes a consumer that armed the queue. The consumer then finds an
/// item.
fn arm_against_pushes<const MUTATION: u8>() {
    explore(|| {
        let queue = Arc::new(Stack::<u32, Infallible, MUTATION>::new());
        let pushers = [0, 1].map(|item| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || u32::from(queue.push(item) == Ok(Pushed::Wake)))
        });
        let armed = queue.arm();
        let wakes: u32 =
            pushers.map(|pusher| pusher.join().expect("the pusher does not panic")).iter().sum();
        assert_eq!(wakes, u32::from(armed), "one pusher wakes a consumer that armed the queue");
        assert_each_once(queue.take().map(Event::into_inner).collect(), 2);
    });
}

#[test]
fn arm_against_push() {
    arm_against_pushes::<{ event::mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "one pusher wakes a consumer")]
fn canary_arm_without_cas() {
    arm_against_pushes::<{ event::mutation::ARM_WITHOUT_CAS }>();
}

/// The count of messages wraps once, in every order of two pushers and a taker. One of the messages
/// has a header.
fn counts_against_take<const MUTATION: u8>() {
    explore(|| {
        let queue = Arc::new(Stack::<u32, u8, MUTATION>::counting_from(u16::MAX));
        let pushers = [false, true].map(|is_headed| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let pushed = if is_headed { queue.push_headed(7, 1) } else { queue.push(0) };
                assert!(pushed.is_ok());
            })
        });
        let taken = queue.take().len();
        for pusher in pushers {
            pusher.join().expect("the pusher does not panic");
        }
        let queued = queue.len(u32::from(u16::MAX) + taken as u32) as usize;
        assert_eq!(queued, queue.take().len(), "each message is counted once");
    });
}

#[test]
fn count_against_take() {
    counts_against_take::<{ event::mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "each message is counted once")]
fn canary_carry_unchecked() {
    counts_against_take::<{ event::mutation::CARRY_UNCHECKED }>();
}

#[test]
#[should_panic(expected = "each message is counted once")]
fn canary_headed_uncounted() {
    counts_against_take::<{ event::mutation::HEADED_UNCOUNTED }>();
}

/// Pushes an item to each queue, in memory that they share.
fn push_in_block<const MUTATION: u8>(
    queues: &[Arc<Stack<u32, Infallible, MUTATION>>],
) -> SharedNodes<u32> {
    let mut nodes = SharedNodes::for_messages(SHARERS);
    for (item, queue) in (0..).zip(queues) {
        assert!(queue.push_in(&mut nodes, item).is_ok(), "the queue is open");
    }
    nodes
}

/// The last two messages of a block are taken by two threads, of which one also takes a message of
/// another block. They leave then, and when they end.
fn leave_twice<const MUTATION: u8>() {
    explore(|| {
        let queues = [0, 1].map(|_| Arc::new(Stack::<u32, Infallible, MUTATION>::new()));
        drop(push_in_block(&queues));
        drop(push_in_block(&queues[..1]));
        let takers = queues.map(|queue| thread::spawn(move || queue.close().count()));
        let taken = takers.map(|taker| taker.join().expect("it does not panic"));
        assert_eq!(taken, [2, 1]);
    });
}

#[test]
fn leave_against_leave() {
    leave_twice::<{ event::mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_leave_relaxed() {
    leave_twice::<{ event::mutation::LEAVE_RELAXED }>();
}

/// The sender leaves with the rest of a block while the only message in it is taken. Loom finds a
/// block that is not freed.
fn give_up<const MUTATION: u8>() {
    explore(|| {
        let queue = Arc::new(Stack::<u32, Infallible, MUTATION>::new());
        let nodes = push_in_block(&[Arc::clone(&queue)]);
        let taker = thread::spawn(move || queue.close().count());
        drop(nodes);
        assert_eq!(taker.join().expect("it does not panic"), 1);
    });
}

#[test]
fn give_up_against_take() {
    give_up::<{ event::mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "Arc leaked")]
fn canary_keep_at_end() {
    give_up::<{ event::mutation::KEEP_AT_END }>();
}

#[test]
#[should_panic(expected = "Arc leaked")]
fn canary_leave_without_rmw() {
    give_up::<{ event::mutation::LEAVE_WITHOUT_RMW }>();
}

/// A queue is closed while two messages of a block are pushed to it. A message that is refused
/// leaves its node to the next one.
fn close_against_block<const MUTATION: u8>() {
    explore(|| {
        let queue = Arc::new(Stack::<u32, Infallible, MUTATION>::new());
        let sender = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut nodes = SharedNodes::for_messages(SHARERS);
                let mut push = |item| Some(queue.push_in(&mut nodes, item).err()?.0);
                [push(0), push(1)]
            })
        };
        let mut taken: Vec<u32> = queue.close().map(Event::into_inner).collect();
        taken.extend(sender.join().expect("it does not panic").into_iter().flatten());
        assert_each_once(taken, 2);
    });
}

#[test]
fn close_against_push_in_block() {
    close_against_block::<{ event::mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "an item was lost")]
fn canary_block_without_check() {
    close_against_block::<{ event::mutation::PUSH_WITHOUT_CHECK }>();
}

/// A published structure with its defect, which is the reason for the design of the ring.
mod chase_lev {
    use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
    use procession_sync::atomic::{AtomicU32, fence};

    /// A Chase-Lev deque (Le et al., PPoPP 2013) of four items, with room for all four, and with a
    /// thief that takes half with one CAS.
    pub(super) struct HalfStolen {
        pub(super) top: AtomicU32,
        pub(super) bottom: AtomicU32,
    }

    impl HalfStolen {
        /// The owner's pop. It makes the CAS only for the last item, where it is needed.
        pub(super) fn pop(&self) -> Option<u32> {
            let bottom = self.bottom.load(Relaxed) - 1;
            self.bottom.store(bottom, Relaxed);
            fence(SeqCst);
            let top = self.top.load(Relaxed);
            if top < bottom {
                return Some(bottom);
            }
            self.bottom.store(bottom + 1, Relaxed);
            let last =
                top == bottom && self.top.compare_exchange(top, top + 1, AcqRel, Relaxed).is_ok();
            last.then_some(bottom)
        }

        /// The thief's steal. The items are their own indices, so returning the range stands for
        /// copying the items.
        pub(super) fn steal_half(&self) -> std::ops::Range<u32> {
            let top = self.top.load(Acquire);
            fence(SeqCst);
            let bottom = self.bottom.load(Acquire);
            let count = bottom.saturating_sub(top).div_ceil(2);
            match self.top.compare_exchange(top, top + count, AcqRel, Relaxed) {
                Ok(_) => top..top + count,
                Err(_) => 0..0,
            }
        }
    }
}

/// See `docs/LINEAGE.md`, row A5. The thief reads top = 0 and bottom = 4. The owner pops 3, 2 and 1
/// without a CAS, since top stays 0. The thief's CAS of top from 0 to 2 still succeeds. It takes 0
/// and, for the second time, 1.
#[test]
#[should_panic(expected = "item 1 was taken twice")]
fn chase_lev_half_steal_doubles_an_item() {
    use procession_sync::atomic::AtomicU32;
    explore(|| {
        let deque =
            Arc::new(chase_lev::HalfStolen { top: AtomicU32::new(0), bottom: AtomicU32::new(4) });
        let thief = {
            let deque = Arc::clone(&deque);
            thread::spawn(move || deque.steal_half())
        };
        let mut taken: Vec<u32> = (0..3).filter_map(|_| deque.pop()).collect();
        taken.extend(thief.join().expect("the thief does not panic"));
        taken.extend(deque.pop());
        assert_each_once(taken, 4);
    });
}
