//! The bounds of a mailbox, as a program sets them and sees them.

use procession_protocols::mailbox::bounded::{BoundedFigures, FullPolicy};

use crate::relations::signal::Signal;

/// The policy of a bounded mailbox that is full.
///
/// ```
/// use procession::mailbox::WhenFull;
/// use procession::{Context, Scheduler, SpawnOptions};
///
/// // On one worker, the receiver does not run before its sender waits.
/// let scheduler = Scheduler::builder().worker_threads(1).test_clock().build()?;
/// let received = |policy| {
///     let sender = scheduler.spawn(async move {
///         let options = SpawnOptions::new().mailbox(2, policy);
///         let receiver = options.start(|mut cx: Context<u32>| async move {
///             let mut all = Vec::new();
///             while let Some(n) = cx.recv().await {
///                 all.push(n);
///             }
///             all
///         });
///         let refused = (1..=3).filter(|&n| receiver.send(n).is_err()).count();
///         receiver.cancel();
///         (receiver.await.unwrap(), refused)
///     });
///     scheduler.block_on(sender).unwrap()
/// };
/// assert_eq!(received(WhenFull::Reject), (vec![1, 2], 1));
/// assert_eq!(received(WhenFull::DropNewest), (vec![1, 2], 0));
/// assert_eq!(received(WhenFull::DropOldest), (vec![2, 3], 0));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// Refuses the message, and returns it to the sender.
    Reject,
    /// Lets [`Address::send_wait`](crate::Address::send_wait) wait for room, first come, first
    /// served. Refuses the message of any other send.
    Wait,
    /// Drops the new message.
    DropNewest,
    /// Drops the oldest message, and accepts the new message.
    DropOldest,
    /// Ends the process with [`Exit::MailboxFull`](crate::Exit::MailboxFull), and returns the
    /// message to the sender.
    Kill,
}

impl From<WhenFull> for FullPolicy {
    fn from(policy: WhenFull) -> Self {
        match policy {
            WhenFull::Reject => Self::Reject,
            WhenFull::Wait => Self::Wait,
            WhenFull::DropNewest => Self::DropNewest,
            WhenFull::DropOldest => Self::DropOldest,
            WhenFull::Kill => Self::Kill,
        }
    }
}

impl From<FullPolicy> for WhenFull {
    fn from(policy: FullPolicy) -> Self {
        match policy {
            FullPolicy::Reject => Self::Reject,
            FullPolicy::Wait => Self::Wait,
            FullPolicy::DropNewest => Self::DropNewest,
            FullPolicy::DropOldest => Self::DropOldest,
            FullPolicy::Kill => Self::Kill,
        }
    }
}

/// What a mailbox takes as urgent, set by [`SpawnOptions::urgent`](crate::SpawnOptions::urgent).
/// Urgent messages always are; notices only if they are chosen here.
///
/// What is urgent is received before everything ordinary, in its own order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Urgent {
    downs: bool,
    exits: bool,
    full: bool,
}

impl Urgent {
    /// Only messages of [`send_urgent`](crate::Address::send_urgent).
    pub fn messages() -> Self {
        Self::default()
    }

    /// And the notices of monitors. Such a notice may overtake messages of the process that has
    /// ended.
    pub fn with_downs(self) -> Self {
        Self { downs: true, ..self }
    }

    /// And trapped exit signals. Such a signal may overtake messages of its sender.
    pub fn with_exits(self) -> Self {
        Self { exits: true, ..self }
    }

    /// And a notice, [`Event::MailboxFull`](crate::mailbox::Event::MailboxFull), when the mailbox
    /// of the process refuses or drops a message, or lets its sender wait. The next notice comes
    /// after half of the capacity was free again.
    pub fn with_full_mailbox(self) -> Self {
        Self { full: true, ..self }
    }

    /// Returns `true` if the process is to be told that its mailbox is full.
    pub(crate) fn has_full(self) -> bool {
        self.full
    }

    /// Returns `true` if this signal is urgent.
    pub(crate) fn has(self, signal: &Signal) -> bool {
        match signal {
            Signal::Down(_) => self.downs,
            Signal::Exit(_) => self.exits,
            Signal::MailboxFull => self.full,
        }
    }
}

/// The counters of a bounded mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MailboxSnapshot {
    /// The maximum number of messages.
    pub capacity: u32,
    /// The policy of the full mailbox.
    pub when_full: WhenFull,
    /// The number of senders that wait for room.
    pub waiting: usize,
    /// The number of messages that were refused.
    pub refused: u64,
    /// The number of messages that were dropped, new or old.
    pub dropped: u64,
}

impl From<BoundedFigures> for MailboxSnapshot {
    fn from(figures: BoundedFigures) -> Self {
        let BoundedFigures { capacity, when_full, waiting, refused, dropped } = figures;
        Self { capacity, when_full: when_full.into(), waiting, refused, dropped }
    }
}
