//! Cells.

use std::panic::Location;

use super::{Life, has_points, machine, point};

/// [`std::cell::UnsafeCell`] with the interface of loom's. In a simulation, two accesses at a time
/// are a data race, unless both read. On a weak processor, so are two accesses of which nothing
/// orders the second after the first.
#[derive(Debug, Default)]
#[repr(C)]
pub struct UnsafeCell<T: ?Sized> {
    life: Life,
    inner: std::cell::UnsafeCell<T>,
}

impl<T> UnsafeCell<T> {
    /// Creates a cell that contains `value`.
    pub const fn new(value: T) -> Self {
        Self { life: Life, inner: std::cell::UnsafeCell::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `read` with a pointer for reading.
    #[inline]
    #[track_caller]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        let _access = self.enter(false);
        read(self.inner.get())
    }

    /// Calls `write` with a pointer for reading and writing.
    #[inline]
    #[track_caller]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        let _access = self.enter(true);
        write(self.inner.get())
    }

    /// Begins an access. Another thread may run in it.
    #[track_caller]
    fn enter(&self, is_write: bool) -> Option<Access> {
        if !has_points() || size_of_val(&self.inner) == 0 {
            return None;
        }
        let (address, at) = (self.life.address(), Location::caller());
        let access = machine(|machine| machine.enter(address, is_write, at)).map(Access)?;
        point();
        Some(access)
    }
}

/// An access of a cell, which ends when this is dropped.
struct Access(u64);

impl Drop for Access {
    fn drop(&mut self) {
        machine(|machine| machine.leave(self.0));
    }
}
