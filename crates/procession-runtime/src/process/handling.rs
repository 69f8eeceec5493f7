//! What a process works for: the request of its message, and the values that it inherits and passes
//! on.

use std::any::Any;
use std::sync::Arc;

use crate::mailbox::header::RequestContext;
use crate::process::request::MessageLog;
use crate::process::unwind::DropGuarded;

/// The state of a process that handles messages with headers, or that inherits values.
#[derive(Default)]
pub(crate) struct Handling {
    /// The values of the locals that are inherited from the process.
    pub(crate) inherited: Option<Inherited>,
    /// The request that the process works for.
    pub(crate) request: Option<RequestContext>,
    /// Records the messages of the process, while they are traced.
    pub(crate) trace: Option<Arc<MessageLog>>,
    /// Set if the process has a span, so that each request gets one.
    #[cfg(feature = "tracing")]
    pub(crate) is_traced: bool,
    /// The span of the request. It is entered while the process runs a step.
    #[cfg(feature = "tracing")]
    pub(crate) span: Option<tracing::Span>,
}

/// The maximum number of locals with values that one process inherits. A guess: request, deadline,
/// tenant, trace and locale are five. Each scope that begins copies a reference for each value.
pub(crate) const MAX_INHERITED: usize = 16;

/// A value that processes share.
pub(crate) type SharedValue = DropGuarded<Arc<dyn Any + Send + Sync>>;

/// The values of all locals that are inherited, at most [`MAX_INHERITED`]. It never changes, so
/// that a spawn copies one reference, and runs no code of the user.
#[derive(Clone)]
pub(crate) struct Inherited(Arc<Vec<InheritedValue>>);

struct InheritedValue {
    /// The address of the local.
    local: usize,
    value: SharedValue,
}

impl Inherited {
    /// Returns these values with `value` for the local at the address `local`, or `None` if there
    /// are as many already as there may be.
    pub(crate) fn with(base: Option<&Self>, local: usize, value: &SharedValue) -> Option<Self> {
        let others =
            base.into_iter().flat_map(|base| &*base.0).filter(|other| other.local != local);
        let mut values: Vec<_> = others
            .map(|other| InheritedValue { local: other.local, value: other.value.clone() })
            .collect();
        if values.len() == MAX_INHERITED {
            return None;
        }
        values.push(InheritedValue { local, value: value.clone() });
        Some(Self(Arc::new(values)))
    }

    /// Returns the value of the local at the address `local`.
    pub(crate) fn get(&self, local: usize) -> Option<&SharedValue> {
        self.0.iter().find(|value| value.local == local).map(|found| &found.value)
    }

    /// Returns `true` if both are the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
