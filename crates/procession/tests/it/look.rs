//! `Scheduler::look` says of every process what it does: its state, its wait, the process
//! that it waits for, and the line where it waits.
//!
//! Method: programs with processes that wait in known ways at known lines. Most are driven by the
//! test, on a test clock.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use procession::observe::{GroupKey, ProcessInfo, ProcessState, Query, SortKey, WaitReason};
use procession::supervisor::{ChildSpec, Restart, Supervisor};
use procession::{
    Address, Context, Exit, Pid, Reply, Scheduler, SpawnOptions, sleep, start, yield_now,
};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::SeqCst;

use crate::home::{mpsc, thread};
use crate::scene::{driven, threaded};

mod waits;

const LONG: Duration = Duration::from_secs(3600);

/// Returns the row of a process.
#[track_caller]
fn row(scheduler: &Scheduler, pid: Pid) -> ProcessInfo {
    let view = scheduler.look(&Query::new().pid(pid));
    assert_eq!(view.matched, 1, "the process {pid} is found");
    view.rows.into_iter().next().expect("it matched")
}

#[test]
fn a_process_has_the_detail_that_was_asked_for() {
    let scheduler = driven();
    let waits = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
    scheduler.run_until_idle();
    let (pid, is_one) = (waits.pid(), |info: &ProcessInfo| info.pid == waits.pid());
    let levels = [
        scheduler.process(pid),
        scheduler.snapshot().processes.into_iter().find(is_one),
        scheduler.run_until_idle().into_iter().find(is_one),
        Some(row(&scheduler, pid)),
        scheduler.detail(pid),
    ];
    let levels = levels.map(|info| {
        let info = info.expect("it waits");
        assert_eq!((info.state, info.steps, info.suspended), (ProcessState::Idle, 1, false));
        assert!(info.waiting.contains(WaitReason::Message), "{info:?}");
        let has_figures = [info.wait.is_some(), info.memory.is_some(), info.samples.is_some()];
        (has_figures, info.relations.is_some())
    });
    let (state, figures) = ([false; 3], [true; 3]);
    let known = [(state, false); 3].into_iter().chain([(figures, false), (figures, true)]);
    assert_eq!(levels.to_vec(), known.collect::<Vec<_>>());
}

#[test]
fn states_are_told() {
    let scheduler = driven();
    let waits = scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await });
    let sleeps = scheduler.spawn(async { sleep(LONG).await });
    let ended = scheduler.spawn(async { 1 });
    scheduler.run_until_idle();
    let ready = scheduler.spawn(async {});
    let state = |pid| row(&scheduler, pid).state;
    assert_eq!(state(waits.pid()), ProcessState::Idle);
    assert_eq!(state(sleeps.pid()), ProcessState::Blocked);
    assert_eq!(state(ended.pid()), ProcessState::Complete);
    assert_eq!(state(ready.pid()), ProcessState::Ready);
    assert!(row(&scheduler, ended.pid()).wait.is_none());
    let own = {
        let (again, pid_of) = (scheduler.clone(), mpsc::channel());
        let own = scheduler.spawn(async move {
            let pid = procession::process::current_pid().expect("it is a process");
            pid_of.0.send(row(&again, pid).state).expect("the test listens");
        });
        drop(own);
        scheduler.run_until_idle();
        pid_of.1.try_recv()
    };
    assert_eq!(own, Ok(ProcessState::Running));
}

/// Starts a process that, told of another one, calls it.
fn caller(scheduler: &Scheduler) -> procession::Child<Call, ()> {
    scheduler.start(|mut cx: Context<Call>| async move {
        // Kept, so that a call that it gets is not answered.
        let first = cx.recv().await;
        if let Some(Call::Ask(next)) = &first {
            let _ = next.call(Call::Reply, LONG).await;
        }
        std::future::pending::<()>().await;
    })
}

enum Call {
    Ask(Address<Call>),
    #[expect(dead_code, reason = "it is kept, so that the call waits")]
    Reply(Reply<u32>),
}

#[test]
fn a_cycle_of_three_calls_is_found_and_a_chain_is_not() {
    let scheduler = driven();
    let cycle: Vec<_> = (0..3).map(|_| caller(&scheduler)).collect();
    let chain: Vec<_> = (0..4).map(|_| caller(&scheduler)).collect();
    for (at, process) in cycle.iter().enumerate() {
        let next = cycle[(at + 1) % 3].address().clone();
        process.send(Call::Ask(next)).unwrap_or_else(|_| panic!("it runs"));
    }
    for two in chain.windows(2) {
        let next = two[1].address().clone();
        two[0].send(Call::Ask(next)).unwrap_or_else(|_| panic!("it runs"));
    }
    scheduler.run_until_idle();
    let wait = |pid| row(&scheduler, pid).wait.expect("it waits");
    for (at, process) in cycle.iter().enumerate() {
        let wait = wait(process.pid());
        assert!(wait.in_cycle, "{at}");
        assert_eq!(wait.target, Some(cycle[(at + 1) % 3].pid()));
    }
    for (at, process) in chain.iter().enumerate() {
        let wait = wait(process.pid());
        assert!(!wait.in_cycle, "{at}");
        assert_eq!(wait.target, chain.get(at + 1).map(|next| next.pid()));
    }
    // One that calls into the cycle is not part of it.
    let outside = caller(&scheduler);
    outside.send(Call::Ask(cycle[0].address().clone())).unwrap_or_else(|_| panic!("it runs"));
    scheduler.run_until_idle();
    assert!(!wait(outside.pid()).in_cycle);
}

#[test]
fn a_wait_lasts_from_the_first_look_that_finds_it() {
    let scheduler = driven();
    let waits =
        scheduler.start(|mut cx: Context<u8>| async move { while cx.recv().await.is_some() {} });
    scheduler.run_until_idle();
    let at_least = || row(&scheduler, waits.pid()).wait.expect("it waits").at_least;
    assert_eq!(at_least(), Duration::ZERO);
    scheduler.advance(Duration::from_secs(10));
    let tick = Duration::from_millis(16);
    let ten = at_least();
    assert!(ten <= Duration::from_secs(10) && ten + tick >= Duration::from_secs(10), "{ten:?}");
    waits.send(1).expect("it runs");
    scheduler.run_until_idle();
    assert_eq!(at_least(), Duration::ZERO, "another wait begins again");
}

#[test]
fn rows_are_the_largest_by_the_key_and_growth_is_that_of_the_window() {
    let scheduler = driven();
    let all: Vec<_> = (0..20)
        .map(|_| scheduler.start(|cx: Context<[u8; 64]>| async move { cx.cancelled().await }))
        .collect();
    scheduler.run_until_idle();
    let send = |at: usize, count: usize| {
        (0..count).for_each(|_| all[at].send([0; 64]).expect("it runs"));
    };
    (0..20).for_each(|at| send(at, at));
    let by = |key| Query::new().sort(key).top(3);
    let before = scheduler.look(&by(SortKey::Mailbox));
    let lengths: Vec<_> = before.rows.iter().map(|row| row.mailbox).collect();
    assert_eq!(lengths, [19, 18, 17]);
    assert_eq!((before.processes, before.matched), (20, 20));
    let memory = before.rows[0].memory.expect("a view has it");
    assert_eq!(memory.mailbox, 19 * 64);
    assert!(memory.body > 0);
    send(4, 7);
    send(0, 5);
    let after = scheduler.look(&by(SortKey::Growth).since(&before));
    let grown: Vec<_> = after.rows.iter().map(|row| (row.pid, row.growth)).collect();
    assert_eq!(grown[..2], [(all[4].pid(), 7), (all[0].pid(), 5)]);
    assert_eq!(grown[2].1, 0);
    let since = scheduler.look(&by(SortKey::Mailbox)).since(&before);
    assert_eq!(since.window, Some(Duration::ZERO));
    assert!(since.rows.iter().all(|row| row.growth == 0 && row.steps_in_window == Some(0)));
}

#[test]
fn filters_must_all_match() {
    let scheduler = driven();
    for label in ["bank", "bank account", "post"] {
        let options = SpawnOptions::new().on(&scheduler).label(label);
        options.start(|mut cx: Context<u8>| async move { cx.recv().await }).detach();
    }
    let line = line!() - 2;
    scheduler.spawn(async { sleep(LONG).await }).detach();
    scheduler.run_until_idle();
    let matched = |query: &Query| scheduler.look(query).matched;
    assert_eq!(matched(&Query::new()), 4);
    assert_eq!(matched(&Query::new().label("bank")), 2);
    assert_eq!(matched(&Query::new().label("bank").state(ProcessState::Blocked)), 0);
    assert_eq!(matched(&Query::new().location(&format!("look.rs:{line}"))), 3);
    assert_eq!(matched(&Query::new().location("it/look.rs")), 4);
    assert_eq!(matched(&Query::new().location("elsewhere.rs")), 0);
    assert_eq!(matched(&Query::new().location(&format!("elsewhere.rs:{line}"))), 0);
    assert_eq!(matched(&Query::new().location(&format!("look.rs:{}", line + 1))), 0);
    assert_eq!(matched(&Query::new().kind("async").waiting_for(WaitReason::Timer)), 1);
    assert_eq!(matched(&Query::new().kind("machine")), 0);
    let empty = scheduler.look(&Query::new().top(0));
    assert_eq!((empty.matched, empty.rows.len()), (4, 0));
}

#[test]
fn groups_are_those_of_the_locations_the_states_and_the_waits() {
    let scheduler = driven();
    for _ in 0..5 {
        scheduler.start(|mut cx: Context<u8>| async move { cx.recv().await }).detach();
    }
    let line = line!() + 2;
    for _ in 0..3 {
        scheduler.spawn(async { sleep(LONG).await }).detach();
    }
    scheduler.run_until_idle();
    let groups = |key| scheduler.look(&Query::new().group_by(key)).groups;
    for key in [GroupKey::Location, GroupKey::State, GroupKey::Waiting] {
        let sizes: Vec<_> = groups(key).iter().map(|group| group.processes).collect();
        assert_eq!(sizes, [5, 3], "{key}");
    }
    let states: Vec<_> = groups(GroupKey::State).iter().map(|group| group.state).collect();
    assert_eq!(states, [Some(ProcessState::Idle), Some(ProcessState::Blocked)]);
    let waits = groups(GroupKey::Waiting);
    assert!(waits[1].waiting.is_some_and(|waiting| waiting.contains(WaitReason::Timer)));
    assert_eq!(waits[1].location.map(Location::line), Some(line));
    let cut = scheduler.look(&Query::new().group_by(GroupKey::Location).top(1));
    assert_eq!((cut.groups.len(), cut.left_off), (1, 3));
}

/// The differences of each row are known, whatever the two views are sorted by.
#[test]
fn a_window_is_exact_in_every_order() {
    let scheduler = driven();
    let all: Vec<_> = (0..5)
        .map(|_| {
            scheduler.start(|mut cx: Context<u8>| async move { while cx.recv().await.is_some() {} })
        })
        .collect();
    scheduler.run_until_idle();
    // In an order that is not that of the PIDs.
    let send = |rounds: [u32; 5]| {
        for (child, count) in all.iter().zip(rounds) {
            for _ in 0..count {
                child.send(0).expect("it is alive");
                scheduler.run_until_idle();
            }
        }
    };
    send([3, 1, 4, 2, 5]);
    for earlier in SortKey::ALL {
        for later in SortKey::ALL {
            let before = scheduler.look(&Query::new().sort(earlier));
            send([1, 0, 2, 3, 4]);
            let query = Query::new().sort(later);
            let rows = [
                scheduler.look(&query.clone().since(&before)).rows,
                scheduler.look(&query).since(&before).rows,
            ];
            for rows in rows {
                for (child, count) in all.iter().zip([1, 0, 2, 3, 4]) {
                    let row = rows.iter().find(|row| row.pid == child.pid());
                    let row = row.expect("all are shown");
                    let seen = (row.received_in_window, row.steps_in_window);
                    assert_eq!(seen, (Some(count), Some(count)), "{earlier}, then {later}");
                }
            }
        }
    }
}

/// A child is one row with the last of its ends, whether it runs or not.
#[test]
fn a_child_that_was_restarted_is_one_row_with_its_ends() {
    let builder = Scheduler::builder().worker_threads(1).test_clock().on_supervisor(|_| {});
    let scheduler = builder.build().expect("it starts no thread");
    let child = |id: &'static str| {
        ChildSpec::new(id, |mut cx: Context<()>| async move { cx.recv().await }).name(id)
    };
    let tree = Supervisor::one_for_one().intensity(100, LONG).child(child("a")).child(child("b"));
    let tree = scheduler.block_on(tree.try_start()).expect("it starts");
    scheduler.run_until_idle();
    for ends in 0..12_u64 {
        let rows = scheduler.supervision();
        assert_eq!((rows.len(), rows[0].pid), (1, tree.pid()));
        let children = &rows[0].children;
        assert_eq!(children.len(), 2, "{children:?}");
        for (id, ends) in [("a", ends), ("b", 0)] {
            let pid = scheduler.whereis(id);
            let row = children.iter().find(|row| row.pid == pid).expect("it runs");
            assert_eq!(row.ends, ends);
            let exits: Vec<_> = row.exits.iter().map(|exit| exit.exit.clone()).collect();
            let last = (ends.saturating_sub(8)..ends).map(|n| Exit::failed(n.to_string()));
            assert_eq!(exits, last.collect::<Vec<_>>(), "the oldest first");
            assert_eq!(row.id.as_deref(), (ends > 0).then_some(id));
        }
        let pid = scheduler.whereis("a").expect("it runs");
        assert!(procession::process::send_exit(pid, Exit::failed(ends.to_string())));
        scheduler.run_until_idle();
    }
    scheduler.block_on(tree.terminate_child("a")).expect("it is there");
    let children = &scheduler.supervision()[0].children;
    let stopped = children.iter().find(|row| row.id.as_deref() == Some("a"));
    assert_eq!(stopped.map(|row| (row.pid, row.ends)), Some((None, 12)), "a stop is no end");
    assert_eq!(children.len(), 2);
}

#[test]
fn the_lists_of_supervisors_and_of_their_children_are_bounded() {
    const MOST: usize = 1000;
    let builder = Scheduler::builder().worker_threads(1).test_clock().on_supervisor(|_| {});
    let scheduler = builder.build().expect("it starts no thread");
    let waits = |mut cx: Context<()>| async move { cx.recv().await };
    // All children of this one have ended once, and run again.
    let mut large = Supervisor::one_for_one().intensity(u32::MAX, LONG);
    for number in 0..=MOST {
        large = large.child(ChildSpec::new(number.to_string(), waits));
    }
    let large = scheduler.block_on(large.try_start()).expect("it starts");
    for child in scheduler.block_on(large.which()).expect("it is alive") {
        let pid = child.status.pid().expect("it runs");
        assert!(procession::process::send_exit(pid, Exit::failed("told to")));
    }
    scheduler.run_until_idle();
    let rows = scheduler.supervision();
    let [row] = &rows[..] else { panic!("{} supervisors", rows.len()) };
    assert_eq!((row.children.len(), row.left_off), (MOST, 1));
    assert!(row.children.iter().all(|child| (child.pid.is_some(), child.ends) == (true, 1)));
    // The only children of the others have ended for good.
    let ended: Vec<_> = (0..=MOST)
        .map(|_| {
            let ends = ChildSpec::new("ends", |_: Context<()>| async {});
            let tree = Supervisor::one_for_one().child(ends.restart(Restart::Transient));
            scheduler.block_on(tree.try_start()).expect("it starts")
        })
        .collect();
    scheduler.run_until_idle();
    assert_eq!((scheduler.supervision().len(), ended.len()), (MOST, MOST + 1));
}

/// Two processes compute by turns, one three times as much as the other. The samples of the one
/// are three quarters. With 1900 samples, an error of 5 points is 5 times the standard error. If
/// the system lets a worker wait within a step, many looks find the same step, and more samples are
/// taken.
#[test]
fn samples_show_who_computes() {
    const SAMPLES: u64 = 1900;
    const TRIES: u64 = 6;
    let scheduler = threaded(1);
    let stop = Arc::new(AtomicBool::new(false));
    let computes = |rounds: u64| {
        let stop = Arc::clone(&stop);
        scheduler.spawn(async move {
            while !stop.load(SeqCst) {
                (0..rounds).for_each(|_| std::hint::spin_loop());
                yield_now().await;
            }
        })
    };
    let (long, short) = (computes(3 * 5003), computes(5003));
    let before = scheduler.look(&Query::new());
    let (view, part) = (1..=TRIES)
        .map(|tries| {
            let view = loop {
                let view = scheduler.look(&Query::new().since(&before));
                let count = view
                    .rows
                    .iter()
                    .map(|row| row.samples.map_or(0, |samples| samples.count))
                    .sum::<u64>();
                if count >= tries * SAMPLES {
                    break view;
                }
                thread::yield_now();
            };
            let of = |pid| {
                view.rows.iter().find(|row| row.pid == pid).and_then(|row| Some(row.samples?.time))
            };
            let times = of(long.pid()).zip(of(short.pid())).expect("both run");
            let part = times.0.as_secs_f64() / (times.0 + times.1).as_secs_f64();
            (view, part)
        })
        .find(|(_, part)| (0.70..0.80).contains(part))
        .expect("three quarters of the samples are those of the long steps");
    stop.store(true, SeqCst);
    let total: Duration = view.rows.iter().filter_map(|row| Some(row.samples?.time)).sum();
    let window = view.window.expect("there is an earlier view");
    assert!(total <= window + Duration::from_millis(25), "one worker: {total:?} in {window:?}");
    let row = &view.rows[0];
    assert!(
        (row.pid, row.samples.is_some_and(|samples| samples.error > 0.0)) == (long.pid(), true),
        "{part} {row:?}"
    );
}

/// A message that would take half an hour to format, and that a report must not touch.
struct Huge(Vec<u8>);

impl std::fmt::Debug for Huge {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("{} bytes are formatted", self.0.len())
    }
}

#[test]
fn a_crash_report_is_small_whatever_waits() {
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .on_exit(|_| {})
        .build()
        .expect("it starts no thread");
    let parent = scheduler.spawn(async {
        let child = SpawnOptions::new().label("x".repeat(100_000)).name("n".repeat(1000)).start(
            |mut cx: Context<Huge>| async move {
                cx.recv().await;
                panic!("{}", "y".repeat(5000));
            },
        );
        let watchers: Vec<_> = (0..100)
            .map(|_| {
                let pid = child.pid();
                start(move |mut cx: Context<()>| async move {
                    cx.monitor(pid);
                    cx.recv().await;
                })
            })
            .collect();
        // The watchers have all had their steps by then.
        for _ in 0..200 {
            yield_now().await;
        }
        for _ in 0..3 {
            child.send(Huge(vec![0; 64 << 20])).expect("it runs");
        }
        let exit = child.await.expect_err("it panics");
        assert!(exit.is_panic());
        drop(watchers);
    });
    let parent_pid = parent.pid();
    assert_eq!(scheduler.block_on(parent), Ok(()));
    let crashes = scheduler.crashes();
    let crash = crashes.last().expect("one has failed");
    assert_eq!((crashes.len(), crash.number), (1, 1));
    assert_eq!((crash.waiting, crash.exit.received), (2, 1));
    assert!(crash.message.ends_with("Huge"));
    assert_eq!(crash.ancestors, [parent_pid]);
    assert_eq!((crash.monitors.first.len(), crash.monitors.total), (16, 100));
    let Exit::Panicked(text) = &crash.exit.exit else { panic!("it panicked") };
    let texts = [
        text.len(),
        crash.exit.label.as_ref().map_or(0, String::len),
        crash.exit.name.as_ref().map_or(0, |name| name.len()),
        crash.exit.panicked_at.as_ref().map_or(0, String::len),
        crash.exit.scheduler.len(),
    ];
    let pids =
        crash.ancestors.capacity() + crash.links.first.capacity() + crash.monitors.first.capacity();
    let bytes = size_of_val(&**crash) + texts.iter().sum::<usize>() + pids * size_of::<Pid>();
    assert!(bytes <= 8 << 10, "{bytes} bytes");
}

#[test]
fn the_tree_of_supervisors_has_the_last_exits() {
    use procession::supervisor::{ChildSpec, Supervisor};

    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .on_exit(|_| {})
        .on_supervisor(|_| {})
        .build()
        .expect("it starts no thread");
    let faulty = |mut cx: Context<u8>| async move {
        while let Some(message) = cx.recv().await {
            assert_ne!(message, 0, "zero");
        }
    };
    let steady = |mut cx: Context<u8>| async move { while cx.recv().await.is_some() {} };
    let tree = scheduler.block_on(async {
        Supervisor::one_for_one()
            .intensity(100, Duration::from_secs(1))
            .child(ChildSpec::new("faulty", faulty).name("faulty"))
            .child(ChildSpec::new("steady", steady))
            .try_start()
            .await
            .expect("its children start")
    });
    for number in 0..10 {
        scheduler.run_until_idle();
        let rows = scheduler.supervision();
        assert_eq!((rows.len(), rows[0].children.len()), (1, 2));
        let ended: Vec<_> = rows[0].children.iter().filter(|child| child.ends > 0).collect();
        assert_eq!(ended.len(), usize::from(number > 0));
        for child in ended {
            assert_eq!((child.ends, child.exits.len()), (number, 8.min(number as usize)));
            assert_eq!(child.id.as_deref(), Some("faulty"));
            assert_ne!(child.pid, child.exits.last().map(|exit| exit.pid));
            assert!(child.pid.is_some() && child.exits.iter().all(|exit| exit.exit.is_panic()));
        }
        let pid = scheduler.block_on(async { procession::process::whereis("faulty") });
        procession::mailbox::send(pid.expect("it is registered"), 0_u8).expect("it runs");
    }
    let answer = scheduler.crashes().last().expect("it has failed").answer;
    assert!(answer.is_some(), "the supervisor has answered");
    drop(tree);
}
