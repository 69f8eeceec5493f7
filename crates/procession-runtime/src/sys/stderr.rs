//! The writer of lines to standard error, one for the whole program.
//!
//! # Protocol of the writer
//!
//! ## Problem
//! If the reader of standard error is slow, a write blocks its thread. A worker must not wait for
//! it, however many processes fail, and neither must a shutdown.
//!
//! ## Steps
//! Caller: `Admit` under the lock, counts the line against the limit of this second · `Format`
//! without the lock · `Push` under the lock, appends the line, and wakes or starts the writer
//! thread.
//!
//! Writer thread: `WriterStep` under the lock, takes a line or decides how long to sleep · `Write`
//! without the lock · `Settle` under the lock, notifies the threads that flush.
//!
//! Flushing thread: `Wait` under the lock, until nothing is left to write or the time is over. If
//! it is over, marks the writer as stuck, so that the next flush does not wait.
//!
//! ## Allowed
//! A line that is not admitted, or finds 256 others, is lost and counted. A line that was pushed by
//! the time at which the program exits may be lost. If the system refuses the thread, the lines
//! stay where they are, and the next report or flush tries again.
//!
//! ## Checked by
//! The tests below, and `tests/it/reports.rs` in child processes. Everything shared is plain data
//! under one lock, so there is no model. The flag outside the lock only saves taking the lock: a
//! thread that learned of an end sees what was pushed before that end.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::{Condvar, Mutex, MutexGuard};

use crate::sys::{World, os};
use crate::util::bounded_text::bounded_text;

/// The maximum length of a line in bytes, with the line break. A pipe takes that much in one piece.
pub(crate) const LINE_MAX: usize = 1024;

/// The character that stands for text that was cut.
const ELLIPSIS: char = '…';
/// The maximum number of reports that are written in one second. Stalls have the same maximum.
const REPORTS_PER_SECOND: u32 = 10;
/// The maximum number of lines that wait, enough for half a minute.
const LINES_MAX: usize = 256;
const SECOND: u64 = 1_000_000_000;
/// The time after which the idle writer thread ends.
const LINGER: Duration = Duration::from_secs(1);
/// The size of the thread's stack in bytes. It only copies bytes.
const STACK_BYTES: usize = 128 << 10;
/// The maximum time for which a shutdown waits for standard error.
pub(crate) const FLUSH_MAX: Duration = Duration::from_millis(100);

/// The writer of the program.
static WRITER: Writer = Writer::new();

/// Returns the line of a text, with the name of the program part that writes and a line break.
/// It has at most [`LINE_MAX`] bytes.
pub(crate) fn line_of(text: &dyn fmt::Display) -> String {
    let room = LINE_MAX - ELLIPSIS.len_utf8() - 1;
    let (mut line, is_whole) = bounded_text(format_args!("procession: {text}"), room);
    if !is_whole {
        line.push(ELLIPSIS);
    }
    line.push('\n');
    line
}

/// Writes a report to standard error, soon and from another thread. In a simulated system, writes
/// nothing, because a campaign repeats each failure many times, and reports it itself.
pub(crate) fn write(world: &World, report: &dyn fmt::Display) {
    if !is_simulated(world) {
        WRITER.push(world, report);
    }
}

/// Waits until everything that waits to be written is written, for at most `timeout`.
#[cold]
pub(crate) fn flush(world: &World, timeout: Duration) {
    if !is_simulated(world) {
        WRITER.flush(world, timeout);
    }
}

/// Returns `true` if the scheduler or the calling thread belongs to a simulated system. A scheduler
/// with the test clock can be driven there: the thread of the writer would be a simulated one, and
/// hold the only turn while it lingers.
fn is_simulated(world: &World) -> bool {
    world.simulated().is_some() || os::here().is_some()
}

/// Returns `true` if a flush would wait.
#[inline]
pub(crate) fn is_unsettled() -> bool {
    // Relaxed: see "Checked by".
    WRITER.unsettled.load(Relaxed)
}

/// Returns `true` if a flush for the scheduler of this world would wait. What other schedulers of
/// the program report does not change the run of a simulated one.
pub(crate) fn is_unsettled_in(world: &World) -> bool {
    is_unsettled() && !is_simulated(world)
}

struct Writer {
    state: Mutex<WriterState>,
    /// Wakes the writer thread.
    work: Condvar,
    /// Wakes the threads that flush.
    progress: Condvar,
    /// Set if there is anything to write. Written under the lock.
    unsettled: AtomicBool,
}

struct WriterState {
    lines: VecDeque<String>,
    /// The time at which the current second began, and the number of lines admitted in it.
    second: u64,
    admitted: u32,
    /// The number of lines that exceeded the maximum of their second, and the time at which this
    /// number is written.
    withheld: u64,
    withheld_until: u64,
    /// Set if the number was written in the current second, at the wish of a flush.
    has_counted: bool,
    /// The number of lines that found no room.
    lost: u64,
    has_thread: bool,
    sleeps: bool,
    writes: bool,
    /// The number of threads that flush.
    flushing: u32,
    /// Set if nothing was written since a flush gave up.
    is_stuck: bool,
}

/// The next action of the writer thread.
#[derive(Debug, PartialEq, Eq)]
enum WriterStep {
    Write(String),
    /// Sleeps until a time.
    Wait(u64),
    Idle,
}

impl WriterState {
    const fn new() -> Self {
        Self {
            lines: VecDeque::new(),
            second: 0,
            admitted: 0,
            withheld: 0,
            withheld_until: 0,
            has_counted: false,
            lost: 0,
            has_thread: false,
            sleeps: false,
            writes: false,
            flushing: 0,
            is_stuck: false,
        }
    }

    /// Begins another second if the current one is over.
    fn turn(&mut self, now: u64) {
        if now.saturating_sub(self.second) >= SECOND {
            (self.second, self.admitted, self.has_counted) = (now, 0, false);
        }
    }

    /// Counts a line. Returns `true` if it may be pushed.
    fn admit(&mut self, now: u64) -> bool {
        self.turn(now);
        if self.admitted == REPORTS_PER_SECOND {
            if self.withheld == 0 {
                self.withheld_until = self.second.saturating_add(SECOND);
            }
            self.withheld += 1;
            return false;
        }
        self.admitted += 1;
        if self.lines.len() >= LINES_MAX {
            self.lost += 1;
            return false;
        }
        true
    }

    fn next(&mut self, now: u64) -> WriterStep {
        self.turn(now);
        if self.withheld > 0 && now >= self.withheld_until {
            return self.count_withheld();
        }
        if let Some(line) = self.lines.pop_front() {
            return WriterStep::Write(line);
        }
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            return WriterStep::Write(line_of(&format_args!(
                "{} not written, because standard error is slow",
                UnwrittenReports(lost)
            )));
        }
        match self.withheld {
            0 => WriterStep::Idle,
            _ if self.flushing > 0 && !self.has_counted => {
                self.has_counted = true;
                self.count_withheld()
            }
            _ => WriterStep::Wait(self.withheld_until),
        }
    }

    fn count_withheld(&mut self) -> WriterStep {
        let withheld = std::mem::take(&mut self.withheld);
        WriterStep::Write(line_of(&format_args!(
            "{} not written in the last second",
            UnwrittenReports(withheld)
        )))
    }

    /// Returns `true` if a flush has nothing to wait for.
    fn is_settled(&self) -> bool {
        let counts = self.lost == 0 && (self.withheld == 0 || self.has_counted);
        self.lines.is_empty() && !self.writes && counts
    }
}

/// A number of reports as the beginning of a sentence.
struct UnwrittenReports(u64);

impl fmt::Display for UnwrittenReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 more report was"),
            count => write!(f, "{count} more reports were"),
        }
    }
}

impl Writer {
    const fn new() -> Self {
        Self {
            state: Mutex::new(WriterState::new()),
            work: Condvar::new(),
            progress: Condvar::new(),
            unsettled: AtomicBool::new(false),
        }
    }

    fn push(&'static self, world: &World, report: &dyn fmt::Display) {
        let mut state = self.state.lock();
        if state.admit(World::real_now()) {
            drop(state);
            let line = line_of(report);
            state = self.state.lock();
            state.lines.push_back(line);
        }
        self.unsettled.store(true, Relaxed);
        self.rouse(world, state);
    }

    /// Wakes or starts the writer thread.
    fn rouse(&'static self, world: &World, mut state: MutexGuard<'_, WriterState>) {
        if state.has_thread {
            if std::mem::take(&mut state.sleeps) {
                self.work.notify_one();
            }
            return;
        }
        state.has_thread = true;
        drop(state);
        let name = String::from("procession-reports");
        if world.start_thread_of(name, Some(STACK_BYTES), || self.run()).is_err() {
            self.state.lock().has_thread = false;
        }
    }

    /// The body of the writer thread.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let timeout = match state.next(World::real_now()) {
                WriterStep::Write(line) => {
                    state.writes = true;
                    drop(state);
                    // Ignored: a standard error that is closed has no reader.
                    drop(std::io::stderr().write_all(line.as_bytes()));
                    state = self.state.lock();
                    (state.writes, state.is_stuck) = (false, false);
                    if state.flushing > 0 {
                        self.progress.notify_all();
                    }
                    continue;
                }
                WriterStep::Wait(until) => {
                    Duration::from_nanos(until.saturating_sub(World::real_now()))
                }
                WriterStep::Idle => {
                    self.unsettled.store(false, Relaxed);
                    LINGER
                }
            };
            state.sleeps = true;
            let (again, is_over) = self.work.wait_timeout(state, timeout);
            state = again;
            state.sleeps = false;
            if is_over && state.lines.is_empty() && state.withheld == 0 && state.lost == 0 {
                state.has_thread = false;
                return;
            }
        }
    }

    fn flush(&'static self, world: &World, timeout: Duration) {
        let mut state = self.state.lock();
        state.turn(World::real_now());
        if state.is_stuck || state.is_settled() {
            return;
        }
        state.flushing += 1;
        self.rouse(world, state);
        let state = self.state.lock();
        let waits = |state: &mut WriterState| state.has_thread && !state.is_settled();
        let (mut state, _) = self.progress.wait_timeout_while(state, timeout, waits);
        state.flushing -= 1;
        // A shorter wait says nothing about standard error.
        state.is_stuck |= !state.is_settled() && timeout >= FLUSH_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        LINE_MAX, LINES_MAX, REPORTS_PER_SECOND, SECOND, WriterState, WriterStep, line_of,
    };

    fn push(state: &mut WriterState, now: u64, count: u32) -> u32 {
        (0..count)
            .filter(|_| {
                let admitted = state.admit(now);
                if admitted {
                    state.lines.push_back(format!("at {now}"));
                }
                admitted
            })
            .count() as u32
    }

    fn written(state: &mut WriterState, now: u64) -> Vec<String> {
        let next = std::iter::from_fn(|| match state.next(now) {
            WriterStep::Write(line) => Some(line),
            WriterStep::Wait(_) | WriterStep::Idle => None,
        });
        next.collect()
    }

    #[test]
    fn a_line_is_never_longer_than_its_limit() {
        for length in LINE_MAX - 20..LINE_MAX + 20 {
            let line = line_of(&"é".repeat(length / 2));
            assert!(line.len() <= LINE_MAX && line.ends_with('\n'), "{length}: {}", line.len());
            assert_eq!(line.contains('…'), "procession: \n".len() + length / 2 * 2 > LINE_MAX - 3);
        }
    }

    #[test]
    fn a_burst_is_counted_when_its_second_is_over() {
        let mut state = WriterState::new();
        let start = 5 * SECOND;
        assert_eq!(push(&mut state, start, 41), REPORTS_PER_SECOND);
        assert_eq!(written(&mut state, start).len(), 10);
        assert_eq!(state.next(start + 1), WriterStep::Wait(start + SECOND));
        let counted = "procession: 31 more reports were not written in the last second\n";
        assert_eq!(written(&mut state, start + SECOND), [counted]);
        assert_eq!(state.next(start + SECOND), WriterStep::Idle);
    }

    #[test]
    fn another_second_does_not_delay_the_count() {
        let mut state = WriterState::new();
        push(&mut state, SECOND, 11);
        written(&mut state, SECOND);
        assert_eq!(push(&mut state, 2 * SECOND, 11), REPORTS_PER_SECOND);
        let lines = written(&mut state, 2 * SECOND);
        assert!(lines[0].contains(" 2 more reports were"), "{lines:?}");
        assert_eq!(lines.len(), 11);
    }

    #[test]
    fn a_flush_has_the_count_written_once_in_a_second() {
        let mut state = WriterState::new();
        state.flushing = 1;
        push(&mut state, SECOND, 12);
        assert!(!state.is_settled());
        assert_eq!(written(&mut state, SECOND).len(), 11);
        assert!(state.is_settled());
        push(&mut state, SECOND + 1, 5);
        assert_eq!(written(&mut state, SECOND + 1).len(), 0);
        assert!(state.is_settled(), "it does not wait for the next second");
        assert_eq!(written(&mut state, 2 * SECOND).len(), 1);
    }

    #[test]
    fn lines_beyond_the_ring_are_counted_behind_it() {
        let mut state = WriterState::new();
        let seconds = (LINES_MAX as u64).div_ceil(10) + 1;
        let pushed: u32 = (1..=seconds).map(|at| push(&mut state, at * SECOND, 10)).sum();
        assert_eq!(pushed as usize, LINES_MAX);
        let lines = written(&mut state, seconds * SECOND);
        assert_eq!(lines.len(), LINES_MAX + 1);
        let lost = seconds * 10 - LINES_MAX as u64;
        assert!(lines[LINES_MAX].contains(&format!(" {lost} more reports were not written, bec")));
    }
}
