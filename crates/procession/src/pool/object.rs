//! Objects that are dear to make, kept to be used again.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU64, AtomicUsize};
use procession_sync::{Mutex, MutexGuard};

use super::block::world;
use crate::process::unwind::{drop_guarded, guarded};
use crate::sys::nanoseconds;

/// Objects that each shard keeps, unless the builder says otherwise: enough for those that one worker uses by turns.
const LOCAL_DEFAULT: usize = 16;
/// Objects in the tier that all share, unless the builder says otherwise.
const SHARED_DEFAULT: usize = 1024;
/// Returns of a shard between two looks at the clock, which costs as much as the rest of a return.
const RETURNS_BETWEEN_LOOKS: usize = 64;
/// How long an object that nobody uses stays, at least, unless the builder says otherwise; at most twice as long while others come and go.
const EXPIRY_DEFAULT: Duration = Duration::from_secs(60);

/// One tier of kept objects; those in use come from its end.
struct Tier<T> {
    objects: Vec<T>,
    /// Those that nobody has used since the last rotation.
    victims: Vec<T>,
    returns: usize,
}

impl<T> Tier<T> {
    fn take(&mut self) -> Option<T> {
        self.objects.pop().or_else(|| self.victims.pop())
    }
}

/// Shards do not share cache lines, also not by prefetching pairs.
#[repr(align(128))]
struct Shard<T>(Mutex<Tier<T>>);

impl<T> Shard<T> {
    fn new() -> Self {
        Self(Mutex::new(Tier { objects: Vec::new(), victims: Vec::new(), returns: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Tier<T>> {
        self.0.lock().expect("nothing that can panic runs under this lock")
    }
}

type Reset<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;

struct Inner<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    reset: Reset<T>,
    local: usize,
    shared_most: usize,
    expiry: u64,
    shards: Box<[Shard<T>]>,
    shared: Shard<T>,
    /// When the tiers are rotated next.
    next_rotation: AtomicU64,
}

/// What an [`ObjectPool`] is to be like.
#[must_use]
pub struct ObjectPoolBuilder<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    reset: Reset<T>,
    local: usize,
    shared: usize,
    expiry: Duration,
}

impl<T: Send + 'static> ObjectPoolBuilder<T> {
    /// Is called with each object that comes back, and says whether it is worth keeping: a buffer that has grown too large is not. If
    /// it panics, the object is dropped. Default: nothing is done, and all are.
    pub fn reset(mut self, reset: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        self.reset = Box::new(reset);
        self
    }

    /// How many objects each shard keeps; there is one for each CPU. Default: 16.
    pub fn local(mut self, objects: usize) -> Self {
        self.local = objects;
        self
    }

    /// How many objects are kept beyond those, for all. Default: 1024.
    pub fn shared(mut self, objects: usize) -> Self {
        self.shared = objects;
        self
    }

    /// How long an object that nobody uses is kept: at least so long, and at most about twice, as long as other objects come and go. When none do,
    /// call [`ObjectPool::expire`]. Default: a minute.
    pub fn expiry(mut self, unused: Duration) -> Self {
        self.expiry = unused;
        self
    }

    /// Builds the pool, which is empty.
    pub fn build(self) -> ObjectPool<T> {
        let shards = std::thread::available_parallelism().map_or(1, usize::from);
        let expiry = nanoseconds(self.expiry);
        ObjectPool(Arc::new(Inner {
            make: self.make,
            reset: self.reset,
            local: self.local,
            shared_most: self.shared,
            expiry,
            shards: (0..shards).map(|_| Shard::new()).collect(),
            shared: Shard::new(),
            next_rotation: AtomicU64::new(world().now().saturating_add(expiry)),
        }))
    }
}

impl<T> fmt::Debug for ObjectPoolBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectPoolBuilder")
            .field("local", &self.local)
            .field("shared", &self.shared)
            .field("expiry", &self.expiry)
            .finish_non_exhaustive()
    }
}

/// The number of the calling thread, among those that use object pools.
fn thread_number() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = LAST.fetch_add(1, Relaxed);
    }
    // While the thread's locals are destroyed, any shard will do.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Keeps objects that are dear to make, to be used again: stacks, large buffers, contexts of compressors. It does not pay for plain
/// memory, which a good allocator gives faster.
///
/// Each thread uses one of as many *shards* as there are CPUs, last in, first out, so that what it gets is still in its cache; what a shard has no
/// room for goes to a tier that all share. Who finds neither takes an object from another shard; only if all are empty is one
/// made. An object that nobody has used for a while becomes a *victim*, which is used only when there is no other, and dropped
/// if it is still there after as long again. This is a handle; clones are of the same pool.
///
/// ```
/// use procession::pool::ObjectPool;
///
/// let buffers = ObjectPool::builder(|| Vec::with_capacity(1 << 20))
///     .reset(|buffer: &mut Vec<u8>| {
///         buffer.clear();
///         buffer.capacity() <= 1 << 22
///     })
///     .build();
/// let mut buffer = buffers.get();
/// buffer.extend_from_slice(b"some bytes");
/// let place = buffer.as_ptr();
/// drop(buffer); // Goes back,
/// let again = buffers.get(); // and is used again,
/// assert_eq!((again.as_ptr(), again.len()), (place, 0)); // cleared.
/// ```
pub struct ObjectPool<T: Send + 'static>(Arc<Inner<T>>);

impl<T: Send + 'static> Clone for ObjectPool<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> ObjectPool<T> {
    /// Starts to describe a pool whose objects are made by `make`.
    pub fn builder(make: impl Fn() -> T + Send + Sync + 'static) -> ObjectPoolBuilder<T> {
        ObjectPoolBuilder {
            make: Box::new(make),
            reset: Box::new(|_| true),
            local: LOCAL_DEFAULT,
            shared: SHARED_DEFAULT,
            expiry: EXPIRY_DEFAULT,
        }
    }

    fn own(&self) -> usize {
        thread_number() % self.0.shards.len()
    }

    /// An object, kept or made. If making it panics, so does this.
    pub fn get(&self) -> Pooled<'_, T> {
        let object = self.kept().unwrap_or_else(|| (self.0.make)());
        Pooled { pool: self, object: Some(object) }
    }

    /// An object, if one is kept.
    pub fn try_get(&self) -> Option<Pooled<'_, T>> {
        Some(Pooled { pool: self, object: Some(self.kept()?) })
    }

    fn kept(&self) -> Option<T> {
        let own = self.own();
        let pool = &*self.0;
        let in_own = pool.shards[own].lock().objects.pop();
        let in_shared = || pool.shared.lock().objects.pop();
        // Objects before victims, so that those can grow old; then those of others, nearest first.
        let elsewhere =
            || (0..pool.shards.len()).find_map(|step| pool.shards[(own + step) % pool.shards.len()].lock().take());
        in_own.or_else(in_shared).or_else(elsewhere).or_else(|| pool.shared.lock().take())
    }

    fn put(&self, mut object: T) {
        let pool = &*self.0;
        // A panic in it is printed, and the object is worth nothing.
        if !guarded(|| (pool.reset)(&mut object)).unwrap_or(false) {
            return drop_guarded(object);
        }
        let mut shard = pool.shards[self.own()].lock();
        shard.returns += 1;
        let looks = shard.returns.is_multiple_of(RETURNS_BETWEEN_LOOKS);
        let too_many = if shard.objects.len() < pool.local {
            shard.objects.push(object);
            None
        } else {
            Some(object)
        };
        drop(shard);
        let unwanted = too_many.and_then(|object| {
            let mut shared = pool.shared.lock();
            if shared.objects.len() < pool.shared_most {
                shared.objects.push(object);
                return None;
            }
            Some(object)
        });
        drop_guarded(unwanted);
        if looks {
            self.expire();
        }
    }

    /// Drops what nobody has used for long enough. A pool that is in use does so by itself; one that is not may be told to, say by a
    /// timer ([`run_every`](crate::run_every)). Says how many were dropped.
    pub fn expire(&self) -> usize {
        let pool = &*self.0;
        let now = world().now();
        let due = pool.next_rotation.load(Relaxed);
        // One thread rotates; Relaxed: the tiers are locked.
        if now < due
            || pool.next_rotation.compare_exchange(due, now.saturating_add(pool.expiry), Relaxed, Relaxed).is_err()
        {
            return 0;
        }
        self.rotate()
    }

    /// Drops all that is kept. Says how many.
    pub fn clear(&self) -> usize {
        self.rotate() + self.rotate()
    }

    fn rotate(&self) -> usize {
        let mut dropped = 0;
        for shard in self.0.shards.iter().chain([&self.0.shared]) {
            let mut tier = shard.lock();
            let objects = std::mem::take(&mut tier.objects);
            let old = std::mem::replace(&mut tier.victims, objects);
            drop(tier);
            dropped += old.len();
            // Outside the lock: it is the user's code.
            old.into_iter().for_each(drop_guarded);
        }
        dropped
    }

    /// How many objects are kept: in use before, and victims.
    pub fn kept_objects(&self) -> (usize, usize) {
        let tiers = self.0.shards.iter().chain([&self.0.shared]);
        tiers.fold((0, 0), |(objects, victims), shard| {
            let tier = shard.lock();
            (objects + tier.objects.len(), victims + tier.victims.len())
        })
    }
}

impl<T: Send + 'static> fmt::Debug for ObjectPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (objects, victims) = self.kept_objects();
        f.debug_struct("ObjectPool").field("objects", &objects).field("victims", &victims).finish_non_exhaustive()
    }
}

/// An object of an [`ObjectPool`]; dropped, it is reset and goes back.
pub struct Pooled<'a, T: Send + 'static> {
    pool: &'a ObjectPool<T>,
    object: Option<T>,
}

impl<T: Send + 'static> Pooled<'_, T> {
    /// Takes the object out of the pool for good.
    pub fn into_inner(mut self) -> T {
        self.object.take().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> Deref for Pooled<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> DerefMut for Pooled<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.object.as_mut().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> Drop for Pooled<'_, T> {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            self.pool.put(object);
        }
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for Pooled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
