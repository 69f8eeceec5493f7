//! What processes are to each other: links, monitors, exit signals, names, scopes, supervisors.

mod calls;
mod commands;
mod links;
mod mailboxes;
mod marks;
mod monitors;
mod names;
mod relays;
mod supervisors;

use std::time::Duration;

use procession::{Context, Event, Exit, JoinHandle, Scheduler};

const HOUR: Duration = Duration::from_secs(3600);

/// A process that waits until it is cancelled or ended.
fn waits(scheduler: &Scheduler) -> JoinHandle<()> {
    scheduler
        .start(|mut cx: Context<()>| async move { while cx.recv().await.is_some() {} })
        .into_parts()
        .1
}

/// What the next event is, without what tells one process from another.
async fn told<M: Send + 'static>(cx: &mut Context<M>) -> String {
    match cx.recv_event().await {
        Some(Event::Down(down)) => format!("down: {}", down.exit),
        Some(Event::Exit(signal)) => format!("exit: {}", signal.exit),
        Some(_) => String::from("message"),
        None => String::from("end"),
    }
}

/// Every way in which a process ends by itself, and what others are told then.
fn ends() -> [(fn(), Exit); 4] {
    [
        (|| (), Exit::Normal),
        (|| crate::scene::panic_quietly("broken"), Exit::Panicked("broken".into())),
        (|| procession::exit(Exit::failed("no disk")), Exit::failed("no disk")),
        (|| procession::exit(Exit::Shutdown), Exit::Shutdown),
    ]
}
