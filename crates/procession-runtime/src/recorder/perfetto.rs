//! The format of Perfetto: a list of packets in protocol buffers.
//!
//! The numbers of fields are defined in `trace_packet.proto` and the files of its directory. The
//! extract `tests/perfetto/trace.proto` has all numbers that are used here.
//!
//! Each track is a separate sequence of packets. The times of a sequence are differences from
//! packet to packet, and its names are numbers, which the packet that first uses a name explains.
//! With the feature `door`, packets are compressed some 64 KiB at a time, which makes a trace
//! four times smaller.

use std::io;
use std::io::Write;
use std::panic::Location;
use std::ptr;

use self::track::{EventParts, EventType, Output, PROGRAM, Track};
use procession_protocols::util::sorted_map::SortedMap;

use crate::Pid;
use crate::recorder::collect::{Recording, TracedProcess};
use crate::recorder::flows;
use crate::recorder::timeline;
use crate::recorder::timeline::Moment;
use crate::scheduler::log::{EventWord, WordKind};
use crate::util::sort::sort_by_key;

mod track;

// The tracks, besides `PROGRAM`.
const WATCHDOG: u64 = 2;
const QUEUED: u64 = 3;
const AWAKE: u64 = 4;
const SENT: u64 = 5;
const SAMPLES: u64 = 6;
const WORKERS: u64 = 1 << 16;
const PROCESSES: u64 = 1 << 32;

/// Writes a recording. `tracks` are the processes with tracks of their own.
pub(crate) fn write(recording: &Recording, tracks: &[Pid], to: impl Write) -> io::Result<()> {
    let workers: Vec<_> =
        (0..recording.workers.len()).map(|worker| timeline::of_worker(recording, worker)).collect();
    let flows = flows::find(&workers);
    // So that the flows of several traces of one program have different numbers. Their files may be
    // joined.
    let mut out = Output::new(to, recording.stamps.begin.1);
    out.describe(PROGRAM, None, &recording.name, |descriptor| {
        // ProcessDescriptor: pid, process_name.
        descriptor.message(3, |process| {
            process.number(1, std::process::id().into());
            process.text(6, &recording.name);
        });
    })?;
    for (number, moments) in workers.iter().enumerate().filter(|(_, moments)| !moments.is_empty()) {
        let name = format!("worker {number}");
        let track = Track::begin(&mut out, WORKERS + number as u64, &name)?;
        let flows = (&flows.numbers[number][..], flows.recorded);
        WorkerTrack::new(recording, track).write(&mut out, moments, flows)?;
    }
    write_watchdog(&mut out, recording)?;
    let mut events = process_events(recording, &workers, tracks);
    for (number, &pid) in tracks.iter().enumerate() {
        let events = events.remove(&pid).unwrap_or_default();
        write_process(&mut out, recording, PROCESSES + number as u64, (pid, events))?;
    }
    out.flush()
}

/// Returns the name of a process: its label, or the location of its spawn.
fn name_of(named: Option<&TracedProcess>) -> String {
    match named {
        Some(TracedProcess { label: Some(label), .. }) => label.clone(),
        Some(TracedProcess { location: Some(location), .. }) => text_of(location),
        _ => "process".to_owned(),
    }
}

fn text_of(location: &Location<'_>) -> String {
    format!("{}:{}", location.file(), location.line())
}

/// The numbers of a process in a track.
#[derive(Clone, Copy)]
struct ProcessNumbers {
    name: u64,
    /// `None` if the PID is not known.
    pid: Option<u64>,
}

/// The track of a worker.
struct WorkerTrack<'a> {
    recording: &'a Recording,
    track: Track,
    /// The numbers of processes in the track, by slot and the low bits of the generation.
    processes: SortedMap<(u32, u16), ProcessNumbers>,
    /// The numbers of processes that are named by their locations. There are few locations.
    locations: Vec<(&'static Location<'static>, u64)>,
    /// The numbers of names with a word before them.
    longer: SortedMap<(&'static str, u64), u64>,
    /// The number of slices that have begun and not ended: a step, and a section in it.
    open: u32,
}

impl<'a> WorkerTrack<'a> {
    fn new(recording: &'a Recording, track: Track) -> Self {
        let (processes, longer) = (SortedMap::new(), SortedMap::new());
        Self { recording, track, processes, locations: Vec::new(), longer, open: 0 }
    }

    fn write<W: Write>(
        mut self,
        out: &mut Output<W>,
        moments: &[Moment],
        (flows, recorded): (&[u64], u64),
    ) -> io::Result<()> {
        let mut begins = Vec::new();
        for (number, moment) in moments.iter().enumerate() {
            if moment.follows_gap {
                self.close(out, moment.at, 0)?;
                self.track.instant(out, moment.at, "events lost", EventParts::default())?;
            }
            if flows::is_step(moment.word) {
                begins.clear();
                for (later, &flow) in moments[number + 1..].iter().zip(&flows[number + 1..]) {
                    // The flow of the step after it begins here if no wake-up was recorded.
                    if flow > 0 && (is_of_step(later.word) || flow > recorded) {
                        begins.push(flow);
                    }
                    if later.follows_gap || ends_step(later.word) {
                        break;
                    }
                }
            }
            self.moment(out, *moment, flows[number], &begins)?;
        }
        self.close(out, self.recording.stamps.end.1, 0)
    }

    /// Ends slices until `open` are left.
    fn close<W: Write>(&mut self, out: &mut Output<W>, at: u64, open: u32) -> io::Result<()> {
        while self.open > open {
            self.open -= 1;
            self.track.end(out, at)?;
        }
        Ok(())
    }

    fn moment<W: Write>(
        &mut self,
        out: &mut Output<W>,
        Moment { at, word, .. }: Moment,
        flow: u64,
        begins: &[u64],
    ) -> io::Result<()> {
        let Some(kind) = word.kind() else { return Ok(()) };
        if ends_step(word) {
            self.close(out, at, 0)?;
        }
        let count = || EventParts { count: Some(word.slot()), ..EventParts::default() };
        match kind {
            WordKind::Step | WordKind::NextStep => {
                self.open = 1;
                let ends = (flow > 0).then_some(flow);
                self.with_process(out, at, EventType::Begin, word, "", begins, ends)
            }
            // The events of a step begin at its slice.
            WordKind::Rouse | WordKind::Wake | WordKind::Spawn => {
                if flow == 0 || self.open > 0 && is_of_step(word) {
                    return Ok(());
                }
                self.with_process(out, at, EventType::Instant, word, "wake ", &[flow], None)
            }
            WordKind::Call => {
                self.with_process(out, at, EventType::Instant, word, "call ", &[], None)
            }
            WordKind::Fail => self.track.instant(out, at, "failed", EventParts::default()),
            WordKind::End => self.track.instant(out, at, "ended", EventParts::default()),
            WordKind::Steal => {
                let name = format!("stole from worker {}", word.argument());
                self.track.instant(out, at, &name, EventParts::default())
            }
            WordKind::Timers => self.track.instant(out, at, "timers fired", count()),
            WordKind::Descriptors => self.track.instant(out, at, "descriptors ready", count()),
            WordKind::Block if self.open == 1 => {
                self.open = 2;
                let name = Some(self.track.name("blocking section"));
                let parts = EventParts { name, ..EventParts::default() };
                self.track.event(out, at, EventType::Begin, &parts)
            }
            WordKind::Unblock => self.close(out, at, 1),
            _ => Ok(()),
        }
    }

    /// Adds an event about the process that the word names.
    #[expect(clippy::too_many_arguments, reason = "each is a part of one event")]
    fn with_process<W: Write>(
        &mut self,
        out: &mut Output<W>,
        at: u64,
        kind: EventType,
        word: EventWord,
        before: &'static str,
        begins: &[u64],
        ends: Option<u64>,
    ) -> io::Result<()> {
        let ProcessNumbers { mut name, pid } = self.numbers(word);
        if !before.is_empty() {
            name = *self.longer.get_or_insert_with((before, name), || {
                let name = name_of(self.recording.names.of(word));
                self.track.name(&format!("{before}{name}"))
            });
        }
        let parts = EventParts { name: Some(name), pid, begins, ends, ..EventParts::default() };
        self.track.event(out, at, kind, &parts)
    }

    /// Returns the numbers of the process that the word names.
    fn numbers(&mut self, word: EventWord) -> ProcessNumbers {
        let key = (word.slot(), word.generation());
        if let Some(&known) = self.processes.get(&key) {
            return known;
        }
        let named = self.recording.names.of(word);
        let name = match named {
            Some(TracedProcess { label: None, location: Some(location), .. }) => {
                self.location(location)
            }
            _ => self.track.name(&name_of(named)),
        };
        let pid = named.map(|named| self.track.new_pid(&named.pid.to_string()));
        let numbers = ProcessNumbers { name, pid };
        self.processes.insert(key, numbers);
        numbers
    }

    /// Returns the number of a location as a name.
    fn location(&mut self, location: &'static Location<'static>) -> u64 {
        if let Some((_, number)) =
            self.locations.iter().find(|(known, _)| ptr::eq(*known, location))
        {
            return *number;
        }
        let number = self.track.name(&text_of(location));
        self.locations.push((location, number));
        number
    }
}

/// Returns `true` if the step before this word was over when it was recorded.
fn ends_step(word: EventWord) -> bool {
    use WordKind::{Park, Search, Unpark};
    flows::is_step(word) || matches!(word.kind(), Some(Search | Park | Unpark))
}

/// Returns `true` if the running step made a process ready.
fn is_of_step(word: EventWord) -> bool {
    matches!(word.kind(), Some(WordKind::Wake | WordKind::Spawn))
}

/// Writes the track of the watchdog, and the counters.
fn write_watchdog<W: Write>(out: &mut Output<W>, recording: &Recording) -> io::Result<()> {
    let moments = timeline::of_watchdog(recording);
    if moments.is_empty() {
        return Ok(());
    }
    let mut track = Track::begin(out, WATCHDOG, "watchdog")?;
    for Moment { at, word, .. } in
        moments.iter().filter(|moment| moment.word.kind() == Some(WordKind::Stall))
    {
        let name = format!("worker {} is stalled", word.argument());
        track.instant(out, *at, &name, EventParts::default())?;
    }
    write_samples(out, recording, &moments)?;
    for (uuid, name, kind) in [
        (QUEUED, "processes in queues", WordKind::Queued),
        (AWAKE, "workers awake", WordKind::Awake),
        (SENT, "messages per second", WordKind::Sent),
    ] {
        out.describe(uuid, Some(PROGRAM), name, |descriptor| {
            // CounterDescriptor: unit, a count.
            descriptor.message(8, |counter| counter.number(3, 2));
        })?;
        let mut track = Track::begin_described(out, uuid)?;
        let mut before = None;
        for Moment { at, word, .. } in
            moments.iter().filter(|moment| moment.word.kind() == Some(kind))
        {
            let mut value = Some(u64::from(word.slot()));
            if kind == WordKind::Sent {
                let (then, sent) = before.replace((*at, word.slot())).unwrap_or((*at, 0));
                let more = u64::from(word.slot().wrapping_sub(sent));
                value = (more * 1_000_000_000).checked_div(at - then);
            }
            if value.is_some() {
                let parts = EventParts { value, ..EventParts::default() };
                track.event(out, *at, EventType::Counter, &parts)?;
            }
        }
    }
    Ok(())
}

/// Writes the track of the samples: which processes were in steps at each look of the watchdog.
fn write_samples<W: Write>(
    out: &mut Output<W>,
    recording: &Recording,
    moments: &[Moment],
) -> io::Result<()> {
    let mut track = Track::begin(out, SAMPLES, "samples")?;
    let mut processes = SortedMap::new();
    for Moment { at, word, .. } in
        moments.iter().filter(|moment| moment.word.kind() == Some(WordKind::Sample))
    {
        let key = (word.slot(), word.generation());
        let numbers = *processes.get_or_insert_with(key, || {
            let named = recording.names.of(*word);
            ProcessNumbers {
                name: track.name(&label_and_location(named)),
                pid: named.map(|named| track.new_pid(&named.pid.to_string())),
            }
        });
        let parts =
            EventParts { name: Some(numbers.name), pid: numbers.pid, ..EventParts::default() };
        track.event(out, *at, EventType::Instant, &parts)?;
    }
    Ok(())
}

/// Returns the label of a process, if it has one, and the location of its spawn.
fn label_and_location(named: Option<&TracedProcess>) -> String {
    match named {
        Some(TracedProcess { label: Some(label), location: Some(location), .. }) => {
            format!("{label} at {}", text_of(location))
        }
        named => name_of(named),
    }
}

/// A step of a process, or its wake-up.
struct ProcessEvent {
    at: u64,
    /// The time at which the step is over.
    end: u64,
    worker: usize,
    word: EventWord,
}

/// Returns the events of processes, each in the order of the times.
fn process_events(
    recording: &Recording,
    workers: &[Vec<Moment>],
    tracks: &[Pid],
) -> SortedMap<Pid, Vec<ProcessEvent>> {
    let mut events: SortedMap<_, _> = tracks.iter().map(|&pid| (pid, Vec::new())).collect();
    for (worker, moments) in workers.iter().enumerate() {
        let mut end = recording.stamps.end.1;
        // From the last, because the end of a step is a later event.
        for &Moment { at, word, follows_gap, .. } in moments.iter().rev() {
            if (flows::is_step(word) || flows::is_wake(word))
                && let Some(named) = recording.names.of(word)
                && let Some(events) = events.get_mut(&named.pid)
            {
                events.push(ProcessEvent { at, end, worker, word });
            }
            if follows_gap || ends_step(word) {
                end = at;
            }
        }
    }
    for events in events.values_mut() {
        sort_by_key(events, |event| event.at);
        // Most times are interpolated, so steps on two workers may overlap.
        let mut next = u64::MAX;
        for event in events.iter_mut().rev().filter(|event| flows::is_step(event.word)) {
            event.end = event.end.min(next);
            next = event.at;
        }
    }
    events
}

/// Writes the track of a process: its steps, and what made it ready.
fn write_process<W: Write>(
    out: &mut Output<W>,
    recording: &Recording,
    uuid: u64,
    (pid, events): (Pid, Vec<ProcessEvent>),
) -> io::Result<()> {
    let named = events.first().and_then(|event| recording.names.of(event.word));
    let mut track = Track::begin(out, uuid, &format!("{} {pid}", name_of(named)))?;
    // The end of the slice that has begun. It is written before all later events, since times in a
    // track only grow.
    let mut open: Option<u64> = None;
    for ProcessEvent { at, end, worker, word } in events {
        if let Some(end) = open.take_if(|end| *end <= at) {
            track.end(out, end)?;
        }
        if flows::is_step(word) {
            let name = Some(track.name(&format!("step on worker {worker}")));
            let parts = EventParts { name, ..EventParts::default() };
            track.event(out, at, EventType::Begin, &parts)?;
            open = Some(end);
        } else {
            let name = format!("woken by worker {worker}");
            track.instant(out, at, &name, EventParts::default())?;
        }
    }
    open.map_or(Ok(()), |end| track.end(out, end))
}

#[cfg(test)]
mod tests {
    use procession_protocols::util::sorted_map::SortedMap;

    use super::process_events;
    use crate::Pid;
    use crate::recorder::collect::{Chunks, Recording, Stamps, TracedNames, TracedProcess};
    use crate::recorder::timeline::Moment;
    use crate::scheduler::log::{EventWord, WordKind};

    #[test]
    fn a_step_is_over_when_the_process_begins_its_next_step() {
        let pid = Pid::local(1, 5, 1);
        let process = TracedProcess { pid, label: None, location: None };
        let recording = Recording {
            name: String::new(),
            workers: Vec::new(),
            watchdog: Chunks::default(),
            stamps: Stamps { begin: (0, 0), end: (50, 50) },
            names: TracedNames(SortedMap::from_iter([((5, 1), process)])),
        };
        let moment = |at, kind, slot| {
            let word = EventWord::of_step(kind, slot, 1, 1);
            Moment { at, word, follows_gap: false }
        };
        let one = vec![
            moment(10, WordKind::Step, 5),
            moment(12, WordKind::Wake, 5),
            moment(30, WordKind::Step, 6),
            moment(40, WordKind::Park, 0),
        ];
        let other = vec![moment(20, WordKind::Step, 5), moment(25, WordKind::Wake, 6)];
        let events = process_events(&recording, &[one, other], &[pid]);
        let times: Vec<_> =
            events[&pid].iter().map(|event| (event.at, event.end, event.worker)).collect();
        assert_eq!(times, [(10, 20, 0), (12, 30, 0), (20, 50, 1)]);
    }
}
