//! Mutants: builds with a planted defect, to see whether the simulation finds it.
//!
//! The protocols have their defects as a const parameter, for the canaries of their models. Under
//! the private cfg `procession_mutant`, the environment variable `PROCESSION_MUTANT` of the
//! compiler names a protocol and one of its defects, such as `driver:4`. `.ci/mutants` builds them
//! all.

/// Returns the defect to be planted in a protocol, or `sound` for none.
#[cfg(procession_mutant)]
pub(crate) const fn planted(protocol: &str, sound: u8) -> u8 {
    let (Some(mutant), protocol) = (option_env!("PROCESSION_MUTANT"), protocol.as_bytes()) else {
        return sound;
    };
    let mutant = mutant.as_bytes();
    if mutant.len() < protocol.len() + 2 || mutant[protocol.len()] != b':' {
        return sound;
    }
    let mut at = 0;
    while at < protocol.len() {
        if mutant[at] != protocol[at] {
            return sound;
        }
        at += 1;
    }
    let mut number = 0;
    while at + 1 < mutant.len() {
        at += 1;
        number = 10 * number + (mutant[at] - b'0');
    }
    number
}

/// Returns `sound`: nothing is planted.
#[cfg(not(procession_mutant))]
pub(crate) const fn planted(_protocol: &str, sound: u8) -> u8 {
    sound
}
