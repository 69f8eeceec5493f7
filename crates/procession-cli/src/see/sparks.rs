//! The last ten minutes of a program as sparklines.

use serde_json::Value;

use crate::format::{number, short_time};

/// The points that are kept: ten minutes.
const POINTS_MAX: usize = 300;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The width of the names and of the latest figures, with the spaces around the bars.
const NAME: usize = 12;
const FIGURE: usize = 10;
/// Above more columns than this, a line has no more to show.
const BARS_MAX: usize = POINTS_MAX;

/// The points of the last ten minutes, the oldest first, as the door tells them.
#[derive(Debug, Default)]
pub(super) struct History(Vec<Value>);

/// A figure between two points, and how it is written.
struct Series {
    name: &'static str,
    value: fn(&Value, &Value) -> Option<f64>,
    text: fn(f64) -> String,
    /// The value of a full bar, unless that is the greatest of the last ten minutes.
    most: Option<f64>,
}

const SERIES: [Series; 7] = [
    Series {
        name: "work",
        value: |now, before| {
            let sum = |point: &Value| {
                point["busy_us"].as_array().into_iter().flatten().filter_map(Value::as_f64).sum()
            };
            let workers = now["busy_us"].as_array()?.len().max(1) as f64;
            let (now_us, before_us): (f64, f64) = (sum(now), sum(before));
            Some((now_us - before_us) / seconds(now, before)? / 1e4 / workers)
        },
        text: |value| format!("{value:.0} %"),
        most: Some(100.0),
    },
    Series { name: "ready", value: |now, _| now["ready"].as_f64(), text: whole, most: None },
    Series {
        name: "wake to run",
        value: |now, before| Some(slowest(now, before)? as f64),
        text: |value| short_time(value as u64),
        most: None,
    },
    Series { name: "starts", value: |a, b| rate(a, b, "spawned"), text: whole, most: None },
    Series { name: "ends", value: |a, b| rate(a, b, "ended"), text: whole, most: None },
    Series { name: "messages", value: |a, b| rate(a, b, "messages"), text: whole, most: None },
    Series { name: "timers", value: |a, b| rate(a, b, "timers"), text: whole, most: None },
];

fn whole(value: f64) -> String {
    number(&(value.round() as i64).into())
}

fn seconds(now: &Value, before: &Value) -> Option<f64> {
    let passed = now["at_us"].as_f64()? - before["at_us"].as_f64()?;
    (passed > 0.0).then_some(passed / 1e6)
}

fn rate(now: &Value, before: &Value, name: &str) -> Option<f64> {
    Some((now[name].as_f64()? - before[name].as_f64()?) / seconds(now, before)?)
}

/// Returns the bound in nanoseconds of the bucket that 99 % of the wake-ups between two points are
/// within.
fn slowest(now: &Value, before: &Value) -> Option<u64> {
    let counts = |point: &'_ Value| -> Vec<u64> {
        point["wake"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    let (now, before) = (counts(now), counts(before));
    let more: Vec<_> = now.iter().zip(&before).map(|(now, old)| now.saturating_sub(*old)).collect();
    let total: u64 = more.iter().sum();
    let rank = (total as f64 * 0.99).ceil() as u64;
    let mut seen = 0;
    let bucket = more.iter().position(|count| {
        seen += count;
        total > 0 && seen >= rank
    })?;
    // The last bucket has no bound, and counts as twice the bound before it.
    Some(1 << (8 + bucket.min(27)))
}

impl History {
    /// Returns the target that asks for the points after those that are there.
    pub(super) fn target(&self) -> String {
        let last = self.0.last().and_then(|point| point["at_us"].as_u64());
        format!("/history?after={}", last.unwrap_or(0))
    }

    /// Adds the points of an answer.
    pub(super) fn add(&mut self, answer: &Value) {
        self.0.extend(answer["points"].as_array().into_iter().flatten().cloned());
        self.0.drain(..self.0.len().saturating_sub(POINTS_MAX));
    }

    /// Returns a line for each series, which fits the width.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        if self.0.len() < 2 {
            return Vec::new();
        }
        let columns = width.saturating_sub(NAME + FIGURE).clamp(1, BARS_MAX);
        let line = |series: &Series| {
            let pairs = self.0.windows(2).map(|pair| (series.value)(&pair[1], &pair[0]));
            let values: Vec<f64> = pairs.map(|value| value.unwrap_or(0.0).max(0.0)).collect();
            let latest = values.last().copied().unwrap_or(0.0);
            format!(
                "{:<NAME$}{} {}",
                series.name,
                bars(&values, columns, series.most),
                (series.text)(latest)
            )
        };
        let mut lines: Vec<_> = SERIES.iter().map(line).collect();
        lines.extend(self.marks(columns));
        lines
    }

    /// Returns the line with the times of stalls and restarts, if there were any.
    fn marks(&self, columns: usize) -> Option<String> {
        let rises = |pair: &[Value], name: &str| pair[1][name].as_u64() > pair[0][name].as_u64();
        let marks: Vec<char> = self
            .0
            .windows(2)
            .map(|pair| match (rises(pair, "stalls"), rises(pair, "restarts")) {
                (true, _) => 'S',
                (_, true) => 'R',
                _ => ' ',
            })
            .collect();
        let is_any = marks.iter().any(|&mark| mark != ' ');
        let of = |part: &[char]| part.iter().copied().find(|&mark| mark != ' ').unwrap_or(' ');
        let line: String = parts(&marks, columns).map(of).collect();
        is_any.then(|| format!("{:<NAME$}{line} S stalls, R restarts", ""))
    }
}

/// Divides values into at most `columns` parts of nearly equal length.
fn parts<T>(values: &[T], columns: usize) -> impl Iterator<Item = &[T]> {
    let columns = columns.min(values.len());
    (0..columns)
        .map(move |at| &values[at * values.len() / columns..(at + 1) * values.len() / columns])
}

/// Returns a bar for each part of the values, as high as the greatest of the part.
fn bars(values: &[f64], columns: usize, most: Option<f64>) -> String {
    let most =
        most.unwrap_or_else(|| values.iter().copied().fold(0.0, f64::max)).max(f64::MIN_POSITIVE);
    let bar = |part: &[f64]| {
        let value = part.iter().copied().fold(0.0, f64::max);
        BARS[((value / most * 8.0).ceil() as usize).clamp(1, BARS.len()) - 1]
    };
    parts(values, columns).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{History, POINTS_MAX, bars};

    fn point(second: u64) -> Value {
        let mut wake = vec![0; 27];
        wake[2] = second * 100;
        json!({
            "at_us": second * 1_000_000, "busy_us": [second * 500_000, 0], "ready": second % 4,
            "spawned": second * 10, "ended": second * 9, "messages": second * 1000, "timers": 0,
            "stalls": u64::from(second >= 3), "restarts": 0, "wake": wake,
        })
    }

    #[test]
    fn figures_become_bars_and_the_latest_is_written() {
        let mut history = History::default();
        assert_eq!(history.lines(80), Vec::<String>::new());
        history.add(&json!({"points": (1..=5).map(point).collect::<Vec<_>>()}));
        assert_eq!(history.target(), "/history?after=5000000");
        let expected = [
            "work        ▂▂▂▂ 25 %",
            "ready       ▆█▁▃ 1",
            "wake to run ████ 1 us",
            "starts      ████ 10",
            "ends        ████ 9",
            "messages    ████ 1000",
            "timers      ▁▁▁▁ 0",
            "             S   S stalls, R restarts",
        ];
        assert_eq!(history.lines(80), expected);
        assert!(history.lines(1).iter().all(|line| line.chars().count() < 40), "no room");
        history.add(&json!({"points": (6..=900).map(point).collect::<Vec<_>>()}));
        assert_eq!(history.0.len(), POINTS_MAX);
        assert!(history.lines(80)[0].chars().count() <= 80);
        history.add(&json!({"points": [{}, null, 7]}));
        history.lines(80);
    }

    #[test]
    fn a_bar_is_as_high_as_the_greatest_of_its_part() {
        assert_eq!(bars(&[0.0, 1.0, 0.0, 0.0, 8.0, 0.0], 3, None), "▁▁█");
        assert_eq!(bars(&[50.0], 9, Some(100.0)), "▄");
        assert_eq!(bars(&[], 3, None), "");
    }
}
