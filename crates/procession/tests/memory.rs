//! What is left of processes that have ended: only their slots, which the next processes use. What
//! is left of queues that were long. How much stack a spawn takes. These tests have their own
//! program, since they count every allocation, or would end the program.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};

use procession::mailbox::{Event, WhenFull};
use procession::pool::{Pool, Queue};
use procession::process::{Groups, JoinSet, scope};
use procession::sync::{broadcast, channel};
use procession::{Address, Context, Exit, JoinHandle, Scheduler, SpawnOptions, spawn, yield_now};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Mutex, MutexGuard};

struct Counting;

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the contract is the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the contract is the caller's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keeps the other tests from allocating.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

const PROCESSES: usize = 50_000;

/// The size of a slot and of its place in the list of free slots. A build with debug assertions
/// adds a cache line.
const SLOT_BYTES_MAX: usize = if cfg!(debug_assertions) { 192 } else { 128 } + 32;

/// One process monitors all others, kills them at once, and receives each down.
fn kill_all(scheduler: &Scheduler) {
    let watcher = scheduler.start(move |mut cx: Context<()>| async move {
        let spawn = |_| {
            let victim = SpawnOptions::new()
                .monitor()
                .start(|mut cx: Context<()>| async move { cx.recv().await });
            victim.pid()
        };
        let victims: Vec<_> = (0..PROCESSES).map(spawn).collect();
        for pid in victims {
            procession::process::kill(pid);
        }
        let mut killed = 0;
        for _ in 0..PROCESSES {
            if let Some(Event::Down(down)) = cx.recv_event().await {
                killed += usize::from(down.exit == Exit::Killed);
            }
        }
        killed
    });
    assert_eq!(watcher.join(), Ok(PROCESSES));
    scheduler.run_until_idle();
}

#[test]
fn the_memory_of_monitored_processes_that_are_killed_at_once_comes_back() {
    let _alone = alone();
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread");
    let before = ALLOCATED_BYTES.load(Relaxed);
    kill_all(&scheduler);
    let after = ALLOCATED_BYTES.load(Relaxed);
    assert!(
        (after - before) / PROCESSES <= SLOT_BYTES_MAX,
        "{} bytes for each",
        (after - before) / PROCESSES
    );
    // As many processes again need no new memory. A little more is allowed for what happens to be
    // queued.
    kill_all(&scheduler);
    let again = ALLOCATED_BYTES.load(Relaxed);
    assert!(again < after + PROCESSES, "{} bytes more", again - after);
    drop(scheduler);
    assert!(ALLOCATED_BYTES.load(Relaxed) < before, "the scheduler itself was there before");
}

/// The body of a process that waits for its first message: the future, with its context.
const WAITING_BYTES_MAX: usize = 80;

#[test]
fn a_process_that_waits_has_only_its_future() {
    let _alone = alone();
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread");
    let start = |_| scheduler.start(|mut cx: Context<()>| async move { cx.recv().await }).detach();
    let addresses: Vec<_> = (0..PROCESSES).map(start).collect();
    scheduler.run_until_idle();
    let waiting = ALLOCATED_BYTES.load(Relaxed);
    assert!(addresses.iter().all(Address::kill));
    scheduler.run_until_idle();
    let each = (waiting - ALLOCATED_BYTES.load(Relaxed)) / PROCESSES;
    assert!(each <= WAITING_BYTES_MAX, "{each} bytes for each");
}

/// A queue keeps one or two blocks, which have 16 KiB each.
const KEPT_MAX: usize = 64 * 1024;

type Message = [u8; 256];

const MESSAGES: usize = 20_000;

/// Asserts that a queue has the memory of its messages while they are in it, of the half of them
/// while the half is, and almost none once it is empty. `take` takes this many.
#[track_caller]
fn follows_its_length(name: &str, before: usize, mut take: impl FnMut(usize)) {
    let held = || ALLOCATED_BYTES.load(Relaxed).saturating_sub(before);
    let full = held();
    take(MESSAGES / 2);
    let half = held();
    assert!(half < full / 2 + full / 20 + KEPT_MAX, "{name}: {full} bytes, then {half}");
    take(MESSAGES / 2);
    assert!(held() < KEPT_MAX, "{name}: {full} bytes, then {}", held());
}

#[test]
fn the_memory_of_a_queue_follows_its_length() {
    let _alone = alone();
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread");

    let (sender, receiver) = channel::unbounded::<Message>();
    let before = ALLOCATED_BYTES.load(Relaxed);
    (0..MESSAGES).for_each(|_| sender.try_send([0; 256]).expect("it is open"));
    follows_its_length("channel", before, |count| {
        (0..count).for_each(|_| assert!(receiver.try_recv().is_ok()));
    });

    let (sender, mut receiver) = broadcast::channel::<u64>(MESSAGES);
    let before = ALLOCATED_BYTES.load(Relaxed);
    (0..MESSAGES).for_each(|_| assert_eq!(sender.send(7), Ok(1)));
    follows_its_length("broadcast channel", before, |count| {
        (0..count).for_each(|_| assert!(receiver.try_recv().is_ok()));
    });

    let (go, gate) = channel::unbounded::<usize>();
    let options = SpawnOptions::new().on(&scheduler).mailbox(MESSAGES as u32, WhenFull::Reject);
    let child = options.start(|mut cx: Context<Message>| async move {
        while let Some(count) = gate.recv().await {
            for _ in 0..count {
                assert!(cx.recv().await.is_some());
            }
        }
    });
    scheduler.run_until_idle();
    let before = ALLOCATED_BYTES.load(Relaxed);
    (0..MESSAGES).for_each(|_| child.send([0; 256]).expect("there is room"));
    follows_its_length("bounded mailbox", before, |count| {
        go.try_send(count).expect("it is open");
        scheduler.run_until_idle();
    });
    go.close();

    let groups = Groups::new();
    let (_, mut monitor) = groups.monitor("group");
    let member = scheduler.spawn(std::future::pending::<()>());
    // The first PID that is told takes a part of a table.
    let pid = member.pid();
    let before = ALLOCATED_BYTES.load(Relaxed);
    for _ in 0..MESSAGES / 2 {
        groups.join("group", pid).expect("it is alive");
        groups.leave("group", pid);
    }
    follows_its_length("group monitor", before, |count| {
        (0..count).for_each(|_| assert!(monitor.try_recv().is_ok()));
    });
}

/// Returns a scheduler that has the tables which it keeps, because each of its operations was used.
fn warmed() -> Scheduler {
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread");
    let child = scheduler.start(|mut cx: Context<u8>| async move {
        assert_eq!(cx.recv_matching(|number| *number == 1).await, Some(1));
        yield_now().await;
    });
    (0..2).for_each(|number| child.send(number).expect("it is open"));
    scheduler.run_until_idle();
    scheduler
}

#[test]
fn the_memory_of_a_queue_of_a_thread_follows_its_length() {
    let _alone = alone();
    let scheduler = warmed();
    let mut inbox = scheduler.attach::<Message>();
    let address = inbox.address().clone();
    scheduler.run_until_idle();
    let before = ALLOCATED_BYTES.load(Relaxed);
    for _ in 0..MESSAGES {
        address.send([0; 256]).expect("it is open");
        // The process of the mailbox passes each on.
        scheduler.run_until_idle();
    }
    follows_its_length("mailbox of a thread", before, |count| {
        (0..count).for_each(|_| assert!(inbox.recv().is_some()));
    });
}

/// Goal: a process that takes what it wants only gives the memory of the rest back. Method: it
/// wants nothing at first, so all messages are put aside.
#[test]
fn the_memory_of_messages_that_were_put_aside_follows_their_number() {
    let _alone = alone();
    let scheduler = warmed();
    for wants_last in [false, true] {
        let (go, gate) = channel::unbounded::<usize>();
        let child = scheduler.start(move |mut cx: Context<Message>| async move {
            let unwanted = cx.recv_matching(|message: &Message| message[0] == 1).await;
            assert!(unwanted.is_some());
            while let Some(count) = gate.recv().await {
                for _ in 0..count {
                    let mut left = if wants_last { 8 } else { 0 };
                    // Among the first few, so that the search takes no time.
                    let wanted = |_: &Message| {
                        left -= 1;
                        left < 0
                    };
                    if cx.recv_matching(wanted).await.is_none() {
                        return;
                    }
                }
            }
        });
        scheduler.run_until_idle();
        let before = ALLOCATED_BYTES.load(Relaxed);
        (0..MESSAGES).for_each(|_| child.send([0; 256]).expect("it is open"));
        child.send([1; 256]).expect("it is open");
        scheduler.run_until_idle();
        if wants_last {
            // Enough that the process finds some to leave in front.
            (0..8).for_each(|_| child.send([0; 256]).expect("it is open"));
        }
        follows_its_length("messages put aside", before, |count| {
            go.try_send(count).expect("it is open");
            scheduler.run_until_idle();
        });
        child.kill();
        scheduler.run_until_idle();
    }
}

#[test]
fn the_memory_of_queued_jobs_follows_their_number() {
    let _alone = alone();
    let scheduler = warmed();
    let pool = Pool::builder().capacity(1).queue(Queue::Unbounded).on(&scheduler);
    let pool = pool.build_async().expect("the values are in range");
    let (go, gate) = channel::unbounded::<()>();
    let submit = || {
        let gate = gate.clone();
        let job = pool.job(async move { assert_eq!(gate.recv().await, Some(())) });
        job.try_execute().expect("it has a queue");
    };
    submit();
    scheduler.run_until_idle();
    go.try_send(()).expect("it is open");
    scheduler.run_until_idle();
    let before = ALLOCATED_BYTES.load(Relaxed);
    (0..MESSAGES).for_each(|_| submit());
    let mut taken = 1;
    follows_its_length("queue of a pool", before, |count| {
        (0..count).for_each(|_| go.try_send(()).expect("it is open"));
        scheduler.run_until_idle();
        taken += count as u64;
        assert_eq!(pool.stats().completed, taken);
    });
}

#[test]
fn a_join_set_keeps_nothing_of_a_crowd() {
    let _alone = alone();
    let scheduler = warmed();
    let spawn_all = |set: &mut JoinSet<()>| {
        (0..MESSAGES).for_each(|_| {
            set.insert(scheduler.spawn(async {}));
        });
        scheduler.run_until_idle();
    };
    let mut set = JoinSet::new();
    // The slots of the processes stay.
    spawn_all(&mut set);
    while set.next_ended().is_some() {}
    drop(std::mem::take(&mut set));
    let before = ALLOCATED_BYTES.load(Relaxed);
    spawn_all(&mut set);
    while set.next_ended().is_some() {}
    let kept = ALLOCATED_BYTES.load(Relaxed).saturating_sub(before);
    assert!(set.is_empty() && kept < KEPT_MAX, "{kept} bytes");
}

/// The stack of a thread, which has 2 MiB by default, has room for two of it. In a build by
/// clippy's driver, which moves each value once more, it has room for three.
const LARGE: usize = if cfg!(clippy) { 600 * 1024 } else { 800 * 1024 };

async fn large() -> Result<usize, Exit> {
    let bytes = [1_u8; LARGE];
    yield_now().await;
    Ok(std::hint::black_box(&bytes).len())
}

/// A build without optimisation keeps a copy for each move: that of the caller, and one in the
/// function that spawns. If there is one more, the stack overflows, and the program ends.
#[test]
fn a_large_future_can_be_spawned_where_there_is_room_for_a_few_of_it() {
    let _alone = alone();
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("the system has threads");
    // Each in a function of its own, or this one would have room for all of them.
    let ways: [&dyn Fn() -> JoinHandle<Result<usize, Exit>>; 3] = [
        &|| scheduler.spawn(large()),
        &|| SpawnOptions::new().on(&scheduler).spawn_fallible(large()),
        &|| SpawnOptions::new().on(&scheduler).spawn(large()),
    ];
    for spawns in ways {
        assert_eq!(spawns().join(), Ok(Ok(LARGE)));
    }
    let inside = scheduler.spawn(async { spawn(large()).await });
    assert_eq!(inside.join(), Ok(Ok(Ok(LARGE))));
    let inside = scheduler.spawn(async { SpawnOptions::new().spawn_fallible(large()).await });
    assert_eq!(inside.join(), Ok(Ok(Ok(LARGE))));
}

#[test]
fn a_large_future_can_be_added_to_a_scope_where_there_is_room_for_three_of_it() {
    async fn add() -> Result<(), Exit> {
        let bytes = [1_u8; LARGE / 4 * 3];
        yield_now().await;
        assert_eq!(std::hint::black_box(&bytes).len(), LARGE / 4 * 3);
        Ok(())
    }
    async fn small() -> Result<(), Exit> {
        yield_now().await;
        Ok(())
    }
    let _alone = alone();
    let scheduler = Scheduler::builder().worker_threads(1).build().expect("the system has threads");
    for limit in [None, Some(1)] {
        let added = scheduler.spawn(scope(move |scope| async move {
            limit.into_iter().for_each(|limit| scope.set_limit(limit));
            scope.add(small());
            scope.add(add());
            Ok(())
        }));
        assert_eq!(added.join(), Ok(Ok(())));
        let added = scheduler.spawn(scope(move |scope| async move {
            limit.into_iter().for_each(|limit| scope.set_limit(limit));
            scope.add_in_turn(small()).await;
            scope.add_in_turn(add()).await;
            Ok(())
        }));
        assert_eq!(added.join(), Ok(Ok(())));
    }
}
