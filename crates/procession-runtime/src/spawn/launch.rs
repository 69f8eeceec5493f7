//! The way of a spawn, from its options to the queued process.
//!
//! A spawn has four forms. Each form owns what the forms before it have taken, and is either turned
//! into the next form or dropped, which takes everything back.
//!
//! | form | what it owns | what undoes it |
//! |---|---|---|
//! | [`SpawnOptions`], and what is to run | the choices of the caller | a drop |
//! | [`Reservation`] | a count among the spawned processes, and a free slot | a drop |
//! | [`Newborn`] | a slot with a process that has no body yet | [`refuse`] |
//! | [`HandleShare`] | the result of the process, which has a body and is queued | nothing |
//!
//! - The drop of a `Reservation` returns the slot and counts the process as refused.
//! - A `Newborn` has a PID, and perhaps a name and entries in registries. It needs [`refuse`],
//!   because other processes may already have found it.
//! - The `HandleShare` is for the [`JoinHandle`](crate::JoinHandle). From here on the process ends
//!   like any other process.
//!
//! [`launch`](SpawnOptions::launch) goes through all four. A refusal at any step returns what was
//! to run to the caller, in the [`SpawnError`].

use std::num::NonZeroU32;
use std::panic::Location;

use crate::Exit;
use crate::mailbox::bounds::WhenFull;
use crate::mailbox::deliver::take_over;
use crate::mailbox::request;
use crate::process::body::Body;
use crate::process::exit::OnCancel;
use crate::process::life::{HandleShare, Newborn};
use crate::process::slot::{Extra, Kind, Slot};
use crate::process::typed::COROUTINE;
use crate::relations::links;
use crate::relations::monitors;
use crate::relations::names::RegisterError;
use crate::relations::signal::MonitorRef;
use crate::scheduler::current::{self, Hold};
use crate::scheduler::inherit;
use crate::scheduler::shared::Shared;
use crate::scheduler::spawn_error::{InitError, SpawnError, SpawnErrorKind};
use crate::spawn::options::{Rest, SpawnOptions};
use crate::spawn::reservation::{Reservation, queue};

impl SpawnOptions {
    /// Puts a process into a slot, and queues it. `pins` is the number of pins that its address and
    /// its context take. `body` can take that many at no cost.
    ///
    /// A program has an instance of this for each place that starts a process. So all that does not
    /// depend on the types is in [`fill`] and [`start_body`].
    pub(crate) fn launch<T>(
        mut self,
        kind: &'static Kind,
        location: &'static Location<'static>,
        pins: u32,
        content: T,
        body: impl FnOnce(T, &mut Newborn) -> Result<Box<dyn Body>, (T, InitError)>,
    ) -> Result<(HandleShare, Option<MonitorRef>), SpawnError<T>> {
        let shared = self.hold();
        // Stopped before the process is counted. Otherwise the test clock could move on while a
        // thread waits for the process to end.
        let _stopped = shared.stop_clock();
        Self::launch_in(self.rest, Reservation::take(&shared), kind, location, pins, content, body)
    }

    /// Launches a process like [`launch`](Self::launch), in the place that is reserved for it. The
    /// test clock stands still since before the reservation.
    // It takes only a part of the options, because dropping the other part costs a spawn 20
    // instructions.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn launch_in<T>(
        mut rest: Option<Box<Rest>>,
        reservation: Reservation<'_>,
        kind: &'static Kind,
        location: &'static Location<'static>,
        pins: u32,
        content: T,
        body: impl FnOnce(T, &mut Newborn) -> Result<Box<dyn Body>, (T, InitError)>,
    ) -> Result<(HandleShare, Option<MonitorRef>), SpawnError<T>> {
        let shared = reservation.hold();
        let mut newborn = match fill(&mut rest, reservation, kind, location, pins) {
            Ok(newborn) => newborn,
            Err(kind) => return Err(SpawnError::new(content, kind)),
        };
        match body(content, &mut newborn) {
            Ok(body) => Ok(start_body(rest, shared, newborn, body)),
            Err((refused, error)) => {
                refuse(shared, &newborn, &error.exit());
                Err(SpawnError::new(refused, SpawnErrorKind::Init(error)))
            }
        }
    }

    #[inline]
    pub(super) fn hold(&mut self) -> Hold {
        match self.scheduler.take() {
            Some(scheduler) => Hold::Shared(scheduler),
            None => crate::scheduler::owner::here(),
        }
    }
}

/// Puts a process without a body into the reserved slot.
// Inlined in optimised builds, like `start_body` and what both call: as calls, they take some
// 90 instructions more of a spawn. Other builds compile faster without.
#[cfg_attr(not(debug_assertions), inline(always))]
fn fill(
    rest: &mut Option<Box<Rest>>,
    reservation: Reservation<'_>,
    mut kind: &'static Kind,
    mut location: &'static Location<'static>,
    pins: u32,
) -> Result<Newborn, SpawnErrorKind> {
    let shared = reservation.hold();
    if reservation.is_closing() {
        return Err(SpawnErrorKind::Closing);
    }
    if kind.name == COROUTINE && shared.coroutines.stacks.is_none() {
        return Err(SpawnErrorKind::NoCoroutines);
    }
    let mut extra = None;
    if let Some(rest) = rest {
        extra = rest.prepare(kind, shared)?;
        kind = rest.on_cancel.map_or(kind, |on_cancel| kind.with_on_cancel(on_cancel));
        location = rest.location.unwrap_or(location);
    }
    if reservation.may_have_origin() {
        extra = inherit(extra, shared);
    }
    #[cfg(feature = "sim")]
    if shared.world.numbering().is_some() {
        extra.get_or_insert_default().headed = true;
    }
    let newborn = reservation.occupy(kind, location, extra, pins)?;
    if let Some(rest) = rest
        && let Err(error) = rest.introduce(shared, &newborn)
    {
        refuse(shared, &newborn, &Exit::Refused);
        return Err(SpawnErrorKind::Name(error));
    }
    Ok(newborn)
}

/// Puts the body into the process, relates the process to the running process, and queues it.
#[cfg_attr(not(debug_assertions), inline(always))]
fn start_body(
    rest: Option<Box<Rest>>,
    shared: &Hold,
    newborn: Newborn,
    body: Box<dyn Body>,
) -> (HandleShare, Option<MonitorRef>) {
    newborn.set_body_bytes(size_of_val(&*body));
    #[cfg(feature = "tracing")]
    let body = crate::process::span::traced(&newborn, body);
    let (share, ready) = newborn.install(body);
    let monitor = rest.and_then(|rest| rest.relate(share.slot()));
    queue(shared, ready);
    (share, monitor)
}

impl Rest {
    /// Checks the options, finds the running process if the new process is to be related to it, and
    /// returns the fields that few processes need.
    #[cold]
    fn prepare(
        &mut self,
        kind: &Kind,
        shared: &Shared,
    ) -> Result<Option<Box<Extra>>, SpawnErrorKind> {
        if let Some(worker) =
            self.affinity.filter(|&worker| worker >= shared.workforce.seats.first())
        {
            return Err(SpawnErrorKind::Affinity { worker, width: shared.workforce.seats.first() });
        }
        if (self.mailbox.is_some() || self.urgent.is_some()) && kind.receives().is_none() {
            return Err(SpawnErrorKind::NoMailbox);
        }
        if self.stack_bytes.is_some() && kind.name != COROUTINE {
            return Err(SpawnErrorKind::NoStack);
        }
        if self.link || self.monitor || self.scoped || self.supervised {
            self.own = Some(current::current().ok_or(SpawnErrorKind::NoProcess)?);
        }
        let bounded = match self.mailbox {
            Some((capacity, when_full)) => {
                let capacity = NonZeroU32::new(capacity).ok_or(SpawnErrorKind::Mailbox)?;
                Some((kind.make_bounded)(capacity, when_full.into(), self.urgent.is_some()))
            }
            // It is never full.
            None if self.urgent.is_some() => {
                Some((kind.make_bounded)(NonZeroU32::MAX, WhenFull::Reject.into(), true))
            }
            None => None,
        };
        let is_expendable = self.is_expendable || self.on_cancel == Some(OnCancel::Drop);
        let has_extra = self.label.is_some()
            || self.affinity.is_some()
            || bounded.is_some()
            || self.kept.is_some()
            || self.reporting.is_some()
            || is_expendable;
        Ok(has_extra.then(|| {
            Box::new(Extra {
                label: self.label.take(),
                affinity: self.affinity,
                bounded,
                urgent: self.urgent,
                kept: self.kept.take(),
                reporting: self.reporting,
                is_expendable,
                ..Extra::default()
            })
        }))
    }

    /// Makes the new process known. It first gets the messages that it takes over, so that later
    /// messages are behind them.
    #[cold]
    fn introduce(&mut self, shared: &Shared, newborn: &Slot) -> Result<(), RegisterError> {
        take_over(newborn);
        shared.set_priority(newborn, self.priority);
        self.known.announce(shared, newborn)
    }

    /// Relates the running process to the new process, which is not queued yet.
    #[cold]
    fn relate(self, newborn: &Slot) -> Option<MonitorRef> {
        let own = self.own?;
        if self.link {
            links::link_newborn(&own, newborn);
        }
        if self.supervised {
            links::supervise_newborn(&own, newborn);
        }
        if self.scoped {
            links::adopt_newborn(&own, newborn);
        }
        self.monitor.then(|| monitors::monitor_newborn(&own, newborn))
    }
}

/// Gives a new process the values that it inherits. If requests have ids, lets it receive messages
/// with headers, and work for the request of its spawner.
#[cold]
fn inherit(extra: Option<Box<Extra>>, shared: &Shared) -> Option<Box<Extra>> {
    let values = inherit::present();
    if values.is_none() && !shared.processes.has_request_ids {
        return extra;
    }
    let mut extra = extra.unwrap_or_default();
    if shared.processes.has_request_ids {
        extra.headed = true;
        if let Some(request) = request::context() {
            extra.handling.get_mut().get_or_insert_default().request = Some(request);
        }
    }
    if let Some(values) = values {
        extra.inherit(values);
    }
    Some(extra)
}

/// Ends a process that will not run after all. Other processes may already have found it by its
/// name or PID, sent messages to it, and monitored it. For these, it ends like any other process.
#[cold]
fn refuse(shared: &Shared, newborn: &Newborn, exit: &Exit) {
    current::count(shared, |stats| &stats.discarded, newborn.close_mailbox().into());
    newborn.refuse();
    if links::complete(newborn).is_related() {
        links::settle(newborn, exit);
    }
    shared.count_refused();
}
