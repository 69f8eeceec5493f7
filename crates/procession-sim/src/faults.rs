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
    /// A signal interrupts a call on a socket, or a wait for events.
    Interrupted,
    /// Events of descriptors come late, one at a time, in another order, twice, or for a direction
    /// that is not ready.
    Events,
    /// A write to a stream takes only a part of the bytes.
    ShortWrite,
    /// The bytes of a connection arrive 1, 2, 7 or 100 at a time.
    SmallReads,
    /// What is sent between hosts, and the lookup of a name, take up to 5 s longer.
    SlowNetwork,
    /// A connection is reset.
    Reset,
    /// A request to connect is refused.
    Refused,
    /// A request to connect gets no answer.
    NoAnswer,
    /// The way between two hosts is cut for 1 ms to 10 s, in one direction or in both.
    Partition,
    /// A datagram is lost, or comes twice. With [`SlowNetwork`](Self::SlowNetwork), datagrams
    /// overtake each other.
    Datagrams,
    /// The system has no descriptor left for a socket.
    NoDescriptor,
    /// The system refuses memory for the stack of a coroutine. The coroutine ends before it begins,
    /// with [`Exit::Failed`](procession::Exit::Failed).
    StackRefused,
    /// The child of a supervisor does not start, as if the scheduler had reached its limit of
    /// processes. A value or closure of the child returns to its caller, and a restart counts.
    ChildRefused,
}

const ALL: [Fault; 20] = [
    Fault::Stall,
    Fault::LateWake,
    Fault::EarlyWake,
    Fault::ThreadRefused,
    Fault::ClockLeap,
    Fault::CoarseClock,
    Fault::NoMembarrier,
    Fault::Interrupted,
    Fault::Events,
    Fault::ShortWrite,
    Fault::SmallReads,
    Fault::SlowNetwork,
    Fault::Reset,
    Fault::Refused,
    Fault::NoAnswer,
    Fault::Partition,
    Fault::Datagrams,
    Fault::NoDescriptor,
    Fault::StackRefused,
    Fault::ChildRefused,
];

impl Fault {
    /// Returns `true` for a fault of a call or of the network. A run draws which of these exist
    /// when it makes the first such call.
    pub(crate) fn is_of_calls(self) -> bool {
        self as u32 >= Self::Interrupted as u32
    }
}

/// A set of classes of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(u32);

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
        Self(self.0 | 1 << fault as u32)
    }

    /// Returns this set without a class.
    #[must_use]
    pub const fn without(self, fault: Fault) -> Self {
        Self(self.0 & !(1 << fault as u32))
    }

    /// Returns `true` if the class is in the set.
    pub const fn contains(self, fault: Fault) -> bool {
        self.0 & 1 << fault as u32 != 0
    }

    /// Returns the classes that are in one of two sets.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the classes in the set.
    pub(crate) fn iter(self) -> impl Iterator<Item = Fault> {
        ALL.into_iter().filter(move |&fault| self.contains(fault))
    }
}
