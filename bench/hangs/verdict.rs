//! What a program of the clinic prints: how the failure of a row ends on its runtime.

use std::env;
use std::io::{self, Write};
use std::process;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How a row ended. A row that never ends is ended by `run`, which then says that it hangs.
pub(crate) enum Verdict {
    /// What had to happen has happened, this long after it could.
    Ends(Duration),
    /// The same, with what somebody paid for it.
    #[allow(dead_code, reason = "not every runtime has such a row")]
    Delayed(String),
    /// The runtime has refused, after this time, with this error.
    Refused(Duration, String),
}

/// The name of a row in `rows.toml`, and the function that runs the row.
pub(crate) type Row = (&'static str, fn() -> Verdict);

/// Runs the row that the first argument names and prints its verdict. `list` prints the names of
/// the rows that this runtime has.
///
/// Ends the program immediately, because workers of a failed row never end.
pub(crate) fn main(rows: &[Row]) -> ! {
    let wanted = env::args().nth(1).unwrap_or_default();
    let row = rows.iter().find(|(name, _)| *name == wanted);
    let text = match row {
        Some((_, row)) => row().to_string(),
        None if wanted == "list" => rows.iter().map(|(name, _)| format!("{name}\n")).collect(),
        None => {
            say(&mut io::stderr(), "usage: PROGRAM list | ROW\n");
            process::exit(2);
        }
    };
    say(&mut io::stdout(), &text);
    process::exit(0)
}

fn say(stream: &mut impl Write, text: &str) {
    // Ignored: if the stream is closed, nobody reads the verdict.
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
        match self {
            Self::Ends(late) => writeln!(f, "ends {:.1}", ms(late)),
            Self::Delayed(how) => writeln!(f, "delayed {how}"),
            Self::Refused(after, error) => writeln!(f, "refused {:.1} {error}", ms(after)),
        }
    }
}

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// The number of workers of each runtime.
#[allow(dead_code, reason = "actix has a thread for each actor")]
pub(crate) const WIDTH: usize = 2;

#[expect(clippy::disallowed_methods, reason = "how late others are is measured on the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the clinic is about threads that block")]
#[allow(dead_code, reason = "not every runtime has such a row")]
pub(crate) fn block(duration: Duration) {
    std::thread::sleep(duration);
}

/// Blocks the calling thread forever.
#[allow(dead_code, reason = "not every runtime has such a row")]
pub(crate) fn hold() -> ! {
    loop {
        block(Duration::from_secs(3600));
    }
}

/// Computes forever.
#[allow(dead_code, reason = "not every runtime has such a row")]
pub(crate) fn compute() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Ends the program, because its runtime says that the row can never go on.
#[allow(dead_code, reason = "few runtimes say so")]
pub(crate) fn named(how: &str) -> ! {
    say(&mut io::stdout(), &format!("hangs {how}\n"));
    process::exit(0)
}

/// Waits for the moment at which something has happened that was due at another moment.
pub(crate) fn late(due: Instant, told: &Receiver<Instant>) -> Verdict {
    match told.recv() {
        Ok(then) => Verdict::Ends(then.saturating_duration_since(due)),
        Err(_) => refused(due, "what should have told it has ended"),
    }
}

#[allow(dead_code, reason = "not every runtime refuses")]
pub(crate) fn refused(since: Instant, error: impl ToString) -> Verdict {
    Verdict::Refused(since.elapsed(), error.to_string())
}
