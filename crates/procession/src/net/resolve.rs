//! Names of hosts, which the system resolves by blocking a thread.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;
use std::task::{Poll, Waker};

use procession_sync::Mutex;

use crate::body::guarded;
use crate::shared::Shared;
use crate::{Waiting, here, scheduler};

/// Threads that resolve names at once: glibc holds a lock of its own for much of it, and a server of names answers few at a time.
const THREADS_MAX: u32 = 8;

/// Where a socket is to be bound or connected to: one address, several, or the name of a host, which is looked up when it is needed.
///
/// ```
/// use procession::net::Host;
///
/// let hosts: [Host; 4] =
///     ["127.0.0.1:80".into(), ("::1", 80).into(), ("example.org", 80).into(), std::net::SocketAddr::from(([127, 0, 0, 1], 80)).into()];
/// assert_eq!(hosts.map(|host| host.is_name()), [false, false, true, false]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Addresses(Vec<SocketAddr>),
    /// `name:port`, as std takes it.
    Name(String),
}

impl Host {
    /// Whether it must be looked up.
    pub fn is_name(&self) -> bool {
        matches!(self.0, Kind::Name(_))
    }

    /// Its addresses: at once, or from the system, which is asked in a thread of its own, since it blocks.
    ///
    /// # Errors
    /// The system's; the name has no port; there is no address; the system refuses the thread.
    ///
    /// # Cancellation
    /// Dropped before it is complete, the thread goes on, and its answer is dropped.
    pub async fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        let addresses = match self.0 {
            Kind::Addresses(addresses) => addresses,
            Kind::Name(name) => look_up(name).await?,
        };
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the host has no address"));
        }
        Ok(addresses)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Name(name) => f.write_str(name),
            Kind::Addresses(addresses) => {
                for (number, address) in addresses.iter().enumerate() {
                    if number > 0 {
                        f.write_str(", ")?;
                    }
                    address.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

impl From<&str> for Host {
    fn from(text: &str) -> Self {
        match text.parse::<SocketAddr>() {
            Ok(address) => address.into(),
            Err(_) => Self(Kind::Name(text.to_owned())),
        }
    }
}

impl From<String> for Host {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Host {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<(&str, u16)> for Host {
    fn from((name, port): (&str, u16)) -> Self {
        match name.parse::<IpAddr>() {
            Ok(address) => (address, port).into(),
            Err(_) => Self(Kind::Name(format!("{name}:{port}"))),
        }
    }
}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Self {
        Self(Kind::Addresses(vec![address]))
    }
}

impl From<SocketAddrV4> for Host {
    fn from(address: SocketAddrV4) -> Self {
        SocketAddr::V4(address).into()
    }
}

impl From<SocketAddrV6> for Host {
    fn from(address: SocketAddrV6) -> Self {
        SocketAddr::V6(address).into()
    }
}

impl From<(IpAddr, u16)> for Host {
    fn from(address: (IpAddr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<(Ipv4Addr, u16)> for Host {
    fn from(address: (Ipv4Addr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<(Ipv6Addr, u16)> for Host {
    fn from(address: (Ipv6Addr, u16)) -> Self {
        SocketAddr::from(address).into()
    }
}

impl From<&[SocketAddr]> for Host {
    fn from(addresses: &[SocketAddr]) -> Self {
        Self(Kind::Addresses(addresses.to_vec()))
    }
}

/// What somebody wants to know.
struct Question {
    name: String,
    answer: Arc<Answer>,
    /// For whom; its test clock stands still meanwhile.
    shared: Arc<Shared>,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.shared.end_outstanding();
    }
}

#[derive(Default)]
struct Answer(Mutex<Answered>);

#[derive(Default)]
struct Answered {
    addresses: Option<io::Result<Vec<SocketAddr>>>,
    waker: Option<Waker>,
}

impl Answer {
    fn change<R>(&self, change: impl FnOnce(&mut Answered) -> R) -> R {
        change(&mut self.0.lock().expect("nothing that can panic runs under this lock"))
    }

    fn give(&self, addresses: io::Result<Vec<SocketAddr>>) {
        let waker = self.change(|answered| {
            answered.addresses = Some(addresses);
            answered.waker.take()
        });
        if let Some(waker) = waker {
            drop(guarded(|| waker.wake()));
        }
    }
}

/// Questions that no thread has taken yet, and the threads. Not bounded: each question is that of a process or thread that waits for it.
struct Desk {
    questions: VecDeque<Question>,
    threads: u32,
}

static DESK: Mutex<Desk> = Mutex::new(Desk { questions: VecDeque::new(), threads: 0 });

fn at_desk<R>(change: impl FnOnce(&mut Desk) -> R) -> R {
    change(&mut DESK.lock().expect("nothing that can panic runs under this lock"))
}

async fn look_up(name: String) -> io::Result<Vec<SocketAddr>> {
    let answer = Arc::new(Answer::default());
    ask(name, &answer)?;
    poll_fn(|task| {
        if !here::charge(task) {
            return Poll::Pending;
        }
        let waker = task.waker().clone();
        let (addresses, before) = answer.change(|answered| (answered.addresses.take(), answered.waker.replace(waker)));
        drop(before);
        addresses.map_or_else(
            || {
                here::note_waiting(Waiting::COMPLETION);
                Poll::Pending
            },
            Poll::Ready,
        )
    })
    .await
}

/// Hands a question in, and starts a thread for it if there are few.
fn ask(name: String, answer: &Arc<Answer>) -> io::Result<()> {
    let shared = Arc::clone(&scheduler::here());
    shared.begin_outstanding();
    let question = Question { name, answer: Arc::clone(answer), shared: Arc::clone(&shared) };
    let needs_thread = at_desk(|desk| {
        desk.questions.push_back(question);
        let few = desk.threads < THREADS_MAX;
        desk.threads += u32::from(few);
        few
    });
    if !needs_thread {
        return Ok(());
    }
    let started = shared.world.start_thread(String::from("procession-names"), resolve_all);
    let Err(error) = started else { return Ok(()) };
    // Others may answer it; if there are none, it is taken back.
    let refused = at_desk(|desk| {
        desk.threads -= 1;
        let place = desk.questions.iter().position(|question| Arc::ptr_eq(&question.answer, answer));
        place.filter(|_| desk.threads == 0).and_then(|place| desk.questions.remove(place))
    });
    if refused.is_some() { Err(error) } else { Ok(()) }
}

/// Answers until there are no more questions.
fn resolve_all() {
    loop {
        let question = at_desk(|desk| {
            let question = desk.questions.pop_front();
            desk.threads -= u32::from(question.is_none());
            question
        });
        let Some(question) = question else { return };
        question.answer.give(question.name.to_socket_addrs().map(Iterator::collect));
    }
}
