//! The faults of the simulated system.

/// A class of faults. Each run draws which of the allowed classes exist in it.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A worker does not run for 1 to 500 ms between two steps, as if the system had preempted it.
    Stall,
    /// A woken thread runs up to 50 ms late.
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
    /// Events of descriptors arrive late, one at a time, in another order, twice, or for a
    /// direction that is not ready.
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
    /// A request to connect gets no answer until the faults end, and times out after 127 s.
    NoAnswer,
    /// The way between two hosts is cut for 1 ms to 10 s, in one direction or in both.
    Partition,
    /// A datagram is lost, or arrives twice. With [`SlowNetwork`](Self::SlowNetwork), a datagram
    /// may overtake earlier datagrams.
    Datagrams,
    /// The system has no descriptor left for a socket.
    NoDescriptor,
    /// The system refuses memory for the stack of a coroutine. The coroutine ends before it begins,
    /// with [`Exit::Failed`](procession::Exit::Failed).
    StackRefused,
    /// The child of a supervisor does not start, as if the scheduler had reached its limit of
    /// processes. A value or closure of the child returns to its caller, and a restart counts.
    ChildRefused,
    /// A process is killed in one of its steps, and ends after that step. Not in [`Faults::all`],
    /// because few programs expect this of each of their processes.
    ProcessKilled,
    /// A step of a process panics before it begins. That is no failure of the run, and no panic
    /// hook is called. Not in [`Faults::all`], as above.
    ProcessPanics,
}

impl Fault {
    /// All classes, in the order of their numbers.
    pub(crate) const ALL: [Self; 22] = [
        Self::Stall,
        Self::LateWake,
        Self::EarlyWake,
        Self::ThreadRefused,
        Self::ClockLeap,
        Self::CoarseClock,
        Self::NoMembarrier,
        Self::Interrupted,
        Self::Events,
        Self::ShortWrite,
        Self::SmallReads,
        Self::SlowNetwork,
        Self::Reset,
        Self::Refused,
        Self::NoAnswer,
        Self::Partition,
        Self::Datagrams,
        Self::NoDescriptor,
        Self::StackRefused,
        Self::ChildRefused,
        Self::ProcessKilled,
        Self::ProcessPanics,
    ];

    /// Returns `true` for a fault of a call or of the network. A run draws which of these exist
    /// when it makes the first such call.
    pub(crate) fn is_of_calls(self) -> bool {
        (Self::Interrupted as u32..Self::ProcessKilled as u32).contains(&(self as u32))
    }
}

/// A set of classes of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(u32);

impl Faults {
    /// Returns the set of all classes of the system. [`Fault::ProcessKilled`] and
    /// [`Fault::ProcessPanics`], which end processes of the program, are not among them.
    pub const fn all() -> Self {
        Self((1 << Fault::ProcessKilled as u32) - 1)
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
        Fault::ALL.into_iter().filter(move |&fault| self.contains(fault))
    }
}
