//! Values that the code of one future sees, whatever worker polls it.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use crate::coroutine::local::Local;

/// A value that all code of a future can see, without being passed on: the user of a request, or
/// the name of a trace.
///
/// [`scope`](Self::scope) gives a future the value. Give it to the future of a process, and the
/// value belongs to the process, on whichever worker it runs. Processes that it spawns do not
/// inherit the value.
///
/// ```
/// use procession::local::ProcessLocal;
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
pub struct ProcessLocal<T: 'static>(Local<RefCell<Option<T>>>);

impl<T: 'static> ProcessLocal<T> {
    /// Creates a local. Put it into a `static`: its address identifies it.
    pub const fn new() -> Self {
        Self(Local::new(|| RefCell::new(None)))
    }

    /// Returns a future that runs `future` with this value. In it, another scope of the same local
    /// hides the value.
    ///
    /// Both are dropped together, and the drop of `future` still sees the value.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> ProcessLocalScope<T, F> {
        ProcessLocalScope { local: self, value: Some(value), future: Some(future) }
    }

    /// Calls `function` with the value of the running scope.
    ///
    /// # Errors
    /// Returns [`NoScope`], without a call, outside of scopes of this local.
    pub fn with<R>(&'static self, function: impl FnOnce(&T) -> R) -> Result<R, NoScope> {
        let call = |value: &RefCell<Option<T>>| value.borrow().as_ref().map(function);
        self.0.try_with(call).flatten().ok_or(NoScope(()))
    }

    /// Exchanges the value that is visible and another one.
    fn swap(&'static self, value: &mut Option<T>) {
        let swap = |visible: &RefCell<Option<T>>| {
            let mut visible = visible
                .try_borrow_mut()
                .expect("a scope of a `ProcessLocal` is not polled inside of its own `with`");
            std::mem::swap(&mut *visible, value);
        };
        // Ignored: the thread ends, and its locals are gone. No value is visible then.
        let _ = self.0.try_with(swap);
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
struct Visible<'a, T: 'static>(&'static ProcessLocal<T>, &'a mut Option<T>);

impl<'a, T: 'static> Visible<'a, T> {
    fn new(local: &'static ProcessLocal<T>, value: &'a mut Option<T>) -> Self {
        local.swap(value);
        Self(local, value)
    }
}

impl<T: 'static> Drop for Visible<'_, T> {
    fn drop(&mut self) {
        self.0.swap(self.1);
    }
}

pin_project! {
    /// The future of [`ProcessLocal::scope`].
    ///
    /// # Panics
    /// Polling or dropping it panics inside of [`ProcessLocal::with`] of the same local.
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

/// The error of using a [`ProcessLocal`] outside of its scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoScope(());

impl fmt::Display for NoScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no scope of this local runs here")
    }
}

impl Error for NoScope {}
