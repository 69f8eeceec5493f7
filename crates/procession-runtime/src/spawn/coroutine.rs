//! The start of a coroutine.

use std::panic::Location;

use crate::coroutine::body::{CoBody, Placement};
use crate::coroutine::context::Context;
use crate::mailbox;
use crate::mailbox::address::Address;
use crate::process::exit::Returns;
use crate::process::typed::TypedKind;
use crate::scheduler::spawn_error::SpawnError;
use crate::spawn::join_handle::Child;
use crate::spawn::options::SpawnOptions;
use crate::spawn::reservation::Reservation;

impl SpawnOptions {
    /// Starts a coroutine: a process with straight-line code that blocks, on a separate stack.
    ///
    /// `function` receives a [`Context`](crate::coroutine::Context) with a mailbox. The returned
    /// [`Child`] is the address and the handle of the coroutine. See
    /// [`coroutine`](crate::coroutine) for an example, and for where a coroutine runs and how it
    /// ends.
    ///
    /// # Errors
    /// [`SpawnError`] returns the function if coroutines are not enabled, the scheduler is at its
    /// limit or shutting down, or there is no worker with the given number.
    #[track_caller]
    pub fn try_start_coroutine<M, F, T>(self, function: F) -> Result<Child<M, T>, SpawnError<F>>
    where
        M: Send + 'static,
        F: FnOnce(Context<M>) -> T + Send + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let location = crate::scheduler::owner::caller();
        self.launch_coroutine(location, function, |cx, function| function(cx), Placement::PINNED)
    }

    /// Starts a coroutine from a value. If the coroutine is refused, the error returns the value.
    pub(crate) fn launch_coroutine<M, V, F, T>(
        mut self,
        location: &'static Location<'static>,
        value: V,
        function: F,
        placement: Placement,
    ) -> Result<Child<M, T>, SpawnError<V>>
    where
        M: Send + 'static,
        V: Send + 'static,
        F: FnOnce(Context<M>, V) -> T + Send + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let shared = self.hold();
        // As in `launch`.
        let _stopped = shared.stop_clock();
        let reservation = Reservation::take(&shared);
        self.launch_coroutine_in(reservation, location, value, function, placement)
    }

    /// Starts a coroutine in the place that is reserved for it. The test clock stands still since
    /// before the reservation.
    pub(crate) fn launch_coroutine_in<M, V, F, T>(
        self,
        reservation: Reservation<'_>,
        location: &'static Location<'static>,
        value: V,
        function: F,
        placement: Placement,
    ) -> Result<Child<M, T>, SpawnError<V>>
    where
        M: Send + 'static,
        V: Send + 'static,
        F: FnOnce(Context<M>, V) -> T + Send + 'static,
        T: Send + 'static,
        fn() -> T: Returns,
    {
        let bytes = self.chosen_stack_size();
        let kind = TypedKind::<M>::coroutine();
        let mut address = None;
        Self::launch_in(
            self.rest,
            reservation,
            kind.erased(),
            location,
            2,
            value,
            |value, newborn| {
                address = Some(Address::new(kind.pin(newborn)));
                let context = Context::new(mailbox::context::Context::new(kind.pin(newborn)));
                let bytes = bytes.unwrap_or(newborn.shared().coroutines.stack_bytes);
                Ok(Box::new(CoBody::new(move || function(context, value), bytes, placement)))
            },
        )
        .map(|(share, monitor)| Child::new(address, share, monitor))
    }
}
