//! The faults of the simulated system.

/// A class of faults. Each run draws which of the allowed classes exist in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A worker does not run for 1 to 500 ms between two steps, as if the system had preempted it.
    Stall,
    /// A woken thread comes up to 50 ms late.
    LateWake,
    /// A thread wakes without a reason.
    EarlyWake,
    /// The system refuses a thread.
    ThreadRefused,
    /// The clock leaps by 20 ms to one hour, as after a suspension of the machine.
    ClockLeap,
    /// The clock advances in steps of 4 ms.
    CoarseClock,
    /// The system has no membarrier(2).
    NoMembarrier,
}

const ALL: [Fault; 7] = [
    Fault::Stall,
    Fault::LateWake,
    Fault::EarlyWake,
    Fault::ThreadRefused,
    Fault::ClockLeap,
    Fault::CoarseClock,
    Fault::NoMembarrier,
];

/// A set of classes of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(u16);

impl Faults {
    /// Returns the set of all classes.
    pub const fn all() -> Self {
        Self((1 << ALL.len()) - 1)
    }

    /// Returns the empty set.
    pub const fn none() -> Self {
        Self(0)
    }

    /// Returns this set with a class.
    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u16)
    }

    /// Returns this set without a class.
    #[must_use]
    pub const fn without(self, fault: Fault) -> Self {
        Self(self.0 & !(1 << fault as u16))
    }

    /// Returns `true` if the class is in the set.
    pub const fn contains(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u16 != 0
    }

    /// Returns the classes in the set.
    pub(crate) fn iter(self) -> impl Iterator<Item = Fault> {
        ALL.into_iter().filter(move |&fault| self.contains(fault))
    }
}
