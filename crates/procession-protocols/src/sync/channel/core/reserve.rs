//! Reservations of room; see the protocol in `core`.

use super::{ChannelCore, ChannelState, NotSent, Offer, Sent};
use crate::sync::wait_list::{Another, Place, ServedWaiters, Waiter, look};

impl<T, const MUTATION: u8> ChannelCore<T, MUTATION> {
    /// Reserves room for a message, if that is possible without waiting.
    pub fn try_reserve(&self) -> Result<(), NotSent<()>> {
        self.change(Self::reserve_in)
    }

    fn reserve_in(state: &mut ChannelState<T>) -> Result<(), NotSent<()>> {
        if state.closed {
            return Err(NotSent::Closed(()));
        }
        if state.messages.len() >= state.room {
            return Err(NotSent::Full(()));
        }
        state.reserve();
        Ok(())
    }

    /// Reserves like `try_reserve`, or enlists the sender.
    pub fn reserve_or_wait(&self, another: &mut Another<'_>) -> Result<Sent, NotSent<()>> {
        loop {
            let reserved = self.change(|state| match Self::reserve_in(state) {
                Ok(()) => Some(Ok(Sent::Now(None))),
                Err(NotSent::Full(())) => another.take().map(|waker| {
                    Ok(Sent::Waits(state.senders.push(Waiter::Alone(waker), Offer::Reservation)))
                }),
                Err(closed) => Some(Err(closed)),
            });
            if let Some(reserved) = reserved {
                return reserved;
            }
            another.prepare();
        }
    }

    /// Observes the result of a sender that waits for a reservation. Returns `Some(true)` if it has
    /// one, and `Some(false)` if the channel was closed.
    pub fn look_reservation(
        &self,
        place: &mut Option<Place>,
        another: &mut Another<'_>,
    ) -> Option<bool> {
        let left = look(place, another, |place, another| {
            self.change(|state| state.senders.look(place, another))
        })?;
        Some(matches!(left, Offer::Served))
    }

    /// Removes a sender that waits for a reservation, and returns its room if it has a reservation.
    pub fn cancel_reservation(&self, place: Place) -> (Option<Waiter>, ServedWaiters) {
        self.change(|state| {
            let (left, own) = state.senders.remove(place);
            let mut woken = ServedWaiters::default();
            if matches!(left, Offer::Served) {
                Self::unreserve_in(state, &mut woken);
            }
            (own, woken)
        })
    }

    fn unreserve_in(state: &mut ChannelState<T>, woken: &mut ServedWaiters) {
        state.unreserve();
        state.refill().into_iter().for_each(|waiter| woken.push(waiter));
        state.end_receivers(woken);
    }

    /// Frees the room of a reservation. Returns the waiters to wake.
    pub fn unreserve(&self) -> ServedWaiters {
        if cfg!(procession_loom) && MUTATION == 3 {
            let sender = self.change(ChannelState::refill);
            self.change(ChannelState::unreserve);
            let mut woken = ServedWaiters::default();
            sender.into_iter().for_each(|waiter| woken.push(waiter));
            return woken;
        }
        self.change(|state| {
            let mut woken = ServedWaiters::default();
            Self::unreserve_in(state, &mut woken);
            woken
        })
    }

    /// Sends a message that room is reserved for, even if the channel is closed. Returns the
    /// waiters to wake.
    pub fn send_reserved(&self, message: T) -> ServedWaiters {
        self.change(|state| {
            let mut woken = ServedWaiters::default();
            let mut message = Some(message);
            let receiver = state.hand_over(&mut message);
            receiver.into_iter().for_each(|waiter| woken.push(waiter));
            state.messages.extend(message);
            Self::unreserve_in(state, &mut woken);
            woken
        })
    }
}
