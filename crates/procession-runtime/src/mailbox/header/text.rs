//! What a request is known by, as text and in the headers of HTTP.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

use crate::mailbox::header::{RequestContext, RequestId, SAMPLED};
use crate::util::parse_error::ParseError;

/// The length of a `traceparent` of the version 00. Later versions may append to it.
const TRACEPARENT: usize = 55;
/// The maximum number of members of a `tracestate`.
const MEMBERS_MAX: usize = 32;
/// The maximum length of a `tracestate` that is passed on.
const STATE_MAX: usize = 512;
/// Members that are longer are left out first.
const MEMBER_LONG: usize = 128;

impl RequestContext {
    /// Adds the value of `tracestate`. Several headers are joined by commas.
    ///
    /// A value that is not valid is ignored, and so is any value if the context consists of only an
    /// id. Of a value of more than 512 characters, members are left out, first those with more than
    /// 128 characters, then the last ones.
    #[must_use]
    pub fn with_state(mut self, tracestate: &str) -> Self {
        if let Some(trace) = &mut self.trace {
            let state = checked_state(tracestate).unwrap_or_default();
            if *trace.state != *state {
                Arc::make_mut(trace).state = state.into_boxed_str();
            }
        }
        self
    }

    /// Returns the value for the header `traceparent`.
    ///
    /// If the context consists of only an id, the parent id is the low half of that id, or 1 if
    /// that is 0, and the request is not sampled.
    pub fn traceparent(&self) -> String {
        let id = self.id;
        match &self.trace {
            Some(trace) => format!("00-{id}-{:016x}-{:02x}", trace.parent, trace.flags),
            None => format!("00-{id}-{:016x}-00", (id.get() as u64).max(1)),
        }
    }
}

impl fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestContext").field(&format_args!("{}", self.traceparent())).finish()
    }
}

/// Parses a `traceparent`.
///
/// Of a version later than 00, the fields of the version 00 are read, as the specification demands.
/// The context then has the version 00.
impl FromStr for RequestContext {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text.as_bytes()).ok_or_else(|| ParseError::new(text, "a valid traceparent"))
    }
}

fn parse(text: &[u8]) -> Option<RequestContext> {
    let (known, more) = text.split_at_checked(TRACEPARENT)?;
    let [version @ 0..=0xfe] = hexadecimal::<1>(&known[..2])? else { return None };
    let is_followed = if version == 0 { more.is_empty() } else { matches!(more, [] | [b'-', ..]) };
    if !is_followed || [2, 35, 52].iter().any(|&at| known[at] != b'-') {
        return None;
    }
    let id = RequestId::new(u128::from_be_bytes(hexadecimal(&known[3..35])?))?;
    let parent = NonZeroU64::new(u64::from_be_bytes(hexadecimal(&known[36..52])?))?;
    let [flags] = hexadecimal::<1>(&known[53..])?;
    // What the other flags of a later version mean is not known.
    Some(RequestContext::new(id, parent, if version == 0 { flags } else { flags & SAMPLED }))
}

/// Returns the bytes that these lower-case digits are.
fn hexadecimal<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Returns the members of a `tracestate` that are passed on, or `None` if it is not valid.
fn checked_state(text: &str) -> Option<String> {
    let members = text.split(',').map(|member| member.trim_matches([' ', '\t']));
    let mut members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    if members.len() > MEMBERS_MAX || !members.iter().all(|member| is_member(member)) {
        return None;
    }
    while members.iter().map(|member| member.len() + 1).sum::<usize>() > STATE_MAX + 1 {
        let long = members.iter().rposition(|member| member.len() > MEMBER_LONG);
        members.remove(long.unwrap_or(members.len() - 1));
    }
    Some(members.join(","))
}

/// Returns `true` if this is a key and a value.
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_value = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
    let has_value = (1..=256).contains(&value.len()) && value.bytes().all(is_value);
    let is_part = |text: &str, most: usize, begins: fn(u8) -> bool| {
        let goes_on =
            |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
        let mut bytes = text.bytes();
        text.len() <= most && bytes.next().is_some_and(begins) && bytes.all(goes_on)
    };
    let letter = |byte: u8| byte.is_ascii_lowercase();
    let letter_or_digit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_key = match key.split_once('@') {
        // The second recommendation lets a key without a tenant begin with a digit as well.
        None => is_part(key, 256, letter_or_digit),
        Some((tenant, system)) => {
            is_part(tenant, 241, letter_or_digit) && is_part(system, 14, letter)
        }
    };
    is_key && has_value
}

impl FromStr for RequestId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refused = || ParseError::new(text, "1 to 32 hexadecimal digits, not all 0");
        let (mut number, mut digits) = (0, 0);
        for c in text.chars().filter(|&c| c != '-') {
            let digit = c.to_digit(16).ok_or_else(refused)?;
            number = number << 4 | u128::from(digit);
            digits += 1;
        }
        if digits > 32 {
            return Err(refused());
        }
        Self::new(number).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::RequestContext;

    const ID: &str = "12345678901234567890123456789012";

    fn sent_on(text: &str) -> Option<String> {
        Some(text.parse::<RequestContext>().ok()?.traceparent())
    }

    /// Cases of the test suite of the specification.
    #[test]
    fn a_traceparent_is_read_as_the_specification_says() {
        let good = format!("00-{ID}-1234567890123456-01");
        assert_eq!(sent_on(&good).as_ref(), Some(&good));
        for (version, more) in [("01", ""), ("cc", "-what-the-future-will-be-like"), ("fe", "-")] {
            let text = format!("{version}-{ID}-1234567890123456-01{more}");
            assert_eq!(sent_on(&text).as_ref(), Some(&good), "{text}");
        }
        // Unknown flags are cleared, and of later versions all but one.
        assert_eq!(
            sent_on(&format!("00-{ID}-1234567890123456-ff")),
            Some(good.replace("-01", "-03"))
        );
        assert_eq!(
            sent_on(&format!("01-{ID}-1234567890123456-fe")),
            Some(good.replace("-01", "-00"))
        );
        for bad in [
            String::new(),
            format!("ff-{ID}-1234567890123456-01"),
            format!("00-{ID}-1234567890123456-01-"),
            format!("00-{ID}-1234567890123456-01-what"),
            format!("cc-{ID}-1234567890123456-01what"),
            format!("cc-{ID}-1234567890123456-0"),
            format!("0-{ID}-1234567890123456-011"),
            format!("000-{ID}-1234567890123456-01"),
            format!(".0-{ID}-1234567890123456-01"),
            format!("0.-{ID}-1234567890123456-01"),
            "00-00000000000000000000000000000000-1234567890123456-01".to_owned(),
            "00-.2345678901234567890123456789012-1234567890123456-01".to_owned(),
            "00-1234567890123456789012345678901-1234567890123456-011".to_owned(),
            "00-123456789012345678901234567890123-1234567890123456-01".to_owned(),
            "00-ABCDEF78901234567890123456789012-1234567890123456-01".to_owned(),
            format!("00-{ID}-0000000000000000-01"),
            format!("00-{ID}-.234567890123456-01"),
            format!("00-{ID}-ABCDEF7890123456-01"),
            format!("00-{ID}-123456789012345-001"),
            format!("00-{ID}-1234567890123456-.1"),
            format!("00-{ID}-1234567890123456-0A"),
            format!("00-{ID}-1234567890123456-1"),
            format!("00_{ID}-1234567890123456-01"),
            format!("00-{ID}_1234567890123456-01"),
            format!("00-{ID}-1234567890123456_01"),
            format!(" 00-{ID}-1234567890123456-01"),
            "é".repeat(40),
        ] {
            assert_eq!(sent_on(&bad), None, "{bad:?}");
        }
    }

    fn state(text: &str) -> Option<String> {
        let context: RequestContext = format!("00-{ID}-1234567890123456-01").parse().expect("good");
        context.with_state(text).state().map(str::to_owned)
    }

    #[test]
    fn a_tracestate_is_passed_on_if_it_is_valid() {
        for good in [
            "foo=1",
            "foo=1,bar=2",
            "foo=1,foo=1",
            "a-*/_9=x y",
            "1a-2f@foo=bar",
            &format!("{}=1", "z".repeat(256)),
            &format!("{}@{}=1", "t".repeat(241), "v".repeat(14)),
            &format!("foo={}", "x".repeat(256)),
        ] {
            assert_eq!(state(good).as_deref(), Some(good));
        }
        assert_eq!(state("foo=1 , bar=2,\t,,").as_deref(), Some("foo=1,bar=2"));
        let members = |count: usize| {
            (0..count).map(|at| format!("bar{at:02}=01")).collect::<Vec<_>>().join(",")
        };
        assert_eq!(state(&members(32)), Some(members(32)));
        for bad in [
            "",
            "foo",
            "foo=",
            "=1",
            "foo=1,bar",
            "foo =1",
            "FOO=1",
            "foo.bar=1",
            "foo@=1,bar=2",
            "@foo=1",
            "foo@@bar=1",
            "foo@bar@baz=1",
            "foo=bar=baz",
            "foo=1\u{1}",
            "foo=é",
            &members(33),
            &format!("{}=1", "z".repeat(257)),
            &format!("{}@v=1", "t".repeat(242)),
            &format!("t@{}=1", "v".repeat(15)),
            &format!("foo={}", "x".repeat(257)),
        ] {
            assert_eq!(state(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_long_tracestate_loses_whole_members() {
        let short = |at: usize| format!("a{at:02}={}", "x".repeat(96));
        let long = format!("long={}", "x".repeat(124));
        let all = [short(1), long, short(2), short(3), short(4), short(5), short(6)].join(",");
        let kept = [1, 2, 3, 4, 5].map(short).join(",");
        assert_eq!(state(&all), Some(kept));
    }

    #[test]
    fn an_id_alone_has_a_traceparent_but_no_state() {
        let id = "5".parse::<super::RequestId>().expect("it is a number");
        let context = RequestContext::from(id).with_state("foo=1");
        let text = format!("00-{id}-0000000000000005-00");
        assert_eq!((context.traceparent(), context.state()), (text.clone(), None));
        assert!(!context.is_sampled() && context.parent_id().is_none());
        assert_eq!(sent_on(&text), Some(text));
    }
}
