//! Four threads that must agree in their counts at the end.

use std::cell::RefCell;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::{Arc, Mutex, thread};

use super::{LIMIT, every};
use crate::time::timers::heap::NEVER;
use crate::time::timers::{TimerCounts, TimerId, Timers};

/// The record that the threads of the stress test keep of one timer.
#[derive(Debug, Default)]
struct Record {
    fired: AtomicU64,
    /// No firing may be earlier than this.
    not_before: AtomicU64,
    deleted: AtomicU64,
}

/// Four threads add, reset, delete and fire the timers of one heap. Only the thread that added a
/// timer resets it, and therefore knows its deadline; any thread deletes it.
#[test]
fn four_threads_lose_and_double_nothing() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    let timers = Arc::new(Timers::<Arc<Record>>::new(LIMIT));
    let clock = Arc::new(AtomicU64::new(1));
    let shelf = Arc::new(Mutex::new(Vec::<TimerId>::new()));
    let threads = [1, 2, 3, 4u64].map(|seed| {
        let (timers, clock, shelf) = (Arc::clone(&timers), Arc::clone(&clock), Arc::clone(&shelf));
        let work = move || {
            let mut random = seed;
            let mut draw = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let fire = |record: Arc<Record>, now: u64| {
                assert_eq!(record.fired.swap(now, SeqCst), 0, "fired twice");
            };
            let mut own: Vec<(TimerId, Arc<Record>)> = Vec::new();
            let mut all = Vec::new();
            for _ in 0..ROUNDS {
                let now = clock.load(SeqCst);
                match draw(10) {
                    0..3 => {
                        let record = Arc::new(Record::default());
                        let when = now + draw(300);
                        record.not_before.store(when, SeqCst);
                        if let Ok(armed) = timers.add(when, None, Arc::clone(&record)) {
                            if draw(2) == 0 {
                                shelf.lock().push(armed.id);
                            }
                            own.push((armed.id, Arc::clone(&record)));
                            all.push(record);
                        }
                    }
                    3..6 if !own.is_empty() => {
                        let which = draw(own.len() as u64) as usize;
                        let (id, record) = &own[which];
                        let (before, when) = (record.not_before.load(SeqCst), now + draw(600));
                        // Either deadline is valid while the reset is under way.
                        record.not_before.fetch_min(when, SeqCst);
                        let kept = timers.reset(*id, when).map_or(before, |_| when);
                        record.not_before.store(kept, SeqCst);
                        if kept == before {
                            own.swap_remove(which);
                        }
                    }
                    6 => {
                        let id = shelf.lock().pop();
                        if let Some(record) = id.and_then(|id| timers.delete(id)) {
                            assert_eq!(record.deleted.fetch_add(1, SeqCst), 0, "deleted twice");
                        }
                    }
                    7 => {
                        clock.fetch_add(draw(20), SeqCst);
                    }
                    8 => {
                        timers.clean();
                    }
                    _ => {
                        let _ = timers.run(now, &mut |record| fire(record, now));
                    }
                }
            }
            all
        };
        #[expect(clippy::disallowed_methods, reason = "these threads are the test")]
        thread::spawn(work)
    });
    let records: Vec<Arc<Record>> =
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect();
    timers.adjust();
    timers.assert_sound();
    let end = NEVER - 1;
    while timers
        .run(end, &mut |record| assert_eq!(record.fired.swap(end, SeqCst), 0, "fired twice"))
        .more
    {}

    let deleted = records.iter().filter(|record| record.deleted.load(SeqCst) == 1).count() as u64;
    for record in &records {
        let (fired, deleted) = (record.fired.load(SeqCst), record.deleted.load(SeqCst));
        assert!((fired != 0) != (deleted == 1), "a timer ends exactly once: {record:?}");
        assert!(fired == 0 || fired >= record.not_before.load(SeqCst), "early: {record:?}");
    }
    let armed = records.len() as u64;
    assert_eq!(
        timers.counts(),
        TimerCounts { armed, fired: armed - deleted, ticks: 0, cancelled: deleted, pending: 0 }
    );
}

/// Two threads fire periodic timers while a third replaces and deletes them. Each tick uses the
/// action that its timer has then.
#[test]
fn ticks_and_replacements_do_not_mix() {
    const ROUNDS: u64 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let timers = Arc::new(Timers::<Arc<AtomicU64>>::new(LIMIT));
    let clock = Arc::new(AtomicU64::new(1));
    let runners = [(); 2].map(|()| {
        let (timers, clock) = (Arc::clone(&timers), Arc::clone(&clock));
        let work = move || {
            let mut ticks = 0;
            while clock.load(SeqCst) != NEVER {
                ticks += u64::from(timers.run(clock.load(SeqCst), &mut |_| {}).fired);
            }
            ticks
        };
        #[expect(clippy::disallowed_methods, reason = "these threads are the test")]
        thread::spawn(work)
    });
    let alive = Arc::new(AtomicU64::new(0));
    let ids = RefCell::new(Vec::new());
    for round in 0..ROUNDS {
        let now = clock.fetch_add(3, SeqCst);
        let mut ids = ids.borrow_mut();
        match round % 4 {
            0 => ids.push(timers.periodic(now, 1 + round % 7, Arc::clone(&alive))),
            1 => {
                let id = ids[round as usize % ids.len()];
                assert!(
                    timers.modify(id, now + 1, every(2), Arc::clone(&alive)).is_ok(),
                    "it does not end by itself"
                );
            }
            2 => assert!(
                timers.reset(ids[round as usize % ids.len()], now + 2).is_some(),
                "it does not end by itself"
            ),
            _ if ids.len() > 20 => {
                let which = round as usize % ids.len();
                assert!(
                    timers.delete(ids.swap_remove(which)).is_some(),
                    "it does not end by itself"
                );
            }
            _ => {}
        }
    }
    clock.store(NEVER, SeqCst);
    let ticks: u64 =
        runners.into_iter().map(|runner| runner.join().expect("no thread panics")).sum();
    timers.adjust();
    timers.assert_sound();
    let counts = timers.counts();
    assert_eq!(counts.ticks, ticks);
    assert_eq!(counts.pending, ids.borrow().len() as u64);
    assert_eq!(
        Arc::strong_count(&alive) as u64,
        1 + 2 * counts.pending,
        "each timer has its action and a spare"
    );
}
