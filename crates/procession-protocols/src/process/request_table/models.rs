use procession_sync::{Arc, explore, thread};

use super::{RequestTable, TableRequest, mutation};
use crate::process::state::{Duty, State};

/// A request that is served between two steps.
struct Inspect;

impl TableRequest for Inspect {
    fn waits_for_step(&self) -> bool {
        false
    }
}

/// The slot and the generation of the process.
const SLOT: u32 = 3;
const GENERATION: u32 = 5;

/// The number of the only timer.
const TIMER: u32 = 7;

/// A process: its state word, and the table with what was left for it.
struct Process<const MUTATION: u8> {
    state: State,
    table: RequestTable<Inspect, (), u32, MUTATION>,
}

/// What a worker did with an entry.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The entry is in the table.
    Held,
    /// The entry is queued again.
    Queued,
    /// The body has run.
    Ran,
}

/// What came of an entry that a worker took.
struct Taken {
    fate: Fate,
    /// The number of requests that were served.
    served: usize,
    /// The number of timers to delete.
    timers: u32,
}

impl<const MUTATION: u8> Process<MUTATION> {
    fn new() -> Arc<Self> {
        let state = State::vacant();
        state.renew();
        Arc::new(Self { state, table: RequestTable::default() })
    }

    fn suspend(&self) {
        let (number, before) = self.table.suspend(SLOT, GENERATION);
        assert_eq!(before, None, "it is the first suspension");
        let _ = self.table.set_timer(SLOT, GENERATION, number, TIMER);
        assert_eq!(self.state.ask(), Some(Duty::Nothing), "the process is active");
    }

    /// Does with an entry what a worker does.
    fn take_entry(&self) -> Taken {
        if !self.state.start().is_asked() {
            self.state.yield_step();
            return Taken { fate: Fate::Ran, served: 0, timers: 0 };
        }
        let (requests, is_suspended) = self.state.attend(|| self.table.take(SLOT));
        let served = requests.len();
        self.state.yield_step();
        if !is_suspended {
            return Taken { fate: Fate::Ran, served, timers: 0 };
        }
        match self.table.hold(SLOT, &self.state, ()) {
            Ok(()) => Taken { fate: Fate::Held, served, timers: 0 },
            Err(may_run) => {
                let timers = may_run.timer.map_or(0, |_| 1);
                Taken { fate: Fate::Queued, served, timers }
            }
        }
    }

    /// Ends the suspension. Returns the number of entries and of timers that came out.
    fn release(&self) -> (u32, u32) {
        let released = self.table.release(SLOT, GENERATION, None);
        released.map_or((0, 0), |released| {
            (released.entry.map_or(0, |()| 1), released.timer.map_or(0, |_| 1))
        })
    }
}

/// A process is suspended while it is cancelled, before, at the same time or afterwards.
fn cancel_against_suspend<const MUTATION: u8>() {
    explore(|| {
        let process = Process::<MUTATION>::new();
        let canceller = {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                assert_eq!(process.state.cancel(), Duty::Nothing, "the process is active");
                if process.state.see().is_asked() { process.release() } else { (0, 0) }
            })
        };
        process.suspend();
        let mut taken = process.take_entry();
        let mut timers = taken.timers;
        if taken.fate == Fate::Queued {
            taken = process.take_entry();
            timers += taken.timers;
        }
        let (queued, released) = canceller.join().expect("the canceller does not panic");
        timers += released;
        if taken.fate == Fate::Held {
            assert_eq!(queued, 1, "a process that is to end is not held");
            taken = process.take_entry();
        }
        assert_eq!(taken.fate, Fate::Ran, "a cancelled process runs");
        assert_eq!(timers, 1, "the timer of the suspension is deleted");
    });
}

#[test]
fn cancel_before_suspend() {
    cancel_against_suspend::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a cancelled process runs")]
fn canary_keep_suspension() {
    cancel_against_suspend::<{ mutation::KEEP_SUSPENSION }>();
}

/// A suspended process is inspected while its entry goes to the table.
fn request_against_hold<const MUTATION: u8>() {
    explore(|| {
        let process = Process::<MUTATION>::new();
        process.suspend();
        let asker = {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                let left = process.table.leave(SLOT, GENERATION, Inspect);
                let entry = left.unwrap_or_else(|_| panic!("there is room"));
                assert_eq!(process.state.ask(), Some(Duty::Nothing), "the process is active");
                entry.is_some()
            })
        };
        let mut served = 0;
        let mut hold = || {
            // The first may find the request between its look and the hold, the second serves it.
            for _ in 0..3 {
                let taken = process.take_entry();
                assert_ne!(taken.fate, Fate::Ran, "a suspended process does not run");
                assert_eq!(taken.timers, 0, "the suspension goes on");
                served += taken.served;
                if taken.fate == Fate::Held {
                    return;
                }
            }
            panic!("the process is held in the end");
        };
        hold();
        if asker.join().expect("the asker does not panic") {
            hold();
        }
        assert_eq!(served, 1, "the request is served");
    });
}

#[test]
fn inspect_against_hold() {
    request_against_hold::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a suspended process does not run")]
fn canary_look_before_mark() {
    request_against_hold::<{ mutation::LOOK_BEFORE_MARK }>();
}
