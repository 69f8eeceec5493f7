//! The cost of queues from many threads to one, under contention.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Barrier, mpsc};
use std::thread;

use crossbeam_deque::{Injector, Steal};
use crossbeam_queue::SegQueue;
use procession_queue::{Batch, Event, EventQueue, Global};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{Acquire, Release};

use crate::scenario::{Apart, Family, Run, Scale, Scenario, Tally, Unit, timed};

const PRODUCERS: [usize; 2] = [2, 4];

/// Number of items of all producers together.
const ITEMS: usize = 1_000_000;

pub(crate) fn families() -> [Family; 2] {
    [
        Family {
            rivals: &["procession", "crossbeam SegQueue", "std mpsc"],
            definitions: &[(
                "push/contended/event/P",
                "P threads push as fast as they can to the event queue, one thread takes until it has everything.",
            )],
            scenarios: PRODUCERS
                .map(|producers| scenario("event", producers, [event, seg_queue, mpsc]))
                .into(),
        },
        Family {
            rivals: &["procession", "crossbeam Injector", "Mutex<VecDeque>"],
            definitions: &[(
                "push/contended/global/P",
                "P threads push as fast as they can to the global queue, one thread pops until it has everything.",
            )],
            scenarios: PRODUCERS
                .map(|producers| scenario("global", producers, [global, injector, locked]))
                .into(),
        },
    ]
}

fn scenario(queue: &str, producers: usize, runs: [fn(usize, Scale) -> Vec<f64>; 3]) -> Scenario {
    Scenario {
        name: format!("push/contended/{queue}/{producers}"),
        units: &[Unit::Cost("ns per item")],
        runs: runs.map(|run| Box::new(move |scale| run(producers, scale)) as Run).into(),
    }
}

fn event(producers: usize, scale: Scale) -> Vec<f64> {
    let Apart(queue) = &Apart(EventQueue::new());
    let mut batch = Batch::new();
    contend(
        producers,
        scale,
        |item| assert!(queue.push(item).is_ok(), "the queue is not closed"),
        || {
            let event = batch.next().or_else(|| {
                batch = queue.take();
                batch.next()
            });
            event.map(Event::into_inner)
        },
    )
}

fn seg_queue(producers: usize, scale: Scale) -> Vec<f64> {
    let Apart(queue) = &Apart(SegQueue::new());
    contend(producers, scale, |item| queue.push(item), || queue.pop())
}

fn mpsc(producers: usize, scale: Scale) -> Vec<f64> {
    let (sender, receiver) = mpsc::channel();
    contend(
        producers,
        scale,
        |item| sender.send(item).expect("the receiver lives"),
        || receiver.try_recv().ok(),
    )
}

fn global(producers: usize, scale: Scale) -> Vec<f64> {
    let Apart(queue) = &Apart(Global::new());
    contend(producers, scale, |item| queue.push(item), || queue.pop())
}

fn injector(producers: usize, scale: Scale) -> Vec<f64> {
    let Apart(queue) = &Apart(Injector::new());
    let pop = || loop {
        match queue.steal() {
            Steal::Success(item) => return Some(item),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    };
    contend(producers, scale, |item| queue.push(item), pop)
}

fn locked(producers: usize, scale: Scale) -> Vec<f64> {
    let Apart(queue) = &Apart(Mutex::new(VecDeque::new()));
    let lock = || queue.lock();
    contend(producers, scale, |item| lock().push_back(item), || lock().pop_front())
}

/// Lets threads call `push`, and calls `pop` on this thread until everything has come. Yields if
/// there is nothing.
fn contend(
    producers: usize,
    scale: Scale,
    push: impl Fn(usize) + Sync,
    mut pop: impl FnMut() -> Option<usize>,
) -> Vec<f64> {
    let share = scale.count(ITEMS) / producers;
    let items = share * producers;
    let together = &Barrier::new(producers + 1);
    let Apart(pushing) = &Apart(AtomicUsize::new(producers));
    let (ns, tally) = thread::scope(|scope| {
        for producer in 0..producers {
            let push = &push;
            scope.spawn(move || {
                together.wait();
                for item in producer * share..(producer + 1) * share {
                    push(black_box(item));
                }
                // Ordering: Release pairs with the Acquire of the consumer; its last look sees all
                // pushes.
                pushing.fetch_sub(1, Release);
                // The allocator treats the memory of a thread that has ended differently.
                together.wait();
            });
        }
        together.wait();
        let measured = timed(|| {
            let mut tally = Tally::default();
            loop {
                let last = pushing.load(Acquire) == 0;
                match pop() {
                    Some(item) => tally.add(item),
                    None if last => return tally,
                    None => thread::yield_now(),
                }
            }
        });
        together.wait();
        measured
    });
    tally.assert_each_below(items);
    vec![ns / items as f64]
}
