//! The representations of public types in the formats of serde.
//!
//! They are written out, and not derived, so that they are in one place, private fields stay
//! private, and the crate needs no procedural macros for them.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use serde_core::de::{DeserializeSeed, EnumAccess, Unexpected, VariantAccess, Visitor};
use serde_core::ser::SerializeStruct;
use serde_core::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::mailbox::bounds::{MailboxSnapshot, WhenFull};
use crate::observe::leaks::{Leak, LeakCause, LeakSign, Leaks, Suspicion};
use crate::observe::look::view::{ProcessGroup, View};
use crate::observe::process_info::{
    MemoryUse, ProcessInfo, ProcessRelations, ProcessWait, Samples,
};
use crate::observe::process_state::ProcessState;
use crate::observe::snapshot::{
    DescriptorSnapshot, LevelSnapshot, Snapshot, TimerSnapshot, WorkerSnapshot,
};
use crate::observe::unfinished::{DroppedProcesses, Unfinished};
use crate::observe::wait_cycle::{CyclicWait, WaitCycle};
use crate::process::shown_waits::WaitReason;
use crate::process::wait_reason::Waiting;
use crate::recorder::snapshot::RecorderSnapshot;
use crate::relations::entries::PidList;
use crate::scheduler::stalls::{Stall, StallKind, StallSnapshot};
use crate::scheduler::supply::StuckCoroutine;
use crate::time::Instant;
use crate::{Exit, Pid};

/// As its text, such as `p1.42.7`.
///
/// Available with the crate feature `serde`.
impl Serialize for Pid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Available with the crate feature `serde`.
impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PidVisitor)
    }
}

struct PidVisitor;

impl Visitor<'_> for PidVisitor {
    type Value = Pid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text of a PID")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Pid, E> {
        text.parse().map_err(E::custom)
    }
}

/// The names of the exits, in the order of their numbers.
const EXITS: &[&str] = &[
    "normal",
    "shutdown",
    "panicked",
    "killed",
    "failed",
    "waits_for_nothing",
    "mailbox_full",
    "no_process",
    "no_connection",
    "thread_ended",
    "refused",
    "disconnected",
    "gave_up",
    "name_lost",
    "left",
];

/// Returns the number of an exit, and its text if it has one.
fn exit_parts(exit: &Exit) -> (u32, Option<&Arc<str>>) {
    match exit {
        Exit::Normal => (0, None),
        Exit::Shutdown => (1, None),
        Exit::Panicked(text) => (2, Some(text)),
        Exit::Killed => (3, None),
        Exit::Failed(text) => (4, Some(text)),
        Exit::WaitsForNothing => (5, None),
        Exit::MailboxFull => (6, None),
        Exit::NoProcess => (7, None),
        Exit::NoConnection => (8, None),
        Exit::ThreadEnded => (9, None),
        Exit::Refused => (10, None),
        Exit::Disconnected(text) => (11, Some(text)),
        Exit::GaveUp(text) => (12, Some(text)),
        Exit::NameLost(text) => (13, Some(text)),
        Exit::Left => (14, None),
    }
}

/// As an enum: its name, such as `"no_process"`. Five exits have a text, and are written with the
/// name and the text, for example as `{"failed": "no disk"}`.
///
/// Available with the crate feature `serde`.
impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (number, text) = exit_parts(self);
        let name = EXITS[number as usize];
        match text {
            Some(text) => serializer.serialize_newtype_variant("Exit", number, name, &**text),
            None => serializer.serialize_unit_variant("Exit", number, name),
        }
    }
}

/// Available with the crate feature `serde`.
impl<'de> Deserialize<'de> for Exit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("Exit", EXITS, ExitVisitor)
    }
}

struct ExitVisitor;

impl<'de> Visitor<'de> for ExitVisitor {
    type Value = Exit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an exit of a process")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Exit, A::Error> {
        let (kind, content) = data.variant_seed(ExitNumber)?;
        let exit = match kind {
            0 => Exit::Normal,
            1 => Exit::Shutdown,
            2 => return Ok(Exit::Panicked(content.newtype_variant::<String>()?.into())),
            3 => Exit::Killed,
            4 => return Ok(Exit::Failed(content.newtype_variant::<String>()?.into())),
            5 => Exit::WaitsForNothing,
            6 => Exit::MailboxFull,
            7 => Exit::NoProcess,
            8 => Exit::NoConnection,
            9 => Exit::ThreadEnded,
            10 => Exit::Refused,
            11 => return Ok(Exit::disconnected(content.newtype_variant::<String>()?)),
            12 => return Ok(Exit::GaveUp(content.newtype_variant::<String>()?.into())),
            13 => return Ok(Exit::NameLost(content.newtype_variant::<String>()?.into())),
            _ => Exit::Left,
        };
        content.unit_variant()?;
        Ok(exit)
    }
}

/// Reads the number of an exit, from its name or, in formats without names, from the number.
struct ExitNumber;

impl<'de> DeserializeSeed<'de> for ExitNumber {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for ExitNumber {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an exit")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<usize, E> {
        let exit = usize::try_from(number).ok().filter(|&number| number < EXITS.len());
        exit.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &"an exit below 15"))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<usize, E> {
        let exit = EXITS.iter().position(|&exit| exit == name);
        exit.ok_or_else(|| E::unknown_variant(name, EXITS))
    }

    fn visit_bytes<E: de::Error>(self, name: &[u8]) -> Result<usize, E> {
        self.visit_str(&String::from_utf8_lossy(name))
    }
}

/// A location in the source, as `src/main.rs:31:13`.
struct LocationText(&'static Location<'static>);

impl Serialize for LocationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

/// Returns the time from the start of the clock.
fn since_start(instant: Instant) -> Duration {
    Duration::from_nanos(instant.nanoseconds())
}

/// Serializes types as their names.
macro_rules! as_names {
    ($($type:ty: $name:expr;)+) => {$(
        /// Available with the crate feature `serde`.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let name: fn(Self) -> &'static str = $name;
                serializer.serialize_str(name(*self))
            }
        }
    )+};
}

as_names! {
    ProcessState: Self::name;
    WaitReason: Self::name;
    LeakCause: Self::name;
    LeakSign: Self::name;
    StallKind: |kind| match kind {
        Self::Blocked => "blocked",
        Self::Computing => "computing",
    };
    WhenFull: |policy| match policy {
        Self::Reject => "reject",
        Self::Wait => "wait",
        Self::DropNewest => "drop_newest",
        Self::DropOldest => "drop_oldest",
        Self::Kill => "kill",
    };
}

/// As the sequence of its reasons.
///
/// Available with the crate feature `serde`.
impl Serialize for Waiting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reasons: Vec<WaitReason> = self.reasons().collect();
        reasons.serialize(serializer)
    }
}

/// Serializes structs with all their public fields: `field`, or `field = value` if the type of the
/// field has no representation. Private fields are listed after a semicolon. If the list lacks a
/// field, the compiler reports an error.
macro_rules! as_structs {
    ($($type:ident { $($field:ident $(= $value:expr)?),+ $(,)? $(; $left_out:ident)? })+) => {$(
        /// Available with the crate feature `serde`.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { $($field,)+ $($left_out: _)? } = self;
                let count = [$(stringify!($field)),+].len();
                let mut fields = serializer.serialize_struct(stringify!($type), count)?;
                $(fields.serialize_field(stringify!($field), as_structs!(@ $field $($value)?))?;)+
                fields.end()
            }
        }
    )+};
    (@ $field:ident) => { $field };
    (@ $field:ident $value:expr) => { &$value };
}

as_structs! {
    Snapshot {
        workers, processes, global_queue, levels, spawned, ended, panicked, messages_sent,
        messages_received, messages_discarded, timers, timer_lateness, wake_to_run, descriptors,
        threads_started, threads_refused, stalls, wait_cycles, blocking_sections, recorder, slots_lost,
        stuck_coroutines, membarrier,
    }
    WorkerSnapshot {
        dispatches, steals, stolen, parks, searches, deque, fifo, bound, lifo_slot, step_age,
    }
    ProcessInfo {
        pid, parent, label, location = LocationText(location), kind, priority = priority.name(), state,
        cancelled, suspended, waiting,
        mailbox, mailbox_high_water, received, bounded, steps, wait, growth, received_in_window,
        steps_in_window, samples, memory, relations = relations.as_deref(),
    }
    ProcessRelations {
        name = name.as_deref(), message, links, monitors, monitored, scope, supervisor,
    }
    Unfinished {
        processes, terminated, dropped, requests, writes, messages, jobs, stopped,
        stopped_requests,
    }
    DroppedProcesses { location = LocationText(location), count }
    StuckCoroutine { pid, label, location = LocationText(location) }
    LevelSnapshot { high, batch, batch_workers }
    TimerSnapshot { armed, fired, cancelled, pending }
    DescriptorSnapshot { registered, polls, events, accepts_put_off }
    MailboxSnapshot { capacity, when_full, waiting, refused, dropped }
    RecorderSnapshot { bytes, dumps, dumps_failed }
    StallSnapshot {
        blocked, computing, replaced, lifo_slots, unreported, looks, late, guessed,
        watched_threads,
    }
    WaitCycle { waits }
    Leaks { leaked, leaked_total, suspected }
    Leak {
        pid, label, spawned_at = LocationText(spawned_at), reason, location = location.map(LocationText),
        cause, other, at_least,
    }
    Suspicion {
        label, spawned_at = LocationText(spawned_at), count, sign, waiting, since, before,
    }
    CyclicWait {
        pid, label, spawned_at = LocationText(spawned_at), reason, location = location.map(LocationText),
        target, at_least,
    }
    Stall {
        worker, pid, label, location = location.map(LocationText), duration, kind, replaced, lifo_slot,
        queued, held_up,
    }
    View {
        at = at.map(since_start), window, processes, matched, looks, rows, groups, left_off; baseline
    }
    ProcessWait { reasons, location = location.map(LocationText), target, at_least, in_cycle }
    Samples { count, time, share, error }
    MemoryUse { body, mailbox, stack }
    ProcessGroup {
        location = location.map(LocationText), state, waiting, processes, samples, time, steps, mailbox, growth,
        memory, oldest_wait,
    }
    PidList { first, total }
}

#[cfg(test)]
mod tests {
    use serde_core::Deserialize;
    use serde_core::de::IntoDeserializer;
    use serde_core::de::value::{Error, U32Deserializer};

    use super::{EXITS, exit_parts};
    use crate::Exit;

    /// Returns all exits, by number.
    fn exits() -> Vec<Exit> {
        vec![
            Exit::Normal,
            Exit::Shutdown,
            Exit::Panicked("out of order".into()),
            Exit::Killed,
            Exit::failed("no \"disk\""),
            Exit::WaitsForNothing,
            Exit::MailboxFull,
            Exit::NoProcess,
            Exit::NoConnection,
            Exit::ThreadEnded,
            Exit::Refused,
            Exit::disconnected("connection reset"),
            Exit::GaveUp("too often".into()),
            Exit::NameLost("counter".into()),
            Exit::Left,
        ]
    }

    #[test]
    fn each_exit_is_read_as_it_was_written() {
        for (number, exit) in exits().into_iter().enumerate() {
            let (own, text) = exit_parts(&exit);
            assert_eq!(own as usize, number);
            let written = serde_json::to_string(&exit).expect("it can be written");
            let expected = match text {
                Some(text) => serde_json::json!({ EXITS[number]: **text }),
                None => serde_json::json!(EXITS[number]),
            };
            assert_eq!(written, expected.to_string());
            assert_eq!(serde_json::from_str::<Exit>(&written).expect("it can be read"), exit);
        }
    }

    #[test]
    fn exits_have_numbers_in_formats_without_names() {
        for (number, exit) in exits().into_iter().enumerate() {
            let format: U32Deserializer<Error> = (number as u32).into_deserializer();
            // The deserializer has no room for a text.
            match Exit::deserialize(format) {
                Ok(read) => assert_eq!(read, exit),
                Err(error) => assert!(exit_parts(&exit).1.is_some(), "{exit}: {error}"),
            }
        }
        let format: U32Deserializer<Error> = 15_u32.into_deserializer();
        let error = Exit::deserialize(format).expect_err("there are 15");
        assert_eq!(error.to_string(), "invalid value: integer `15`, expected an exit below 15");
    }
}
