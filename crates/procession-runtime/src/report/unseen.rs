//! The panics of a test that nobody has seen.

use procession_sync::Mutex;

use crate::Pid;

/// The panics of processes without a monitor, link or supervisor, if the results of the processes
/// were not taken.
#[derive(Debug, Default)]
pub(crate) struct UnseenPanics(Mutex<Vec<(Pid, String)>>);

impl UnseenPanics {
    /// Notes a process that panics, with its report.
    pub(crate) fn note(&self, pid: Pid, report: String) {
        self.0.lock().push((pid, report));
    }

    /// Forgets the panic of a process when its result is taken.
    pub(crate) fn forget(&self, pid: Pid) {
        self.0.lock().retain(|(unseen, _)| *unseen != pid);
    }

    /// Takes the reports of the panics, in their order.
    #[cfg(feature = "macros")]
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).into_iter().map(|(_, report)| report).collect()
    }
}
