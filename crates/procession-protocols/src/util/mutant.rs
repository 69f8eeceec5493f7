//! Mutants: defects that are planted in the whole scheduler, to see whether the simulation finds
//! them.
//!
//! The protocols have their defects as a const parameter, for the canaries of their models. A build
//! with the private cfg `procession_mutant` contains all defects, and plants the defect that the
//! environment variable `PROCESSION_MUTANT` names, for example `driver:4`. Without the variable, it
//! is sound. So one build is enough for `.ci/mutants`.

use procession_sync::atomic::Ordering;

#[cfg(procession_mutant)]
pub use self::chosen::{is, planted};

#[cfg(procession_mutant)]
mod chosen {
    use std::sync::OnceLock;

    /// The protocols. `planted` encodes a protocol by its place in this list.
    const PROTOCOLS: [&str; 24] = [
        "answer",
        "bounded",
        "budget",
        "channel",
        "dependents",
        "driver",
        "idle",
        "join_waker",
        "levels",
        "lifo",
        "lock",
        "on_exit",
        "pace",
        "pins",
        "pool",
        "readiness",
        "requests",
        "shutdown",
        "stalls",
        "state",
        "timers",
        "wait_cycle",
        "wait_edge",
        "watchdog",
    ];
    /// The mutation of the first protocol. No protocol has as many defects.
    const FIRST: u8 = 100;

    const fn is_same(one: &str, other: &str) -> bool {
        let (one, other) = (one.as_bytes(), other.as_bytes());
        let mut at = 0;
        while at < one.len() && at < other.len() && one[at] == other[at] {
            at += 1;
        }
        at == one.len() && at == other.len()
    }

    /// Returns the mutation of a protocol, for a build in which the defect is chosen at run time.
    #[inline]
    pub const fn planted(protocol: &str, _sound: u8) -> u8 {
        let mut place = 0;
        while !is_same(PROTOCOLS[place], protocol) {
            place += 1;
        }
        FIRST + place as u8
    }

    /// Returns `true` if code with this mutation has the defect.
    #[inline]
    pub fn is(mutation: u8, defect: u8) -> bool {
        mutation == defect || chosen() == Some((mutation, defect))
    }

    /// Returns the mutation of the protocol that the environment names, and its defect.
    ///
    /// Threads of a simulation may come here at any point: the cell is one of `std`, so this is no
    /// point itself.
    fn chosen() -> Option<(u8, u8)> {
        static CHOSEN: OnceLock<Option<(u8, u8)>> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let name = std::env::var("PROCESSION_MUTANT").ok()?;
            let parts = name.split_once(':').and_then(|(protocol, defect)| {
                PROTOCOLS.contains(&protocol).then_some(())?;
                Some((planted(protocol, 0), defect.parse().ok()?))
            });
            Some(parts.unwrap_or_else(|| panic!("PROCESSION_MUTANT names no defect: {name}")))
        })
    }
}

/// Returns `sound`: nothing is planted.
#[cfg(not(procession_mutant))]
#[inline]
pub const fn planted(_protocol: &str, sound: u8) -> u8 {
    sound
}

/// Returns `true` if code with this mutation has the defect.
#[cfg(not(procession_mutant))]
#[inline]
pub const fn is(mutation: u8, defect: u8) -> bool {
    mutation == defect
}

/// Returns `order`, or Relaxed if code with this mutation has the defect.
#[inline]
pub fn or_relaxed(mutation: u8, defect: u8, order: Ordering) -> Ordering {
    if is(mutation, defect) { Ordering::Relaxed } else { order }
}
