//! Look at `main`: it shows what happens to a coroutine that is cancelled or terminated in a
//! program that aborts on panics, where no stack can be unwound. Coroutines that wait for messages
//! end as everywhere. A process that returns an `Err` fails as everywhere, too, and its supervisor
//! restarts it.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::env;
use std::error::Error;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use procession::process::{Named, Outcome};
use procession::supervisor::{ChildSpec, Restart, Supervisor};
use procession::sync::channel;
use procession::{Child, Context, Exit, Reply, Scheduler, SpawnOptions, coroutine};

const HOUR: Duration = Duration::from_secs(3600);
/// The time limit of a shutdown.
const PATIENCE: Duration = Duration::from_secs(10);
const ABORTED: i32 = 6;
const PANICS: &str = "panics";

/// Reports its drop.
struct Noted(#[expect(dead_code, reason = "its end is what counts")] mpsc::Sender<()>);

fn scheduler() -> Result<Scheduler, Box<dyn Error>> {
    // SAFETY: nothing here keeps a thread-local pointer that is scoped to a frame while it waits.
    #[expect(unsafe_code, reason = "the promise that coroutines need")]
    let builder = unsafe { Scheduler::builder().worker_threads(1).enable_coroutines() };
    Ok(builder.build()?)
}

fn coroutine<T: Outcome + Send + 'static>(
    scheduler: &Scheduler,
    run: impl FnOnce(coroutine::Context<()>) -> T + Send + 'static,
) -> Result<Child<(), T>, Box<dyn Error>> {
    SpawnOptions::new()
        .on(scheduler)
        .try_start_coroutine(run)
        .map_err(|error| error.to_string().into())
}

/// A coroutine that sleeps for an hour, and a receiver that is disconnected when its stack is
/// unwound.
type Sleeper = (Child<(), ()>, mpsc::Receiver<()>);

/// Starts a sleeper, and returns once it sleeps.
fn sleeper(scheduler: &Scheduler) -> Result<Sleeper, Box<dyn Error>> {
    let (noted, note) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    let child = coroutine(scheduler, move |_| {
        let _noted = Noted(noted);
        ready.send(()).expect("somebody waits");
        coroutine::sleep(HOUR);
    })?;
    is_ready.recv()?;
    Ok((child, note))
}

fn cancelled(scheduler: &Scheduler) -> Result<(), Box<dyn Error>> {
    let receives = coroutine(scheduler, |mut cx| cx.recv())?;
    receives.cancel();
    assert_eq!(receives.join()?, None, "as it does where stacks are unwound");

    let (sender, receiver) = channel::bounded(0);
    let (ready, is_ready) = mpsc::channel();
    let goes_on = coroutine(scheduler, move |_| {
        ready.send(()).expect("somebody waits");
        coroutine::wait(receiver.recv())
    })?;
    is_ready.recv()?;
    goes_on.cancel();
    // Runs after the cancel was handled.
    coroutine(scheduler, |_| coroutine::yield_now())?.join()?;
    scheduler.block_on(sender.send(7))?;
    assert_eq!(goes_on.join()?, Some(7), "it goes on until it returns");
    Ok(())
}

fn terminated(scheduler: &Scheduler) -> Result<(), Box<dyn Error>> {
    let (sleeps, note) = sleeper(scheduler)?;
    procession::process::kill(sleeps.pid());
    assert_eq!(sleeps.join(), Err(Exit::Killed));
    assert_eq!(note.try_recv(), Err(TryRecvError::Empty), "its stack is left as it was");
    let next = coroutine(scheduler, |_| {
        coroutine::yield_now();
        1
    })?;
    assert_eq!(next.join()?, 1, "its worker goes on");
    Ok(())
}

fn shut_down_and_dropped() -> Result<(), Box<dyn Error>> {
    let scheduler = scheduler()?;
    let (sleeps, note) = sleeper(&scheduler)?;
    let unfinished = scheduler.block_on(scheduler.shutdown(PATIENCE));
    let (left, terminated) = (unfinished.processes.len(), unfinished.terminated.len());
    assert_eq!((left, terminated), (0, 1), "{unfinished:?}");
    assert_eq!(sleeps.join(), Err(Exit::Killed));
    assert_eq!(note.try_recv(), Err(TryRecvError::Empty));
    drop(scheduler);

    let scheduler = self::scheduler()?;
    let (sleeps, note) = sleeper(&scheduler)?;
    drop(scheduler);
    assert_eq!(sleeps.join(), Err(Exit::Killed));
    assert_eq!(note.try_recv(), Err(TryRecvError::Empty));
    Ok(())
}

enum Ask {
    Break,
    Alive(Reply<bool>),
}

/// A process that returns an `Err` when it is told to. Where panics unwind, it could also call
/// [`procession::process::exit`].
async fn breakable(mut cx: Context<Ask>) -> Result<(), String> {
    while let Some(message) = cx.recv().await {
        match message {
            Ask::Alive(reply) => reply.send(true),
            #[cfg(feature = "exits")]
            Ask::Break => procession::process::exit(Exit::failed("broken")),
            #[cfg(not(feature = "exits"))]
            Ask::Break => return Err("broken".into()),
        }
    }
    Ok(())
}

/// Fails without a panic, and is restarted by its supervisor.
fn failed(scheduler: &Scheduler) -> Result<(), Box<dyn Error>> {
    let child = ChildSpec::new("breakable", breakable).name("breakable");
    let tree = Supervisor::one_for_one().child(child.restart(Restart::Transient));
    scheduler.block_on(async {
        let running = tree.try_start_with(SpawnOptions::new().on(scheduler)).await?;
        let breakable = Named::on(scheduler, "breakable");
        let first = breakable.pid().ok_or("it has started")?;
        let watcher = scheduler.start(move |mut cx: Context<Reply<()>>| async move {
            let monitor = cx.monitor(first);
            if let Some(monitored) = cx.recv().await {
                monitored.send(());
            }
            cx.down(monitor).await.map_or(Exit::Shutdown, |down| down.exit)
        });
        watcher.call(|reply| reply, PATIENCE).await?;
        breakable.send(Ask::Break)?;
        assert_eq!(watcher.await?, Exit::failed("broken"));
        while breakable.pid().is_none_or(|pid| pid == first) {
            procession::sleep(Duration::from_millis(1)).await;
        }
        assert!(breakable.call(Ask::Alive, PATIENCE).await?, "a fresh process answers");
        running.cancel();
        assert_eq!(running.await, Exit::Shutdown);
        Ok(())
    })
}

/// Panics in a coroutine, which ends the program.
fn panics() -> Result<(), Box<dyn Error>> {
    let scheduler = scheduler()?;
    let child: Child<(), ()> = coroutine(&scheduler, |_| panic!("nobody catches this"))?;
    drop(child.join());
    Err("a panic did not abort the program".into())
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if env::args().nth(1).as_deref() == Some(PANICS) {
        panics()?;
    }
    let one = scheduler()?;
    failed(&one)?;
    cancelled(&one)?;
    terminated(&one)?;
    shut_down_and_dropped()?;
    drop(one);
    let other = Command::new(env::current_exe()?).arg(PANICS).output()?;
    assert_eq!(other.status.signal(), Some(ABORTED), "{other:?}");
    assert!(String::from_utf8_lossy(&other.stderr).contains("nobody catches this"), "{other:?}");
    println!("no stack was unwound, nothing hung, and a panic has aborted");
    Ok(ExitCode::SUCCESS)
}
