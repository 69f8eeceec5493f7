//! Stacks: a slab that hands them out and takes them back.
//!
//! Each size class has slabs. A slab is a mapping of many stacks side by side, each with its guard
//! below it. A stack is prepared, which means guarded, when it is first handed out, and stays
//! prepared.
//!
//! A stack that is returned is pushed on top of a list. The next stack is taken from the top,
//! because the stack used last is still in the caches. Stacks that stay at the bottom of the list
//! for a whole period were not needed in that period, so they *expire*, and
//! [`Stacks::release_expired`] returns their memory to the system. Then they are in another list,
//! from which stacks are taken last.
//!
//! A limit holds for the stacks of all sizes together, and so does the budget of guards. If one is
//! reached, a free stack of any size is *retired*: it gives back its memory and its place in the
//! budget and counts as not made, so that a stack of the wanted size can be made instead. Therefore
//! a stack is refused for a limit only if no stack is free. A stack that another call retires or
//! expires at that moment is not free.
//!
//! ## Invariants
//! - `[slab]` a slab is mapped until its `SizeClass` is dropped, and every [`Stack`] keeps its size
//!   class alive.
//! - `[slot]` each slot of a slab is in exactly one of these: not handed out yet, `unprepared`,
//!   `free`, one `Stack`, or a call that changes it.
//!
//! ## Rejected
//! - A mapping for each stack: 8.6 us for a stack that is used once, instead of 8 ns for a stack
//!   that is reused. A mapping also costs two of the 65530 mappings that a process has.
//! - Tops at the same place in each page: all tops fall into the same sets of the first-level
//!   cache. Switching through a thousand coroutines takes 7.5 ns per switch instead of 2 ns.
//! - A check of a word some pages below the top when a stack is returned, to find out if the stack
//!   was used deeply: a frame may skip any word, and the check itself creates the page table for
//!   it. A deep stack that is used again and again is among the few stacks on top of the list.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use corosensei::stack::StackPointer;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::error::{StackError, StackErrorKind};
use crate::guard::{self, GuardError, Made};
use crate::header::{self, Header};
use crate::overflow;

/// The smallest and the largest distance between stacks, as powers of two: 32 KiB and 1 GiB.
const SPAN_BITS: Range<u32> = 15..31;
const SPANS: usize = (SPAN_BITS.end - SPAN_BITS.start) as usize;

/// The size of a large stack's guard, so that a frame of a C function without stack probes does not
/// step over it. It is glibc's value.
const GUARD_LARGE: usize = 64 << 10;

/// The number of slots of the first slab, which is small for programs with few coroutines. Each
/// further slab has twice as many slots as the slab before, up to `SLAB_MAX`.
const SLAB_FIRST: usize = 64;
const SLAB_MAX: usize = 4096;
/// The largest slab in bytes. Only a single larger stack may exceed it.
const SLAB_BYTES_MAX: usize = 16 << 30;

/// The number of cache colours. The tops of stacks differ by multiples of a cache line, so that
/// they spread over the sets of a first-level cache.
const COLOURS: u32 = 16;
const COLOUR: usize = 64;

/// The size in bytes of everything above the part of a stack that coroutines use.
const TOP: usize = header::SIZE + (COLOURS as usize - 1) * COLOUR;

/// The memory below each stack that catches overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guards {
    /// Guards in the page tables (`MADV_GUARD_INSTALL`). Every stack can have one.
    PageTable,
    /// Mappings without access (`mprotect`). They may use 40 % of the mappings that the system
    /// allows a process, which is about 13,000 stacks.
    Protected,
}

/// The options of [`Stacks`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    limit: usize,
    guards: Option<Guards>,
    lazily: bool,
    reports: bool,
}

impl Builder {
    /// Sets the number of stacks that may exist at the same time, including free stacks. The
    /// default is 2^21.
    pub fn limit(mut self, stacks: usize) -> Self {
        self.limit = stacks;
        self
    }

    /// Sets how stacks are guarded.
    ///
    /// By default, a probe finds out if the kernel can put guards into the page tables. If it can,
    /// stacks are guarded that way, otherwise by `mprotect`. If you request a way that the kernel
    /// does not support, `mprotect` is used.
    pub fn guards(mut self, guards: Guards) -> Self {
        self.guards = Some(guards);
        self
    }

    /// Lets the system take the memory of expired stacks back only when it needs it (`MADV_FREE`).
    /// This is cheaper, but the resident size does not show it until then. By default, the system
    /// takes the memory back immediately.
    pub fn release_lazily(mut self) -> Self {
        self.lazily = true;
        self
    }

    /// Leaves the signals SIGSEGV and SIGBUS alone. An overflow then ends the program without a
    /// message. By default, overflows are reported.
    pub fn without_overflow_report(mut self) -> Self {
        self.reports = false;
        self
    }

    /// Creates the slab. No memory is mapped before the first stack is taken.
    ///
    /// # Errors
    /// None at present. Anything that the system refuses, it refuses when a stack is taken.
    pub fn build(self) -> Result<Stacks, StackError> {
        let can = guard::has_page_table_guards();
        let guards = match self.guards {
            Some(Guards::Protected) => Guards::Protected,
            _ if can => Guards::PageTable,
            _ => Guards::Protected,
        };
        if self.reports {
            overflow::install();
        }
        Ok(Stacks(Arc::new(Shared {
            config: Arc::new(Config {
                limit: self.limit,
                guards,
                lazily: self.lazily,
                counters: Counters::default(),
            }),
            sizes: [const { OnceLock::new() }; SPANS],
        })))
    }
}

/// A slab of stacks. Stacks are taken from it, and return to it when they are dropped.
///
/// Clones share the same slab. It is freed after the last clone and the last stack are dropped.
#[derive(Clone)]
pub struct Stacks(Arc<Shared>);

struct Shared {
    config: Arc<Config>,
    /// Indexed by `span_bits - SPAN_BITS.start`.
    sizes: [OnceLock<Arc<SizeClass>>; SPANS],
}

struct Config {
    limit: usize,
    guards: Guards,
    lazily: bool,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    /// The prepared stacks, in use or free.
    made: AtomicUsize,
    /// The stacks outside of the lists: with coroutines and in caches.
    out: AtomicUsize,
    out_max: AtomicUsize,
    reused: AtomicUsize,
    released: AtomicUsize,
    refused: AtomicUsize,
    reserved_bytes: AtomicUsize,
}

/// The state of [`Stacks`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// The kind of guards that the stacks have.
    pub guards: Guards,
    /// The number of stacks that were made, in use or not.
    pub made: usize,
    /// The number of stacks that are in use or in a [`StackCache`].
    pub out: usize,
    /// The largest value that `out` has had.
    pub out_max: usize,
    /// The number of stacks in the free lists.
    pub free: usize,
    /// The number of times that a stack was reused.
    pub reused: usize,
    /// The number of times that the memory of a stack was released to the system.
    pub released: usize,
    /// The number of times that no stack was available.
    pub refused: usize,
    /// The reserved address space in bytes. Only pages that were touched take memory.
    pub reserved_bytes: usize,
}

/// Returns the number of bytes of the largest stack.
pub(crate) fn largest() -> usize {
    capacity(SPAN_BITS.end - 1, guard::page_size())
}

/// Returns the usable bytes of a stack with this span, on a machine with pages of `page` bytes.
fn capacity(span_bits: u32, page: usize) -> usize {
    let span = 1 << span_bits;
    // If pages are large, the smallest spans hold only their guard.
    usize::saturating_sub(span, guard_length(span, page) + TOP)
}

/// Returns the smallest span that has room for `bytes`.
#[inline]
fn span_bits_for(bytes: usize, page: usize) -> Option<u32> {
    SPAN_BITS.into_iter().find(|&span_bits| {
        capacity(span_bits, page) >= bytes.max(corosensei::stack::MIN_STACK_SIZE)
    })
}

fn guard_length(span: usize, page: usize) -> usize {
    (span / 4).min(GUARD_LARGE).next_multiple_of(page)
}

impl Stacks {
    /// Creates a slab with the builder's defaults.
    ///
    /// # Errors
    /// Returns an error if [`Builder::build`] does.
    pub fn new() -> Result<Self, StackError> {
        Self::builder().build()
    }

    /// Returns a builder with the default options.
    pub fn builder() -> Builder {
        Builder { limit: 1 << 21, guards: None, lazily: false, reports: true }
    }

    /// Takes a stack with at least `bytes` usable bytes.
    ///
    /// Together with its guard, a stack takes a power of two of address space, and all of the rest
    /// is usable. Only touched memory counts as used. If a limit is reached, a free stack of
    /// another size gives way.
    ///
    /// # Errors
    /// Returns a [`StackError`] if the stack would exceed the largest size, a limit is reached and
    /// no stack is free, or the system refuses memory.
    pub fn take(&self, bytes: usize) -> Result<Stack, StackError> {
        let taken = match span_bits_for(bytes, guard::page_size()) {
            Some(span_bits) => {
                let size = self.size(span_bits);
                let mut taken = size.take();
                // Each round retires a stack, so the rounds end, although other threads may take
                // the room that this makes.
                while taken.as_ref().is_err_and(StackErrorKind::has_no_room) && self.retire() {
                    taken = size.take();
                }
                taken
            }
            None => Err(StackErrorKind::TooLarge),
        };
        taken.map_err(|kind| {
            self.0.config.counters.refused.fetch_add(1, Relaxed);
            StackError { wanted: bytes, kind }
        })
    }

    fn size(&self, span_bits: u32) -> &Arc<SizeClass> {
        self.0.sizes[(span_bits - SPAN_BITS.start) as usize].get_or_init(|| {
            let span = 1 << span_bits;
            Arc::new(SizeClass {
                span,
                guard: guard_length(span, guard::page_size()),
                config: Arc::clone(&self.0.config),
                slots: Mutex::new(Slots::default()),
            })
        })
    }

    /// Retires a free stack. Returns `false` if no stack is free.
    #[cold]
    fn retire(&self) -> bool {
        self.made_sizes().any(|size| size.retire())
    }

    /// Ends a period: the free stacks that were not needed since the end of the last period expire.
    /// Periods should be long compared to the program's bursts.
    pub fn end_period(&self) {
        self.made_sizes().for_each(|size| size.slots(Slots::end_period));
    }

    /// Returns the memory of expired stacks to the system, for at most `most` stacks of each size.
    /// Each stack takes about two microseconds. The result says what to do next.
    pub fn release_expired(&self, most: usize) -> Expiry {
        let releases = self.made_sizes().map(|size| size.release_expired(most));
        releases.max().unwrap_or(Expiry::Done)
    }

    fn made_sizes(&self) -> impl Iterator<Item = &Arc<SizeClass>> {
        self.0.sizes.iter().filter_map(OnceLock::get)
    }

    /// Returns the current numbers of stacks.
    pub fn stats(&self) -> StackStats {
        let counters = &self.0.config.counters;
        let made = counters.made.load(Relaxed);
        let out = counters.out.load(Relaxed);
        StackStats {
            guards: self.0.config.guards,
            made,
            out,
            out_max: counters.out_max.load(Relaxed),
            free: made.saturating_sub(out),
            reused: counters.reused.load(Relaxed),
            released: counters.released.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            reserved_bytes: counters.reserved_bytes.load(Relaxed),
        }
    }
}

impl fmt::Debug for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stacks").field(&self.stats()).finish()
    }
}

/// What is to be done after [`Stacks::release_expired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Expiry {
    /// Nothing: no free stack has memory.
    Done,
    /// [End](Stacks::end_period) the period when it is over: free stacks have memory.
    Later,
    /// Release more: more stacks have expired.
    More,
}

/// All stacks of one size.
struct SizeClass {
    span: usize,
    guard: usize,
    config: Arc<Config>,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    /// These have memory. The slot that was returned last is at the end.
    free: VecDeque<Slot>,
    /// Free, too, but without memory.
    clean: Vec<Slot>,
    /// Handed out once, and not made: the budget of guards was used up, or the stack was retired.
    unprepared: Vec<Slot>,
    slabs: Vec<Slab>,
    /// The number of slots of the last slab that have been handed out.
    handed_out: usize,
    /// So many slots at the front of `free` were not needed in the last period.
    expired: usize,
    /// So many slots at the front of `free` were not needed in this period.
    free_min: usize,
    /// The number of stacks with guards made by `mprotect`.
    protected: usize,
}

struct Slab {
    start: NonNull<u8>,
    count: usize,
}

/// The memory of one stack that is not in use.
struct Slot {
    bottom: NonNull<u8>,
    colour: u32,
    /// If `true`, its guard was made by `mprotect`, and counts for the budget.
    protected: bool,
}

// SAFETY: [slot] only the owner of the slot has the memory.
unsafe impl Send for Slot {}
// SAFETY: a slab is a range that stays mapped as long as its size class exists.
unsafe impl Send for Slab {}

impl SizeClass {
    fn slots<R>(&self, change: impl FnOnce(&mut Slots) -> R) -> R {
        change(&mut self.slots.lock())
    }

    fn take(self: &Arc<Self>) -> Result<Stack, StackErrorKind> {
        let counters = &self.config.counters;
        let slot = match self.slots(Slots::pop) {
            Some(slot) => {
                counters.reused.fetch_add(1, Relaxed);
                slot
            }
            None => self.make()?,
        };
        let out = counters.out.fetch_add(1, Relaxed) + 1;
        counters.out_max.fetch_max(out, Relaxed);
        let Slot { bottom, colour, protected, .. } = slot;
        Ok(Stack { size: Arc::clone(self), bottom, colour, protected })
    }

    #[cold]
    fn make(&self) -> Result<Slot, StackErrorKind> {
        let Config { limit, guards, counters, .. } = &*self.config;
        // In one step, because another thread must not see a stack that is refused here.
        let one_more = |made| (made < *limit).then_some(made + 1);
        if counters.made.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            return Err(StackErrorKind::Limit(*limit));
        }
        let made = self.slots(|slots| slots.next(self)).and_then(|slot| {
            let wanted = match guards {
                Guards::PageTable => Made::InPageTables,
                Guards::Protected => Made::Protected,
            };
            // SAFETY: [slot] only this call has it.
            match unsafe { guard::make(slot.bottom, self.guard, wanted) } {
                Ok(made) => {
                    let protected = made == Made::Protected;
                    self.slots(|slots| slots.protected += usize::from(protected));
                    register_with_valgrind(slot.bottom, self.guard, self.span);
                    Ok(Slot { protected, ..slot })
                }
                Err(error) => {
                    self.slots(|slots| slots.unprepared.push(slot));
                    Err(match error {
                        GuardError::Budget(budget) => StackErrorKind::Guards(budget),
                        GuardError::System(error) => StackErrorKind::System(error),
                    })
                }
            }
        });
        if made.is_err() {
            counters.made.fetch_sub(1, Relaxed);
        }
        made
    }

    /// Returns `false` if no stack of this size is free, or the system refuses to remove its guard.
    fn retire(&self) -> bool {
        let popped = self.slots(|slots| {
            let clean = slots.clean.pop().map(|slot| (slot, false));
            clean.or_else(|| slots.pop().map(|slot| (slot, true)))
        });
        let Some((slot, has_memory)) = popped else { return false };
        // SAFETY: [slot] only this call has it.
        let is_bare = !slot.protected || unsafe { guard::remove(slot.bottom, self.guard) };
        if !is_bare {
            self.slots(|slots| slots.free.push_back(slot));
            return false;
        }
        if has_memory {
            self.release(&slot);
        }
        self.slots(|slots| {
            slots.protected -= usize::from(slot.protected);
            slots.unprepared.push(Slot { protected: false, ..slot });
        });
        self.config.counters.made.fetch_sub(1, Relaxed);
        true
    }

    /// Releases the memory of a stack that only the caller has.
    fn release(&self, slot: &Slot) {
        // SAFETY: [slab] the rest of the span is above the guard.
        let start = unsafe { slot.bottom.add(self.guard) };
        // SAFETY: [slot] only the caller has it.
        unsafe { guard::release(start, self.span - self.guard, self.config.lazily) };
        self.config.counters.released.fetch_add(1, Relaxed);
    }

    fn release_expired(&self, most: usize) -> Expiry {
        let expired: Vec<Slot> = self.slots(|slots| slots.pop_expired(most));
        expired.iter().for_each(|slot| self.release(slot));
        self.slots(|slots| {
            slots.clean.extend(expired);
            match (slots.expired, slots.free.len()) {
                (_, 0) => Expiry::Done,
                (0, _) => Expiry::Later,
                _ => Expiry::More,
            }
        })
    }
}

impl Drop for SizeClass {
    fn drop(&mut self) {
        let span = self.span;
        self.slots(|slots| {
            for slab in slots.slabs.drain(..) {
                overflow::remove(slab.start.addr().get());
                // SAFETY: [slab] every stack would keep its size class, so there is none.
                unsafe { guard::unmap(slab.start, slab.count * span) };
            }
            guard::return_to_budget(slots.protected);
        });
    }
}

impl Slots {
    /// Takes the free slot that was returned last.
    fn pop(&mut self) -> Option<Slot> {
        let slot = self.free.pop_back();
        self.free_min = self.free_min.min(self.free.len());
        self.expired = self.expired.min(self.free_min);
        slot.or_else(|| self.clean.pop())
    }

    fn end_period(&mut self) {
        self.expired = self.free_min;
        self.free_min = self.free.len();
    }

    /// Takes expired slots, at most `most`.
    fn pop_expired(&mut self, most: usize) -> Vec<Slot> {
        let count = self.expired.min(most);
        self.expired -= count;
        self.free_min -= count;
        self.free.drain(..count).collect()
    }

    /// Returns a slot that was never used.
    fn next(&mut self, size: &SizeClass) -> Result<Slot, StackErrorKind> {
        if let Some(slot) = self.unprepared.pop() {
            return Ok(slot);
        }
        if self.slabs.last().is_none_or(|slab| self.handed_out == slab.count) {
            let wanted =
                self.slabs.last().map_or(SLAB_FIRST, |slab| (slab.count * 2).min(SLAB_MAX));
            let count = wanted.min(SLAB_BYTES_MAX / size.span).max(1);
            let start = guard::map(count * size.span).map_err(StackErrorKind::System)?;
            if !overflow::add(start.addr().get(), count * size.span, size.span, size.guard) {
                // SAFETY: just mapped, and used for nothing.
                unsafe { guard::unmap(start, count * size.span) };
                return Err(StackErrorKind::Mappings);
            }
            size.config.counters.reserved_bytes.fetch_add(count * size.span, Relaxed);
            self.slabs.push(Slab { start, count });
            self.handed_out = 0;
        }
        let slab = self.slabs.last().expect("a slab existed before, or was just mapped");
        let number = self.handed_out;
        self.handed_out += 1;
        // SAFETY: [slab] there are more slots than have been handed out.
        let bottom = unsafe { slab.start.add(number * size.span) };
        Ok(Slot { bottom, colour: number as u32 % COLOURS, protected: false })
    }
}

/// Registers the range as a stack with valgrind, if the program runs under it.
fn register_with_valgrind(bottom: NonNull<u8>, guard: usize, span: usize) {
    // SAFETY: [slab] the span of a stack.
    let usable = unsafe { bottom.add(guard) };
    let registration =
        corosensei::stack::valgrind::ValgrindStackRegistration::new(usable.as_ptr(), span - guard);
    // The registration is permanent. If something else is mapped there later, valgrind is only
    // slightly more lenient about it.
    std::mem::forget(registration);
}

/// A stack. If it is dropped, it goes back to its slab.
pub struct Stack {
    size: Arc<SizeClass>,
    bottom: NonNull<u8>,
    colour: u32,
    protected: bool,
}

// SAFETY: [slot] only the owner of the stack has the memory.
unsafe impl Send for Stack {}
// SAFETY: a shared reference provides only addresses.
unsafe impl Sync for Stack {}

impl Stack {
    /// Returns the number of usable bytes.
    pub fn capacity(&self) -> usize {
        self.size.span - self.size.guard - TOP
    }

    pub(crate) fn end(&self) -> NonNull<u8> {
        // SAFETY: [slab] one past the last byte of its span.
        unsafe { self.bottom.add(self.size.span) }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: [header] the stack is prepared, and [slab] mapped as long as it exists.
        unsafe { Header::at(self.end()) }
    }

    /// Returns the address above the usable part of the stack, which grows downwards from here.
    pub(crate) fn top(&self) -> StackPointer {
        let top = self.end().addr().get() - header::SIZE - self.colour as usize * COLOUR;
        StackPointer::new(top).expect("a stack is never at address 0")
    }

    /// Returns the lowest address of the stack, which is the address of its guard.
    pub(crate) fn limit(&self) -> StackPointer {
        self.bottom.addr()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.header().clear_tell();
        self.size.config.counters.out.fetch_sub(1, Relaxed);
        let Self { bottom, colour, protected, .. } = *self;
        let slot = Slot { bottom, colour, protected };
        self.size.slots(|slots| slots.free.push_back(slot));
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("bottom", &self.bottom)
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// A cache of stacks, so that most coroutines begin and end without taking the lock of the slab. Of
/// the stacks that fit, the one that was returned last is taken first.
#[derive(Debug)]
pub struct StackCache {
    stacks: Stacks,
    kept: Vec<Stack>,
    most: usize,
}

impl StackCache {
    /// Creates an empty cache for a slab. It keeps at most `most` stacks.
    ///
    /// These stacks count as in use: [`Stacks::take`] does not find them, they give way to no stack
    /// of another size, and they do not [expire](Stacks::end_period). If a stack is refused for a
    /// limit, [clear](Self::clear) the caches and try again.
    pub fn new(stacks: &Stacks, most: usize) -> Self {
        Self { stacks: stacks.clone(), kept: Vec::new(), most }
    }

    /// Takes a stack from the cache or, if none fits, from the slab, like [`Stacks::take`].
    ///
    /// # Errors
    /// Returns an error if [`Stacks::take`] does.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<Stack, StackError> {
        let span = span_bits_for(bytes, guard::page_size()).map_or(0, |span_bits| 1 << span_bits);
        // The last one fits, unless the program has coroutines of several sizes.
        match self.kept.iter().rposition(|stack| stack.size.span == span) {
            Some(index) => {
                self.stacks.0.config.counters.reused.fetch_add(1, Relaxed);
                Ok(self.kept.remove(index))
            }
            None => self.stacks.take(bytes),
        }
    }

    /// Keeps a stack for the next coroutine. If the cache is full, the older half of its stacks
    /// goes back to the slab. Returns `true` if stacks went there.
    pub fn put(&mut self, stack: Stack) -> bool {
        let is_full = self.kept.len() >= self.most;
        if is_full {
            self.kept.drain(..self.most.div_ceil(2));
        }
        if self.most > 0 {
            self.kept.push(stack);
        }
        is_full
    }

    /// Returns `true` if the cache has no stack.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns all stacks to the slab.
    pub fn clear(&mut self) {
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use corosensei::stack::MIN_STACK_SIZE;

    use super::{GUARD_LARGE, SPAN_BITS, TOP, capacity, guard_length, span_bits_for};

    /// The pages of x86-64, and the three sizes that AArch64 has.
    const PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

    #[test]
    fn each_stack_and_its_guard_are_whole_pages_of_each_size() {
        for page in PAGES {
            let sizes = [1, MIN_STACK_SIZE, 16 << 10, 64 << 10, 128 << 10, 1 << 20, 512 << 20];
            for bytes in sizes {
                let span_bits = span_bits_for(bytes, page).expect("none of them is too large");
                let span = 1_usize << span_bits;
                let guard = guard_length(span, page);
                assert_eq!((span % page, guard % page), (0, 0), "{bytes} bytes, pages of {page}");
                assert!((page..=GUARD_LARGE.max(page)).contains(&guard), "{guard}");
                // The header and the highest frames lie in other pages than the guard.
                assert!(span >= guard + page, "{bytes} bytes, pages of {page}");
                assert!(span - guard - TOP >= bytes.max(MIN_STACK_SIZE), "{bytes}");
            }
        }
    }

    #[test]
    fn a_stack_of_128_kib_has_one_guard_beside_pages_of_64_kib() {
        let page = 64 << 10;
        // The two smallest spans are no larger than the guard, so no stack has them.
        assert_eq!((capacity(15, page), capacity(16, page)), (0, 0));
        assert_eq!(span_bits_for(0, page), Some(17));
        assert_eq!(span_bits_for(128 << 10, page), Some(18));
        assert_eq!(guard_length(256 << 10, page), page);
    }

    #[test]
    fn what_exceeds_the_largest_span_has_none() {
        for page in PAGES {
            let largest = capacity(SPAN_BITS.end - 1, page);
            assert_eq!(span_bits_for(largest, page), Some(SPAN_BITS.end - 1));
            assert_eq!(span_bits_for(largest + 1, page), None);
        }
    }
}
