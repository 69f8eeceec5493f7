//! Stacks: where they come from, and where they go.
//!
//! Each size has slabs: mappings of many stacks side by side, each with its guard below it. A stack is prepared (guarded) when it is first handed
//! out, and stays so for ever. One that comes back goes on top of a list, and the next one asked for is taken from there: it is in the caches. What
//! lies at the bottom of the list for a whole period was not needed in it; [`Stacks::expire`] gives its memory back to the system.
//!
//! ## Invariants
//! - `[slab]` a slab is mapped until its `Size` goes, which every [`Stack`] of it keeps.
//! - `[place]` each place of a slab is in exactly one of: not handed out yet, `unprepared`, `free`, or one `Stack`.
//!
//! ## Rejected
//! - A mapping for each stack: 8.6 us for a stack used once instead of 8 ns for one used again, and two of the 65530 mappings that a process has.
//! - Tops at the same place in each page: all of them fall into the same sets of the first-level cache, and switching round a thousand
//!   coroutines takes 7.5 ns instead of 2.
//! - A look at a word some pages down, when a stack comes back, to see whether it went deep: a frame may skip any word, and the look itself makes the
//!   page table for it. A deep stack in use again and again is one of the few on top of the list.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use corosensei::stack::StackPointer;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::guard::{self, GuardError, Made};
use crate::header::{self, Header};
use crate::overflow;

/// The smallest and the largest distance between stacks, as powers of two: 32 KiB and 1 GiB.
const SPAN_BITS: Range<u32> = 15..31;
const SPANS: usize = (SPAN_BITS.end - SPAN_BITS.start) as usize;

/// What a guard takes at least of a large stack, so that a frame of a C function that probes nothing does not step over it; glibc's number.
const GUARD_LARGE: usize = 64 << 10;

/// Places of a slab: the first has few, for programs with few coroutines, and each is twice the one before.
const SLAB_FIRST: usize = 64;
const SLAB_MAX: usize = 4096;
/// No slab is larger than this, unless one stack is.
const SLAB_BYTES_MAX: usize = 16 << 30;

/// Tops of stacks differ by a cache line, in as many ways as the sets of a first-level cache need to be spread.
const COLOURS: u32 = 16;
const COLOUR: usize = 64;

/// What is above the part of a stack that coroutines use.
const TOP: usize = header::SIZE + (COLOURS as usize - 1) * COLOUR;

/// Stacks whose memory one call of [`Stacks::expire`] gives back for each size: a millisecond or two of system calls.
const EXPIRED_AT_ONCE: usize = 1024;

/// How overflows are caught: what lies below each stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guards {
    /// Guards in the page tables (`MADV_GUARD_INSTALL`): as many as there are stacks.
    PageTable,
    /// Mappings without access (`mprotect`): 40 % of the mappings that the system allows a process, about 13,000 stacks.
    Protected,
}

/// Why there is no stack.
#[derive(Debug)]
pub struct StackError {
    wanted: usize,
    kind: StackErrorKind,
}

#[derive(Debug)]
enum StackErrorKind {
    TooLarge,
    Limit(usize),
    Guards(usize),
    Mappings,
    System(io::Error),
}

impl StackError {
    /// Whether the slab's own limit is reached: there is a stack once one comes back.
    pub fn is_limit(&self) -> bool {
        matches!(self.kind, StackErrorKind::Limit(_))
    }

    /// Whether the program has too many guards or slabs, of this slab and others.
    pub fn is_exhausted(&self) -> bool {
        matches!(self.kind, StackErrorKind::Guards(_) | StackErrorKind::Mappings)
    }
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no stack of {} bytes: ", self.wanted)?;
        match &self.kind {
            StackErrorKind::TooLarge => write!(f, "the largest has {} bytes", capacity(SPAN_BITS.end - 1)),
            StackErrorKind::Limit(limit) => write!(f, "the limit of {limit} stacks is reached"),
            StackErrorKind::Guards(budget) => {
                write!(f, "{budget} stacks are guarded, and more mappings would starve the program (vm.max_map_count)")
            }
            StackErrorKind::Mappings => f.write_str("the program has too many slabs of stacks"),
            StackErrorKind::System(_) => f.write_str("the system refused memory"),
        }
    }
}

impl Error for StackError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            StackErrorKind::System(error) => Some(error),
            _ => None,
        }
    }
}

/// What [`Stacks`] are to be like.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    limit: usize,
    guards: Option<Guards>,
    lazily: bool,
    reports: bool,
}

impl Builder {
    /// How many stacks there may be at once, free ones included. Default: 2^21.
    pub fn limit(mut self, stacks: usize) -> Self {
        self.limit = stacks;
        self
    }

    /// How stacks are guarded. Default: in the page tables, if the kernel can, which is tried; else protected. Asking for what the kernel
    /// cannot do gives protected ones.
    pub fn guards(mut self, guards: Guards) -> Self {
        self.guards = Some(guards);
        self
    }

    /// Lets the system take the memory of expired stacks back when it needs it (`MADV_FREE`), instead of at once: cheaper, and invisible in
    /// the resident size until then. Default: at once.
    pub fn release_lazily(mut self) -> Self {
        self.lazily = true;
        self
    }

    /// Leaves the signals SIGSEGV and SIGBUS alone: an overflow then ends the program without a word. Default: it is reported.
    pub fn without_overflow_report(mut self) -> Self {
        self.reports = false;
        self
    }

    /// Makes the slab. No memory is mapped before the first stack is taken.
    ///
    /// # Errors
    /// None at present; what the system refuses, it refuses when a stack is taken.
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
        Ok(Stacks(Arc::new(Common {
            rules: Arc::new(Rules { limit: self.limit, guards, lazily: self.lazily, counts: Counts::default() }),
            sizes: [const { OnceLock::new() }; SPANS],
        })))
    }
}

/// Where stacks come from and go to. Clones are of the same slab, which is freed with the last of them and of its stacks.
#[derive(Clone)]
pub struct Stacks(Arc<Common>);

struct Common {
    rules: Arc<Rules>,
    /// By `span_bits - SPAN_BITS.start`.
    sizes: [OnceLock<Arc<Size>>; SPANS],
}

struct Rules {
    limit: usize,
    guards: Guards,
    lazily: bool,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    /// Prepared, in use or free.
    made: AtomicUsize,
    /// Taken out of the lists: with coroutines, and in caches.
    out: AtomicUsize,
    out_max: AtomicUsize,
    reused: AtomicUsize,
    released: AtomicUsize,
    refused: AtomicUsize,
    reserved_bytes: AtomicUsize,
}

/// What [`Stacks`] hold at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// How they are guarded.
    pub guards: Guards,
    /// Stacks that have been made, in use or not.
    pub made: usize,
    /// Those of them that are in use or in a [`StackCache`].
    pub out: usize,
    /// The most that `out` has been.
    pub out_max: usize,
    /// Those that lie in the lists.
    pub free: usize,
    /// Times that one was used again.
    pub reused: usize,
    /// Times that the memory of one was given back to the system.
    pub released: usize,
    /// Times that there was none.
    pub refused: usize,
    /// Address space that is reserved, in bytes; memory is what has been touched of it.
    pub reserved_bytes: usize,
}

/// What one size can hold at most.
fn capacity(span_bits: u32) -> usize {
    let span = 1 << span_bits;
    // Where pages are large, the smallest spans hold nothing but their guard.
    usize::saturating_sub(span, guard_length(span) + TOP)
}

/// The smallest span that holds `bytes`.
#[inline]
fn span_bits_for(bytes: usize) -> Option<u32> {
    SPAN_BITS.into_iter().find(|&span_bits| capacity(span_bits) >= bytes.max(corosensei::stack::MIN_STACK_SIZE))
}

fn guard_length(span: usize) -> usize {
    (span / 4).min(GUARD_LARGE).next_multiple_of(guard::page_size())
}

impl Stacks {
    /// A slab with the builder's defaults.
    ///
    /// # Errors
    /// As for [`Builder::build`].
    pub fn new() -> Result<Self, StackError> {
        Self::builder().build()
    }

    /// Starts to describe a slab.
    pub fn builder() -> Builder {
        Builder { limit: 1 << 21, guards: None, lazily: false, reports: true }
    }

    /// A stack on which at least `bytes` may be used: with its guard it takes a power of two of address space, and the rest of that is usable, too.
    /// Only what is touched takes memory.
    ///
    /// # Errors
    /// [`StackError`]: it would be too large, a limit is reached, or the system refuses.
    pub fn take(&self, bytes: usize) -> Result<Stack, StackError> {
        let taken = match span_bits_for(bytes) {
            Some(span_bits) => self.size(span_bits).take(),
            None => Err(StackErrorKind::TooLarge),
        };
        taken.map_err(|kind| {
            self.0.rules.counts.refused.fetch_add(1, Relaxed);
            StackError { wanted: bytes, kind }
        })
    }

    fn size(&self, span_bits: u32) -> &Arc<Size> {
        self.0.sizes[(span_bits - SPAN_BITS.start) as usize].get_or_init(|| {
            let span = 1 << span_bits;
            Arc::new(Size {
                span,
                guard: guard_length(span),
                rules: Arc::clone(&self.0.rules),
                places: Mutex::new(Places::default()),
            })
        })
    }

    /// Gives back the memory of those free stacks that were not needed since the last call, a thousand of each size at most. Call it once a period
    /// that is long beside the bursts of the program, some seconds. Says whether a further period may find more.
    pub fn expire(&self) -> bool {
        let left = self.0.sizes.iter().filter_map(OnceLock::get).filter(|size| size.expire()).count();
        left > 0
    }

    /// What there is.
    pub fn stats(&self) -> StackStats {
        let counts = &self.0.rules.counts;
        let made = counts.made.load(Relaxed);
        let out = counts.out.load(Relaxed);
        StackStats {
            guards: self.0.rules.guards,
            made,
            out,
            out_max: counts.out_max.load(Relaxed),
            free: made.saturating_sub(out),
            reused: counts.reused.load(Relaxed),
            released: counts.released.load(Relaxed),
            refused: counts.refused.load(Relaxed),
            reserved_bytes: counts.reserved_bytes.load(Relaxed),
        }
    }
}

impl fmt::Debug for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stacks").field(&self.stats()).finish()
    }
}

/// All stacks of one size.
struct Size {
    span: usize,
    guard: usize,
    rules: Arc<Rules>,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// The one that came back last is last.
    free: Vec<Place>,
    /// Handed out once, but without a guard: the budget was used up.
    unprepared: Vec<Place>,
    slabs: Vec<Slab>,
    /// Of the last slab, how many places have been handed out.
    handed_out: usize,
    /// The fewest that `free` held since the last `expire`.
    free_min: usize,
    /// Stacks with guards by `mprotect`.
    protected: usize,
}

struct Slab {
    start: NonNull<u8>,
    count: usize,
}

/// One stack that nobody uses.
struct Place {
    bottom: NonNull<u8>,
    colour: u32,
    /// None of its memory is resident.
    clean: bool,
}

// SAFETY: [place] whoever has it has the memory alone.
unsafe impl Send for Place {}
// SAFETY: a slab is a range that is there as long as its size.
unsafe impl Send for Slab {}

impl Size {
    fn places<R>(&self, change: impl FnOnce(&mut Places) -> R) -> R {
        change(&mut self.places.lock().expect("nothing that can panic runs under this lock"))
    }

    fn take(self: &Arc<Self>) -> Result<Stack, StackErrorKind> {
        let reused = self.places(|places| {
            let place = places.free.pop();
            places.free_min = places.free_min.min(places.free.len());
            place
        });
        let counts = &self.rules.counts;
        let place = match reused {
            Some(place) => {
                counts.reused.fetch_add(1, Relaxed);
                place
            }
            None => self.make()?,
        };
        let out = counts.out.fetch_add(1, Relaxed) + 1;
        counts.out_max.fetch_max(out, Relaxed);
        Ok(Stack { size: Arc::clone(self), bottom: place.bottom, colour: place.colour })
    }

    #[cold]
    fn make(&self) -> Result<Place, StackErrorKind> {
        let Rules { limit, guards, counts, .. } = &*self.rules;
        if counts.made.fetch_add(1, Relaxed) >= *limit {
            counts.made.fetch_sub(1, Relaxed);
            return Err(StackErrorKind::Limit(*limit));
        }
        let made = self.places(|places| places.next(self)).and_then(|place| {
            let wanted = match guards {
                Guards::PageTable => Made::InPageTables,
                Guards::Protected => Made::Protected,
            };
            // SAFETY: [place] nobody else has it.
            match unsafe { guard::make(place.bottom, self.guard, wanted) } {
                Ok(made) => {
                    self.places(|places| places.protected += usize::from(made == Made::Protected));
                    register_with_valgrind(place.bottom, self.guard, self.span);
                    Ok(place)
                }
                Err(error) => {
                    self.places(|places| places.unprepared.push(place));
                    Err(match error {
                        GuardError::Budget(budget) => StackErrorKind::Guards(budget),
                        GuardError::System(error) => StackErrorKind::System(error),
                    })
                }
            }
        });
        if made.is_err() {
            counts.made.fetch_sub(1, Relaxed);
        }
        made
    }

    fn expire(&self) -> bool {
        let (expired, more) = self.places(|places| {
            let idle = places.free_min.min(places.free.len());
            // Those that are clean already lie at the bottom, and stay there.
            let clean = places.free[..idle].iter().take_while(|place| place.clean).count();
            let expired: Vec<Place> = places.free.drain(clean..idle.min(clean + EXPIRED_AT_ONCE)).collect();
            (expired, places.free.iter().any(|place| !place.clean))
        });
        for place in &expired {
            // SAFETY: [slab] above its guard there is the rest of its span.
            let start = unsafe { place.bottom.add(self.guard) };
            // SAFETY: [place] nobody else has it.
            unsafe { guard::release(start, self.span - self.guard, self.rules.lazily) };
            self.rules.counts.released.fetch_add(1, Relaxed);
        }
        self.places(|places| {
            let released = expired.into_iter().map(|place| Place { clean: true, ..place });
            drop(places.free.splice(0..0, released));
            places.free_min = places.free.len();
        });
        more
    }
}

impl Drop for Size {
    fn drop(&mut self) {
        let span = self.span;
        self.places(|places| {
            for slab in places.slabs.drain(..) {
                overflow::remove(slab.start.addr().get());
                // SAFETY: [slab] every stack would keep its size, so there is none.
                unsafe { guard::unmap(slab.start, slab.count * span) };
            }
            guard::give_back(places.protected);
        });
    }
}

impl Places {
    /// A place that was never used.
    fn next(&mut self, size: &Size) -> Result<Place, StackErrorKind> {
        if let Some(place) = self.unprepared.pop() {
            return Ok(place);
        }
        if self.slabs.last().is_none_or(|slab| self.handed_out == slab.count) {
            let wanted = self.slabs.last().map_or(SLAB_FIRST, |slab| (slab.count * 2).min(SLAB_MAX));
            let count = wanted.min(SLAB_BYTES_MAX / size.span).max(1);
            let start = guard::map(count * size.span).map_err(StackErrorKind::System)?;
            if !overflow::add(start.addr().get(), count * size.span, size.span, size.guard) {
                // SAFETY: just mapped, and used for nothing.
                unsafe { guard::unmap(start, count * size.span) };
                return Err(StackErrorKind::Mappings);
            }
            size.rules.counts.reserved_bytes.fetch_add(count * size.span, Relaxed);
            self.slabs.push(Slab { start, count });
            self.handed_out = 0;
        }
        let slab = self.slabs.last().expect("there is one, or it was just mapped");
        let number = self.handed_out;
        self.handed_out += 1;
        // SAFETY: [slab] there are more places than have been handed out.
        let bottom = unsafe { slab.start.add(number * size.span) };
        Ok(Place { bottom, colour: number as u32 % COLOURS, clean: true })
    }
}

/// Tells valgrind, if the program runs under it, that this is a stack; nothing otherwise.
fn register_with_valgrind(bottom: NonNull<u8>, guard: usize, span: usize) {
    // SAFETY: [slab] the span of a stack.
    let usable = unsafe { bottom.add(guard) };
    let registration = corosensei::stack::valgrind::ValgrindStackRegistration::new(usable.as_ptr(), span - guard);
    // For good: what is mapped there later is no stack, which only makes valgrind a little more lenient.
    std::mem::forget(registration);
}

/// A stack. Dropping it gives it back.
pub struct Stack {
    size: Arc<Size>,
    bottom: NonNull<u8>,
    colour: u32,
}

// SAFETY: [place] whoever has it has the memory alone.
unsafe impl Send for Stack {}
// SAFETY: a shared reference tells addresses only.
unsafe impl Sync for Stack {}

impl Stack {
    /// How many bytes may be used.
    pub fn capacity(&self) -> usize {
        self.size.span - self.size.guard - TOP
    }

    pub(crate) fn end(&self) -> NonNull<u8> {
        // SAFETY: [slab] one past the last byte of its span.
        unsafe { self.bottom.add(self.size.span) }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: [header] it is prepared, and [slab] mapped as long as this.
        unsafe { Header::at(self.end()) }
    }

    /// The address above the part of the stack that is used; it grows downwards from here.
    pub(crate) fn top(&self) -> StackPointer {
        let top = self.end().addr().get() - header::SIZE - self.colour as usize * COLOUR;
        StackPointer::new(top).expect("no stack lies at address 0")
    }

    /// The lowest address, that of the guard.
    pub(crate) fn limit(&self) -> StackPointer {
        self.bottom.addr()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.header().clear_tell();
        self.size.rules.counts.out.fetch_sub(1, Relaxed);
        let place = Place { bottom: self.bottom, colour: self.colour, clean: false };
        self.size.places(|places| places.free.push(place));
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("bottom", &self.bottom).field("capacity", &self.capacity()).finish()
    }
}

/// Stacks that one thread keeps to itself, so that most coroutines begin and end without a lock: the one that came back last is taken first.
#[derive(Debug)]
pub struct StackCache {
    stacks: Stacks,
    kept: Vec<Stack>,
    most: usize,
}

impl StackCache {
    /// An empty cache before a slab, which keeps at most so many. All caches of a slab together should keep a small part of its limit: nobody else
    /// can take those.
    pub fn new(stacks: &Stacks, most: usize) -> Self {
        Self { stacks: stacks.clone(), kept: Vec::new(), most }
    }

    /// As [`Stacks::take`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Result<Stack, StackError> {
        let span = span_bits_for(bytes).map_or(0, |span_bits| 1 << span_bits);
        // The last one fits, unless the program has coroutines of several sizes.
        match self.kept.iter().rposition(|stack| stack.size.span == span) {
            Some(place) => {
                self.stacks.0.rules.counts.reused.fetch_add(1, Relaxed);
                Ok(self.kept.remove(place))
            }
            None => self.stacks.take(bytes),
        }
    }

    /// Keeps a stack for the next coroutine. If there are many, the older half goes back.
    pub fn put(&mut self, stack: Stack) {
        if self.kept.len() >= self.most {
            self.kept.drain(..self.most / 2);
        }
        if self.most > 0 {
            self.kept.push(stack);
        }
    }

    /// Gives all of them back.
    pub fn clear(&mut self) {
        self.kept.clear();
    }
}
