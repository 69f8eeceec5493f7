/// [`std::cell::UnsafeCell`] with the interface of loom's: all access goes through closures, which
/// loom can watch.
///
/// The pointer is valid only inside the closure. To write through it, or to read through it while
/// another thread writes, needs the same care as with std's cell. This crate contains no unsafe
/// code; its callers do.
#[derive(Debug, Default)]
pub struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Creates a cell that contains `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `read` with a pointer for reading.
    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer for reading and writing.
    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
