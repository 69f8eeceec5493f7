//! The priority of a process, and of a job of a pool.

/// How early a ready process runs, or a queued job of a pool begins, compared with others.
///
/// **Processes.** A process has the priority [`Normal`](Self::Normal), unless
/// `SpawnOptions::priority` or `process::set_priority` gives it another one. It does not inherit
/// the priority of its parent. For example, give [`Batch`](Self::Batch) to a report that computes
/// for a minute, and [`High`](Self::High) to the process that answers health checks.
///
/// A worker runs ready processes of a higher priority first. Two limits prevent that a priority
/// starves:
///
/// - On each worker, at most 8 steps of `High` processes run in a row while another process waits.
/// - While a `Batch` process waits, each worker that may run one gives it at least one of 64
///   dispatches. Otherwise, a worker runs a `Batch` process only if it finds nothing else.
///
/// `Batch` processes occupy at most `Builder::max_batch` workers at a time, because one of their
/// steps may be long.
///
/// A new priority counts when the process is queued the next time. A process that is queued as
/// `High` or `Batch` moves to its new queue immediately.
///
/// **Jobs.** A worker of a pool takes the oldest queued job of the highest priority. Once 8 jobs of
/// higher priorities were taken while a job of a lower priority waited, the next job is of the
/// lower priority.
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
