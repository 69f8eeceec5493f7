//! What the user gets: a trace, and its events.

use std::io;
use std::io::Write;
use std::time::Duration;
use std::{error, fmt};

use crate::Pid;
use crate::recorder::collect::{Collector, Recording};
use crate::recorder::timeline::Moment;
use crate::recorder::{perfetto, timeline};
use crate::scheduler::log::{EventWord, WordKind};
use crate::scheduler::owner::Scheduler;
use crate::scheduler::section::Section;
use crate::scheduler::shared::Shared;
use crate::time::Instant;

/// The longest window of [`Scheduler::trace`].
const WINDOW_MAX: Duration = Duration::from_secs(60);
/// The time in nanoseconds between two copies of the rings during a window. A worker that does
/// nothing but switch fills its ring in some milliseconds.
const COLLECT_EVERY: u64 = 1_000_000;
/// The maximum number of processes with a track of their own.
pub(crate) const TRACKS_MAX: usize = 200;

/// The events that the flight recorder of a scheduler has kept.
///
/// Available with the crate feature `look`.
///
/// # The flight recorder
///
/// Each worker keeps its latest events: the steps that it ran, the processes that it made ready,
/// its searches, thefts and parks, timers and descriptors. The recorder is always on, unless
/// [`Builder::recorder_events`](crate::Builder::recorder_events) turns it off. When something has
/// gone wrong, the events that led there are still present.
///
/// | call | what it returns |
/// |---|---|
/// | [`Scheduler::dump`] | the latest events, with interpolated times |
/// | [`Scheduler::trace`] | the events of a window that begins now, with exact times |
///
/// [`Scheduler::dump`]: crate::Scheduler::dump
/// [`Scheduler::trace`]: crate::Scheduler::trace
///
/// A trace is opened in the [viewer](https://ui.perfetto.dev) of Perfetto, or read event by event.
/// With the feature `door`, its packets are compressed (`compressed_packets`), which Perfetto's
/// tools read. It has a track for each worker, on which each step is a slice with the label of the
/// process, or the location of its spawn. Arrows lead from the step that made a process ready to
/// the step that followed. The watchdog has a track for stalled steps, and counters: processes in
/// queues, workers that are awake, and messages per second. A trace never contains a message.
///
/// # Files
/// If the builder names a [directory](crate::Builder::dump_directory), the recorder is also written
/// to a file there when
/// - the watchdog finds a stalled step,
/// - a supervisor exceeds its restart limit,
/// - a [shutdown](crate::Scheduler::shutdown) has to terminate processes,
/// - a signal asks for it, if the program lets it (`Scheduler::dump_on_signal`, with the feature
///   `signal`).
///
/// Each scheduler writes at most one file in 60 seconds. A directory keeps at most 8 of these
/// files, which together have at most 64 MiB. Older files are removed, whichever program wrote
/// them. The name of each file is written to standard error. By default there is no directory, and
/// nothing is written.
///
/// # Times
/// Reading a clock takes longer than many a step, so events carry no times. Workers record the time
/// when they read the clock anyway: when they park, fire timers, or serve queues for the first time
/// in a millisecond. The watchdog records every 2.5 ms how far each worker has come. Times between
/// these are interpolated, so the order of events of *different* workers may be off by as much. The
/// order of one worker's events is exact, and so is the arrow from a wake-up to its step.
///
/// # What is missing
/// Threads that are no workers record nothing. A process that such a thread makes ready has no
/// arrow, and a process that another worker takes out of a LIFO slot has no arrow either. The end
/// of a step is not recorded either. A slice lasts until the next event that shows that the step is
/// over, so it includes the search for the next process. If a process has ended and the event of
/// its end was overwritten, its location is unknown. Labels of processes that have ended are
/// unknown.
#[derive(Clone, Debug)]
pub struct Trace {
    recording: Recording,
    /// The processes with tracks of their own.
    tracks: Vec<Pid>,
}

/// An event of a [`Trace`].
///
/// Available with the crate feature `look`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The number of the worker that recorded the event, or `None` if the watchdog recorded it.
    pub worker: Option<u32>,
    /// The time, which may be interpolated.
    pub at: Instant,
    /// `true` if the worker has lost events immediately before this event.
    pub follows_gap: bool,
    /// What happened.
    pub kind: TraceEventKind,
}

/// What happened at a [`TraceEvent`].
///
/// Available with the crate feature `look`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEventKind {
    /// A step of this process began. It lasted until the next event of the worker that is a step, a
    /// search or a park.
    Step(Pid),
    /// The running step, or else the last step, made this process ready. Between two steps, a timer
    /// or a descriptor did.
    Woke(Pid),
    /// The running step started this process.
    Spawned(Pid),
    /// The running step calls this process.
    Called(Pid),
    /// The process of the last step ended.
    Ended {
        /// `true` if its exit is a failure.
        failed: bool,
    },
    /// The worker took processes from the queues of this worker.
    Stole(u32),
    /// The worker had nothing queued, and looked for work elsewhere.
    Searched,
    /// The worker parked.
    Parked,
    /// The worker went on after it had parked.
    Unparked,
    /// The worker fired this many timers.
    TimersFired(u32),
    /// The worker found this many events of descriptors.
    DescriptorsReady(u32),
    /// The running step entered a [blocking section](crate::blocking()).
    SectionEntered,
    /// The running step left a blocking section.
    SectionLeft,
    /// The watchdog found that the step of this worker had exceeded its time.
    Stalled(u32),
    /// The watchdog found this many processes in the queues.
    Queued(u32),
    /// The watchdog found this many workers awake.
    Awake(u32),
    /// The watchdog found that this many messages had been sent so far, modulo 2^32.
    Sent(u32),
}

/// The error of [`Scheduler::trace`].
///
/// Available with the crate feature `look`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceError {
    /// The scheduler was built [without a recorder](crate::Builder::recorder_events).
    Off,
    /// Another call records a window of this scheduler.
    Busy,
    /// The window is longer than 60 seconds.
    TooLong(Duration),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot trace the scheduler: ")?;
        match self {
            Self::Off => f.write_str("it was built without a recorder"),
            Self::Busy => f.write_str("another call traces it"),
            Self::TooLong(window) => {
                write!(f, "the window is {window:?}, and at most {WINDOW_MAX:?} is allowed")
            }
        }
    }
}

impl error::Error for TraceError {}

impl Trace {
    /// Copies what the recorder of a scheduler holds.
    pub(crate) fn of(shared: &Shared) -> Self {
        Self { recording: Collector::from_oldest(shared).finish(), tracks: Vec::new() }
    }

    /// Adds a track for each of these processes to the tracks of the workers. Processes beyond the
    /// first 200 get no track.
    #[must_use]
    pub fn with_tracks(mut self, processes: impl IntoIterator<Item = Pid>) -> Self {
        self.tracks = processes.into_iter().take(TRACKS_MAX).collect();
        self
    }

    /// Returns the events, worker by worker, and then the events of the watchdog. The events of one
    /// worker are in the order in which they happened.
    pub fn events(&self) -> impl Iterator<Item = TraceEvent> {
        let workers = (0..self.recording.workers.len()).flat_map(|worker| {
            let moments = timeline::of_worker(&self.recording, worker);
            moments.into_iter().map(move |moment| (Some(worker as u32), moment))
        });
        let watchdog = timeline::of_watchdog(&self.recording).into_iter();
        workers
            .chain(watchdog.map(|moment| (None, moment)))
            .flat_map(|(worker, moment)| self.events_of(worker, moment))
    }

    /// Returns the events that a moment stands for. If a process runs next after it was made ready,
    /// both are one word.
    fn events_of(&self, worker: Option<u32>, moment: Moment) -> impl Iterator<Item = TraceEvent> {
        let kind = self.kind(moment.word);
        let woke = match kind {
            Some(TraceEventKind::Step(pid)) if moment.word.kind() == Some(WordKind::NextStep) => {
                Some(TraceEventKind::Woke(pid))
            }
            _ => None,
        };
        let follows_gap = moment.follows_gap;
        let at = Instant::from_nanoseconds(moment.at);
        woke.into_iter().chain(kind).enumerate().map(move |(number, kind)| TraceEvent {
            worker,
            at,
            follows_gap: follows_gap && number == 0,
            kind,
        })
    }

    fn kind(&self, word: EventWord) -> Option<TraceEventKind> {
        let process = || self.recording.names.of(word).map(|named| named.pid);
        Some(match word.kind()? {
            WordKind::Step | WordKind::NextStep => TraceEventKind::Step(process()?),
            WordKind::Wake | WordKind::Rouse => TraceEventKind::Woke(process()?),
            WordKind::Spawn => TraceEventKind::Spawned(process()?),
            WordKind::Call => TraceEventKind::Called(process()?),
            WordKind::End => TraceEventKind::Ended { failed: false },
            WordKind::Fail => TraceEventKind::Ended { failed: true },
            WordKind::Steal => TraceEventKind::Stole(word.argument()),
            WordKind::Search => TraceEventKind::Searched,
            WordKind::Park => TraceEventKind::Parked,
            WordKind::Unpark => TraceEventKind::Unparked,
            WordKind::Timers => TraceEventKind::TimersFired(word.slot()),
            WordKind::Descriptors => TraceEventKind::DescriptorsReady(word.slot()),
            WordKind::Block => TraceEventKind::SectionEntered,
            WordKind::Unblock => TraceEventKind::SectionLeft,
            WordKind::Stall => TraceEventKind::Stalled(word.argument()),
            WordKind::Queued => TraceEventKind::Queued(word.slot()),
            WordKind::Awake => TraceEventKind::Awake(word.slot()),
            WordKind::Sent => TraceEventKind::Sent(word.slot()),
            WordKind::Clock | WordKind::Stamp | WordKind::Position | WordKind::Sample => {
                return None;
            }
        })
    }

    /// Writes the trace in the format of [Perfetto](https://perfetto.dev), in many small writes of
    /// up to 64 KiB. Its [viewer](https://ui.perfetto.dev) opens it.
    ///
    /// # Errors
    /// The errors of `to`. Part of the trace has been written then.
    pub fn write_to(&self, to: impl Write) -> io::Result<()> {
        perfetto::write(&self.recording, &self.tracks, to)
    }

    /// Returns the trace in the format of [Perfetto](https://perfetto.dev).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes).expect("a vector takes all that is written to it");
        bytes
    }
}

/// Available with the crate feature `look`.
impl Scheduler {
    /// Returns what the flight recorder of this scheduler holds now: the latest events of each
    /// worker, with times that are interpolated. Without a
    /// [recorder](crate::Builder::recorder_events) there are no events.
    ///
    /// This copies the rings, half a mebibyte for each worker by default, and stops no worker. See
    /// [`Trace`].
    ///
    /// ```
    /// use procession::observe::TraceEventKind;
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let process = scheduler.spawn(async { procession::process::current_pid() }).join()?;
    /// let process = process.expect("it is one");
    ///
    /// let trace = scheduler.dump();
    /// assert!(trace.events().any(|event| event.kind == TraceEventKind::Step(process)));
    /// assert!(!trace.to_bytes().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dump(&self) -> Trace {
        Trace::of(self.shared())
    }

    /// Records what the workers do for `window`, at most 60 seconds of the real clock, and returns
    /// it.
    ///
    /// During the window, each event carries its time. This costs 10 to 40 ns for each event where
    /// the processor has an invariant counter, and about twice as much elsewhere. At most half a
    /// million events are kept. If there are more, or more than this thread can copy, events are
    /// missing, and the first event after a gap [says so](TraceEvent::follows_gap).
    ///
    /// # Errors
    /// [`TraceError`]: there is no recorder, another call traces this scheduler, or the window
    /// exceeds the maximum.
    ///
    /// # Blocking
    /// Blocks the thread for as long as the window lasts. In a process this is a [blocking
    /// section](crate::blocking()). On a [test clock](crate::Builder::test_clock) a window has no
    /// end, because the clock stands still, so this returns what [`dump`](Self::dump) returns.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::Scheduler;
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let trace = scheduler.trace(Duration::from_millis(1))?;
    /// trace.write_to(Vec::new())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace(&self, window: Duration) -> Result<Trace, TraceError> {
        Trace::of_window(self.shared(), window)
    }
}

impl Trace {
    /// Blocks the thread for the window, and records the events of the window. See
    /// [`Scheduler::trace`].
    pub(crate) fn of_window(shared: &Shared, window: Duration) -> Result<Self, TraceError> {
        if window > WINDOW_MAX {
            return Err(TraceError::TooLong(window));
        }
        if !shared.recorder.is_on() {
            return Err(TraceError::Off);
        }
        if shared.world.is_test() {
            return Ok(Self::of(shared));
        }
        let _section = Section::enter();
        let fine = FineWindow::begin(shared).ok_or(TraceError::Busy)?;
        let mut collector = Collector::from_now(shared);
        let until = shared.world.now().saturating_add(crate::sys::nanoseconds(window));
        loop {
            let now = shared.world.now();
            if now >= until {
                break;
            }
            shared.world.rest((until - now).min(COLLECT_EVERY));
            collector.collect();
        }
        drop(fine);
        Ok(Self { recording: collector.finish(), tracks: Vec::new() })
    }
}

/// The time during which events carry their times.
struct FineWindow<'a>(&'a Shared);

impl<'a> FineWindow<'a> {
    fn begin(shared: &'a Shared) -> Option<Self> {
        let rings = shared.workforce.seats.used().map(|seat| &seat.ring);
        shared.recorder.set_fine(rings, true).then_some(Self(shared))
    }
}

impl Drop for FineWindow<'_> {
    fn drop(&mut self) {
        self.0.recorder.set_fine(self.0.workforce.seats.used().map(|seat| &seat.ring), false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FineWindow, TraceError};
    use crate::Scheduler;

    #[test]
    fn one_window_is_recorded_at_a_time() {
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it has a thread");
        scheduler.spawn(async {}).join().expect("it ends");
        let window = FineWindow::begin(scheduler.shared()).expect("no other has begun");
        let busy = scheduler.trace(Duration::ZERO).expect_err("a window is recorded");
        assert_eq!(busy, TraceError::Busy);
        drop(window);
        scheduler.trace(Duration::ZERO).expect("the window has ended");
    }
}
