//! A process that continues with a new version of its program.
//!
//! # Protocol of an upgrade
//! ## Problem
//! A process must change its code and its Lua state without losing a message, and must be as it was
//! if the new code fails.
//!
//! ## Steps
//! 1. `Ask`: an [`Upgrade`] arrives like a message. Nothing happens until the process is in
//!    `process.receive`. It then continues with the version that is current, whichever it was asked
//!    for.
//! 2. `Save`: the function `upgrade` of the old program runs in the old state, while the process is
//!    suspended, and returns the state as a [`Value`]. It may not wait. If another version has
//!    become current meanwhile, the process asks itself.
//! 3. `Resume`: the new program is opened in a new state, and `resume_NAME` is called. It has the
//!    messages that nobody has received. The old state is kept.
//! 4. `Commit`: once the new function waits for the first time, the old state is dropped. If it
//!    fails before, the process continues in the old state, still in the same `process.receive`.
//!    If another version has become current since `Ask`, the process asks itself.
//!
//! ## Why it works
//! Until `Commit` the new function has received nothing, because a receive is a wait. The inbox is
//! therefore complete when it moves back, and each message is received by exactly one state.
//!
//! A replacement asks only the processes of other versions. A process that is between `Ask` and
//! `Commit` can have the version that becomes current, and is not asked. So it looks at the current
//! version in these steps, and after `Save`, which may have taken many steps of the process.
//!
//! ## Allowed
//! What the new function sends before its first wait stays sent, even if it fails then.
//!
//! ## Checked by
//! `tests/upgrades.rs`.

use mlua::{MultiValue, Thread};
use procession::machine::{Yields, is_terminated};

use super::state::{Awaited, Running};
use super::{Attempt, Guest};
use crate::failure::{Failure, label};
use crate::interrupt::CAUSE;
use crate::program::{Outcome, Program, Upgrade};
use crate::protect;
use crate::value::{self, Value};

/// The number of steps that `upgrade`, or `resume_NAME` before its first wait, may take. With the
/// default budget of instructions, these are about 100 ms.
const STEPS_MAX: u32 = 1000;
/// The number of digits of a version in the label of a process. They distinguish the versions of
/// one program, and leave room on a screen.
const LABEL_DIGITS: usize = 8;

impl Guest {
    /// Continues an upgrade, or begins a requested upgrade. Returns `true` if it needs another step
    /// before the process can continue.
    ///
    /// # Errors
    /// If the process must end, returns the cause.
    pub(super) fn upgrade(&mut self, yields: &mut Yields<'_>) -> Result<bool, Failure> {
        match self.attempt.take() {
            None => return self.begin_upgrade(yields),
            Some(Attempt::Saves { upgrade, thread, given, steps }) => {
                return self.save(upgrade, thread, given, steps, yields);
            }
            Some(Attempt::Tries { upgrade, old, before, steps }) if steps < STEPS_MAX => {
                self.attempt = Some(Attempt::Tries { upgrade, old, before, steps: steps + 1 });
                self.commit_if_it_waited(yields);
            }
            Some(Attempt::Tries { upgrade, old, before, .. }) => {
                self.attempt = Some(Attempt::Tries { upgrade, old, before, steps: STEPS_MAX });
                self.revert("it did not wait in time", yields);
            }
        }
        Ok(false)
    }

    fn begin_upgrade(&mut self, yields: &Yields<'_>) -> Result<bool, Failure> {
        let Some(running) = &mut self.running else { return Ok(false) };
        if !matches!(running.waits, Awaited::Receive(_)) {
            return Ok(false);
        }
        let Some(upgrade) = running.asked.take().map(Upgrade::newest) else { return Ok(false) };
        if upgrade.program().version() == self.program.version() {
            upgrade.report(Outcome::Upgraded);
            return Ok(false);
        }
        let function = match running.lua.globals().raw_get("upgrade") {
            Ok(mlua::Value::Function(function)) => function,
            _ => {
                upgrade.report(Outcome::Kept);
                return Ok(false);
            }
        };
        let version = running.lua.create_string(self.program.version().to_string());
        let begun = version.and_then(|version| {
            let thread = protect::thread(&running.lua)?;
            let given = [mlua::Value::Function(function), mlua::Value::String(version)];
            Ok((thread, MultiValue::from_iter(given)))
        });
        match begun {
            Ok((thread, given)) => {
                running.budget.set_lenient(true);
                self.save(upgrade, thread, given, 0, yields)
            }
            Err(error) => {
                self.fail(&upgrade, &error.to_string(), yields);
                Ok(false)
            }
        }
    }

    /// Performs a step of `upgrade`, and starts the new program with its result.
    fn save(
        &mut self,
        upgrade: Upgrade,
        thread: Thread,
        given: MultiValue,
        steps: u32,
        yields: &Yields<'_>,
    ) -> Result<bool, Failure> {
        let Some(running) = &mut self.running else { return Ok(false) };
        running.budget.renew();
        let saved = match thread.resume::<MultiValue>(given) {
            Err(error) => Err(error.to_string()),
            Ok(results) if thread.is_finished() => match protect::outcome(results) {
                Ok(state) => value::take(&state, running.budget.allowance(&running.lua))
                    .map_err(|error| format!("the result of upgrade: {error}")),
                Err(error) => Err(error.to_string()),
            },
            // The hook yields no value. Inside of a coroutine that becomes `nil`.
            Ok(results) => match results.front() {
                None | Some(mlua::Value::Nil) if steps < STEPS_MAX => {
                    let (given, steps) = (MultiValue::new(), steps + 1);
                    self.attempt = Some(Attempt::Saves { upgrade, thread, given, steps });
                    return Ok(true);
                }
                None | Some(mlua::Value::Nil) => Err("upgrade computed for too long".to_owned()),
                Some(_) => Err("upgrade cannot wait".to_owned()),
            },
        };
        running.budget.set_lenient(false);
        if running.budget.is_doomed() {
            // Code of the old state was ended amid its work, so the process cannot go on in it.
            let cause = saved.err().unwrap_or_else(|| CAUSE.to_owned());
            let cause = format!("upgrade went on after it had failed: {cause}");
            self.fail(&upgrade, &format!("the process ends: {cause}"), yields);
            return Err(cause.into());
        }
        if saved.is_ok() {
            let newest = upgrade.clone().newest();
            if newest != upgrade {
                running.asked.get_or_insert(newest);
                return Ok(false);
            }
        }
        match saved.and_then(|state| self.resume(&upgrade, &state)) {
            Ok((old, before)) => {
                self.attempt = Some(Attempt::Tries { upgrade, old, before, steps: 0 });
            }
            Err(cause) => self.fail(&upgrade, &cause, yields),
        }
        Ok(false)
    }

    /// Opens the new program, and moves the process into its state.
    fn resume(
        &mut self,
        upgrade: &Upgrade,
        state: &Value,
    ) -> Result<(Box<Running>, Program), String> {
        let name = match self.method.rsplit_once('.') {
            Some((table, name)) => format!("{table}.resume_{name}"),
            None => format!("resume_{}", self.method),
        };
        let before = std::mem::replace(&mut self.program, upgrade.program().clone());
        // The new state replaces the old one, which is still charged.
        let most = self.charges.as_ref().map_or(usize::MAX, |(_, memory)| memory.most());
        let started = self.start(&name, std::slice::from_ref(state), most);
        let started = started.map_err(|error| {
            use std::error::Error as _;
            error.source().map_or_else(|| format!("the new program: {error}"), ToString::to_string)
        });
        let mut new = match started {
            Ok(new) => new,
            Err(cause) => {
                self.program = before;
                return Err(cause);
            }
        };
        let Some(mut old) = self.running.take() else {
            self.program = before;
            return Err("the process has ended".to_owned());
        };
        new.take_over(&mut old);
        self.running = Some(new);
        Ok((Box::new(old), before))
    }

    /// Drops the old state if the new function has waited. Returns `true` if the process is asked
    /// for another upgrade.
    pub(super) fn commit_if_it_waited(&mut self, yields: &mut Yields<'_>) -> bool {
        self.running.as_ref().is_some_and(|running| running.has_waited) && self.commit(yields)
    }

    /// Drops the old state, like [`commit_if_it_waited`](Self::commit_if_it_waited).
    pub(super) fn commit(&mut self, yields: &mut Yields<'_>) -> bool {
        let Some(Attempt::Tries { upgrade, .. }) = self.attempt.take() else { return false };
        let newer = self.member.as_ref().and_then(|member| member.enter(self.program.version()));
        let (messages, bytes) = self.program.mailbox(&self.bounds);
        self.account.set_most(messages, bytes);
        self.show_version(yields);
        upgrade.report(Outcome::Upgraded);
        let Some(running) = &mut self.running else { return false };
        running.asked = running.asked.take().or(newer);
        running.asked.is_some()
    }

    /// Puts the version into the label of the process, after the name of its function.
    pub(super) fn show_version(&self, yields: &mut Yields<'_>) {
        let version = self.program.version().to_string();
        yields.set_label(format!("{} {}", label(&self.method), &version[..LABEL_DIGITS]));
    }

    /// Handles a failure of the running function. Returns `false` if the process continues in its
    /// old state.
    pub(super) fn is_final(&mut self, failure: &Failure, yields: &mut Yields<'_>) -> bool {
        self.commit_if_it_waited(yields);
        if !matches!(self.attempt, Some(Attempt::Tries { .. })) {
            return true;
        }
        self.revert(&failure.to_string(), yields);
        false
    }

    /// Returns to the old state.
    fn revert(&mut self, cause: &str, yields: &Yields<'_>) {
        let Some(Attempt::Tries { upgrade, mut old, before, .. }) = self.attempt.take() else {
            return;
        };
        if let Some(mut new) = self.running.take() {
            old.take_over(&mut new);
        }
        self.running = Some(*old);
        self.program = before;
        self.fail(&upgrade, cause, yields);
    }

    /// Reports that the upgrade has failed, unless the cause is that the process is terminated. If
    /// the upgrade is dropped without a report, the process has ended before.
    fn fail(&self, upgrade: &Upgrade, cause: &str, yields: &Yields<'_>) {
        if is_terminated() {
            return;
        }
        let version = upgrade.program().version();
        let text = format!(
            "{} {} cannot be upgraded to {version}: {cause}\n",
            yields.pid(),
            label(&self.method)
        );
        // Ignored: without room the line is lost. The outcome also has the cause.
        self.program.inner().err.try_write(text.as_bytes());
        upgrade.report(Outcome::Failed(cause.to_owned()));
    }
}
