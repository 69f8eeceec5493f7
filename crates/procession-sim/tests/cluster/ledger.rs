//! The relations of a run: what was started, linked and monitored across nodes, and what was told.

use std::collections::{BTreeMap, HashMap, HashSet};

use procession::process::MonitorRef;
use procession::{Exit, Pid};

use crate::checker::{Defect, Incarnation, Laws};

/// How a process has ended: with its own reason, or by a signal or a crash.
pub(crate) type Ended = Option<Exit>;

/// A process that was started for another node, by the number of the request.
#[derive(Debug, Default)]
struct Work {
    starts: u32,
    ended: Option<Ended>,
    /// An end was told before the first step.
    is_over: bool,
}

/// A relation with a process of another node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relation {
    /// The request that has started the process.
    pub(crate) id: i64,
    /// The connection by which it was made, if there was one.
    pub(crate) connection: Option<u64>,
}

/// A process of a node that is linked to one of another node.
pub(crate) type Linked = (Incarnation, Pid, Pid);

#[derive(Debug)]
pub(crate) struct Ledger {
    laws: Laws,
    last: i64,
    works: BTreeMap<i64, Work>,
    monitors: HashMap<(Incarnation, MonitorRef), Relation>,
    links: HashMap<Linked, Relation>,
    /// Links that were ended by this side, of which an end may have come before.
    unlinked: HashSet<Linked>,
    /// Nothing is disturbed any more, so that no crash hides what a planted defect does.
    is_calm: bool,
}

impl Ledger {
    pub(crate) fn new(laws: Laws) -> Self {
        Self {
            laws,
            last: 0,
            works: BTreeMap::new(),
            monitors: HashMap::new(),
            links: HashMap::new(),
            unlinked: HashSet::new(),
            is_calm: false,
        }
    }

    pub(crate) fn law(&self, law: &str, holds: bool) {
        self.laws.law(law, holds);
    }

    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
    }

    /// Returns the number of the next request or question.
    pub(crate) fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// Notes that a process begins.
    pub(crate) fn begins(&mut self, id: i64) {
        let twice = self.laws.is_planted(Defect::StartTwice, true);
        let work = self.works.entry(id).or_default();
        work.starts += 1 + u32::from(twice);
        let (is_first, is_over) = (work.starts == 1, work.is_over);
        self.law("a request starts one process at most", is_first);
        self.law("an end is told with its reason", !is_over);
    }

    pub(crate) fn ends(&mut self, id: i64, how: Ended) {
        self.works.entry(id).or_default().ended = Some(how);
    }

    /// Notes the answer to a request: `Some(true)` if a process was started, `Some(false)` if not,
    /// and `None` if that is not known.
    pub(crate) fn answered(&self, id: i64, is_started: Option<bool>) {
        let has_begun = self.works.get(&id).is_some_and(|work| work.starts > 0);
        // A process that was started may not have had its first step.
        let may_begin = is_started != Some(false);
        self.law("a start is as it is told", may_begin || !has_begun);
        self.laws.sometimes("a start is not known", is_started.is_none());
        self.laws.sometimes("a process is started", is_started == Some(true));
    }

    pub(crate) fn monitored(&mut self, own: Incarnation, monitor: MonitorRef, what: Relation) {
        self.monitors.insert((own, monitor), what);
    }

    pub(crate) fn linked(&mut self, link: Linked, what: Relation) {
        self.links.insert(link, what);
    }

    pub(crate) fn unlinked(&mut self, link: Linked) {
        if self.links.remove(&link).is_some() {
            self.unlinked.insert(link);
        }
    }

    /// Notes that all that came before a link was ended was taken.
    pub(crate) fn is_unlinked(&mut self, link: &Linked) {
        self.unlinked.remove(link);
    }

    /// Takes the end of a monitored process. `current` is the connection to its node.
    pub(crate) fn down(
        &mut self,
        own: Incarnation,
        monitor: MonitorRef,
        exit: Exit,
        current: Option<u64>,
    ) {
        if self.laws.is_planted(Defect::DropDown, self.is_calm) {
            return;
        }
        let known = self.monitors.remove(&(own, monitor));
        self.law("a monitor tells one end", known.is_some());
        if let Some(what) = known {
            self.reason(what, exit, current);
        }
        if self.laws.is_planted(Defect::DoubleDown, self.is_calm) {
            self.down(own, monitor, Exit::NoConnection, current);
        }
    }

    /// Takes the end of a linked process. Returns the link, if there was one.
    pub(crate) fn exit(
        &mut self,
        link: Linked,
        exit: Exit,
        current: Option<u64>,
    ) -> Option<Relation> {
        if self.laws.is_planted(Defect::DropExit, self.is_calm && self.links.contains_key(&link)) {
            return None;
        }
        let known = self.links.remove(&link);
        let was_unlinked = self.unlinked.remove(&link);
        self.law("a link tells one end", known.is_some() || was_unlinked);
        self.laws.sometimes("a link ends", known.is_some());
        if let Some(what) = known {
            self.reason(what, exit, current);
        }
        if self.laws.is_planted(Defect::DoubleExit, known.is_some()) {
            self.exit(link, Exit::NoConnection, current);
        }
        known
    }

    /// Checks the reason of an end.
    fn reason(&mut self, what: Relation, mut exit: Exit, current: Option<u64>) {
        let work = self.works.entry(what.id).or_default();
        // A signal may end a process before its first step. It must not have one then.
        work.is_over |= exit != Exit::NoConnection && work.starts == 0;
        let ended = if work.is_over { Some(None) } else { work.ended.clone() };
        let lasts = what.connection.is_some() && what.connection == current;
        let has_own = matches!(ended, Some(Some(_)));
        if self.laws.is_planted(Defect::WrongReason, has_own) {
            exit = Exit::failed("another reason");
        }
        if self.laws.is_planted(Defect::FalseNoConnection, has_own && lasts) {
            exit = Exit::NoConnection;
        }
        self.laws.sometimes("the reason of a process is told", has_own);
        if exit == Exit::NoConnection {
            // A process that is linked ends with this reason itself.
            let is_right = !lasts || ended == Some(None);
            self.law("noconnection is told when the connection has ended", is_right);
            self.laws.sometimes("a connection ends a relation", !lasts);
            return;
        }
        let is_right = match ended {
            Some(Some(reason)) => exit == reason || exit == Exit::NoProcess,
            Some(None) => true,
            None => false,
        };
        self.law("an end is told with its reason", is_right);
    }

    /// Takes a message that is for the process which has asked for it.
    pub(crate) fn echoed(&mut self, asked: &mut HashSet<i64>, mut number: i64) {
        if self.laws.is_planted(Defect::OtherProcess, true) {
            number = 0;
        }
        self.law("a PID in a message leads to its process, and once", asked.remove(&number));
        self.laws.sometimes("a message comes by a PID of a message", true);
    }

    /// Forgets the relations of a node that was crashed: it is not there to be told.
    pub(crate) fn crashed(&mut self, host: i64) {
        self.monitors.retain(|(own, _), _| own.0 != host);
        self.links.retain(|(own, ..), _| own.0 != host);
    }

    /// Returns `true` if a process has ended, and a relation with it has not told that.
    pub(crate) fn has_untold(&self) -> bool {
        let has_ended = |what: &Relation| {
            self.works.get(&what.id).is_some_and(|work| work.is_over || work.ended.is_some())
        };
        self.monitors.values().chain(self.links.values()).any(has_ended)
    }

    pub(crate) fn has_monitors(&self) -> bool {
        !self.monitors.is_empty()
    }

    pub(crate) fn has_links(&self) -> bool {
        !self.links.is_empty()
    }
}
