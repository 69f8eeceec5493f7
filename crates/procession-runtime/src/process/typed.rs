//! Kinds and pins with the message type of their process.
//!
//! A slot has no type parameter, since a table holds processes of all message types. `[typed]`: a
//! [`TypedPin`] is made from a newborn process that was begun with the [`TypedKind`] that types it
//! ([`TypedKind::pin`]), or after a check of the kind in the slot. A process keeps its kind as
//! long as its slot is pinned, so the mailbox of the slot is one of `M`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::process::exit::OnCancel;
use crate::process::life::Newborn;
use crate::process::slot::{Kind, Mailbox, Slot, SlotRef};

/// Makes a handle invariant in `T` (`variance.rs`). It owns no `T`, and is `Send` and `Sync` for
/// every `T`.
pub(crate) type Typed<T> = PhantomData<fn(T) -> T>;

/// The name of the kind of coroutines.
pub(crate) const COROUTINE: &str = "coroutine";
/// The name of the kind of state machines.
pub(crate) const MACHINE: &str = "machine";

/// The message type of a process without a mailbox.
pub(crate) enum Nothing {}

/// The kind of a process that receives messages of type `M`.
pub(crate) struct TypedKind<M> {
    kind: &'static Kind,
    message: Typed<M>,
}

/// Defines the two kinds of one name, which differ in the effect of a cancel.
macro_rules! kinds {
    ($name:expr, $asked:ident, $dropped:ident) => {
        fn $asked<M: Send + 'static>() -> &'static Kind {
            &const { Kind::of::<M>($name, OnCancel::Ask, $dropped::<M>) }
        }

        fn $dropped<M: Send + 'static>() -> &'static Kind {
            &const { Kind::of::<M>($name, OnCancel::Drop, $asked::<M>) }
        }
    };
}

kinds!("async", asked_async, dropped_async);
kinds!(COROUTINE, asked_coroutine, dropped_coroutine);
kinds!("local", asked_local, dropped_local);
kinds!(MACHINE, asked_machine, dropped_machine);

impl<M: Send + 'static> TypedKind<M> {
    /// The kind of async processes with a context.
    #[inline]
    pub(crate) fn with_context() -> Self {
        Self::new(asked_async::<M>())
    }

    /// The kind of async processes without a context.
    #[inline]
    pub(crate) fn plain() -> Self {
        Self::new(dropped_async::<M>())
    }

    #[inline]
    pub(crate) fn coroutine() -> Self {
        Self::new(asked_coroutine::<M>())
    }

    /// The kind of local processes with a context.
    pub(crate) fn local_with_context() -> Self {
        Self::new(asked_local::<M>())
    }

    /// The kind of local processes without a context.
    pub(crate) fn local() -> Self {
        Self::new(dropped_local::<M>())
    }

    #[inline]
    pub(crate) fn machine() -> Self {
        Self::new(asked_machine::<M>())
    }

    #[inline]
    fn new(kind: &'static Kind) -> Self {
        Self { kind, message: PhantomData }
    }

    /// Takes one of the pins of a new process, besides its own. The caller has begun the process
    /// with this kind (`[typed]`), perhaps with another effect of a cancel.
    #[inline]
    pub(crate) fn pin(&self, newborn: &mut Newborn) -> TypedPin<M> {
        debug_assert!((newborn.kind().message)() == (self.kind.message)(), "[typed]");
        TypedPin { pin: newborn.pin(), message: PhantomData }
    }

    /// Returns the kind without its type.
    pub(crate) fn erased(&self) -> &'static Kind {
        self.kind
    }
}

/// A pin of a process that receives messages of type `M`.
#[repr(transparent)]
pub(crate) struct TypedPin<M> {
    pin: SlotRef,
    message: Typed<M>,
}

impl<M: Send + 'static> TypedPin<M> {
    /// Returns a typed pin, or the pin if the process receives messages of another type.
    pub(crate) fn of(pin: SlotRef) -> Result<Self, SlotRef> {
        match pin.mailbox_checked::<M>() {
            Some(_) => Ok(Self { pin, message: PhantomData }),
            None => Err(pin),
        }
    }

    /// Returns the pin without its type.
    pub(crate) fn into_pin(self) -> SlotRef {
        self.pin
    }

    /// Returns the mailbox, with its type.
    #[inline]
    pub(crate) fn mailbox(&self) -> Mailbox<'_, M> {
        // SAFETY: [typed] of this pin, see above; it pins the slot.
        unsafe { self.pin.mailbox::<M>() }
    }
}

impl<M> TypedPin<M> {
    /// Returns the pointer that is the pin. It is still counted.
    #[inline]
    pub(super) fn into_raw(self) -> NonNull<Slot> {
        self.pin.into_raw()
    }

    /// Returns the pin of [`into_raw`](Self::into_raw).
    ///
    /// # Safety
    /// `[pinned]`: the pointer is the result of `into_raw` of a pin of this type, and that pin
    /// belongs to the caller.
    #[inline]
    pub(super) unsafe fn from_raw(slot: NonNull<Slot>) -> Self {
        // SAFETY: [pinned] by the caller.
        Self { pin: unsafe { SlotRef::from_raw(slot) }, message: PhantomData }
    }
}

impl<M> Deref for TypedPin<M> {
    type Target = SlotRef;

    #[inline]
    fn deref(&self) -> &SlotRef {
        &self.pin
    }
}

impl<M> Clone for TypedPin<M> {
    fn clone(&self) -> Self {
        Self { pin: self.pin.clone(), message: PhantomData }
    }
}

impl<M> fmt::Debug for TypedPin<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pin.fmt(f)
    }
}
