//! Compression in the format of zlib (RFC 1950), for traces.
//!
//! A trace repeats itself: most events differ from an earlier one in a few bytes. So repeated bytes
//! are found by a table of the latest place of each four bytes. What is found is written in one
//! block of deflate (RFC 1951) with Huffman codes for its symbols.
//!
//! # Rejected
//! - The fixed codes of deflate: they take no second pass, but a trace is larger by a third.
//! - A chain of places for each four bytes: smaller by a tenth, in twice the time.

use std::mem;

/// The greatest distance of a match.
const DISTANCE_MAX: usize = 1 << 15;
/// The lengths of matches. Shorter ones would hardly be shorter than their bytes.
const LENGTH_MIN: usize = 4;
const LENGTH_MAX: usize = 258;
/// The bits of a place in the table of matches.
const HASH_BITS: u32 = 13;

/// The number of symbols for bytes, the end of the block and lengths.
const SYMBOLS: usize = 286;
/// The number of symbols for distances.
const DISTANCES: usize = 30;
/// The symbol of the end of the block.
const END: usize = 256;
/// The longest code.
const CODE_BITS_MAX: u8 = 15;

/// Compresses pieces of a trace, each by itself.
pub(crate) struct Compressor {
    /// The place after the latest four bytes with each hash, or 0.
    latest: Box<[u32]>,
    items: Vec<Item>,
    bits: BitWriter,
}

/// A byte, or a match if the distance is not 0.
#[derive(Clone, Copy)]
struct Item {
    byte_or_length: u16,
    distance: u16,
}

impl Default for Compressor {
    fn default() -> Self {
        let latest = vec![0; 1 << HASH_BITS].into();
        Self { latest, items: Vec::new(), bits: BitWriter::default() }
    }
}

impl Compressor {
    /// Returns the compressed bytes.
    pub(crate) fn compress(&mut self, bytes: &[u8]) -> &[u8] {
        self.find_items(bytes);
        let (symbols, distances) = self.codes();
        let bits = &mut self.bits;
        // Deflate with a window of 32 KiB, without a dictionary; the number is a multiple of 31.
        bits.begin(&[0x78, 0x01]);
        bits.put_head(&symbols, &distances);
        for item in &self.items {
            if item.distance == 0 {
                bits.put_code(symbols[usize::from(item.byte_or_length)]);
                continue;
            }
            let length = Symbol::of_length(item.byte_or_length);
            bits.put_code(symbols[length.number]);
            bits.put(length.rest, length.rest_bits);
            let distance = Symbol::of_distance(item.distance);
            bits.put_code(distances[distance.number]);
            bits.put(distance.rest, distance.rest_bits);
        }
        bits.put_code(symbols[END]);
        bits.end(&adler32(bytes).to_be_bytes())
    }

    fn find_items(&mut self, bytes: &[u8]) {
        self.latest.fill(0);
        self.items.clear();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let (item, length) = match self.find(bytes, at) {
                Some((length, distance)) => {
                    (Item { byte_or_length: length as u16, distance: distance as u16 }, length)
                }
                None => (Item { byte_or_length: byte.into(), distance: 0 }, 1),
            };
            self.items.push(item);
            at += length;
        }
    }

    /// Returns the length of the bytes at this place that are also at a place before it, and how
    /// far back that is. Notes the place.
    fn find(&mut self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let first = bytes.get(at..at + LENGTH_MIN)?;
        let first = u32::from_le_bytes(first.try_into().expect("it has four bytes"));
        // Fibonacci hashing.
        let hash = first.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS);
        let latest = mem::replace(&mut self.latest[hash as usize], at as u32 + 1);
        let before = (latest as usize).checked_sub(1)?;
        let distance = at - before;
        if distance > DISTANCE_MAX {
            return None;
        }
        let length = same(&bytes[before..], &bytes[at..]);
        (length >= LENGTH_MIN).then_some((length, distance))
    }

    /// Returns the codes that fit the items.
    fn codes(&self) -> (Vec<Code>, Vec<Code>) {
        let (mut symbols, mut distances) = ([0; SYMBOLS], [0; DISTANCES]);
        // With two symbols, each has a code.
        for counts in [&mut symbols[..], &mut distances[..]] {
            counts[..2].fill(1);
        }
        symbols[END] = 1;
        for item in &self.items {
            if item.distance == 0 {
                symbols[usize::from(item.byte_or_length)] += 1;
            } else {
                symbols[Symbol::of_length(item.byte_or_length).number] += 1;
                distances[Symbol::of_distance(item.distance).number] += 1;
            }
        }
        (codes(&code_lengths(&mut symbols)), codes(&code_lengths(&mut distances)))
    }
}

/// Returns the number of bytes at the beginning that are the same, at most `LENGTH_MAX`. `other` is
/// not longer.
fn same(one: &[u8], other: &[u8]) -> usize {
    const WORD: usize = size_of::<u64>();
    let most = other.len().min(LENGTH_MAX);
    let mut length = 0;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("it has eight bytes"));
    while length + WORD <= most {
        let range = length..length + WORD;
        let differences = word(&one[range.clone()]) ^ word(&other[range]);
        if differences != 0 {
            return length + differences.trailing_zeros() as usize / 8;
        }
        length += WORD;
    }
    while length < most && one[length] == other[length] {
        length += 1;
    }
    length
}

/// A length or a distance: a symbol, and bits after it.
struct Symbol {
    number: usize,
    rest: u32,
    rest_bits: u8,
}

impl Symbol {
    #[inline]
    fn of_length(length: u16) -> Self {
        let over = u32::from(length) - 3;
        if over == 255 {
            return Self { number: SYMBOLS - 1, rest: 0, rest_bits: 0 };
        }
        // Four symbols for each power of two.
        let rest_bits = over.checked_ilog2().unwrap_or(0).saturating_sub(2);
        let number = END + 1 + (4 * rest_bits + (over >> rest_bits)) as usize;
        Self { number, rest: over & ((1 << rest_bits) - 1), rest_bits: rest_bits as u8 }
    }

    #[inline]
    fn of_distance(distance: u16) -> Self {
        let over = u32::from(distance) - 1;
        // Two symbols for each power of two.
        let rest_bits = over.checked_ilog2().unwrap_or(0).saturating_sub(1);
        let number = (2 * rest_bits + (over >> rest_bits)) as usize;
        Self { number, rest: over & ((1 << rest_bits) - 1), rest_bits: rest_bits as u8 }
    }
}

/// A Huffman code, its first bit lowest.
#[derive(Clone, Copy, Default)]
struct Code {
    bits: u16,
    length: u8,
}

/// Returns the lengths of the codes of symbols that come as often as the counts say, and 0 for
/// those that never come. At least two come.
fn code_lengths(counts: &mut [u32]) -> Vec<u8> {
    loop {
        let lengths = huffman_lengths(counts);
        if lengths.iter().all(|&length| length <= CODE_BITS_MAX) {
            return lengths;
        }
        // The less counts differ, the less do lengths.
        counts.iter_mut().for_each(|count| *count = count.div_ceil(2));
    }
}

/// Returns the lengths of Huffman codes, however long they are.
fn huffman_lengths(counts: &[u32]) -> Vec<u8> {
    let mut leaves: Vec<_> = (0..).zip(counts).filter(|&(_, &count)| count > 0).collect();
    leaves.sort_unstable_by_key(|&(symbol, &count): &(usize, _)| (count, symbol));
    let nodes = 2 * leaves.len() - 1;
    // The leaves, and then the nodes above them, both from the least weight on.
    let mut weights: Vec<u32> = leaves.iter().map(|&(_, &count)| count).collect();
    let mut parents = vec![0; nodes];
    let (mut leaf, mut inner) = (0, leaves.len());
    for node in leaves.len()..nodes {
        let mut weight = 0;
        for _ in 0..2 {
            let is_leaf = leaf < leaves.len() && (inner == node || weights[leaf] <= weights[inner]);
            let next = if is_leaf { &mut leaf } else { &mut inner };
            weight += weights[*next];
            parents[*next] = node;
            *next += 1;
        }
        weights.push(weight);
    }
    let mut depths = vec![0; nodes];
    for node in (0..nodes - 1).rev() {
        depths[node] = depths[parents[node]] + 1;
    }
    let mut lengths = vec![0; counts.len()];
    for (&(symbol, _), depth) in leaves.iter().zip(depths) {
        lengths[symbol] = depth;
    }
    lengths
}

/// Returns the codes with these lengths. Codes of one length are in the order of their symbols.
fn codes(lengths: &[u8]) -> Vec<Code> {
    let mut codes = vec![Code::default(); lengths.len()];
    let mut next = 0_u16;
    for length in 1..=CODE_BITS_MAX {
        next <<= 1;
        for (code, _) in codes.iter_mut().zip(lengths).filter(|(_, own)| **own == length) {
            *code = Code { bits: next.reverse_bits() >> (u16::BITS as u8 - length), length };
            next += 1;
        }
    }
    codes
}

/// Writes bits, the lowest first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    bits: u64,
    count: u8,
}

impl BitWriter {
    fn begin(&mut self, head: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(head);
    }

    /// Returns the bytes, with `tail` after the last whole one.
    fn end(&mut self, tail: &[u8]) -> &[u8] {
        let rest = usize::from(self.count.div_ceil(8));
        self.bytes.extend_from_slice(&self.bits.to_le_bytes()[..rest]);
        (self.bits, self.count) = (0, 0);
        self.bytes.extend_from_slice(tail);
        &self.bytes
    }

    /// Writes up to 32 bits.
    #[inline]
    fn put(&mut self, bits: u32, count: u8) {
        self.bits |= u64::from(bits) << self.count;
        self.count += count;
        if self.count >= u32::BITS as u8 {
            self.bytes.extend_from_slice(&(self.bits as u32).to_le_bytes());
            self.bits >>= u32::BITS;
            self.count -= u32::BITS as u8;
        }
    }

    #[inline]
    fn put_code(&mut self, code: Code) {
        self.put(code.bits.into(), code.length);
    }

    /// Writes the head of the last block, with its codes.
    fn put_head(&mut self, symbols: &[Code], distances: &[Code]) {
        // The last block; with codes of its own.
        self.put(1, 1);
        self.put(2, 2);
        // All symbols, all distances, and the lengths of the codes of all lengths.
        self.put(SYMBOLS as u32 - 257, 5);
        self.put(DISTANCES as u32 - 1, 5);
        self.put(19 - 4, 4);
        // Three kinds of repetitions, which are not used, and 16 lengths, with 4 bits each.
        for length in [0; 3].into_iter().chain([4; 16]) {
            self.put(length, 3);
        }
        for code in symbols.iter().chain(distances) {
            self.put(u32::from(code.length.reverse_bits() >> 4), 4);
        }
    }
}

/// The checksum at the end.
fn adler32(bytes: &[u8]) -> u32 {
    /// The greatest prime below 2^16.
    const PRIME: u32 = 65521;
    /// The maximum number of bytes after which neither sum has overflowed.
    const CHUNK: usize = 5552;
    let (mut one, mut two) = (1, 0);
    for chunk in bytes.chunks(CHUNK) {
        for &byte in chunk {
            one += u32::from(byte);
            two += one;
        }
        one %= PRIME;
        two %= PRIME;
    }
    two << 16 | one
}

#[cfg(test)]
mod tests {
    use miniz_oxide::inflate::decompress_to_vec_zlib;

    use super::{CODE_BITS_MAX, Compressor, DISTANCE_MAX, LENGTH_MAX, code_lengths};

    #[track_caller]
    fn check(compressor: &mut Compressor, bytes: &[u8]) -> usize {
        let compressed = compressor.compress(bytes).to_vec();
        let again = decompress_to_vec_zlib(&compressed).expect("it is whole");
        assert!(again == bytes, "{} bytes", bytes.len());
        compressed.len()
    }

    /// Numbers without a pattern.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn bytes_come_back() {
        let mut compressor = Compressor::default();
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&[][..], b"a", b"abcd", b"abcdabcdabcd", &all] {
            check(&mut compressor, bytes);
        }
        assert!(check(&mut compressor, &[7; 1 << 16]) < 1 << 9);
        // What has no pattern grows by little.
        assert!(check(&mut compressor, &noise(1 << 16)) < (1 << 16) + (1 << 9));
    }

    #[test]
    fn codes_are_complete_and_not_too_long() {
        for symbols in 2..45 {
            // Those of Fibonacci have the longest codes.
            let (mut one, mut two) = (1, 1);
            let mut next = || {
                (one, two) = (two, one + two);
                one
            };
            let mut counts: Vec<u32> = (0..symbols).map(|_| next()).collect();
            let lengths = code_lengths(&mut counts);
            assert!(lengths.iter().all(|length| (1..=CODE_BITS_MAX).contains(length)));
            let space: u32 = lengths.iter().map(|&length| 1 << (CODE_BITS_MAX - length)).sum();
            assert_eq!(space, 1 << CODE_BITS_MAX, "{symbols} symbols");
        }
    }

    #[test]
    fn repeated_bytes_of_any_length_and_distance_come_back() {
        let mut compressor = Compressor::default();
        let noise = noise(DISTANCE_MAX + 1000);
        for length in (1..=LENGTH_MAX + 2).chain([1000]) {
            let bytes = [&noise[..2000], &noise[1000..1000 + length], b"."].concat();
            check(&mut compressor, &bytes);
        }
        let mut distances: Vec<_> = (0..15).map(|bits| 1 << bits).collect();
        distances.extend((2..15).map(|bits| 3 << (bits - 1)));
        distances.extend([DISTANCE_MAX - 1, DISTANCE_MAX, DISTANCE_MAX + 1]);
        for distance in distances {
            for distance in [distance, distance + 1] {
                let begin = noise.len() - distance;
                let again: Vec<_> = noise[begin..].iter().copied().cycle().take(100).collect();
                check(&mut compressor, &[&noise[..], &again].concat());
            }
        }
    }
}
