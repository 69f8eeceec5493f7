//! Locals with values that spawned processes inherit.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::machine::{Events, InitError, Process, Status, Yields};
use procession::pool::{Pool, Queue};
use procession::process::ProcessLocal;
use procession::scheduler::MisplacedCall;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::time::run_after;
use procession::{Context, Exit, Scheduler, SpawnOptions, coroutine, spawn, start, yield_now};
use procession_sync::Mutex;

use crate::scene::{assert_conserved, driven, panic_quietly, threaded};

static TENANT: ProcessLocal<u32> = ProcessLocal::inherited();
static NAME: ProcessLocal<&'static str> = ProcessLocal::inherited();

fn tenant() -> Option<u32> {
    TENANT.get().ok()
}

/// A scheduler on the test clock with coroutines.
fn with_coroutines() -> Scheduler {
    let builder = Scheduler::builder().worker_threads(1).test_clock();
    // SAFETY: the coroutines of this module hold no pointer to a thread-local.
    unsafe { builder.enable_coroutines() }.build().expect("it starts no thread")
}

#[test]
fn children_see_the_value_and_keep_it_after_the_scope() {
    driven().block_on(async {
        let seen = TENANT.scope(1, async {
            let late = spawn(async { (yield_now().await, yield_now().await, tenant()).2 });
            let hidden = TENANT.within(2, || spawn(async { tenant() }));
            let both = NAME.within("ann", || {
                spawn(async { (tenant(), NAME.get(), spawn(async { NAME.get() }).await) })
            });
            (late, hidden.await, both.await, tenant())
        });
        let (late, hidden, both, own) = seen.await;
        assert_eq!(late.await, Ok(Some(1)), "the scope is over");
        assert_eq!((hidden, own), (Ok(Some(2)), Some(1)));
        assert_eq!(both, Ok((Some(1), Ok("ann"), Ok(Ok("ann")))));
        assert_eq!((tenant(), spawn(async { tenant() }).await), (None, Ok(None)));
        assert_eq!(TENANT.with(|_| ()), Err(MisplacedCall::OutsideScope));
    });
}

#[test]
fn a_value_stays_on_its_process_between_steps() {
    let scheduler = threaded(2);
    let processes: Vec<_> = (0..20)
        .map(|n| {
            scheduler.spawn(TENANT.scope(n, async move {
                let mut seen = Vec::new();
                for _ in 0..20 {
                    yield_now().await;
                    seen.push((tenant(), spawn(async { tenant() }).await));
                }
                seen.iter().all(|own| *own == (Some(n), Ok(Some(n))))
            }))
        })
        .collect();
    assert!(processes.into_iter().all(|process| process.join() == Ok(true)));
}

struct Machine;

impl Process for Machine {
    type Message = ();
    type Input = ();
    type Output = Option<u32>;

    fn init(&mut self, _: &str, (): ()) -> Result<(), InitError> {
        Ok(())
    }

    fn step(
        &mut self,
        _: &mut Events<()>,
        _: &mut Yields<'_>,
    ) -> Result<Status<Option<u32>>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Status::Done(tenant()))
    }
}

#[test]
fn all_kinds_of_process_inherit() {
    let scheduler = with_coroutines();
    scheduler.block_on(TENANT.scope(3, async {
        let coroutine = SpawnOptions::new().try_start_coroutine(|_: coroutine::Context<()>| {
            coroutine::yield_now();
            let child = TENANT.within(4, || {
                coroutine::yield_now();
                spawn(async { tenant() })
            });
            (tenant(), coroutine::wait(child))
        });
        assert_eq!(coroutine.expect("they are enabled").await, Ok((Some(3), Ok(Some(4)))));
        assert_eq!(SpawnOptions::new().spawn_local(|| async { tenant() }).await, Ok(Some(3)));
        let machine = SpawnOptions::new().try_start_machine(Machine, "", ());
        assert_eq!(machine.expect("it is not refused").await, Ok(Some(3)));
        let other = threaded(1);
        assert_eq!(other.spawn(async { tenant() }).await, Ok(Some(3)), "of another scheduler");
        let seen = crate::home::thread::scope(|scope| scope.spawn(tenant).join());
        assert_eq!(seen.expect("it does not panic"), None);
    }));
    assert_conserved(&scheduler);
}

#[test]
fn children_of_a_supervisor_inherit_from_the_supervisor() {
    driven().block_on(async {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let child = {
            let seen = Arc::clone(&seen);
            ChildSpec::new("child", move |mut cx: Context<()>| {
                let seen = Arc::clone(&seen);
                async move {
                    seen.lock().push(tenant());
                    if seen.lock().len() < 2 {
                        panic_quietly("start me again");
                    }
                    cx.recv().await;
                }
            })
        };
        let tree = TENANT.scope(5, Supervisor::one_for_one().child(child).try_start());
        let tree = tree.await.expect("it starts");
        while seen.lock().len() < 2 {
            yield_now().await;
        }
        assert_eq!(*seen.lock(), [Some(5), Some(5)]);
        drop(tree);
    });
}

#[test]
fn jobs_inherit_from_their_submitter_and_workers_from_nobody() {
    let scheduler = with_coroutines();
    let hooks = Arc::new(Mutex::new(Vec::new()));
    let builder = || {
        let hooks = Arc::clone(&hooks);
        let hook = move || hooks.lock().push(tenant());
        Pool::builder().capacity(1).queue(Queue::Unbounded).on_worker_start(hook)
    };
    let futures = builder().on(&scheduler).build_async().expect("valid");
    let function = builder().on(&scheduler).build_async_function(|()| async { tenant() });
    let function = function.expect("valid");
    let coroutines = builder().on(&scheduler).build_coroutines().expect("valid");
    let threads = builder().build().expect("valid");
    scheduler.block_on(async {
        // The jobs of a pool run one after the other, in one worker.
        let submit = || {
            (
                futures.submit(async { (yield_now().await, tenant()).1 }),
                function.submit(()),
                coroutines.submit(tenant),
            )
        };
        for submitted in [TENANT.within(7, submit), TENANT.within(8, submit), submit()] {
            let (future, function, coroutine) = submitted;
            let jobs = [
                future.await.map_err(drop),
                function.await.map_err(drop),
                coroutine.await.map_err(drop),
            ];
            let mut seen = Vec::new();
            for job in jobs {
                seen.push(job.expect("it is queued").await.expect("it does not panic"));
            }
            assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
            hooks.lock().push(seen[0]);
        }
        assert_eq!(*hooks.lock(), [None, None, None, Some(7), Some(8), None]);
    });
    let on_thread = TENANT.within(9, || threads.submit(tenant)).expect("it is queued");
    assert_eq!(on_thread.join(), Ok(Some(9)));
    assert_eq!(threads.submit(tenant).expect("it is queued").join(), Ok(None));
    let blocking = TENANT.scope(9, async { procession::spawn_blocking(tenant).await });
    let blocking = scheduler.block_on(blocking);
    assert_eq!(blocking, Ok(Some(9)));
}

#[test]
fn more_locals_than_the_bound_are_refused() {
    static LOCALS: [ProcessLocal<usize>; ProcessLocal::<usize>::MAX_INHERITED + 1] =
        [const { ProcessLocal::inherited() }; ProcessLocal::<usize>::MAX_INHERITED + 1];
    fn nest(depth: usize) -> usize {
        match LOCALS.get(depth) {
            Some(local) => local.within(depth, || nest(depth + 1)),
            None => depth,
        }
    }
    fn nest_one(depth: usize) -> Option<u32> {
        if depth == 0 { tenant() } else { TENANT.within(depth as u32, || nest_one(depth - 1)) }
    }
    let scheduler = driven();
    let refused = scheduler.block_on(scheduler.spawn(async { nest(0) }));
    let text = "16 inherited locals have values here, and no more may";
    assert_eq!(refused, Err(Exit::Panicked(text.into())));
    let count = scheduler.spawn(async { nest(1) });
    assert_eq!(scheduler.block_on(count), Ok(17), "one less is allowed");
    let same = scheduler.spawn(async { nest_one(100) });
    assert_eq!(scheduler.block_on(same), Ok(Some(1)), "a local counts once");
    let late = scheduler.spawn(LOCALS[0].scope(0, async { nest(1) }));
    assert!(scheduler.block_on(late).is_err());
}

/// Uses the runtime when it is dropped, and then panics.
struct Hostile(Arc<Mutex<Vec<Option<u32>>>>);

static HOSTILE: ProcessLocal<Hostile> = ProcessLocal::inherited();

impl Drop for Hostile {
    fn drop(&mut self) {
        drop(spawn(async {}));
        let within = TENANT.within(1, || HOSTILE.with(|_| ()).is_ok());
        self.0.lock().push(tenant().filter(|_| within));
        panic_quietly("in the drop of a value");
    }
}

#[test]
fn a_value_is_dropped_with_its_last_heir_and_may_panic_and_use_the_runtime() {
    let scheduler = threaded(1);
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let value = Hostile(Arc::clone(&dropped));
    let (children, address) = scheduler.block_on(async {
        let mut children = Vec::new();
        let address = HOSTILE.within(value, || {
            children.push(spawn(pending::<()>()));
            let child = start(|mut cx: Context<()>| async move { cx.recv().await });
            let address = child.address().clone();
            children.push(spawn(async move { drop(child.await) }));
            address
        });
        (children, address)
    });
    assert!(dropped.lock().is_empty(), "the children have it");
    address.send(()).expect("it lives");
    let [waits, ends] = children.try_into().expect("two");
    assert_eq!(ends.join(), Ok(()));
    assert!(dropped.lock().is_empty(), "one child has it");
    waits.cancel();
    assert_eq!(waits.join(), Err(Exit::Shutdown));
    scheduler.run_until_idle();
    assert_eq!(dropped.lock().len(), 1, "an address does not keep it");
    drop(address);
    assert_conserved(&scheduler);
    // On a thread, in a process that is refused, and in an unwinding.
    let value = Hostile(Arc::clone(&dropped));
    let unwound = catch_unwind(AssertUnwindSafe(|| HOSTILE.within(value, || panic_quietly("out"))));
    assert!(unwound.is_err());
    scheduler.block_on(scheduler.shutdown(Duration::from_secs(1)));
    let value = Hostile(Arc::clone(&dropped));
    HOSTILE.within(value, || drop(SpawnOptions::new().on(&scheduler).try_spawn(async {})));
    assert_eq!(dropped.lock().len(), 3);
    assert_eq!(tenant(), None);
}

/// Is cloned with a panic, or asks for itself.
struct Cloned(bool);

static CLONED: ProcessLocal<Cloned> = ProcessLocal::inherited();

impl Clone for Cloned {
    fn clone(&self) -> Self {
        let inner = CLONED.with(|inner| inner.0).expect("the value is visible");
        let within = CLONED.within(Self(false), || CLONED.with(|other| other.0));
        assert_eq!((inner, within), (self.0, Ok(false)));
        if self.0 { panic_quietly("in a clone") } else { Self(false) }
    }
}

#[test]
fn a_clone_may_panic_and_ask_for_the_value() {
    driven().block_on(async {
        let cloned = CLONED.scope(Cloned(false), async { CLONED.get().is_ok() });
        assert!(cloned.await);
        let panics = spawn(CLONED.scope(Cloned(true), async { CLONED.get().is_ok() }));
        assert_eq!(panics.await, Err(Exit::Panicked("in a clone".into())));
        assert_eq!(CLONED.with(|_| ()), Err(MisplacedCall::OutsideScope));
    });
}

/// The thread that waits polls its future in the scope, and runs functions of timers outside of it.
#[test]
fn what_a_thread_drives_in_a_scope_is_in_it_only_if_it_is_its_future() {
    let inner = Scheduler::builder().worker_threads(1).callers_drive().build();
    let inner = inner.expect("it starts no thread");
    TENANT.within(1, || {
        let seen = inner.block_on(async {
            let (tell, told) = procession::sync::oneshot::channel();
            let function = move || tell.send(tenant()).expect("the test waits");
            assert!(run_after(Duration::from_millis(1), function).is_ok());
            (tenant(), spawn(async { tenant() }).await, told.await)
        });
        assert_eq!(seen, (Some(1), Ok(Some(1)), Ok(None)));
        assert_eq!(tenant(), Some(1));
    });
    let mut scope = Box::pin(TENANT.scope(5, poll_fn(|_| Poll::Ready(tenant()))));
    assert_eq!(inner.block_on(scope.as_mut()), Some(5));
}
