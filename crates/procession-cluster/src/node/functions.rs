//! Functions that other nodes call, and calls of functions of other nodes.
//!
//! Such a call works like OTP's `erpc`: it starts a process by `erpc:execute_call/4`, and its first
//! argument is a tag that the caller makes. The process ends with `{Tag, return, Value}`, or with
//! the class and the reason of a failure instead, which the caller's monitor reports.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession::process::Outcome;
use procession::sync::oneshot;
use procession::{Context, Exit, SpawnOptions};

use crate::error::SendTermCause;
use crate::guarded::Guarded;
use crate::letter::Letter;
use crate::link::{Asker, Link, Relations, StartRefusal};
use crate::node::exports::{Export, Returned, Spawned};
use crate::node::{Node, START_KIND};
use crate::reason;
use crate::term::{Atom, Reference, Term};
use crate::wire::control::SpawnRequest;

/// The module of the functions that call other functions.
const MODULE: &str = "erpc";
/// The function with a process that ends with the result.
const CALL: &str = "execute_call";
/// The function with a result that nobody learns.
const CAST: &str = "execute_cast";

/// A call of a function of this node. The end of its process has the result.
#[derive(Debug)]
pub(crate) struct Applied {
    /// The tag of the caller.
    tag: Reference,
    /// The module, the function and the number of arguments, for the trace of a failure.
    frame: Term,
    pub(crate) returned: Returned,
    #[expect(dead_code, reason = "held for its count")]
    open: Arc<()>,
}

impl Applied {
    /// Replaces the function of a request of `erpc` by the function that it calls. Returns the
    /// arguments, and the call if the other node waits for the result. The tag must be a reference
    /// that is `right`, because the tag is kept until the end of the call.
    pub(crate) fn read(
        request: &mut SpawnRequest,
        arguments: Term,
        right: impl Fn(&Reference) -> bool,
        open: Arc<()>,
    ) -> (Term, Option<Self>) {
        let Term::List(mut items) = arguments else { return (arguments, None) };
        let tag = match items.first() {
            Some(Term::Reference(tag)) if right(tag) => Some((**tag).clone()),
            _ => None,
        };
        let is_call = request.function.as_str() == CALL && items.len() == 4 && tag.is_some();
        let is_cast = request.function.as_str() == CAST && items.len() == 3;
        if request.module.as_str() != MODULE || !(is_call || is_cast) {
            return (Term::List(items), None);
        }
        let Some(Term::List(arguments)) = items.pop() else { return (Term::List(items), None) };
        let (Some(Term::Atom(function)), Some(Term::Atom(module))) = (items.pop(), items.pop())
        else {
            return (Term::List(arguments), None);
        };
        request.arity = arguments.len() as i64;
        let names = [module.clone().into(), function.clone().into(), request.arity.into()];
        (request.module, request.function) = (module, function);
        let frame = Term::tuple(names.into_iter().chain([Term::List(Vec::new())]));
        let applied = tag.map(|tag| Self { tag, frame, returned: Returned::default(), open });
        (Term::List(arguments), applied)
    }

    /// Returns the reason with which the process ends.
    pub(crate) fn reason(&self, exit: &Exit) -> Term {
        match self.returned.lock().take() {
            Some(Ok(value)) => Term::tuple([self.tag.clone().into(), Term::atom("return"), value]),
            Some(Err(reason)) => self.failure(reason),
            None => reason::to_term(exit),
        }
    }

    /// Returns the reason with which the process of a call ends that failed.
    pub(crate) fn failure(&self, reason: Term) -> Term {
        let trace = Term::List(vec![self.frame.clone()]);
        Term::tuple([self.tag.clone().into(), Term::atom("error"), reason, trace])
    }
}

/// The error of a call of a function of another node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ApplyError {
    /// The call was not sent.
    Send(SendTermCause),
    /// The other node has refused to start the process of the call.
    Refused(Atom),
    /// The function has failed, with this reason. That is `undef` if there is no such function, or
    /// a node of this crate does not [export](Node::export_function) it, and `not_allowed` without
    /// a [grant](crate::Grants::spawn), whether it is exported or not, and `leaving` while the node
    /// [leaves](Node::drain).
    Failed(Term),
    /// The function has thrown this term. Only functions of BEAM nodes do.
    Thrown(Term),
    /// The function has ended its process with this reason. Only functions of BEAM nodes do.
    Exited(Term),
    /// The process of the call has ended before the function returned, or its value cannot be sent.
    Ended(Exit),
    /// The name of the module or of the function has more than 255 characters.
    Name(String),
    /// The connection ended before the result. The function may have run.
    NoConnection,
    /// The time limit passed before the result. The function may run on.
    TimedOut,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(cause) => write!(f, "the call was not sent: {cause}"),
            Self::Refused(reason) => write!(f, "the node refused the call: {reason}"),
            Self::Failed(reason) => write!(f, "the function failed: {reason}"),
            Self::Thrown(term) => write!(f, "the function has thrown {term}"),
            Self::Exited(reason) => write!(f, "the function has ended its process: {reason}"),
            Self::Ended(exit) => write!(f, "the process of the call has ended: {exit}"),
            Self::Name(name) => write!(f, "the name {name:?} has more than 255 characters"),
            Self::NoConnection => f.write_str("the connection ended before the result"),
            Self::TimedOut => f.write_str("no result within the time limit"),
        }
    }
}

impl Error for ApplyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Ended(exit) => Some(exit),
            _ => None,
        }
    }
}

impl Node {
    /// Lets other nodes start processes with a function: by
    /// `spawn(Node, Module, Function, Arguments)`, in all its forms.
    ///
    /// `function` receives the context of the new process and the arguments, of which there are
    /// `arity`. What is not exported cannot be started, and only nodes that have the
    /// [grant](crate::Grants::spawn) can start what is. A function that returns a value to its
    /// caller is exported by [`export_function`](Self::export_function).
    ///
    /// # Panics
    /// If a name has more than 255 characters.
    pub fn export<F, P>(&self, module: &str, function: &str, arity: u8, start: F)
    where
        F: Fn(Context<Letter>, Vec<Term>) -> P + Send + Sync + 'static,
        P: Future + Send + 'static,
        P::Output: Outcome + Send + 'static,
    {
        let start = Arc::new(start);
        let start = move |arguments, _| {
            let start = Arc::clone(&start);
            let process = move |cx: Context<Letter>| start(cx, arguments);
            Spawned::start(SpawnOptions::new(), process)
        };
        self.export_as(
            module,
            function,
            arity,
            Export { start: Guarded::new(Arc::new(start)), returns: false },
        );
    }

    fn export_as(&self, module: &str, function: &str, arity: u8, export: Export) {
        let atom = |text| Atom::new(text).expect("a name has at most 255 characters");
        let key = (atom(module), atom(function), i64::from(arity));
        let replaced = self.0.exports.lock().insert(key, export);
        // Outside of the lock, because it has code of the user.
        drop(replaced);
    }

    pub(crate) fn exported(&self, request: &SpawnRequest) -> Option<Export> {
        let key = (request.module.clone(), request.function.clone(), request.arity);
        self.0.exports.lock().get(&key).cloned()
    }

    /// Lets other nodes call a function and wait for its value: by `erpc:call` or `rpc:call` of a
    /// BEAM node, or by [`apply`](Self::apply). Each call runs in a separate process.
    ///
    /// `function` receives the arguments, of which there are `arity`. The caller gets the value, or
    /// an error with the reason in `Err`. What is not exported cannot be called, and only nodes
    /// that have the [grant](crate::Grants::spawn) can call what is.
    ///
    /// | the function | `erpc:call` | [`apply`](Self::apply) |
    /// |---|---|---|
    /// | returns `Ok(Value)` | returns `Value` | `Ok(Value)` |
    /// | returns `Err(Reason)` | error `{exception, Reason, _}` | [`ApplyError::Failed`] |
    /// | is not exported with the arity | error `{exception, undef, _}` | `Failed`: `undef` |
    /// | is not granted | error `{exception, not_allowed, _}` | `Failed`: `not_allowed` |
    /// | returns what cannot be sent | exit `{signal, unencodable}` | [`ApplyError::Ended`] |
    /// | returns more than a message or the queue holds | exit `{signal, too_large}` | `Ended` |
    /// | panics | exit `{signal, {panicked, Text}}` | `Ended` |
    ///
    /// What cannot be sent is, for example, a float that is no number.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use std::time::Duration;
    ///
    /// use procession_cluster::{Cookie, Grants, Node, Term};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// procession::run(async {
    ///     let cookie = Cookie::random()?;
    ///     let shop = Node::builder("shop@127.0.0.1")
    ///         .cookie(cookie.clone())
    ///         .listen((Ipv4Addr::LOCALHOST, 0).into())
    ///         .grant("till@127.0.0.1", Grants::new().spawn("shop", "total"))
    ///         .start()
    ///         .await?;
    ///     // erpc:call('shop@127.0.0.1', shop, total, [3, 4]) returns 7.
    ///     shop.export_function("shop", "total", 2, |prices: Vec<Term>| async move {
    ///         let prices = prices.iter().map(Term::as_integer).collect::<Option<Vec<_>>>();
    ///         Ok(Term::from(prices.ok_or(Term::atom("badarg"))?.iter().sum::<i64>()))
    ///     });
    ///
    ///     let till = Node::builder("till@127.0.0.1").cookie(cookie).start().await?;
    ///     till.connect_at("shop@127.0.0.1", shop.local_addr().expect("it listens")).await?;
    ///     let (prices, limit) = (vec![Term::from(3), Term::from(4)], Duration::from_secs(5));
    ///     let total = till.apply("shop@127.0.0.1", "shop", "total", prices, limit).await?;
    ///     assert_eq!(total, Term::from(7));
    ///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If a name has more than 255 characters.
    pub fn export_function<F, R>(&self, module: &str, name: &str, arity: u8, function: F)
    where
        F: Fn(Vec<Term>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Term, Term>> + Send + 'static,
    {
        let function = Arc::new(function);
        let start = move |arguments, returned: Option<Returned>| {
            let function = Arc::clone(&function);
            let process = move |_: Context<Letter>| async move {
                let result = function(arguments).await;
                match (returned, result) {
                    (Some(returned), result) => {
                        *returned.lock() = Some(result);
                        Exit::Normal
                    }
                    (None, Ok(_)) => Exit::Normal,
                    (None, Err(reason)) => reason::to_exit(&reason),
                }
            };
            Spawned::start(SpawnOptions::new(), process)
        };
        self.export_as(
            module,
            name,
            arity,
            Export { start: Guarded::new(Arc::new(start)), returns: true },
        );
    }

    /// Calls a function of another node and waits for its value, as `erpc:call` does: any function
    /// of a BEAM node, or an [exported](Self::export_function) function of a node of this crate.
    ///
    /// # Errors
    /// [`ApplyError`] says why there is no value.
    ///
    /// # Cancellation
    /// If the future is dropped, the function may have been called, and runs on.
    pub async fn apply(
        &self,
        node: &str,
        module: &str,
        function: &str,
        arguments: Vec<Term>,
        timeout: Duration,
    ) -> Result<Term, ApplyError> {
        let atom = |text: &str| Atom::new(text).ok_or_else(|| ApplyError::Name(text.into()));
        let (module, function) = (atom(module)?, atom(function)?);
        let no_connection = || ApplyError::Send(SendTermCause::NoConnection);
        let link = self.link_to(node).ok_or_else(no_connection)?;
        let call = self.reference(START_KIND);
        let tag = Term::from(call.clone());
        let list = vec![tag.clone(), module.into(), function.into(), Term::List(arguments)];
        let own = procession::process::current_pid().map_or(0, |pid| self.number_for(pid, None));
        let (caller, receiver) = oneshot::channel();
        let pending = Pending { node: self, link: &link, call: &call, own };
        let asked = Relations { links: false, monitors: true };
        let request = (Atom::known(MODULE), Atom::known(CALL), list);
        self.ask_to_start(&link, &call, own, request, asked, Asker::Apply(caller))
            .map_err(ApplyError::Send)?;
        let ended = procession::timeout(timeout, receiver).await;
        drop(pending);
        match ended {
            Ok(Ok(Ok(reason))) => result(&tag, &reason),
            Ok(Ok(Err(StartRefusal::Refused(reason)))) => Err(ApplyError::Refused(reason)),
            Ok(Ok(Err(StartRefusal::NoConnection)) | Err(_)) => Err(ApplyError::NoConnection),
            Err(_) => Err(ApplyError::TimedOut),
        }
    }
}

/// Returns the result in the reason with which the process of a call has ended.
fn result(tag: &Term, reason: &Term) -> Result<Term, ApplyError> {
    match reason.as_tuple() {
        Some([own, Term::Atom(class), value, ..]) if own == tag => {
            let value = value.clone();
            match class.as_str() {
                "return" => Ok(value),
                "throw" => Err(ApplyError::Thrown(value)),
                "exit" => Err(ApplyError::Exited(value)),
                _ => Err(ApplyError::Failed(value)),
            }
        }
        _ => Err(ApplyError::Ended(reason::to_exit(reason))),
    }
}

/// A call that nothing has answered yet. Its drop ends the monitor of its process.
struct Pending<'a> {
    node: &'a Node,
    link: &'a Link,
    call: &'a Reference,
    own: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let forgotten = self
            .link
            .tables(|tables| (tables.starts.remove(self.call), tables.take_watch(self.call)));
        if let Some((_, Some(watch))) = forgotten {
            let target = watch.process.target();
            self.link.tell_demonitor(&self.node.pid_of(self.own), &target, self.call);
        }
    }
}
