//! What the workloads need of a runtime, on smol.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{OnceLock, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use async_executor::{Executor, StaticExecutor};
use smol::{Task, Timer};

use crate::peer;
use crate::workload::{Failed, Outcome};

pub(crate) use smol::future::yield_now;

/// The two executors that smol has for a whole program.
pub(crate) enum Form {
    /// The faster one: it is never dropped, and keeps no list of its tasks.
    Static,
    /// What `smol::spawn` uses.
    Plain,
}

static STATIC: StaticExecutor = StaticExecutor::new();
static PLAIN: Executor<'static> = Executor::new();
static FORM: OnceLock<Form> = OnceLock::new();

/// Starts as many threads as the other runtimes have workers, once.
pub(crate) fn start(form: Form) {
    FORM.get_or_init(|| {
        for _ in 0..peer::width() {
            match form {
                Form::Static => thread::spawn(|| smol::block_on(STATIC.run(pending::<()>()))),
                Form::Plain => thread::spawn(|| smol::block_on(PLAIN.run(pending::<()>()))),
            };
        }
        form
    });
}

pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    JoinHandle(match FORM.get() {
        Some(Form::Static) => STATIC.spawn(future),
        _ => PLAIN.spawn(future),
    })
}

/// A task that results in a `Result`, as those of the other runtimes do.
pub(crate) struct JoinHandle<T>(Task<T>);

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Infallible>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(task).map(Ok)
    }
}

pub(crate) fn detach<T>(handle: JoinHandle<T>) {
    handle.0.detach();
}

pub(crate) async fn sleep(duration: Duration) {
    Timer::after(duration).await;
}

/// Runs `workload` as a task.
pub(crate) fn inside(workload: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
    let (to_here, outcome) = mpsc::sync_channel(1);
    detach(spawn(async move { to_here.send(workload.await) }));
    peer::awaited(&outcome).expect("a panic of a workload ends the program")
}

impl From<Infallible> for Failed {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
