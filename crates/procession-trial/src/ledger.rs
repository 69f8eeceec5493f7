//! The ledger: how many requests were sent and answered, by the independent counts of the runtime,
//! of the service and of the clients.

use std::io::{self, Write};

use procession::observe::{ProcessInfo, ProcessState};
use procession_sync::atomic::Ordering::Relaxed;

use crate::figures::Sums;
use crate::service::Service;

/// A sum that must agree with its parts.
struct Entry {
    what: &'static str,
    total: (u64, &'static str),
    parts: Vec<(u64, &'static str)>,
}

impl Entry {
    fn is_balanced(&self) -> bool {
        self.total.0 == self.parts.iter().map(|(count, _)| count).sum::<u64>()
    }
}

/// A process that had not ended at the deadline, in words.
fn describe(process: &ProcessInfo) -> String {
    let label = process.label.as_deref().unwrap_or("a process");
    format!(
        "{label} ({}, spawned at {}) had not ended: {:?}",
        process.pid, process.location, process.state
    )
}

pub(crate) struct Ledger {
    entries: Vec<Entry>,
    /// The processes that had not ended at the deadline, in words.
    unfinished: Vec<String>,
    lost: u64,
    first_loss: Option<String>,
}

impl Ledger {
    /// Draws up the ledger after the end of the service.
    pub(crate) fn new(service: &Service, sums: &Sums, unfinished: &[ProcessInfo]) -> Self {
        let seen = service.scheduler.snapshot();
        // A process that has ended, and has a result to be taken, counts as ended.
        let alive =
            || seen.processes.iter().filter(|process| process.state != ProcessState::Complete);
        let received: u64 = alive().map(|process| u64::from(process.received)).sum();
        let waiting: u64 = alive().map(|process| u64::from(process.mailbox)).sum();
        let begun = service.begun().unwrap_or_default();
        let load = |count: &procession_sync::atomic::AtomicU64| count.load(Relaxed);
        let [asked, answered, panicked, turned_away, lost] =
            [&sums.asked, &sums.answered, &sums.panicked, &sums.turned_away, &sums.lost].map(load);
        let timers = seen.timers;
        let entry = |what, total, parts: &[_]| Entry { what, total, parts: parts.to_vec() };
        let entries = vec![
            entry(
                "processes",
                (seen.spawned, "spawned"),
                &[(seen.ended, "ended"), (alive().count() as u64, "alive")],
            ),
            entry(
                "messages",
                (seen.messages_sent, "sent"),
                &[
                    (seen.messages_received + received, "received"),
                    (seen.messages_discarded, "discarded at the end of a process"),
                    (waiting, "waiting"),
                ],
            ),
            entry(
                "timers",
                (timers.armed, "armed"),
                &[
                    (timers.fired, "fired"),
                    (timers.cancelled, "cancelled"),
                    (timers.pending, "pending"),
                ],
            ),
            entry(
                "requests",
                (asked, "asked"),
                &[
                    (answered, "answered"),
                    (panicked, "ended by a panic"),
                    (turned_away, "turned away by the shutdown"),
                    (lost, "lost"),
                ],
            ),
            entry(
                "of these begun",
                (begun.work, "counted by the service"),
                &[(answered, "answered to the clients")],
            ),
            entry("panics", (seen.panicked, "processes"), &[(begun.faults, "requests that panic")]),
        ];
        let unfinished = unfinished.iter().map(describe).collect();
        Self { entries, unfinished, lost, first_loss: sums.first_loss() }
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\nThe ledger:")?;
        for entry in &self.entries {
            let (total, name) = entry.total;
            let parts: Vec<String> =
                entry.parts.iter().map(|(count, name)| format!("{count} {name}")).collect();
            let sign = if entry.is_balanced() { "=" } else { "IS NOT" };
            writeln!(out, "  {:<15} {total} {name} {sign} {}", entry.what, parts.join(" + "))?;
        }
        for unfinished in &self.unfinished {
            writeln!(out, "  broken: {unfinished}")?;
        }
        if self.lost > 0 {
            let first = self.first_loss.as_deref().unwrap_or("unknown");
            writeln!(out, "  broken: {} requests were lost; the first: {first}", self.lost)?;
        }
        Ok(())
    }

    /// Returns the number of broken promises.
    pub(crate) fn broken(&self) -> usize {
        let unbalanced = self.entries.iter().filter(|entry| !entry.is_balanced()).count();
        unbalanced + usize::from(!self.unfinished.is_empty()) + usize::from(self.lost > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_does_not_agree_is_told_and_counts() {
        let entry = |total| Entry {
            what: "things",
            total: (total, "in"),
            parts: vec![(1, "out"), (2, "left")],
        };
        let broken = |entries, lost| {
            let ledger = Ledger { entries, unfinished: Vec::new(), lost, first_loss: None };
            let mut text = Vec::new();
            ledger.print(&mut text).expect("a vector has room");
            (ledger.broken(), String::from_utf8(text).expect("it is text"))
        };
        let (count, text) = broken(vec![entry(3)], 0);
        assert_eq!(
            (count, text.contains("things          3 in = 1 out + 2 left")),
            (0, true),
            "{text}"
        );
        let (count, text) = broken(vec![entry(4), entry(3)], 5);
        assert_eq!((count, text.contains("4 in IS NOT 1 out + 2 left")), (2, true), "{text}");
        assert!(text.contains("5 requests were lost"), "{text}");
    }
}
