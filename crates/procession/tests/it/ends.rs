//! The end of a process: what still reaches it once it must end, and the exit it ends with.

use crate::home::{mpsc, thread};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, Yields};
use procession::mailbox::{Event, WhenFull};
use procession::process::{Named, Outcome, kill, send_exit};
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{Child, Context, Exit, Pid, Scheduler, SpawnOptions, coroutine, sleep};

use crate::scene::{TIMEOUT, assert_conserved, driven, panic_quietly, soon, threaded};

/// The ways to end a process from outside, with the resulting exit.
fn ends() -> [(fn(Pid), Exit); 2] {
    [
        (
            |pid| assert!(send_exit(pid, Exit::failed("unwanted")), "it lives"),
            Exit::failed("unwanted"),
        ),
        (|pid| assert!(kill(pid), "it lives"), Exit::Killed),
    ]
}

/// A process in the middle of a step: it has reported that, and waits on its thread to go on.
struct InStep {
    begun: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl InStep {
    fn wait(self) {
        self.begun.send(()).expect("the test waits for it");
        self.go_on.recv().expect("the test lets it go on");
    }
}

fn in_step() -> (InStep, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (begun, has_begun) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    (InStep { begun, go_on }, has_begun, go)
}

/// Ends a process while its step runs, sends it a message afterwards, and lets the step go on. The
/// process receives in the way of `process`, and would return what it got.
#[track_caller]
fn nothing_comes_after<P>(process: impl Fn(Context<u8>, InStep) -> P + Clone + Send + 'static)
where
    P: Future<Output = Option<u8>> + Send + 'static,
{
    let mailboxes: [fn() -> SpawnOptions; 2] =
        [SpawnOptions::new, || SpawnOptions::new().mailbox(4, WhenFull::Reject)];
    for options in mailboxes {
        for (end, reason) in ends() {
            let scheduler = threaded(1);
            let (in_step, begun, go) = in_step();
            let process = process.clone();
            let child = options().on(&scheduler).start(move |cx: Context<u8>| process(cx, in_step));
            soon(&begun);
            let (address, handle) = child.into_parts();
            end(address.pid());
            address.send(7).expect("the mailbox is open as long as the step runs");
            go.send(()).expect("it waits");
            assert_eq!(handle.join(), Err(reason));
            assert_conserved(&scheduler);
        }
    }
}

#[test]
fn what_is_sent_after_the_end_was_asked_for_is_not_received() {
    nothing_comes_after(|mut cx, in_step| async move {
        in_step.wait();
        cx.recv().await
    });
    nothing_comes_after(|mut cx, in_step| async move {
        in_step.wait();
        assert!(cx.try_recv().is_err());
        assert!(cx.try_recv().is_err(), "nor is it there at the second look");
        cx.recv().await
    });
    nothing_comes_after(|mut cx, in_step| async move {
        in_step.wait();
        cx.recv_matching(|_| true).await
    });
    nothing_comes_after(|mut cx, in_step| async move {
        in_step.wait();
        match cx.recv_event().await {
            Some(Event::Message(message)) => Some(message),
            _ => None,
        }
    });
}

#[test]
fn what_was_received_from_before_is_not_taken_back() {
    for (end, reason) in ends() {
        let scheduler = threaded(1);
        let (in_step, begun, go) = in_step();
        let (got, gets) = mpsc::channel();
        let child = scheduler.start(move |mut cx: Context<u8>| async move {
            // This takes both messages out of the mailbox.
            got.send(cx.recv().await).expect("the test waits for it");
            in_step.wait();
            got.send(cx.try_recv().ok()).expect("the test waits for it");
            got.send(cx.try_recv().ok()).expect("the test waits for it");
            cx.recv().await
        });
        child.send(1).expect("it lives");
        child.send(2).expect("it lives");
        soon(&begun);
        end(child.pid());
        child.send(3).expect("the mailbox is open as long as the step runs");
        go.send(()).expect("it waits");
        assert_eq!(child.join(), Err(reason));
        let got: Vec<_> = gets.iter().collect();
        assert_eq!(got[0], Some(1));
        assert!(!got.contains(&Some(3)), "{got:?}");
        assert_conserved(&scheduler);
    }
}

#[test]
fn a_coroutine_does_not_receive_what_is_sent_after_the_end_was_asked_for() {
    for (end, reason) in ends() {
        // SAFETY: the coroutine holds no scoped thread-local pointer across a wait.
        let scheduler =
            unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() }.build();
        let scheduler = scheduler.expect("the system has threads and memory");
        let (in_step, begun, go) = in_step();
        let child = SpawnOptions::new().on(&scheduler).try_start_coroutine(
            move |mut cx: coroutine::Context<u8>| {
                in_step.wait();
                cx.recv()
            },
        );
        let child = child.expect("coroutines are enabled");
        soon(&begun);
        end(child.pid());
        child.send(7).expect("the mailbox is open as long as the step runs");
        go.send(()).expect("it waits");
        assert_eq!(child.join(), Err(reason));
    }
}

#[test]
fn a_wait_for_a_cancel_is_not_over_because_of_a_terminate() {
    for (end, reason) in ends() {
        let scheduler = threaded(1);
        let (in_step, begun, go) = in_step();
        let child = scheduler.start(move |cx: Context<()>| async move {
            in_step.wait();
            cx.cancelled().await;
        });
        soon(&begun);
        end(child.pid());
        go.send(()).expect("it waits");
        assert_eq!(child.join(), Err(reason));
    }
}

/// Goal: a receive ends with `None` only because of a cancel, so that the reason of an exit signal
/// is never lost. Method: many processes that poll a receive just as the signal comes.
#[test]
fn a_receive_that_meets_an_exit_signal_keeps_the_reason() {
    const ROUNDS: u32 = 20_000;
    let scheduler = threaded(2);
    for round in 0..ROUNDS {
        let child = scheduler.start(|mut cx: Context<()>| async move {
            // Each message makes it look again.
            while cx.recv().await.is_some() {}
        });
        let pid = child.pid();
        for _ in 0..round % 8 {
            child.send(()).expect("it lives");
        }
        assert!(send_exit(pid, Exit::failed("unwanted")), "it lives");
        assert_eq!(child.join(), Err(Exit::failed("unwanted")), "in round {round}");
    }
}

/// Refuses to start once it may go on.
struct Refuses(Option<InStep>, fn() -> InitError);

impl Process for Refuses {
    type Input = ();
    type Message = u8;
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        self.0.take().expect("it is started once").wait();
        Err((self.1)())
    }

    fn step(
        &mut self,
        _: &mut Events<u8>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        unreachable!("it never starts")
    }
}

#[test]
fn a_machine_that_refuses_to_start_ends_for_processes_that_found_it_by_its_name() {
    let refusals: [(fn() -> InitError, Exit); 4] = [
        (|| InitError::unknown_method("x"), Exit::failed("it has no method \"x\"")),
        (|| InitError::Refused("no disk".into()), Exit::failed("no disk")),
        (|| InitError::Refused(Box::new(Exit::Shutdown)), Exit::Shutdown),
        (|| panic_quietly("in init"), Exit::Panicked("in init".into())),
    ];
    for (error, exit) in refusals {
        let scheduler = threaded(2);
        let (in_step, begun, go) = in_step();
        thread::scope(|scope| {
            let spawner = scope.spawn(|| {
                let options = SpawnOptions::new().on(&scheduler).name("n");
                options.try_start_machine(Refuses(Some(in_step), error), "x", ()).is_err()
            });
            soon(&begun);
            let address = Named::<u8>::on(&scheduler, "n")
                .address()
                .expect("it is registered before it starts");
            let pid = address.pid();
            let (watches, is_watched) = mpsc::channel();
            let watcher = scheduler.start(move |mut cx: Context<()>| async move {
                cx.trap_exits(true);
                let monitor = cx.monitor(pid);
                cx.link(pid);
                watches.send(()).expect("the test waits for it");
                let down = cx.down(monitor).await.map(|down| down.exit);
                let Some(Event::Exit(signal)) = cx.recv_event().await else {
                    panic!("the link is answered")
                };
                let late = cx.monitor(pid);
                (down, signal.exit, cx.down(late).await.map(|down| down.exit))
            });
            soon(&is_watched);
            address.send(1).expect("its mailbox is open");
            go.send(()).expect("it waits");
            assert!(spawner.join().expect("it does not panic"), "it refused");
            let told = watcher.join_timeout(TIMEOUT).expect("every monitor and link is answered");
            assert_eq!(told, Ok((Some(exit.clone()), exit, Some(Exit::NoProcess))));
            assert!(!address.is_alive());
            assert!(address.send(2).expect_err("it has ended").is_ended());
            assert!(!kill(pid), "it has ended");
            assert_eq!(scheduler.whereis("n"), None);
            assert_eq!(scheduler.snapshot().processes.len(), 0);
            assert_conserved(&scheduler);
        });
    }
}

#[test]
fn a_supervisor_that_is_started_during_a_shutdown_is_asked_to_end() {
    let scheduler = driven();
    let (stops, stopped) = mpsc::channel();
    drop(scheduler.start(|cx: Context<()>| async move {
        cx.cancelled().await;
        // All children that existed were asked by then.
        sleep(Duration::from_millis(1)).await;
        let child = ChildSpec::new("child", move |mut cx: Context<()>| {
            let stops = stops.clone();
            async move {
                assert_eq!(cx.recv().await, None);
                stops.send(()).expect("the test waits for it");
            }
        });
        let supervisor = Supervisor::one_for_one()
            .child(child)
            .try_start()
            .await
            .expect("a process that cleans up may spawn");
        assert_eq!(supervisor.await, Exit::Shutdown);
    }));
    scheduler.run_until_idle();
    let begun = scheduler.now();
    assert!(scheduler.block_on(scheduler.shutdown(Duration::from_secs(1))).is_empty());
    assert_eq!(scheduler.now() - begun, Duration::from_millis(1), "nothing was waited for");
    soon(&stopped);
}

/// Starts a process in its `Drop`, and sends the handle.
struct Starts(fn() -> SpawnOptions, mpsc::Sender<Child<(), bool>>);

impl Outcome for Starts {}

impl Drop for Starts {
    fn drop(&mut self) {
        let child = (self.0)().start(|cx: Context<()>| async move {
            cx.cancelled().await;
            true
        });
        self.1.send(child).expect("the test waits for it");
    }
}

/// Goal: if a process makes relations in the `Drop` of its unused result, they are settled like
/// those of any process that ends. Method: if an address is kept, the process is complete by then;
/// without one, it is not yet.
#[test]
fn relations_made_by_the_drop_of_a_detached_result_are_settled() {
    let cases: [(fn() -> SpawnOptions, Result<bool, Exit>); 2] = [
        (|| SpawnOptions::new().scoped(), Ok(true)),
        (|| SpawnOptions::new().link(), Err(Exit::NoProcess)),
    ];
    for (options, end) in cases {
        for keeps_address in [true, false] {
            let scheduler = driven();
            let (starts, started) = mpsc::channel();
            let detached = scheduler.start(move |cx: Context<()>| async move {
                drop(cx);
                Starts(options, starts)
            });
            let address = detached.detach();
            let _kept = keeps_address.then_some(address);
            scheduler.run_until_idle();
            let late = soon(&started);
            if !keeps_address && end.is_err() {
                // A link to a process that is not complete yet is over when that process ends
                // normally.
                late.cancel();
            }
            let end = if keeps_address { end.clone() } else { Ok(true) };
            assert_eq!(
                late.join_timeout(TIMEOUT).expect("it is ended"),
                end,
                "keeps_address: {keeps_address}"
            );
        }
    }
}

/// Polls its context in its `Drop`, as far as that still works, and reports the results.
struct PollsAtTheEnd {
    context: Context<PollsAtTheEnd>,
    waker: Waker,
    tells: mpsc::Sender<bool>,
}

impl Outcome for PollsAtTheEnd {}

impl Drop for PollsAtTheEnd {
    fn drop(&mut self) {
        let mut task = TaskContext::from_waker(&self.waker);
        let cancelled = pin!(self.context.cancelled()).poll(&mut task);
        assert!(cancelled.is_pending(), "it was not cancelled");
        let received = pin!(self.context.recv()).poll(&mut task);
        self.tells.send(matches!(received, Poll::Ready(None))).expect("the test waits for it");
    }
}

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_context_that_is_polled_at_the_end_receives_nothing_and_leaves_nothing() {
    let mailboxes: [fn() -> SpawnOptions; 2] =
        [SpawnOptions::new, || SpawnOptions::new().mailbox(4, WhenFull::Reject)];
    for options in mailboxes {
        // In an unused result, or in a message to itself that is never received.
        for in_result in [true, false] {
            let scheduler = threaded(1);
            let idle = Arc::new(Idle);
            let waker = Waker::from(Arc::clone(&idle));
            let (tells, told) = mpsc::channel();
            let (in_step, begun, go) = in_step();
            let detached =
                options().on(&scheduler).start(move |context: Context<PollsAtTheEnd>| async move {
                    in_step.wait();
                    let address = context.address();
                    let last = PollsAtTheEnd { context, waker, tells };
                    if in_result {
                        return Some(last);
                    }
                    assert!(address.send(last).is_ok(), "it lives");
                    None
                });
            soon(&begun);
            drop(detached);
            go.send(()).expect("it waits");
            assert!(soon(&told), "there is nothing to receive");
            assert!(scheduler.block_on(scheduler.shutdown(TIMEOUT)).is_empty(), "it has ended");
            assert_eq!(Arc::strong_count(&idle), 1, "its waker is not kept");
        }
    }
}

#[test]
fn a_wait_for_the_cancel_of_another_process_is_refused() {
    let scheduler = driven();
    let (gives, given) = mpsc::channel();
    let owner = scheduler.start(move |cx: Context<()>| async move {
        let cx = Arc::new(cx);
        gives.send(Arc::clone(&cx)).expect("the test waits for it");
        cx.cancelled().await;
    });
    scheduler.run_until_idle();
    let cx = soon(&given);
    let own = Arc::clone(&cx);
    let other = scheduler.spawn(async move { own.cancelled().await });
    let refused = other.join_timeout(TIMEOUT).expect("it would never be woken");
    assert_eq!(refused, Err(Exit::Panicked("a process waits for its own cancel only".into())));
    owner.cancel();
    assert_eq!(owner.join(), Ok(()));
    // A context may be asked for a known answer in any process.
    assert_eq!(scheduler.spawn(async move { cx.cancelled().await }).join(), Ok(()));
}
