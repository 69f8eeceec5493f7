//! `procession trace FILE`: what a file of `record` or `dump` says of the processor time.
//!
//! The reader knows the part of Perfetto's format that Procession writes. A file may end within a
//! packet, because a recorder may be killed: what is before it counts.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde_json::{Value, json};

use crate::format::{number, plain};
use crate::see::error::SeeError;

/// The maximum size of a compressed group of packets. The writer makes them of 64 KiB, or of one
/// packet.
const GROUP_MAX: usize = 16 << 20;
/// The maximum number of rows.
const ROWS_MAX: usize = 30;

// The fields of messages, and the values of `TrackEvent.type`.
const PACKET: u64 = 1;
const COMPRESSED: u64 = 50;
const SLICE_BEGIN: u64 = 1;
const INSTANT: u64 = 3;

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message. Ends at the first that is not whole.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.bytes(8)?),
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.bytes(length)?)
            }
            5 => Field::Bytes(self.bytes(4)?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

fn number_of(message: &[u8], field: u64) -> Option<u64> {
    Fields(message).find_map(|found| match found {
        (name, Field::Number(value)) if name == field => Some(value),
        _ => None,
    })
}

fn messages(message: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    Fields(message).filter_map(move |found| match found {
        (name, Field::Bytes(bytes)) if name == field => Some(bytes),
        _ => None,
    })
}

fn message(message: &[u8], field: u64) -> Option<&[u8]> {
    messages(message, field).next()
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A sequence of packets: the events of one track.
#[derive(Default)]
struct Sequence {
    track: u64,
    time: u64,
    names: HashMap<u64, String>,
}

/// What a file says.
#[derive(Default)]
struct Summary {
    tracks: HashMap<u64, String>,
    sequences: HashMap<u64, Sequence>,
    /// The number of samples by the label and the location of the process.
    samples: BTreeMap<String, u64>,
    steps: u64,
    stalls: u64,
    /// The times of all events.
    times: Option<RangeInclusive<u64>>,
}

impl Summary {
    /// Reads the packets of a trace.
    fn read(&mut self, trace: &[u8]) {
        for packet in messages(trace, PACKET) {
            match message(packet, COMPRESSED) {
                Some(compressed) => {
                    // A group that cannot be decompressed is not whole.
                    let group = decompress_to_vec_zlib_with_limit(compressed, GROUP_MAX);
                    for packet in group.iter().flat_map(|group| messages(group, PACKET)) {
                        self.packet(packet);
                    }
                }
                None => self.packet(packet),
            }
        }
    }

    fn packet(&mut self, packet: &[u8]) {
        if let Some(descriptor) = message(packet, 60) {
            let (track, name) = (number_of(descriptor, 1), message(descriptor, 2));
            self.tracks.insert(track.unwrap_or(0), name.map(text_of).unwrap_or_default());
        }
        let Some(sequence) = number_of(packet, 10) else { return };
        let sequence = self.sequences.entry(sequence).or_default();
        if let Some(defaults) = message(packet, 59).and_then(|defaults| message(defaults, 11)) {
            // The state of the sequence begins here.
            let track = number_of(defaults, 11).unwrap_or(0);
            *sequence = Sequence { track, ..Sequence::default() };
        }
        for name in message(packet, 12).into_iter().flat_map(|data| messages(data, 2)) {
            if let (Some(number), Some(name)) = (number_of(name, 1), message(name, 2)) {
                sequence.names.insert(number, text_of(name));
            }
        }
        let Some(event) = message(packet, 11) else { return };
        sequence.time = sequence.time.saturating_add(number_of(packet, 8).unwrap_or(0));
        let at = sequence.time;
        let times = self.times.get_or_insert(at..=at);
        *times = at.min(*times.start())..=at.max(*times.end());
        let name = number_of(event, 10).and_then(|name| sequence.names.get(&name));
        let name = name.map_or("", String::as_str);
        let track = self.tracks.get(&sequence.track).map_or("", String::as_str);
        match number_of(event, 9) {
            // The other slices of a worker are sections within steps.
            Some(SLICE_BEGIN) if track.starts_with("worker ") && name != "blocking section" => {
                self.steps += 1;
            }
            Some(INSTANT) if track == "samples" => {
                *self.samples.entry(name.to_owned()).or_default() += 1;
            }
            Some(INSTANT) if track == "watchdog" => self.stalls += 1,
            _ => {}
        }
    }

    fn seconds(&self) -> f64 {
        self.times.as_ref().map_or(0.0, |times| (times.end() - times.start()) as f64 / 1e9)
    }

    /// Returns the samples, the most frequent first.
    fn rows(&self) -> Vec<(&str, u64)> {
        let mut rows: Vec<_> =
            self.samples.iter().map(|(name, &count)| (name.as_str(), count)).collect();
        rows.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        rows
    }

    fn json(&self) -> Value {
        let rows =
            self.rows().into_iter().map(|(name, count)| json!({"name": name, "samples": count}));
        json!({
            "version": 1, "seconds": self.seconds(), "steps": self.steps, "stalls": self.stalls,
            "samples": rows.collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let rows = self.rows();
        let total: u64 = rows.iter().map(|row| row.1).sum();
        let mut text = format!(
            "{:.1} s, {} steps, {} stalls, {} samples\n",
            self.seconds(),
            number(&self.steps.into()),
            self.stalls,
            number(&total.into())
        );
        if total > 0 {
            text += "  CPU%  SAMPLES  PROCESS\n";
        }
        for (name, count) in rows.iter().take(ROWS_MAX) {
            let share = *count as f64 * 100.0 / total as f64;
            // Ignored: a string takes everything.
            let _ =
                writeln!(text, "{share:>6.1}  {:>7}  {}", number(&(*count).into()), plain(name));
        }
        if rows.len() > ROWS_MAX {
            let _ = writeln!(text, "and {} more", rows.len() - ROWS_MAX);
        }
        text
    }
}

/// Returns what a file says, as JSON or as text.
pub(super) fn summary(path: &str, json: bool) -> Result<String, SeeError> {
    let trace = fs::read(path).map_err(|error| SeeError::Unread(path.to_owned(), error))?;
    let mut summary = Summary::default();
    summary.read(&trace);
    if summary.tracks.is_empty() {
        return Err(SeeError::NoTrace(path.to_owned()));
    }
    Ok(if json { format!("{}\n", summary.json()) } else { summary.text() })
}

#[cfg(test)]
mod tests {
    use procession::Scheduler;

    use super::Summary;

    #[test]
    fn traces_one_after_the_other_are_read_as_one() {
        let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
        let scheduler = scheduler.expect("it starts no thread");
        scheduler.block_on(async { procession::spawn(async {}).await }).expect("it ends");
        let mut bytes = scheduler.dump().to_bytes();
        let mut once = Summary::default();
        once.read(&bytes);
        assert!(once.steps >= 1);
        bytes.extend(bytes.clone());
        let mut twice = Summary::default();
        twice.read(&bytes);
        assert_eq!(twice.steps, 2 * once.steps);
        assert_eq!(twice.times, once.times);
    }

    #[test]
    fn what_is_not_whole_or_no_trace_does_no_harm() {
        let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
        let scheduler = scheduler.expect("it starts no thread");
        scheduler.block_on(async { procession::spawn(async {}).await }).expect("it ends");
        let bytes = scheduler.dump().to_bytes();
        for end in 0..bytes.len() {
            Summary::default().read(&bytes[..end]);
        }
        for seed in 0..=u8::MAX {
            let noise: Vec<u8> = (0..200_u8).map(|at| seed.wrapping_mul(at ^ 0x5b)).collect();
            Summary::default().read(&noise);
        }
    }
}
