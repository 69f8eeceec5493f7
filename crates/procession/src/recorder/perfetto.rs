//! The format of Perfetto: a list of packets in protocol buffers.
//!
//! The numbers of fields are those of `trace_packet.proto` and the files beside it. The extract
//! `tests/perfetto/trace.proto` has all that are used here.
//!
//! Each track is a sequence of packets of its own. The times of a sequence are differences from
//! packet to packet, and its names are numbers, which the packet that first uses a name explains.

use std::collections::BTreeMap;
use std::io;
use std::io::Write;

use crate::Pid;
use crate::recorder::collect::{Recording, TracedProcess};
use crate::recorder::flows;
use crate::recorder::protobuf::Message;
use crate::recorder::timeline;
use crate::recorder::timeline::Moment;
use crate::recorder::word::{EventWord, WordKind};

/// Writes to the user's writer when there is as much as this.
const WRITE_BYTES: usize = 64 << 10;

// The clocks of the format.
const CLOCK_MONOTONIC: u64 = 3;
/// The first number of a clock that a sequence defines for itself.
const CLOCK_OWN: u64 = 64;

// The tracks.
const PROGRAM: u64 = 1;
const WATCHDOG: u64 = 2;
const QUEUED: u64 = 3;
const AWAKE: u64 = 4;
const SENT: u64 = 5;
const WORKERS: u64 = 1 << 16;
const PROCESSES: u64 = 1 << 32;

// The names of annotations.
const PROCESS: u64 = 1;
const COUNT: u64 = 2;

/// The types of events.
#[derive(Clone, Copy)]
enum EventType {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// Writes a recording. `tracks` are the processes with tracks of their own.
pub(crate) fn write(recording: &Recording, tracks: &[Pid], to: impl Write) -> io::Result<()> {
    let workers: Vec<_> =
        (0..recording.workers.len()).map(|worker| timeline::of_worker(recording, worker)).collect();
    let flows = flows::find(&workers);
    let mut out = Output { to, packets: Message::default(), sequences: 0 };
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
    for (number, &pid) in tracks.iter().enumerate() {
        write_process(&mut out, recording, &workers, PROCESSES + number as u64, pid)?;
    }
    out.flush()
}

/// The packets that are not written yet.
struct Output<W> {
    to: W,
    packets: Message,
    /// The number of sequences that have begun.
    sequences: u64,
}

impl<W: Write> Output<W> {
    /// Adds a packet.
    fn packet(&mut self, write: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packets.message(1, write);
        if self.packets.bytes().len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(self.packets.bytes())?;
        self.packets.clear();
        self.to.flush()
    }

    /// Adds the description of a track.
    fn describe(
        &mut self,
        track: u64,
        parent: Option<u64>,
        name: &str,
        more: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        self.packet(|packet| {
            packet.message(60, |descriptor| {
                descriptor.number(1, track);
                descriptor.text(2, name);
                if let Some(parent) = parent {
                    descriptor.number(5, parent);
                }
                more(descriptor);
            });
        })
    }
}

/// A track, which is a sequence of packets.
struct Track {
    sequence: u64,
    /// The time of the last packet.
    time: u64,
    names: Interned,
    texts: Interned,
}

/// The names that a sequence has explained, with their numbers.
#[derive(Default)]
struct Interned(BTreeMap<String, u64>);

impl Interned {
    /// Returns the number of a name. It is new if the packet is to explain it.
    fn number(&mut self, name: &str) -> (u64, bool) {
        if let Some(&number) = self.0.get(name) {
            return (number, false);
        }
        let number = self.0.len() as u64 + 1;
        self.0.insert(name.to_owned(), number);
        (number, true)
    }
}

/// The contents of an event besides its type.
#[derive(Default)]
struct EventParts<'a> {
    name: Option<&'a str>,
    /// The value of the annotation `process`.
    process: Option<&'a str>,
    /// The value of the annotation `count`.
    count: Option<u32>,
    value: Option<u64>,
    begins: &'a [u64],
    ends: Option<u64>,
}

impl Track {
    /// Describes a track, and begins its sequence.
    fn begin<W: Write>(out: &mut Output<W>, track: u64, name: &str) -> io::Result<Self> {
        out.describe(track, Some(PROGRAM), name, |_| {})?;
        Self::begin_described(out, track)
    }

    fn begin_described<W: Write>(out: &mut Output<W>, track: u64) -> io::Result<Self> {
        out.sequences += 1;
        let sequence = out.sequences;
        out.packet(|packet| {
            packet.number(10, sequence);
            // The state of the sequence begins here.
            packet.number(13, 1);
            // ClockSnapshot: the clock of the sequence shows 0 when that of the system does.
            packet.message(6, |snapshot| {
                for (clock, is_incremental) in [(CLOCK_MONOTONIC, false), (CLOCK_OWN, true)] {
                    snapshot.message(1, |reading| {
                        reading.number(1, clock);
                        reading.number(2, 0);
                        if is_incremental {
                            reading.number(3, 1);
                        }
                    });
                }
                snapshot.number(2, CLOCK_MONOTONIC);
            });
            // InternedData: debug_annotation_names.
            packet.message(12, |data| {
                for (number, name) in [(PROCESS, "process"), (COUNT, "count")] {
                    data.message(3, |entry| {
                        entry.number(1, number);
                        entry.text(2, name);
                    });
                }
            });
            // TracePacketDefaults: the clock, and TrackEventDefaults with the track.
            packet.message(59, |defaults| {
                defaults.number(58, CLOCK_OWN);
                defaults.message(11, |event| event.number(11, track));
            });
        })?;
        Ok(Self { sequence, time: 0, names: Interned::default(), texts: Interned::default() })
    }

    /// Adds an event. Its time is not before that of the last one.
    fn event<W: Write>(
        &mut self,
        out: &mut Output<W>,
        at: u64,
        kind: EventType,
        parts: &EventParts<'_>,
    ) -> io::Result<()> {
        let at = at.max(self.time);
        let passed = at - std::mem::replace(&mut self.time, at);
        let name = parts.name.map(|name| (name, self.names.number(name)));
        let process = parts.process.map(|text| (text, self.texts.number(text)));
        out.packet(|packet| {
            packet.number(8, passed);
            packet.number(10, self.sequence);
            let is_new =
                |named: &Option<(&str, (u64, bool))>| named.is_some_and(|(_, (_, new))| new);
            if is_new(&name) || is_new(&process) {
                // InternedData: event_names, debug_annotation_string_values.
                packet.message(12, |data| {
                    for (field, named) in [(2, &name), (29, &process)] {
                        if let Some((text, (number, true))) = named {
                            data.message(field, |entry| {
                                entry.number(1, *number);
                                entry.text(2, text);
                            });
                        }
                    }
                });
            }
            packet.message(11, |event| {
                event.number(9, kind as u64);
                if let Some((_, (number, _))) = name {
                    event.number(10, number);
                }
                // DebugAnnotation: name and value.
                if let Some((_, (number, _))) = process {
                    event.message(4, |annotation| {
                        annotation.number(1, PROCESS);
                        annotation.number(17, number);
                    });
                }
                if let Some(count) = parts.count {
                    event.message(4, |annotation| {
                        annotation.number(1, COUNT);
                        annotation.number(3, count.into());
                    });
                }
                if let Some(value) = parts.value {
                    event.number(30, value);
                }
                parts.begins.iter().for_each(|&flow| event.fixed(47, flow));
                if let Some(flow) = parts.ends {
                    event.fixed(48, flow);
                }
            });
        })
    }

    fn instant<W: Write>(
        &mut self,
        out: &mut Output<W>,
        at: u64,
        name: &str,
        parts: EventParts<'_>,
    ) -> io::Result<()> {
        self.event(out, at, EventType::Instant, &EventParts { name: Some(name), ..parts })
    }

    fn end<W: Write>(&mut self, out: &mut Output<W>, at: u64) -> io::Result<()> {
        self.event(out, at, EventType::End, &EventParts::default())
    }
}

/// Returns the name of a process: its label, or the place of its spawn.
fn name_of(named: Option<&TracedProcess>) -> String {
    match named {
        Some(TracedProcess { label: Some(label), .. }) => label.clone(),
        Some(TracedProcess { place: Some(place), .. }) => {
            format!("{}:{}", place.file(), place.line())
        }
        _ => "process".to_owned(),
    }
}

/// The track of a worker.
struct WorkerTrack<'a> {
    recording: &'a Recording,
    track: Track,
    /// The names of processes and their PIDs, as text.
    texts: BTreeMap<(u32, u16), (String, String)>,
    /// The number of slices that have begun and not ended: a step, and a section in it.
    open: u32,
}

impl<'a> WorkerTrack<'a> {
    fn new(recording: &'a Recording, track: Track) -> Self {
        Self { recording, track, texts: BTreeMap::new(), open: 0 }
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
            // Those of a step begin at its slice.
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
                let parts = EventParts { name: Some("blocking section"), ..EventParts::default() };
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
        before: &str,
        begins: &[u64],
        ends: Option<u64>,
    ) -> io::Result<()> {
        let named = self.recording.names.of(word);
        let (name, pid) = self.texts.entry((word.slot(), word.generation())).or_insert_with(|| {
            (name_of(named), named.map_or_else(String::new, |named| named.pid.to_string()))
        });
        let long;
        let name = if before.is_empty() {
            name.as_str()
        } else {
            long = format!("{before}{name}");
            &long
        };
        let process = (!pid.is_empty()).then_some(pid.as_str());
        let parts = EventParts { name: Some(name), process, begins, ends, ..EventParts::default() };
        self.track.event(out, at, kind, &parts)
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

/// Writes the track of a process: its steps, and what made it ready.
fn write_process<W: Write>(
    out: &mut Output<W>,
    recording: &Recording,
    workers: &[Vec<Moment>],
    uuid: u64,
    pid: Pid,
) -> io::Result<()> {
    let is_it = |word: EventWord| {
        recording.names.of(word).is_some_and(|named| named.pid == pid)
            && (flows::is_step(word) || flows::is_wake(word))
    };
    // The times at which it begins and ends, and the worker.
    let mut events = Vec::new();
    for (worker, moments) in workers.iter().enumerate() {
        for (number, moment) in moments.iter().enumerate().filter(|(_, moment)| is_it(moment.word))
        {
            let rest = moments[number + 1..].iter();
            let end = rest.clone().find(|moment| moment.follows_gap || ends_step(moment.word));
            let end = end.map_or(recording.stamps.end.1, |end| end.at);
            events.push((moment.at, end, worker, moment.word));
        }
    }
    events.sort_by_key(|&(at, ..)| at);
    let named = events.first().and_then(|&(.., word)| recording.names.of(word));
    let mut track = Track::begin(out, uuid, &format!("{} {pid}", name_of(named)))?;
    for (at, end, worker, word) in events {
        if flows::is_step(word) {
            let name = format!("step on worker {worker}");
            let parts = EventParts { name: Some(&name), ..EventParts::default() };
            track.event(out, at, EventType::Begin, &parts)?;
            track.end(out, end)?;
        } else {
            let name = format!("woken by worker {worker}");
            track.instant(out, at, &name, EventParts::default())?;
        }
    }
    Ok(())
}
