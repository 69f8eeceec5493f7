//! The spans and events that subscribers of `tracing` receive. This is a separate binary, since a
//! subscriber for all threads is one for all tests.
//!
//! Method: a subscriber records everything. Each test checks the records of its own PIDs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::pending;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
use procession::mailbox::Event;
use procession::mailbox::request::{self, RequestId};
use procession::observe::Reporting;
use procession::pool::{CoPool, Pool};
use procession::supervisor::{ChildSpec, Restart, Supervisor};
use procession::{Context, Exit, Pid, Scheduler, SpawnOptions, sleep, spawn, start, yield_now};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use rustix::process::{Signal, getpid, kill_process};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, with_default};
use tracing::{Level, Metadata, Subscriber, info, info_span};
use tracing_core::span::Current;

#[derive(Clone, Debug, PartialEq)]
enum Told {
    /// Holds `true` if it is a root.
    New(bool),
    Follows(u64),
    /// Holds the number of spans that the thread was in already.
    Entered(usize),
    Exited,
    Recorded,
    Closed,
}

struct Recorded {
    metadata: &'static Metadata<'static>,
    fields: Fields,
    told: Vec<Told>,
}

#[derive(Default)]
struct Log {
    /// The spans by number.
    spans: BTreeMap<u64, Recorded>,
    /// The fields of each event, and the span that it is in.
    events: Vec<(Fields, Option<u64>)>,
    references: BTreeMap<u64, usize>,
}

type Fields = BTreeMap<&'static str, String>;

struct ToFields<'a>(&'a mut Fields);

impl Visit for ToFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

thread_local! {
    static INSIDE: RefCell<Vec<(Id, &'static Metadata<'static>)>> = const { RefCell::new(Vec::new()) };
    /// The pool that the subscriber asks whenever this thread makes a span.
    static ASKED: RefCell<Option<CoPool>> = const { RefCell::new(None) };
}

/// A subscriber, and the level up to which it takes spans and events.
#[derive(Clone, Default)]
struct Recorder(Arc<(Mutex<Log>, AtomicU64)>, Option<Level>);

impl Recorder {
    /// The recorder of all threads.
    fn shared() -> &'static Self {
        static RECORDER: OnceLock<Recorder> = OnceLock::new();
        RECORDER.get_or_init(|| {
            let recorder = Self::default();
            tracing::subscriber::set_global_default(recorder.clone()).expect("there is no other");
            recorder
        })
    }

    fn log<R>(&self, with: impl FnOnce(&mut Log) -> R) -> R {
        with(&mut self.0.0.lock())
    }

    fn tell(&self, id: &Id, told: Told) {
        self.log(|log| log.spans.get_mut(&id.into_u64()).expect("it was made").told.push(told));
    }

    /// Returns the one span of a process: its number, its fields, and what happened to it.
    #[track_caller]
    fn of(&self, pid: Pid) -> (u64, Fields, Vec<Told>) {
        let is_its = |span: &Recorded| {
            span.metadata.name() == "process" && span.fields.get("pid") == Some(&pid.to_string())
        };
        let found: Vec<_> = self.log(|log| {
            let all = log.spans.iter().filter(|(_, span)| is_its(span));
            all.map(|(&id, span)| (id, span.fields.clone(), span.told.clone())).collect()
        });
        let [span] = <[_; 1]>::try_from(found).expect("it has one span");
        span
    }

    /// Returns the events of the level `ERROR` in a span.
    fn errors_in(&self, span: u64) -> Vec<Fields> {
        let is_its =
            |event: &&(Fields, Option<u64>)| event.1 == Some(span) && event.0["level"] == "ERROR";
        self.log(|log| log.events.iter().filter(is_its).map(|event| event.0.clone()).collect())
    }

    /// Returns the spans of the events with this message.
    fn spans_of_events(&self, message: &str) -> Vec<Option<u64>> {
        let of = |(fields, span): &(Fields, Option<u64>)| {
            (fields.get("message").map(String::as_str) == Some(message)).then_some(*span)
        };
        self.log(|log| log.events.iter().filter_map(of).collect())
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.1.is_none_or(|most| *metadata.level() <= most)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        ASKED.with_borrow(|pool| pool.as_ref().map(CoPool::stats));
        let id = self.0.1.fetch_add(1, Relaxed) + 1;
        let mut fields = Fields::new();
        attributes.record(&mut ToFields(&mut fields));
        let told = vec![Told::New(attributes.is_root())];
        self.log(|log| {
            log.references.insert(id, 1);
            log.spans.insert(id, Recorded { metadata: attributes.metadata(), fields, told });
        });
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.tell(id, Told::Recorded);
        let mut fields = Fields::new();
        values.record(&mut ToFields(&mut fields));
        self.log(|log| {
            log.spans.get_mut(&id.into_u64()).expect("it was made").fields.append(&mut fields)
        });
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.tell(id, Told::Follows(follows.into_u64()));
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut ToFields(&mut fields));
        fields.insert("level", event.metadata().level().to_string());
        let inside = INSIDE.with_borrow(|inside| inside.last().map(|(id, _)| id.into_u64()));
        let span = if event.is_contextual() { inside } else { event.parent().map(Id::into_u64) };
        self.log(|log| log.events.push((fields, span)));
    }

    fn enter(&self, id: &Id) {
        let metadata = self.log(|log| log.spans[&id.into_u64()].metadata);
        let depth = INSIDE.with_borrow_mut(|inside| {
            inside.push((id.clone(), metadata));
            inside.len() - 1
        });
        self.tell(id, Told::Entered(depth));
    }

    fn exit(&self, id: &Id) {
        let last = INSIDE.with_borrow_mut(Vec::pop);
        assert_eq!(
            last.map(|(id, _)| id),
            Some(id.clone()),
            "spans are left in order, on the thread that entered them"
        );
        self.tell(id, Told::Exited);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.log(|log| *log.references.entry(id.into_u64()).or_default() += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let closes = self.log(|log| {
            let references = log.references.get_mut(&id.into_u64()).expect("it was made");
            *references -= 1;
            *references == 0
        });
        if closes {
            self.tell(&id, Told::Closed);
        }
        closes
    }

    fn current_span(&self) -> Current {
        INSIDE.with_borrow(|inside| match inside.last() {
            Some((id, metadata)) => Current::new(id.clone(), metadata),
            None => Current::none(),
        })
    }
}

/// A subscriber that panics wherever it can without preventing the spans of processes.
struct Hostile;

fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("a subscriber"))
}

impl Subscriber for Hostile {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    /// Panics if it is asked for the spans of requests.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if *metadata.level() == Level::INFO { panic_quietly() } else { true }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        panic_quietly()
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        panic_quietly()
    }

    fn event(&self, _: &tracing::Event<'_>) {
        panic_quietly()
    }

    fn enter(&self, _: &Id) {
        panic_quietly()
    }

    fn exit(&self, _: &Id) {
        panic_quietly()
    }

    fn try_close(&self, _: Id) -> bool {
        panic_quietly()
    }
}

/// Goal: the subscriber of a program decides over no process, also while a panic unwinds.
#[test]
fn a_process_starts_and_ends_although_the_subscriber_panics() {
    for request_ids in [false, true] {
        let builder = Scheduler::builder().worker_threads(1).test_clock().on_exit(|_| {});
        let scheduler = builder.request_ids(request_ids).build().expect("it starts no thread");
        with_default(Hostile, || {
            let (returns, panics) = (
                scheduler.spawn(async { 1 }),
                scheduler.spawn(async { std::panic::resume_unwind(Box::new("on purpose")) }),
            );
            let killed = scheduler.spawn(pending::<()>());
            scheduler.run_until_idle();
            procession::process::kill(killed.pid());
            assert_eq!(returns.join(), Ok(1));
            assert_eq!(panics.join(), Err::<(), _>(Exit::Panicked("on purpose".into())));
            assert_eq!(killed.join(), Err(Exit::Killed));
        });
        let shutdown = scheduler.shutdown(Duration::from_secs(1));
        assert!(scheduler.block_on(shutdown).is_empty(), "each process was counted and has ended");
    }
}

fn threaded(width: usize) -> Scheduler {
    Scheduler::builder().worker_threads(width).build().expect("the system has threads")
}

/// Asserts that a root span was entered and left in turn, from outside of all spans, and then
/// closed.
#[track_caller]
fn assert_root_and_in_order(told: &[Told]) {
    assert_eq!(told.first(), Some(&Told::New(true)), "it is a root: {told:?}");
    assert_eq!(told.last(), Some(&Told::Closed), "it is closed: {told:?}");
    let turns: Vec<_> =
        told.iter().filter(|told| matches!(told, Told::Entered(_) | Told::Exited)).collect();
    for turn in turns.chunks(2) {
        assert_eq!(
            turn,
            [&Told::Entered(0), &Told::Exited],
            "in turn, and in no other's: {told:?}"
        );
    }
}

#[test]
fn the_span_of_a_process_is_a_root_whatever_spawns_it_or_sends_to_it() {
    let recorder = Recorder::shared();
    for width in [1, 2] {
        let (pids, span) = threaded(width).block_on(async {
            let parent = SpawnOptions::new().label("parent").spawn(async {
                let inner = info_span!("inner");
                let (child, span) = inner.in_scope(|| {
                    let child = procession::start(|mut cx: Context<u32>| async move {
                        let mut sum = 0;
                        while let Some(n) = cx.recv().await {
                            sum += n;
                        }
                        sum
                    });
                    (0..10).for_each(|n| child.send(n).expect("it is there"));
                    (child, inner.id().map(|id| id.into_u64()))
                });
                for n in 10..20 {
                    child.send(n).expect("it is there");
                    yield_now().await;
                }
                let pid = child.pid();
                child.cancel();
                assert_eq!(child.await, Ok(190));
                (pid, span)
            });
            let pid = parent.pid();
            let (child, span) = parent.await.expect("it ends well");
            ([pid, child], span)
        });
        let (_, fields, told) = recorder.of(pids[0]);
        assert_root_and_in_order(&told);
        assert_eq!(fields["label"], "parent");
        assert_eq!((fields["kind"].as_str(), fields.get("parent")), ("async", None));
        assert!(fields["spawned_at"].starts_with(file!()), "{fields:?}");
        let (_, fields, told) = recorder.of(pids[1]);
        assert_root_and_in_order(&told);
        assert_eq!((fields.get("label"), &fields["parent"]), (None, &pids[0].to_string()));
        assert!(told.contains(&Told::Follows(span.expect("everything is enabled"))), "{told:?}");
    }
}

/// Goal: a line of a log says no more than its reader asks for. Method: a subscriber of this thread
/// takes less than the one of all threads.
#[test]
fn a_log_has_no_spans_up_to_info_and_no_places_up_to_debug() {
    let keys = |fields: &Fields| fields.keys().copied().collect::<Vec<_>>();
    for (most, span, failure) in [
        (Level::INFO, None, &["label", "level", "message", "pid"][..]),
        (Level::DEBUG, Some(&["exit", "label", "pid"][..]), &["level", "message"][..]),
    ] {
        let recorder = Recorder(Arc::default(), Some(most));
        tracing::subscriber::with_default(recorder.clone(), || {
            let builder = Scheduler::builder().worker_threads(1).test_clock();
            let scheduler = builder.build().expect("it starts no thread");
            let fails = SpawnOptions::new().on(&scheduler).label("client").spawn(async {
                info!("works");
                procession::process::exit(Exit::failed("no disk"));
            });
            fails.detach();
            scheduler.run_until_idle();
        });
        recorder.log(|log| {
            let processes = log.spans.values().filter(|span| span.metadata.name() == "process");
            let spans = processes.map(|span| keys(&span.fields)).collect::<Vec<_>>();
            assert_eq!(spans.first().map(Vec::as_slice), span, "{most}");
            let [(works, _), (fails, _)] = &log.events[..] else { panic!("{:?}", log.events) };
            assert_eq!(keys(works), ["level", "message"], "{most}");
            assert_eq!((keys(fails).as_slice(), fails["level"].as_str()), (failure, "ERROR"));
            assert!(fails["message"].ends_with("no disk"), "{fails:?}");
        });
    }
}

/// Without a span, the event itself says which supervisor it is about, and repeats no default.
#[test]
fn a_log_up_to_info_names_a_supervisor_by_the_label_that_it_was_given() {
    for label in [None, Some("stores")] {
        let recorder = Recorder(Arc::default(), Some(Level::INFO));
        tracing::subscriber::with_default(recorder.clone(), || {
            let builder = Scheduler::builder().worker_threads(1).test_clock();
            builder.build().expect("it starts no thread").block_on(async {
                let child = ChildSpec::new("store", |_: Context<()>| async {
                    procession::process::exit(Exit::failed("no disk"))
                });
                let tree = Supervisor::one_for_one().intensity(0, Duration::from_secs(5));
                let tree = tree.child(child);
                let running = match label {
                    Some(label) => tree.try_start_with(SpawnOptions::new().label(label)).await,
                    None => tree.try_start().await,
                };
                assert!(matches!(running.expect("it starts").await, Exit::GaveUp(_)));
            });
        });
        recorder.log(|log| {
            let [(fields, None)] = &log.events[..] else { panic!("{:?}", log.events) };
            assert!(fields.contains_key("supervisor"), "{fields:?}");
            assert_eq!(fields.get("label").map(String::as_str), label);
        });
    }
}

/// Method: a process receives messages of two requests and one of none. After each it waits, so
/// that the rest of its work is in another step, and tells of it.
#[test]
fn each_message_of_a_request_has_a_span_inside_that_of_its_receiver() {
    let recorder = Recorder::shared();
    let scheduler = Scheduler::builder()
        .worker_threads(1)
        .test_clock()
        .request_ids(true)
        .build()
        .expect("it starts no thread");
    let id = |number| RequestId::new(number).expect("it is not 0");
    let server = scheduler.start(|mut cx: Context<u32>| async move {
        while let Some(number) = cx.recv().await {
            info!("receives {number}");
            sleep(Duration::from_secs(1)).await;
            info!("works on {number}");
            if number == 4 {
                panic!("as told");
            }
        }
    });
    for number in 1..=4 {
        let send = || server.send(number).expect("it is alive");
        if number == 2 { send() } else { request::with(id(number.into()), send) }
    }
    let child = request::with(id(9), || scheduler.spawn(async {}));
    let (pid, child_pid) = (server.pid(), child.pid());
    assert_eq!(child.join(), Ok(()));
    assert_eq!(server.join(), Err(Exit::Panicked("as told".into())));

    let (process, fields, told) = recorder.of(pid);
    assert_root_and_in_order(&told);
    assert_eq!(fields.get("request"), None, "it was spawned for no request");
    let (_, fields, _) = recorder.of(child_pid);
    assert_eq!(fields["request"], id(9).to_string());
    let spans: Vec<_> = recorder.log(|log| {
        let is_its = |span: &Recorded| {
            span.metadata.name() == "request" && span.fields.get("pid") == Some(&pid.to_string())
        };
        let all = log.spans.iter().filter(|(_, span)| is_its(span));
        all.map(|(&id, span)| (id, span.fields["request"].clone(), span.told.clone())).collect()
    });
    assert_eq!(spans.len(), 3, "one for each message of a request: {spans:?}");
    for ((span, request, told), number) in spans.iter().zip([1, 3, 4]) {
        assert_eq!(*request, id(number).to_string());
        let turn = [Told::Entered(1), Told::Exited];
        let expected = [&[Told::New(false)][..], &turn, &turn, &[Told::Closed]].concat();
        assert_eq!(*told, expected, "it is inside the span of the process in each step");
        for event in [format!("receives {number}"), format!("works on {number}")] {
            assert_eq!(recorder.spans_of_events(&event), [Some(*span)]);
        }
    }
    for event in ["receives 2", "works on 2"] {
        assert_eq!(recorder.spans_of_events(event), [Some(process)], "it belongs to no request");
    }
}

#[test]
fn a_process_run_by_its_caller_is_not_in_the_callers_span() {
    let recorder = Recorder::shared();
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it starts no thread");
    let pid = info_span!("caller").in_scope(|| {
        scheduler.block_on(async {
            let process = spawn(async { info!("run by its caller") });
            let pid = process.pid();
            process.await.expect("it ends well");
            pid
        })
    });
    let (id, _, told) = recorder.of(pid);
    assert_eq!(told[0], Told::New(true));
    assert_eq!(recorder.spans_of_events("run by its caller"), [Some(id)]);
}

#[test]
fn what_a_process_tells_is_in_its_span_on_whichever_worker_it_runs() {
    let recorder = Recorder::shared();
    let scheduler = threaded(2);
    let processes: Vec<_> = (0..20)
        .map(|n| {
            scheduler.spawn(async move {
                for round in 0..10 {
                    info!("on any worker {n}");
                    if round % 2 == 0 {
                        yield_now().await
                    } else {
                        sleep(Duration::from_micros(50)).await
                    }
                }
            })
        })
        .collect();
    let pids: Vec<_> = processes.iter().map(|process| process.pid()).collect();
    processes.into_iter().for_each(|process| process.join().expect("it ends well"));
    for (n, pid) in pids.into_iter().enumerate() {
        let events = recorder.spans_of_events(&format!("on any worker {n}"));
        assert_eq!(events.len(), 10);
        let (id, _, told) = recorder.of(pid);
        assert_root_and_in_order(&told);
        assert!(events.iter().all(|event| *event == Some(id)), "{events:?}");
    }
}

#[test]
fn a_blocking_job_runs_in_the_span_in_which_it_was_submitted() {
    let recorder = Recorder::shared();
    let scheduler = threaded(1);
    let (pid, inner) = scheduler.block_on(async {
        let process = spawn(async {
            procession::spawn_blocking(|| info!("a job of a process"))
                .await
                .expect("it does not panic");
            let inner = info_span!("inner");
            inner
                .in_scope(|| procession::spawn_blocking(|| info!("a job in an inner span")))
                .await
                .expect("it ends well");
            inner.id().map(|id| id.into_u64())
        });
        let pid = process.pid();
        (pid, process.await.expect("it ends well"))
    });
    let (id, _, told) = recorder.of(pid);
    assert_eq!(told.last(), Some(&Told::Closed), "the jobs are over: {told:?}");
    assert_eq!(recorder.spans_of_events("a job of a process"), [Some(id)]);
    assert_eq!(recorder.spans_of_events("a job in an inner span"), [inner]);
    scheduler
        .block_on(procession::spawn_blocking(|| info!("a job of no process")))
        .expect("it does not panic");
    assert_eq!(recorder.spans_of_events("a job of no process"), [None]);
}

/// Goal: a span shows how long the work of its process goes on. Method: a job that outlives its
/// process.
#[test]
fn a_span_is_open_until_the_jobs_of_its_process_are_over() {
    let recorder = Recorder::shared();
    let scheduler = threaded(1);
    let ((begins, began), (goes_on, may_go_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let process = scheduler.spawn(async move {
        procession::spawn_blocking(move || {
            begins.send(()).expect("the test listens");
            may_go_on.recv().expect_err("nothing is sent");
        })
        .await
    });
    let pid = process.pid();
    began.recv().expect("it is sent");
    procession::process::kill(pid);
    process.join().expect_err("it was terminated");
    let (_, fields, told) = recorder.of(pid);
    assert_eq!(fields["exit"], "the process was terminated");
    assert!(!told.contains(&Told::Closed), "{told:?}");
    drop(goes_on);
    // The thread of the job closes it, and no process waits for that.
    let deadline = std::time::Duration::from_secs(60);
    let closed = scheduler.block_on(procession::timeout(deadline, async {
        while recorder.of(pid).2.last() != Some(&Told::Closed) {
            yield_now().await;
        }
    }));
    closed.expect("it is closed soon");
}

/// Reports its drop.
struct Says(&'static str);

impl Drop for Says {
    fn drop(&mut self) {
        info!("{}", self.0);
    }
}

#[test]
fn a_span_ends_with_its_process_and_has_the_exit() {
    let recorder = Recorder::shared();
    let scheduler = threaded(2);
    let (ends, ended) = mpsc::channel::<()>();
    let waits = |says: &'static str, ends: mpsc::Sender<()>| async move {
        let _ends = ends;
        let _says = Says(says);
        std::future::pending::<()>().await;
    };
    let normal = scheduler.spawn(async move { drop(ends) });
    let (ends, killed_ended) = mpsc::channel::<()>();
    let (begins, has_begun) = mpsc::channel();
    let killed = scheduler.spawn(async move {
        begins.send(()).expect("the test listens");
        waits("killed", ends).await;
    });
    let panicked = scheduler.spawn(async {
        let _says = Says("panicked");
        yield_now().await;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    let failed =
        SpawnOptions::new().on(&scheduler).spawn_fallible(async { Err::<(), _>("no disk") });
    let pids = [normal.pid(), killed.pid(), panicked.pid(), failed.pid()];
    ended.recv().expect_err("nothing is sent");
    has_begun.recv().expect("it is sent");
    let killed_pid = pids[1];
    procession::process::kill(killed_pid);
    killed_ended.recv().expect_err("nothing is sent");
    scheduler.run_until_idle();
    // The handles still exist.
    for (pid, exit) in [
        (pids[0], "the process ended normally"),
        (pids[1], "the process was terminated"),
        (pids[2], "the process panicked: on purpose"),
        (pids[3], "the process failed: no disk"),
    ] {
        let (_, fields, told) = recorder.of(pid);
        assert_root_and_in_order(&told);
        assert_eq!(fields["exit"], exit);
    }
    let (id, ..) = recorder.of(killed_pid);
    assert_eq!(recorder.spans_of_events("killed"), [Some(id)]);
    normal.join().expect("it ended well");
    assert_eq!(failed.join(), Ok(Err("no disk")));
    assert_eq!(killed.join(), Err(Exit::Killed));
    assert_eq!(panicked.join(), Err::<(), _>(Exit::Panicked("on purpose".into())));
}

struct Ends;

impl Process for Ends {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        events: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        info!("a machine's step");
        let ends = events.any(|event| matches!(event, Event::Message(())));
        Ok(if ends { Status::Done(()) } else { Status::Wait(WaitingFor::Messages) })
    }
}

#[test]
fn state_machines_and_coroutines_have_spans_too() {
    let recorder = Recorder::shared();
    // SAFETY: the one coroutine holds nothing across its waits.
    let scheduler = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() }
        .build()
        .expect("there are threads");
    let (machine, coroutine) = scheduler.block_on(async {
        let machine =
            SpawnOptions::new().try_start_machine(Ends, "run", ()).expect("it is accepted");
        let coroutine = procession::SpawnOptions::new()
            .try_start_coroutine(|mut cx: procession::coroutine::Context<()>| {
                while cx.recv().is_some() {
                    info!("a coroutine's message");
                }
            })
            .expect("they are enabled");
        let pids = (machine.pid(), coroutine.pid());
        machine.send(()).expect("it is there");
        for _ in 0..3 {
            coroutine.send(()).expect("it is there");
            yield_now().await;
        }
        coroutine.cancel();
        machine.await.expect("it ends well");
        coroutine.await.expect("it ends well");
        pids
    });
    for (pid, kind, message) in [
        (machine, "machine", "a machine's step"),
        (coroutine, "coroutine", "a coroutine's message"),
    ] {
        let (id, fields, told) = recorder.of(pid);
        assert_eq!(fields["kind"], kind);
        assert_root_and_in_order(&told);
        let events = recorder.spans_of_events(message);
        assert!(!events.is_empty() && events.iter().all(|event| *event == Some(id)), "{events:?}");
    }
}

/// Goal: no lock of the pool is held where the subscriber is called for a new worker. Method: the
/// subscriber asks the pool for its numbers.
#[test]
fn a_subscriber_may_call_the_pool_whose_worker_starts() {
    Recorder::shared();
    // SAFETY: no coroutine waits.
    let scheduler = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() }
        .build()
        .expect("there are threads");
    let pool = Pool::builder().on(&scheduler).build_coroutines().expect("no worker starts yet");
    let (told, tells) = mpsc::channel();
    let submits = scheduler.spawn(async move {
        ASKED.set(Some(pool.clone()));
        let submitted = pool.submit(|| 7).await;
        ASKED.set(None);
        told.send(submitted.expect("it is open").await).expect("the test listens");
    });
    let told = tells.recv_timeout(Duration::from_secs(60));
    assert_eq!(told.expect("the submit returns"), Ok(7));
    submits.join().expect("it does not panic");
}

#[test]
fn a_failure_is_an_event_in_the_span_of_its_process_which_is_closed() {
    let recorder = Recorder::shared();
    // SAFETY: the coroutine refers to no thread-local.
    let scheduler = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() };
    let scheduler = scheduler.build().expect("the system has threads");
    let panics = |text: &'static str| std::panic::resume_unwind(Box::new(text));
    let always = Reporting::new().always();
    let options = |label: &str| SpawnOptions::new().on(&scheduler).label(label).reporting(always);
    let future = options("a future that fails").spawn(async move { panics("in a future") });
    let straight = options("a coroutine that fails")
        .try_start_coroutine(move |_: procession::coroutine::Context<()>| panics("in a coroutine"))
        .expect("they are enabled");
    let machine = options("a machine that fails").try_start_machine(Fails, "", ());
    let machine = machine.expect("there is room");
    let pids = [future.pid(), straight.pid(), machine.pid()];
    let (_future, _straight): (Result<(), _>, Result<(), _>) = (future.join(), straight.join());
    // The handle of the machine is kept, and with it the body.
    scheduler.run_until_idle();
    assert!(!machine.is_alive());
    let kinds = ["async", "coroutine", "machine"];
    let texts = ["panicked: in a future", "panicked: in a coroutine", "failed: no disk"];
    for ((pid, kind), text) in pids.into_iter().zip(kinds).zip(texts) {
        let (id, _, told) = recorder.of(pid);
        assert_eq!(told.last(), Some(&Told::Closed), "{kind}: {told:?}");
        let events = recorder.errors_in(id);
        let [fields] = &events[..] else { panic!("{kind}: {events:?}") };
        assert_eq!((&*fields["kind"], &*fields["scheduler"]), (kind, "procession"));
        assert_eq!(
            (&*fields["message"], fields.get("pid"), fields.get("label")),
            (text, None, None)
        );
        assert!(fields["spawned_at"].starts_with(file!()), "{fields:?}");
    }
    assert_eq!(machine.join(), Err(Exit::failed("no disk")));
}

/// Goal: if a process fails and its handle is dropped later, the event of the failure names the
/// process, because the span of the process is closed by then.
#[test]
fn the_event_of_a_held_report_names_the_process() {
    let recorder = Recorder::shared();
    let scheduler = threaded(1);
    let label = "fails, and its handle is dropped later";
    let fails = SpawnOptions::new()
        .on(&scheduler)
        .label(label)
        .spawn_fallible(async { Err::<(), _>("no disk") });
    let pid = fails.pid().to_string();
    scheduler.run_until_idle();
    let its_events = || -> Vec<_> {
        let is_its = |(fields, _): &&(Fields, Option<u64>)| {
            fields["level"] == "ERROR" && fields.get("pid") == Some(&pid)
        };
        recorder.log(|log| log.events.iter().filter(is_its).cloned().collect())
    };
    assert!(its_events().is_empty());
    drop(fails);
    let events = its_events();
    let [(fields, None)] = &events[..] else { panic!("{events:?}") };
    let shown = (&*fields["level"], &*fields["label"], &*fields["message"]);
    assert_eq!(shown, ("ERROR", label, "failed: no disk"));
}

/// A state machine that fails in its first step.
struct Fails;

impl Process for Fails {
    type Input = ();
    type Message = ();
    type Output = ();

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<()>, Box<dyn std::error::Error + Send + Sync>> {
        Err("no disk".into())
    }
}

#[test]
fn what_a_supervisor_does_is_an_event_in_its_span() {
    let recorder = Recorder::shared();
    let child = ChildSpec::new("the child of the tree", |_: Context<()>| async {
        procession::process::exit(Exit::failed("no disk"))
    });
    let supervisor = threaded(1).block_on(async {
        let tree = Supervisor::one_for_one().child(child.restart(Restart::Transient));
        let running = tree.try_start().await.expect("it starts");
        let pid = running.pid();
        assert!(matches!(running.await, Exit::GaveUp(_)));
        pid
    });
    let (id, ..) = recorder.of(supervisor);
    let events = recorder.errors_in(id);
    let messages: Vec<_> = events.iter().map(|fields| &*fields["message"]).collect();
    let expected = [
        "restarts a child, which failed: no disk (restart 1 of 1 in 5 s)",
        "gives up on a child, which failed: no disk (more than 1 restart in 5 s)",
    ];
    assert_eq!(messages, expected);
    for fields in &events {
        assert_eq!(fields["child"], "the child of the tree");
        assert!(fields.contains_key("pid") && !fields.contains_key("supervisor"), "{fields:?}");
    }
}

/// Goal: the end that a signal begins is in the log, with what is left of the program.
#[test]
fn an_orderly_end_is_two_events() {
    let recorder = Recorder::shared();
    let deadline = Duration::from_secs(30);
    let scheduler =
        Scheduler::builder().worker_threads(1).test_clock().build().expect("it is valid");
    let stopped = scheduler.run_until_signal(deadline, async {
        start(|_: Context<()>| pending::<()>()).detach();
        kill_process(getpid(), Signal::TERM).expect("it is this program");
        pending::<()>().await;
    });
    assert_eq!(stopped.expect("the system has descriptors").unfinished().terminated.len(), 1);
    let events = recorder.log(|log| {
        let of =
            |fields: &Fields| fields.get("message").is_some_and(|it| it.starts_with("SIGTERM: "));
        let events = log.events.iter().filter(|(fields, _)| of(fields));
        events.map(|(fields, _)| fields.clone()).collect::<Vec<_>>()
    });
    let [begun, over] = <[Fields; 2]>::try_from(events).expect("they are two");
    assert_eq!(begun["message"], "SIGTERM: the program ends within 30s");
    assert_eq!((&*begun["level"], &*begun["processes"]), ("INFO", "1"));
    assert_eq!(over["message"], "SIGTERM: the program has ended after 29.9s");
    assert_eq!((&*over["level"], &*over["terminated"]), ("INFO", "1"));
    assert!(!over.contains_key("dropped"), "{over:?}");
}

/// Goal: a stall is an event, even without `on_stall`. Method: the blocking step waits for the
/// event itself. A failure is a hang, which ends after a while.
#[test]
fn a_stall_is_an_event_outside_of_all_spans() {
    let recorder = Recorder::shared();
    let scheduler = threaded(1);
    let told = |recorder: &Recorder| {
        recorder.log(|log| {
            log.events
                .iter()
                .find(|(fields, _)| fields.get("label").is_some_and(|l| l == "stalls"))
                .cloned()
        })
    };
    let stalls = SpawnOptions::new().on(&scheduler).label("stalls").spawn(async move {
        let (_sends, never) = mpsc::channel::<()>();
        (0..2000).any(|_| {
            let _ = never.recv_timeout(Duration::from_millis(10));
            told(recorder).is_some()
        })
    });
    let pid = stalls.pid().to_string();
    assert_eq!(stalls.join(), Ok(true), "the stall was told while it lasted");
    let (fields, span) = told(recorder).expect("as was seen");
    assert_eq!(span, None);
    assert_eq!((fields["pid"].as_str(), fields["kind"].as_str()), (pid.as_str(), "blocked"));
    assert!(fields["spawned_at"].starts_with(file!()), "{fields:?}");
    assert!(fields["duration_ms"].parse::<u64>().expect("it is a number") >= 10);
    assert_eq!(fields["message"], "a step takes too long");
}
