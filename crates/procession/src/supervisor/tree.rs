//! What a supervisor knows of its children, and what it does when something happens.
//!
//! The process waits in one place, for the next event: a request, the end of a child, a moment, its cancel. Between two events it brings the children nearer to
//! what they are to be: those in `to_stop` are stopped, those in `to_start` started, as far as the order allows. So it answers at any time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::description::{AutoShutdown, ChildSpec, Restart, Stop, Strategy, Supervisor};
use super::error::{ChildError, StartError};
use super::reference::{ChildInfo, ChildKey, ChildStatus, Counts};
use crate::relations::{self, Cause};
use crate::scheduler::reach::find;
use crate::scheduler::shutdown;
use crate::sys::nanoseconds;
use crate::time::sleep_until;
use crate::{Address, Context, Event, Exit, Instant, MonitorRef, Pid, Reply, yield_now};

/// How many children are started between two looks at the mailbox. Starting one costs less than a microsecond.
const STARTS_IN_A_ROW: u32 = 64;

/// The generator of a supervisor is told from those of workers by this.
const GENERATORS: u64 = 1 << 40;

type Asked<T> = Reply<Result<T, ChildError>>;

/// What a supervisor is told and asked.
pub(super) enum Request {
    Started { key: u64, incarnation: u64, result: Result<(), Arc<str>> },
    Which(Reply<Vec<ChildInfo>>),
    Count(Reply<Counts>),
    Status(ChildKey, Asked<ChildStatus>),
    Start(Box<ChildSpec>, Asked<Pid>),
    StartAnother(Asked<Pid>),
    Terminate(ChildKey, Asked<()>),
    Restart(ChildKey, Asked<Pid>),
    Delete(ChildKey, Asked<()>),
}

/// Where a child says that it has started.
#[derive(Debug)]
pub(super) struct Report {
    supervisor: Address<Request>,
    key: u64,
    incarnation: u64,
}

impl Report {
    pub(super) fn send(self, result: Result<(), Arc<str>>) {
        // Ignored: a supervisor that has ended has no children.
        drop(self.supervisor.send(Request::Started { key: self.key, incarnation: self.incarnation, result }));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    /// There is none; perhaps it is in `to_start`.
    None,
    /// There is none; it is in `delayed`.
    Delayed { until: u64 },
    /// It has not said that it has started.
    Starting(Pid, MonitorRef),
    /// Since when.
    Runs(Pid, MonitorRef, u64),
    /// If there is a deadline, it is in `deadlines`.
    Stopping { pid: Pid, deadline: Option<u64> },
}

impl Process {
    fn pid(self) -> Option<Pid> {
        match self {
            Self::None | Self::Delayed { .. } => None,
            Self::Starting(pid, _) | Self::Runs(pid, ..) | Self::Stopping { pid, .. } => Some(pid),
        }
    }
}

struct Child {
    spec: ChildSpec,
    process: Process,
    /// Whether it is started again when it has been stopped.
    comes_back: bool,
    /// Tells what is said by this process from what was said by one before.
    incarnation: u64,
    /// Restarts since it last ran for long.
    restarts: u32,
    /// Why its start failed, if it said so.
    failure: Option<Arc<str>>,
    /// Whether it has never been started; then it is forgotten if that fails.
    is_new: bool,
    started: Option<Asked<Pid>>,
    stopped: Vec<Asked<()>>,
}

struct Tree {
    own: Address<Request>,
    description: Arc<Supervisor>,
    generator: fastrand::Rng,
    /// In the order of their starts.
    children: BTreeMap<u64, Child>,
    ids: BTreeMap<Arc<str>, u64>,
    pids: BTreeMap<Pid, u64>,
    last_key: u64,
    last_incarnation: u64,
    to_stop: BTreeSet<u64>,
    stopping: BTreeSet<u64>,
    to_start: BTreeSet<u64>,
    starting: BTreeSet<u64>,
    /// Who is to be started, and when.
    delayed: BTreeSet<(u64, u64)>,
    /// Who is to be terminated, and when.
    deadlines: BTreeSet<(u64, u64)>,
    /// When children were restarted, within the last period.
    restarts: VecDeque<u64>,
    /// Processes of significant children.
    significant: usize,
    /// What came of the first start of all.
    started: Option<Result<(), StartError>>,
    awaited: Option<Reply<Result<(), StartError>>>,
    /// How the supervisor is to end, once no child is left.
    ending: Option<Exit>,
}

/// The process of a supervisor. It never returns: it ends itself, with an exit.
pub(super) async fn supervise(
    mut cx: Context<Request>,
    description: Arc<Supervisor>,
    report: Option<Report>,
    awaited: Option<Reply<Result<(), StartError>>>,
) -> Infallible {
    cx.trap_exits(true);
    // A shutdown asks what is there when it begins. A supervisor that is started while processes clean
    // up would never be asked, and never ends by itself. One that is a child is stopped by its parent.
    let is_late = cx.slot().shared().closing.phase() != shutdown::OPEN
        && relations::supervisor(cx.slot()).and_then(find).is_none();
    let parent = cx.parent();
    let purpose = GENERATORS + u64::from(cx.pid().slot());
    let generator = cx.slot().shared().world.generator(purpose);
    let mut tree = Tree::new(cx.address(), description, generator, awaited);
    let mut report = report;
    let exit = loop {
        let more = tree.go_on(&mut cx);
        if let Some(exit) = tree.ended() {
            break exit;
        }
        if let Some(started) = &tree.started
            && started.is_ok()
            && let Some(report) = report.take()
        {
            report.send(Ok(()));
        }
        if is_late && tree.ending.is_none() && matches!(tree.started, Some(Ok(()))) {
            tree.end(Exit::Shutdown);
            continue;
        }
        if more {
            // Others may run, and what came meanwhile is looked at.
            yield_now().await;
        }
        let deadline = if more { Some(0) } else { tree.next_moment() };
        match next(&mut cx, deadline, tree.ending.is_some()).await {
            Turn::Cancelled => tree.end(Exit::Shutdown),
            Turn::Event(Event::Message(request)) => tree.serve(request),
            Turn::Event(Event::Down(down)) => tree.note_end(&mut cx, down.pid, &down.exit),
            // The ends of children come as downs, too. Whoever else is linked does not matter, as in OTP.
            Turn::Event(Event::Exit(signal)) if signal.from.is_some() && signal.from == parent => {
                tree.end(Exit::Shutdown);
            }
            Turn::Event(_) | Turn::Time => {}
        }
    };
    if let (Some(report), Some(Err(error))) = (report, &tree.started) {
        report.send(Err(error.to_string().into()));
    }
    tree.answer_start();
    drop(tree);
    relations::end_by(cx.slot(), exit);
    pending().await
}

enum Turn {
    Cancelled,
    Event(Event<Request>),
    Time,
}

/// Waits for whatever happens next.
async fn next(cx: &mut Context<Request>, moment: Option<u64>, is_ending: bool) -> Turn {
    let slot = cx.slot().clone();
    let mut event = pin!(cx.receive_event_to_the_end());
    let mut time = pin!(async move {
        match moment {
            Some(moment) => sleep_until(Instant::from_nanoseconds(moment)).await,
            None => pending().await,
        }
    });
    poll_fn(|task| {
        if !is_ending && slot.state.see().may_end_itself() {
            return Poll::Ready(Turn::Cancelled);
        }
        if let Poll::Ready(Some(event)) = event.as_mut().poll(task) {
            return Poll::Ready(Turn::Event(event));
        }
        time.as_mut().poll(task).map(|()| Turn::Time)
    })
    .await
}

impl Tree {
    fn new(
        own: Address<Request>,
        description: Arc<Supervisor>,
        generator: fastrand::Rng,
        awaited: Option<Reply<Result<(), StartError>>>,
    ) -> Self {
        let mut tree = Self {
            own,
            generator,
            children: BTreeMap::new(),
            ids: BTreeMap::new(),
            pids: BTreeMap::new(),
            last_key: 0,
            last_incarnation: 0,
            to_stop: BTreeSet::new(),
            stopping: BTreeSet::new(),
            to_start: BTreeSet::new(),
            starting: BTreeSet::new(),
            delayed: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            restarts: VecDeque::new(),
            significant: 0,
            started: None,
            awaited,
            ending: None,
            description: Arc::clone(&description),
        };
        for spec in &description.children {
            tree.add(spec.clone(), None);
        }
        tree
    }

    fn is_dynamic(&self) -> bool {
        self.description.strategy == Strategy::Dynamic
    }

    /// Whether children start one after the other, now.
    fn in_order(&self) -> bool {
        let grouped = matches!(self.description.strategy, Strategy::OneForAll | Strategy::RestForOne);
        grouped || self.started.is_none()
    }

    fn add(&mut self, spec: ChildSpec, started: Option<Asked<Pid>>) {
        self.last_key += 1;
        let key = self.last_key;
        if let Some(id) = &spec.id {
            self.ids.insert(Arc::clone(id), key);
        }
        let child = Child {
            spec,
            process: Process::None,
            comes_back: false,
            incarnation: 0,
            restarts: 0,
            failure: None,
            is_new: true,
            started,
            stopped: Vec::new(),
        };
        self.children.insert(key, child);
        self.to_start.insert(key);
    }

    fn forget(&mut self, key: u64) {
        if let Some(child) = self.children.remove(&key)
            && let Some(id) = &child.spec.id
        {
            self.ids.remove(id);
        }
        self.to_start.remove(&key);
    }

    /// The earliest moment at which there is something to do.
    fn next_moment(&self) -> Option<u64> {
        let first = |moments: &BTreeSet<(u64, u64)>| moments.first().map(|&(moment, _)| moment);
        first(&self.delayed).into_iter().chain(first(&self.deadlines)).min()
    }

    /// How the supervisor is to end, if it is time.
    fn ended(&self) -> Option<Exit> {
        self.ending.clone().filter(|_| self.pids.is_empty())
    }

    /// Brings the children nearer to what they are to be; says whether it could do more at once.
    fn go_on(&mut self, cx: &mut Context<Request>) -> bool {
        let now = cx.slot().shared().world.now();
        while let Some(&(moment, key)) = self.deadlines.first()
            && moment <= now
        {
            self.deadlines.pop_first();
            if let Some(Process::Stopping { pid, deadline }) =
                self.children.get_mut(&key).map(|child| &mut child.process)
            {
                *deadline = None;
                if let Some(slot) = find(*pid) {
                    crate::process::wake::terminate(&slot);
                }
            }
        }
        while let Some(&(moment, key)) = self.delayed.first()
            && moment <= now
        {
            self.delayed.pop_first();
            if let Some(child) = self.children.get_mut(&key) {
                child.process = Process::None;
                self.to_start.insert(key);
            }
        }
        while self.is_dynamic() || self.stopping.is_empty() {
            let Some(key) = self.to_stop.pop_last() else { break };
            self.begin_stop(cx, key, now);
        }
        let mut starts = 0;
        while self.ending.is_none()
            && let Some(&key) = self.to_start.first()
        {
            let alone = self.to_stop.is_empty()
                && self.stopping.is_empty()
                && self.starting.is_empty()
                && self.delayed.is_empty();
            if self.in_order() && !alone {
                break;
            }
            if starts == STARTS_IN_A_ROW {
                return true;
            }
            starts += 1;
            self.to_start.pop_first();
            self.begin_start(key, now);
        }
        if self.ending.is_none() && self.started.is_none() && self.to_start.is_empty() && self.starting.is_empty() {
            self.started = Some(Ok(()));
            self.answer_start();
        }
        // What failed to start at the beginning is followed by stops.
        self.ending.is_some() && self.stopping.is_empty() && !self.to_stop.is_empty()
    }

    fn begin_start(&mut self, key: u64, now: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        self.last_incarnation += 1;
        child.incarnation = self.last_incarnation;
        child.failure = None;
        let report = Report { supervisor: self.own.clone(), key, incarnation: child.incarnation };
        match child.spec.spawn(report) {
            Ok((pid, monitor)) => {
                self.pids.insert(pid, key);
                self.significant += usize::from(child.spec.significant);
                if child.spec.says_so() {
                    child.process = Process::Starting(pid, monitor);
                    self.starting.insert(key);
                } else {
                    self.note_start(key, pid, monitor, now);
                }
            }
            Err(reason) => self.fail_start(key, reason, now),
        }
    }

    fn note_start(&mut self, key: u64, pid: Pid, monitor: MonitorRef, now: u64) {
        if let Some(child) = self.children.get_mut(&key) {
            child.process = Process::Runs(pid, monitor, now);
            child.is_new = false;
            if let Some(started) = child.started.take() {
                started.send(Ok(pid));
            }
        }
    }

    /// A child that has no process did not start.
    fn fail_start(&mut self, key: u64, reason: Arc<str>, now: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if self.started.is_none() {
            let id = child.spec.id.clone().unwrap_or_else(|| format!("#{key}").into());
            let error = StartError::Child { id, reason };
            self.end(Exit::failed(error.to_string()));
            self.started = Some(Err(error));
            return;
        }
        if let Some(started) = child.started.take() {
            started.send(Err(ChildError::Start(reason)));
            if child.is_new {
                self.forget(key);
            }
            return;
        }
        self.restart(key, 0, now);
    }

    fn begin_stop(&mut self, cx: &mut Context<Request>, key: u64, now: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let (Process::Starting(pid, monitor) | Process::Runs(pid, monitor, _)) = child.process else { return };
        self.starting.remove(&key);
        let mut deadline = None;
        // If it has ended, its down is on its way.
        if let Some(slot) = find(pid) {
            if relations::supervisor(&slot) != Some(cx.pid()) {
                // It was released: it shuts the scheduler down.
                cx.unlink(pid);
                cx.demonitor(monitor);
                self.pids.remove(&pid);
                self.note_stop(key);
                return;
            }
            let after = |time: Duration| Some(now.saturating_add(nanoseconds(time)));
            match child.spec.stop {
                Stop::Kill => crate::process::wake::terminate(&slot),
                Stop::Wait => crate::process::wake::cancel(&slot),
                Stop::Within(time) => {
                    crate::process::wake::cancel(&slot);
                    deadline = after(time);
                }
                Stop::Signal(time) => {
                    relations::deliver(&slot, Some(cx.pid()), Exit::Shutdown, Cause::Sent);
                    deadline = after(time);
                }
            }
        }
        child.process = Process::Stopping { pid, deadline };
        self.stopping.insert(key);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, key));
        }
    }

    /// A process has ended that was a child's.
    fn note_end(&mut self, cx: &mut Context<Request>, pid: Pid, exit: &Exit) {
        let Some(key) = self.pids.remove(&pid) else { return };
        let now = cx.slot().shared().world.now();
        self.starting.remove(&key);
        let Some(child) = self.children.get_mut(&key) else { return };
        self.significant -= usize::from(child.spec.significant);
        let before = std::mem::replace(&mut child.process, Process::None);
        if let Process::Stopping { deadline, .. } = before {
            self.stopping.remove(&key);
            if let Some(deadline) = deadline {
                self.deadlines.remove(&(deadline, key));
            }
            return self.note_stop(key);
        }
        if self.to_stop.remove(&key) {
            // It ended before its turn.
            return self.note_stop(key);
        }
        let ran = match before {
            Process::Runs(_, _, since) => now - since,
            _ => {
                let reason = child.failure.take().unwrap_or_else(|| exit.to_string().into());
                return self.fail_start(key, reason, now);
            }
        };
        let comes_back = match child.spec.restart {
            Restart::Permanent => true,
            Restart::Transient => !matches!(exit, Exit::Normal | Exit::Shutdown),
            Restart::Temporary => false,
        };
        if comes_back {
            return self.restart(key, ran, now);
        }
        let (significant, temporary) = (child.spec.significant, child.spec.restart == Restart::Temporary);
        if temporary || self.is_dynamic() {
            self.forget(key);
        }
        let ends = match self.description.auto_shutdown {
            AutoShutdown::Never => false,
            AutoShutdown::AnySignificant => significant,
            AutoShutdown::AllSignificant => significant && self.significant == 0,
        };
        if ends {
            self.end(Exit::Shutdown);
        }
    }

    /// A child has ended that was to be stopped.
    fn note_stop(&mut self, key: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.process = Process::None;
        for stopped in child.stopped.drain(..) {
            stopped.send(Ok(()));
        }
        let temporary = child.spec.restart == Restart::Temporary;
        if child.comes_back && self.ending.is_none() && !temporary {
            self.to_start.insert(key);
            return;
        }
        if let Some(started) = child.started.take() {
            started.send(Err(ChildError::Start(Arc::from("it was stopped"))));
        }
        if temporary || self.is_dynamic() {
            self.forget(key);
        }
    }

    /// A child has ended that is to be started again, after it ran for `ran`; or could not be started.
    fn restart(&mut self, key: u64, ran: u64, now: u64) {
        if self.ending.is_some() {
            return;
        }
        let period = nanoseconds(self.description.period);
        while self.restarts.front().is_some_and(|&then| now - then >= period) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.description.intensity as usize {
            return self.end(Exit::Shutdown);
        }
        self.restarts.push_back(now);
        let wait = self.draw_wait(key, ran);
        match self.description.strategy {
            Strategy::OneForOne | Strategy::Dynamic => {}
            Strategy::OneForAll => self.recycle(0, key),
            Strategy::RestForOne => self.recycle(key + 1, key),
        }
        if let Some(child) = self.children.get_mut(&key) {
            // Even without a wait it is the next event, not a loop here: a start may fail at once.
            let until = now.saturating_add(wait);
            child.process = Process::Delayed { until };
            self.delayed.insert((until, key));
        }
    }

    /// How long a child waits for its restart.
    fn draw_wait(&mut self, key: u64, ran: u64) -> u64 {
        let (Some(back_off), Some(child)) = (self.description.back_off, self.children.get_mut(&key)) else { return 0 };
        let (first, most) = (nanoseconds(back_off.first), nanoseconds(back_off.most));
        if ran > most {
            child.restarts = 0;
        }
        let doubled = first.saturating_mul(1_u64.checked_shl(child.restarts).unwrap_or(u64::MAX));
        child.restarts = child.restarts.saturating_add(1);
        let wait = doubled.min(most);
        self.generator.u64(wait / 2..=wait)
    }

    /// Stops all children from `from` on but one, and starts them again.
    fn recycle(&mut self, from: u64, but: u64) {
        for (&key, child) in self.children.range_mut(from..).filter(|&(&key, _)| key != but) {
            child.comes_back = true;
            match child.process {
                Process::Starting(..) | Process::Runs(..) => drop(self.to_stop.insert(key)),
                Process::None => drop(self.to_start.insert(key)),
                Process::Stopping { .. } | Process::Delayed { .. } => {}
            }
        }
    }

    /// The supervisor is to end: first all children.
    fn end(&mut self, exit: Exit) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(exit);
        self.started.get_or_insert(Err(StartError::Ended));
        self.to_start.clear();
        self.delayed.clear();
        for (&key, child) in &mut self.children {
            child.comes_back = false;
            match child.process {
                Process::Starting(..) | Process::Runs(..) => drop(self.to_stop.insert(key)),
                Process::Delayed { .. } => child.process = Process::None,
                Process::None | Process::Stopping { .. } => {}
            }
            if let Some(started) = child.started.take() {
                started.send(Err(ChildError::Ended));
            }
        }
    }

    fn answer_start(&mut self) {
        if let Some(started) = &self.started
            && let Some(awaited) = self.awaited.take()
        {
            awaited.send(started.clone());
        }
    }

    fn find(&self, child: &ChildKey) -> Result<u64, ChildError> {
        let key = match child {
            ChildKey::Id(id) => self.ids.get(id),
            ChildKey::Pid(pid) => self.pids.get(pid),
        };
        key.copied().ok_or(ChildError::NotFound)
    }

    fn status(&self, key: u64, child: &Child) -> ChildStatus {
        match child.process {
            Process::None if self.to_start.contains(&key) => ChildStatus::Waiting(Instant::from_nanoseconds(0)),
            Process::None => ChildStatus::Stopped,
            Process::Delayed { until } => ChildStatus::Waiting(Instant::from_nanoseconds(until)),
            Process::Starting(pid, _) => ChildStatus::Starting(pid),
            Process::Runs(pid, ..) => ChildStatus::Running(pid),
            Process::Stopping { pid, .. } => ChildStatus::Stopping(pid),
        }
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Started { key, incarnation, result } => self.note_said(key, incarnation, result),
            Request::Which(reply) => {
                let info = |(&key, child): (&u64, &Child)| ChildInfo {
                    id: child.spec.id.clone(),
                    status: self.status(key, child),
                    restart: child.spec.restart,
                    is_supervisor: child.spec.is_supervisor(),
                };
                reply.send(self.children.iter().map(info).collect());
            }
            Request::Count(reply) => {
                let count = |wanted: fn(&Child) -> bool| self.children.values().filter(|&child| wanted(child)).count();
                reply.send(Counts {
                    children: self.children.len(),
                    running: count(|child| matches!(child.process, Process::Runs(..))),
                    supervisors: count(|child| child.spec.is_supervisor()),
                });
            }
            Request::Status(child, reply) => {
                reply.send(self.find(&child).map(|key| self.status(key, &self.children[&key])));
            }
            Request::Start(spec, reply) => self.start_child(*spec, reply),
            Request::StartAnother(reply) => match self.description.template.clone() {
                Some(spec) => self.start_child(spec, reply),
                None => reply.send(Err(ChildError::NoTemplate)),
            },
            Request::Terminate(child, reply) => match self.find(&child) {
                Ok(key) => self.terminate_child(key, reply),
                Err(error) => reply.send(Err(error)),
            },
            Request::Restart(child, reply) => match self.find_stopped(&child) {
                Ok(key) => {
                    if let Some(child) = self.children.get_mut(&key) {
                        child.started = Some(reply);
                        self.to_start.insert(key);
                    }
                }
                Err(error) => reply.send(Err(error)),
            },
            Request::Delete(child, reply) => {
                reply.send(self.find_stopped(&child).map(|key| self.forget(key)));
            }
        }
    }

    /// A child says whether it has started.
    fn note_said(&mut self, key: u64, incarnation: u64, result: Result<(), Arc<str>>) {
        let Some(child) = self.children.get_mut(&key).filter(|child| child.incarnation == incarnation) else { return };
        let Process::Starting(pid, monitor) = child.process else { return };
        match result {
            Ok(()) => {
                self.starting.remove(&key);
                let now = nanoseconds(Instant::now().saturating_duration_since(Instant::from_nanoseconds(0)));
                self.note_start(key, pid, monitor, now);
            }
            Err(reason) => {
                // A supervisor ends by itself, after its children. The start has failed when the process has ended.
                child.failure = Some(reason);
                if !child.spec.is_supervisor()
                    && let Some(slot) = find(pid)
                {
                    crate::process::wake::terminate(&slot);
                }
            }
        }
    }

    fn start_child(&mut self, spec: ChildSpec, reply: Asked<Pid>) {
        let refused = if self.ending.is_some() {
            Err(ChildError::Ended)
        } else if let Err(error) = self.description.check_child(&spec) {
            Err(ChildError::Spec(error))
        } else {
            match spec.id.as_ref().and_then(|id| self.ids.get(id)).map(|key| self.children[key].process.pid()) {
                Some(Some(pid)) => Err(ChildError::AlreadyStarted(pid)),
                Some(None) => Err(ChildError::AlreadyPresent),
                None => Ok(()),
            }
        };
        match refused {
            Ok(()) => self.add(spec, Some(reply)),
            Err(error) => reply.send(Err(error)),
        }
    }

    fn terminate_child(&mut self, key: u64, reply: Asked<()>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.comes_back = false;
        match child.process {
            Process::Starting(..) | Process::Runs(..) => {
                child.stopped.push(reply);
                self.to_stop.insert(key);
            }
            Process::Stopping { .. } => child.stopped.push(reply),
            Process::None | Process::Delayed { .. } => {
                if let Process::Delayed { until } = child.process {
                    self.delayed.remove(&(until, key));
                }
                child.stopped.push(reply);
                self.to_start.remove(&key);
                self.note_stop(key);
            }
        }
    }

    /// A child without a process, which is not to get one.
    fn find_stopped(&self, child: &ChildKey) -> Result<u64, ChildError> {
        if self.ending.is_some() {
            return Err(ChildError::Ended);
        }
        let key = self.find(child)?;
        match self.children[&key].process {
            Process::None if !self.to_start.contains(&key) => Ok(key),
            Process::None | Process::Delayed { .. } => Err(ChildError::Restarting),
            other => Err(other.pid().map_or(ChildError::NotFound, ChildError::Running)),
        }
    }
}
