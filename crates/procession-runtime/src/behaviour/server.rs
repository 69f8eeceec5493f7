//! Servers, as `gen_server` of OTP.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::Exit;
use crate::behaviour::info::Info;
use crate::mailbox::context::{Context, Event};
use crate::time::timeout;

#[cfg(doc)]
use crate::Address;

/// A process that handles messages, one after the other.
///
/// The value is the state of the server. [`serve`](Self::serve) runs it in a process with a
/// mailbox. All methods but [`handle`](Self::handle) have defaults. The
/// [module](crate::behaviour) has an example.
///
/// A call is a message with a [`Reply`](crate::Reply) in it. Each kind of call has its own type of
/// answer, which is the type of its reply. Every kind of address sends both: `call` sends a call
/// and waits for the answer, and `send` is the `cast` of OTP. For example, [`Address::call`] and
/// [`Named::call`](crate::relations::Named::call) do the same, by address and by name.
///
/// While a method waits, the server receives nothing. If it panics, the process ends.
///
/// ```
/// use std::time::Duration;
/// use procession::behaviour::{Server, ServerContext};
/// use procession::{Context, Reply, start};
///
/// /// Lends numbers, each to one borrower at a time.
/// struct Lender(Vec<u32>);
///
/// enum Loan {
///     Take(Reply<Option<u32>>),
///     Return(u32),
/// }
///
/// impl Server for Lender {
///     type Message = Loan;
///
///     async fn handle(&mut self, loan: Loan, _: &mut ServerContext<Self>) {
///         match loan {
///             Loan::Take(reply) => reply.send(self.0.pop()),
///             Loan::Return(number) => self.0.push(number),
///         }
///     }
/// }
///
/// procession::run(async {
///     let lender = start(|cx: Context<Loan>| Lender(vec![7]).serve(cx));
///     let patience = Duration::from_secs(1);
///     assert_eq!(lender.call(Loan::Take, patience).await?, Some(7));
///     assert_eq!(lender.call(Loan::Take, patience).await?, None);
///     lender.send(Loan::Return(7))?;
///     assert_eq!(lender.call(Loan::Take, patience).await?, Some(7));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Server: Send + Sized + 'static {
    /// The messages of the process.
    type Message: Send + 'static;

    /// Prepares the server, before its first message. A supervisor waits for it if the server is a
    /// child made by [`ChildSpec::server`](crate::supervisor::ChildSpec::server).
    ///
    /// # Errors
    /// The process ends with this exit. [`terminate`](Self::terminate) is not called. The start of
    /// a supervisor fails.
    fn init(
        &mut self,
        cx: &mut ServerContext<Self>,
    ) -> impl Future<Output = Result<(), Exit>> + Send {
        let _ = cx;
        std::future::ready(Ok(()))
    }

    /// Handles a message.
    ///
    /// The reply of a call may be sent later, by this process or by another process. If the reply
    /// is dropped, the caller learns that there is no answer.
    fn handle(
        &mut self,
        message: Self::Message,
        cx: &mut ServerContext<Self>,
    ) -> impl Future<Output = ()> + Send;

    /// Handles a notice about another process. By default, drops it.
    fn handle_info(
        &mut self,
        info: Info,
        cx: &mut ServerContext<Self>,
    ) -> impl Future<Output = ()> + Send {
        let _ = (info, cx);
        std::future::ready(())
    }

    /// Handles the timeout of [`ServerContext::set_timeout`]. By default, does nothing.
    fn handle_timeout(&mut self, cx: &mut ServerContext<Self>) -> impl Future<Output = ()> + Send {
        let _ = cx;
        std::future::ready(())
    }

    /// Cleans up at the end of the server: after [`ServerContext::stop`], and after a cancel, once
    /// the mailbox is empty. It is not called if the process panics or is terminated. By default,
    /// does nothing.
    fn terminate(
        &mut self,
        exit: &Exit,
        cx: &mut ServerContext<Self>,
    ) -> impl Future<Output = ()> + Send {
        let _ = (exit, cx);
        std::future::ready(())
    }

    /// Runs the server with the mailbox of a process, until it stops or is cancelled. Returns how
    /// the process is to end: with [`Exit::Normal`] after a cancel.
    ///
    /// # Cancellation
    /// A cancel of the process ends the server in order: it handles the messages that are left, and
    /// terminates. If the future is dropped before it completes, the server and its mailbox are
    /// dropped: [`terminate`](Self::terminate) is not called, a method that waits does not go on,
    /// and callers get no answer.
    ///
    /// ```
    /// use procession::behaviour::{Server, ServerContext};
    /// use procession::{Exit, SpawnOptions};
    ///
    /// struct Once;
    ///
    /// impl Server for Once {
    ///     type Message = &'static str;
    ///
    ///     async fn handle(&mut self, reason: &'static str, cx: &mut ServerContext<Self>) {
    ///         cx.stop(Exit::failed(reason));
    ///     }
    /// }
    ///
    /// procession::run(async {
    ///     let once = SpawnOptions::new().label("once").start(|cx| Once.serve(cx));
    ///     once.send("no more").expect("it is alive");
    ///     assert_eq!(once.await, Ok(Exit::failed("no more")));
    /// });
    /// ```
    fn serve(self, context: Context<Self::Message>) -> impl Future<Output = Exit> + Send {
        serve_reporting(self, context, || ())
    }
}

/// Runs a server. Calls `ready` once its `init` has succeeded.
pub(crate) async fn serve_reporting<S: Server>(
    mut server: S,
    context: Context<S::Message>,
    ready: impl FnOnce() + Send,
) -> Exit {
    let mut cx = ServerContext { context, timeout: None, stop: None };
    if let Err(exit) = server.init(&mut cx).await {
        return exit;
    }
    ready();
    while cx.stop.is_none() {
        match cx.next().await {
            ServerInput::Event(Event::Message(message)) => server.handle(message, &mut cx).await,
            ServerInput::Event(event) => {
                if let Some(info) = Info::of(event) {
                    server.handle_info(info, &mut cx).await;
                }
            }
            ServerInput::Timeout => server.handle_timeout(&mut cx).await,
            ServerInput::Cancelled => cx.stop(Exit::Normal),
        }
    }
    let exit = cx.stop.take().unwrap_or(Exit::Normal);
    server.terminate(&exit, &mut cx).await;
    exit
}

/// The context of a [`Server`]. It dereferences to the [`Context`] of its process.
pub struct ServerContext<S: Server> {
    context: Context<S::Message>,
    timeout: Option<Duration>,
    stop: Option<Exit>,
}

enum ServerInput<M> {
    Event(Event<M>),
    Timeout,
    Cancelled,
}

impl<S: Server> ServerContext<S> {
    /// Ends the server after the method that runs. If it is called twice, the first exit counts.
    ///
    /// Messages that are in the mailbox then are dropped, so their callers get no answer.
    pub fn stop(&mut self, exit: Exit) {
        self.stop.get_or_insert(exit);
    }

    /// Calls [`Server::handle_timeout`] if nothing else arrives within `timeout`, counted from the
    /// end of the method that runs. Anything that arrives before ends the timeout.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    async fn next(&mut self) -> ServerInput<S::Message> {
        let next = self.context.recv_event();
        let event = match self.timeout.take() {
            Some(limit) => match timeout(limit, next).await {
                Ok(event) => event,
                Err(_) => return ServerInput::Timeout,
            },
            None => next.await,
        };
        event.map_or(ServerInput::Cancelled, ServerInput::Event)
    }
}

impl<S: Server> Deref for ServerContext<S> {
    type Target = Context<S::Message>;

    fn deref(&self) -> &Self::Target {
        &self.context
    }
}

impl<S: Server> DerefMut for ServerContext<S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.context
    }
}

impl<S: Server> fmt::Debug for ServerContext<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerContext")
            .field("context", &self.context)
            .field("timeout", &self.timeout)
            .field("stop", &self.stop)
            .finish()
    }
}
