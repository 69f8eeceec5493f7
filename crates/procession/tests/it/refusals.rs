//! Resources that the system refuses: threads, memory for stacks, `/proc`, membarrier(2).
//!
//! Method: each test starts itself again as a child process, which takes the resource from itself.
//! A limit on address space (`RLIMIT_AS`) can be lifted again; a filter of system calls (seccomp)
//! stays. In each case the error names the refused resource, work that could not be started is
//! returned, running work continues, and requests succeed once the resource is back.
//!
//! Elsewhere: descriptors in `sockets::few` and
//! `stalls::a_watchdog_without_descriptors_is_not_blind`, threads for steps that block in
//! `blocked::refused_threads_are_counted_and_harm_nobody`, what the runtime's own limits refuse in
//! `spawn`.

use crate::home::mpsc;
use std::env;
use std::error::Error;
use std::process::Command;
use std::time::Duration;

use procession::net::Host;
use procession::scheduler::{BuildError, Builder};
use procession::{Context, Exit, Scheduler, SpawnOptions, coroutine, sleep, spawn, yield_now};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::scene::{alone, assert_conserved, soon, threaded};

/// The name of the variable that makes this program the child of a test.
const CHILD: &str = "PROCESSION_TEST_REFUSALS";

/// Runs `test` once more in a child process, or returns the case that this child is to run.
fn case_of(test: &str, cases: &[&str]) -> Option<String> {
    if let Ok(case) = env::var(CHILD) {
        return Some(case);
    }
    for case in cases {
        let mut child = Command::new(env::current_exe().expect("a test knows itself"));
        child.args(["--exact", "--nocapture", &format!("refusals::{test}")]);
        // Threads' stacks larger than what a limit on address space leaves.
        child.env(CHILD, case).env("RUST_TEST_THREADS", "1").env("RUST_MIN_STACK", "268435456");
        let output = child.output().expect("the system has processes");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{case}: {}{said}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    None
}

/// Until it goes, this program gets no more address space than `SPARE`.
struct NoSpace;

/// Enough for what the test allocates, and less than any stack of these tests.
const SPARE: u64 = 32 << 20;

impl NoSpace {
    /// Begins once the watchdog of the scheduler has its stack: a stack that is mapped between the
    /// two looks at the address space would exceed the limit.
    fn begin() -> Self {
        while !Self::has_watchdog() {
            crate::home::thread::yield_now();
        }
        let stated = std::fs::read_to_string("/proc/self/statm").expect("there is a /proc");
        let pages = stated.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
        let used = pages.expect("it begins with a number") * rustix::param::page_size() as u64;
        Self::set(Some(used + SPARE));
        Self
    }

    /// Returns `true` if the thread of a watchdog runs. The system keeps 15 bytes of its name.
    fn has_watchdog() -> bool {
        let threads = std::fs::read_dir("/proc/self/task").expect("there is a /proc");
        threads.filter_map(Result::ok).any(|thread| {
            std::fs::read_to_string(thread.path().join("comm"))
                .is_ok_and(|name| name.starts_with("watch-"))
        })
    }

    fn set(current: Option<u64>) {
        let limit = getrlimit(Resource::As);
        setrlimit(Resource::As, rustix::process::Rlimit { current, ..limit })
            .expect("the soft limit is ours");
    }
}

impl Drop for NoSpace {
    fn drop(&mut self) {
        Self::set(getrlimit(Resource::As).maximum);
    }
}

/// From now on, the system call answers `error` on this thread and those that it starts.
fn refuse(call: libc::c_long, error: i32) {
    let step = |code: u32, jump_true, jump_false, k| libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k,
    };
    let (load, equal, answer) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut steps = [
        // The number of the call is the first word of what a filter sees.
        step(load, 0, 0, 0),
        step(equal, 0, 1, call as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: it changes a flag of this thread.
    let forgoes = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the filter is there during the call, which copies it.
    let filters = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) };
    assert_eq!((forgoes, filters), (0, 0), "{}", std::io::Error::last_os_error());
}

fn enabled(builder: Builder) -> Result<Scheduler, BuildError> {
    // SAFETY: none of the coroutines here refers to a thread-local.
    unsafe { builder.enable_coroutines() }.build()
}

/// A process that answers, and one that has been asked: both were there before the refusal.
struct Others(procession::Child<mpsc::Sender<u32>, u32>);

impl Others {
    fn start(scheduler: &Scheduler) -> Self {
        Self(scheduler.start(|mut cx: Context<mpsc::Sender<u32>>| async move {
            let mut served = 0;
            while let Some(answers) = cx.recv().await {
                sleep(Duration::from_micros(10)).await;
                served += 1;
                answers.send(served).expect("the test listens");
            }
            served
        }))
    }

    fn are_served(&self, times: u32) {
        for _ in 0..times {
            let (answers, answer) = mpsc::channel();
            self.0.send(answers).expect("it lives");
            soon(&answer);
        }
    }
}

#[test]
fn a_refused_thread_is_named_and_what_it_was_for_comes_back() {
    let this = "a_refused_thread_is_named_and_what_it_was_for_comes_back";
    if case_of(this, &["threads"]).is_none() {
        return;
    }
    let scheduler = enabled(alone().worker_threads(1)).expect("there is room");
    let others = Others::start(&scheduler);
    others.are_served(1);
    // The coroutine that lends a function to a helper has no helper thread yet.
    let (go, goes) = mpsc::channel();
    let lends = SpawnOptions::new().on(&scheduler).try_start_coroutine(
        move |mut cx: coroutine::Context<()>| {
            let mut refused = Vec::new();
            while cx.recv().is_some() {
                refused.push(match coroutine::blocking(|| 7) {
                    Ok(seven) => (true, seven),
                    Err(function) => (false, function()),
                });
                go.send(()).expect("the test listens");
            }
            refused
        },
    );
    let lends = lends.expect("they are enabled");
    let no_space = NoSpace::begin();
    let refused = alone().worker_threads(1).build().expect_err("no room for a thread");
    let text = refused.to_string();
    let act = "cannot build a scheduler: the system refused its first thread: ";
    assert!(text.starts_with(act) && text.ends_with("(os error 11)"), "{text}");
    let source = refused.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let again = rustix::io::Errno::AGAIN.raw_os_error();
    assert_eq!(source.and_then(std::io::Error::raw_os_error), Some(again));
    let pool = procession::pool::Pool::builder().build().expect("it starts no thread yet");
    let refused = pool.submit(|| 3).expect_err("no room for a thread");
    assert!(refused.is_no_worker() && refused.source().is_some(), "{refused}");
    let job = refused.into_inner();
    assert!(matches!(
        procession::spawn_blocking(|| 4).join(),
        Err(procession::pool::JobError::Refused)
    ));
    let looked_up = || scheduler.block_on(Host::from("localhost:7").addresses());
    let refused = looked_up().expect_err("no room for a thread");
    assert!(refused.to_string().contains("no worker could be started"), "{refused}");
    lends.send(()).expect("it lives");
    soon(&goes);
    others.are_served(20);
    assert_eq!(scheduler.spawn(async { spawn(async { 5 }).await }).join(), Ok(Ok(5)));
    drop(no_space);
    assert!(looked_up().is_ok_and(|addresses| !addresses.is_empty()));
    let again = threaded(1);
    assert_eq!(again.spawn(async { 1 }).join(), Ok(1));
    assert_eq!(pool.submit(job).expect("there is room").join(), Ok(3));
    assert_eq!(procession::spawn_blocking(|| 4).join(), Ok(4));
    lends.send(()).expect("it lives");
    soon(&goes);
    lends.cancel();
    assert_eq!(lends.join(), Ok(vec![(false, 7), (true, 7)]));
    others.are_served(1);
    assert_conserved(&again);
}

#[test]
fn a_refused_stack_is_named_and_the_next_coroutine_has_one() {
    let this = "a_refused_stack_is_named_and_the_next_coroutine_has_one";
    if case_of(this, &["stacks"]).is_none() {
        return;
    }
    const LARGE: usize = 512 << 20;
    let scheduler = enabled(alone().worker_threads(1)).expect("there is room");
    let others = Others::start(&scheduler);
    let waits = SpawnOptions::new()
        .on(&scheduler)
        .try_start_coroutine(|mut cx: coroutine::Context<u32>| cx.recv());
    let waits = waits.expect("they are enabled");
    others.are_served(1);
    let begins = |answer: u32| {
        let options = SpawnOptions::new().on(&scheduler).stack_size(LARGE);
        let child = options.try_start_coroutine(move |_: coroutine::Context<()>| {
            coroutine::yield_now();
            answer
        });
        child.expect("it is refused when it begins").join()
    };
    let no_space = NoSpace::begin();
    for _ in 0..3 {
        let text = format!("no stack of {LARGE} bytes: the system refused memory");
        assert_eq!(begins(0), Err(Exit::failed(text)));
    }
    others.are_served(20);
    waits.send(7).expect("it lives");
    assert_eq!(waits.join(), Ok(Some(7)), "it has its stack");
    drop(no_space);
    assert_eq!(begins(8), Ok(8));
    assert_conserved(&scheduler);
}

/// Work of all kinds, whatever the system refuses, on workers that park, steal and block.
fn all_goes_on(scheduler: &Scheduler) {
    let others = Others::start(scheduler);
    let blocks = scheduler.spawn(async { procession::blocking(|| 1) });
    let (gate, waits) = mpsc::channel::<()>();
    let (enters, entered) = mpsc::channel();
    let first: Vec<_> = (0..2)
        .map(|n| {
            let enters = enters.clone();
            scheduler.spawn(async move { enters.send(n).expect("the test listens") })
        })
        .collect();
    // A step that blocks without saying so. Those behind it are served by the watchdog.
    let stalled = scheduler.spawn(async move { waits.recv().unwrap_or_default() });
    let mut numbers = [soon(&entered), soon(&entered)];
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1]);
    others.are_served(20);
    drop(gate);
    assert_eq!((blocks.join(), stalled.join()), (Ok(1), Ok(())));
    first.into_iter().for_each(|other| other.join().expect("it ends"));
    let all: Vec<_> = (0..1000)
        .map(|n| {
            scheduler.spawn(async move {
                let own = spawn(async move { n });
                yield_now().await;
                own.await
            })
        })
        .collect();
    all.into_iter().enumerate().for_each(|(n, one)| assert_eq!(one.join(), Ok(Ok(n))));
    assert_eq!(procession::spawn_blocking(|| 4).join(), Ok(4));
    others.0.cancel();
    assert_eq!(others.0.join(), Ok(20));
    assert_conserved(scheduler);
    assert!(scheduler.block_on(scheduler.shutdown(Duration::from_secs(60))).is_empty());
}

/// Goal: without `/proc` the runtime guesses what it would read there. Method: no file can be
/// opened.
#[test]
fn without_proc_all_goes_on_and_the_watchdog_guesses() {
    if case_of("without_proc_all_goes_on_and_the_watchdog_guesses", &["proc"]).is_none() {
        return;
    }
    refuse(libc::SYS_openat, libc::ENOENT);
    std::fs::File::open("/proc/self/stat").expect_err("there is no /proc");
    // As many workers as there are processors, from whatever source the number comes.
    let defaults = alone().build().expect("the system has threads");
    assert_eq!(defaults.spawn(async { 1 }).join(), Ok(1));
    for width in [1, 2] {
        let scheduler = enabled(alone().worker_threads(width)).expect("there is room");
        let child =
            SpawnOptions::new().on(&scheduler).try_start_coroutine(|_: coroutine::Context<()>| {
                coroutine::sleep(Duration::from_micros(10));
                coroutine::blocking(|| 2).ok()
            });
        assert_eq!(child.expect("they are enabled").join(), Ok(Some(2)));
        all_goes_on(&scheduler);
        let stalls = scheduler.stalls();
        assert_eq!(stalls.watched_threads, 0, "{stalls:?}");
        assert_eq!(stalls.guessed, stalls.blocked + stalls.computing, "{stalls:?}");
    }
}

/// Goal: where the system refuses membarrier(2), protocols pass full fences. Method: it is refused
/// from the beginning, or once a scheduler relies on it.
#[test]
fn without_membarrier_all_goes_on() {
    let refusal = |error| refuse(libc::SYS_membarrier, error);
    match case_of("without_membarrier_all_goes_on", &["never there", "forbidden", "later"]) {
        None => {}
        Some(case) if case == "later" => {
            let before = threaded(2);
            assert!(before.snapshot().membarrier);
            assert_eq!(before.spawn(async { 1 }).join(), Ok(1));
            refusal(libc::EPERM);
            // Its workers were started before; the others inherit the refusal.
            all_goes_on(&before);
            for width in [1, 2, 4] {
                all_goes_on(&threaded(width));
            }
        }
        Some(case) => {
            refusal(if case == "forbidden" { libc::EPERM } else { libc::ENOSYS });
            for width in [1, 2, 4] {
                let scheduler = threaded(width);
                assert!(!scheduler.snapshot().membarrier);
                all_goes_on(&scheduler);
            }
        }
    }
}
