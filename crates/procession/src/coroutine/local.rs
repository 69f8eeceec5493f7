//! Locals of a coroutine.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::{fmt, ptr};

use crate::coroutine::frame::frame;
use crate::variance::Typed;

thread_local! {
    static LOCALS: RefCell<Vec<(usize, Rc<dyn Any>)>> = const { RefCell::new(Vec::new()) };
}

/// A value that each coroutine has separately, and each thread that runs none. It is made when it
/// is first used, and dropped when the coroutine ends, on its stack.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use std::cell::Cell;
/// use procession::coroutine;
/// use procession::coroutine::spawn_coroutine;
///
/// static DEPTH: coroutine::Local<Cell<u32>> = coroutine::Local::new(|| Cell::new(0));
///
/// scheduler.block_on(async {
///     for _ in 0..2 {
///         let child = spawn_coroutine(|_: coroutine::Context<()>| {
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
    /// Creates a local with values that `make` creates. Put it into a `static`: its address
    /// identifies it.
    pub const fn new(make: fn() -> T) -> Self {
        Self { make, value: PhantomData }
    }

    /// Calls `function` with the value of the coroutine, or of the thread, that runs.
    pub fn with<R>(&'static self, function: impl FnOnce(&T) -> R) -> R {
        self.try_with(function).expect("the thread does not end")
    }

    /// Like [`with`](Self::with), but returns `None` if the locals of the thread are gone, because
    /// the thread ends.
    pub(crate) fn try_with<R>(&'static self, function: impl FnOnce(&T) -> R) -> Option<R> {
        let key = ptr::from_ref(self).addr();
        let value = match frame() {
            Some(frame) => self.find(key, &frame.locals),
            None => LOCALS.try_with(|locals| self.find(key, locals)).ok()?,
        };
        Some(function(&value))
    }

    fn find(&self, key: usize, locals: &RefCell<Vec<(usize, Rc<dyn Any>)>>) -> Rc<T> {
        let of_key = |locals: &RefCell<Vec<(usize, Rc<dyn Any>)>>| {
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
