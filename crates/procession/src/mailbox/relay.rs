//! Relays: how messages by PID reach processes that are not of the sending scheduler.

use std::sync::Arc;
use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::mailbox::parcel::{Parcel, Relay};
use crate::process::slot::Refused;
use crate::scheduler::reach::find;
use crate::time::run_after;

/// The relay that connects all schedulers of a program; each scheduler has it unless it is given
/// another.
///
/// It refuses a message whose process has ended, receives another type, has no room, or is of
/// another node.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Relay for InProcess {
    fn relay(&self, parcel: Parcel) -> Result<(), Parcel> {
        let Some(slot) = find(parcel.to) else { return Err(parcel) };
        let Parcel { to, message, type_name } = parcel;
        slot.push_any(message).map_err(|refused| {
            let (Refused::Ended(message) | Refused::Full(message)) = refused;
            Parcel { to, message, type_name }
        })
    }
}

/// A relay for tests: it delays and drops what it is given, by chance, and hands the rest to
/// another.
///
/// What is delayed waits on the timers of the sending scheduler, so with a test clock it is quick,
/// and with a seed it is the same in each run. Messages that are delayed by different times
/// overtake each other.
///
/// ```
/// use std::time::Duration;
/// use procession::{Context, Scheduler};
/// use procession::mailbox::send;
/// use procession::relay::{FaultyRelay, InProcess};
///
/// let there = Scheduler::builder().worker_threads(1).build()?;
/// let here = Scheduler::builder().worker_threads(1).test_clock().relay(FaultyRelay::new(InProcess, 1).drops(1.0)).build()?;
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
    chance: Mutex<fastrand::Rng>,
    drops: f64,
    delays: f64,
    delay_max: Duration,
    dropped: AtomicU64,
    delayed: AtomicU64,
}

impl FaultyRelay {
    /// Faults by chance, drawn from `seed`; none until they are asked for.
    pub fn new(inner: impl Relay, seed: u64) -> Self {
        Self {
            inner: Arc::new(inner),
            chance: Mutex::new(fastrand::Rng::with_seed(seed)),
            drops: 0.0,
            delays: 0.0,
            delay_max: Duration::ZERO,
            dropped: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        }
    }

    /// How many of all messages are dropped, from 0 to 1.
    #[must_use]
    pub fn drops(mut self, share: f64) -> Self {
        self.drops = share;
        self
    }

    /// How many of the others are delayed, from 0 to 1, each by up to `delay_max`.
    #[must_use]
    pub fn delays(mut self, share: f64, delay_max: Duration) -> Self {
        self.delays = share;
        self.delay_max = delay_max;
        self
    }

    /// How many messages were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// How many messages were delayed.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Relaxed)
    }
}

impl Relay for FaultyRelay {
    fn relay(&self, parcel: Parcel) -> Result<(), Parcel> {
        let (drops, delay) = {
            let mut chance = self.chance.lock();
            let delay = (chance.f64() < self.delays).then(|| self.delay_max.mul_f64(chance.f64()));
            (chance.f64() < self.drops, delay)
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
                // There is no timer for it, so it comes in time.
                function();
                Ok(())
            }
        }
    }
}

/// A message that is delayed.
struct Later {
    inner: Arc<dyn Relay>,
    parcel: Parcel,
}

impl Later {
    fn deliver(self) {
        // Ignored: it was taken long ago, and is lost now.
        drop(self.inner.relay(self.parcel));
    }
}
