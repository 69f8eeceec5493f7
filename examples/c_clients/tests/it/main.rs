//! Small clients in C, and the functions that the libraries import.

mod imports;
mod pitfalls;
mod plain;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use procession::coroutine::Context;
use procession::process::Outcome;
use procession::scheduler::Builder;
use procession::{Child, Scheduler, SpawnOptions};
use procession_hook as _;

/// A scheduler with one worker.
fn builder() -> Builder {
    // SAFETY: a coroutine that breaks the residual rule does so below a lock or state of C, and
    // that is what its test is about. No memory is invalid after it.
    unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() }
}

fn coroutine<T: Outcome + Send + 'static>(
    scheduler: &Scheduler,
    function: impl FnOnce() -> T + Send + 'static,
) -> Child<(), T> {
    SpawnOptions::new()
        .on(scheduler)
        .try_start_coroutine(move |_: Context<()>| function())
        .expect("coroutines are enabled")
}

fn sockets() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("there are descriptors")
}

/// Tells the test that a coroutine has begun.
struct Begun(Sender<()>, Receiver<()>);

impl Begun {
    fn new() -> Self {
        let (told, tells) = channel();
        Self(told, tells)
    }

    /// Returns a function for the coroutine to call before its wait.
    fn teller(&self) -> impl FnOnce() + Send + 'static {
        let told = self.0.clone();
        move || told.send(()).expect("the test listens")
    }

    /// Waits until so many coroutines have begun. The only worker runs another process after each
    /// of them has been suspended.
    fn wait(&self, count: usize) {
        for _ in 0..count {
            self.1.recv_timeout(Duration::from_secs(60)).expect("it begins");
        }
    }
}

/// Writes a text, in a process of the scheduler.
fn write(scheduler: &Scheduler, to: UnixStream, text: &'static str) {
    let writes = scheduler.spawn(async move {
        (&to).write_all(text.as_bytes()).expect("its peer is there");
        // The stream ends.
        drop(to);
    });
    writes.join().expect("it does not panic");
}

const CHILD: &str = "PROCESSION_C_CLIENTS_CHILD";

/// Runs a test again in a child process, in which [`is_child`] returns `true`.
fn run_as_child(test: &str) -> Output {
    let program = std::env::current_exe().expect("the system tells");
    let mut child = Command::new(program);
    child.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    child.output().expect("it can be started")
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}
