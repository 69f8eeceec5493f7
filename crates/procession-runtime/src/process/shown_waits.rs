//! The reasons why a process waits, as they are shown.

use std::fmt;

use crate::process::wait_reason::Waiting;

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
            Self::Waker => Waiting::default(),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Waiting {
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

    /// Returns `true` if the process waits for this, perhaps among others. A process that waits for
    /// nothing of the runtime waits for a [`Waker`](WaitReason::Waker).
    pub fn contains(self, reason: WaitReason) -> bool {
        match reason {
            WaitReason::Waker => self.shown() == Self::default(),
            other => self.has(other.flag()),
        }
    }

    /// Returns the reasons, at least one.
    pub fn reasons(self) -> impl Iterator<Item = WaitReason> {
        WaitReason::ALL.into_iter().filter(move |&reason| self.contains(reason))
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
