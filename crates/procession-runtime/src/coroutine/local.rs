//! Locals of a coroutine.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::{fmt, ptr};

use crate::process::typed::Typed;
use crate::scheduler::current::drive_depth;
use crate::scheduler::frame::{LocalKey, LocalValues, frame};

thread_local! {
    static LOCALS: LocalValues = const { RefCell::new(Vec::new()) };
}

/// A value that each coroutine has separately, and each thread that runs none. It is made when it
/// is first used, and dropped when the coroutine ends, on its stack.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use std::cell::Cell;
/// use procession::{SpawnOptions, coroutine};
///
/// static DEPTH: coroutine::Local<Cell<u32>> = coroutine::Local::new(|| Cell::new(0));
///
/// scheduler.block_on(async {
///     for _ in 0..2 {
///         let child = SpawnOptions::new().try_start_coroutine(|_: coroutine::Context<()>| {
///             coroutine::yield_now();
///             DEPTH.with(|depth| depth.replace(depth.get() + 1))
///         });
///         assert_eq!(child.expect("they are enabled").await, Ok(0));
///     }
/// });
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub struct Local<T: 'static> {
    make: fn() -> T,
    value: Typed<T>,
}

impl<T: 'static> Local<T> {
    /// Creates a local with values that `make` creates. Put it into a `static`, because its address
    /// identifies it.
    pub const fn new(make: fn() -> T) -> Self {
        Self { make, value: PhantomData }
    }

    /// Calls `function` with the value of the coroutine, or of the thread, that runs.
    pub fn with<R>(&'static self, function: impl FnOnce(&T) -> R) -> R {
        function(&self.here().expect("the thread does not end"))
    }

    /// Returns the value of the coroutine, or of the thread, that runs. Returns `None` if the
    /// locals of the thread are gone, because the thread ends.
    pub(crate) fn here(&'static self) -> Option<Rc<T>> {
        self.at_depth(0)
    }

    /// Like [`here`](Self::here), but a thread has a separate value for each scheduler that it
    /// drives, one inside the other.
    pub(crate) fn in_drive(&'static self) -> Option<Rc<T>> {
        self.at_depth(drive_depth())
    }

    fn at_depth(&'static self, depth: u32) -> Option<Rc<T>> {
        let address = ptr::from_ref(self).addr();
        match frame() {
            // If a coroutine drives a scheduler, its frame is set aside until the drive ends.
            Some(frame) => Some(self.find((address, 0), &frame.locals)),
            None => LOCALS.try_with(|locals| self.find((address, depth), locals)).ok(),
        }
    }

    fn find(&self, key: LocalKey, locals: &LocalValues) -> Rc<T> {
        let of_key = |locals: &LocalValues| {
            let locals = locals.borrow();
            let (_, value) = locals.iter().find(|(other, _)| *other == key)?;
            Rc::clone(value).downcast().ok()
        };
        if let Some(value) = of_key(locals) {
            return value;
        }
        // User code: it may use other locals, or this one.
        let made: Rc<T> = Rc::new((self.make)());
        if let Some(value) = of_key(locals) {
            return value;
        }
        locals.borrow_mut().push((key, Rc::<T>::clone(&made)));
        made
    }
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local(..)")
    }
}
