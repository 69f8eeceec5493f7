//! Addresses that accept a part of the messages of a process.

use std::cmp::Ordering;
use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::Pid;
use crate::mailbox::address::Address;
use crate::mailbox::call::{CallError, Callee, pair_with};
use crate::mailbox::reply::Reply;
use crate::mailbox::send_error::{SendCause, SendError};
use crate::process::slot::Slot;
use crate::scheduler::current;

/// An address that accepts messages of type `N`, and hides what the process receives.
///
/// [`Address::map`] makes one, with a function that turns each `N` into a message of the process. A
/// process can thus be given the right to send certain messages, and need not know the other
/// messages of the receiver. Any process with an `N` among its messages can be a recipient.
///
/// Clones are recipients of the same process with the same function. Recipients are compared,
/// ordered and hashed by the PIDs of their processes, as addresses are, and not by their functions.
/// A recipient does not keep its process alive.
///
/// ```
/// use procession::{Context, start};
/// use procession::mailbox::Recipient;
///
/// enum Event {
///     Tick(u32),
///     Stop,
/// }
///
/// procession::run(async {
///     let mut receiver = start(|mut cx: Context<Event>| async move {
///         let mut sum = 0;
///         while let Some(Event::Tick(n)) = cx.recv().await {
///             sum += n;
///         }
///         sum
///     });
///     let ticks: Recipient<u32> = receiver.map(Event::Tick);
///     ticks.send(3)?;
///     ticks.send(4)?;
///     receiver.send(Event::Stop).unwrap_or_else(|_| unreachable!("it waits for this"));
///     assert_eq!((&mut receiver).await, Ok(7));
///     // A refused message comes back as it was.
///     assert_eq!(ticks.send(5).unwrap_err().into_inner(), 5);
///     Ok::<(), procession::SendError<u32>>(())
/// })?;
/// # Ok::<(), procession::SendError<u32>>(())
/// ```
pub struct Recipient<N> {
    process: Arc<dyn Deliver<N>>,
}

/// A process that accepts messages of type `N`.
trait Deliver<N>: Send + Sync {
    fn pid(&self) -> Pid;

    fn is_alive(&self) -> bool;

    /// Returns the slot of the process, unless it belongs to another node.
    fn slot(&self) -> Option<&Slot>;

    /// Takes the message out of `message` and sends it. If the message is refused, puts it back.
    fn deliver(&self, message: &mut Option<N>) -> Result<(), SendCause>;
}

impl<N: Send + 'static> Deliver<N> for Address<N> {
    fn pid(&self) -> Pid {
        Self::pid(self)
    }

    fn is_alive(&self) -> bool {
        Self::is_alive(self)
    }

    fn slot(&self) -> Option<&Slot> {
        Self::slot(self)
    }

    fn deliver(&self, message: &mut Option<N>) -> Result<(), SendCause> {
        let taken = message.take().expect("there is one");
        self.send(taken).map_err(|error| {
            let (back, cause) = error.into_parts();
            *message = Some(back);
            cause
        })
    }
}

/// A process that receives what `map` makes.
struct Mapped<M, F> {
    address: Address<M>,
    map: F,
}

impl<N, M, F> Deliver<N> for Mapped<M, F>
where
    M: Send + 'static,
    F: Fn(N) -> Result<M, N> + Send + Sync,
{
    fn pid(&self) -> Pid {
        self.address.pid()
    }

    fn is_alive(&self) -> bool {
        self.address.is_alive()
    }

    fn slot(&self) -> Option<&Slot> {
        self.address.slot()
    }

    fn deliver(&self, message: &mut Option<N>) -> Result<(), SendCause> {
        self.address.send_made(|| {
            (self.map)(message.take().expect("there is one"))
                .map_err(|refused| *message = Some(refused))
                .ok()
        })
    }
}

impl<M: Send + 'static> Address<M> {
    /// Returns an address for messages of type `N`, each of which `map` turns into a message of the
    /// process. See [`Recipient`].
    ///
    /// `map` runs in each [`send`](Recipient::send), on the thread of the sender, and only if the
    /// process accepts the message. It is usually the constructor of an enum's variant.
    ///
    /// If the process runs on another node, the recipient refuses each message, because a message
    /// that the connection refuses could not be mapped back. To reach such a process, make the
    /// recipient [from](Recipient#impl-From<Address<N>>-for-Recipient<N>) the address itself.
    pub fn map<N, F>(&self, map: F) -> Recipient<N>
    where
        N: Send + 'static,
        F: Fn(N) -> M + Send + Sync + 'static,
    {
        self.filter_map(move |message| Ok(map(message)))
    }

    /// Returns an address like [`map`](Self::map), with a function that may refuse a message, for
    /// example because the process limits how many messages it accepts. To refuse a message, the
    /// function returns it. The sender then gets the error of a full mailbox
    /// ([`SendError::is_full`](crate::SendError::is_full)), with the message.
    ///
    /// ```
    /// use procession::mailbox::Recipient;
    /// use procession::{Context, start};
    ///
    /// procession::run(async {
    ///     let mut receiver = start(|mut cx: Context<u8>| async move { cx.recv().await });
    ///     let small: Recipient<u32> =
    ///         receiver.filter_map(|n: u32| u8::try_from(n).map_err(|_| n));
    ///     let refused = small.send(1000).unwrap_err();
    ///     assert!(refused.is_full());
    ///     assert_eq!(refused.into_inner(), 1000);
    ///     small.send(7)?;
    ///     assert_eq!((&mut receiver).await, Ok(Some(7)));
    ///     Ok::<(), procession::SendError<u32>>(())
    /// })?;
    /// # Ok::<(), procession::SendError<u32>>(())
    /// ```
    pub fn filter_map<N, F>(&self, map: F) -> Recipient<N>
    where
        N: Send + 'static,
        F: Fn(N) -> Result<M, N> + Send + Sync + 'static,
    {
        Recipient { process: Arc::new(Mapped { address: self.clone(), map }) }
    }
}

impl<N: Send + 'static> Recipient<N> {
    /// Returns `true` if the process has not ended, as far as this thread can see.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Puts a message into the mailbox. It never blocks, and messages of one sender arrive in
    /// order, as with [`Address::send`].
    ///
    /// # Errors
    /// [`SendError`] returns the message, as it was, if the process has ended, its mailbox is full,
    /// or the function of the recipient refuses it. If the process ends before it receives an
    /// accepted message, the message is discarded.
    ///
    /// # Panics
    /// Panics if the function of the recipient panics. The message is then lost, and nothing is
    /// sent.
    pub fn send(&self, message: N) -> Result<(), SendError<N>> {
        let mut message = Some(message);
        match self.process.deliver(&mut message) {
            Ok(()) => Ok(()),
            Err(cause) => Err(SendError::of(message.expect("a refused message is left"), cause)),
        }
    }

    /// Sends a message with a [`Reply`] in it, and waits for the reply, for at most `timeout`. It
    /// does not wait for room in a bounded mailbox.
    ///
    /// # Errors
    /// Returns [`CallError`] if the message was refused, the process ended or dropped the reply, or
    /// the timeout is over. A refused message is in the error.
    ///
    /// # Panics
    /// See [`send`](Self::send).
    ///
    /// # Cancellation
    /// See [`Address::call`].
    #[track_caller]
    pub fn call<T: Send + 'static>(
        &self,
        message: impl FnOnce(Reply<T>) -> N,
        timeout: Duration,
    ) -> impl Future<Output = Result<T, CallError<N>>> {
        crate::scheduler::placed::placed(async move {
            let (reply, caller) = pair_with(self.process.slot().map(Callee::of));
            current::record_call(self.pid());
            self.send(message(reply)).map_err(CallError::Refused)?;
            caller.replied_within(timeout).await
        })
    }
}

impl<N> Recipient<N> {
    /// Returns the PID of the process. See [`Address::pid`].
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }
}

impl<N: Send + 'static> From<Address<N>> for Recipient<N> {
    fn from(address: Address<N>) -> Self {
        Self { process: Arc::new(address) }
    }
}

impl<N> Clone for Recipient<N> {
    fn clone(&self) -> Self {
        Self { process: Arc::clone(&self.process) }
    }
}

impl<N> PartialEq for Recipient<N> {
    fn eq(&self, other: &Self) -> bool {
        self.pid() == other.pid()
    }
}

impl<N> Eq for Recipient<N> {}

impl<N> PartialOrd for Recipient<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<N> Ord for Recipient<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.pid().cmp(&other.pid())
    }
}

impl<N> Hash for Recipient<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pid().hash(state);
    }
}

impl<N> fmt::Debug for Recipient<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recipient").field(&self.pid()).finish()
    }
}
