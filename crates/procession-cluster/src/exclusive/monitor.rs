//! The processes that watch the holders of names, one for each name that somebody monitors.

use std::sync::Arc;

use procession::process::OnCancel;
use procession::sync::{Notify, watch};
use procession::{SpawnOptions, sleep, timeout};

use super::names::holder_of;
use super::table::{Holder, Monitored, Names, Stage, Table};
use super::watch::{WATCH_TIME, first_of};

/// The process that watches a name. Its drop ends the monitors.
struct Watching {
    names: Arc<Names>,
    name: Arc<str>,
    monitored: Monitored,
}

impl Names {
    /// Monitors a name. `present` is the holder that the store has just reported.
    pub(super) fn monitor(
        self: &Arc<Self>,
        name: Arc<str>,
        present: Option<Holder>,
    ) -> watch::Receiver<Option<Holder>> {
        let (holder, receiver) = watch::channel(present);
        let monitored = Monitored { holder, changed: Arc::new(Notify::new()) };
        {
            let mut table = self.table.lock();
            if let Some(known) = table.monitored.get(&name) {
                return known.holder.subscribe();
            }
            if table.stage != Stage::Runs {
                return receiver;
            }
            table.monitored.insert(Arc::clone(&name), monitored.clone());
        }
        let label = format!("monitor of {name}");
        let watching = Watching { names: Arc::clone(self), name, monitored };
        let options = SpawnOptions::new().label(label).on_cancel(OnCancel::Drop);
        // Ignored: then the drop of the process that is not started ends the monitor.
        let _ = self.within_node(|| options.try_spawn(watching.run()).is_ok());
        receiver
    }
}

impl Watching {
    async fn run(self) {
        let Self { names, name, monitored: Monitored { holder, changed } } = &self;
        while !self.is_over() {
            let asked = timeout(names.lease_time, names.ask(|store| store.holder(name))).await;
            let Ok(answer) = asked else { continue };
            let known = answer.and_then(|known| {
                let revision = known.revision;
                Ok((holder_of(name, known)?, revision))
            });
            match known {
                Ok((now, revision)) => {
                    holder.send_if_modified(|known| {
                        let is_new = *known != now;
                        *known = now;
                        is_new
                    });
                    if names.watch_from(revision) {
                        // As for a claim that waits.
                        let changed = timeout(2 * WATCH_TIME, changed.notified());
                        first_of(holder.closed(), changed).await;
                    }
                }
                Err(error) => {
                    names.report("cannot see who holds a name", error);
                    first_of(holder.closed(), sleep(names.pause())).await;
                }
            }
        }
    }

    /// Returns `true` if nobody monitors the name, which nobody can begin to do then, or the names
    /// stop.
    fn is_over(&self) -> bool {
        let mut table = self.names.table.lock();
        let is_over = table.stage != Stage::Runs || self.monitored.holder.is_closed();
        if is_over {
            self.forget(&mut table);
        }
        is_over
    }

    fn forget(&self, table: &mut Table) {
        let own = &self.monitored.holder;
        if table.monitored.get(&self.name).is_some_and(|it| it.holder.same_channel(own)) {
            table.monitored.remove(&self.name);
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.forget(&mut self.names.table.lock());
    }
}
