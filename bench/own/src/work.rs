//! The unequal work of `co_skew`.

use std::hint::black_box;
use std::time::Duration;

use super::meter::now;
use super::workload::{CO_SKEW_COROUTINES, CO_SKEW_WORK, Scale};

fn work(rounds: u64) -> u64 {
    (0..rounds).fold(1_u64, |x, n| black_box(x.wrapping_mul(31).wrapping_add(n)))
}

/// Returns the rounds of a coroutine. The first has 1 unit of work, the last as many as there are
/// coroutines.
fn rounds(number: u64, scale: Scale) -> u64 {
    (number + 1) * scale.of(CO_SKEW_WORK)
}

/// Does a tenth of the work of a coroutine.
pub(super) fn do_tenth(number: u64, scale: Scale) {
    work(rounds(number, scale) / 10);
}

/// Returns the time that all the work takes on one thread.
pub(super) fn alone(scale: Scale) -> Duration {
    let start = now();
    for number in 0..CO_SKEW_COROUTINES {
        work(rounds(number, scale));
    }
    start.elapsed()
}
