//! Links, monitors, exit signals and scopes, with the semantics of Erlang/OTP.
//!
//! The on-exit protocol in `relations/on_exit.rs` delivers the end of a process exactly once.
//! Relations name processes by PID and pin nothing. They can therefore cross schedulers, and keep
//! neither a process nor a scheduler alive.
//!
//! A signal is delivered through the mailbox, behind the messages that are already there or that
//! the same process sent before. To end or cancel a process, a bit of its state word is set
//! instead, because that need not wait for the mailbox.

use std::cell::Cell;
use std::sync::Arc;

use procession_protocols::process::state::Seen;
use procession_protocols::relations::on_exit::{Left, OnExitHooks};
use procession_protocols::relations::remote_links::{LinkNews, RemoteLink};
use procession_queue::Entry;

use crate::process::body::System;
use crate::process::exit::OnCancel;
use crate::process::slot::Slot;
use crate::relations::entries::{self, Entries, LinkId, Membership, PidList, Relations};
use crate::relations::signal::{Down, ExitSignal, MonitorRef, RemoteSignal, Signal};
use crate::scheduler::reach::find;
use crate::scheduler::{current, nodes};
use crate::{Exit, Pid};

fn on_exit(slot: &Slot) -> &OnExitHooks<Entries> {
    &slot.extra_or_default().on_exit
}

/// Accesses the relations of a process. Creates them if there are none.
pub(super) fn with<R>(slot: &Slot, access: impl FnOnce(&mut Relations) -> R) -> R {
    on_exit(slot).with(|entries| access(entries.get_or_insert_default()))
}

/// Like `with`, but does not create relations.
pub(super) fn with_any<R>(slot: &Slot, access: impl FnOnce(&mut Relations) -> R) -> Option<R> {
    slot.extra()?.on_exit.with(|entries| entries.as_deref_mut().map(access))
}

/// Leaves an entry with a process that may be ending.
pub(super) fn leave(
    slot: &Slot,
    enter: impl FnOnce(&mut Relations),
    withdraw: impl FnOnce(&mut Relations) -> bool,
) -> Left {
    on_exit(slot).leave(
        &slot.state,
        |entries| enter(entries.get_or_insert_default()),
        |entries| entries.as_deref_mut().is_some_and(withdraw),
    )
}

/// Leaves an entry with the process itself. Returns `true` if the process has ended. Its code can
/// still run then, in wakers or in the `Drop` of a result that is never taken. The end has already
/// settled the other entries, so the caller settles this entry.
#[must_use]
pub(super) fn leave_own(slot: &Slot, enter: impl FnOnce(&mut Relations)) -> bool {
    with(slot, enter);
    slot.state.relate().is_complete()
}

/// Sends a signal. Returns `true` if the process can still receive it.
pub(super) fn tell(slot: &Slot, signal: Signal) -> bool {
    #[cfg(feature = "sim")]
    note_told(slot, &signal);
    let is_urgent = slot.extra().is_some_and(|extra| extra.has_urgent(&signal));
    slot.push_system(Entry::new(System::Signal(signal)), is_urgent)
}

/// Lets a simulated system check that a monitor reports only one end to its process.
#[cfg(feature = "sim")]
fn note_told(slot: &Slot, signal: &Signal) {
    if let (Some(os), Signal::Down(down)) = (slot.shared().world.simulated(), signal)
        && !os.tell(down.monitor.number())
    {
        os.broken("a monitor tells its process of two ends");
    }
}

/// Returns the processes that this one monitors, until it has received their downs.
#[cfg(feature = "sim")]
pub(crate) fn watched(slot: &Slot) -> Vec<(MonitorRef, Pid)> {
    let watched = |relations: &mut Relations| {
        relations.watched.iter().map(|(&monitor, &target)| (monitor, target)).collect()
    };
    with_any(slot, watched).unwrap_or_default()
}

/// Returns the relations of a process with others of this program that the end of either must have
/// removed, each with its name. The processes that it monitors are left out, because it has yet to
/// receive their downs.
#[cfg(feature = "sim")]
pub(crate) fn mutual(slot: &Slot) -> Vec<(&'static str, Pid)> {
    let (mut mutual, tables) = with_any(slot, |relations| {
        let links = relations.links.0.iter().map(|&(peer, _)| ("is linked with", peer));
        let watchers = relations.watchers.values().map(|&watcher| ("is monitored by", watcher));
        let scope = relations.scope.iter().map(|&child| ("has in its scope", child));
        (links.chain(watchers).chain(scope).collect::<Vec<_>>(), relations.memberships.tables())
    })
    .unwrap_or_default();
    let members = tables.iter().flat_map(|table| table.processes());
    mutual.extend(members.map(|member| ("shares a table with", member)));
    mutual.retain(|(_, pid)| pid.node() == 0);
    // Outside the lock, because the values of rows belong to users.
    crate::process::unwind::drop_each(tables);
    mutual
}

/// Links `own` and another process, until either ends or unlinks. Does nothing if they are linked.
/// The caller may be any thread, since a context can be moved out of its process.
pub(crate) fn link_to(own: &Slot, other: Pid) {
    let pid = own.pid();
    if pid == other {
        return;
    }
    let link = LinkId::draw();
    let mut fresh = false;
    let has_ended = leave_own(own, |relations| {
        if other.node() != 0 {
            return queue(pid, other, relations.remote_link(other, RemoteLink::link));
        }
        fresh = !relations.links.is_with(other);
        if fresh {
            relations.links.insert(other, link);
        }
    });
    if other.node() != 0 {
        if has_ended {
            with(own, |relations| relations.remote_link(other, RemoteLink::take_end));
            return signal(RemoteSignal::Exit { from: pid, to: other, exit: Exit::NoProcess });
        }
        return nodes::flush(other, answered);
    }
    if !fresh {
        return;
    }
    if has_ended {
        with(own, |relations| relations.links.remove(other, link));
        if let Some(peer) = find(other) {
            link_too_late(own, &peer);
        }
        return;
    }
    let entered = find(other).filter(|peer| {
        let left = leave(
            peer,
            |relations| relations.links.insert(pid, link),
            |relations| relations.links.remove(pid, link),
        );
        left == Left::There
    });
    let Some(peer) = entered else {
        if with(own, |relations| relations.links.remove(other, link)) {
            deliver(own, Some(other), Exit::NoProcess, Cause::Link);
        }
        return;
    };
    // `LookAgain` of the on-exit protocol.
    let is_there = with_any(own, |relations| relations.links.has(other, link)) == Some(true);
    if !is_there
        && with_any(&peer, |relations| relations.links.remove(pid, link)) == Some(true)
        && own.state.see().is_complete()
    {
        link_too_late(own, &peer);
    }
}

/// Ends the link that an ended process makes to another process. For the other process, `own` does
/// not exist.
#[cold]
fn link_too_late(own: &Slot, peer: &Slot) {
    deliver(peer, Some(own.pid()), Exit::NoProcess, Cause::Link);
}

/// Links two processes. The younger one is not queued yet, and so cannot end before this returns.
pub(crate) fn link_newborn(own: &Slot, newborn: &Slot) {
    let link = LinkId::draw();
    let ended = leave_own(newborn, |relations| relations.links.insert(own.pid(), link));
    debug_assert!(!ended, "it was never queued");
    if leave_own(own, |relations| relations.links.insert(newborn.pid(), link)) {
        with(own, |relations| relations.links.remove(newborn.pid(), link));
        // Unless the end of `own` has found both entries.
        if with(newborn, |relations| relations.links.remove(own.pid(), link)) {
            link_too_late(own, newborn);
        }
    }
}

/// Ends a link. The end of the other process then has no effect, unless its signal came before.
pub(crate) fn unlink_from(own: &Slot, other: Pid) {
    let pid = own.pid();
    if other.node() != 0 {
        with_any(own, |relations| {
            let number = LinkId::draw().number();
            queue(pid, other, relations.remote_link(other, |link| link.unlink(number)));
        });
        return nodes::flush(other, answered);
    }
    let Some(taken) = with_any(own, |relations| relations.links.take(other)) else {
        return;
    };
    if let Some(peer) = find(other) {
        with_any(&peer, |relations| {
            for link in taken {
                relations.links.remove(pid, link);
            }
        });
    }
}

/// Queues the signal with which a process informs a process of another node about their link.
/// Called under the lock under which the link has changed.
pub(super) fn queue(from: Pid, to: Pid, news: Option<LinkNews>) {
    let signal = match news {
        None => return,
        Some(LinkNews::Linked) => RemoteSignal::Link { from, to },
        Some(LinkNews::Unlinked(id)) => RemoteSignal::Unlink { from, to, id },
        Some(LinkNews::Acknowledged(id)) => RemoteSignal::UnlinkAck { from, to, id },
    };
    nodes::queue(signal);
}

/// Sends a signal to a process of another node.
#[cold]
pub(super) fn signal(signal: RemoteSignal) {
    let to = signal.to();
    nodes::queue(signal);
    nodes::flush(to, answered);
}

/// Carries out the answer of another node to a signal, or the answer of its relay.
pub(super) fn answered(signal: RemoteSignal) {
    let Some(own) = find(signal.to()) else { return };
    match signal {
        RemoteSignal::Exit { from, exit, .. } => {
            let was_linked =
                with_any(&own, |relations| relations.remote_link(from, RemoteLink::take_end));
            if was_linked == Some(true) {
                deliver(&own, Some(from), exit, Cause::Link);
            }
        }
        RemoteSignal::Down { from, monitor, exit, .. } => {
            let is_watched = with_any(&own, |relations| {
                relations.watched.get(&monitor).is_some_and(|&target| target == from)
            });
            if is_watched == Some(true) {
                tell(&own, Signal::Down(Down { monitor, pid: from, exit }));
            }
        }
        RemoteSignal::UnlinkAck { from, id, .. } => {
            with_any(&own, |relations| relations.remote_link(from, |link| link.take_ack(id)));
        }
        _ => {}
    }
}

/// Takes a signal out of the mailbox of `own`. Returns `None` if its monitor was ended after the
/// signal was sent.
pub(crate) fn accept(own: &Slot, signal: Signal) -> Option<Signal> {
    if let Signal::Down(down) = &signal {
        with_any(own, |relations| relations.watched.remove(&down.monitor)).flatten()?;
    }
    Some(signal)
}

/// Sets whether exit signals come as events instead of ending the process. Returns the previous
/// value.
pub(crate) fn trap_exits(own: &Slot, traps: bool) -> bool {
    with(own, |relations| std::mem::replace(&mut relations.traps, traps))
}

/// Puts a process that is not queued yet into the scope of `own`.
pub(crate) fn adopt_newborn(own: &Slot, newborn: &Slot) {
    let ended = leave_own(newborn, |relations| relations.scope_of = Some(own.pid()));
    debug_assert!(!ended, "it was never queued");
    let has_ended = leave_own(own, |relations| {
        relations.scope.insert(newborn.pid());
    });
    if has_ended {
        with(own, |relations| relations.scope.remove(&newborn.pid()));
        crate::process::wake::cancel(newborn);
    }
}

/// Records, for a process that is not queued yet, that `own` stops it.
pub(crate) fn supervise_newborn(own: &Slot, newborn: &Slot) {
    let ended = leave_own(newborn, |relations| relations.supervisor = Some(own.pid()));
    debug_assert!(!ended, "it was never queued");
}

/// Returns the process that stops this one, if there is one.
pub(crate) fn supervisor(slot: &Slot) -> Option<Pid> {
    with_any(slot, |relations| relations.supervisor).flatten()
}

/// Clears the mark of [`supervise_newborn`], and tells the supervisor, which may be waiting for the
/// end of the process.
pub(crate) fn release_from_supervisor(slot: &Slot) {
    let supervisor = with_any(slot, |relations| relations.supervisor.take()).flatten();
    if let Some(supervisor) = supervisor.and_then(find) {
        let exit = ExitSignal { from: Some(slot.pid()), exit: Exit::Shutdown };
        tell(&supervisor, Signal::Exit(exit));
    }
}

/// Enters the name of a process. Returns `TooLate` if the process has ended or is about to, and
/// `None` if it has a name already.
pub(crate) fn name(slot: &Slot, name: &Arc<str>) -> Option<Left> {
    let (taken, late) = (Cell::new(false), Cell::new(false));
    let left = leave(
        slot,
        |relations| {
            late.set(relations.names_released);
            taken.set(relations.name.is_some());
            if !late.get() && !taken.get() {
                relations.name = Some(Arc::clone(name));
            }
        },
        |relations| !taken.get() && relations.name.take().is_some(),
    );
    if late.get() {
        return Some(Left::TooLate);
    }
    (!taken.get()).then_some(left)
}

/// Returns the name of a process, if it has one.
pub(crate) fn registered_name(slot: &Slot) -> Option<Arc<str>> {
    with_any(slot, |relations| relations.name.clone()).flatten()
}

/// The relations of a process, for people.
#[derive(Default)]
pub(crate) struct RelationsOverview {
    pub(crate) links: PidList,
    /// The processes that monitor this one.
    pub(crate) monitors: PidList,
    /// The processes that this one monitors.
    pub(crate) monitored: PidList,
    /// The processes in its scope.
    pub(crate) scope: PidList,
    pub(crate) supervisor: Option<Pid>,
}

/// Returns the relations of a process.
pub(crate) fn overview(slot: &Slot) -> RelationsOverview {
    with_any(slot, |relations| RelationsOverview {
        links: PidList::of(
            relations
                .links
                .0
                .iter()
                .map(|&(peer, _)| peer)
                .chain(entries::linked(&relations.remote_links)),
        ),
        monitors: PidList::of(relations.watchers.values().copied()),
        monitored: PidList::of(relations.watched.values().copied()),
        scope: PidList::of(relations.scope.iter().copied()),
        supervisor: relations.supervisor,
    })
    .unwrap_or_default()
}

/// Removes the name of a process, if it is this one.
pub(crate) fn forget_name(slot: &Slot, name: &str) {
    with_any(slot, |relations| relations.name.take_if(|own| **own == *name));
}

/// The origin of an exit signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Link,
    Sent,
}

/// Delivers an exit signal. A process that traps exits receives it as an event. Otherwise a normal
/// exit has no effect, and any other exit ends the process. Returns `true` if the process receives
/// it as an event.
pub(crate) fn deliver(slot: &Slot, from: Option<Pid>, exit: Exit, cause: Cause) -> bool {
    enum Fate {
        Told(Exit),
        Ended,
        Nothing,
    }
    let fate = with(slot, |relations| {
        // A process that sends itself `normal` ends, as in OTP.
        let to_itself = cause == Cause::Sent && from == Some(slot.pid());
        if relations.traps {
            Fate::Told(exit)
        } else if exit == Exit::Normal && !to_itself {
            Fate::Nothing
        } else {
            doom_to(slot, relations, exit);
            Fate::Ended
        }
    });
    match fate {
        Fate::Told(exit) => return tell(slot, Signal::Exit(ExitSignal { from, exit })),
        Fate::Ended => crate::process::wake::terminate(slot),
        Fate::Nothing => {}
    }
    false
}

/// Ends a process from outside, even if it traps exits.
pub(crate) fn end_by(slot: &Slot, exit: Exit) {
    with(slot, |relations| doom_to(slot, relations, exit));
    crate::process::wake::terminate(slot);
}

/// Ends a process from outside, with an exit that counts as the process's own failure.
pub(crate) fn end_by_itself(slot: &Slot, exit: Exit) {
    with(slot, |relations| relations.dooms_itself |= doom_to(slot, relations, exit));
    crate::process::wake::terminate(slot);
}

/// Returns `true` if the failure of the process itself has terminated it ([`end_by_itself`]).
pub(crate) fn dooms_itself(slot: &Slot) -> bool {
    with_any(slot, |relations| relations.dooms_itself) == Some(true)
}

/// Sets the exit that a process will end with. Returns `false` if there was a reason to end before,
/// because the first reason decides. A kill leaves no reason here.
fn doom_to(slot: &Slot, relations: &mut Relations, exit: Exit) -> bool {
    let is_first = !slot.state.see().is_terminated() && relations.doom.is_none();
    if is_first {
        relations.doom = Some(exit);
    }
    is_first
}

/// Returns the exit of a terminated process.
pub(crate) fn doom(slot: &Slot) -> Exit {
    if slot.kind().on_cancel == OnCancel::Drop && slot.state.see().has_cancel() {
        // The cancel came first.
        return Exit::Shutdown;
    }
    with_any(slot, |relations| relations.doom.take()).flatten().unwrap_or(Exit::Killed)
}

/// Enters a table that has a row of a process. The row is there already. If the process has ended
/// or is about to, the caller removes the row.
pub(crate) fn enter_table(slot: &Slot, table: &Arc<dyn Membership>) -> Left {
    let late = Cell::new(false);
    let left = leave(
        slot,
        |relations| {
            late.set(relations.names_released);
            if !late.get() {
                relations.memberships.insert(table);
            }
        },
        |relations| relations.memberships.remove(table),
    );
    if late.get() { Left::TooLate } else { left }
}

/// `Complete` of the on-exit protocol. Before it, frees the name of the process, removes its rows
/// from all tables, and refuses further rows, because a thread that sees the end may reuse the name
/// and must find no row.
#[inline]
pub(crate) fn complete(slot: &Slot) -> Seen {
    OnExitHooks::<Entries>::complete(&slot.state, || release_names(slot))
}

#[cold]
fn release_names(slot: &Slot) {
    let take = |relations: &mut Relations| {
        relations.names_released = true;
        (relations.name.take(), std::mem::take(&mut relations.memberships))
    };
    let (name, memberships) = with(slot, take);
    if let Some(name) = name {
        slot.shared().processes.names.release(&name, slot.pid());
    }
    memberships.forget(slot.pid());
}

/// Returns `true` if another process will receive the end of this process as an event, because it
/// monitors this process, or is linked to it and traps exits. The supervisor does not count.
pub(crate) fn is_heard(slot: &Slot) -> bool {
    let (is_watched, peers) = with_any(slot, |relations| {
        let counts = |pid: Pid| Some(pid) != relations.supervisor;
        let is_watched = relations.watchers.values().any(|&watcher| counts(watcher));
        let peers = relations.links.0.iter().map(|&(peer, _)| peer).filter(|&peer| counts(peer));
        (is_watched, if is_watched { Vec::new() } else { peers.collect() })
    })
    .unwrap_or_default();
    let mut peers = peers.into_iter().filter_map(find);
    is_watched || peers.any(|peer| with_any(&peer, |relations| relations.traps) == Some(true))
}

/// `Settle` of the on-exit protocol, and the signals that follow from it. It takes one action per
/// relation, between two steps of the worker. Returns `true` if another process receives the end
/// as an event, as [`is_heard`] has foretold.
pub(crate) fn settle(slot: &Slot, exit: &Exit) -> bool {
    let Some(entries) = slot.extra().and_then(|extra| extra.on_exit.settle()) else {
        return false;
    };
    let pid = slot.pid();
    let supervisor = entries.supervisor;
    let counts = |other: Pid| Some(other) != supervisor;
    let mut was_heard = false;
    // First, so that a relay still knows the process: it may itself be told by a monitor.
    for to in entries::linked(&entries.remote_links) {
        signal(RemoteSignal::Exit { from: pid, to, exit: exit.clone() });
    }
    for (monitor, target) in entries.watched {
        forget_watcher(pid, target, monitor);
    }
    for (monitor, to) in entries.watchers {
        let exit = exit.clone();
        if to.node() != 0 {
            signal(RemoteSignal::Down { from: pid, to, monitor, exit });
            was_heard = true;
        } else if let Some(watcher) = find(to) {
            was_heard |= tell(&watcher, Signal::Down(Down { monitor, pid, exit })) && counts(to);
        }
    }
    // If there are two links with one peer, the first pass removes both.
    for (to, _) in entries.links.0 {
        if let Some(peer) = find(to)
            && with_any(&peer, |relations| !relations.links.take(pid).is_empty()) == Some(true)
        {
            was_heard |= deliver(&peer, Some(pid), exit.clone(), Cause::Link) && counts(to);
        }
    }
    for child in entries.scope {
        if let Some(child) = find(child) {
            crate::process::wake::cancel(&child);
        }
    }
    if let Some(scope) = entries.scope_of.and_then(find) {
        with_any(&scope, |relations| relations.scope.remove(&pid));
    }
    was_heard
}

/// Links the running process and another process.
///
/// When either ends with an exit other than [`Exit::Normal`], the other ends as well, unless it
/// traps exits ([`Context::trap_exits`](crate::Context::trap_exits)). If the two are linked
/// already, nothing changes. If the other process has ended, the link acts as if it ended now with
/// [`Exit::NoProcess`].
///
/// Returns `false`, and does nothing, if no process runs on this thread.
///
/// ```
/// use procession::process::link;
/// use procession::{Exit, spawn, yield_now};
///
/// procession::run(async {
///     let fragile = spawn(async {
///         let worker = spawn(async { panic!("broken") });
///         link(worker.pid());
///         drop(worker);
///         std::future::pending::<()>().await
///     });
///     assert!(fragile.await.unwrap_err().is_panic());
/// });
/// ```
pub fn link(pid: Pid) -> bool {
    crate::scheduler::budget::spend();
    current::current().map(|own| link_to(&own, pid)).is_some()
}

/// Removes the link between the running process and another process, if there is one. Returns
/// `false` if no process runs on this thread.
pub fn unlink(pid: Pid) -> bool {
    crate::scheduler::budget::spend();
    current::current().map(|own| unlink_from(&own, pid)).is_some()
}

/// Sends an exit signal to a process. Returns `true` if the process existed, or if it is a process
/// of another node that has [joined](crate::relay::RemoteNode).
///
/// The process ends with `exit`. If it traps exits, it receives the signal as an event instead.
/// [`Exit::Normal`] does nothing to another process that does not trap exits. [`Exit::Killed`] can
/// be trapped as well, and is the signal `killed` of OTP. To end a process even if it traps exits,
/// use [`kill`].
pub fn send_exit(pid: Pid, exit: Exit) -> bool {
    crate::scheduler::budget::spend();
    let from = current::current().map(|slot| slot.pid());
    if pid.node() != 0 {
        signal(RemoteSignal::SendExit { from, to: pid, exit });
        return nodes::is_known(pid);
    }
    find(pid).map(|slot| deliver(&slot, from, exit, Cause::Sent)).is_some()
}

/// Ends a process between two of its steps, with [`Exit::Killed`], even if it traps exits. Returns
/// `true` if the process existed, or if it is a process of another node that has
/// [joined](crate::relay::RemoteNode).
///
/// This is `exit(Pid, kill)` of OTP. Linked processes receive the exit as [`Exit::Killed`]
/// (`killed`), which they can trap. A process that is ending already, because of an earlier signal
/// or cancel, keeps the earlier exit. A step that never returns cannot be ended, because a process
/// ends only between two steps.
///
/// ```
/// use procession::process::{kill, send_exit};
/// use procession::{Context, Exit, start};
///
/// procession::run(async {
///     let stubborn = start(|mut cx: Context<()>| async move {
///         cx.trap_exits(true);
///         while cx.recv_event().await.is_some() {}
///     });
///     let pid = stubborn.pid();
///     assert!(send_exit(pid, Exit::failed("please")), "it is trapped, or ends the process");
///     assert!(kill(pid));
///     assert!(stubborn.await.is_err());
///     assert!(!kill(pid), "it has ended");
/// });
/// ```
pub fn kill(pid: Pid) -> bool {
    crate::scheduler::budget::spend();
    if pid.node() != 0 {
        let from = current::current().map(|slot| slot.pid());
        signal(RemoteSignal::Kill { from, to: pid });
        return nodes::is_known(pid);
    }
    find(pid).map(|slot| crate::process::wake::terminate(&slot)).is_some()
}

/// Cancels a process of this program. Returns `true` if the process exists. A process of another
/// node cannot be cancelled, only [killed](kill()) or sent an exit ([`send_exit`]).
///
/// The effect was chosen at the spawn ([`OnCancel`](crate::OnCancel)). A process with a context is
/// asked to end: its [`recv`](crate::Context::recv) ends once the mailbox is empty,
/// [`cancelled`](crate::cancelled()) resolves, and a state machine gets
/// [`Event::Cancel`](crate::Event). A process that was started by [`spawn`](crate::spawn()) is
/// dropped at its next suspension.
///
/// ```
/// procession::run(async {
///     let server = procession::start(|mut cx: procession::Context<()>| async move {
///         while cx.recv().await.is_some() {}
///     });
///     assert!(procession::process::cancel(server.pid()));
///     assert_eq!(server.await, Ok(()));
/// });
/// ```
pub fn cancel(pid: Pid) -> bool {
    crate::scheduler::budget::spend();
    find(pid).map(|slot| crate::process::wake::cancel(&slot)).is_some()
}

/// Removes the entry of a monitor at the process that was monitored.
pub(super) fn forget_watcher(from: Pid, target: Pid, monitor: MonitorRef) {
    if target.node() != 0 {
        signal(RemoteSignal::Demonitor { from, to: target, monitor });
    } else if let Some(target) = find(target) {
        with_any(&target, |relations| relations.watchers.remove(&monitor));
    }
}
