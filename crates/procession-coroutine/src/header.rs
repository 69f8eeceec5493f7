//! The description of a coroutine in the last bytes of its stack, which the overflow report reads.
//!
//! ## Invariants
//! - `[header]` the last `SIZE` bytes of a prepared stack hold a `Header`. All zeros are a header
//!   without any description. Only the thread that owns the stack writes it, and apart from that
//!   thread only its own signal handler reads it.

use std::fmt;
use std::panic::Location;
use std::ptr::{self, NonNull};

use procession_sync::atomic::AtomicPtr;
use procession_sync::atomic::Ordering::Relaxed;

/// The number of bytes reserved at the top of each stack: one cache line.
pub(crate) const SIZE: usize = 64;

/// A function that describes a coroutine for the overflow report; see
/// [`Coroutine::describe_with`](crate::Coroutine::describe_with).
pub type Tell = unsafe fn(*const (), &mut dyn fmt::Write) -> fmt::Result;

#[repr(C)]
pub(crate) struct Header {
    location: AtomicPtr<Location<'static>>,
    data: AtomicPtr<()>,
    /// A `Tell`, or null.
    tell: AtomicPtr<()>,
}

const _: () = assert!(size_of::<Header>() <= SIZE);

impl Header {
    /// Returns the header of a stack that ends at `end`.
    ///
    /// # Safety
    /// `[header]`: the stack is prepared, and stays mapped as long as the reference lives.
    pub(crate) unsafe fn at<'a>(end: NonNull<u8>) -> &'a Self {
        // SAFETY: [header]
        let header = unsafe { end.sub(SIZE) };
        // SAFETY: [header]; a multiple of the page size minus a cache line is aligned.
        unsafe { header.cast().as_ref() }
    }

    pub(crate) fn set_location(&self, location: &'static Location<'static>) {
        // Relaxed, like all accesses here: the reader is a signal handler of the same thread.
        self.location.store(ptr::from_ref(location).cast_mut(), Relaxed);
        self.tell.store(ptr::null_mut(), Relaxed);
    }

    pub(crate) fn set_tell(&self, data: *const (), tell: Tell) {
        self.data.store(data.cast_mut(), Relaxed);
        self.tell.store(tell as *mut (), Relaxed);
    }

    pub(crate) fn clear_tell(&self) {
        self.tell.store(ptr::null_mut(), Relaxed);
    }

    /// Writes the description. This allocates nothing, unless `tell` does.
    pub(crate) fn write(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        to.write_str("a coroutine")?;
        let tell = self.tell.load(Relaxed);
        if !tell.is_null() {
            to.write_str(" (")?;
            // SAFETY: [header] only `set_tell` stores a value that is not null.
            let tell: Tell = unsafe { std::mem::transmute(tell) };
            // SAFETY: the caller that set it promised that the data is valid as long as the
            // coroutine can run.
            unsafe { tell(self.data.load(Relaxed), to)? };
            to.write_str(")")?;
        }
        // SAFETY: [header] a location is static.
        if let Some(location) = unsafe { self.location.load(Relaxed).as_ref() } {
            write!(to, " spawned at {location}")?;
        }
        Ok(())
    }
}
