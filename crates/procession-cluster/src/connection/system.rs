//! Requests of OTP to any process: to look at it, to hold it and to end it (`sys`), and events that
//! `gen_event:sync_notify` waits for.
//!
//! A process of OTP reads these requests in its loop. A process of this crate has no such loop, so
//! the connection answers in its place, whatever waits in the mailbox. What a process of this crate
//! cannot do is refused, because the caller may wait without a time limit.

use std::time::Duration;

use procession::observe::{AskError, Inspection, detail, inspect, resume, suspend_for};
use procession::process::{OnCancel, cancel};
use procession::{Pid, SpawnOptions};

use crate::connection::Connection;
use crate::letter::TermReply;
use crate::link::count;
use crate::term::{NodePid, Term};

/// The longest suspension.
const SUSPENSION: Duration = Duration::from_secs(60);

/// What `sys` asks of a process.
enum Deed {
    State,
    Status,
    Suspend,
    Resume,
    Terminate(Term),
    Unknown,
}

impl Deed {
    fn of(request: &Term) -> Self {
        match request {
            Term::Atom(word) => match word.as_str() {
                "get_state" => Self::State,
                "get_status" => Self::Status,
                "suspend" => Self::Suspend,
                "resume" => Self::Resume,
                _ => Self::Unknown,
            },
            Term::Tuple(items) => match &**items {
                [word, reason] if word.is_atom("terminate") => Self::Terminate(reason.clone()),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }
}

impl Connection {
    /// Answers a request of `sys` to the process `pid`, which the other node knows as `own`.
    pub(super) fn answer_system(&self, request: Term, reply: TermReply, own: NodePid, pid: Pid) {
        let (deed, peer) = (Deed::of(&request), &self.link.peer.name);
        let is_permitted = match deed {
            Deed::State | Deed::Status => self.node.permits_looks(peer),
            Deed::Suspend | Deed::Resume | Deed::Terminate(_) => self.node.permits_exits(peer),
            Deed::Unknown => true,
        };
        if !is_permitted {
            count(&self.link.counts.denied, 1);
            return answer(reply, error(Term::atom("not_allowed")));
        }
        let ok = || Term::atom("ok");
        match deed {
            Deed::State | Deed::Status => {
                let shows = async move {
                    let state = state(inspect(pid).await);
                    let term = match (deed, state) {
                        (Deed::Status, Ok(state) | Err(state)) => status(own, pid, state),
                        (_, Ok(state) | Err(state)) => state,
                    };
                    answer(reply, term);
                };
                // If the scheduler has no room for the process, the caller sees a time-out.
                drop(SpawnOptions::new().label("sys").on_cancel(OnCancel::Drop).spawn(shows));
            }
            Deed::Suspend => {
                answer(reply, suspend_for(pid, SUSPENSION).map_or_else(failed, |()| ok()))
            }
            Deed::Resume => {
                resume(pid);
                answer(reply, ok());
            }
            // A signal with this reason has no effect, so the process is asked to end.
            Deed::Terminate(reason) if reason.is_atom("normal") => {
                answer(reply, ok());
                cancel(pid);
            }
            Deed::Terminate(reason) => {
                let caller = reply.caller().clone();
                answer(reply, ok());
                self.exit_sent(&caller, &own, &reason);
            }
            Deed::Unknown => {
                answer(reply, error(Term::tuple([Term::atom("unknown_system_msg"), request])));
            }
        }
    }
}

fn answer(reply: TermReply, term: Term) {
    // Ignored: if the queue is full, the caller sees a time-out.
    drop(reply.send(term));
}

fn error(reason: Term) -> Term {
    Term::tuple([Term::atom("error"), reason])
}

fn failed(why: AskError) -> Term {
    error(Term::from(why.to_string()))
}

/// Returns what a process shows of itself as a list of pairs of binaries, or the reason why it is
/// not known.
fn state(shown: Result<Inspection, AskError>) -> Result<Term, Term> {
    match shown {
        Ok(shown) => {
            let pair = |(name, value)| Term::tuple([Term::from(name), Term::from(value)]);
            Ok(Term::list(shown.fields().map(pair)))
        }
        Err(AskError::ShowsNothing) => Ok(Term::List(Vec::new())),
        Err(why) => Err(failed(why)),
    }
}

/// Returns the status of a process in the form of OTP.
fn status(own: NodePid, pid: Pid, state: Term) -> Term {
    let is_suspended = detail(pid).is_some_and(|info| info.suspended);
    let run = Term::atom(if is_suspended { "suspended" } else { "running" });
    let own = Term::from(own);
    let module = Term::tuple([Term::atom("module"), Term::atom("procession")]);
    let none = || Term::List(Vec::new());
    let items = Term::list([none(), run, own.clone(), none(), state]);
    Term::tuple([Term::atom("status"), own, module, items])
}
