//! The relations of processes: links, monitors, exit signals, names, scopes, supervisors.

mod calls;
mod children;
mod commands;
mod far;
mod hygiene;
mod links;
mod mailboxes;
mod marks;
mod monitors;
mod names;
mod recipients;
mod relays;
mod remote;
mod supervisors;

use std::time::Duration;

use procession::mailbox::Event;
use procession::{Context, Exit, JoinHandle, Scheduler};

const HOUR: Duration = Duration::from_secs(3600);

/// Starts a process that waits until it is cancelled or ended.
fn waits(scheduler: &Scheduler) -> JoinHandle<()> {
    scheduler
        .start(|mut cx: Context<()>| async move { while cx.recv().await.is_some() {} })
        .into_parts()
        .1
}

/// Returns the next event as text, without the PIDs in it.
async fn told<M: Send + 'static>(cx: &mut Context<M>) -> String {
    match cx.recv_event().await {
        Some(Event::Down(down)) => format!("down: {}", down.exit),
        Some(Event::Exit(signal)) => format!("exit: {}", signal.exit),
        Some(_) => String::from("message"),
        None => String::from("end"),
    }
}

/// Returns every way in which a process ends by itself, with the exit that others receive.
fn ends() -> [(fn(), Exit); 4] {
    [
        (|| (), Exit::Normal),
        (|| crate::scene::panic_quietly("broken"), Exit::Panicked("broken".into())),
        (|| procession::process::exit(Exit::failed("no disk")), Exit::failed("no disk")),
        (|| procession::process::exit(Exit::Shutdown), Exit::Shutdown),
    ]
}
