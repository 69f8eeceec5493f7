//! Links, monitors and exit signals between a process of this program and a process of another
//! node.
//!
//! Each side keeps its own entry, and the relay of the node carries [`RemoteSignal`]s between the
//! two. An entry on this side is made, and taken out, under the lock of the process here. The party
//! that takes the entry out also reports the end, as in `relations/on_exit.rs`. The parties are the
//! end of the process, an unlink, and a signal from the other node. The relay also makes such a
//! signal when the connection ends. So a link ends once, and a monitor reports once, however the
//! signals of the two sides cross.
//!
//! `relations/remote_links.rs` has the protocol of links.

use std::cell::Cell;

use procession_protocols::relations::on_exit::Left;
use procession_protocols::relations::remote_links::RemoteLink;

use crate::process::slot::Slot;
use crate::relations::links::{self, Cause, answered, deliver, leave, with_any};
use crate::relations::signal::{MonitorRef, RemoteSignal};
use crate::scheduler::nodes;
use crate::scheduler::reach::find;
use crate::{Exit, Pid};

/// Carries out a signal that has come from another node. It never blocks.
///
/// The answer to a link or monitor of a process that does not exist goes to the relay of the other
/// node before this function returns. A signal that no longer applies, such as the end of a monitor
/// that was ended, does nothing. The caller has checked what the other node may do.
///
/// A relay also hands over the answers that it makes itself: see
/// [`NodeRelay`](crate::relay::NodeRelay).
pub fn receive(signal: RemoteSignal) {
    let to = find(signal.to());
    let Some(own) = to.as_deref() else {
        if let Some(answer) = signal.answer(Exit::NoProcess) {
            links::signal(answer);
        }
        return;
    };
    match signal {
        RemoteSignal::Exit { .. } | RemoteSignal::Down { .. } | RemoteSignal::UnlinkAck { .. } => {
            answered(signal);
        }
        RemoteSignal::Unlink { from, to, id } => {
            links::with(own, |relations| {
                let answer = relations.remote_link(from, |link| link.take_unlink(id));
                links::queue(to, from, Some(answer));
            });
            nodes::flush(from, answered);
        }
        RemoteSignal::SendExit { from, exit, .. } => {
            deliver(own, from, exit, Cause::Sent);
        }
        RemoteSignal::Kill { .. } => crate::process::wake::terminate(own),
        RemoteSignal::Demonitor { monitor, .. } => {
            with_any(own, |relations| relations.watchers.remove(&monitor));
        }
        RemoteSignal::Link { .. } | RemoteSignal::Monitor { .. } => {
            if enter(own, &signal) == Left::TooLate
                && let Some(answer) = signal.answer(Exit::NoProcess)
            {
                links::signal(answer);
            }
        }
    }
}

/// Links a process of another node with a process of this program, on behalf of the other node.
/// Returns `false`, and sends no signal, if the process of this program has ended.
///
/// Use it instead of [`receive`] with a [`Link`](RemoteSignal::Link) if the relay itself knows how
/// the process has ended.
pub fn receive_link(from: Pid, to: Pid) -> bool {
    find(to).is_some_and(|own| enter(&own, &RemoteSignal::Link { from, to }) == Left::There)
}

/// Makes a process of this program monitor a process of another node, if the monitor is made there
/// already, as with a start that monitors. The relay hands the end over as a
/// [`Down`](RemoteSignal::Down) with this reference, which it has [drawn](draw_monitor). Returns
/// `false`, and sends no signal, if the process of this program has ended.
///
/// The relay must note the reference before the call, because the process may end as soon as the
/// monitor is made. The relay then gets a [`Demonitor`](RemoteSignal::Demonitor) with the
/// reference.
pub fn receive_monitor(monitor: MonitorRef, from: Pid, to: Pid) -> bool {
    let Some(own) = find(to) else { return false };
    let left = leave(
        &own,
        |relations| {
            relations.watched.insert(monitor, from);
        },
        |relations| relations.watched.remove(&monitor).is_some(),
    );
    left == Left::There
}

/// Returns a reference that no other monitor of the program has, for [`receive_monitor`].
pub fn draw_monitor() -> MonitorRef {
    MonitorRef::draw()
}

/// Enters a link or a monitor of a process of another node.
fn enter(own: &Slot, signal: &RemoteSignal) -> Left {
    match *signal {
        RemoteSignal::Link { from, .. } => {
            let entered = Cell::new(false);
            leave(
                own,
                |relations| entered.set(relations.remote_link(from, RemoteLink::take_link)),
                |relations| entered.get() && relations.remote_link(from, RemoteLink::take_end),
            )
        }
        RemoteSignal::Monitor { from, monitor, .. } => leave(
            own,
            |relations| {
                relations.watchers.insert(monitor, from);
            },
            |relations| relations.watchers.remove(&monitor).is_some(),
        ),
        _ => Left::There,
    }
}
