//! Finding the nodes to connect to: lists, names of the domain name system, or anything else that
//! the program asks.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use procession::SpawnOptions;
use procession::net::Host;
use procession::process::{OnCancel, catch_panic};
use procession::time::Instant;
use procession_sync::Mutex;

use crate::chance;
use crate::guarded::Guarded;
use crate::handshake::split;
use crate::joining::connect::ConnectError;
use crate::joining::handshakes::cause_of;
use crate::node::Node;
use crate::node::refusals::{self, Report};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The wait after the first failed attempt. It doubles with each one after that.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The time limit of a look.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// A node that was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// The name of the node.
    pub name: String,
    /// The addresses at which it may listen. They are tried one after the other. If there are none,
    /// its EPMD is asked.
    pub addresses: Vec<SocketAddr>,
}

type Look =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Vec<Found>>> + Send>> + Send + Sync>;

/// The nodes that a node connects to by itself. See [`NodeBuilder::find`].
///
/// [`NodeBuilder::find`]: crate::NodeBuilder::find
#[derive(Clone)]
pub struct Find {
    look: Look,
    every: Duration,
}

impl Find {
    /// Finds the nodes of a list. The EPMD of each host returns the port.
    pub fn nodes(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let named = |name: String| Found { name, addresses: Vec::new() };
        let nodes: Vec<_> = names.into_iter().map(|name| named(name.into())).collect();
        Self::by(move || std::future::ready(Ok(nodes.clone())))
    }

    /// Finds the nodes of a list, all of which listen at one port, without an EPMD. Each host is
    /// resolved at each look, as the names of a stateful set in Kubernetes must be:
    /// `shop@shop-0.shop.default.svc.cluster.local`.
    pub fn nodes_at(names: impl IntoIterator<Item = impl Into<String>>, port: u16) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Self::by(move || {
            let names = names.clone();
            async move {
                let mut found = Vec::new();
                for name in names {
                    let Some((_, host)) = split(&name) else { continue };
                    // A host without an address has no node now.
                    if let Ok(addresses) = Host::from((host, port)).addresses().await {
                        found.push(Found { name, addresses });
                    }
                }
                Ok(found)
            }
        })
    }

    /// Finds one node for each address of a host name, as a headless service in Kubernetes has
    /// them. The nodes listen at one port, and are named by their addresses: `word@10.0.0.7`.
    pub fn dns(word: &str, host: &str, port: u16) -> Self {
        let (word, host) = (word.to_owned(), host.to_owned());
        Self::by(move || {
            let (word, host) = (word.clone(), host.clone());
            async move {
                let addresses = Host::from((host.as_str(), port)).addresses().await?;
                let named = |address: SocketAddr| Found {
                    name: format!("{word}@{}", address.ip().to_canonical()),
                    addresses: vec![address],
                };
                Ok(addresses.into_iter().map(named).collect())
            }
        })
    }

    /// Finds the nodes that a function returns. It is called at each look. After an error or a
    /// panic, or if it takes longer than ten seconds, the nodes of the look before are kept.
    pub fn by<F, R>(look: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = io::Result<Vec<Found>>> + Send + 'static,
    {
        Self { look: Arc::new(move || Box::pin(look())), every: LOOK_EVERY }
    }

    /// Sets the time between two looks. The default is 5 seconds, and the least 100 milliseconds.
    #[must_use]
    pub fn every(mut self, period: Duration) -> Self {
        self.every = period.max(WAIT_MIN);
        self
    }
}

impl fmt::Debug for Find {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Find").field("every", &self.every).finish_non_exhaustive()
    }
}

/// The attempts to connect to one node.
#[derive(Clone, Copy, Debug)]
enum Tries {
    /// An attempt is under way.
    Trying,
    /// The next attempt may begin at this time. The duration is the wait that failures have led to.
    From(Instant, Duration),
}

impl Tries {
    /// Returns the attempts after a failed attempt. The wait is from a half to the whole of the
    /// doubled wait, so that several nodes that have lost the same node do not all return at the
    /// same time.
    fn failed(before: Duration, chance: u32, now: Instant) -> Self {
        let (pause, wait) = pause_after(before, chance);
        Self::From(now + pause, wait)
    }
}

fn pause_after(before: Duration, chance: u32) -> (Duration, Duration) {
    let wait = (2 * before).clamp(WAIT_MIN, WAIT_MAX);
    let part = f64::from(chance) / f64::from(u32::MAX);
    (wait.mul_f64(0.5 + part / 2.0), wait)
}

/// Returns the pause after an attempt that has failed, and the wait of which that is a random part.
/// `before` is the wait of the attempt before, or zero.
pub(super) fn wait_after(before: Duration) -> (Duration, Duration) {
    // Ignored: without chance, the pause is the whole wait.
    pause_after(before, chance::number().unwrap_or(u32::MAX))
}

/// Looks for nodes, and connects to them, as long as the node has not stopped.
pub(super) async fn find(node: Node, find: Find) {
    let tries = Arc::new(Mutex::new(HashMap::<String, Tries>::new()));
    let mut found = Vec::new();
    let mut look_at = Instant::now();
    loop {
        let now = Instant::now();
        if now >= look_at {
            // Otherwise, what was found before may still be there.
            if let Ok(Some(nodes)) = procession::timeout(LOOK_LIMIT, look(&find.look)).await {
                found = nodes;
            }
            look_at = Instant::now() + find.every;
        }
        // Before the look at the connections, so that no change after it is missed.
        let mut changed = std::pin::pin!(node.0.changed.notified());
        changed.as_mut().enable();
        let next = attempts(&node, &found, &tries).unwrap_or(look_at).min(look_at);
        if node.is_stopped() {
            return;
        }
        // Whichever is first: the next time, or a change of the connections.
        let left = next.saturating_duration_since(Instant::now());
        let _ = procession::timeout(left, changed).await;
    }
}

/// Looks once. Returns `None` after an error or a panic of the code of the user.
async fn look(look: &Look) -> Option<Vec<Found>> {
    let mut found = Guarded::new(catch_panic(|| look())?);
    let found = poll_fn(|task| {
        let polled = catch_panic(|| found.as_mut().poll(task));
        polled.map_or(Poll::Ready(None), |polled| polled.map(Result::ok))
    });
    found.await
}

/// Begins the attempts that are due. Returns the time of the next one.
fn attempts(
    node: &Node,
    found: &[Found],
    tries: &Arc<Mutex<HashMap<String, Tries>>>,
) -> Option<Instant> {
    let now = Instant::now();
    let mut next = None;
    tries.lock().retain(|name, state| {
        matches!(state, Tries::Trying) || found.iter().any(|found| found.name == *name)
    });
    for one in found {
        if one.name == node.name().as_str() || node.link_to(&one.name).is_some() {
            continue;
        }
        let known = tries.lock().get(&one.name).copied();
        let wait = match known {
            Some(Tries::Trying) => continue,
            Some(Tries::From(at, _)) if at > now => {
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
                continue;
            }
            Some(Tries::From(_, wait)) => wait,
            None => Duration::ZERO,
        };
        tries.lock().insert(one.name.clone(), Tries::Trying);
        let (node, one, tries) = (node.clone(), one.clone(), Arc::clone(tries));
        let attempt = Attempt { node, one, wait, tries, is_connected: false };
        let tells = async move { refusals::tell(attempt.run().await) };
        drop(SpawnOptions::new().on_cancel(OnCancel::Drop).spawn(tells));
    }
    next
}

/// An attempt to connect to a node. Its drop notes how it has ended, because its process may be
/// refused, or terminated.
struct Attempt {
    node: Node,
    one: Found,
    /// The wait before it.
    wait: Duration,
    tries: Arc<Mutex<HashMap<String, Tries>>>,
    is_connected: bool,
}

impl Attempt {
    /// Connects to the node. Returns a report of a failure that time does not mend.
    async fn run(mut self) -> Result<(), Report> {
        let Self { node, one, wait, .. } = &self;
        let mut report = None;
        let mut failed = |error| report = report_of(node, &one.name, &error, *wait);
        let is_connected = match &one.addresses[..] {
            [] => node.connect(&one.name).await.map_err(&mut failed).is_ok(),
            addresses => {
                let mut is_connected = false;
                for address in addresses {
                    let connected = node.connect_at(&one.name, *address).await;
                    is_connected = connected.map_err(&mut failed).is_ok();
                    if is_connected {
                        break;
                    }
                }
                is_connected
            }
        };
        self.is_connected = is_connected;
        report.filter(|_| !is_connected).map_or(Ok(()), Err)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Ignored: without chance, the wait is the whole one.
        let chance = chance::number().unwrap_or(u32::MAX);
        let now = Instant::now();
        let next = match self.is_connected {
            // If the connection is lost again immediately, the next attempt waits.
            true => Tries::From(now + WAIT_MIN, Duration::ZERO),
            false => Tries::failed(self.wait, chance, now),
        };
        self.tries.lock().insert(std::mem::take(&mut self.one.name), next);
        self.node.0.changed.notify_waiters();
    }
}

/// Counts a connection that this node could not make in the background. Returns the report, if it
/// is time for one. A node that is not there yet, or that is slow, is no news. `wait` is zero if no
/// attempt has failed before. The first connection that ends is no news either, because two nodes
/// that find each other may connect at the same time, and then one of these connections ends.
fn report_of(node: &Node, name: &str, error: &ConnectError, wait: Duration) -> Option<Report> {
    let cause = match error {
        ConnectError::Find(_) | ConnectError::Reach(_) | ConnectError::TimedOut => None,
        ConnectError::Lost(_) if wait.is_zero() => None,
        _ => cause_of(error),
    };
    node.0.dial_failures.report(cause?, || format!("cannot connect to {name}"), error)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Duration;

    use procession::time::Instant;
    use procession::{Scheduler, SpawnOptions};
    use procession_sync::Mutex;

    use super::{Found, Tries, WAIT_MAX, WAIT_MIN, attempts, report_of};
    use crate::cookie::Cookie;
    use crate::joining::connect::ConnectError;
    use crate::node::Node;

    /// Goal: if the scheduler refuses the process of an attempt, the attempt has failed.
    #[test]
    fn an_attempt_without_a_process_is_made_again() {
        let scheduler = Scheduler::builder().worker_threads(1).max_processes(8).build();
        let scheduler = scheduler.expect("it can be built");
        scheduler.block_on(async {
            let cookie = Cookie::new("secret").expect("it has a text");
            let node = Node::builder("near@127.0.0.1").cookie(cookie).start().await;
            let node = node.expect("it starts");
            let mut others = Vec::new();
            while let Ok(other) = SpawnOptions::new().try_spawn(pending::<()>()) {
                others.push(other);
            }
            let found = Found { name: "far@127.0.0.1".into(), addresses: Vec::new() };
            let tries = Arc::new(Mutex::new(HashMap::new()));
            assert_eq!(attempts(&node, std::slice::from_ref(&found), &tries), None);
            let Tries::From(next, _) = tries.lock()[&found.name] else { panic!("it never ends") };
            assert_eq!(attempts(&node, &[found], &tries), Some(next));
        });
    }

    /// Goal: two nodes that find each other at the same time report nothing, and a node that never
    /// lets this one in is reported.
    #[test]
    fn a_connection_that_ends_once_is_no_news() {
        let scheduler = Scheduler::builder().worker_threads(1).build().expect("it can be built");
        scheduler.block_on(async {
            let cookie = Cookie::new("secret").expect("it has a text");
            let node = Node::builder("near@127.0.0.1").cookie(cookie).start().await;
            let node = node.expect("it starts");
            let lost = ConnectError::Lost(std::io::ErrorKind::ConnectionReset.into());
            let reported = [Duration::ZERO, WAIT_MIN]
                .map(|wait| report_of(&node, "far@127.0.0.1", &lost, wait).is_some());
            assert_eq!(reported, [false, true]);
        });
    }

    #[test]
    fn the_wait_doubles_up_to_its_limit_and_varies_by_half() {
        let now = Instant::now();
        let mut wait = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..9 {
            let Tries::From(least, _) = Tries::failed(wait, 0, now) else { unreachable!() };
            let Tries::From(most, next) = Tries::failed(wait, u32::MAX, now) else {
                unreachable!()
            };
            assert_eq!((least - now) * 2, most - now);
            assert_eq!(most - now, next);
            wait = next;
            waits.push(next);
        }
        assert_eq!((waits[0], waits[1], waits[8]), (WAIT_MIN, 2 * WAIT_MIN, WAIT_MAX));
    }
}
