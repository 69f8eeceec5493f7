//! The event queue: many threads push, a consumer takes everything in one step, and it is closed
//! once.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use procession_queue::{Batch, Closed, Entry, Event, EventQueue, Pushed};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::tally::{Dice, Large, Noted, OverAligned, Pushers, Tally};

fn push_all<T>(queue: &EventQueue<T>, items: impl IntoIterator<Item = T>) {
    for item in items {
        queue.push(item).expect("the queue is open");
    }
}

fn filled(items: impl IntoIterator<Item = usize>) -> EventQueue<usize> {
    let queue = EventQueue::new();
    push_all(&queue, items);
    queue
}

/// The messages of a batch from a queue that carries only messages.
fn messages<T>(batch: impl Iterator<Item = Event<T>>) -> impl Iterator<Item = T> {
    batch.map(Event::into_inner)
}

fn batch(items: impl IntoIterator<Item = usize>) -> Batch<usize> {
    filled(items).take()
}

/// Takes until nothing is left and nothing more will come.
fn take_until_the_end<T>(queue: &EventQueue<T>, pushers: &Pushers, mut receive: impl FnMut(T)) {
    loop {
        // Checked before the attempt, so that the attempt finds the last items pushed.
        let last = pushers.have_left();
        let batch = queue.take();
        if batch.len() == 0 {
            if last {
                return;
            }
            thread::yield_now();
        }
        messages(batch).for_each(&mut receive);
    }
}

/// Runs `push` on `count` threads, which start together, and `consume` on this thread.
fn push_at_once(count: usize, push: impl Fn(usize) + Sync, consume: impl FnOnce(&Pushers)) {
    let pushers = Pushers::of(count);
    let start = Barrier::new(count);
    thread::scope(|scope| {
        for id in 0..count {
            let (pushers, start, push) = (&pushers, &start, &push);
            scope.spawn(move || {
                let _leave = pushers.leave_with_scope();
                start.wait();
                push(id);
            });
        }
        consume(&pushers);
    });
}

/// Panics unless the items of each producer arrive in their order. Producer n pushes the items from
/// n * `count`.
struct OrderOfEach {
    count: usize,
    newest: Vec<Option<usize>>,
}

impl OrderOfEach {
    fn new(producers: usize, count: usize) -> Self {
        Self { count, newest: vec![None; producers] }
    }

    #[track_caller]
    fn check(&mut self, item: usize) {
        let newest = &mut self.newest[item / self.count];
        assert!(*newest < Some(item), "{item} came after {newest:?}");
        *newest = Some(item);
    }
}

#[test]
fn smoke() {
    let queue = EventQueue::new();
    assert!(messages(queue.take()).eq([]));
    assert_eq!(queue.push(1), Ok(Pushed::Queued));
    assert!(messages(queue.take()).eq([1]));
    assert!(messages(queue.take()).eq([]));
    assert_eq!(queue.push(2), Ok(Pushed::Queued));
    assert_eq!(queue.push(3), Ok(Pushed::Queued));
    assert!(messages(queue.take()).eq([2, 3]));
    assert_eq!(queue.push(4), Ok(Pushed::Queued));
    assert!(messages(queue.close()).eq([4]));
}

#[test]
fn is_empty() {
    let queue = EventQueue::new();
    assert!(queue.is_empty());
    queue.push(1).unwrap();
    assert!(!queue.is_empty());
    drop(queue.take());
    assert!(queue.is_empty());
    assert!(queue.arm());
    assert!(queue.is_empty(), "an armed queue holds nothing");
    queue.push(2).unwrap();
    assert!(!queue.is_empty());
    assert!(!queue.is_closed());
    drop(queue.close());
    assert!(queue.is_empty(), "a closed queue holds nothing");
    assert!(queue.is_closed());
}

#[test]
fn spsc() {
    const COUNT: usize = if cfg!(miri) { 100 } else { 100_000 };
    let queue = EventQueue::new();
    let mut taken = Vec::new();
    let push = |_| (0..COUNT).for_each(|item| assert_eq!(queue.push(item), Ok(Pushed::Queued)));
    push_at_once(1, push, |pushers| take_until_the_end(&queue, pushers, |item| taken.push(item)));
    assert!(taken.into_iter().eq(0..COUNT));
}

#[test]
fn mpsc() {
    const PRODUCERS: usize = 4;
    const COUNT: usize = if cfg!(miri) { 50 } else { 30_000 };
    let queue = EventQueue::new();
    let tally = Tally::of(PRODUCERS * COUNT);
    let mut order = OrderOfEach::new(PRODUCERS, COUNT);
    let push = |id| push_all(&queue, id * COUNT..(id + 1) * COUNT);
    push_at_once(PRODUCERS, push, |pushers| {
        take_until_the_end(&queue, pushers, |item| {
            order.check(item);
            tally.note(item);
        });
    });
    tally.assert_each_once();
}

#[test]
fn mpmc() {
    const PRODUCERS: usize = 2;
    const CONSUMERS: usize = 2;
    const COUNT: usize = if cfg!(miri) { 50 } else { 30_000 };
    let queue = EventQueue::new();
    let tally = Tally::of(PRODUCERS * COUNT);
    let push = |id| push_all(&queue, id * COUNT..(id + 1) * COUNT);
    push_at_once(PRODUCERS, push, |pushers| {
        thread::scope(|scope| {
            for _ in 0..CONSUMERS {
                scope.spawn(|| {
                    let mut order = OrderOfEach::new(PRODUCERS, COUNT);
                    take_until_the_end(&queue, pushers, |item| {
                        order.check(item);
                        tally.note(item);
                    });
                });
            }
        });
    });
    tally.assert_each_once();
}

/// All producers push at the same time. Nothing is taken before they are done.
#[test]
fn stampede() {
    const PRODUCERS: usize = 8;
    const COUNT: usize = if cfg!(miri) { 20 } else { 10_000 };
    let queue = EventQueue::new();
    let push = |id| push_all(&queue, id * COUNT..(id + 1) * COUNT);
    push_at_once(PRODUCERS, push, |_| {});
    let batch = queue.take();
    assert_eq!(batch.len(), PRODUCERS * COUNT);
    assert!(queue.is_empty(), "it is taken whole");
    let tally = Tally::of(PRODUCERS * COUNT);
    let mut order = OrderOfEach::new(PRODUCERS, COUNT);
    for item in messages(batch) {
        order.check(item);
        tally.note(item);
    }
    tally.assert_each_once();
}

/// Each thread does everything, in an order that looks random, until a thread closes the queue.
#[test]
fn stress() {
    const THREADS: usize = 4;
    const COUNT: usize = if cfg!(miri) { 50 } else { 30_000 };
    let queue = EventQueue::new();
    let tally = Tally::of(THREADS * COUNT);
    let push = |id| {
        let mut dice = Dice::new(id);
        let mut kept = Batch::new();
        for item in id * COUNT..(id + 1) * COUNT {
            if let Err(Closed(item)) = queue.push(item) {
                assert!(queue.is_closed());
                tally.note(item);
            }
            match dice.roll(8) {
                0 => tally.note_each(messages(queue.take())),
                1 => kept.append(queue.take()),
                2 => tally.note_each(messages(kept.by_ref().take(3))),
                3 => {
                    queue.arm();
                }
                4 => queue.disarm(),
                _ => {}
            }
        }
        if id == 0 {
            kept.append(queue.close());
        }
        tally.note_each(messages(kept));
    };
    push_at_once(THREADS, push, |_| {});
    assert_eq!(queue.take().len(), 0);
    tally.assert_each_once();
}

/// Every producer's pushes succeed, however many others push and however fast the consumer takes.
#[test]
fn no_starvation() {
    const PRODUCERS: usize = 4;
    const ENOUGH: usize = if cfg!(miri) { 2 } else { 500 };
    let queue = EventQueue::new();
    let hits: Vec<_> = (0..PRODUCERS).map(|_| AtomicUsize::new(0)).collect();
    let all_hit = || hits.iter().all(|hits| hits.load(Relaxed) >= ENOUGH);
    let push = |id| {
        while !all_hit() {
            queue.push(id).expect("the queue is open");
            thread::yield_now();
        }
    };
    push_at_once(PRODUCERS, push, |_| {
        while !all_hit() {
            for id in messages(queue.take()) {
                hits[id].fetch_add(1, Relaxed);
            }
        }
    });
}

#[test]
fn destructors() {
    const PRODUCERS: usize = 3;
    const COUNT: usize = if cfg!(miri) { 50 } else { 10_000 };
    const LEFT: usize = 5;
    let drops = Tally::of(PRODUCERS * COUNT + LEFT);
    let queue = EventQueue::new();
    let noted = |numbers: Range<usize>| numbers.map(|number| Noted::new(number, &drops));
    let push = |id| push_all(&queue, noted(id * COUNT..(id + 1) * COUNT));
    push_at_once(PRODUCERS, push, |pushers| {
        while !pushers.have_left() {
            // Some items of each batch are iterated over; the remaining items are dropped with the
            // batch.
            queue.take().by_ref().take(2).for_each(drop);
        }
    });
    drop(queue.take());
    assert_eq!(drops.total(), PRODUCERS * COUNT);
    push_all(&queue, noted(PRODUCERS * COUNT..PRODUCERS * COUNT + LEFT));
    assert_eq!(drops.total(), PRODUCERS * COUNT, "what is queued lives");
    drop(queue);
    drops.assert_each_once();
}

#[test]
fn destructors_of_an_armed_and_of_a_closed_queue() {
    let drops = Tally::of(2);
    let queue = EventQueue::<Noted<'_>>::new();
    assert!(queue.arm());
    drop(queue);

    let queue = EventQueue::new();
    queue.push(Noted::new(0, &drops)).expect("the queue is open");
    let batch = queue.close();
    let refused = queue.push(Noted::new(1, &drops)).expect_err("the queue is closed");
    drop(queue);
    assert_eq!(drops.total(), 0, "neither the batch nor the refused item belongs to the queue");
    drop(batch);
    assert_eq!(drops.total(), 1);
    drop(refused);
    drops.assert_each_once();
}

#[test]
fn panic_on_drop() {
    const COUNT: usize = 8;
    for panicking in 0..COUNT {
        let drops = Tally::of(2 * COUNT);
        let queue = EventQueue::new();
        let push = |number| {
            let item = if number % COUNT == panicking { Noted::panicking } else { Noted::new };
            queue.push(item(number, &drops)).expect("the queue is open");
        };
        (0..COUNT).for_each(push);
        let batch = queue.take();
        (COUNT..2 * COUNT).for_each(push);
        catch_unwind(AssertUnwindSafe(|| drop(batch)))
            .expect_err("the batch does not swallow the panic");
        assert_eq!(drops.total(), COUNT);
        catch_unwind(AssertUnwindSafe(|| drop(queue)))
            .expect_err("the queue does not swallow the panic");
        drops.assert_each_once();
    }
}

#[test]
fn zero_sized_items() {
    let queue = EventQueue::new();
    push_all(&queue, [(); 10]);
    let batch = queue.take();
    assert_eq!(batch.len(), 10);
    assert_eq!(batch.count(), 10);
    drop(queue.close());
    assert_eq!(queue.push(()), Err(Closed(())));
}

#[test]
fn large_items() {
    const PRODUCERS: usize = 2;
    const COUNT: usize = if cfg!(miri) { 10 } else { 1_000 };
    let queue = EventQueue::new();
    let tally = Tally::of(PRODUCERS * COUNT);
    let push = |id| push_all(&queue, (id * COUNT..(id + 1) * COUNT).map(Large::new));
    push_at_once(PRODUCERS, push, |pushers| {
        take_until_the_end(&queue, pushers, |item| tally.note_each(item.number()));
    });
    tally.assert_each_once();
}

#[test]
fn over_aligned_items() {
    let queue = EventQueue::new();
    push_all(&queue, (0..5).map(OverAligned));
    assert!(messages(queue.take()).eq((0..5).map(OverAligned)));
}

#[test]
fn it_is_taken_whole_in_the_order_of_the_pushes() {
    let queue = filled(0..100);
    let mut batch = queue.take();
    assert!(queue.is_empty());
    queue.push(100).unwrap();
    for left in (0..100).rev() {
        assert_eq!(batch.next(), Some(Event::Message(99 - left)));
        assert_eq!(batch.size_hint(), (left, Some(left)));
    }
    assert_eq!(batch.next(), None);
    assert_eq!(batch.next(), None, "it stays at its end");
    assert!(messages(queue.take()).eq([100]), "what was pushed since is in the next batch");
}

#[test]
fn append_keeps_the_order() {
    let mut all = Batch::new();
    all.append(Batch::new());
    assert_eq!(all.len(), 0);
    all.append(batch(0..3));
    all.append(Batch::default());
    all.append(batch(3..4));
    all.append(batch(4..8));
    assert_eq!(all.len(), 8);
    assert!(messages(all.by_ref().take(3)).eq(0..3));
    all.append(batch(8..10));
    assert!(messages(all.by_ref()).eq(3..10));
    // Both ends are behind the last item now.
    all.append(batch(10..12));
    assert!(messages(all.by_ref()).eq(10..12));

    let mut read_to_the_end = batch(0..2);
    assert_eq!(read_to_the_end.by_ref().count(), 2);
    let mut all = batch(0..2);
    all.append(read_to_the_end);
    all.append(batch(2..3));
    assert_eq!(all.len(), 3);
    assert!(messages(all).eq(0..3));
}

#[test]
fn appended_items_are_dropped_once() {
    let drops = Tally::of(6);
    let mut all = Batch::new();
    for half in [0..3, 3..6] {
        let queue = EventQueue::new();
        push_all(&queue, half.map(|number| Noted::new(number, &drops)));
        all.append(queue.close());
    }
    assert_eq!(drops.total(), 0);
    drop(all.next());
    assert_eq!(drops.total(), 1);
    drop(all);
    drops.assert_each_once();
}

#[test]
fn all_kinds_keep_one_order_and_each_its_type() {
    const COUNT: usize = if cfg!(miri) { 100 } else { 10_000 };
    let queue = EventQueue::<u8, usize>::with_system();
    let is_system = |number: usize| number.is_multiple_of(3) || number % 7 == 2;
    let make = |number| {
        if is_system(number) {
            Event::System(Entry::new(number))
        } else if number % 5 == 4 {
            Event::Headed(Entry::new((number, number as u8)))
        } else {
            Event::Message(number as u8)
        }
    };
    let push = |event| match event {
        Event::Message(message) => {
            queue.push(message).map_err(|Closed(message)| Event::Message(message))
        }
        Event::System(entry) => {
            queue.push_system(entry).map_err(|Closed(entry)| Event::System(entry))
        }
        Event::Headed(entry) => {
            let (header, message) = entry.into_inner();
            let refused = |Closed(message)| Event::Headed(Entry::new((header, message)));
            queue.push_headed(header, message).map_err(refused)
        }
    };
    let mut all = Batch::default();
    for number in 0..COUNT {
        if number == COUNT / 2 {
            all.append(queue.take());
        }
        push(make(number)).expect("the queue is open");
    }
    all.append(queue.close());
    assert_eq!(all.len(), COUNT);
    assert!(all.eq((0..COUNT).map(make)));
    for number in [0, 1, 4] {
        assert_eq!(push(make(number)), Err(make(number)), "each comes back as what it is");
    }
}

#[test]
fn an_item_of_the_system_answers_an_arming_and_is_dropped_once() {
    let drops = Tally::of(4);
    let queue = EventQueue::with_system();
    assert!(queue.arm());
    assert!(matches!(queue.push_system(Entry::new(Noted::new(0, &drops))), Ok(Pushed::Wake)));
    assert!(matches!(
        queue.push([Noted::new(1, &drops), Noted::new(2, &drops)]),
        Ok(Pushed::Queued)
    ));
    drop(queue.take());
    assert_eq!(drops.total(), 3);
    assert!(queue.push_system(Entry::new(Noted::new(3, &drops))).is_ok());
    drop(queue);
    drops.assert_each_once();
}

#[test]
fn a_message_with_a_header_keeps_its_place_counts_and_is_dropped_once() {
    let drops = Tally::of(4);
    let queue = EventQueue::with_system();
    assert!(queue.arm());
    assert_eq!(queue.push_headed(1, Noted::new(0, &drops)).ok(), Some(Pushed::Wake));
    assert!(queue.push_system(Entry::new(2)).is_ok());
    assert!(queue.push(Noted::new(1, &drops)).is_ok());
    assert!(queue.push_headed(3, Noted::new(2, &drops)).is_ok());
    assert_eq!(queue.len(0), 3, "the item of the system does not count");

    let mut batch = queue.take();
    assert_eq!(batch.peek_system(), None, "a header is no item by itself");
    let Some(Event::Headed(first)) = batch.next() else { panic!("the first has a header") };
    assert_eq!(first.into_inner().0, 1);
    assert_eq!(batch.peek_system(), Some(&mut 2));
    assert!(matches!(batch.next(), Some(Event::System(_))));
    assert!(matches!(batch.next(), Some(Event::Message(_))));
    drop(batch);
    drop(queue.close());
    let refused = queue.push_headed(4, Noted::new(3, &drops));
    assert!(refused.is_err_and(|Closed(message)| message.number() == 3));
    drops.assert_each_once();
}

#[test]
fn it_knows_how_many_messages_are_queued() {
    // More messages than the free bits of a link can count.
    const COUNT: u32 = if cfg!(miri) { 100 } else { 200_000 };
    let queue = EventQueue::<u32, u8>::with_system();
    assert_eq!(queue.len(0), 0);
    let mut taken = 0;
    for (number, pushed) in (1..=COUNT).enumerate() {
        queue.push(pushed).expect("the queue is open");
        assert_eq!(queue.len(taken), pushed - taken);
        if number % 100 == 0 {
            queue.push_system(Entry::new(0)).expect("the queue is open");
            assert_eq!(queue.len(taken), pushed - taken, "only messages count");
        }
        if pushed == COUNT / 3 {
            drop(queue.take());
            taken = pushed;
            assert_eq!(queue.len(taken), 0);
            assert!(queue.arm());
            assert_eq!(queue.len(taken), 0, "armed or not");
            queue.disarm();
        }
    }
    drop(queue.close());
    assert_eq!(queue.len(taken), 0);
}

#[test]
fn the_count_of_several_pushers_is_right_in_the_end() {
    const EACH: u32 = if cfg!(miri) { 50 } else { 100_000 };
    let queue = EventQueue::new();
    let mut taken = 0;
    let push = |_| push_all(&queue, 0..EACH);
    push_at_once(3, push, |pushers| take_until_the_end(&queue, pushers, |_| taken += 1));
    assert_eq!(taken, 3 * EACH);
    assert_eq!(queue.len(0), 3 * EACH, "as if nothing had been taken");
    assert_eq!(queue.len(taken), 0);
}

#[test]
fn closed_returns_the_item() {
    let queue = EventQueue::new();
    queue.push(Box::new(1)).unwrap();
    assert!(messages(queue.close()).eq([Box::new(1)]));
    for _ in 0..2 {
        let item = Box::new(2);
        let address: *const i32 = &raw const *item;
        let Err(Closed(refused)) = queue.push(item) else { panic!("the queue is closed") };
        assert!(std::ptr::eq(&raw const *refused, address), "it is the very item");
        assert_eq!(queue.take().len(), 0);
        assert_eq!(queue.close().len(), 0, "a closed queue stays closed");
    }
    assert!(!queue.arm(), "nothing will come");
    queue.disarm();
    assert!(queue.is_closed(), "nothing opens it again");
}

#[test]
fn close_against_many_pushers_delivers_or_returns_each_once() {
    const ROUNDS: usize = if cfg!(miri) { 3 } else { 100 };
    const PRODUCERS: usize = 4;
    const COUNT: usize = if cfg!(miri) { 20 } else { 500 };
    for round in 0..ROUNDS {
        let queue = EventQueue::new();
        let tally = Tally::of(PRODUCERS * COUNT);
        let delivered = AtomicUsize::new(0);
        let push = |id| {
            let mut refused = false;
            for item in id * COUNT..(id + 1) * COUNT {
                match queue.push(item) {
                    Ok(_) => assert!(!refused, "a queue that was closed stays closed"),
                    Err(Closed(item)) => {
                        refused = true;
                        tally.note(item);
                    }
                }
                delivered.fetch_add(usize::from(!refused), Relaxed);
            }
        };
        push_at_once(PRODUCERS, push, |pushers| {
            // Each round closes the queue after a different number of pushes.
            while delivered.load(Relaxed) < round * PRODUCERS * COUNT / ROUNDS
                && !pushers.have_left()
            {
                thread::yield_now();
            }
            let mut order = OrderOfEach::new(PRODUCERS, COUNT);
            let mut batch = queue.take();
            batch.append(queue.close());
            for item in messages(batch) {
                order.check(item);
                tally.note(item);
            }
        });
        assert_eq!(queue.take().len(), 0, "nothing was pushed after the close");
        tally.assert_each_once();
    }
}

#[test]
fn one_of_several_closers_gets_what_was_queued() {
    const ROUNDS: usize = if cfg!(miri) { 5 } else { 500 };
    for _ in 0..ROUNDS {
        let queue = filled(0..3);
        let taken = AtomicUsize::new(0);
        let close = |_| {
            let batch = queue.close();
            assert!(matches!(batch.len(), 0 | 3), "all or nothing");
            taken.fetch_add(batch.len(), Relaxed);
        };
        push_at_once(3, close, |_| {});
        assert_eq!(taken.into_inner(), 3);
    }
}

#[test]
fn arming_is_answered_by_the_next_push_only() {
    let queue = EventQueue::new();
    assert!(queue.arm());
    assert!(queue.arm(), "it is armed still");
    assert_eq!(queue.push(1), Ok(Pushed::Wake));
    assert_eq!(queue.push(2), Ok(Pushed::Queued));
    assert!(!queue.arm(), "there is something to take");
    assert!(messages(queue.take()).eq([1, 2]));
    assert_eq!(queue.push(3), Ok(Pushed::Queued), "the request was answered");
    assert!(messages(queue.take()).eq([3]));

    assert!(queue.arm());
    queue.disarm();
    assert_eq!(queue.push(4), Ok(Pushed::Queued), "the request was taken back");
    queue.disarm();
    assert!(
        messages(queue.take()).eq([4]),
        "taking a request back that was never made loses nothing"
    );
}

#[test]
fn closing_an_armed_queue_wakes_no_consumer() {
    let queue = EventQueue::new();
    assert!(queue.arm());
    assert_eq!(queue.close().len(), 0);
    assert_eq!(queue.push(1), Err(Closed(1)));
}

/// The consumer waits for its wake-up without taking anything. If the responsible push does not
/// wake it, or a second push does, the count of wake-ups is wrong.
#[test]
fn each_arming_is_answered_by_exactly_one_of_many_pushers() {
    const PRODUCERS: usize = 4;
    const COUNT: usize = if cfg!(miri) { 30 } else { 20_000 };
    let queue = EventQueue::new();
    let tally = Tally::of(PRODUCERS * COUNT);
    let wakes = AtomicUsize::new(0);
    let mut armings = 0;
    let push = |id| {
        for item in id * COUNT..(id + 1) * COUNT {
            if queue.push(item) == Ok(Pushed::Wake) {
                // Ordering: Release pairs with the Acquire below; the woken consumer finds the
                // item.
                wakes.fetch_add(1, Release);
            }
            if item % 7 == 0 {
                thread::yield_now();
            }
        }
    };
    let mut left = PRODUCERS * COUNT;
    push_at_once(PRODUCERS, push, |pushers| {
        while left > 0 {
            let last = pushers.have_left();
            let batch = queue.take();
            if last && batch.len() == 0 {
                // An item was lost; the tally shows which.
                break;
            }
            left -= batch.len();
            tally.note_each(messages(batch));
            if left > 0 && queue.arm() {
                armings += 1;
                while wakes.load(Acquire) < armings && !pushers.have_left() {
                    thread::yield_now();
                }
                assert!(!queue.is_empty(), "a consumer is woken to find something");
            }
        }
    });
    assert_eq!(wakes.into_inner(), armings);
    tally.assert_each_once();
}

#[test]
fn a_million_items_drain_and_drop_without_recursion() {
    const COUNT: usize = if cfg!(miri) { 1_000 } else { 1_000_000 };
    assert!(messages(batch(0..COUNT)).eq(0..COUNT));
    drop(batch(0..COUNT));
    drop(filled(0..COUNT));
    drop(filled(0..COUNT).close());
}
