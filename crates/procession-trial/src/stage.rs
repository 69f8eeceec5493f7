//! The stages: what happens to the service while the clients send requests.

use std::io::{self, PipeWriter, pipe};

use procession::{Child, Context, Exit, JoinHandle, Scheduler};
use procession_sync::Arc;
use procession_sync::atomic::{AtomicBool, Ordering};

use crate::error::TrialError;
use crate::faults;
use crate::load::{DRIP, FAULT_EVERY};
use crate::machine;

/// All stages, in the order of the trial. The last one ends the service.
pub(crate) const STAGES: &[Stage] = &[
    Stage::Clean,
    Stage::Idle,
    Stage::Blocked,
    Stage::Computing,
    Stage::Panics,
    Stage::SlowClients,
    Stage::Shutdown,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Clean,
    Idle,
    Blocked,
    Computing,
    Panics,
    SlowClients,
    Shutdown,
}

/// The promised number of idle processes, if there is memory and time for them.
const IDLE_MAX: u64 = 1_000_000;
/// The estimated size of an idle process in bytes. It is more than a process takes, because memory
/// that other programs need must stay free.
const IDLE_BYTES: u64 = 1024;
/// The divisor of the available memory: as much is left free as is taken.
const MEMORY_SHARE: u64 = 2;
/// Limits the number of processes, so that a short trial does not spend its time on making them.
const IDLE_PER_SECOND: u64 = 50_000;

/// Returns twice the number of CPUs.
pub(crate) fn blocked_threads(width: usize) -> usize {
    2 * width
}

/// What a stage has begun and must end.
pub(crate) enum Fault {
    /// There is no fault, or the clients cause it.
    None(Stage),
    Idle {
        processes: Vec<Child<(), ()>>,
        bytes_each: u64,
    },
    /// The processes end when the pipe is closed.
    Blocked {
        open: PipeWriter,
        processes: Vec<JoinHandle<io::Result<usize>>>,
    },
    Computing {
        goes_on: Arc<AtomicBool>,
        processes: Vec<JoinHandle<u64>>,
    },
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Idle => "beside idle processes",
            Self::Blocked => "beside blocked threads",
            Self::Computing => "beside endless computations",
            Self::Panics => "with panics",
            Self::SlowClients => "with slow clients",
            Self::Shutdown => "shutdown under load",
        }
    }

    /// Begins the fault of the stage, in processes of the service's scheduler.
    pub(crate) fn begin(self, scheduler: &Scheduler, seconds: u64) -> Result<Fault, TrialError> {
        match self {
            Self::Idle => idle(scheduler, seconds),
            Self::Blocked => {
                let (until_closed, open) = pipe().map_err(system("make a pipe"))?;
                let until_closed = Arc::new(until_closed);
                let block = |_| {
                    let until_closed = Arc::clone(&until_closed);
                    scheduler.spawn(async move { faults::block(&until_closed) })
                };
                Ok(Fault::Blocked {
                    open,
                    processes: (0..blocked_threads(scheduler.worker_threads()))
                        .map(block)
                        .collect(),
                })
            }
            Self::Computing => {
                let goes_on = Arc::new(AtomicBool::new(true));
                let compute = |_| {
                    let goes_on = Arc::clone(&goes_on);
                    scheduler.spawn(async move { faults::compute(&goes_on) })
                };
                let processes = (0..scheduler.worker_threads()).map(compute).collect();
                Ok(Fault::Computing { goes_on, processes })
            }
            Self::Clean | Self::Panics | Self::SlowClients | Self::Shutdown => {
                Ok(Fault::None(self))
            }
        }
    }
}

fn system(act: &str) -> impl FnOnce(io::Error) -> TrialError {
    move |cause| TrialError::System { act: act.to_owned(), cause }
}

fn idle(scheduler: &Scheduler, seconds: u64) -> Result<Fault, TrialError> {
    let memory = machine::memory_available().unwrap_or(0) / MEMORY_SHARE;
    let count = IDLE_MAX.min(memory / IDLE_BYTES).min(seconds * IDLE_PER_SECOND);
    let taken = || machine::resident().map_err(system("measure memory"));
    let before = taken()?;
    let wait = |mut cx: Context<()>| async move { while cx.recv().await.is_some() {} };
    // Made inside the scheduler, as programs do.
    let make = scheduler
        .spawn(async move { (0..count).map(|_| procession::start(wait)).collect::<Vec<_>>() });
    let processes =
        make.join().map_err(|cause| TrialError::runtime("make idle processes", cause))?;
    let bytes_each = taken()?.saturating_sub(before) / count.max(1);
    Ok(Fault::Idle { processes, bytes_each })
}

impl Fault {
    pub(crate) fn title(&self, clients: u64) -> String {
        match self {
            Self::Idle { processes, bytes_each } => {
                format!("beside {} idle processes ({bytes_each} B each)", processes.len())
            }
            Self::Blocked { processes, .. } => {
                format!("beside {} blocked threads", processes.len())
            }
            Self::Computing { processes, .. } => {
                format!("beside {} endless computations", processes.len())
            }
            Self::None(Stage::Panics) => format!("while one request in {FAULT_EVERY} panics"),
            Self::None(Stage::SlowClients) => {
                format!("with {clients} slow clients (a byte in {} ms)", DRIP.as_millis())
            }
            Self::None(stage) => stage.name().to_owned(),
        }
    }

    /// Ends the fault, and waits until it has ended.
    pub(crate) fn end(self) -> Result<(), TrialError> {
        let ended = |ended: Result<(), Exit>| {
            ended.map_err(|cause| TrialError::runtime("end a stage", cause))
        };
        match self {
            Self::None(_) => Ok(()),
            Self::Idle { processes, .. } => {
                processes.iter().for_each(Child::cancel);
                processes.into_iter().try_for_each(|process| ended(process.join()))
            }
            Self::Blocked { open, processes } => {
                drop(open);
                let read =
                    |read: io::Result<usize>| read.map(drop).map_err(system("read from a pipe"));
                processes.into_iter().try_for_each(|process| {
                    process
                        .join()
                        .map_err(|cause| TrialError::runtime("end a stage", cause))
                        .and_then(read)
                })
            }
            Self::Computing { goes_on, processes } => {
                // Ordering: Relaxed; the flag is the whole message.
                goes_on.store(false, Ordering::Relaxed);
                processes.into_iter().try_for_each(|process| ended(process.join().map(drop)))
            }
        }
    }
}
