//! Kinds and pins with the message type of their process, and the way to a process that may be of
//! another node.
//!
//! A slot has no type parameter, since a table holds processes of all message types. `[typed]`: a
//! [`TypedPin`] is made from a newborn process that was begun with the [`TypedKind`] that types it
//! ([`TypedKind::pin`]), or after a check of the kind in the slot. A process keeps its kind as
//! long as its slot is pinned, so the mailbox of the slot is one of `M`.
//!
//! `[route]`: a [`Route`] is one pointer that is not null. If its lowest bit is clear, it owns a
//! [`TypedPin`], which is a pointer to a slot, and slots are aligned. Otherwise it owns an `Arc` of
//! a [`FarProcess`], or nothing if no other bit is set. It never changes.
//!
//! # Rejected
//! A route that is an `enum` of a pin and an `Arc` takes 16 bytes, since the compiler uses no bits
//! of alignment. Each address would be larger by a word: in messages, in each process that holds
//! one, and in the handles of children.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::Pid;
use crate::mailbox::parcel::Relay;
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

/// The bit of a route that owns no pin.
const FAR: NonZeroUsize = NonZeroUsize::MIN;

const _: () = assert!(align_of::<Slot>() > 1 && align_of::<FarProcess>() > 1);
const _: () = assert!(size_of::<Option<Route<()>>>() == size_of::<usize>());

/// A process of another node, and the relay that carries its messages.
#[derive(Debug)]
pub(crate) struct FarProcess {
    pub(crate) pid: Pid,
    pub(crate) relay: Arc<dyn Relay>,
}

/// The way to a process that receives messages of type `M`: a pin, a process of another node, or
/// none for a process that was refused.
pub(crate) struct Route<M> {
    pointer: NonNull<()>,
    message: Typed<M>,
}

// SAFETY: [route] it owns a `TypedPin` or an `Arc<FarProcess>`, and both can be sent and shared.
unsafe impl<M> Send for Route<M> {}
// SAFETY: as above.
unsafe impl<M> Sync for Route<M> {}

impl<M> Route<M> {
    pub(crate) fn new(pin: TypedPin<M>) -> Self {
        Self { pointer: TypedPin::into_raw(pin).cast(), message: PhantomData }
    }

    pub(crate) fn far(process: Arc<FarProcess>) -> Self {
        let process = Arc::into_raw(process).cast_mut();
        let pointer = NonNull::new(process).expect("an `Arc` is not null");
        Self { pointer: pointer.cast().map_addr(|address| address | FAR), message: PhantomData }
    }

    pub(crate) fn nobody() -> Self {
        Self { pointer: NonNull::dangling().map_addr(|_| FAR), message: PhantomData }
    }

    /// Returns the pin of the process, if it is one of this program.
    #[inline]
    pub(crate) fn pin(&self) -> Option<&TypedPin<M>> {
        if self.pointer.addr().get() & FAR.get() != 0 {
            return None;
        }
        // SAFETY: [route] the pointer is a pin, which is transparent, and stays one as long as
        // `self` is borrowed.
        Some(unsafe { NonNull::from(&self.pointer).cast::<TypedPin<M>>().as_ref() })
    }

    /// Returns the process, if it is one of another node.
    pub(crate) fn far_process(&self) -> Option<&FarProcess> {
        // SAFETY: [route] the `Arc` is owned by `self`.
        self.far_pointer().map(|pointer| unsafe { pointer.as_ref() })
    }

    fn far_pointer(&self) -> Option<NonNull<FarProcess>> {
        let address = self.pointer.addr().get();
        if address & FAR.get() == 0 || address == FAR.get() {
            return None;
        }
        NonNull::new(self.pointer.as_ptr().map_addr(|address| address & !FAR.get()).cast())
    }

    /// Returns the pin, if it has one.
    pub(crate) fn into_pin(self) -> Option<TypedPin<M>> {
        self.pin().cloned()
    }
}

impl<M> Clone for Route<M> {
    #[inline]
    fn clone(&self) -> Self {
        match self.pin() {
            Some(pin) => Self::new(pin.clone()),
            None => self.clone_far(),
        }
    }
}

impl<M> Route<M> {
    #[cold]
    fn clone_far(&self) -> Self {
        if let Some(process) = self.far_pointer() {
            // SAFETY: [route] the `Arc` is owned by `self`, and the copy by the new route.
            unsafe { Arc::increment_strong_count(process.as_ptr()) };
        }
        Self { pointer: self.pointer, message: PhantomData }
    }

    #[cold]
    fn drop_far(&mut self) {
        if let Some(process) = self.far_pointer() {
            // SAFETY: [route] the `Arc` was owned by `self`, which ends.
            drop(unsafe { Arc::from_raw(process.as_ptr()) });
        }
    }
}

impl<M> Drop for Route<M> {
    #[inline]
    fn drop(&mut self) {
        if self.pin().is_some() {
            // SAFETY: [route], [pinned] the pin was owned by `self`, which ends.
            drop(unsafe { TypedPin::<M>::from_raw(self.pointer.cast()) });
        } else {
            self.drop_far();
        }
    }
}

impl<M> fmt::Debug for Route<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pin(), self.far_process()) {
            (Some(pin), _) => pin.fmt(f),
            (None, Some(process)) => process.pid.fmt(f),
            (None, None) => Pid::NOBODY.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{FarProcess, Route};
    use crate::Pid;
    use crate::mailbox::parcel::{Parcel, Relay, RelayCause, RelayError};

    #[derive(Debug)]
    struct Refuses;

    impl Relay for Refuses {
        fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
            Err(parcel.refused(RelayCause::Refused))
        }
    }

    #[test]
    fn a_route_to_another_node_keeps_its_relay_until_the_last_clone() {
        let relay = Arc::new(Refuses);
        let process =
            FarProcess { pid: Pid::remote(3, 1, 2), relay: Arc::<Refuses>::clone(&relay) };
        let route = Route::<u32>::far(Arc::new(process));
        let clone = route.clone();
        drop(route);
        assert_eq!(Arc::strong_count(&relay), 2);
        assert_eq!(clone.far_process().map(|process| process.pid), Some(Pid::remote(3, 1, 2)));
        assert!(clone.pin().is_none());
        drop(clone);
        assert_eq!(Arc::strong_count(&relay), 1);
    }

    #[test]
    fn a_route_to_nobody_owns_nothing() {
        let route = Route::<u32>::nobody();
        let clone = route.clone();
        assert!(clone.pin().is_none() && clone.far_process().is_none());
        assert!(route.into_pin().is_none());
    }
}
