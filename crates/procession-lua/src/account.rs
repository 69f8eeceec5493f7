//! Bounds the messages that wait for a guest.
//!
//! Each guest has an account of the messages that were sent to it and that its program has not
//! received yet. A sender charges the account of the receiver, and sends the charge along with the
//! message. If the account is full, the message is refused.
//!
//! Accounts are found by PID. The account of a guest is entered by its spawner and, for spawners
//! that do not know it, by its own first step. It is removed when the guest is dropped.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, LazyLock};

use procession::{Exit, Pid, observe};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicUsize};

use crate::limits::Resource;
use crate::owner::{self, Owner};

/// The number of messages that may wait for a process by default.
pub(crate) const MESSAGES: usize = 1 << 20;
/// The number of monitors that a process may have at a time, and of monitors of names on other
/// nodes.
pub(crate) const MONITORS_MAX: usize = 1 << 16;
/// The bytes that a message takes in addition to its value.
const MESSAGE_BYTES: usize = 64;
/// The bytes of messages that may wait for a process of the host, if all are as large as the next
/// one. Answers may have twice as many. If the sizes differ, the `n`th message has at most an `n`th
/// of these bytes, so all together have less than 15 times as many.
const TO_HOST_BYTES: usize = 32 << 20;
/// The number of tables of accounts, each with a lock.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<Pid, Arc<Account>>>;

fn shards() -> &'static [Shard] {
    static ACCOUNTS: LazyLock<Vec<Shard>> =
        LazyLock::new(|| (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect());
    &ACCOUNTS
}

fn shard(pid: Pid) -> &'static Shard {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(pid);
    // The remainder is less than the number of shards.
    &shards()[(hash % SHARDS as u64) as usize]
}

/// Returns the number of processes that have an account.
#[cfg(test)]
pub(crate) fn count() -> usize {
    (0..SHARDS).map(|index| shards()[index].lock().len()).sum()
}

/// The messages that wait for a process.
#[derive(Debug)]
pub(crate) struct Account {
    messages_max: AtomicUsize,
    bytes_max: AtomicUsize,
    /// Its limits also count the messages.
    owner: Owner,
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// The bytes that the host holds for the process, without its messages.
    held: AtomicUsize,
    /// The messages that the process holds, and the bytes of its Lua state, after its last step.
    inbox: AtomicUsize,
    memory: AtomicUsize,
    /// The monitors of names on other nodes that have not reported an end yet.
    #[cfg(feature = "cluster")]
    name_monitors: AtomicUsize,
    /// `true` if exits arrive as messages.
    traps: AtomicBool,
    entry: Mutex<Entry>,
    /// `true` once the account has been entered. It is only a short cut.
    entered: AtomicBool,
}

/// The error of a message for which a mailbox has no room.
#[derive(Debug)]
pub(crate) struct Full;

#[derive(Debug)]
enum Entry {
    Missing,
    There(Pid),
    Ended,
}

impl Account {
    pub(crate) fn new(messages_max: usize, bytes_max: usize, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            messages_max: AtomicUsize::new(messages_max),
            bytes_max: AtomicUsize::new(bytes_max),
            owner,
            messages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            inbox: AtomicUsize::new(0),
            memory: AtomicUsize::new(0),
            #[cfg(feature = "cluster")]
            name_monitors: AtomicUsize::new(0),
            traps: AtomicBool::new(false),
            entry: Mutex::new(Entry::Missing),
            entered: AtomicBool::new(false),
        })
    }

    /// Sets the numbers of messages and of bytes that may wait.
    pub(crate) fn set_most(&self, messages: usize, bytes: usize) {
        // Relaxed: these are limits of counts.
        self.messages_max.store(messages, Relaxed);
        self.bytes_max.store(bytes, Relaxed);
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max.load(Relaxed)
    }

    /// Enters the account of a process, unless that was done before or the process has ended.
    pub(crate) fn enter(self: &Arc<Self>, pid: Pid) {
        let mut entry = self.entry.lock();
        if matches!(*entry, Entry::Missing) {
            *entry = Entry::There(pid);
            shard(pid).lock().insert(pid, Arc::clone(self));
            self.entered.store(true, Relaxed);
        }
    }

    pub(crate) fn is_entered(&self) -> bool {
        self.entered.load(Relaxed)
    }

    pub(crate) fn remove(&self) {
        let mut entry = self.entry.lock();
        let Entry::There(pid) = std::mem::replace(&mut *entry, Entry::Ended) else { return };
        owner::enter(pid, self.owner.clone());
        let removed = shard(pid).lock().remove(&pid);
        drop(entry);
        drop(removed);
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn of(pid: Pid) -> Option<Arc<Self>> {
        shard(pid).lock().get(&pid).cloned()
    }

    /// Charges for a message with a value of `bytes`. Returns `None` if the account is full.
    ///
    /// Answers have as much room again as other messages, because the process waits for them.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize, is_answer: bool) -> Option<Charge> {
        let share = if is_answer { 2 } else { 1 };
        // If two senders charge at the same time, both may be refused for the last room.
        let charge = self.charge_over(bytes);
        // Relaxed, here and below: these are counts, which publish nothing.
        let messages_max = self.messages_max.load(Relaxed);
        let fits = self.messages.load(Relaxed) <= messages_max.saturating_mul(share)
            && self.bytes.load(Relaxed) <= self.bytes_max().saturating_mul(share)
            && self.owner.limits.fits(Resource::Mailbox, share);
        fits.then_some(charge)
    }

    /// Charges for a message with a value of `bytes`, even if the account is full.
    pub(crate) fn charge_over(self: &Arc<Self>, bytes: usize) -> Charge {
        let bytes = bytes.saturating_add(MESSAGE_BYTES);
        self.messages.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.owner.limits.add(Resource::Mailbox, bytes);
        Charge { account: Arc::clone(self), bytes }
    }

    /// Charges for the report of the end of a process, which arrives even if the account is full.
    pub(crate) fn charge_end(self: &Arc<Self>, exit: &Exit) -> Charge {
        self.charge_over(end_bytes(exit))
    }

    /// Returns `true` if there is room for a message. What leads to the end of a process, such as a
    /// monitor, is refused otherwise.
    pub(crate) fn has_room(self: &Arc<Self>) -> bool {
        self.charge(0, false).is_some()
    }

    /// Counts a monitor of a name on another node.
    ///
    /// # Errors
    /// If the process has reached the limit, returns the refusal.
    #[cfg(feature = "cluster")]
    pub(crate) fn begin_name_monitor(&self) -> Result<(), String> {
        let more = |count: usize| (count < MONITORS_MAX).then_some(count + 1);
        match self.name_monitors.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("a process may have {MONITORS_MAX} monitors at a time")),
        }
    }

    /// Ends a monitor of a name on another node, which has reported.
    #[cfg(feature = "cluster")]
    pub(crate) fn end_name_monitor(&self) {
        let less = |count: usize| count.checked_sub(1);
        // Ignored: the host may have made the monitor.
        let _ = self.name_monitors.fetch_update(Relaxed, Relaxed, less);
    }

    /// Checks that a process of the host, which has no account, has room for a message with a value
    /// of `bytes`. As in [`charge`](Self::charge), answers have as much room again.
    ///
    /// It looks at the mailbox for each message. What is remembered from one message to the next
    /// would be wrong for another receiver, another size, or another sender.
    pub(crate) fn check_host(to: Pid, bytes: usize, is_answer: bool) -> Result<(), Full> {
        let share = if is_answer { 2 } else { 1 };
        // An ended process refuses the message itself.
        let waiting = observe::mailbox_length(to).map_or(0, |waiting| waiting as usize);
        let fits =
            waiting < share * MESSAGES && waiting.saturating_mul(bytes) <= share * TO_HOST_BYTES;
        if fits { Ok(()) } else { Err(Full) }
    }

    /// Notes whether the process traps exits.
    pub(crate) fn set_traps(&self, traps: bool) {
        // Relaxed: the process handles a message of either kind, whatever it does now.
        self.traps.store(traps, Relaxed);
    }

    pub(crate) fn traps(&self) -> bool {
        self.traps.load(Relaxed)
    }

    /// Returns `true` if the exit of a linked process would be a message without room.
    pub(crate) fn refuses_links(self: &Arc<Self>) -> bool {
        self.traps() && !self.has_room()
    }

    /// Returns a charge for memory that the host holds for the process, which is nothing yet.
    pub(crate) fn hold(self: &Arc<Self>) -> Held {
        Held { account: Arc::clone(self), bytes: 0 }
    }

    /// Charges for memory that the host holds for the process.
    ///
    /// # Errors
    /// If a limit would be exceeded, returns the refusal.
    pub(crate) fn try_hold(self: &Arc<Self>, bytes: usize) -> Result<Held, String> {
        let mut held = self.hold();
        held.set(bytes.saturating_add(MESSAGE_BYTES));
        if held.fits() {
            return Ok(held);
        }
        drop(held);
        self.owner.limits.charge(Resource::Memory, bytes)?;
        self.owner.limits.release(Resource::Memory, bytes);
        Err(format!("the host may hold {} bytes for the process", self.bytes_max()))
    }

    /// Notes the messages that the process holds, and the bytes of its Lua state.
    pub(crate) fn note(&self, figures: Figures) {
        // Relaxed, here and below: these are figures for people.
        self.inbox.store(figures.inbox, Relaxed);
        self.memory.store(figures.memory, Relaxed);
    }

    pub(crate) fn figures(&self) -> Figures {
        Figures { inbox: self.inbox.load(Relaxed), memory: self.memory.load(Relaxed) }
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Relaxed)
    }

    #[cfg(test)]
    fn waiting(&self) -> (usize, usize) {
        (self.messages.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// Returns the bytes that the end of a process takes.
pub(crate) fn end_bytes(exit: &Exit) -> usize {
    match exit {
        Exit::Failed(reason)
        | Exit::Panicked(reason)
        | Exit::Disconnected(reason)
        | Exit::GaveUp(reason)
        | Exit::NameLost(reason) => reason.len(),
        _ => 0,
    }
}

/// The figures of a guest after a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// The messages that it holds and that its program has not received.
    pub(crate) inbox: usize,
    /// The bytes of its Lua state.
    pub(crate) memory: usize,
}

/// The room of a message in an account, which is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Clone for Charge {
    /// Charges for a copy of the message, even if the account is full.
    fn clone(&self) -> Self {
        self.account.charge_over(self.bytes - MESSAGE_BYTES)
    }
}

/// All charges are equal: they are no part of a message's content.
impl PartialEq for Charge {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.messages.fetch_sub(1, Relaxed);
        self.account.bytes.fetch_sub(self.bytes, Relaxed);
        self.account.owner.limits.release(Resource::Mailbox, self.bytes);
    }
}

/// A charge for memory that the host holds for a process, such as a message of HTTP that is being
/// read. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    account: Arc<Account>,
    bytes: usize,
}

impl Held {
    /// Changes the number of bytes. It may exceed the limits.
    pub(crate) fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.account.held.fetch_add(bytes, Relaxed);
        self.account.held.fetch_sub(before, Relaxed);
        self.account.owner.limits.add(Resource::Memory, bytes);
        self.account.owner.limits.release(Resource::Memory, before);
    }

    /// Moves the charge to another account, if that has room.
    #[cfg(feature = "tls")]
    pub(crate) fn move_to(&mut self, account: &Arc<Account>) {
        let (bytes, mut other) = (self.bytes, account.hold());
        // First, because limits of both accounts would count the bytes twice.
        self.set(0);
        other.set(bytes);
        if other.fits() {
            *self = other;
        } else {
            self.set(bytes);
        }
    }

    /// Returns `true` if no limit is exceeded. The host holds at most as many bytes as messages may
    /// have.
    pub(crate) fn fits(&self) -> bool {
        self.account.held.load(Relaxed) <= self.account.bytes_max()
            && self.account.owner.limits.fits(Resource::Memory, 1)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, MESSAGE_BYTES};
    use crate::owner::Owner;

    #[test]
    fn all_that_the_host_holds_for_a_process_counts_together() {
        let account = Account::new(2, 1000, Owner::alone());
        let (mut one, mut other) = (account.hold(), account.hold());
        one.set(600);
        other.set(400);
        assert!(one.fits() && other.fits());
        other.set(401);
        assert!(!one.fits() && !other.fits());
        drop(other);
        assert!(one.fits());
        drop(one);
        assert_eq!(account.held_bytes(), 0);
    }

    #[test]
    fn an_account_is_full_by_messages_or_bytes_and_empty_after_all_charges() {
        let account = Account::new(2, 1000, Owner::alone());
        let one = account.charge(100, false).expect("there is room");
        assert!(account.charge(1000, false).is_none(), "too many bytes");
        assert_eq!(account.waiting(), (1, 100 + MESSAGE_BYTES), "a refusal takes no room");
        let two = account.charge(0, false).expect("there is room");
        assert!(account.charge(0, false).is_none(), "too many messages");
        let answer = account.charge(1000, true).expect("answers have room of their own");
        let result = account.charge_over(2000);
        assert_eq!(account.waiting(), (4, 3100 + 4 * MESSAGE_BYTES));
        drop((one, two, answer, result));
        assert_eq!(account.waiting(), (0, 0));
    }
}
