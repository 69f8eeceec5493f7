//! Steps that are more than a call of the body: requests, suspensions, the end of a measured wait
//! (`scheduler/wake_waits.rs`), and the end of a terminated process. `process/request_table.rs` has
//! the protocol of requests.

use std::sync::Arc;

use procession_protocols::process::state::Seen;

#[cfg(feature = "door")]
use crate::Exit;
#[cfg(feature = "door")]
use crate::process::body::Step;
#[cfg(feature = "door")]
use crate::process::request::StackRequest;
use crate::process::request::{
    InspectAnswer, Inspection, MessageLog, ProcessRequest, TraceRequest,
};
use crate::process::slot::{Ready, Slot};
use crate::process::unwind::{drop_each, guarded};
use crate::process::waker;
use crate::relations::links;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::run::inspect_body;

impl LocalWorker {
    /// Runs a special step.
    #[cold]
    pub(crate) fn special_step(&self, ready: Ready, seen: Seen) {
        let slot = ready.slot();
        self.shared.processes.waits.end(slot, || self.shared.world.now());
        if seen.is_terminated() {
            let exit = links::doom(slot);
            return self.after_step(ready, seen, Err(exit));
        }
        // `Attend`
        let requests = &self.shared.processes.requests;
        let (asked, is_suspended) = slot.state.attend(|| requests.take(slot.index()));
        #[cfg(feature = "door")]
        let mut notings = Vec::new();
        let mut traces = Vec::new();
        for request in asked {
            match request {
                ProcessRequest::Inspect(answer) => inspect(slot, answer),
                #[cfg(feature = "door")]
                ProcessRequest::Stack(request) => notings.push(request),
                ProcessRequest::Trace(request) => traces.push(request),
            }
        }
        let trace = keep_traces(slot, traces);
        if is_suspended {
            #[cfg(feature = "door")]
            put_back(slot, notings);
            return self.hold(ready);
        }
        let traced = trace.map(|trace| TracedStep::begin(self, trace));
        #[cfg(feature = "door")]
        if !notings.is_empty() {
            let step = self.noting_step(slot, notings);
            drop(traced);
            return self.after_step(ready, seen, step);
        }
        let step = self.step_body::<true>(slot, &waker::borrowed(slot));
        drop(traced);
        self.after_step(ready, seen, step);
    }

    /// Hands the entry of a suspended process to its requests, if the process may not run.
    fn hold(&self, ready: Ready) {
        let slot = ready.slot();
        self.step.process.set(None);
        slot.state.yield_step();
        let requests = &self.shared.processes.requests;
        if let Err(may_run) = requests.hold(slot.index(), &slot.state, ready) {
            if let Some(timer) = may_run.timer {
                drop_each(timer.delete(&self.shared));
            }
            self.queues.push_continued(may_run.entry);
        }
    }

    /// Runs a step that notes its stacks. If the step notes no stack and the process continues, the
    /// next step does so.
    #[cfg(feature = "door")]
    fn noting_step(&self, slot: &Slot, requests: Vec<StackRequest>) -> Result<Step, Exit> {
        let noting = crate::process::stack_notes::Noting::begin();
        let step = self.step_body::<true>(slot, &waker::noting(slot));
        let stacks = noting.end();
        if !matches!(step, Ok(Step::Waits(_) | Step::GoesOn)) {
            return step;
        }
        if stacks.is_empty() && (matches!(step, Ok(Step::GoesOn)) || self.step.yields.get()) {
            put_back(slot, requests);
            return step;
        }
        for request in requests {
            (request.answer)(stacks.clone());
        }
        step
    }
}

/// Leaves the trace of the messages of a process for its next step. Ends a trace that is over.
/// Returns the log of the trace that continues.
fn keep_traces(slot: &Slot, traces: Vec<TraceRequest>) -> Option<Arc<MessageLog>> {
    if traces.is_empty() {
        return None;
    }
    let mut log = None;
    for request in traces.into_iter().filter(|request| !request.is_over()) {
        let kept = Arc::clone(&request.log);
        let (index, generation) = (slot.index(), slot.pins.generation());
        let request = ProcessRequest::Trace(request);
        // As in `put_back`, but the process need not have a step for it.
        if slot.shared().processes.requests.leave(index, generation, request).is_ok() {
            slot.state.ask_again();
            log = Some(kept);
        }
    }
    slot.set_trace(log.clone());
    log
}

/// Leaves requests for a later step, unless their callers have given up.
#[cfg(feature = "door")]
fn put_back(slot: &Slot, requests: Vec<StackRequest>) {
    let generation = slot.pins.generation();
    for request in requests.into_iter().filter(|request| !request.is_given_up()) {
        let request = ProcessRequest::Stack(request);
        let left = slot.shared().processes.requests.leave(slot.index(), generation, request);
        // If there is no room for a request any more, the request is dropped, which notifies its
        // caller. The process runs, so no entry is returned, and it is queued after this step.
        drop(left);
        let _ = slot.state.ask();
    }
}

/// The time of a step that records the messages that it sends.
struct TracedStep<'a>(&'a LocalWorker);

impl<'a> TracedStep<'a> {
    fn begin(local: &'a LocalWorker, trace: Arc<MessageLog>) -> Self {
        local.step.counts_for.set(std::ptr::null());
        local.step.trace.replace(Some(trace));
        Self(local)
    }
}

impl Drop for TracedStep<'_> {
    fn drop(&mut self) {
        self.0.step.counts_for.set(&*self.0.shared);
        drop(self.0.step.trace.take());
    }
}

/// Answers what the process shows of itself.
fn inspect(slot: &Slot, answer: InspectAnswer) {
    let generation = slot.pins.generation();
    let inspectors = slot.shared().processes.inspectors.of(slot.index(), generation);
    let inspected = guarded(|| {
        let mut shown = Inspection::default();
        inspect_body(slot, &mut shown);
        inspectors.iter().for_each(|inspector| inspector(&mut shown));
        shown
    });
    // Dropped only now, because an inspector may have been removed by itself. Its captures may
    // panic in their `Drop`, which must not happen while it unwinds.
    drop_each(inspectors);
    answer(inspected.map_err(|exit| exit.to_string()));
}
