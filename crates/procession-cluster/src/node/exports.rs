//! What other nodes may start and call.

use std::sync::Arc;

use procession::mailbox::Recipient;
use procession::process::{MonitorRef, Outcome};
use procession::{Context, SpawnOptions};
use procession_sync::Mutex;

use crate::guarded::Guarded;
use crate::letter::Letter;
use crate::term::Term;

/// What an exported function has returned.
pub(crate) type Returned = Arc<Mutex<Option<Result<Term, Term>>>>;

/// A process that was started for another node, and the monitor of the connection, if it could
/// make one.
pub(crate) struct Spawned {
    pub(crate) recipient: Recipient<Letter>,
    pub(crate) monitor: Option<MonitorRef>,
}

impl Spawned {
    /// Starts a process. `None` if it is refused.
    pub(super) fn start<F, P>(options: SpawnOptions, process: F) -> Option<Self>
    where
        F: FnOnce(Context<Letter>) -> P + Send + 'static,
        P: Future + Send + 'static,
        P::Output: Outcome + Send + 'static,
    {
        let child = options.monitor().try_start(process).ok()?;
        let recipient = child.address().map(|letter: Letter| letter);
        Some(Self { recipient, monitor: child.monitor_ref() })
    }
}

/// Starts a process with the arguments of another node, and with what takes the value that it
/// returns, if that is asked for. `None` if it is refused.
pub(crate) type Start = dyn Fn(Vec<Term>, Option<Returned>) -> Option<Spawned> + Send + Sync;

/// What other nodes may start.
#[derive(Clone)]
pub(crate) struct Export {
    pub(crate) start: Guarded<Arc<Start>>,
    /// `true` if it returns a value.
    pub(crate) returns: bool,
}
