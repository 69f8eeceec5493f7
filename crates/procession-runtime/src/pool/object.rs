//! A pool of objects that are expensive to make.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU64, AtomicUsize};
use procession_sync::{Mutex, MutexGuard};

use super::block::world;
use crate::process::unwind::{drop_guarded, guarded};
use crate::sys::{Cpus, nanoseconds};

/// The default number of objects that each shard keeps. It suffices for the objects that one worker
/// uses by turns.
const LOCAL_DEFAULT: usize = 16;
/// The default number of objects in the tier that all threads share.
const SHARED_DEFAULT: usize = 1024;
/// The returns to a shard between two reads of the clock. A read costs as much as the rest of a
/// return.
const RETURNS_BETWEEN_LOOKS: usize = 64;
/// The default time that an unused object stays at least.
const EXPIRY_DEFAULT: Duration = Duration::from_secs(60);

/// One tier of kept objects. The next one to be used is at the end.
struct Tier<T> {
    objects: Vec<T>,
    /// Objects that were not used since the last rotation.
    victims: Vec<T>,
    returns: usize,
}

impl<T> Tier<T> {
    fn take(&mut self) -> Option<T> {
        self.objects.pop().or_else(|| self.victims.pop())
    }
}

/// Aligned so that no two shards share a cache line, nor a pair of lines that is prefetched.
#[repr(align(128))]
struct Shard<T>(Mutex<Tier<T>>);

impl<T> Shard<T> {
    fn new() -> Self {
        Self(Mutex::new(Tier { objects: Vec::new(), victims: Vec::new(), returns: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Tier<T>> {
        self.0.lock()
    }
}

type Reset<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;

struct ObjectTiers<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    reset: Reset<T>,
    local: usize,
    shared_most: usize,
    expiry: u64,
    /// One for each CPU.
    shards: Box<[Shard<T>]>,
    shared: Shard<T>,
    /// The time of the next rotation.
    next_rotation: AtomicU64,
}

impl<T> ObjectTiers<T> {
    fn all(&self) -> impl Iterator<Item = &Shard<T>> {
        self.shards.iter().chain([&self.shared])
    }
}

/// Describes an [`ObjectPool`], and builds it.
///
/// Available with the crate feature `pool`.
#[must_use]
pub struct ObjectPoolBuilder<T>(ObjectTiers<T>);

impl<T: Send + 'static> ObjectPoolBuilder<T> {
    /// Sets a function that is called with each returned object. It returns `true` if the object is
    /// worth keeping. For example, a buffer that has grown to many megabytes is not. If the
    /// function panics, the object is dropped. Default: every object is kept as it is.
    pub fn reset(mut self, reset: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        self.0.reset = Box::new(reset);
        self
    }

    /// Sets how many objects each shard keeps. There is one shard for each CPU. Default: 16.
    pub fn local(mut self, objects: usize) -> Self {
        self.0.local = objects;
        self
    }

    /// Sets how many objects are kept for all threads, in addition to the objects of the shards.
    /// Default: 1024.
    pub fn shared(mut self, objects: usize) -> Self {
        self.0.shared_most = objects;
        self
    }

    /// Sets how long an unused object is kept at least. It is kept at most about twice as long
    /// while other objects come and go often, because the pool looks at the clock with every 64th
    /// return to a shard. If objects come and go rarely or not at all, call
    /// [`ObjectPool::expire`]. Default: one minute.
    pub fn expiry(mut self, unused: Duration) -> Self {
        self.0.expiry = nanoseconds(unused);
        self
    }

    /// Builds the pool, which is empty.
    pub fn build(mut self) -> ObjectPool<T> {
        self.0.shards = (0..Cpus::available()).map(|_| Shard::new()).collect();
        self.0.next_rotation = AtomicU64::new(world().now_here().saturating_add(self.0.expiry));
        ObjectPool(Arc::new(self.0))
    }
}

impl<T> fmt::Debug for ObjectPoolBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectPoolBuilder(..)")
    }
}

/// Returns the number of the calling thread, counted among the threads that use object pools.
fn thread_number() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = LAST.fetch_add(1, Relaxed);
    }
    // While the thread's locals are destroyed, any shard will do.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Keeps objects that are expensive to make, to be used again.
///
/// Such objects are stacks, large buffers, or the contexts of compressors. Plain memory is not
/// worth it, since a good allocator returns it faster.
///
/// There are as many *shards* as CPUs, and each thread uses one shard. A shard is last in, first
/// out, so its objects are still in the cache. An object that finds no room in its shard goes to a
/// tier that all threads share. If both are empty, `get` takes an object from another shard, and
/// makes a new one only if all shards are empty.
///
/// An object that was not used for a while becomes a *victim*. Victims are used only if there is no
/// other object, and are dropped if they are still there after the same time again. This is a
/// handle, and its clones stand for the same pool.
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
///
/// Available with the crate feature `pool`.
pub struct ObjectPool<T: Send + 'static>(Arc<ObjectTiers<T>>);

impl<T: Send + 'static> Clone for ObjectPool<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> ObjectPool<T> {
    /// Returns the builder of a pool with objects made by `make`.
    pub fn builder(make: impl Fn() -> T + Send + Sync + 'static) -> ObjectPoolBuilder<T> {
        ObjectPoolBuilder(ObjectTiers {
            make: Box::new(make),
            reset: Box::new(|_| true),
            local: LOCAL_DEFAULT,
            shared_most: SHARED_DEFAULT,
            expiry: nanoseconds(EXPIRY_DEFAULT),
            shards: Box::default(),
            shared: Shard::new(),
            next_rotation: AtomicU64::new(0),
        })
    }

    fn own(&self) -> usize {
        thread_number() % self.0.shards.len()
    }

    /// Returns an object, kept or new.
    ///
    /// # Panics
    /// If making a new object panics.
    pub fn get(&self) -> Pooled<'_, T> {
        let object = self.kept().unwrap_or_else(|| (self.0.make)());
        Pooled { pool: self, object: Some(object) }
    }

    /// Returns an object, if one is kept.
    pub fn get_kept(&self) -> Option<Pooled<'_, T>> {
        Some(Pooled { pool: self, object: Some(self.kept()?) })
    }

    fn kept(&self) -> Option<T> {
        let own = self.own();
        let pool = &*self.0;
        let in_own = pool.shards[own].lock().objects.pop();
        let in_shared = || pool.shared.lock().objects.pop();
        // Objects come before victims, so that victims can age. Then come the shards of other
        // threads, nearest first.
        let elsewhere = || {
            (0..pool.shards.len())
                .find_map(|step| pool.shards[(own + step) % pool.shards.len()].lock().take())
        };
        in_own.or_else(in_shared).or_else(elsewhere).or_else(|| pool.shared.lock().take())
    }

    fn put(&self, mut object: T) {
        let pool = &*self.0;
        // If the reset panics, the message is printed and the object is dropped.
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

    /// Drops the objects that were not used for long enough, and returns how many there were. A
    /// pool in use does this on its own, with every 64th return to a shard. For a pool that may be
    /// used rarely or not at all, call it from a timer such as
    /// [`run_every`](crate::time::run_every).
    pub fn expire(&self) -> usize {
        let pool = &*self.0;
        let now = world().now_here();
        let due = pool.next_rotation.load(Relaxed);
        // Only one thread rotates. Relaxed: the tiers have locks.
        if now < due
            || pool
                .next_rotation
                .compare_exchange(due, now.saturating_add(pool.expiry), Relaxed, Relaxed)
                .is_err()
        {
            return 0;
        }
        self.rotate()
    }

    /// Drops all kept objects, and returns how many there were.
    pub fn clear(&self) -> usize {
        self.rotate() + self.rotate()
    }

    fn rotate(&self) -> usize {
        let mut dropped = 0;
        for shard in self.0.all() {
            let mut tier = shard.lock();
            let objects = std::mem::take(&mut tier.objects);
            let old = std::mem::replace(&mut tier.victims, objects);
            drop(tier);
            dropped += old.len();
            // Outside the lock, because a drop is user code.
            old.into_iter().for_each(drop_guarded);
        }
        dropped
    }

    /// Returns the number of kept objects, as two numbers: objects that are not victims, and
    /// victims.
    pub fn kept_objects(&self) -> (usize, usize) {
        self.0.all().fold((0, 0), |(objects, victims), shard| {
            let tier = shard.lock();
            (objects + tier.objects.len(), victims + tier.victims.len())
        })
    }
}

impl<T: Send + 'static> fmt::Debug for ObjectPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (objects, victims) = self.kept_objects();
        f.debug_struct("ObjectPool")
            .field("objects", &objects)
            .field("victims", &victims)
            .finish_non_exhaustive()
    }
}

/// An object of an [`ObjectPool`]. When it is dropped, the object is reset and goes back to the
/// pool.
///
/// Available with the crate feature `pool`.
pub struct Pooled<'a, T: Send + 'static> {
    pool: &'a ObjectPool<T>,
    object: Option<T>,
}

impl<T: Send + 'static> Pooled<'_, T> {
    /// Takes the object out of the pool for good.
    pub fn into_inner(mut self) -> T {
        self.object.take().expect("the object is there until the drop")
    }
}

impl<T: Send + 'static> Deref for Pooled<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object.as_ref().expect("the object is there until the drop")
    }
}

impl<T: Send + 'static> DerefMut for Pooled<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.object.as_mut().expect("the object is there until the drop")
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
