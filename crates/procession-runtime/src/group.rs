//! Groups of processes: sets that collect the results of their processes, scopes that wait for
//! their processes, and tables in which processes find other processes.
//!
//! | to | use |
//! |---|---|
//! | collect results as they come, and cancel the rest | [`JoinSet`] |
//! | wait for all processes that a function starts, and stop at the first failure | [`scope`] |
//! | send to every process that has joined a group | [`Groups`] |
//! | find processes by keys, with a value for each | [`Registry`] |
//!
//! Groups and registries name processes by [`Pid`](crate::Pid), forget them when they end, and keep
//! neither them nor their schedulers alive. One table may have processes of several schedulers.

pub(crate) mod join_set;
pub(crate) mod process_groups;
pub(crate) mod registry;
pub(crate) mod scope;
pub(crate) mod table;

pub use self::join_set::JoinSet;
pub use self::process_groups::{BroadcastError, GroupEvent, GroupMonitor, Groups};
pub use self::registry::{
    Registry, RegistryEntries, RegistryError, RegistryEvent, RegistryListener,
};
pub use self::scope::{Scope, ScopeError, scope};
pub use crate::relations::names::TableEntry;
