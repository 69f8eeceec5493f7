//! Values that the code of one future sees, whatever worker polls it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use crate::coroutine::local::Local;
use crate::scheduler::handle_error::MisplacedCall;

/// A value that all code of a future can see, without being passed on. For example, the user of a
/// request, or the name of a trace.
///
/// [`scope`](Self::scope) sets the value for a future. If this future is the future of a process,
/// the value belongs to the process, on whichever worker it runs. Processes that it spawns do not
/// inherit the value.
///
/// ```
/// use procession::process::ProcessLocal;
/// use procession::{spawn, yield_now};
///
/// static USER: ProcessLocal<&'static str> = ProcessLocal::new();
///
/// async fn greet() -> String {
///     yield_now().await;
///     USER.with(|user| format!("hello, {user}")).unwrap_or_else(|_| "who is there?".into())
/// }
///
/// procession::run(async {
///     let (ann, ben) = (spawn(USER.scope("Ann", greet())), spawn(USER.scope("Ben", greet())));
///     assert_eq!((ann.await, ben.await), (Ok("hello, Ann".into()), Ok("hello, Ben".into())));
///     assert_eq!(spawn(greet()).await, Ok("who is there?".into()));
/// });
/// ```
///
/// In a coroutine, [`coroutine::Local`](crate::coroutine::Local) is a value for the whole
/// coroutine.
pub struct ProcessLocal<T: 'static>(Local<Scopes<T>>);

/// The values of one local in the scopes that are being polled, one inside the other.
///
/// Each scope has a separate cell, so that it can begin while the value of an outer scope is
/// borrowed. The cells stay for later scopes.
struct Scopes<T> {
    cells: RefCell<Vec<Rc<RefCell<Option<T>>>>>,
    depth: Cell<usize>,
}

impl<T> Scopes<T> {
    fn new() -> Self {
        Self { cells: RefCell::new(Vec::new()), depth: Cell::new(0) }
    }

    /// Returns the cell of the innermost scope.
    fn innermost(&self) -> Option<Rc<RefCell<Option<T>>>> {
        let place = self.depth.get().checked_sub(1)?;
        self.cells.borrow().get(place).map(Rc::clone)
    }

    /// Begins a scope.
    fn enter(&self, value: Option<T>) {
        let mut cells = self.cells.borrow_mut();
        let place = self.depth.replace(self.depth.get() + 1);
        if place == cells.len() {
            cells.push(Rc::default());
        }
        // Nobody borrows the cell, because `with` borrows only the cells of scopes that have begun.
        cells[place].replace(value);
    }

    /// Ends the innermost scope, and returns its value.
    fn leave(&self) -> Option<T> {
        let cell = self.innermost()?;
        self.depth.update(|depth| depth - 1);
        cell.take()
    }
}

impl<T: 'static> ProcessLocal<T> {
    /// Creates a local. Put it into a `static`: its address identifies it.
    pub const fn new() -> Self {
        Self(Local::new(Scopes::new))
    }

    /// Returns a future that runs `future` with this value. In it, another scope of the same local
    /// hides the value.
    ///
    /// The value and `future` are dropped together, and the drop of `future` still sees the value.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> ProcessLocalScope<T, F> {
        ProcessLocalScope { local: self, value: Some(value), future: Some(future) }
    }

    /// Calls `function` with the value of the running scope.
    ///
    /// # Errors
    /// Returns [`MisplacedCall`](crate::scheduler::MisplacedCall), without a call, outside of
    /// scopes of this local.
    pub fn with<R>(&'static self, function: impl FnOnce(&T) -> R) -> Result<R, MisplacedCall> {
        let innermost = self
            .0
            .in_drive()
            .and_then(|scopes| scopes.innermost())
            .ok_or(MisplacedCall::OutsideScope)?;
        let value = innermost.borrow();
        value.as_ref().map(function).ok_or(MisplacedCall::OutsideScope)
    }
}

impl<T> Default for ProcessLocal<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for ProcessLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessLocal(..)")
    }
}

/// Makes a value visible, and hides it when dropped.
struct Visible<'a, T: 'static> {
    /// `None` if the thread ends, and its locals are gone. No value is visible then.
    scopes: Option<Rc<Scopes<T>>>,
    value: &'a mut Option<T>,
}

impl<'a, T: 'static> Visible<'a, T> {
    fn new(local: &'static ProcessLocal<T>, value: &'a mut Option<T>) -> Self {
        let scopes = local.0.in_drive();
        if let Some(scopes) = &scopes {
            scopes.enter(value.take());
        }
        Self { scopes, value }
    }
}

impl<T: 'static> Drop for Visible<'_, T> {
    fn drop(&mut self) {
        if let Some(scopes) = &self.scopes {
            *self.value = scopes.leave();
        }
    }
}

pin_project! {
    /// The future of [`ProcessLocal::scope`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct ProcessLocalScope<T, F>
    where
        T: 'static,
    {
        local: &'static ProcessLocal<T>,
        value: Option<T>,
        #[pin]
        future: Option<F>,
    }

    impl<T: 'static, F> PinnedDrop for ProcessLocalScope<T, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_some() {
                let _visible = Visible::new(this.local, this.value);
                this.future.set(None);
            }
        }
    }
}

impl<T: 'static, F: Future> Future for ProcessLocalScope<T, F> {
    type Output = F::Output;

    /// # Panics
    /// Panics if it is polled again after completion.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let _visible = Visible::new(this.local, this.value);
        let future = this.future.as_mut().as_pin_mut();
        let polled = future.expect("a future is not polled after completion").poll(task);
        if polled.is_ready() {
            this.future.set(None);
        }
        polled
    }
}

impl<T, F> fmt::Debug for ProcessLocalScope<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessLocalScope(..)")
    }
}
