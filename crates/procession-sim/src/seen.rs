//! The events that a program should meet in some runs.

use std::collections::BTreeMap;

use procession_sync::host::Mutex;

/// The events of `Sim::sometimes`.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<BTreeMap<String, Asked>>);

/// How often a program has asked about an event, unless it has happened.
#[derive(Debug)]
enum Asked {
    Happened,
    Times(u64),
}

impl Seen {
    pub(crate) fn note(&self, event: &str, happens: bool) {
        let mut events = self.0.lock();
        if !events.contains_key(event) {
            events.insert(event.to_owned(), Asked::Times(0));
        }
        match events.get_mut(event) {
            Some(asked) if happens => *asked = Asked::Happened,
            Some(Asked::Times(times)) => *times += 1,
            _ => {}
        }
    }

    /// Returns the catalogue of these events, which are to happen.
    pub(crate) fn of(expected: &[String]) -> Self {
        let events = expected.iter().map(|event| (event.clone(), Asked::Times(0)));
        Self(Mutex::new(events.collect()))
    }

    /// Returns the events that have never happened, with how often they were asked about.
    pub(crate) fn missing(&self) -> Option<String> {
        let events = self.0.lock();
        let missing = events.iter().filter_map(|(event, asked)| match asked {
            Asked::Happened => None,
            Asked::Times(0) => Some(format!("{event} (never asked)")),
            Asked::Times(1) => Some(format!("{event} (asked once)")),
            Asked::Times(times) => Some(format!("{event} (asked {times} times)")),
        });
        let missing: Vec<_> = missing.collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }
}
