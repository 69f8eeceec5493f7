//! Numbers, durations and texts for people.

use std::fmt;

use serde_json::Value;

/// Returns a text without what would move the cursor, change colours, or reorder characters.
pub(super) fn plain(text: &str) -> String {
    escaped(text, is_risky)
}

/// Returns a text of several lines without what would do more than begin a line or indent it.
pub(crate) fn plain_lines(text: &impl fmt::Display) -> String {
    escaped(&text.to_string(), |c| is_risky(c) && c != '\n' && c != '\t')
}

fn is_risky(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let escape = |c: char| match is_escaped(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Returns a text of an answer, or `-` if there is none.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| String::from("-"), plain)
}

/// Returns a whole number of an answer with at most six characters.
pub(super) fn number(value: &Value) -> String {
    let Some(number) = value.as_i64() else { return String::from("-") };
    let size = number.unsigned_abs();
    let with = |unit: u64, letter: char| format!("{}{letter}", number / unit as i64);
    match size {
        0..=99_999 => number.to_string(),
        100_000..=9_999_999 => with(1000, 'k'),
        10_000_000..=9_999_999_999 => with(1_000_000, 'M'),
        _ => with(1_000_000_000, 'G'),
    }
}

/// Returns a share of a processor in percent.
pub(super) fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| String::from("-"), |share| format!("{:.1}", share * 100.0))
}

/// Returns a duration in milliseconds with one unit.
pub(super) fn duration(value: &Value) -> String {
    let Some(milliseconds) = value.as_u64() else { return String::from("-") };
    match milliseconds {
        0 => String::from("-"),
        1..=9_999 => format!("{:.1} s", milliseconds as f64 / 1e3),
        10_000..=599_999 => format!("{} s", milliseconds / 1000),
        600_000..=35_999_999 => format!("{} min", milliseconds / 60_000),
        _ => format!("{} h", milliseconds / 3_600_000),
    }
}

/// Returns a time in nanoseconds with one unit.
pub(super) fn short_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        _ => format!("{:.1} s", nanoseconds as f64 / 1e9),
    }
}

/// Returns the last components of a location, which say more than the first components.
pub(super) fn short_location(value: &Value) -> String {
    let location = text(value);
    let mut parts: Vec<_> = location.rsplit('/').take(3).collect();
    parts.reverse();
    parts.join("/")
}

/// Returns what a process waits for: the reasons, the process, and how long.
pub(super) fn wait(wait: &Value) -> String {
    let Some(reasons) = wait["reasons"].as_array() else { return String::new() };
    let mut said = String::from(if wait["in_cycle"] == true { "CYCLE: " } else { "" });
    said.push_str(&reasons.iter().map(text).collect::<Vec<_>>().join(", "));
    if let Some(target) = wait["target"].as_str() {
        said.push_str(&format!(" of {}", plain(target)));
    }
    if wait["at_least_ms"].as_u64().is_some_and(|age| age > 0) {
        said.push_str(&format!(", {}", duration(&wait["at_least_ms"])));
    }
    said
}

/// Returns the state of a process. A process that is suspended would be ready otherwise.
pub(super) fn state(row: &Value) -> String {
    if row["suspended"] == true { String::from("suspended") } else { text(&row["state"]) }
}

/// Returns what a process is called: its label, or the location of its spawn.
pub(super) fn title(row: &Value) -> String {
    if row["label"].is_string() { text(&row["label"]) } else { short_location(&row["location"]) }
}

#[cfg(test)]
mod tests {
    use super::{duration, number, plain, short_location, short_time, wait};
    use serde_json::json;

    #[test]
    fn texts_cannot_move_the_cursor() {
        assert_eq!(plain("a\x1b[2Jb\u{9b}c\u{202e}é"), "a\\u{1b}[2Jb\\u{9b}c\\u{202e}é");
    }

    #[test]
    fn figures_are_short() {
        let numbers = [0_i64, 99_999, 100_000, -100_001, 12_345_678, i64::MAX];
        let said = numbers.map(|value| number(&json!(value)));
        assert_eq!(said, ["0", "99999", "100k", "-100k", "12M", "9223372036G"]);
        let ages = [0, 1, 9_999, 10_000, 600_000, 36_000_000].map(|age| duration(&json!(age)));
        assert_eq!(ages, ["-", "0.0 s", "10.0 s", "10 s", "10 min", "10 h"]);
        let times = [256, 1 << 10, 1 << 20, 1 << 33].map(short_time);
        assert_eq!(times, ["256 ns", "1 us", "1 ms", "8.6 s"]);
        assert_eq!(short_location(&json!("/a/b/src/bank.rs:42")), "b/src/bank.rs:42");
    }

    #[test]
    fn a_wait_says_for_what_for_whom_and_since_when() {
        let value = json!({
            "reasons": ["reply", "timer"], "target": "p1.2.3", "at_least_ms": 4200, "in_cycle": true
        });
        assert_eq!(wait(&value), "CYCLE: reply, timer of p1.2.3, 4.2 s");
        assert_eq!(wait(&json!(null)), "");
    }
}
