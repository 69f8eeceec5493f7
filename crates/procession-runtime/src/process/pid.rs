//! Process identifiers.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::util::parse_error::ParseError;

/// The identifier of a process. It is never given to another process, and stays valid forever.
///
/// It prints as `p1.42.7`: scheduler 1, slot 42, generation 7. A process of another node has the
/// node in front, as in `p3@1.42.7`. The printed text can be parsed. The number of a scheduler is
/// never reused in a program. A slot is reused with the next generation, so a stale PID reaches no
/// process.
///
/// ```
/// use procession::Pid;
///
/// let pid: Pid = "p1.42.7".parse()?;
/// assert_eq!(pid.to_string(), "p1.42.7");
/// assert!("p1.42".parse::<Pid>().is_err());
/// # Ok::<(), procession::process::ParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid {
    /// 0 is this node.
    node: u32,
    scheduler: u32,
    slot: u32,
    generation: NonZeroU32,
}

impl crate::Outcome for Pid {}

impl Pid {
    /// The PID that no process ever has. A handle or an address of a refused process has it.
    ///
    /// Sending to it fails as for an ended process. A monitor is answered immediately with
    /// [`Exit::NoProcess`](crate::Exit::NoProcess).
    pub const NOBODY: Self = Self { node: 0, scheduler: 0, slot: 0, generation: NonZeroU32::MIN };

    pub(crate) fn local(scheduler: u32, slot: u32, generation: u32) -> Self {
        let generation = NonZeroU32::new(generation).expect("[generation] generations start at 1");
        Self { node: 0, scheduler, slot, generation }
    }

    pub(crate) fn remote(node: u32, id: u32, serial: u32) -> Self {
        Self { node, scheduler: serial, slot: id, generation: NonZeroU32::MIN }
    }

    /// Returns the number of the node that the process runs on. This node has the number 0. Every
    /// other node has the number of its [`RemoteNode`](crate::relay::RemoteNode).
    pub fn node(self) -> u32 {
        self.node
    }

    /// Returns the two numbers that were passed to
    /// [`RemoteNode::pid`](crate::relay::RemoteNode::pid), or `None` for a process of this node.
    pub fn remote_parts(self) -> Option<(u32, u32)> {
        (self.node != 0).then_some((self.slot, self.scheduler))
    }

    /// Returns the number of the scheduler that the process runs on. For a process of another node,
    /// this is a part of its number there.
    pub fn scheduler(self) -> u32 {
        self.scheduler
    }

    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    pub(crate) fn generation(self) -> u32 {
        self.generation.get()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("p")?;
        if self.node != 0 {
            write!(f, "{}@", self.node)?;
        }
        write!(f, "{}.{}.{}", self.scheduler, self.slot, self.generation)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Pid {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let rest = text.strip_prefix('p')?;
            let (node, rest) = match rest.split_once('@') {
                Some((node, rest)) => (canonical(node).filter(|&node| node != 0)?, rest),
                None => (0, rest),
            };
            let mut numbers = rest.split('.');
            let pid = Self {
                node,
                scheduler: canonical(numbers.next()?)?,
                slot: canonical(numbers.next()?)?,
                generation: NonZeroU32::new(canonical(numbers.next()?)?)?,
            };
            numbers.next().is_none().then_some(pid)
        };
        parse().ok_or_else(|| ParseError::new(text, "a PID such as p1.42.7"))
    }
}

/// Parses a number in its printed form: digits only, without leading zeros.
fn canonical(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::Pid;

    #[test]
    fn what_is_printed_is_parsed() {
        for text in ["p1.42.7", "p0.0.1", "p4294967295.4294967295.4294967295", "p3@1.42.7"] {
            let pid: Pid = text.parse().expect(text);
            assert_eq!(pid.to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for text in [
            "",
            "p",
            "1.42.7",
            "p1.42",
            "p1.42.0",
            "p1.42.7.1",
            "p01.2.3",
            "p1.2.+3",
            "p0@1.2.3",
            "p1.2.4294967296",
        ] {
            let error = text.parse::<Pid>().expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
