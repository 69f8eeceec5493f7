//! The process that keeps the lease of a node.

use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use procession::Context;
use procession::process::{self, cancelled};
use procession::time::{Instant, sleep_until};

use super::store::Lease;
use super::table::{Claim, Current, Names, Stage};
use crate::node::NoMessage;

/// Returns for how long processes hold their names after a renewal was sent, if the lease lasts for
/// `lasts`. The rest is for the end of the processes, and for clocks that differ.
fn held_for(lasts: Duration) -> Duration {
    lasts / 10 * 7
}

/// Gets a lease, renews it, and gets another one when it is lost, until the names stop.
pub(super) async fn keep(cx: Context<NoMessage>, names: Arc<Names>) {
    let shown = Arc::clone(&names);
    let _shown = cx.show_section("exclusive", move |section| shown.show(section));
    // If this process is killed, nobody renews the lease.
    let _keeper = Keeper(&names);
    while !names.is_over() {
        let asked = Instant::now();
        let until = asked + names.lease_time;
        match within(&names, until, names.ask(|store| store.grant(names.lease_time))).await {
            Some(Ok(lease)) => {
                let why = renew(&names, lease, asked).await;
                names.lose(why);
            }
            Some(Err(error)) => names.report("cannot get a lease for the names", error),
            None => {}
        }
        // After a loss, too: a store that ends leases early kills processes once in that time.
        let again = Instant::now() + names.lease_time / 3;
        within(&names, again, pending::<()>()).await;
    }
}

/// Renews a lease that was asked for at this time. Returns why it is lost, or `None` if the names
/// have stopped.
async fn renew(names: &Arc<Names>, lease: Lease, asked: Instant) -> Option<String> {
    let Lease { id, lasts } = lease;
    let mut deadline = asked + held_for(lasts);
    names.set_lease(Current { id, deadline });
    let mut next = asked + lasts / 3;
    let mut last_error = None;
    loop {
        within(names, next.min(deadline), pending::<()>()).await;
        if names.is_over() {
            // Ignored: otherwise it ends by itself.
            let revoked = names.ask(|store| store.revoke(id));
            let _ = procession::timeout(names.pause(), revoked).await;
            return None;
        }
        let asked = Instant::now();
        let answer = match asked < deadline {
            true => within(names, deadline, names.ask(|store| store.renew(id))).await,
            false => None,
        };
        match answer {
            Some(Ok(true)) => {
                // The answer may have waited for this program to run.
                deadline = asked + held_for(lasts);
                names.set_lease(Current { id, deadline });
                next = asked + lasts / 3;
            }
            Some(Ok(false)) => return Some("the store has ended it".to_owned()),
            Some(Err(error)) => {
                last_error = Some(error.to_string());
                next = Instant::now() + names.pause();
            }
            None => {}
        }
        if Instant::now() >= deadline && !names.is_over() {
            return Some(last_error.unwrap_or_else(|| "it was not renewed in time".to_owned()));
        }
    }
}

/// Waits for a future until a moment, or until the names are over. Returns `None` then.
async fn within<F: Future>(names: &Arc<Names>, until: Instant, future: F) -> Option<F::Output> {
    let (mut future, mut time) = (pin!(future), pin!(sleep_until(until)));
    let mut cancelled = pin!(cancelled());
    loop {
        let mut changed = pin!(names.changed.notified());
        changed.as_mut().enable();
        let mut node_changed = pin!(names.node.0.changed.notified());
        node_changed.as_mut().enable();
        if names.node.is_leaving() {
            names.leave();
        }
        if names.is_over() {
            return None;
        }
        let may_cancel = names.stage() == Stage::Runs;
        let woken = poll_fn(|task| {
            if let Poll::Ready(output) = future.as_mut().poll(task) {
                return Poll::Ready(Some(Some(output)));
            }
            if time.as_mut().poll(task).is_ready() {
                return Poll::Ready(Some(None));
            }
            if may_cancel && cancelled.as_mut().poll(task).is_ready() {
                names.leave();
                return Poll::Ready(None);
            }
            let is_changed = changed.as_mut().poll(task).is_ready()
                || node_changed.as_mut().poll(task).is_ready();
            if is_changed { Poll::Ready(None) } else { Poll::Pending }
        });
        if let Some(output) = woken.await {
            return output;
        }
    }
}

/// What ends with the process that keeps the lease.
struct Keeper<'a>(&'a Names);

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        self.0.lose(Some("the process that renews it has ended".to_owned()));
        self.0.table.lock().stage = Stage::Over;
        self.0.changed.notify_waiters();
    }
}

impl Names {
    /// Returns `true` if nothing is left to do.
    fn is_over(&self) -> bool {
        let table = self.table.lock();
        table.stage != Stage::Runs && table.claims.is_empty()
    }

    fn set_lease(&self, lease: Current) {
        let is_new = {
            let mut table = self.table.lock();
            let before = table.lease.replace(lease);
            before.is_none_or(|before| before.id != lease.id)
        };
        if is_new {
            self.changed.notify_waiters();
        }
    }

    /// Takes the lease back, and kills the processes that hold names by it.
    fn lose(&self, why: Option<impl fmt::Display>) {
        let holders: Vec<_> = {
            let mut table = self.table.lock();
            table.lease = None;
            table.losses += u64::from(table.claims.values().any(Claim::is_held));
            let held = table.claims.values_mut().filter(|claim| claim.is_held());
            held.map(|claim| {
                claim.held = Weak::new();
                claim.pid
            })
            .collect()
        };
        for pid in &holders {
            process::kill(*pid);
        }
        if let Some(why) = why.filter(|_| !holders.is_empty()) {
            self.report("the lease is lost, so the holders of names are killed", why);
        }
    }
}
