//! The relations that a process gets through its address.

use crate::Pid;
use crate::mailbox::address::Address;
use crate::process::priority::{Priority, set_priority};
use crate::relations::signal::MonitorRef;
use crate::relations::{links, monitors};
use crate::scheduler::budget;

impl<M: Send + 'static> Address<M> {
    /// Makes the process of this address monitor another process: it receives one
    /// [`Event::Down`](crate::Event::Down) when that process ends, as if it had called
    /// [`Context::monitor`](crate::Context::monitor).
    ///
    /// The monitor is made before this function returns, so the notice contains the reason of any
    /// later end. If the monitoring process has ended, there is no notice. It works in any thread.
    ///
    /// ```
    /// use procession::mailbox::Event;
    /// use procession::{Context, Exit, start};
    ///
    /// procession::run(async {
    ///     let watcher = start(|mut cx: Context<()>| async move {
    ///         match cx.recv_event().await {
    ///             Some(Event::Down(down)) => down.exit,
    ///             _ => Exit::Normal,
    ///         }
    ///     });
    ///     let worker = start(|mut cx: Context<()>| async move {
    ///         cx.recv().await;
    ///         panic!("broken")
    ///     });
    ///     watcher.address().monitor(worker.pid());
    ///     worker.send(()).expect("it waits for it");
    ///     assert_eq!(watcher.await, Ok(Exit::Panicked("broken".into())));
    /// });
    /// ```
    pub fn monitor(&self, pid: Pid) -> MonitorRef {
        budget::spend();
        self.slot().map_or_else(MonitorRef::draw, |slot| monitors::monitor(slot, pid))
    }

    /// Ends the process between two of its steps, with [`Exit::Killed`](crate::Exit::Killed), even
    /// if it traps exits. Returns `true` if it existed. See [`kill`](crate::relations::kill()).
    pub fn kill(&self) -> bool {
        links::kill(self.seen_pid())
    }

    /// Cancels the process, which is the polite way to end it: a process with a context may clean
    /// up. Returns `true` if it existed. See [`cancel`](crate::relations::cancel()).
    ///
    /// ```
    /// procession::run(async {
    ///     let server = procession::start(|mut cx: procession::Context<()>| async move {
    ///         while cx.recv().await.is_some() {}
    ///         "cleaned up"
    ///     });
    ///     assert!(server.address().cancel());
    ///     assert_eq!(server.await, Ok("cleaned up"));
    /// });
    /// ```
    pub fn cancel(&self) -> bool {
        links::cancel(self.seen_pid())
    }

    /// Changes the priority of the process. Returns `true` if it exists. See
    /// [`process::set_priority`](crate::process::set_priority()).
    pub fn set_priority(&self, priority: Priority) -> bool {
        set_priority(self.seen_pid(), priority)
    }
}
