//! A strict parser of OpenMetrics text, as far as the door writes it.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of an exposition: each with its name and labels, as written.
pub(super) type Samples = BTreeMap<String, f64>;

/// Parses an exposition.
///
/// # Panics
/// Panics if the text breaks a rule of the format.
pub(super) fn parse(text: &str) -> Samples {
    assert!(text.ends_with("\n# EOF\n"), "the text ends with EOF and a line end");
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let mut family: Option<(String, String)> = None;
    let mut histogram = Buckets::default();
    let lines: Vec<_> = text.lines().collect();
    for line in &lines[..lines.len() - 1] {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (keyword, name, rest) =
                (words.next().expect("it has a keyword"), words.next(), words.next());
            let (name, rest) = (name.expect("it has a name"), rest.expect("it has a text"));
            match keyword {
                "TYPE" => {
                    assert!(families.insert(name.to_owned()), "{name} is declared twice");
                    assert!(
                        is_name(name) && ["counter", "gauge", "histogram", "info"].contains(&rest),
                        "{line}"
                    );
                    family = Some((name.to_owned(), rest.to_owned()));
                }
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                "HELP" => {}
                _ => panic!("an unknown keyword: {line}"),
            }
            let of = family.as_ref().expect("TYPE comes first");
            assert_eq!(of.0, name, "metadata of another family: {line}");
            continue;
        }
        let (name, of) = family.as_ref().expect("a sample has a family");
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let value: f64 = value.parse().expect("a value is a number");
        let suffixes: &[&str] = match of.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            _ => &[""],
        };
        let is_of = |suffix: &&&str| series.starts_with(&format!("{name}{suffix}{{"));
        let suffix = suffixes.iter().find(is_of);
        let suffix = suffix.unwrap_or_else(|| panic!("not of family {name}: {line}"));
        check_labels(&series[name.len() + suffix.len() + 1..]);
        if of == "histogram" {
            histogram.check(suffix, series, value);
        }
        assert!(of == "gauge" || value >= 0.0, "a counter is not negative: {line}");
        assert!(value.is_finite(), "{line}");
        assert!(samples.insert(series.to_owned(), value).is_none(), "it is there twice: {line}");
    }
    samples
}

/// The buckets of the histogram that is being read.
#[derive(Default)]
struct Buckets {
    /// The bound of the last one, and the number of values up to it.
    last: Option<(f64, f64)>,
}

impl Buckets {
    fn check(&mut self, suffix: &str, series: &str, value: f64) {
        if suffix == "_bucket" {
            let bound = series.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
            let bound = bound.expect("a bucket has a bound");
            let bound: f64 = bound.trim_start_matches('+').parse().expect("a bound is a number");
            let (before, count) = self.last.unwrap_or((f64::NEG_INFINITY, 0.0));
            assert!(bound > before && value >= count, "the buckets grow: {series} {value}");
            self.last = Some((bound, value));
        } else if suffix == "_count" {
            let (bound, count) = self.last.take().expect("the buckets come first");
            assert!(bound == f64::INFINITY, "the last bucket has no bound");
            assert_eq!(count, value, "the last bucket has all values");
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_start) && name.chars().all(|c| is_start(c) || c.is_ascii_digit())
}

/// Checks what follows the opening brace.
fn check_labels(text: &str) {
    let (mut names, mut rest) = (BTreeSet::new(), text);
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label has a value in quotes");
        assert!(is_name(name) && names.insert(name.to_owned()), "the labels of {text}");
        let mut is_escaped = false;
        let end = after.find(|c: char| {
            let ends = c == '"' && !is_escaped;
            assert!(!is_escaped || "\\\"n".contains(c), "an unknown escape in {text}");
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        rest = &after[end.expect("a value ends") + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    assert_eq!(rest, "}", "the end of the labels of {text}");
}
