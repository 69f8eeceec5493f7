//! A process whose priority changes while it is queued, taken out, or being queued.

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Arc, explore, thread};

use super::{Changed, Level, Levels, ProcessKey, mutation, priority_in, word_of};
use crate::process::priority::Priority;
use crate::scheduler::pace::Beacon;

/// The process whose priority changes, and one that waits for it.
const OWN: ProcessKey = (0, 1);
const OTHER: ProcessKey = (1, 1);

struct Shared<const MUTATION: u8> {
    levels: Levels<u32, MUTATION>,
    word: AtomicU64,
    beacon: Beacon,
}

impl<const MUTATION: u8> Shared<MUTATION> {
    fn new(priority: Priority) -> Arc<Self> {
        Arc::new(Self {
            levels: Levels::new(0),
            word: AtomicU64::new(word_of(priority, priority, false)),
            beacon: Beacon::default(),
        })
    }

    /// Changes the priority. Returns how many entries the change has released.
    fn change(&self, priority: Priority) -> u32 {
        match self.levels.change(OWN, Some(priority), || &self.word).0 {
            Changed::Released(_) => 1,
            Changed::Later | Changed::Moved => 0,
        }
    }

    fn priority(&self) -> Priority {
        priority_in(self.word.load(Relaxed))
    }

    fn pop(&self, level: Level) -> u32 {
        u32::from(self.levels.pop(None, level).is_some())
    }

    /// Takes all entries that are left, each at the level of the priority.
    fn drain(&self) -> u32 {
        let mut count = 0;
        while self.levels.pop(None, Level::High).is_some() {
            count += 1;
        }
        while self.levels.pop(None, Level::Batch).is_some() {
            assert_eq!(
                self.priority(),
                Priority::Batch,
                "it is queued at the level that it had before"
            );
            count += 1;
        }
        count
    }
}

/// A worker takes the process while another thread changes its priority.
fn change_and_pop<const MUTATION: u8>(to: Priority) {
    explore(move || {
        let shared = Shared::<MUTATION>::new(Priority::Batch);
        assert_eq!(shared.levels.push(&shared.word, None, 7, || ()), Ok(true));
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.pop(Level::Batch))
        };
        let released = shared.change(to);
        let taken = worker.join().expect("the worker does not panic");
        assert_eq!(taken + released + shared.drain(), 1, "the process has one entry");
    });
}

/// One thread queues the process while another changes its priority.
fn change_and_push<const MUTATION: u8>(to: Priority) {
    explore(move || {
        let shared = Shared::<MUTATION>::new(Priority::Batch);
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                u32::from(shared.levels.push(&shared.word, None, 7, || ()).is_err())
            })
        };
        let released = shared.change(to);
        let in_rings = waker.join().expect("the waker does not panic");
        assert_eq!(shared.priority(), to, "the change is not lost");
        assert_eq!(in_rings + released + shared.drain(), 1, "the process has one entry");
    });
}

/// A thread queues a process and changes the beacon. A worker that sees the change looks.
fn light_and_look<const MUTATION: u8>() {
    explore(|| {
        let shared = Shared::<MUTATION>::new(Priority::High);
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let is_lit = shared.beacon.get() != 0;
                assert!(!is_lit || shared.levels.is_any_lit(), "the change is seen, not the entry");
            })
        };
        assert_eq!(shared.levels.push(&shared.word, None, 7, || ()), Ok(true));
        shared.levels.light(&shared.beacon);
        worker.join().expect("the worker does not panic");
        assert_eq!(shared.drain(), 1);
    });
}

/// A process that waits lends to a batch process, which a thread queues. The wait ends, while a
/// third process lends as well.
fn lend_and_take_back<const MUTATION: u8>() {
    explore(|| {
        let shared = Shared::<MUTATION>::new(Priority::Batch);
        let high = || AtomicU64::new(word_of(Priority::High, Priority::High, false));
        let words = Arc::new([high(), high()]);
        let settle =
            |shared: &Shared<MUTATION>| match shared.levels.change(OWN, None, || &shared.word).0 {
                Changed::Released(_) => unreachable!("it is never normal"),
                Changed::Later | Changed::Moved => {}
            };
        assert!(shared.levels.lend(OTHER, OWN, || &words[0]));
        settle(&shared);
        assert_eq!(shared.priority(), Priority::High);
        let third = {
            let (shared, words) = (Arc::clone(&shared), Arc::clone(&words));
            thread::spawn(move || {
                assert_eq!(shared.levels.take_back(OTHER, &words[0], None), Some(OWN));
                settle(&shared);
            })
        };
        assert_eq!(shared.levels.push(&shared.word, None, 7, || ()), Ok(true));
        assert!(shared.levels.lend((2, 1), OWN, || &words[1]));
        settle(&shared);
        third.join().expect("it does not panic");
        assert_eq!(shared.priority(), Priority::High, "a loan is lost");
        assert_eq!(shared.levels.take_back((2, 1), &words[1], Some(OWN)), Some(OWN));
        settle(&shared);
        assert_eq!(shared.priority(), Priority::Batch, "a loan outlives its cause");
        assert_eq!(shared.drain(), 1, "the process has one entry");
    });
}

#[test]
fn take_back_against_lend() {
    lend_and_take_back::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "a loan outlives its cause")]
fn canary_change_keeps_loans() {
    lend_and_take_back::<{ mutation::CHANGE_KEEPS_LOANS }>();
}

#[test]
fn change_against_pop() {
    change_and_pop::<{ mutation::SOUND }>(Priority::High);
    change_and_pop::<{ mutation::SOUND }>(Priority::Normal);
}

#[test]
fn change_against_push() {
    change_and_push::<{ mutation::SOUND }>(Priority::High);
    change_and_push::<{ mutation::SOUND }>(Priority::Normal);
}

/// Two threads change the priority of a queued process.
#[test]
fn two_changes() {
    explore(|| {
        let shared = Shared::<{ mutation::SOUND }>::new(Priority::Batch);
        assert_eq!(shared.levels.push(&shared.word, None, 7, || ()), Ok(true));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.change(Priority::Normal))
        };
        let released = shared.change(Priority::High);
        let released = released + other.join().expect("the thread does not panic");
        assert_eq!(released + shared.drain(), 1, "the process has one entry");
    });
}

#[test]
fn beacon_against_look() {
    light_and_look::<{ mutation::SOUND }>();
}

#[test]
#[should_panic(expected = "the process has one entry")]
fn canary_change_in_two() {
    change_and_pop::<{ mutation::CHANGE_IN_TWO }>(Priority::High);
}

#[test]
#[should_panic(expected = "the process has one entry")]
fn canary_change_forgets() {
    change_and_pop::<{ mutation::CHANGE_FORGETS }>(Priority::Normal);
}

#[test]
#[should_panic(expected = "the process has one entry")]
fn canary_change_copies() {
    change_and_pop::<{ mutation::CHANGE_COPIES }>(Priority::High);
}

#[test]
#[should_panic(expected = "it is queued at the level that it had before")]
fn canary_push_reads_early() {
    change_and_push::<{ mutation::PUSH_READS_EARLY }>(Priority::High);
}

#[test]
#[should_panic(expected = "the change is seen, not the entry")]
fn canary_beacon_relaxed() {
    light_and_look::<{ mutation::BEACON_RELAXED }>();
}
