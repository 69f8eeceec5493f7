//! A scheduler, as a simulated operating system looks at it.

use procession_protocols::process::state::ProcessPhase;
use procession_protocols::scheduler::levels::Level;
use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_sync::atomic::Ordering::Relaxed;

use crate::observe::process_info::label;
use crate::observe::snapshot;
use crate::process::slot::{Slot, SlotRef};
use crate::process::typed::COROUTINE;
use crate::process::wait_reason::Waiting;
use crate::relations::links;
use crate::scheduler::reach::find;
use crate::scheduler::seat::Seat;
use crate::scheduler::shared::Shared;
use crate::scheduler::workforce::LOOK_EVERY;
use crate::sim;
use crate::sys::os::{Demand, Subject, WaitSource};

/// The number of looks within which the watchdog starts threads again once the system may give
/// some.
const LOOKS: u64 = 3;

/// The laws that a scheduler keeps, while all its threads wait.
struct Laws<'a>(&'a Shared);

impl Laws<'_> {
    /// Returns `true` if the system has refused a thread, and the watchdog has not had the time to
    /// start another.
    fn awaits_threads(&self) -> bool {
        let looks = self.0.workforce.watchdog.counts.looks.load(Relaxed);
        let until = &self.0.workforce.threads.looks_in_rest;
        if until.load(Relaxed) != NEVER {
            return looks < until.load(Relaxed);
        }
        if !self.0.workforce.threads.is_resting(&self.0.world) {
            until.store(looks + LOOKS, Relaxed);
        }
        true
    }

    /// Describes where processes that are ready wait.
    fn places_of_work(&self) -> String {
        let mut places = Vec::new();
        if !self.0.workforce.queues.are_empty() {
            places.push("in the global queue".to_owned());
        }
        if !self.0.workforce.levels.is_empty() {
            places.push("at a level".to_owned());
        }
        for (number, seat) in self.0.workforce.all_seats().enumerate() {
            let (next, bound) = (!seat.next.look().is_null(), !seat.bound.is_empty());
            let all =
                [(next, "LIFO slot"), (bound, "bound queue"), (!seat.queues.are_empty(), "queues")];
            let full = all.into_iter().filter(|(is_full, _)| *is_full);
            places.extend(full.map(|(_, name)| format!("in the {name} of worker {number}")));
        }
        places.join(" and ")
    }

    /// Returns `true` if a worker is in a step, so that its thread can wait in code of the user.
    fn is_any_in_step(&self) -> bool {
        self.0.workforce.all_seats().any(|seat| seat.step.load(Relaxed) % 2 == 1)
    }
}

/// The laws of processes.
impl Laws<'_> {
    /// Returns the processes that exist.
    fn existing(&self) -> impl Iterator<Item = SlotRef> {
        (0..self.0.table().used()).filter_map(|index| self.0.table().pin_any(index))
    }

    /// Returns `true` if each process that is ready has one queue entry, while no worker runs. A
    /// process that is bound to a worker is left out, because only that worker sees all its
    /// entries. A process is also left out if its entry is held by its requests.
    fn have_ready_processes_one_entry(&self) -> bool {
        let is_queued = |slot: &SlotRef| {
            slot.state.see().phase() == ProcessPhase::Active
                && slot.bound.worker().is_none()
                && !self.0.processes.requests.is_held(slot.index())
        };
        let ready = self.existing().filter(is_queued).count();
        let lifo_slots =
            self.0.workforce.all_seats().filter(|seat| !seat.next.look().is_null()).count();
        let queued: usize = self.0.workforce.all_seats().map(|seat| seat.queues.len()).sum();
        let levels = &self.0.workforce.levels;
        let leveled = levels.len(None, Level::High) + levels.len(None, Level::Batch);
        ready == lifo_slots + queued + leveled + self.0.workforce.queues.len()
    }

    /// Returns a process that has lent its priority and should not. The law: only a process that
    /// waits for a reply or a lock has.
    fn broken_loan(&self) -> Option<String> {
        let breaks =
            |slot: &SlotRef| self.0.lends(slot) && !slot.waiting.get().has(Waiting::LENDING);
        let slot = self.existing().find(breaks)?;
        Some(format!("{} has lent its priority, and waits for no reply or lock", described(&slot)))
    }

    /// Returns a process that runs at another priority than it should. The law: that is the highest
    /// of its own priority and the priorities that are lent to it.
    fn broken_priority(&self) -> Option<String> {
        let breaks =
            |slot: &SlotRef| !slot.state.see().is_complete() && !self.0.has_due_priority(slot);
        let slot = self.existing().find(breaks)?;
        let priority = self.0.priority(&slot);
        Some(format!("{} is {priority}, and no cause of that is left", described(&slot)))
    }

    /// Returns a monitor that breaks its law, if any. The law: each monitor reports the end of its
    /// process.
    fn broken_monitor(&self) -> Option<String> {
        let os = self.0.world.simulated()?;
        self.existing().find_map(|slot| {
            let here = |&(_, target): &(_, crate::Pid)| target.node() == 0;
            let silent =
                links::watched(&slot).into_iter().filter(here).find(|&(monitor, target)| {
                    let is_alive = find(target).is_some_and(|slot| !slot.state.see().is_complete());
                    !is_alive && !os.has_told(monitor.number())
                });
            let (_, target) = silent?;
            let (own, target) = (described(&slot), sim::name(target));
            Some(format!("{target} has ended, and its monitor has not told {own}"))
        })
    }

    /// Returns a relation that still exists although one of its processes has ended, if there is
    /// any.
    fn broken_relation(&self) -> Option<String> {
        let has_ended =
            |pid: crate::Pid| find(pid).is_none_or(|slot| slot.state.see().is_complete());
        let name = self.0.processes.names.with(|names| {
            let dead = names.iter().find(|&(_, &pid)| has_ended(pid));
            dead.map(|(name, &pid)| {
                format!("{} has ended, and has the name {name:?}", sim::name(pid))
            })
        });
        name.or_else(|| {
            self.existing().find_map(|slot| {
                let all = links::mutual(&slot);
                if slot.state.see().is_complete() {
                    let &(relation, other) = all.first()?;
                    let (own, other) = (described(&slot), sim::name(other));
                    return Some(format!("{own} has ended, and {relation} {other}"));
                }
                let (relation, dead) = all.into_iter().find(|&(_, pid)| has_ended(pid))?;
                let (own, dead) = (described(&slot), sim::name(dead));
                Some(format!("{own} {relation} {dead}, which has ended"))
            })
        })
    }
}

impl Subject for Shared {
    fn deadline(&self) -> u64 {
        // The timers of a worker that stalls wait for the watchdog. The timers of a worker in a
        // blocking section, or with a revoked permit, do not wait, as long as another worker can be
        // woken for them.
        let stalls = |(number, seat): (u32, &Seat)| {
            seat.step.load(Relaxed) % 2 == 1
                && !seat.in_section.load(Relaxed)
                && !self.workforce.idle.is_revoked(SeatId(number))
        };
        let is_attended = !(0..).zip(self.workforce.all_seats()).any(stalls)
            && (!Laws(self).is_any_in_step() || self.workforce.idle.counts().2 > 0)
            && !Laws(self).awaits_threads();
        if is_attended && !self.lifetime.has_ended() { self.next_deadline() } else { NEVER }
    }

    fn broken_law(&self) -> Option<String> {
        let (searching, awake, _) = self.workforce.idle.counts();
        let watchdog = &self.workforce.watchdog;
        if self.lifetime.has_ended() {
            let is_told = !watchdog.alarm.is_after(0);
            return (!is_told).then(|| "a scheduler has ended, and its watchdog sleeps".into());
        }
        if searching > 0 {
            return Some("a worker counts as searching, and all threads wait".into());
        }
        let is_parked = awake == 0 && !Laws(self).is_any_in_step();
        // After the system has refused a thread, what is bound to its seat waits for a while, and
        // so does everything if no parked worker can be woken in its place.
        let is_refused = (self.workforce.stranded_seat().is_some()
            || !self.workforce.idle.is_any_parked_spare())
            && Laws(self).awaits_threads();
        if is_parked && !self.callers.drive && self.workforce.has_work() && !is_refused {
            let places = Laws(self).places_of_work();
            return Some(format!("a process is ready {places}, and all workers are parked"));
        }
        // Between two looks, it does not sleep, whatever workers do.
        let next_look = self.clock.beacon.get().saturating_add(LOOK_EVERY);
        let oversleeps = watchdog.park.is_asleep() || watchdog.pauses_beyond(next_look);
        if awake > 0 && watchdog.is_running() && oversleeps {
            return Some("a worker is awake, and the watchdog sleeps".into());
        }
        if is_parked && !Laws(self).have_ready_processes_one_entry() {
            return Some("a process that is ready has not exactly one queue entry".into());
        }
        if is_parked {
            let laws = Laws(self);
            let relation = || laws.broken_monitor().or_else(|| laws.broken_relation());
            laws.broken_loan().or_else(|| laws.broken_priority()).or_else(relation)
        } else {
            None
        }
    }

    fn broken_law_of_wake_ups(&self) -> Option<String> {
        // A worker that was woken counts as searching, until the watchdog writes it off.
        let (searching, _, spare) = self.workforce.idle.counts();
        let relies = searching > 0 || self.workforce.idle.is_any_napping();
        // The entry of a LIFO slot waits for its worker or the watchdog, so it is left out.
        if relies || self.lifetime.has_ended() || !self.workforce.has_queued() {
            return None;
        }
        // After the system has refused a thread, vacant seats are spare for a while and cannot be
        // woken.
        let could_come = if Laws(self).awaits_threads() {
            self.workforce.idle.is_any_parked_spare()
        } else {
            spare > 0
        };
        could_come.then(|| {
            let places = Laws(self).places_of_work();
            format!("a process could be stolen {places}, and no worker comes for it")
        })
    }

    fn broken_law_of_the_end(&self) -> Option<String> {
        let (searching, awake, _) = self.workforce.idle.counts();
        (searching > 0 || awake > 0)
            .then(|| "all threads have ended, and a worker counts as awake".into())
            .or_else(|| Laws(self).broken_relation())
    }

    fn demand(&self) -> Demand {
        let in_steps: Vec<_> = self
            .workforce
            .all_seats()
            .filter(|seat| seat.step.load(Relaxed) % 2 == 1)
            .map(|seat| (seat.running.load(Relaxed), seat.in_section.load(Relaxed)))
            .collect();
        let stalled = in_steps.iter().filter(|(_, in_section)| !in_section).count();
        // A thread is left that could come.
        let has_seat = in_steps.len() < self.workforce.seats.len();
        let is_waiting = |slot: &SlotRef| {
            // A coroutine that has not begun may wait for a stack.
            slot.state.see().phase() == ProcessPhase::Active
                && slot.bound.worker().is_none()
                && slot.kind().name != COROUTINE
                && !self.processes.requests.is_held(slot.index())
                && !in_steps.iter().any(|&(running, _)| running == slot.index() + 1)
        };
        let kernel = self.poller.kernel().filter(|kernel| kernel.is_ready());
        Demand {
            ready: Laws(self)
                .existing()
                .filter(is_waiting)
                .map(|slot| (slot.seen_pid(), slot.steps(), self.queued_priority(&slot)))
                .collect(),
            deadline: self.next_deadline(),
            events: kernel.map(|_| self.poller.counts().1),
            can_be_met: !self.lifetime.has_ended()
                && !self.callers.drive
                && !Laws(self).awaits_threads()
                && has_seat
                && (stalled < self.workforce.seats.first() as usize
                    || self.workforce.watchdog.is_running()),
        }
    }

    fn process_of(&self, worker: u32) -> Option<String> {
        let seat = self.workforce.all_seats().nth(worker as usize)?;
        let index = seat.running.load(Relaxed).checked_sub(1)?;
        // Where each operation is a point, a pin makes the stores of its thread visible. A run must
        // be the same whether its story is written or not.
        #[cfg(procession_sim)]
        return Some(sim::name(self.table().slot(index)?.seen_pid()));
        #[cfg(not(procession_sim))]
        self.table().pin_any(index).map(|slot| described(&slot))
    }

    fn mark_of(&self, worker: u32) -> u64 {
        let seat = self.workforce.all_seats().nth(worker as usize);
        let number = seat.map_or(0, |seat| seat.running.load(Relaxed));
        let slot = number.checked_sub(1).and_then(|index| self.table().slot(index));
        // Its scheduler is left out, as in names.
        let generation = slot.map_or(0, |slot| slot.seen_pid().generation());
        u64::from(number) << 32 | u64::from(generation)
    }

    fn waiting(&self) -> Vec<String> {
        let waiting = snapshot::waiting(self);
        waiting
            .iter()
            .map(|process| {
                format!(
                    "{} waits for {}",
                    name(process.pid, process.label.as_deref(), process.location),
                    process.waiting
                )
            })
            .collect()
    }
}

fn described(slot: &Slot) -> String {
    name(slot.seen_pid(), label(slot).as_deref(), slot.location())
}

/// Names a process, with its label and the location of its spawn.
fn name(pid: crate::Pid, label: Option<&str>, location: &std::panic::Location<'_>) -> String {
    let file = location.file().rsplit('/').next().unwrap_or_default();
    let label = label.map(|label| format!("{label}, ")).unwrap_or_default();
    format!("{} ({label}{file}:{})", sim::name(pid), location.line())
}
