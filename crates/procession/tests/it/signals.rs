//! Signals of the operating system.
//!
//! Method: signals belong to a whole program, so each test runs once more in a child process, which
//! signals itself or is signalled by the test through pipes.

mod service;

use crate::home::{mpsc, thread};
use std::env;
use std::future::pending;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio, Termination};
use std::time::Duration;

use futures_lite::future::poll_once;
use procession::coroutine::{self, Wait};
use procession::signal::{Signal, SignalKind, ctrl_c, end_request, signal, terminate};
use procession::sync::Select;
use procession::time::Instant;
use procession::{Context, Scheduler, SpawnOptions, sleep, spawn, start};
use rustix::process::{Pid, Resource, Rlimit, kill_process, setrlimit};

use crate::scene::{TIMEOUT, driven, panic_quietly, soon, threaded};

/// The environment variable that makes a child process run a test.
const CHILD: &str = "PROCESSION_SIGNALS";

/// Starts `test` once more in a child process with pipes. Returns `None` in that child.
fn child(test: &str) -> Option<Child> {
    if env::var_os(CHILD).is_some() {
        return None;
    }
    let mut child = Command::new(env::current_exe().expect("a test knows itself"));
    child.args([&format!("signals::{test}"), "--exact", "--nocapture", "--test-threads=1"]);
    child.env(CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(child.spawn().expect("the test can be started again"))
}

/// Runs `body` in a child process, which must succeed.
#[track_caller]
fn in_child(test: &str, body: impl FnOnce()) {
    let Some(child) = child(test) else { return body() };
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stdout));
}

/// Sends a signal to this thread, which has handled it when this returns.
fn raise(kind: SignalKind) {
    // SAFETY: the call has no requirements.
    assert_eq!(unsafe { libc::raise(kind.as_raw()) }, 0);
}

fn listen(kind: SignalKind) -> Signal {
    signal(kind).expect("the system has descriptors and threads")
}

const USER: SignalKind = SignalKind::user_defined1();

#[test]
fn processes_coroutines_and_threads_hear_a_signal() {
    in_child("processes_coroutines_and_threads_hear_a_signal", || {
        // SAFETY: the coroutine holds nothing that is scoped to its frame.
        let builder = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() };
        let scheduler = builder.build().expect("the system has threads");
        for _ in 0..3 {
            let [mut process, mut suspends, mut parks] = std::array::from_fn(|_| listen(USER));
            let process = scheduler.spawn(async move { process.recv().await });
            let coroutine = SpawnOptions::new()
                .on(&scheduler)
                .try_start_coroutine(move |_: coroutine::Context<()>| suspends.recv().wait())
                .expect("they are enabled");
            thread::scope(|scope| {
                let thread = scope.spawn(move || parks.recv().wait());
                raise(USER);
                assert_eq!(thread.join().expect("it does not panic"), Some(()));
            });
            assert_eq!(process.join(), Ok(Some(())));
            assert_eq!(coroutine.join(), Ok(Some(())));
        }
    });
}

#[test]
fn signals_between_two_receives_are_heard_as_one_and_not_lost() {
    in_child("signals_between_two_receives_are_heard_as_one_and_not_lost", || {
        let scheduler = threaded(1);
        scheduler.block_on(async {
            let (mut first, mut other) = (listen(USER), listen(SignalKind::user_defined2()));
            raise(USER);
            assert_eq!(first.recv().await, Some(()));
            let mut late = listen(USER);
            for _ in 0..5 {
                raise(USER);
            }
            let mut count = 0;
            // Twice: the first may be heard in the middle of a look at all signals.
            for _ in 0..2 {
                raise(SignalKind::user_defined2());
                other.recv().await;
            }
            // All that was raised before is heard by now.
            while poll_once(first.recv()).await.flatten().is_some() {
                count += 1;
            }
            assert!((1..=5).contains(&count), "{count}");
            assert_eq!(late.recv().await, Some(()));
        });
    });
}

#[test]
fn a_listener_hears_nothing_from_before_and_nothing_of_others() {
    in_child("a_listener_hears_nothing_from_before_and_nothing_of_others", || {
        let scheduler = driven();
        scheduler.block_on(async {
            let mut first = listen(USER);
            raise(USER);
            first.recv().await;
            let (mut late, mut other) = (listen(USER), listen(SignalKind::hangup()));
            // The test clock does not wait for signals, so the time passes at once.
            let hour = Duration::from_secs(3600);
            let begun = Instant::now();
            let heard = Select::new()
                .wait_for(late.recv(), |_| "late")
                .wait_for(other.recv(), |_| "other")
                .timeout(hour, || "nothing");
            assert_eq!(heard.await, "nothing");
            assert_eq!(Instant::now() - begun, hour);
        });
    });
}

#[test]
fn the_functions_for_one_signal_listen_from_the_call_on() {
    in_child("the_functions_for_one_signal_listen_from_the_call_on", || {
        let scheduler = threaded(1);
        let (interrupt, end) = (ctrl_c(), terminate());
        raise(SignalKind::interrupt());
        raise(SignalKind::terminate());
        scheduler.block_on(async {
            interrupt.await.expect("it is heard");
            end.await.expect("it is heard");
        });
    });
}

#[test]
fn signals_that_cannot_be_listened_to_are_refused_by_name() {
    in_child("signals_that_cannot_be_listened_to_are_refused_by_name", || {
        let table = [
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGSTOP, "SIGSTOP"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGFPE, "SIGFPE"),
            (libc::SIGILL, "SIGILL"),
            (libc::SIGBUS, "SIGBUS"),
            (0, "signal 0"),
            (-1, "signal -1"),
            (32, "signal 32"),
            (65, "signal 65"),
            (i32::MAX, "signal 2147483647"),
        ];
        for (number, name) in table {
            let refused = signal(SignalKind::from_raw(number)).expect_err(name);
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name}");
            let text = refused.to_string();
            assert!(text.contains(&format!("cannot listen to {name}: ")), "{text}");
        }
        assert_eq!(format!("{:?}", SignalKind::from_raw(15)), "SignalKind(SIGTERM)");
    });
}

#[test]
fn without_descriptors_the_first_listener_is_an_error_and_the_next_works() {
    in_child("without_descriptors_the_first_listener_is_an_error_and_the_next_works", || {
        let limit = |current| {
            let limit = Rlimit { current: Some(current), maximum: Some(64) };
            setrlimit(Resource::Nofile, limit).expect("a limit can be lowered");
        };
        limit(64);
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        let refused = signal(USER).expect_err("there is no descriptor");
        assert!(refused.to_string().starts_with("cannot listen to SIGUSR1: "), "{refused}");
        assert!(ctrl_c().wait().is_err());
        drop(files);
        let mut heard = listen(USER);
        raise(USER);
        assert_eq!(heard.recv().wait(), Some(()));
    });
}

#[test]
fn a_listener_outlives_its_scheduler() {
    in_child("a_listener_outlives_its_scheduler", || {
        let scheduler = threaded(1);
        let (gives, given) = mpsc::channel();
        let process = scheduler.spawn(async move {
            gives.send(listen(USER)).expect("the test listens");
            // Waits, and is ended while it does.
            listen(USER).recv().await
        });
        let mut outlives = soon(&given);
        drop(scheduler);
        assert!(process.join().is_err(), "the scheduler has ended");
        raise(USER);
        assert_eq!(outlives.recv().wait(), Some(()));
    });
}

/// Goal: no listener misses a signal, and no handler, wake-up or drop gets in the way of another,
/// in a storm of signals.
#[test]
fn a_storm_of_signals_while_listeners_come_and_go() {
    in_child("a_storm_of_signals_while_listeners_come_and_go", || {
        const SIGNALS: u32 = 10_000;
        let scheduler = threaded(2);
        let (hears, heard) = mpsc::channel();
        // Each waits for a signal, and is replaced by another. They end with the storm.
        let comers: Vec<_> = (0..4)
            .map(|_| {
                let hears = hears.clone();
                scheduler.spawn(async move {
                    let mut end = listen(SignalKind::hangup());
                    let mut count = 0_u32;
                    loop {
                        let mut next = listen(USER);
                        let mut abandoned = listen(USER);
                        let goes_on = Select::new()
                            .wait_for(end.recv(), |_| false)
                            .wait_for(next.recv(), |heard| heard.is_some())
                            .wait_for(abandoned.recv(), |heard| heard.is_some());
                        if !goes_on.await {
                            return count;
                        }
                        if count == 0 {
                            hears.send(()).expect("the test listens");
                        }
                        count += 1;
                    }
                })
            })
            .collect();
        let mut stays = listen(USER);
        let stays = scheduler.spawn(async move {
            // Ends only if the last signal of all is heard.
            let mut end = listen(SignalKind::user_defined2());
            loop {
                let goes_on =
                    Select::new().wait_for(stays.recv(), |_| true).wait_for(end.recv(), |_| false);
                if !goes_on.await {
                    return true;
                }
            }
        });
        let begun = Instant::now();
        // The process listens once it waits.
        scheduler.run_until_idle();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..SIGNALS / 2).for_each(|_| raise(USER)));
            }
        });
        // A busy machine may run none of them before the end of the storm, and a process that finds
        // both signals there may take the end.
        comers.iter().for_each(|_| soon(&heard));
        raise(SignalKind::user_defined2());
        raise(SignalKind::hangup());
        assert_eq!(stays.join(), Ok(true));
        for comer in comers {
            assert!(comer.join().expect("it does not panic") > 0);
        }
        assert!(Instant::now() - begun < TIMEOUT);
    });
}

#[test]
fn a_waker_that_panics_harms_no_other_listener() {
    in_child("a_waker_that_panics_harms_no_other_listener", || {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: std::sync::Arc<Self>) {
                panic_quietly("in a waker");
            }
        }
        let mut hostile = listen(USER);
        let mut waits = std::pin::pin!(hostile.recv());
        let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
        assert!(waits.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        for _ in 0..2 {
            let mut heard = listen(USER);
            thread::scope(|scope| {
                let thread = scope.spawn(move || heard.recv().wait());
                raise(USER);
                assert_eq!(thread.join().expect("it does not panic"), Some(()));
            });
        }
    });
}

/// Goal: code that shuts down descriptors that it does not own ends the listeners, and leaves no
/// one waiting.
#[test]
fn listeners_end_if_their_descriptors_are_taken() {
    in_child("listeners_end_if_their_descriptors_are_taken", || {
        let mut heard = listen(USER);
        thread::scope(|scope| {
            let waits = scope.spawn(move || (heard.recv().wait(), heard.recv().wait()));
            for entry in std::fs::read_dir("/proc/self/fd").expect("there is `/proc`") {
                let path = entry.expect("it is listed").path();
                let is_socket = std::fs::read_link(&path)
                    .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
                if is_socket {
                    let number = path.file_name().and_then(|name| name.to_str()).expect("a number");
                    let number = number.parse().expect("a number");
                    // SAFETY: the descriptor is open, since the program ends with it.
                    let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
                    rustix::net::shutdown(socket, rustix::net::Shutdown::Both).expect("a socket");
                }
            }
            assert_eq!(waits.join().expect("it does not panic"), (None, None));
        });
        assert!(terminate().wait().is_err());
    });
}

#[test]
fn a_request_to_end_is_heard_by_those_who_come_later_and_begins_anew() {
    in_child("a_request_to_end_is_heard_by_those_who_come_later_and_begins_anew", || {
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let request = end_request().expect("the system has descriptors");
            assert_eq!(request.signal(), None);
            let late = thread::scope(|scope| {
                let asked = scope.spawn(|| request.asked().wait());
                raise(kind);
                assert_eq!(asked.join().expect("it does not panic"), kind);
                end_request().expect("it is the same request")
            });
            drop(request);
            assert_eq!((late.signal(), late.asked().wait()), (Some(kind), kind));
        }
    });
}

/// The main function of a service: its process cleans up when it is cancelled.
#[expect(clippy::print_stdout, reason = "the test reads it")]
fn service(scheduler: &Scheduler, cleans_up: Duration) -> ExitCode {
    let stopped = scheduler.run_until_signal(Duration::from_secs(60), async move {
        let server = start(move |mut cx: Context<()>| async move {
            cx.recv().await;
            println!("cleans up");
            sleep(cleans_up).await;
            println!("cleaned up");
        });
        drop(server);
        println!("ready");
        pending::<()>().await;
    });
    let stopped = stopped.expect("the system has descriptors");
    println!("{stopped}");
    stopped.report()
}

/// A child process, and the lines that it prints.
struct Service(Child, io::Lines<BufReader<std::process::ChildStdout>>);

impl Service {
    fn new(mut child: Child) -> Self {
        let out = child.stdout.take().expect("it is a pipe");
        let mut service = Self(child, BufReader::new(out).lines());
        service.until("ready");
        service
    }

    #[track_caller]
    fn until(&mut self, wanted: &str) {
        let found = self.1.any(|line| line.expect("it is text").ends_with(wanted));
        assert!(found, "it never printed {wanted:?}");
    }

    fn signal(&self, signal: rustix::process::Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is a child");
    }
}

#[test]
fn a_service_ends_in_order_at_the_first_signal() {
    let Some(child) = child("a_service_ends_in_order_at_the_first_signal") else {
        let code = service(&threaded(2), Duration::ZERO);
        assert_eq!(code, ExitCode::SUCCESS);
        return;
    };
    let mut service = Service::new(child);
    service.signal(rustix::process::Signal::TERM);
    service.until("cleaned up");
    service.until("stopped by SIGTERM");
    assert!(service.0.wait().expect("it ends").success());
}

#[test]
fn a_service_ends_at_once_at_the_second_signal() {
    let name = "a_service_ends_at_once_at_the_second_signal";
    let Some(child) = child(name) else {
        service(&threaded(1), Duration::from_secs(15));
        return;
    };
    let mut service = Service::new(child);
    service.signal(rustix::process::Signal::TERM);
    service.until("cleans up");
    service.signal(rustix::process::Signal::INT);
    assert_eq!(service.0.wait().expect("it ends").code(), Some(130));
    let mut rest = String::new();
    let out = service.1.by_ref().map(|line| line.expect("it is text"));
    rest.extend(out);
    assert!(!rest.contains("cleaned up"), "{rest}");
}

#[test]
fn what_ends_by_itself_decides_the_exit_code() {
    in_child("what_ends_by_itself_decides_the_exit_code", || {
        for code in [ExitCode::SUCCESS, ExitCode::from(7)] {
            let scheduler = threaded(1);
            let process = scheduler.start(|mut cx: Context<()>| async move { cx.recv().await });
            let stopped = scheduler.run_until_signal(Duration::from_secs(60), async { code });
            let stopped = stopped.expect("the system has descriptors");
            assert_eq!((stopped.signal(), stopped.output()), (None, Some(&code)));
            assert!(stopped.unfinished().is_empty());
            assert_eq!(process.join(), Ok(None), "it was asked to end");
            assert_eq!(stopped.report(), code);
        }
    });
}

#[test]
fn processes_that_do_not_end_are_named_and_fail_the_program() {
    let name = "processes_that_do_not_end_are_named_and_fail_the_program";
    let Some(child) = child(name) else {
        let scheduler = threaded(1);
        let (begins, begun) = mpsc::channel();
        let stopped = scheduler.run_until_signal(Duration::from_millis(10), async {
            drop(procession::SpawnOptions::new().label("stuck").spawn(async move {
                begins.send(()).expect("the test listens");
                // A step that never returns, until the program ends.
                let mut nothing = [0];
                let _ = io::stdin().read(&mut nothing);
            }));
            soon(&begun);
        });
        let stopped = stopped.expect("the system has descriptors");
        assert_eq!(stopped.unfinished().processes.len(), 1);
        assert_eq!(stopped.report(), ExitCode::FAILURE);
        return;
    };
    let mut child = child;
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let output = child.wait_with_output().expect("it ends");
    // Ignored: the child has ended, and reads nothing any more.
    let _ = stdin.write_all(b"x");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("stuck (p") && text.contains("had not ended: Running"), "{text}");
}

#[test]
fn a_future_is_dropped_before_the_shutdown_begins() {
    in_child("a_future_is_dropped_before_the_shutdown_begins", || {
        struct Dropped(mpsc::Sender<&'static str>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.send("future").expect("the test listens");
            }
        }
        let scheduler = threaded(1);
        let (tells, told) = mpsc::channel();
        let (held, cancelled) = (Dropped(tells.clone()), tells);
        let stopped = scheduler.run_until_signal(Duration::from_secs(60), async move {
            let _held = held;
            let child = start(move |mut cx: Context<()>| async move {
                cx.recv().await;
                cancelled.send("process").expect("the test listens");
            });
            drop(child);
            drop(spawn(async { raise(SignalKind::terminate()) }));
            pending::<()>().await;
        });
        let stopped = stopped.expect("the system has descriptors");
        assert_eq!(stopped.signal(), Some(SignalKind::terminate()));
        assert_eq!(told.iter().collect::<Vec<_>>(), ["future", "process"]);
    });
}

#[test]
fn a_signal_writes_the_flight_recorder_while_all_workers_are_stalled() {
    in_child("a_signal_writes_the_flight_recorder_while_all_workers_are_stalled", || {
        let directory = env::temp_dir().join(format!("procession-signal-{}", std::process::id()));
        let builder = Scheduler::builder().worker_threads(1).max_threads(1).callers_drive();
        let scheduler = builder.dump_directory(&directory).build().expect("it starts no thread");
        // From within a process, which is stalled from then on.
        let stalled = scheduler.clone();
        scheduler
            .spawn(async move {
                let user = SignalKind::user_defined2();
                stalled.dump_on_signal(user).expect("there is a directory");
                for _ in 0..200 {
                    drop(procession::spawn(async {}));
                }
                raise(user);
                while stalled.snapshot().recorder.dumps == 0 {
                    thread::yield_now();
                }
                // The next one comes within 60 seconds. The thread of the signals has passed both
                // on when a listener hears a later one.
                raise(user);
                let mut later = listen(USER);
                raise(USER);
                later.recv().await;
                assert_eq!(stalled.snapshot().recorder.dumps, 1);
            })
            .join()
            .expect("it does not panic");
        let files: Vec<_> = std::fs::read_dir(&directory).expect("it is there").collect();
        assert_eq!(files.len(), 1, "{files:?}");
        std::fs::remove_dir_all(&directory).expect("it is ours");
    });
}

#[test]
fn a_scheduler_without_a_directory_dumps_on_no_signal() {
    in_child("a_scheduler_without_a_directory_dumps_on_no_signal", || {
        let user = SignalKind::user_defined2();
        let error = threaded(1).dump_on_signal(user).expect_err("there is no directory");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let builder = Scheduler::builder().dump_directory("unused").recorder_events(0);
        let off = builder.build().expect("the system has threads");
        let error = off.dump_on_signal(user).expect_err("there is no recorder");
        assert_eq!(error.to_string(), "cannot dump on SIGUSR2: the scheduler has no recorder");
    });
}
