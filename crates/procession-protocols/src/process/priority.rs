//! The priority of a process, and of a job of a pool.

/// Which of the processes, or of the queued jobs, that are ready goes first.
///
/// **Processes.** A process has the priority [`Normal`](Self::Normal) unless its spawn or a later
/// call gives it another one; it inherits none. While a process of a higher priority is ready, a
/// worker runs it first, with a bound in both directions, so that no priority starves:
///
/// - At most 8 steps of `High` processes run in a row on a worker while another process waits
///   there.
/// - A worker runs one step of a `Batch` process in at most 64 dispatches while one waits, and
///   otherwise only if it finds nothing else. `Batch` processes hold only some of the permits of a
///   scheduler (`Builder::max_batch`), so that a long step never occupies every worker.
///
/// A new priority counts from the moment at which the process is queued next. A process that is
/// queued as `High` or `Batch` moves to its new queue immediately.
///
/// **Jobs.** A worker of a pool takes the job of the highest priority that is queued, and of these
/// the first. Once 8 jobs of higher priorities have been taken while a priority had jobs in the
/// queue, one of that priority is taken before any further job of a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Behind all others: work that computes for long, and that nobody waits for.
    Batch,
    /// The default.
    #[default]
    Normal,
    /// Before all others: short steps that somebody waits for.
    High,
}

impl Priority {
    /// All priorities, from the lowest to the highest.
    pub const ALL: [Self; 3] = [Self::Batch, Self::Normal, Self::High];

    /// Returns the name of the priority, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

impl std::fmt::Display for Priority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
