//! Standard input of guests.

use std::fmt::Display;
use std::io;
use std::sync::LazyLock;

use procession::sync::{CancellationToken, Mutex};

use crate::net::unless_cancelled;
use crate::value::Value;

/// The number of bytes of one read.
const PART: usize = 8 << 10;

/// The bytes that were read and that no process has taken. A process that waits has the lock, so
/// other processes wait for their turn.
fn ahead() -> &'static Mutex<Vec<u8>> {
    static AHEAD: LazyLock<Mutex<Vec<u8>>> = LazyLock::new(|| Mutex::new(Vec::new()));
    &AHEAD
}

/// The part of the input that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A line, with or without its end.
    Line { with_end: bool },
    /// Everything up to the end.
    All,
    /// At most this number of bytes.
    Count(usize),
}

/// Reads from standard input, at most `most` bytes, or until the token is cancelled. Returns nil at
/// the end.
///
/// If it fails or is cancelled, the next reader finds what was read.
pub(crate) async fn read(
    token: CancellationToken,
    wanted: Wanted,
    most: usize,
) -> io::Result<Value> {
    let mut ahead = unless_cancelled(&token, ahead().lock()).await?;
    let mut input = procession::io::stdin();
    let (mut part, mut searched) = (vec![0; PART], 0);
    let (count, has_ended) = loop {
        let found = match wanted {
            Wanted::Line { .. } => {
                let found = ahead[searched..].iter().position(|&byte| byte == b'\n');
                found.map(|at| searched + at + 1)
            }
            Wanted::All => None,
            Wanted::Count(count) => (ahead.len() >= count).then_some(count),
        };
        if let Some(count) = found {
            break (count, false);
        }
        if ahead.len() > most {
            let text = format!("more than {most} bytes, which the memory of the process leaves");
            return Err(unreadable(text));
        }
        searched = ahead.len();
        match unless_cancelled(&token, input.read(&mut part)).await?.map_err(unreadable)? {
            0 => break (ahead.len(), true),
            count => ahead.extend_from_slice(&part[..count]),
        }
    };
    if has_ended && count == 0 && wanted != Wanted::All {
        return Ok(Value::Nil);
    }
    let rest = ahead.split_off(count);
    let mut taken = std::mem::replace(&mut *ahead, rest);
    if wanted == (Wanted::Line { with_end: false }) && taken.last() == Some(&b'\n') {
        taken.pop();
    }
    Ok(Value::string(taken))
}

fn unreadable(cause: impl Display) -> io::Error {
    io::Error::other(format!("cannot read standard input: {cause}"))
}
