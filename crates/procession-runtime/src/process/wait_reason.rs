//! The reasons why a process waits.

use std::fmt;

use procession_protocols::process::state::WaitPhase;
use procession_sync::atomic::AtomicU16;
use procession_sync::atomic::Ordering::Relaxed;

/// One reason for which a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WaitReason {
    /// A message.
    Message,
    /// A timer.
    Timer,
    /// The end of a process.
    Process,
    /// The reply to a call.
    Reply,
    /// The completion of a command.
    Completion,
    /// A cancel.
    Cancel,
    /// A message, or room for one, in a channel.
    Channel,
    /// A lock, a permit or a condition.
    Lock,
    /// A wake token, of a suspended coroutine.
    Token,
    /// Room in a mailbox.
    Room,
    /// A readable descriptor.
    Readable,
    /// A writable descriptor.
    Writable,
    /// A pool.
    Pool,
    /// A stack for a coroutine.
    Stack,
    /// A waker that does not belong to the runtime, and nothing else.
    Waker,
}

impl WaitReason {
    /// All reasons.
    pub const ALL: [Self; 15] = [
        Self::Message,
        Self::Timer,
        Self::Process,
        Self::Reply,
        Self::Completion,
        Self::Cancel,
        Self::Channel,
        Self::Lock,
        Self::Token,
        Self::Room,
        Self::Readable,
        Self::Writable,
        Self::Pool,
        Self::Stack,
        Self::Waker,
    ];

    /// Returns the name of the reason, which [`FromStr`](std::str::FromStr) reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Timer => "timer",
            Self::Process => "process",
            Self::Reply => "reply",
            Self::Completion => "completion",
            Self::Cancel => "cancel",
            Self::Channel => "channel",
            Self::Lock => "lock",
            Self::Token => "token",
            Self::Room => "room",
            Self::Readable => "readable",
            Self::Writable => "writable",
            Self::Pool => "pool",
            Self::Stack => "stack",
            Self::Waker => "waker",
        }
    }

    fn flag(self) -> Waiting {
        match self {
            Self::Message => Waiting::MESSAGE,
            Self::Timer => Waiting::TIMER,
            Self::Process => Waiting::PROCESS,
            Self::Reply => Waiting::REPLY,
            Self::Completion => Waiting::COMPLETION,
            Self::Cancel => Waiting::CANCEL,
            Self::Channel => Waiting::CHANNEL,
            Self::Lock => Waiting::LOCK,
            Self::Token => Waiting::TOKEN,
            Self::Room => Waiting::ROOM,
            Self::Readable => Waiting::READABLE,
            Self::Writable => Waiting::WRITABLE,
            Self::Pool => Waiting::JOB,
            Self::Stack => Waiting::STACK,
            Self::Waker => Waiting(0),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reasons for which the process in a slot waits. Written by the process only, and by the
/// thread that occupies the slot.
#[derive(Debug, Default)]
pub(crate) struct WaitWord(AtomicU16);

impl WaitWord {
    /// Clears the reasons of the last step.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Adds reasons of this step.
    #[inline]
    pub(crate) fn note(&self, waiting: Waiting) {
        self.0.store(self.0.load(Relaxed) | waiting.bits(), Relaxed);
    }

    /// Removes reasons of this step.
    pub(crate) fn forget(&self, waiting: Waiting) {
        self.0.store(self.0.load(Relaxed) & !waiting.bits(), Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> Waiting {
        Waiting::from_bits(self.0.load(Relaxed))
    }
}

/// The reasons for which a process waits. A process may wait for several reasons at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Waiting(u16);

impl Waiting {
    pub(crate) const MESSAGE: Self = Self(1);
    pub(crate) const TIMER: Self = Self(1 << 1);
    pub(crate) const PROCESS: Self = Self(1 << 2);
    pub(crate) const REPLY: Self = Self(1 << 3);
    pub(crate) const COMPLETION: Self = Self(1 << 4);
    pub(crate) const CANCEL: Self = Self(1 << 5);
    /// Not shown: the `Drop` of the result runs.
    pub(crate) const DROP: Self = Self(1 << 6);
    /// Not shown: a waker was left to be woken before the next step.
    pub(crate) const FOREIGN: Self = Self(1 << 7);
    pub(crate) const CHANNEL: Self = Self(1 << 8);
    pub(crate) const LOCK: Self = Self(1 << 9);
    pub(crate) const TOKEN: Self = Self(1 << 10);
    pub(crate) const ROOM: Self = Self(1 << 11);
    pub(crate) const READABLE: Self = Self(1 << 12);
    pub(crate) const WRITABLE: Self = Self(1 << 13);
    pub(crate) const JOB: Self = Self(1 << 14);
    pub(crate) const STACK: Self = Self(1 << 15);

    /// The reasons for which a process waits for another process that may be known.
    pub(crate) const FOR_ANOTHER: Self =
        Self(Self::PROCESS.0 | Self::REPLY.0 | Self::LOCK.0 | Self::ROOM.0);

    /// The reasons for which a process lends its priority.
    pub(crate) const LENDING: Self = Self(Self::REPLY.0 | Self::LOCK.0);

    const NAMES: [(Self, &str); 14] = [
        (Self::JOB, "pool"),
        (Self::MESSAGE, "message"),
        (Self::TIMER, "timer"),
        (Self::PROCESS, "end of a process"),
        (Self::REPLY, "reply"),
        (Self::COMPLETION, "completion"),
        (Self::CANCEL, "cancel"),
        (Self::CHANNEL, "channel"),
        (Self::LOCK, "lock"),
        (Self::TOKEN, "token"),
        (Self::ROOM, "room in a mailbox"),
        (Self::READABLE, "readable descriptor"),
        (Self::WRITABLE, "writable descriptor"),
        (Self::STACK, "stack"),
    ];

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the reasons, and adds the reasons that end a wait without its event.
    pub(crate) fn or_end(self) -> Self {
        Self(self.0 | Self::TIMER.0 | Self::CANCEL.0)
    }

    /// Returns `true` if there is exactly one reason.
    pub(crate) fn is_one(self) -> bool {
        self.0.is_power_of_two()
    }

    /// Returns `true` if all reasons are among these.
    pub(crate) fn only(self, these: Self) -> bool {
        self.0 & !these.0 == 0
    }

    pub(crate) fn wait_phase(self) -> WaitPhase {
        if self.has(Self::MESSAGE) { WaitPhase::Idle } else { WaitPhase::Blocked }
    }

    /// Returns `true` if the process waits for this, perhaps among others. A process that waits for
    /// nothing of the runtime waits for a [`Waker`](WaitReason::Waker).
    pub fn contains(self, reason: WaitReason) -> bool {
        match reason {
            WaitReason::Waker => self.shown() == Self(0),
            other => self.has(other.flag()),
        }
    }

    /// Returns the reasons, at least one.
    pub fn reasons(self) -> impl Iterator<Item = WaitReason> {
        WaitReason::ALL.into_iter().filter(move |&reason| self.contains(reason))
    }

    /// Returns the reasons without the flags that are not shown.
    pub(crate) fn shown(self) -> Self {
        Self(self.0 & !(Self::DROP.0 | Self::FOREIGN.0))
    }

    /// Returns `true` if the process waits for messages.
    pub fn for_messages(self) -> bool {
        self.has(Self::MESSAGE)
    }

    /// Returns `true` if the process waits for a timer.
    pub fn for_timer(self) -> bool {
        self.has(Self::TIMER)
    }

    /// Returns `true` if the process waits for the end of another process.
    pub fn for_process(self) -> bool {
        self.has(Self::PROCESS)
    }

    /// Returns `true` if the process waits for the reply to a call.
    pub fn for_reply(self) -> bool {
        self.has(Self::REPLY)
    }

    /// Returns `true` if the process waits for room in a mailbox.
    pub fn for_room(self) -> bool {
        self.has(Self::ROOM)
    }

    /// Returns `true` if the process waits for the completion of a command.
    pub fn for_completion(self) -> bool {
        self.has(Self::COMPLETION)
    }

    /// Returns `true` if the process waits for a message, or for room for one, in a channel.
    pub fn for_channel(self) -> bool {
        self.has(Self::CHANNEL)
    }

    /// Returns `true` if the process waits for a lock or a similar object: a mutex, a permit, a
    /// condition.
    pub fn for_lock(self) -> bool {
        self.has(Self::LOCK)
    }

    /// Returns `true` if the process waits for a pool: a place, the end of a job, or the end of the
    /// pool.
    pub fn for_pool(self) -> bool {
        self.has(Self::JOB)
    }

    /// Returns `true` if the process is suspended and waits for a wake token.
    pub fn for_token(self) -> bool {
        self.has(Self::TOKEN)
    }

    /// Returns `true` if the process waits for a descriptor to become readable: for data, or a
    /// connection.
    pub fn for_readable(self) -> bool {
        self.has(Self::READABLE)
    }

    /// Returns `true` if the process waits for a descriptor to become writable: for room, or to be
    /// connected.
    pub fn for_writable(self) -> bool {
        self.has(Self::WRITABLE)
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (waiting, name) in Self::NAMES {
            if self.has(waiting) {
                write!(f, "{separator}{name}")?;
                separator = ", ";
            }
        }
        // The future does not belong to the runtime.
        if separator.is_empty() { f.write_str("a waker") } else { Ok(()) }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({self})")
    }
}
