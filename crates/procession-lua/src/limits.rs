//! Limits for a process together with all processes below it.
//!
//! A process may limit a process that it starts. The limits count for that process and for all
//! processes that it starts, directly or indirectly. Such a process begins a [`Subtree`], which may
//! be inside of another subtree. Whatever a process uses is charged to its own subtree and to all
//! subtrees around it, and is refused if any has no room.

use std::sync::Arc;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

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
    /// The bytes of timers and their messages. A table of limits does not name it.
    Later,
}

/// The resources, with the text of a refusal.
const RESOURCES: [(Resource, &str); 7] = [
    (Resource::Memory, "bytes of memory"),
    (Resource::Mailbox, "bytes of messages that wait"),
    (Resource::Processes, "processes"),
    (Resource::Sockets, "sockets"),
    (Resource::Timers, "timers"),
    (Resource::Steps, "steps"),
    (Resource::Later, "bytes of messages for later"),
];

/// The keys in a table of limits, in the order of [`RESOURCES`].
const KEYS: [&str; 6] = ["memory", "mailbox", "processes", "sockets", "timers", "steps"];

/// The bytes of messages for later that the processes of a program may have together. The bytes of
/// ended processes count, because their timers still fire.
const LATER_OF_PROGRAM: usize = 256 << 20;
/// The same, for the processes that a table of limits counts.
const LATER_OF_LIMITS: usize = 64 << 20;

/// The number of levels of limits that count a process. What the process uses is charged to each.
const LEVELS_MAX: usize = 32;

/// The most of each resource, in the order of [`RESOURCES`]. `None` is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maxima([Option<usize>; RESOURCES.len()]);

impl Maxima {
    /// Creates the limits in a table: each entry has a key, if that is a text, and an integer, if
    /// the value is one.
    pub(crate) fn new<'a>(
        entries: impl ExactSizeIterator<Item = (Option<&'a [u8]>, Option<i64>)>,
    ) -> Result<Self, String> {
        let mut maxima = [None; RESOURCES.len()];
        if entries.len() > 0 {
            maxima[Resource::Later as usize] = Some(LATER_OF_LIMITS);
        }
        for (key, most) in entries {
            let known = KEYS.iter().position(|name| key == Some(name.as_bytes()));
            let Some(index) = known else {
                return Err(format!("the keys of `limits` must be among {}", KEYS.join(", ")));
            };
            let most = most.ok_or("the values of `limits` must be integers")?;
            maxima[index] = Some(usize::try_from(most).unwrap_or(0));
        }
        Ok(Self(maxima))
    }

    /// Returns `true` if there is no limit.
    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// A process with limits, and all processes below it. Or all processes of a program, which count
/// messages for later together.
#[derive(Debug)]
pub(crate) struct Subtree {
    /// The function of the process. `None` for a program.
    name: Option<Box<str>>,
    maxima: Maxima,
    used: [AtomicUsize; RESOURCES.len()],
    around: Option<Arc<Self>>,
}

impl Drop for Subtree {
    fn drop(&mut self) {
        // A loop, because each level would drop the next level on the same stack.
        let mut around = self.around.take();
        while let Some(mut level) = around.and_then(Arc::into_inner) {
            around = level.around.take();
        }
    }
}

impl Subtree {
    fn new(name: Option<Box<str>>, maxima: Maxima, around: Option<Arc<Self>>) -> Arc<Self> {
        let used = std::array::from_fn(|_| AtomicUsize::new(0));
        Arc::new(Self { name, maxima, used, around })
    }

    /// Returns the function of the process with the limits.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("the program")
    }

    fn used(&self, resource: Resource) -> &AtomicUsize {
        &self.used[resource as usize]
    }

    fn most(&self, resource: Resource) -> usize {
        self.maxima.0[resource as usize].unwrap_or(usize::MAX)
    }

    fn refusal(&self, resource: Resource) -> String {
        let (_, text) = RESOURCES[resource as usize];
        let most = self.most(resource);
        match &self.name {
            Some(name) => format!("`{name}` and all processes below it may have {most} {text}"),
            None => format!("all processes of the program together may have {most} {text}"),
        }
    }
}

/// The limits that count a process: its subtree, and the subtrees around it. `None` if no limits
/// count it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits(pub(crate) Option<Arc<Subtree>>);

impl Limits {
    /// Returns the limits of the processes of a program.
    pub(crate) fn of_program() -> Self {
        let mut maxima = [None; RESOURCES.len()];
        maxima[Resource::Later as usize] = Some(LATER_OF_PROGRAM);
        Self(Some(Subtree::new(None, Maxima(maxima), None)))
    }

    /// Returns the subtree of the process and the subtrees around it.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &Subtree> {
        std::iter::successors(self.0.as_deref(), |level| level.around.as_deref())
    }

    /// Checks that a process within these limits may limit another process. A table without a limit
    /// limits nothing, and is `None`.
    ///
    /// # Errors
    /// If the largest number of limits already counts the process, returns the refusal.
    pub(crate) fn check(&self, maxima: Maxima) -> Result<Option<Maxima>, String> {
        if maxima.is_empty() {
            return Ok(None);
        }
        match self.levels().count() < LEVELS_MAX {
            true => Ok(Some(maxima)),
            false => Err(format!(
                "`limits` may be inside of one another {LEVELS_MAX} times: so many already count this process"
            )),
        }
    }

    /// Returns the limits of a process that begins a subtree.
    pub(crate) fn begin(self, name: &str, maxima: Maxima) -> Self {
        Self(Some(Subtree::new(Some(name.into()), maxima, self.0)))
    }

    /// Returns the amount of a resource that a process may have if no other one has any.
    pub(crate) fn most(&self, resource: Resource) -> usize {
        self.levels().map(|level| level.most(resource)).min().unwrap_or(usize::MAX)
    }

    /// Returns the amount of a resource for which there is room.
    fn left(&self, resource: Resource) -> usize {
        let left = |level: &Subtree| {
            level.most(resource).saturating_sub(level.used(resource).load(Relaxed))
        };
        self.levels().map(left).min().unwrap_or(usize::MAX)
    }

    /// Charges for one unit of a resource until the result is dropped.
    ///
    /// # Errors
    /// If there is no room for it, returns the refusal.
    pub(crate) fn hold(&self, resource: Resource) -> Result<Hold, String> {
        self.hold_amount(resource, 1)
    }

    /// Charges for an amount of a resource until the result is dropped.
    ///
    /// # Errors
    /// If there is no room for it, returns the refusal.
    pub(crate) fn hold_amount(&self, resource: Resource, amount: usize) -> Result<Hold, String> {
        self.charge(resource, amount)?;
        Ok(Hold { limits: self.clone(), resource, amount })
    }

    /// Returns the charge for the memory of a process, which is nothing yet.
    pub(crate) fn memory(&self) -> Hold {
        Hold { limits: self.clone(), resource: Resource::Memory, amount: 0 }
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

    /// Charges for an amount of a resource, even if there is no room.
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
        let fits = |level: &Subtree| {
            level.used(resource).load(Relaxed) <= level.most(resource).saturating_mul(share)
        };
        self.levels().all(fits)
    }

    /// Charges for steps that were performed, even if none is left.
    pub(crate) fn add_steps(&self, steps: u64) {
        self.add(Resource::Steps, usize::try_from(steps).unwrap_or(usize::MAX));
    }
}

/// A charge, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    limits: Limits,
    resource: Resource,
    amount: usize,
}

impl Hold {
    /// Changes the amount. It may exceed the limits.
    pub(crate) fn set(&mut self, amount: usize) {
        self.limits.add(self.resource, amount);
        self.limits.release(self.resource, std::mem::replace(&mut self.amount, amount));
    }

    /// Returns the amount that this may have at most.
    pub(crate) fn most(&self) -> usize {
        self.limits.left(self.resource).saturating_add(self.amount)
    }

    /// # Errors
    /// If the limits are exceeded, returns the refusal.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.limits.charge(self.resource, 0)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.limits.release(self.resource, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::{LEVELS_MAX, Limits, Maxima, Resource};

    fn maxima(key: &str, most: i64) -> Maxima {
        Maxima::new([(Some(key.as_bytes()), Some(most))].into_iter()).expect("it is one")
    }

    #[test]
    fn a_charge_counts_in_all_subtrees_around_and_a_refusal_in_none() {
        let outer = Limits::default().begin("outer", maxima("sockets", 2));
        let inner = outer.clone().begin("inner", maxima("sockets", 5));
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
    fn many_levels_take_no_stack_when_they_are_dropped() {
        let mut limits = Limits::default();
        for _ in 0..1_000_000 {
            limits = limits.begin("f", maxima("timers", 1));
        }
        // Recursive, it would overflow the 2 MiB of a thread of a test.
        drop(limits);
    }

    #[test]
    fn limits_are_nested_up_to_a_bound_and_those_without_a_limit_are_none() {
        let mut limits = Limits::default();
        let empty = Maxima::new([].into_iter()).expect("it has no wrong entry");
        for _ in 0..LEVELS_MAX {
            assert!(limits.check(empty).expect("there is nothing to refuse").is_none());
            let checked = limits.check(maxima("timers", 1)).expect("there is room");
            limits = limits.begin("f", checked.expect("it has a limit"));
        }
        assert!(limits.check(empty).is_ok());
        let refusal = limits.check(maxima("timers", 1)).expect_err("there are too many");
        assert!(refusal.contains("32 times"), "{refusal}");
    }

    #[test]
    fn memory_is_a_figure_that_may_exceed_its_limit() {
        let limits = Limits::default().begin("f", maxima("memory", 100));
        let (mut one, mut other) = (limits.memory(), limits.memory());
        one.set(60);
        assert_eq!((one.most(), other.most()), (100, 40));
        other.set(70);
        assert_eq!((one.most(), other.most()), (60, 70));
        assert!(one.check().is_err());
        one.set(10);
        assert!(other.check().is_ok());
    }
}
