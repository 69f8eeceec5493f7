//! What happened in a run, in words.

use std::panic::Location;

/// The kind of a failure. Two runs fail alike if the kinds are equal. For a law or a panic, the
/// texts must also be equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A law of the runtime.
    Law,
    /// A law of the program, with its place.
    Always(String),
    /// A panic, with its place.
    Panic(String),
    Deadlock,
    Livelock,
    /// A step that does not end.
    Stuck,
}

/// Why a run failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// Virtual nanoseconds from the start of the run.
    pub(crate) after: u64,
}

impl Failure {
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let texts_count = !matches!(self.kind, Kind::Panic(_) | Kind::Stuck);
        self.kind == other.kind && (!texts_count || self.text == other.text)
    }

    /// Returns what failed, and where.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Always(place) => format!("{} ({place})", self.text),
            Kind::Panic(place) => format!("panicked: {} ({place})", self.text),
            Kind::Deadlock => format!("deadlock: {}", self.text),
            Kind::Livelock => format!("livelock: {}", self.text),
            Kind::Stuck => format!("a step does not end: {}", self.text),
            Kind::Law => self.text.clone(),
        }
    }
}

/// The events of a run. Nothing is kept unless the story is to be told.
#[derive(Debug, Default)]
pub(crate) struct Story {
    is_told: bool,
    /// The time of each event, in nanoseconds of the clock.
    pub(crate) events: Vec<(u64, String)>,
    /// What the running thread does at this point.
    pub(crate) place: Option<String>,
    /// The thread that has the turn, by index.
    pub(crate) running: Option<usize>,
    /// The processes that waited when the program was deadlocked, or the threads when a law was
    /// broken.
    pub(crate) waiting: Vec<String>,
}

impl Story {
    pub(crate) fn told() -> Self {
        Self { is_told: true, ..Self::default() }
    }

    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    pub(crate) fn tell(&mut self, now: u64, text: impl FnOnce() -> String) {
        if self.is_told {
            self.events.push((now, text()));
        }
    }
}

/// Names a place in the source.
pub(crate) fn place(location: &Location<'_>) -> String {
    format!("{}:{}", location.file(), location.line())
}
