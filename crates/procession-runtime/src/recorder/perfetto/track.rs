//! The packets of a trace, and the tracks that are made from the packets.

use std::io;
use std::io::Write;
use std::mem;

use procession_protocols::util::sorted_map::SortedMap;

use crate::recorder::protobuf::Message;

/// Writes packets when there is as much as this.
const WRITE_BYTES: usize = 64 << 10;

/// How much the compression tries, up to 10. A trace repeats itself so much that more finds little.
#[cfg(feature = "door")]
const COMPRESSION_LEVEL: u8 = 2;

/// The track of the program, which has all others.
pub(super) const PROGRAM: u64 = 1;

// The clocks of the format.
const CLOCK_MONOTONIC: u64 = 3;
/// The first number of a clock that a sequence defines for itself.
const CLOCK_OWN: u64 = 64;

// The names of annotations.
const PROCESS: u64 = 1;
const COUNT: u64 = 2;

/// The types of events.
#[derive(Clone, Copy)]
pub(super) enum EventType {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// The packets that are not written yet.
pub(super) struct Output<W> {
    to: W,
    packets: Message,
    /// The number of sequences that have begun.
    sequences: u64,
    /// The number of a flow is this much more than its number in the recording.
    flows_from: u64,
}

impl<W: Write> Output<W> {
    pub(super) fn new(to: W, flows_from: u64) -> Self {
        Self { to, packets: Message::default(), sequences: 0, flows_from }
    }

    /// Adds a packet.
    fn packet(&mut self, write: impl FnOnce(&mut Message)) -> io::Result<()> {
        self.packets.message(1, write);
        if self.packets.bytes().len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the packets, with the feature `door` in one packet that has them compressed.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        #[cfg(feature = "door")]
        {
            let bytes = self.packets.bytes();
            let compressed = miniz_oxide::deflate::compress_to_vec_zlib(bytes, COMPRESSION_LEVEL);
            self.packets.clear();
            self.packets.message(1, |packet| packet.data(50, &compressed));
        }
        self.to.write_all(self.packets.bytes())?;
        self.packets.clear();
        self.to.flush()
    }

    /// Adds the description of a track.
    pub(super) fn describe(
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
pub(super) struct Track {
    sequence: u64,
    /// The time of the last packet.
    time: u64,
    /// The names of events, with their numbers.
    names: SortedMap<String, u64>,
    /// The number of PIDs that have numbers.
    pids: u64,
    /// What explains numbers, for the next packet.
    unexplained: Message,
}

/// The contents of an event besides its type. Names and PIDs are numbers of the track.
#[derive(Default)]
pub(super) struct EventParts<'a> {
    pub(super) name: Option<u64>,
    /// The value of the annotation `process`.
    pub(super) pid: Option<u64>,
    /// The value of the annotation `count`.
    pub(super) count: Option<u32>,
    pub(super) value: Option<u64>,
    pub(super) begins: &'a [u64],
    pub(super) ends: Option<u64>,
}

impl EventParts<'_> {
    fn write(&self, event: &mut Message, flows_from: u64) {
        let flow = |number: u64| flows_from.wrapping_add(number);
        if let Some(name) = self.name {
            event.number(10, name);
        }
        // DebugAnnotation: name and value.
        if let Some(pid) = self.pid {
            event.message(4, |annotation| {
                annotation.number(1, PROCESS);
                annotation.number(17, pid);
            });
        }
        if let Some(count) = self.count {
            event.message(4, |annotation| {
                annotation.number(1, COUNT);
                annotation.number(3, count.into());
            });
        }
        if let Some(value) = self.value {
            event.number(30, value);
        }
        self.begins.iter().for_each(|&number| event.fixed(47, flow(number)));
        if let Some(number) = self.ends {
            event.fixed(48, flow(number));
        }
    }
}

impl Track {
    /// Describes a track, and begins its sequence.
    pub(super) fn begin<W: Write>(out: &mut Output<W>, track: u64, name: &str) -> io::Result<Self> {
        out.describe(track, Some(PROGRAM), name, |_| {})?;
        Self::begin_described(out, track)
    }

    pub(super) fn begin_described<W: Write>(out: &mut Output<W>, track: u64) -> io::Result<Self> {
        out.sequences += 1;
        let sequence = out.sequences;
        out.packet(|packet| {
            packet.number(10, sequence);
            // The state of the sequence begins here.
            packet.number(13, 1);
            // ClockSnapshot: the clock of the sequence shows 0 when the clock of the system does.
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
                    explain(data, 3, number, name);
                }
            });
            // TracePacketDefaults: the clock, and TrackEventDefaults with the track.
            packet.message(59, |defaults| {
                defaults.number(58, CLOCK_OWN);
                defaults.message(11, |event| event.number(11, track));
            });
        })?;
        let (names, unexplained) = (SortedMap::new(), Message::default());
        Ok(Self { sequence, time: 0, names, pids: 0, unexplained })
    }

    /// Returns the number of a name.
    pub(super) fn name(&mut self, name: &str) -> u64 {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), number);
        explain(&mut self.unexplained, 2, number, name);
        number
    }

    /// Returns a number for a PID that does not have a number yet.
    pub(super) fn new_pid(&mut self, pid: &str) -> u64 {
        self.pids += 1;
        explain(&mut self.unexplained, 29, self.pids, pid);
        self.pids
    }

    /// Adds an event. Its time is not before the time of the previous event.
    pub(super) fn event<W: Write>(
        &mut self,
        out: &mut Output<W>,
        at: u64,
        kind: EventType,
        parts: &EventParts<'_>,
    ) -> io::Result<()> {
        let at = at.max(self.time);
        let passed = at - mem::replace(&mut self.time, at);
        let flows_from = out.flows_from;
        out.packet(|packet| {
            packet.number(8, passed);
            packet.number(10, self.sequence);
            if !self.unexplained.bytes().is_empty() {
                packet.data(12, self.unexplained.bytes());
                self.unexplained.clear();
            }
            packet.message(11, |event| {
                event.number(9, kind as u64);
                parts.write(event, flows_from);
            });
        })
    }

    pub(super) fn instant<W: Write>(
        &mut self,
        out: &mut Output<W>,
        at: u64,
        name: &str,
        parts: EventParts<'_>,
    ) -> io::Result<()> {
        let name = Some(self.name(name));
        self.event(out, at, EventType::Instant, &EventParts { name, ..parts })
    }

    pub(super) fn end<W: Write>(&mut self, out: &mut Output<W>, at: u64) -> io::Result<()> {
        self.event(out, at, EventType::End, &EventParts::default())
    }
}

/// Adds what a number means to `InternedData`. The field depends on the kind of text.
fn explain(data: &mut Message, field: u32, number: u64, text: &str) {
    data.message(field, |entry| {
        entry.number(1, number);
        entry.text(2, text);
    });
}
