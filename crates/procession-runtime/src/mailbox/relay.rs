//! Relays, which carry messages by PID to processes of other schedulers.

use std::sync::Arc;
use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::Pid;
use crate::mailbox::dead_letter::{self, DeadCause};
use crate::mailbox::parcel::{Parcel, Relay, RelayCause, RelayError};
use crate::process::slot::Refused;
use crate::scheduler::current;
use crate::scheduler::nodes::relay_to;
use crate::scheduler::reach::{find, reach};
use crate::time::run_after;
use crate::util::generator::Generator;

/// The relay between all schedulers of a program, and to the other nodes. It is the default.
///
/// It refuses a message if the process has ended, receives another type, or has no room. For the
/// processes of a [`RemoteNode`](crate::relay::RemoteNode), it asks the relay of that node.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Relay for InProcess {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        if parcel.to.node() != 0 {
            return match relay_to(parcel.to) {
                Some(relay) => relay.relay(parcel),
                None => Err(parcel.refused(RelayCause::NoConnection)),
            };
        }
        let Some(slot) = find(parcel.to) else { return Err(parcel.refused(RelayCause::Ended)) };
        let mut parcel = parcel;
        if (*parcel.message).type_id() != (slot.kind().message)() {
            let (sent, wanted) = (parcel.type_name, slot.kind().receives());
            return Err(parcel.refused(RelayCause::WrongType { sent, wanted }));
        }
        slot.push_any(std::mem::replace(&mut parcel.message, Box::new(()))).map_err(|refused| {
            let cause;
            (parcel.message, cause) = match refused {
                Refused::Ended(message) => (message, RelayCause::Ended),
                Refused::Full(message) => (message, RelayCause::Full),
            };
            parcel.refused(cause)
        })
    }
}

/// Drops a message that was accepted on behalf of a process and that the process cannot receive.
/// The message is a [dead letter](crate::relay::DeadLetter) of the process's scheduler.
///
/// A [`Relay`] or a connection uses this if it has accepted a message, and finds only later that
/// the process refuses it. The message can then no longer be returned to its sender. Without a
/// [hook](crate::Builder::on_dead_letter), the message is only dropped. For a process of another
/// node, the hook of the current scheduler is called.
pub fn discard<M: Send + 'static>(to: Pid, cause: DeadCause, message: M) {
    let own = if to.node() == 0 { reach(to.scheduler()) } else { None };
    let scheduler = own.or_else(current::here);
    let observer = scheduler.as_ref().and_then(|shared| shared.extensions.dead_letters()).cloned();
    dead_letter::bury(observer.as_ref(), to, cause, message);
}

/// A relay for tests that drops and delays messages at random, and passes the rest to another
/// relay.
///
/// Delayed messages wait on the timers of the sending scheduler. On a test clock they take no real
/// time, and with a seed they are the same in each run. A message may overtake an earlier message
/// that has a longer delay.
///
/// ```
/// use std::time::Duration;
/// use procession::mailbox::send;
/// use procession::mailbox::relay::{FaultyRelay, InProcess};
/// use procession::{Context, Scheduler};
///
/// let there = Scheduler::builder().worker_threads(1).build()?;
/// let builder = Scheduler::builder().worker_threads(1).test_clock();
/// let here = builder.relay(FaultyRelay::new(InProcess, 1).drops(1.0)).build()?;
/// let receiver = there.start(|mut cx: Context<u32>| async move { cx.recv().await });
/// let pid = receiver.pid();
/// // Taken, and lost.
/// assert_eq!(here.spawn(async move { send(pid, 7_u32).is_ok() }).join(), Ok(true));
/// receiver.cancel();
/// assert_eq!(receiver.join(), Ok(None));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[derive(Debug)]
pub struct FaultyRelay {
    inner: Arc<dyn Relay>,
    chance: Mutex<Generator>,
    drops: f64,
    delays: f64,
    delay_max: Duration,
    dropped: AtomicU64,
    delayed: AtomicU64,
}

impl FaultyRelay {
    /// Creates a relay that draws its faults from `seed`. It makes no faults until they are
    /// enabled.
    pub fn new(inner: impl Relay, seed: u64) -> Self {
        Self {
            inner: Arc::new(inner),
            chance: Mutex::new(Generator::with_seed(seed)),
            drops: 0.0,
            delays: 0.0,
            delay_max: Duration::ZERO,
            dropped: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        }
    }

    /// Sets the share of messages that are dropped, from 0 to 1.
    #[must_use]
    pub fn drops(mut self, share: f64) -> Self {
        self.drops = share;
        self
    }

    /// Sets the share of the other messages that are delayed, from 0 to 1, each by up to
    /// `delay_max`.
    #[must_use]
    pub fn delays(mut self, share: f64, delay_max: Duration) -> Self {
        self.delays = share;
        self.delay_max = delay_max;
        self
    }

    /// Returns the number of messages that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Returns the number of messages that were delayed.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Relaxed)
    }
}

impl Relay for FaultyRelay {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        let (drops, delay) = {
            let mut chance = self.chance.lock();
            let delay = (chance.fraction() < self.delays)
                .then(|| self.delay_max.mul_f64(chance.fraction()));
            (chance.fraction() < self.drops, delay)
        };
        if drops {
            self.dropped.fetch_add(1, Relaxed);
            crate::process::unwind::drop_guarded(parcel);
            return Ok(());
        }
        let Some(delay) = delay else { return self.inner.relay(parcel) };
        self.delayed.fetch_add(1, Relaxed);
        let inner = Arc::clone(&self.inner);
        let later = Later { inner, parcel };
        match run_after(delay, move || later.deliver()) {
            Ok(_) => Ok(()),
            Err(refused) => {
                let function = refused.into_inner();
                // Without a timer, the message is sent now.
                function();
                Ok(())
            }
        }
    }
}

/// A delayed message.
struct Later {
    inner: Arc<dyn Relay>,
    parcel: Parcel,
}

impl Later {
    fn deliver(self) {
        // Ignored: the message was accepted before, and is lost now.
        drop(self.inner.relay(self.parcel));
    }
}
