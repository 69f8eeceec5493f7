//! Messages of one sender to many event queues, which share memory.

use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

use procession_queue::{Batch, Closed, Entry, Event, EventQueue, SharedNodes};

use crate::tally::{Large, Noted, OverAligned, Tally};

fn queues<T>(count: usize) -> Vec<EventQueue<T>> {
    (0..count).map(|_| EventQueue::new()).collect()
}

/// Pushes an item to each queue, in memory that they share.
fn send<T>(queues: &[EventQueue<T>], item: impl Fn(usize) -> T) {
    let mut nodes = SharedNodes::for_messages(queues.len());
    for (number, queue) in queues.iter().enumerate() {
        assert!(queue.push_in(&mut nodes, item(number)).is_ok(), "the queue is open");
    }
}

fn messages<T>(batch: Batch<T>) -> Vec<T> {
    batch.map(Event::into_inner).collect()
}

/// Few enough for no block, one block in part, and several blocks, of which the last is used in
/// part.
const COUNTS: [usize; 6] = [0, 1, 7, 8, 60, 500];

#[test]
fn each_queue_gets_its_message() {
    for count in COUNTS {
        let queues = queues(count);
        send(&queues, |number| number);
        for (number, queue) in queues.iter().enumerate() {
            assert_eq!(queue.len(0), 1);
            assert_eq!(messages(queue.take()), [number]);
        }
    }
}

#[test]
fn more_messages_than_expected_have_nodes_of_their_own() {
    let queue = EventQueue::new();
    let mut nodes = SharedNodes::for_messages(20);
    for number in 0..500 {
        assert!(queue.push_in(&mut nodes, number).is_ok());
    }
    drop(nodes);
    assert!(messages(queue.take()).into_iter().eq(0..500));
}

#[test]
fn kinds_of_items_keep_their_order_in_one_queue() {
    let queue = EventQueue::with_system();
    let mut nodes = SharedNodes::for_messages(100);
    for number in 0..100 {
        assert!(queue.push_in(&mut nodes, 4 * number).is_ok());
        assert!(queue.push(4 * number + 1).is_ok());
        assert!(queue.push_system(Entry::new(4 * number + 2)).is_ok());
        assert!(queue.push_headed(7, 4 * number + 3).is_ok());
    }
    let mut batch = queue.take();
    for number in 0..100 {
        assert_eq!(batch.peek_system(), None, "a message in a block is no item of the system");
        assert_eq!(batch.next(), Some(Event::Message(4 * number)));
        assert_eq!(batch.next(), Some(Event::Message(4 * number + 1)));
        assert_eq!(batch.peek_system(), Some(&mut (4 * number + 2)));
        assert_eq!(batch.next(), Some(Event::System(Entry::new(4 * number + 2))));
        let Some(Event::Headed(entry)) = batch.next() else { panic!("it has a header") };
        assert_eq!(entry.into_inner(), (7, 4 * number + 3));
    }
}

#[test]
fn a_message_outlives_its_sender_and_the_other_queues() {
    let drops = Tally::of(100);
    let mut queues = queues(100);
    send(&queues, |number| Noted::new(number, &drops));
    let last = queues.swap_remove(42);
    drop(queues);
    assert_eq!(drops.total(), 99);
    let kept = messages(last.close());
    assert_eq!(kept.iter().map(Noted::number).collect::<Vec<_>>(), [42]);
    drop(kept);
    drops.assert_each_once();
}

#[test]
fn a_closed_queue_returns_the_message() {
    let queues = queues(200);
    queues.iter().step_by(2).for_each(|queue| drop(queue.close()));
    let mut nodes = SharedNodes::for_messages(queues.len());
    let refused = |number| Err(Closed(String::from(number)));
    for queue in &queues {
        let is_closed = queue.is_closed();
        let pushed = queue.push_in(&mut nodes, String::from("a"));
        assert_eq!(pushed.map(drop), if is_closed { refused("a") } else { Ok(()) });
    }
    drop(nodes);
    assert_eq!(queues.iter().map(|queue| messages(queue.take()).len()).sum::<usize>(), 100);
}

#[test]
fn panic_on_drop() {
    const COUNT: usize = 20;
    let drops = Tally::of(COUNT);
    let queue = EventQueue::new();
    let mut nodes = SharedNodes::for_messages(COUNT);
    for number in 0..COUNT {
        let item = if number == 3 { Noted::panicking } else { Noted::new };
        assert!(queue.push_in(&mut nodes, item(number, &drops)).is_ok());
    }
    catch_unwind(AssertUnwindSafe(|| drop(queue)))
        .expect_err("the queue does not swallow the panic");
    drops.assert_each_once();
}

/// Miri sees if a block is not freed then, or twice.
#[test]
fn messages_taken_by_a_destructor_of_a_thread_local() {
    const COUNT: usize = 20;

    struct TakesLast {
        batch: Cell<Option<Batch<usize>>>,
        tally: Arc<Tally>,
    }

    impl Drop for TakesLast {
        fn drop(&mut self) {
            let batch = self.batch.take().expect("its thread has left it");
            self.tally.note_each(messages(batch));
        }
    }

    thread_local! {
        static LAST: OnceCell<TakesLast> = const { OnceCell::new() };
    }

    let queue = EventQueue::new();
    let mut nodes = SharedNodes::for_messages(COUNT);
    for number in 0..COUNT {
        assert!(queue.push_in(&mut nodes, number).is_ok());
    }
    let tally = Arc::new(Tally::of(COUNT));
    let (taken, batch) = (Arc::clone(&tally), queue.take());
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // The thread-local that is used first is destroyed last: after the queue's own
            // thread-local, which is used first when a message is taken.
            LAST.with(|last| {
                let last = last.get_or_init(|| TakesLast { batch: Cell::default(), tally: taken });
                let mut batch = batch;
                last.tally.note_each(batch.by_ref().take(COUNT / 2).map(|event| match event {
                    Event::Message(number) => number,
                    _ => panic!("only messages were pushed"),
                }));
                last.batch.set(Some(batch));
            });
        });
        // The end of the scope would not wait for the destructors.
        thread.join().expect("it does not panic");
    });
    tally.assert_each_once();
}

#[test]
fn items_of_all_sizes_and_alignments() {
    let nothing = queues(300);
    send(&nothing, drop);
    assert!(nothing.iter().all(|queue| messages(queue.take()) == [()]));
    let large = queues(20);
    send(&large, Large::new);
    let is_whole = |(number, queue): (usize, &EventQueue<Large>)| {
        messages(queue.take()) == [Large::new(number)]
    };
    assert!(large.iter().enumerate().all(is_whole));
    let aligned = queues(20);
    send(&aligned, OverAligned);
    for (number, queue) in aligned.iter().enumerate() {
        assert_eq!(messages(queue.take()), [OverAligned(number)]);
    }
    #[repr(align(128))]
    #[derive(PartialEq, Debug)]
    struct TwoLines(u8);
    let lines = queues(20);
    send(&lines, |number| TwoLines(number as u8));
    for (number, queue) in lines.iter().enumerate() {
        assert_eq!(messages(queue.take()), [TwoLines(number as u8)]);
    }
}

/// Two threads take and close while a third one sends, in each of many rounds.
#[test]
fn stress() {
    const QUEUES: usize = 150;
    const ROUNDS: usize = if cfg!(miri) { 3 } else { 500 };
    for _ in 0..ROUNDS {
        let (queues, taken) = (queues::<Box<usize>>(QUEUES), Tally::of(QUEUES));
        let start = Barrier::new(3);
        thread::scope(|scope| {
            for half in 0..2 {
                let (queues, taken, start) = (&queues, &taken, &start);
                scope.spawn(move || {
                    start.wait();
                    for queue in queues.iter().skip(half).step_by(2) {
                        for batch in [queue.take(), queue.close()] {
                            taken.note_each(messages(batch).into_iter().map(|number| *number));
                        }
                    }
                });
            }
            start.wait();
            let mut nodes = SharedNodes::for_messages(QUEUES);
            for (number, queue) in queues.iter().enumerate() {
                if let Err(Closed(number)) = queue.push_in(&mut nodes, Box::new(number)) {
                    taken.note(*number);
                }
            }
        });
        taken.assert_each_once();
    }
}
