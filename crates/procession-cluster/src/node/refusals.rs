//! The handshakes and releases that were refused, and the connections that could not be made: how
//! many, and when that is reported.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use procession::process::OnCancel;
use procession::time::Instant;
use procession::{Exit, SpawnOptions};
use procession_sync::Mutex;

/// The time between two reports of refusals for the same cause. Each is kept among the last failed
/// processes of the scheduler, which strangers must not fill.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Ends the running process with a report, if there is one: its failure is what is reported.
pub(crate) fn tell(result: Result<(), Report>) {
    if let Err(report) = result {
        procession::process::exit(Exit::failed(report.to_string()));
    }
}

/// Ends a new process with the report, if there is one.
pub(crate) fn tell_apart(report: Option<Report>) {
    let Some(report) = report else { return };
    let tells = async move { tell(Err(report)) };
    // If the scheduler has no room for the process, there is no report.
    drop(SpawnOptions::new().on_cancel(OnCancel::Drop).spawn(tells));
}

/// The report of a refusal, or of a connection that this node could not make.
#[derive(Debug)]
pub(crate) struct Report {
    what: String,
    why: String,
    /// The refusals for the same cause since the previous report.
    others: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        match self.others {
            0 => Ok(()),
            others => write!(f, " ({others} more since the last report of this kind)"),
        }
    }
}

/// The handshakes that were refused, by cause.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<&'static str, Refusal>>);

#[derive(Debug, Default)]
struct Refusal {
    count: u64,
    /// When one was reported, and how many there were by then.
    reported: Option<(Instant, u64)>,
}

impl Refusals {
    /// Counts a refusal. If it is to be reported, returns the number of earlier refusals that were
    /// not.
    fn count(&self, cause: &'static str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock();
        let refusal = all.entry(cause).or_default();
        refusal.count += 1;
        let before = match refusal.reported {
            Some((at, _)) if now < at + REPORT_EVERY => return None,
            Some((_, before)) => before,
            None => 0,
        };
        refusal.reported = Some((now, refusal.count));
        Some(refusal.count - before - 1)
    }

    /// Counts the refusal of `what`, with the reason `why`. Returns the report, if it is time for
    /// one.
    pub(crate) fn report(
        &self,
        cause: &'static str,
        what: impl FnOnce() -> String,
        why: impl fmt::Display,
    ) -> Option<Report> {
        let others = self.count(cause, Instant::now())?;
        Some(Report { what: what(), why: why.to_string(), others })
    }

    /// Returns the causes, and how many refusals there were for each.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        self.0.lock().iter().map(|(cause, refusal)| ((*cause).to_owned(), refusal.count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use procession::time::Instant;

    use super::{REPORT_EVERY, Refusals};

    #[test]
    fn refusals_are_reported_once_in_a_while() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.count("cookie", start), Some(0));
        let soon = start + (REPORT_EVERY - Duration::from_millis(1));
        assert_eq!([(); 3].map(|()| refusals.count("cookie", soon)), [None; 3]);
        assert_eq!(refusals.count("protocol", soon), Some(0));
        assert_eq!(refusals.count("cookie", start + REPORT_EVERY), Some(3));
        assert_eq!(refusals.counts(), [("cookie".to_owned(), 5), ("protocol".to_owned(), 1)]);
    }
}
