//! A reader of the traces that Procession writes, which knows nothing of how they are written.

use std::collections::{BTreeMap, BTreeSet};

use miniz_oxide::inflate::decompress_to_vec_zlib;

/// A field of a message in protocol buffers.
#[derive(Clone, Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message, by number and in their order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("the message is whole");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        unreachable!("the message is whole")
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_first_chunk().expect("the message is whole");
                bytes = rest;
                Field::Number(u64::from_le_bytes(*value))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("no field has the type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

fn messages<'a>(of: &[(u64, Field<'a>)], number: u64) -> Vec<Vec<(u64, Field<'a>)>> {
    of.iter()
        .filter_map(|(field, value)| match value {
            Field::Bytes(bytes) if *field == number => Some(fields(bytes)),
            _ => None,
        })
        .collect()
}

fn numbers(of: &[(u64, Field<'_>)], number: u64) -> Vec<u64> {
    of.iter()
        .filter_map(|(field, value)| match value {
            Field::Number(value) if *field == number => Some(*value),
            _ => None,
        })
        .collect()
}

fn text(of: &[(u64, Field<'_>)], number: u64) -> String {
    let text = of.iter().find_map(|(field, value)| match value {
        Field::Bytes(bytes) if *field == number => Some(String::from_utf8_lossy(bytes).into()),
        _ => None,
    });
    text.unwrap_or_default()
}

/// A trace, as a viewer sees it.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// The names of the tracks.
    pub(crate) tracks: Vec<String>,
    /// The names of all slices and instants, with their numbers.
    pub(crate) names: BTreeMap<String, usize>,
    /// The number of flows.
    pub(crate) flows: usize,
    /// The number of flows that end before they begin.
    pub(crate) backwards: usize,
}

/// Returns the packets of a trace, which are compressed if there is the feature `door`.
fn decompressed(bytes: &[u8]) -> Vec<u8> {
    let pieces = messages(&fields(bytes), 1).into_iter().map(|packet| match packet[..] {
        [(50, Field::Bytes(packets))] => {
            Some(decompress_to_vec_zlib(packets).expect("it is compressed"))
        }
        _ => None,
    });
    let pieces: Option<Vec<_>> = pieces.collect();
    pieces.map_or_else(|| bytes.to_vec(), |pieces| pieces.concat())
}

/// Decodes a trace. Every slice ends, every flow has both ends, and every name is explained.
#[track_caller]
pub(crate) fn decode(bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    // By sequence: the time, the number of open slices, and the names.
    let mut sequences = BTreeMap::<u64, (u64, u32, BTreeMap<u64, String>)>::new();
    let (mut begins, mut ends) = (BTreeMap::new(), BTreeMap::new());
    for packet in messages(&fields(&decompressed(bytes)), 1) {
        for track in messages(&packet, 60) {
            decoded.tracks.push(text(&track, 2));
        }
        let Some(&sequence) = numbers(&packet, 10).first() else { continue };
        let (time, open, names) = sequences.entry(sequence).or_default();
        for data in messages(&packet, 12) {
            names
                .extend(messages(&data, 2).iter().map(|name| (numbers(name, 1)[0], text(name, 2))));
        }
        for event in messages(&packet, 11) {
            *time += numbers(&packet, 8)[0];
            match numbers(&event, 9)[0] {
                2 => *open = open.checked_sub(1).expect("a slice ends that has begun"),
                kind @ (1 | 3) => {
                    *open += u32::from(kind == 1);
                    let name = names[&numbers(&event, 10)[0]].clone();
                    *decoded.names.entry(name).or_default() += 1;
                }
                kind => assert_eq!(kind, 4, "no other type is known"),
            }
            for (field, found) in [(47, &mut begins), (48, &mut ends)] {
                for flow in numbers(&event, field) {
                    assert_eq!(found.insert(flow, *time), None, "a flow has one such end");
                }
            }
        }
    }
    assert!(sequences.values().all(|&(_, open, _)| open == 0), "every slice ends");
    let both: [BTreeSet<_>; 2] = [&begins, &ends].map(|found| found.keys().collect());
    assert_eq!(both[0], both[1], "every flow has both ends");
    decoded.flows = begins.len();
    decoded.backwards = begins.iter().filter(|(flow, begin)| ends[flow] < **begin).count();
    decoded
}
