//! Lua's patterns, matched in steps that are counted.
//!
//! Lua's own matcher tries all ways to match a pattern, in C, where nothing can end it. With a few
//! repetitions that is endless work for a short text. The library of programs therefore uses Lua's
//! matcher only for short texts, and this matcher for longer texts. Both return the same results.

use procession::machine::is_terminated;

/// The number of captures of a pattern.
const CAPTURES_MAX: usize = 32;
/// The depth of the matcher's recursion, as in Lua.
const DEPTH_MAX: u32 = 200;
/// The steps that one attempt at one position may take, in addition to the steps that are linear in
/// the text. They take some ten milliseconds.
const STEPS_MAX: u64 = 10_000_000;
/// The most steps that are linear in the text. For a longer text, one attempt takes no more either,
/// because nothing can suspend it.
const LINEAR_MAX: u64 = 20_000_000;
/// The steps after which a search pauses between two positions.
const PAUSE: u64 = 200_000;
/// The steps between two looks at whether the process is terminated.
const LOOK: u64 = 1 << 16;

/// A part of the text that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// The text between two offsets.
    Text(usize, usize),
    /// The offset itself.
    Position(usize),
    /// The pattern does not close the capture. That is an error where its text is used.
    Open,
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The match is between two offsets, and has these captures.
    Match(usize, usize, Vec<Capture>),
    /// No match begins at the offset of the start or behind it.
    Nothing,
    /// No match begins before this offset. The search should pause, and go on there.
    Paused(usize),
}

#[derive(Clone, Copy)]
enum Length {
    Open,
    Position,
    Bytes(usize),
}

struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    depth: u32,
    captures: Vec<(usize, Length)>,
    /// The steps since the search began, the limit, and the number of steps at the next check.
    steps: u64,
    end: u64,
    look: u64,
}

type Step<T> = Result<T, String>;

/// Searches for a match of `pattern` in `text` that begins at the offset `from` or behind it. Adds
/// the steps that this takes to `steps`.
///
/// A match that ends at the offset `last` is no match, unless it begins there and is not empty, as
/// in `string.gmatch`.
///
/// # Errors
/// Returns an error if the pattern is malformed, or a match takes more steps than allowed.
pub(crate) fn search(
    text: &[u8],
    pattern: &[u8],
    from: usize,
    last: Option<usize>,
    is_anchored: bool,
    steps: &mut u64,
) -> Result<Found, String> {
    let mut matcher =
        Matcher { text, pattern, depth: 0, captures: Vec::new(), steps: 0, end: 0, look: LOOK };
    let found = matcher.search(from, last, is_anchored);
    *steps += matcher.steps;
    found
}

/// Searches for a text like [`search`] for a pattern.
pub(crate) fn search_plain(text: &[u8], wanted: &[u8], from: usize, steps: &mut u64) -> Found {
    let Some(&first) = wanted.first() else { return Found::Match(from, from, Vec::new()) };
    let end = *steps + PAUSE;
    let mut start = from;
    while text.len() - start >= wanted.len() {
        if *steps >= end {
            return Found::Paused(start);
        }
        let candidates = &text[start..=text.len() - wanted.len()];
        let skipped = candidates.iter().take(PAUSE as usize).position(|&byte| byte == first);
        let Some(skipped) = skipped else {
            start += candidates.len().min(PAUSE as usize);
            *steps = end;
            continue;
        };
        start += skipped;
        let same = text[start..].iter().zip(wanted).take_while(|(one, other)| one == other);
        let same = same.count();
        *steps += (skipped + same) as u64;
        if same == wanted.len() {
            return Found::Match(start, start + same, Vec::new());
        }
        start += 1;
    }
    Found::Nothing
}

impl Matcher<'_> {
    fn search(
        &mut self,
        from: usize,
        last: Option<usize>,
        is_anchored: bool,
    ) -> Result<Found, String> {
        let linear = (8 * self.text.len() as u64).min(LINEAR_MAX);
        for start in from..=self.text.len() {
            if start > from && self.steps >= PAUSE {
                return Ok(Found::Paused(start));
            }
            self.captures.clear();
            self.end = self.steps + STEPS_MAX + linear;
            if let Some(end) = self.matches(start, 0)?
                && last != Some(end)
            {
                return Ok(Found::Match(start, end, self.captures()));
            }
            if is_anchored {
                break;
            }
        }
        Ok(Found::Nothing)
    }

    fn count(&mut self, steps: u64) -> Step<()> {
        self.steps += steps;
        if self.steps > self.end {
            return Err("pattern too complex for this text".to_owned());
        }
        if self.steps > self.look {
            self.look = self.steps + LOOK;
            if is_terminated() {
                return Err("the process is terminated".to_owned());
            }
        }
        Ok(())
    }

    /// Returns a byte of the pattern, or 0 at its end.
    fn byte(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    fn captures(&self) -> Vec<Capture> {
        let captured = self.captures.iter().map(|&(start, length)| match length {
            Length::Open => Capture::Open,
            Length::Position => Capture::Position(start),
            Length::Bytes(count) => Capture::Text(start, start + count),
        });
        captured.collect()
    }

    /// Counts one look at the set from `at` to `end`. A set can be as long as a text.
    fn count_set(&mut self, at: usize, end: usize) -> Step<()> {
        self.count((end - at) as u64 / 16)
    }

    /// Returns the offset behind the single class at `at`.
    fn class_end(&mut self, at: usize) -> Step<usize> {
        let end = self.find_class_end(at)?;
        self.count_set(at, end)?;
        Ok(end)
    }

    fn find_class_end(&self, at: usize) -> Step<usize> {
        let mut at = at + 1;
        match self.byte(at - 1) {
            b'%' if at >= self.pattern.len() => Err("malformed pattern (ends with '%')".to_owned()),
            b'%' => Ok(at + 1),
            b'[' => {
                if self.byte(at) == b'^' {
                    at += 1;
                }
                loop {
                    if at >= self.pattern.len() {
                        return Err("malformed pattern (missing ']')".to_owned());
                    }
                    at += 1;
                    if self.byte(at - 1) == b'%' {
                        at += 1;
                    }
                    if self.byte(at) == b']' && at < self.pattern.len() {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(at),
        }
    }

    /// Returns `true` if `byte` is in the set from `at`, the offset of `[`, to `last`, the offset
    /// of `]`.
    fn is_in_set(&self, byte: u8, at: usize, last: usize) -> bool {
        let (mut at, mut is_in) = (at, true);
        if self.byte(at + 1) == b'^' {
            (at, is_in) = (at + 1, false);
        }
        loop {
            at += 1;
            if at >= last {
                return !is_in;
            }
            if self.byte(at) == b'%' {
                at += 1;
                if is_in_class(byte, self.byte(at)) {
                    return is_in;
                }
            } else if self.byte(at + 1) == b'-' && at + 2 < last {
                at += 2;
                if (self.byte(at - 2)..=self.byte(at)).contains(&byte) {
                    return is_in;
                }
            } else if self.byte(at) == byte {
                return is_in;
            }
        }
    }

    /// Returns `true` if the class from `at` to `end` matches the byte at the offset `start`.
    fn matches_one(&mut self, start: usize, at: usize, end: usize) -> Step<bool> {
        let Some(&byte) = self.text.get(start) else { return Ok(false) };
        Ok(match self.byte(at) {
            b'.' => true,
            b'%' => is_in_class(byte, self.byte(at + 1)),
            b'[' => {
                self.count_set(at, end)?;
                self.is_in_set(byte, at, end - 1)
            }
            other => other == byte,
        })
    }

    /// Matches the pattern from `at` to the text from `start`. Returns the end of the match.
    fn matches(&mut self, start: usize, at: usize) -> Step<Option<usize>> {
        if self.depth == DEPTH_MAX {
            return Err("pattern too complex".to_owned());
        }
        self.depth += 1;
        let matched = self.matches_from(start, at);
        self.depth -= 1;
        matched
    }

    fn matches_from(&mut self, mut start: usize, mut at: usize) -> Step<Option<usize>> {
        loop {
            self.count(1)?;
            if at >= self.pattern.len() {
                return Ok(Some(start));
            }
            match (self.byte(at), self.byte(at + 1)) {
                (b'(', b')') => return self.open(start, at + 2, Length::Position),
                (b'(', _) => return self.open(start, at + 1, Length::Open),
                (b')', _) => return self.close(start, at + 1),
                (b'$', _) if at + 1 == self.pattern.len() => {
                    return Ok((start == self.text.len()).then_some(start));
                }
                (b'%', b'b') => match self.balance(start, at + 2)? {
                    Some(end) => (start, at) = (end, at + 4),
                    None => return Ok(None),
                },
                (b'%', b'f') => match self.frontier(start, at + 2)? {
                    Some(end) => at = end,
                    None => return Ok(None),
                },
                (b'%', digit @ b'0'..=b'9') => match self.again(start, digit)? {
                    Some(end) => (start, at) = (end, at + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(at)?;
                    let matches = self.matches_one(start, at, end)?;
                    match (self.byte(end), matches) {
                        (b'*' | b'?' | b'-', false) => at = end + 1,
                        (_, false) => return Ok(None),
                        (b'?', true) => match self.matches(start + 1, end + 1)? {
                            Some(found) => return Ok(Some(found)),
                            None => at = end + 1,
                        },
                        (b'+', true) => return self.longest(start + 1, at, end),
                        (b'*', true) => return self.longest(start, at, end),
                        (b'-', true) => return self.shortest(start, at, end),
                        (_, true) => (start, at) = (start + 1, end),
                    }
                }
            }
        }
    }

    /// Repeats a class as often as it matches, and then less often.
    fn longest(&mut self, start: usize, at: usize, end: usize) -> Step<Option<usize>> {
        let mut stop = start;
        while self.matches_one(stop, at, end)? {
            stop += 1;
        }
        self.count((stop - start) as u64 / 16)?;
        loop {
            if let Some(found) = self.matches(stop, end + 1)? {
                return Ok(Some(found));
            }
            if stop == start {
                return Ok(None);
            }
            stop -= 1;
        }
    }

    /// Repeats a class as seldom as possible, and then more often.
    fn shortest(&mut self, start: usize, at: usize, end: usize) -> Step<Option<usize>> {
        let mut start = start;
        loop {
            if let Some(found) = self.matches(start, end + 1)? {
                return Ok(Some(found));
            }
            if !self.matches_one(start, at, end)? {
                return Ok(None);
            }
            start += 1;
        }
    }

    fn open(&mut self, start: usize, at: usize, length: Length) -> Step<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err("too many captures".to_owned());
        }
        self.captures.push((start, length));
        let matched = self.matches(start, at)?;
        if matched.is_none() {
            self.captures.pop();
        }
        Ok(matched)
    }

    fn close(&mut self, start: usize, at: usize) -> Step<Option<usize>> {
        let open = self.captures.iter().rposition(|(_, length)| matches!(length, Length::Open));
        let open = open.ok_or("invalid pattern capture")?;
        self.captures[open].1 = Length::Bytes(start - self.captures[open].0);
        let matched = self.matches(start, at)?;
        if matched.is_none() {
            self.captures[open].1 = Length::Open;
        }
        Ok(matched)
    }

    /// Matches `%b` and its two bytes.
    fn balance(&mut self, start: usize, at: usize) -> Step<Option<usize>> {
        if at + 1 >= self.pattern.len() {
            return Err("malformed pattern (missing arguments to '%b')".to_owned());
        }
        let (opens, closes) = (self.byte(at), self.byte(at + 1));
        // At the end of the text, as in Lua, there is the byte 0.
        if self.text.get(start).copied().unwrap_or(0) != opens {
            return Ok(None);
        }
        let mut open = 1;
        for (offset, &byte) in self.text.iter().enumerate().skip(start + 1) {
            if byte == closes {
                open -= 1;
                if open == 0 {
                    self.count((offset - start) as u64 / 16)?;
                    return Ok(Some(offset + 1));
                }
            } else if byte == opens {
                open += 1;
            }
        }
        self.count((self.text.len() - start) as u64 / 16)?;
        Ok(None)
    }

    /// Matches `%f` and its set. Returns the offset behind the set.
    fn frontier(&mut self, start: usize, at: usize) -> Step<Option<usize>> {
        if self.byte(at) != b'[' {
            return Err("missing '[' after '%f' in pattern".to_owned());
        }
        let end = self.class_end(at)?;
        let before = start.checked_sub(1).map_or(0, |before| self.text[before]);
        let next = self.text.get(start).copied().unwrap_or(0);
        for (byte, is_in) in [(before, false), (next, true)] {
            self.count_set(at, end)?;
            if self.is_in_set(byte, at, end - 1) != is_in {
                return Ok(None);
            }
        }
        Ok(Some(end))
    }

    /// Matches the text of an earlier capture once more.
    fn again(&mut self, start: usize, digit: u8) -> Step<Option<usize>> {
        let number = usize::from(digit - b'0');
        let captured = number.checked_sub(1).and_then(|index| self.captures.get(index));
        let (from, count) = match captured {
            Some(&(from, Length::Bytes(count))) => (from, count),
            Some((_, Length::Position)) => return Ok(None),
            _ => return Err(format!("invalid capture index %{number}")),
        };
        self.count(count as u64 / 16)?;
        let same = self.text[start..].starts_with(&self.text[from..from + count]);
        Ok(same.then_some(start + count))
    }
}

fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests;
