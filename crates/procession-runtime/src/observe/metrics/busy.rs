//! How busy workers were, over a window that ends now.

/// The least length of a window, in nanoseconds.
const WINDOW_MIN: u64 = 1_000_000_000;

/// The time in which a worker was in steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BusyTime {
    /// In seconds, since the start.
    pub(super) total: f64,
    /// The part of the window, from 0 to 1.
    pub(super) ratio: f64,
}

/// A time, and how long each worker had been busy until then.
#[derive(Clone, Debug, Default)]
struct BusyMark {
    at: u64,
    busy: Vec<u64>,
}

/// The begin of the window, and of the next window. A window begins at the first reading, or at an
/// earlier reading that is at least a second old. So readings that follow shortly after another do
/// not spoil the figures.
#[derive(Clone, Debug, Default)]
pub(super) struct BusyWindow {
    begin: BusyMark,
    next: BusyMark,
}

impl BusyWindow {
    /// Returns the times of all workers at a reading, given their sums in nanoseconds.
    pub(super) fn times(&mut self, now: u64, busy: &[u64]) -> Vec<BusyTime> {
        if now.saturating_sub(self.next.at) >= WINDOW_MIN {
            let mark = BusyMark { at: now, busy: busy.to_vec() };
            self.begin = std::mem::replace(&mut self.next, mark);
        }
        let window = now.saturating_sub(self.begin.at).max(1) as f64;
        let time = |(worker, &sum): (usize, &u64)| {
            let before = self.begin.busy.get(worker).copied().unwrap_or(0);
            let ratio = (sum.saturating_sub(before) as f64 / window).min(1.0);
            BusyTime { total: sum as f64 / 1e9, ratio }
        };
        busy.iter().enumerate().map(time).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::BusyWindow;

    #[test]
    fn a_window_is_a_second_long_at_least_and_ends_now() {
        const SECOND: u64 = 1_000_000_000;
        let mut window = BusyWindow::default();
        let mut ratio = |now: u64, busy: u64| window.times(now, &[busy])[0].ratio;
        assert_eq!(ratio(10 * SECOND, 5 * SECOND), 0.5, "since the start");
        assert_eq!(ratio(10 * SECOND + SECOND / 2, 5 * SECOND), 5.0 / 10.5, "too soon");
        assert_eq!(ratio(12 * SECOND, 6 * SECOND), 0.5, "since the first reading");
        assert_eq!(ratio(14 * SECOND, 6 * SECOND), 0.0, "since the third");
        assert_eq!(ratio(15 * SECOND, 9 * SECOND), 1.0, "a sample can be too long");
        assert!(window.times(16 * SECOND, &[9 * SECOND, 3])[1].ratio > 0.0, "a new worker");
    }
}
