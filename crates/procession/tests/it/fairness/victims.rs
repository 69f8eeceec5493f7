//! The workers that a thief takes from.

use std::sync::Arc;

use procession::{Scheduler, SpawnOptions};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::{AtomicBool, AtomicUsize};

use crate::home::thread;

const ROUNDS: usize = 64;

/// Two workers have processes that can be stolen, when a third one begins to look for some. Each of
/// the two is the first victim in half of the rounds. A fair coin shows one side fewer than 8 times
/// in 64 once in ten thousand million runs.
#[test]
fn a_thief_begins_with_any_of_the_others() {
    for thief in 0..3_u32 {
        // A watchdog would hand the worker of a slow step to another thread, which would run the
        // children there, because the loops below are slow on a busy machine.
        let scheduler = Scheduler::builder()
            .worker_threads(3)
            .watchdog(false)
            .build()
            .expect("the system has threads");
        let victims: Vec<_> = (0..3).filter(|&worker| worker != thief).collect();
        let mut first = [0; 3];
        for _ in 0..ROUNDS {
            let (loaded, stolen) = (Arc::new(AtomicUsize::new(0)), Arc::default());
            let on = |worker| SpawnOptions::new().on(&scheduler).affinity(worker);
            // The thief is in a step until there is something to steal from both.
            let (begun, waits) = (Arc::new(AtomicBool::new(false)), Arc::clone(&loaded));
            let begins = Arc::clone(&begun);
            let busy = on(thief).spawn(async move {
                begins.store(true, SeqCst);
                while waits.load(SeqCst) < 2 {
                    thread::yield_now();
                }
            });
            while !begun.load(SeqCst) {
                thread::yield_now();
            }
            // No holder has children until both have begun. Otherwise the second worker could steal
            // from the first one before it has a holder.
            let holding = Arc::new(AtomicUsize::new(0));
            let holders: Vec<_> = victims
                .iter()
                .map(|&victim| {
                    let (loaded, holding) = (Arc::clone(&loaded), Arc::clone(&holding));
                    let stolen: Arc<Mutex<Vec<u32>>> = Arc::clone(&stolen);
                    on(victim).spawn(async move {
                        holding.fetch_add(1, SeqCst);
                        while holding.load(SeqCst) < 2 {
                            thread::yield_now();
                        }
                        // One of them is in the LIFO slot, which is not stolen from at first.
                        let children = [(); 3].map(|()| {
                            let stolen = Arc::clone(&stolen);
                            procession::spawn(async move { stolen.lock().push(victim) })
                        });
                        loaded.fetch_add(1, SeqCst);
                        while stolen.lock().is_empty() {
                            thread::yield_now();
                        }
                        children
                    })
                })
                .collect();
            assert_eq!(busy.join(), Ok(()));
            for holder in holders {
                for child in holder.join().expect("it ends") {
                    assert_eq!(child.join(), Ok(()));
                }
            }
            first[stolen.lock()[0] as usize] += 1;
        }
        for victim in victims {
            assert!(first[victim as usize] >= 8, "worker {thief} takes first from {first:?}");
        }
    }
}
