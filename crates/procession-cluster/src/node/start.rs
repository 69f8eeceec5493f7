//! Starting processes on other nodes.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use procession::mailbox::request::context;
use procession::process::MonitorRef;
use procession::sync::oneshot;

use crate::error::SendTermCause;
use crate::handshake::flags;
use crate::link::{Asker, Link, Relations, StartRefusal};
use crate::node::{Node, START_KIND};
use crate::term::{Atom, NodePid, Reference, Term};
use crate::wire::control::{Control, SpawnRequest};

/// The requests to one node that may wait for an answer. A request with a link or a monitor that
/// has timed out waits until the connection ends, because the process may still be started.
pub(crate) const STARTS_MAX: usize = 1 << 16;

/// The error of starting a process on another node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartTermError {
    /// The request was not sent.
    Send(SendTermCause),
    /// The other node has refused it. A node of this crate says `undef` if the function is not
    /// [exported](Node::export), `not_allowed` without a [grant](crate::Grants::spawn), whether it
    /// is exported or not, `badarg` if there are more or fewer arguments, `system_limit` if it has
    /// no room, and `leaving` while it [leaves](Node::drain). A node of the BEAM says `notsup` or
    /// `system_limit`, and starts a process that fails for a function that does not exist.
    Refused(Atom),
    /// The name of a module or a function has more than 255 characters.
    Name(String),
    /// No process is running that could be linked, or monitor.
    NoProcess,
    /// The connection ended before the answer. The process may have been started.
    NoConnection,
    /// The time limit passed before the answer. The process may have been started, or will be.
    TimedOut,
}

impl fmt::Display for StartTermError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(cause) => write!(f, "the request was not sent: {cause}"),
            Self::Refused(reason) => write!(f, "the node started no process: {reason}"),
            Self::Name(name) => write!(f, "the name {name:?} has more than 255 characters"),
            Self::NoProcess => f.write_str("no process is running that could be linked or monitor"),
            Self::NoConnection => f.write_str("the connection ended before the answer"),
            Self::TimedOut => f.write_str("no answer within the time limit"),
        }
    }
}

impl Error for StartTermError {}

impl Node {
    /// Starts a process on another node, by a function that it exports: on a node of this crate by
    /// [`export`](Self::export) and with its [grant](crate::Grants::spawn), on a node of the BEAM
    /// any function of a module. Returns its PID once it runs.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use std::time::Duration;
    ///
    /// use procession::Context;
    /// use procession_cluster::{Cookie, Grants, Letter, Node, Term};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// procession::run(async {
    ///     let cookie = Cookie::random()?;
    ///     let shop = Node::builder("shop@127.0.0.1")
    ///         .cookie(cookie.clone())
    ///         .listen((Ipv4Addr::LOCALHOST, 0).into())
    ///         .grant("till@127.0.0.1", Grants::new().spawn("shop", "worker"))
    ///         .start()
    ///         .await?;
    ///     shop.export("shop", "worker", 1, |mut cx: Context<Letter>, _arguments| async move {
    ///         cx.recv().await;
    ///     });
    ///
    ///     let till = Node::builder("till@127.0.0.1").cookie(cookie).start().await?;
    ///     till.connect_at("shop@127.0.0.1", shop.local_addr().expect("it listens")).await?;
    ///     let limit = Duration::from_secs(5);
    ///     let worker =
    ///         till.spawn("shop@127.0.0.1", "shop", "worker", vec![Term::from(7)], limit).await?;
    ///     till.send(worker, Term::atom("end"))?;
    ///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StartTermError`] says why there is no process, or why that is not known.
    ///
    /// # Cancellation
    /// If the future is dropped, the process may have been started, or will be.
    pub async fn spawn(
        &self,
        node: &str,
        module: &str,
        function: &str,
        arguments: Vec<Term>,
        timeout: Duration,
    ) -> Result<NodePid, StartTermError> {
        let call = (module, function, arguments);
        self.start_at(node, call, Relations::default(), timeout).await.map(|(process, _)| process)
    }

    /// Starts a process like [`spawn`](Self::spawn), and links it with the running process. The two
    /// are linked from its start on: if it ends immediately, the exit signal has its reason.
    ///
    /// # Errors
    /// See [`spawn`](Self::spawn). In addition, if no process is running.
    ///
    /// # Cancellation
    /// If the future is dropped, the process may have been started, or will be, with the link.
    pub async fn spawn_link(
        &self,
        node: &str,
        module: &str,
        function: &str,
        arguments: Vec<Term>,
        timeout: Duration,
    ) -> Result<NodePid, StartTermError> {
        let call = (module, function, arguments);
        let relations = Relations { links: true, monitors: false };
        self.start_at(node, call, relations, timeout).await.map(|(process, _)| process)
    }

    /// Starts a process like [`spawn`](Self::spawn), and makes the running process monitor it from
    /// its start on: if it ends immediately, the [`Event::Down`](procession::mailbox::Event::Down)
    /// has its reason.
    ///
    /// # Errors
    /// See [`spawn`](Self::spawn). In addition, if no process is running.
    ///
    /// # Cancellation
    /// If the future is dropped, the process may have been started, or will be, with the monitor.
    pub async fn spawn_monitor(
        &self,
        node: &str,
        module: &str,
        function: &str,
        arguments: Vec<Term>,
        timeout: Duration,
    ) -> Result<(NodePid, MonitorRef), StartTermError> {
        let call = (module, function, arguments);
        let relations = Relations { links: false, monitors: true };
        match self.start_at(node, call, relations, timeout).await? {
            (process, Some(monitor)) => Ok((process, monitor)),
            // The running process is ending.
            (_, None) => Err(StartTermError::NoProcess),
        }
    }

    async fn start_at(
        &self,
        node: &str,
        (module, function, arguments): (&str, &str, Vec<Term>),
        asked: Relations,
        timeout: Duration,
    ) -> Result<(NodePid, Option<MonitorRef>), StartTermError> {
        let Relations { links, monitors } = asked;
        let atom = |text: &str| Atom::new(text).ok_or_else(|| StartTermError::Name(text.into()));
        let (module, function) = (atom(module)?, atom(function)?);
        let owner = match procession::process::current_pid() {
            None if links || monitors => return Err(StartTermError::NoProcess),
            owner => owner.map(|pid| (self.number_for(pid, None), pid)),
        };
        let no_connection = || StartTermError::Send(SendTermCause::NoConnection);
        let link = self.link_to(node).ok_or_else(no_connection)?;
        let id = self.reference(START_KIND);
        let own = owner.map_or(0, |(number, _)| number);
        let (caller, receiver) = oneshot::channel();
        let asker = Asker::Start { owner, asked, caller };
        // Not forgotten if this future is dropped and there are relations, because these stay.
        let _forgets = (!links && !monitors).then_some(Forgets { link: &link, id: &id });
        self.ask_to_start(&link, &id, own, (module, function, arguments), asked, asker)
            .map_err(StartTermError::Send)?;
        match procession::timeout(timeout, receiver).await {
            Ok(Ok(Ok(started))) => Ok(started),
            Ok(Ok(Err(StartRefusal::Refused(reason)))) => Err(StartTermError::Refused(reason)),
            Ok(Ok(Err(StartRefusal::NoConnection)) | Err(_)) => Err(StartTermError::NoConnection),
            Err(_) => Err(StartTermError::TimedOut),
        }
    }

    /// Sends a request to start a process on behalf of the process `own`. `asker` receives the
    /// answer.
    pub(super) fn ask_to_start(
        &self,
        link: &Link,
        id: &Reference,
        own: u64,
        (module, function, arguments): (Atom, Atom, Vec<Term>),
        asked: Relations,
        asker: Asker,
    ) -> Result<(), SendTermCause> {
        if link.outbound.flags() & flags::SPAWN == 0 {
            asker.refuse(StartRefusal::Refused(Atom::known("notsup")));
            return Ok(());
        }
        let request = SpawnRequest {
            id: id.clone(),
            from: self.pid_of(own),
            group_leader: Term::Pid(self.pid_of(0)),
            module,
            function,
            arity: arguments.len() as i64,
            links: asked.links,
            monitors: asked.monitors,
            request: context().filter(|_| link.outbound.flags() & flags::TRACE_LABELS != 0),
        };
        // Before the other node can answer it.
        let entered = link.tables(|tables| {
            if tables.starts.len() >= STARTS_MAX {
                return Err(asker);
            }
            tables.starts.insert(id.clone(), asker);
            Ok(())
        });
        // Outside of the lock, an asker without room is dropped.
        entered.ok_or(SendTermCause::NoConnection)?.map_err(|_| SendTermCause::Full)?;
        let (control, arguments) = (Control::Spawn(Box::new(request)), Term::List(arguments));
        link.outbound.request(own, &control, &arguments).map_err(|why| {
            link.tables(|tables| tables.starts.remove(id));
            why.into()
        })
    }
}

/// A request without relations. Its drop forgets it: its answer has no effect then.
struct Forgets<'a> {
    link: &'a Link,
    id: &'a Reference,
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        let forgotten = self.link.tables(|tables| tables.starts.remove(self.id));
        drop(forgotten);
    }
}
