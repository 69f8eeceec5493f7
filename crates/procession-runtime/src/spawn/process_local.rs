//! Values that the code of one future sees, whatever worker polls it, and perhaps the processes
//! that it spawns.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use crate::coroutine::local::Local;
use crate::process::handling::{Inherited, MAX_INHERITED, SharedValue};
use crate::process::unwind::DropGuarded;
use crate::scheduler::handle_error::MisplacedCall;
use crate::scheduler::inherit;
use crate::scheduler::inherit::within::Within;

/// A value that all code of a future can see, without being passed on. For example, the user of a
/// request, or the name of a trace.
///
/// [`scope`](Self::scope) sets the value for a future. If this future is the future of a process,
/// the value belongs to the process, on whichever worker it runs. Processes that it spawns inherit
/// the value only if the local was made by [`inherited`](Self::inherited).
///
/// ```
/// use procession::process::ProcessLocal;
/// use procession::{spawn, yield_now};
///
/// static USER: ProcessLocal<&'static str> = ProcessLocal::new();
/// static TENANT: ProcessLocal<u32> = ProcessLocal::inherited();
///
/// async fn greet() -> String {
///     yield_now().await;
///     USER.with(|user| format!("hello, {user}")).unwrap_or_else(|_| "nobody".into())
/// }
///
/// procession::run(async {
///     let (ann, ben) = (spawn(USER.scope("Ann", greet())), spawn(USER.scope("Ben", greet())));
///     assert_eq!((ann.await, ben.await), (Ok("hello, Ann".into()), Ok("hello, Ben".into())));
///     assert_eq!(spawn(greet()).await, Ok("nobody".into()));
///
///     let child = TENANT.within(7, || spawn(async { spawn(async { TENANT.get() }).await }));
///     assert_eq!(child.await, Ok(Ok(Ok(7))), "so does the child of the child");
/// });
/// ```
///
/// In a coroutine, [`coroutine::Local`](crate::coroutine::Local) is a value for the whole
/// coroutine.
///
/// # Inheritance
/// A process inherits the values that its spawner sees when it calls the spawn, and keeps them
/// until it ends. They are shared and not cloned, so a spawn runs no code of the user, and a value
/// is dropped after the last process that has inherited it.
///
/// A process may be async, local, a coroutine, a state machine or a [server](crate::behaviour).
///
/// | what runs | sees the values of |
/// |---|---|
/// | a process | the process or thread that spawned it, also from another scheduler |
/// | a child, also when it starts again | the supervisor, not the process that asked for it |
/// | a job of any pool, or of [`spawn_blocking`](crate::spawn_blocking) | the submitter |
/// | a worker of a pool, and its hooks | nobody |
/// | the function of a [timer](crate::time::run_after) | not the process that set it |
/// | the receiver of a message | not the sender |
/// | a [`block_on`](crate::Scheduler::block_on) | the thread that waits; in a process, nobody |
/// | a thread of the program | nobody |
pub struct ProcessLocal<T: 'static> {
    scopes: Local<Scopes<T>>,
    /// Shares a value with the processes that inherit it. `None` if none do.
    share: Option<fn(T) -> SharedValue>,
}

/// The values of one local in the scopes that are being polled, one inside the other.
///
/// Each scope has a separate cell, so that it can begin while the value of an outer scope is
/// borrowed. The cells stay for later scopes.
struct Scopes<T> {
    cells: RefCell<Vec<Rc<ScopeCell<T>>>>,
    depth: Cell<usize>,
}

/// The value of one scope, while it is visible.
type ScopeCell<T> = RefCell<Option<DropGuarded<T>>>;

impl<T> Scopes<T> {
    fn new() -> Self {
        Self { cells: RefCell::new(Vec::new()), depth: Cell::new(0) }
    }

    /// Returns the cell of the innermost scope.
    fn innermost(&self) -> Option<Rc<ScopeCell<T>>> {
        let place = self.depth.get().checked_sub(1)?;
        self.cells.borrow().get(place).map(Rc::clone)
    }

    /// Begins a scope.
    fn enter(&self, value: Option<DropGuarded<T>>) {
        let mut cells = self.cells.borrow_mut();
        let place = self.depth.replace(self.depth.get() + 1);
        if place == cells.len() {
            cells.push(Rc::default());
        }
        // Nobody borrows the cell, because `with` borrows only the cells of scopes that have begun.
        cells[place].replace(value);
    }

    /// Ends the innermost scope, and returns its value.
    fn leave(&self) -> Option<DropGuarded<T>> {
        let cell = self.innermost()?;
        self.depth.update(|depth| depth - 1);
        cell.take()
    }
}

impl<T: 'static> ProcessLocal<T> {
    /// The number of inherited locals that may have a value in one place.
    pub const MAX_INHERITED: usize = MAX_INHERITED;

    /// Creates a local. Put it into a `static`: its address identifies it.
    pub const fn new() -> Self {
        Self { scopes: Local::new(Scopes::new), share: None }
    }

    /// Creates a local with a value that spawned processes see as well: see
    /// [above](Self#inheritance). Put it into a `static`: its address identifies it.
    pub const fn inherited() -> Self
    where
        T: Send + Sync,
    {
        Self {
            scopes: Local::new(Scopes::new),
            share: Some(|value| DropGuarded::new(Arc::new(value))),
        }
    }

    /// Returns a future that runs `future` with this value. In it, another scope of the same local
    /// hides the value.
    ///
    /// The value and `future` are dropped together, and the drop of `future` still sees the value.
    /// Processes may have inherited the value, and keep it then.
    ///
    /// # Panics
    /// The future panics when it is polled, if the local is [inherited](Self::inherited) and
    /// [`MAX_INHERITED`](Self::MAX_INHERITED) other inherited locals have values there.
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> ProcessLocalScope<T, F> {
        ProcessLocalScope { local: self, value: self.held(value), future: Some(future) }
    }

    /// Calls `run` with this value, and returns its result. For example, a coroutine or a state
    /// machine spawns processes that inherit the value.
    ///
    /// # Panics
    /// As [`scope`](Self::scope), without a call.
    pub fn within<R>(&'static self, value: T, run: impl FnOnce() -> R) -> R {
        let mut value = self.held(value);
        let _visible = Visible::new(self, &mut value).unwrap_or_else(|bound| panic!("{bound}"));
        run()
    }

    /// Calls `function` with the value of the running scope, or with the inherited value.
    ///
    /// # Errors
    /// Returns [`MisplacedCall`](crate::scheduler::MisplacedCall), without a call, outside of
    /// scopes of this local, if no value was inherited.
    pub fn with<R>(&'static self, function: impl FnOnce(&T) -> R) -> Result<R, MisplacedCall> {
        if self.share.is_some() {
            let inherited = inherit::present().and_then(|all| all.get(self.address()).cloned());
            let value = inherited.as_deref().and_then(|value| value.downcast_ref());
            return value.map(function).ok_or(MisplacedCall::OutsideScope);
        }
        let innermost = self
            .scopes
            .in_drive()
            .and_then(|scopes| scopes.innermost())
            .ok_or(MisplacedCall::OutsideScope)?;
        let value = innermost.borrow();
        value.as_deref().map(function).ok_or(MisplacedCall::OutsideScope)
    }

    /// Returns a clone of the value.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub fn get(&'static self) -> Result<T, MisplacedCall>
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    fn address(&'static self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn held(&self, value: T) -> Held<T> {
        match self.share {
            None => Held::Own(Some(DropGuarded::new(value))),
            Some(share) => Held::Shared { value: share(value), made: None },
        }
    }
}

/// The value of a scope. Its drop is guarded, because it may run while the scope unwinds.
enum Held<T> {
    /// `None` while the scope is visible.
    Own(Option<DropGuarded<T>>),
    Shared {
        value: SharedValue,
        /// The values around the scope when it was last visible, and the values with its own.
        made: Option<(Option<Inherited>, Inherited)>,
    },
}

/// More inherited locals than allowed would have values.
#[derive(Debug)]
struct TooManyInherited;

impl fmt::Display for TooManyInherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAX_INHERITED} inherited locals have values here, and no more may")
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
enum Visible<'a, T: 'static> {
    Own {
        /// `None` if the thread ends, and its locals are gone. No value is visible then.
        scopes: Option<Rc<Scopes<T>>>,
        value: &'a mut Option<DropGuarded<T>>,
    },
    Shared(#[expect(dead_code, reason = "held for its drop")] Within),
}

impl<'a, T: 'static> Visible<'a, T> {
    fn new(
        local: &'static ProcessLocal<T>,
        held: &'a mut Held<T>,
    ) -> Result<Self, TooManyInherited> {
        let (value, made) = match held {
            Held::Own(value) => {
                let scopes = local.scopes.in_drive();
                if let Some(scopes) = &scopes {
                    scopes.enter(value.take());
                }
                return Ok(Self::Own { scopes, value });
            }
            Held::Shared { value, made } => (value, made),
        };
        let around = inherit::present();
        let is_same = match (made.as_ref().map(|(before, _)| before), &around) {
            (Some(Some(before)), Some(around)) => before.is(around),
            (Some(None), None) => true,
            _ => false,
        };
        if !is_same {
            let values = Inherited::with(around.as_ref(), local.address(), value);
            *made = Some((around, values.ok_or(TooManyInherited)?));
        }
        Ok(Self::Shared(Within::enter(made.as_ref().map(|(_, values)| values.clone()))))
    }
}

impl<T: 'static> Drop for Visible<'_, T> {
    fn drop(&mut self) {
        if let Self::Own { scopes: Some(scopes), value } = self {
            **value = scopes.leave();
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
        value: Held<T>,
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
    /// Panics if it is polled again after completion, or as [`ProcessLocal::scope`] says.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let visible = Visible::new(this.local, this.value);
        let _visible = visible.unwrap_or_else(|bound| panic!("{bound}"));
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
