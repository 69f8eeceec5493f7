//! Atomics and fences.

use std::fmt;
use std::sync::atomic as home;
use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::{Loaded, Operation, machine, operation, point};

/// Passes a fence.
#[inline]
#[track_caller]
pub fn fence(order: Ordering) {
    if order == SeqCst {
        point();
    }
    machine(|machine| machine.fence(order));
    home::fence(order);
}

/// Defines an atomic. `$word` and `$value` convert its values to words and back.
macro_rules! atomic {
    ($name:ident $(<$t:ident>)?, $inner:ty, $type:ty, $word:expr, $value:expr) => {
        /// An atomic with the interface of std's.
        #[repr(transparent)]
        pub struct $name $(<$t>)? ($inner);

        #[allow(clippy::allow_attributes, clippy::redundant_closure_call, trivial_numeric_casts, reason = "one macro for all types")]
        impl $(<$t>)? $name $(<$t>)? {
            /// Creates an atomic.
            #[inline]
            pub const fn new(value: $type) -> Self {
                Self(home::$name::new(value))
            }

            fn address(&self) -> usize {
                std::ptr::from_ref(self).addr()
            }

            /// Describes an operation of the caller.
            #[track_caller]
            fn begin(&self, order: Ordering) -> Operation {
                operation(self.address(), $word(self.0.load(Relaxed)), order)
            }

            /// Returns what a machine has found, and puts it into the atomic if it is to be there.
            fn found(&self, loaded: Option<Loaded>) -> $type {
                match loaded {
                    None | Some(Loaded::Memory) => self.0.load(Relaxed),
                    Some(Loaded::Older(word)) => $value(word),
                    Some(Loaded::Settled(word)) => {
                        self.0.store($value(word), Relaxed);
                        $value(word)
                    }
                }
            }

            /// Runs an operation atomically: no other operation runs in between. `wanted` is the
            /// value without which the operation changes nothing. `outcome` returns the ordering of
            /// the operation, and whether it has changed the value.
            #[track_caller]
            fn modify<R>(
                &self,
                order: Ordering,
                wanted: Option<$type>,
                run: impl FnOnce(&$inner) -> R,
                outcome: impl FnOnce(&R) -> (Ordering, bool),
            ) -> R {
                let begun = self.begin(order);
                let wanted = wanted.map(|value| $word(value));
                let before = machine(|machine| machine.settle(begun, wanted)).flatten();
                if let Some(word) = before {
                    self.0.store($value(word), Relaxed);
                }
                let result = run(&self.0);
                let (order, is_written) = outcome(&result);
                let ended = self.begin(order);
                machine(|machine| machine.written(ended, is_written));
                result
            }

            /// Loads the value.
            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $type {
                point();
                // For what it orders, and its panic on an ordering that a load cannot have.
                let _ = self.0.load(order);
                let begun = self.begin(order);
                self.found(machine(|machine| machine.load(begun)))
            }

            /// Stores a value.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $type, order: Ordering) {
                point();
                let begun = self.begin(order);
                machine(|machine| machine.store(begun, $word(value)));
                self.0.store(value, order);
            }

            /// Stores a value, and returns the previous one.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $type, order: Ordering) -> $type {
                point();
                self.modify(order, None, |atomic| atomic.swap(value, order), |_| (order, true))
            }

            /// Stores `new` if the value is `current`. Returns the previous value, as an error if
            /// it was not `current`.
            #[inline]
            #[track_caller]
            #[expect(clippy::missing_errors_doc, reason = "as in std")]
            pub fn compare_exchange(
                &self,
                current: $type,
                new: $type,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$type, $type> {
                point();
                self.modify(
                    success,
                    Some(current),
                    |atomic| atomic.compare_exchange(current, new, success, failure),
                    |result| if result.is_ok() { (success, true) } else { (failure, false) },
                )
            }

            /// Like [`compare_exchange`](Self::compare_exchange), as on the processors that are
            /// simulated.
            #[inline]
            #[track_caller]
            #[expect(clippy::missing_errors_doc, reason = "as in std")]
            pub fn compare_exchange_weak(
                &self,
                current: $type,
                new: $type,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$type, $type> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Replaces the value by the result of a function. Tries again as long as another
            /// thread changes the value in between.
            #[track_caller]
            #[expect(clippy::missing_errors_doc, reason = "as in std")]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut update: impl FnMut($type) -> Option<$type>,
            ) -> Result<$type, $type> {
                let mut before = self.load(failure);
                while let Some(new) = update(before) {
                    match self.compare_exchange(before, new, success, failure) {
                        Ok(before) => return Ok(before),
                        Err(other) => before = other,
                    }
                }
                Err(before)
            }

            /// Returns a reference to the value.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $type {
                // The caller has made sure that no other thread uses the atomic, and so that their
                // stores are visible.
                let begun = self.begin(Relaxed);
                self.found(machine(|machine| machine.own(begun)));
                self.0.get_mut()
            }

            /// Returns the value.
            #[inline]
            pub fn into_inner(mut self) -> $type {
                *self.get_mut()
            }
        }

        impl $(<$t>)? Drop for $name $(<$t>)? {
            #[inline]
            fn drop(&mut self) {
                machine(|machine| machine.forget(self.address()));
            }
        }

        impl $(<$t>)? From<$type> for $name $(<$t>)? {
            fn from(value: $type) -> Self {
                Self::new(value)
            }
        }

        impl $(<$t>)? fmt::Debug for $name $(<$t>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let begun = self.begin(Relaxed);
                self.found(machine(|machine| machine.peek(begun))).fmt(f)
            }
        }
    };
}

/// Adds read-modify-writes to an atomic.
macro_rules! operations {
    ($name:ident, $type:ty, $($operation:ident)*) => {
        impl $name {
            $(
                /// The read-modify-write of this name. Returns the previous value.
                #[inline]
                #[track_caller]
                pub fn $operation(&self, operand: $type, order: Ordering) -> $type {
                    point();
                    self.modify(
                        order,
                        None,
                        |atomic| atomic.$operation(operand, order),
                        |_| (order, true),
                    )
                }
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }
    };
}

macro_rules! integer {
    ($name:ident, $type:ty) => {
        atomic!($name, home::$name, $type, |value: $type| value as u64, |word: u64| word as $type);
        operations!($name, $type, fetch_add fetch_sub fetch_and fetch_or fetch_xor fetch_max fetch_min);
    };
}

integer!(AtomicU8, u8);
integer!(AtomicU16, u16);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);
atomic!(AtomicBool, home::AtomicBool, bool, u64::from, |word: u64| word != 0);
operations!(AtomicBool, bool, fetch_and fetch_or fetch_xor);
atomic!(
    AtomicPtr<T>,
    home::AtomicPtr<T>,
    *mut T,
    |value: *mut T| value.expose_provenance() as u64,
    |word: u64| std::ptr::with_exposed_provenance_mut(word as usize)
);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}
