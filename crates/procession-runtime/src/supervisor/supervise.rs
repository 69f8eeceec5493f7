//! The process of a supervisor.
//!
//! The process waits in one place for the next event: a request, the report or the end of a child,
//! a time, or its own cancel. Between two events it starts and stops children, as far as the order
//! allows. So it can answer requests at any time.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use procession_protocols::scheduler::shutdown;

use super::description::{ChildReports, Request, StartReport, Supervisor};
use super::error::StartError;
use super::tree::Tree;
use crate::relations::links;
use crate::relations::signal::ExitSignal;
use crate::scheduler::reach::find;
use crate::time::Instant;
use crate::time::sleep_until;
use crate::{Context, Event, Exit, Reply, yield_now};

/// Keeps the random generators of supervisors apart from the generators of workers.
const GENERATORS: u64 = 1 << 40;

/// The main function of a supervisor. It never returns, but ends its own process with an exit.
pub(super) async fn supervise(
    mut cx: Context<Request>,
    description: Arc<Supervisor>,
    report: Option<StartReport>,
    awaited: Option<Reply<Result<(), StartError>>>,
) -> Infallible {
    cx.trap_exits(true);
    // A shutdown cancels the supervisors that exist when it begins. A supervisor that is started
    // later, while processes clean up, would never be cancelled and never end. A nested supervisor
    // is stopped by its parent.
    let is_late = cx.slot().shared().lifetime.closing.phase() != shutdown::OPEN
        && links::supervisor(cx.slot()).and_then(find).is_none();
    let parent = cx.parent();
    let purpose = GENERATORS + u64::from(cx.pid().slot());
    let generator = cx.slot().shared().world.generator(purpose);
    let mut tree = Tree::new(cx.address(), description, generator, awaited);
    let mut report = report;
    let exit = loop {
        let more = tree.advance(&mut cx);
        if let Some(exit) = tree.ended() {
            break exit;
        }
        if let Some(started) = &tree.started
            && started.is_ok()
            && let Some(report) = report.take()
        {
            report.send(Ok(()));
        }
        if is_late && tree.ending.is_none() && matches!(tree.started, Some(Ok(()))) {
            tree.end(Exit::Shutdown);
            continue;
        }
        if more {
            // Lets other processes run. New events are then looked at first.
            yield_now().await;
        }
        let deadline = if more { Some(0) } else { tree.next_moment() };
        let turn = next(&mut cx, &tree.reports, deadline, tree.ending.is_some()).await;
        // Before the event: a child that has ended may have reported its start just before.
        tree.note_reports();
        match turn {
            Turn::Cancelled => tree.end(Exit::Shutdown),
            Turn::Event(Event::Message(request)) => tree.serve(request),
            Turn::Event(Event::Down(down)) => tree.note_end(&mut cx, down.pid, &down.exit),
            Turn::Event(Event::Exit(signal)) if signal.from.is_some() && signal.from == parent => {
                tree.end(Exit::Shutdown);
            }
            // The ends of children arrive as downs as well. Exits of other linked processes are
            // ignored, as in OTP.
            Turn::Event(Event::Exit(ExitSignal { from: Some(pid), .. })) => {
                tree.let_go(&mut cx, pid);
            }
            Turn::Event(_) | Turn::Reported | Turn::Time => {}
        }
    };
    if let (Some(report), Some(Err(error))) = (report, &tree.started) {
        report.send(Err(error.to_string().into()));
    }
    tree.answer_start();
    drop(tree);
    links::end_by(cx.slot(), exit);
    pending().await
}

enum Turn {
    Cancelled,
    /// Children have reported.
    Reported,
    Event(Event<Request>),
    Time,
}

/// Waits for the next event.
async fn next(
    cx: &mut Context<Request>,
    reports: &ChildReports,
    moment: Option<u64>,
    is_ending: bool,
) -> Turn {
    let slot = cx.slot().clone();
    let mut event = pin!(cx.recv_event_to_the_end());
    let mut time = pin!(async move {
        match moment {
            Some(moment) => sleep_until(Instant::from_nanoseconds(moment)).await,
            None => pending().await,
        }
    });
    poll_fn(|task| {
        if !is_ending && slot.state.see().may_end_itself() {
            return Poll::Ready(Turn::Cancelled);
        }
        if !reports.is_empty() {
            return Poll::Ready(Turn::Reported);
        }
        if let Poll::Ready(Some(event)) = event.as_mut().poll(task) {
            return Poll::Ready(Turn::Event(event));
        }
        time.as_mut().poll(task).map(|()| Turn::Time)
    })
    .await
}
