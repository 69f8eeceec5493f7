//! Limits for a process together with all processes below it.
//!
//! A process may give limits to a process that it starts. They count for that process and for all
//! that it starts, directly or through others. Such a process begins a [`Subtree`], which may be
//! inside of another one. Whatever a process uses is charged to its own subtree and to all around
//! it, and is refused if one of them has no room.

use std::sync::Arc;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use crate::permissions::Permissions;
use crate::value::Value;

/// A resource with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The bytes of Lua states.
    Memory,
    /// The bytes of messages that wait.
    Mailbox,
    Processes,
    Sockets,
    Timers,
    /// The steps, which are never given back.
    Steps,
}

/// The resources, with their keys in a table of limits and the text of a refusal.
const RESOURCES: [(Resource, &str, &str); 6] = [
    (Resource::Memory, "memory", "bytes of memory"),
    (Resource::Mailbox, "mailbox", "bytes of messages that wait"),
    (Resource::Processes, "processes", "processes"),
    (Resource::Sockets, "sockets", "sockets"),
    (Resource::Timers, "timers", "timers"),
    (Resource::Steps, "steps", "steps"),
];

/// The most of each resource, in the order of [`RESOURCES`]. `None` is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maxima([Option<usize>; RESOURCES.len()]);

impl Maxima {
    /// Reads a table of limits.
    pub(crate) fn new(table: &Value) -> Result<Self, String> {
        let Value::Table(entries) = table else {
            return Err("`limits` must be a table".to_owned());
        };
        let mut maxima = [None; RESOURCES.len()];
        for (key, value) in entries {
            let known = RESOURCES.iter().position(|(_, name, _)| *key == Value::string(name));
            let Some(index) = known else {
                let names = RESOURCES.map(|(_, name, _)| name).join(", ");
                return Err(format!("the keys of `limits` must be among {names}"));
            };
            let Value::Integer(most) = value else {
                return Err("the values of `limits` must be integers".to_owned());
            };
            maxima[index] = Some(usize::try_from(*most).unwrap_or(0));
        }
        Ok(Self(maxima))
    }
}

/// A process with limits, and all processes below it.
#[derive(Debug)]
pub(crate) struct Subtree {
    /// The function of the process.
    name: Box<str>,
    maxima: Maxima,
    used: [AtomicUsize; RESOURCES.len()],
    around: Option<Arc<Self>>,
}

impl Subtree {
    /// Returns this subtree and those around it.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |level| level.around.as_deref())
    }

    /// Returns the function of the process with the limits.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn used(&self, resource: Resource) -> &AtomicUsize {
        &self.used[resource as usize]
    }

    fn most(&self, resource: Resource) -> usize {
        self.maxima.0[resource as usize].unwrap_or(usize::MAX)
    }

    fn refusal(&self, resource: Resource) -> String {
        let (_, _, text) = RESOURCES[resource as usize];
        format!(
            "`{}` and all processes below it may have {} {text}",
            self.name,
            self.most(resource)
        )
    }

    /// Charges for an amount of a resource.
    ///
    /// # Errors
    /// If a subtree has no room for it, charges nothing and returns the refusal.
    pub(crate) fn charge(&self, resource: Resource, amount: usize) -> Result<(), String> {
        for (number, level) in self.levels().enumerate() {
            // Relaxed, here and below: these are counts, which publish nothing. If two processes
            // charge at the same time, both may be refused for the last room.
            let before = level.used(resource).fetch_add(amount, Relaxed);
            if before.saturating_add(amount) > level.most(resource) {
                for charged in self.levels().take(number + 1) {
                    charged.used(resource).fetch_sub(amount, Relaxed);
                }
                return Err(level.refusal(resource));
            }
        }
        Ok(())
    }

    /// Charges for an amount of a resource, also if there is no room for it.
    pub(crate) fn add(&self, resource: Resource, amount: usize) {
        for level in self.levels() {
            level.used(resource).fetch_add(amount, Relaxed);
        }
    }

    pub(crate) fn release(&self, resource: Resource, amount: usize) {
        for level in self.levels() {
            level.used(resource).fetch_sub(amount, Relaxed);
        }
    }

    /// Returns `true` if no limit is exceeded, each multiplied by `share`.
    pub(crate) fn fits(&self, resource: Resource, share: usize) -> bool {
        let fits = |level: &Self| {
            level.used(resource).load(Relaxed) <= level.most(resource).saturating_mul(share)
        };
        self.levels().all(fits)
    }

    /// Returns the amount of a resource that a process may have if no other one has any.
    fn most_of_all(&self, resource: Resource) -> usize {
        self.levels().map(|level| level.most(resource)).min().unwrap_or(usize::MAX)
    }

    /// Returns the amount of a resource for which there is room.
    fn left(&self, resource: Resource) -> usize {
        let left =
            |level: &Self| level.most(resource).saturating_sub(level.used(resource).load(Relaxed));
        self.levels().map(left).min().unwrap_or(usize::MAX)
    }
}

/// What a process may use: its permissions, and the subtree with limits that it is in.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) permissions: Permissions,
    pub(crate) subtree: Option<Arc<Subtree>>,
}

impl From<Permissions> for Bounds {
    fn from(permissions: Permissions) -> Self {
        Self { permissions, subtree: None }
    }
}

impl Bounds {
    /// Returns the bounds of a process that begins a subtree.
    pub(crate) fn limited(mut self, name: &str, maxima: Maxima) -> Self {
        let used = std::array::from_fn(|_| AtomicUsize::new(0));
        let around = self.subtree.take();
        self.subtree = Some(Arc::new(Subtree { name: name.into(), maxima, used, around }));
        self
    }

    /// Returns the amount of a resource that a process may have if no other one has any.
    pub(crate) fn most(&self, resource: Resource) -> usize {
        self.subtree.as_ref().map_or(usize::MAX, |subtree| subtree.most_of_all(resource))
    }

    /// Charges for one unit of a resource until the result is dropped.
    ///
    /// # Errors
    /// If there is no room for it, returns the refusal.
    pub(crate) fn hold(&self, resource: Resource) -> Result<Hold, String> {
        if let Some(subtree) = &self.subtree {
            subtree.charge(resource, 1)?;
        }
        Ok(Hold { subtree: self.subtree.clone(), resource, amount: 1 })
    }

    /// Returns the charge for the memory of a process, which is nothing yet.
    pub(crate) fn memory(&self) -> Hold {
        Hold { subtree: self.subtree.clone(), resource: Resource::Memory, amount: 0 }
    }

    /// Charges for a step.
    ///
    /// # Errors
    /// If none is left, returns the refusal.
    pub(crate) fn take_step(&self) -> Result<(), String> {
        match &self.subtree {
            Some(subtree) => subtree.charge(Resource::Steps, 1),
            None => Ok(()),
        }
    }

    /// Charges for steps that were performed, also if none is left.
    pub(crate) fn add_steps(&self, steps: u64) {
        if let Some(subtree) = &self.subtree {
            subtree.add(Resource::Steps, usize::try_from(steps).unwrap_or(usize::MAX));
        }
    }
}

/// A charge, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    subtree: Option<Arc<Subtree>>,
    resource: Resource,
    amount: usize,
}

impl Hold {
    /// Changes the amount. It may exceed the limits.
    pub(crate) fn set(&mut self, amount: usize) {
        if let Some(subtree) = &self.subtree {
            subtree.add(self.resource, amount);
            subtree.release(self.resource, std::mem::replace(&mut self.amount, amount));
        }
    }

    /// Returns the amount that this may have at most.
    pub(crate) fn most(&self) -> usize {
        let left = self.subtree.as_ref().map(|subtree| subtree.left(self.resource));
        left.unwrap_or(usize::MAX).saturating_add(self.amount)
    }

    /// # Errors
    /// If the limits are exceeded, returns the refusal.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.subtree {
            Some(subtree) => subtree.charge(self.resource, 0),
            None => Ok(()),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(subtree) = &self.subtree {
            subtree.release(self.resource, self.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, Maxima, Resource};
    use crate::permissions::Permissions;
    use crate::value::Value;

    fn maxima(key: &str, most: i64) -> Maxima {
        Maxima::new(&Value::Table(vec![(Value::string(key), most.into())])).expect("it is one")
    }

    #[test]
    fn a_charge_counts_in_all_subtrees_around_and_a_refusal_in_none() {
        let outer = Bounds::from(Permissions::none()).limited("outer", maxima("sockets", 2));
        let inner = outer.clone().limited("inner", maxima("sockets", 5));
        let held = inner.hold(Resource::Sockets).expect("there is room");
        let other = outer.hold(Resource::Sockets).expect("there is room");
        let refusal = inner.hold(Resource::Sockets).expect_err("the outer one is full");
        assert_eq!(refusal, "`outer` and all processes below it may have 2 sockets");
        drop(other);
        let again = inner.hold(Resource::Sockets).expect("a refusal takes no room");
        drop((held, again));
        for _ in 0..2 {
            let all = [(); 2].map(|()| outer.hold(Resource::Sockets).expect("all is given back"));
            assert!(outer.hold(Resource::Sockets).is_err());
            drop(all);
        }
    }

    #[test]
    fn memory_is_a_figure_that_may_exceed_its_limit() {
        let bounds = Bounds::from(Permissions::none()).limited("f", maxima("memory", 100));
        let (mut one, mut other) = (bounds.memory(), bounds.memory());
        one.set(60);
        assert_eq!((one.most(), other.most()), (100, 40));
        other.set(70);
        assert_eq!((one.most(), other.most()), (60, 70));
        assert!(one.check().is_err());
        one.set(10);
        assert!(other.check().is_ok());
    }
}
