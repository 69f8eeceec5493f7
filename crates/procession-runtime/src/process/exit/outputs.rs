//! The outputs of the standard library.

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::{NonZero, Saturating, Wrapping};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};

use crate::process::exit::{Exit, Outcome};

impl<T: Outcome, E: fmt::Display + 'static> Outcome for Result<T, E> {
    #[inline]
    fn failure(&self) -> Option<Exit> {
        match self {
            Ok(output) => output.failure(),
            Err(error) => Some(exit_of(error)),
        }
    }
}

/// Converts any error to an exit.
#[cold]
fn exit_of<E: fmt::Display + 'static>(error: &E) -> Exit {
    let any: &dyn Any = error;
    if let Some(exit) = any.downcast_ref::<Exit>() {
        exit.clone()
    } else if let Some(error) = as_error(any) {
        Exit::from_error(error)
    } else {
        Exit::from_text(format_args!("{error:#}"))
    }
}

/// Finds an error of a library that the kernel does not know.
type FindError = for<'a> fn(&'a dyn Any) -> Option<&'a (dyn std::error::Error + 'static)>;

static FOREIGN: OnceLock<FindError> = OnceLock::new();

/// Sets the function that finds errors of libraries which the program is built with.
#[cfg(feature = "hyper")]
pub(crate) fn know_errors(find: FindError) {
    FOREIGN.get_or_init(|| find);
}

/// Returns an error of one of the types that are known to have sources.
fn as_error(any: &dyn Any) -> Option<&(dyn std::error::Error + 'static)> {
    type Thread = dyn std::error::Error + Send + Sync;
    type Sending = dyn std::error::Error + Send;
    type Local = dyn std::error::Error;
    if let Some(error) = any.downcast_ref::<io::Error>() {
        return Some(error);
    }
    if let Some(error) = FOREIGN.get().and_then(|find| find(any)) {
        return Some(error);
    }
    if let Some(error) = any.downcast_ref::<Box<Thread>>() {
        return Some(&**error);
    }
    if let Some(error) = any.downcast_ref::<Arc<Thread>>() {
        return Some(&**error);
    }
    if let Some(error) = any.downcast_ref::<Box<Sending>>() {
        return Some(&**error);
    }
    if let Some(error) = any.downcast_ref::<Box<Local>>() {
        return Some(&**error);
    }
    None
}

impl Outcome for Exit {
    fn failure(&self) -> Option<Exit> {
        Some(self.clone())
    }
}

impl<T: Outcome> Outcome for Option<T> {
    #[inline]
    fn failure(&self) -> Option<Exit> {
        self.as_ref().and_then(T::failure)
    }
}

impl<T: Outcome + ?Sized> Outcome for Box<T> {
    #[inline]
    fn failure(&self) -> Option<Exit> {
        (**self).failure()
    }
}

impl<T: Outcome + ?Sized> Outcome for &T {
    #[inline]
    fn failure(&self) -> Option<Exit> {
        (**self).failure()
    }
}

/// Implements [`Outcome`] for types that are always a success.
macro_rules! successes {
    ($($type:ty),+ $(,)?) => { $(impl Outcome for $type {})+ };
}

successes! {
    (), Infallible, bool, char, f32, f64,
    i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize,
    NonZero<i8>, NonZero<i16>, NonZero<i32>, NonZero<i64>, NonZero<i128>, NonZero<isize>,
    NonZero<u8>, NonZero<u16>, NonZero<u32>, NonZero<u64>, NonZero<u128>, NonZero<usize>,
    str, String, CStr, CString, OsStr, OsString, Path, PathBuf, fmt::Arguments<'_>,
    Duration, std::time::Instant, SystemTime, ThreadId, std::cmp::Ordering, io::ErrorKind,
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6,
    dyn Any, dyn Any + Send, dyn Any + Send + Sync,
}

impl<T> Outcome for Wrapping<T> {}
impl<T> Outcome for Saturating<T> {}
impl<T: ?Sized> Outcome for PhantomData<T> {}
impl<T: ToOwned + ?Sized> Outcome for Cow<'_, T> {}
impl<T: ?Sized> Outcome for Rc<T> {}
impl<T: ?Sized> Outcome for Arc<T> {}
impl<T> Outcome for [T] {}
impl<T, const N: usize> Outcome for [T; N] {}
impl<T> Outcome for Vec<T> {}
impl<T> Outcome for VecDeque<T> {}
impl<T> Outcome for LinkedList<T> {}
impl<T> Outcome for BinaryHeap<T> {}
impl<T> Outcome for BTreeSet<T> {}
impl<K, V> Outcome for BTreeMap<K, V> {}
impl<T, S> Outcome for HashSet<T, S> {}
impl<K, V, S> Outcome for HashMap<K, V, S> {}

/// Implements [`Outcome`] for tuples.
macro_rules! tuples {
    ($first:ident $($rest:ident)*) => {
        impl<$first, $($rest),*> Outcome for ($first, $($rest,)*) {}
        tuples! { $($rest)* }
    };
    () => {};
}

tuples! { A B C D E F G H I J K L }
