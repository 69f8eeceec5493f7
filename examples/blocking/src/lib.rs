//! The common part of the examples: many conversations at once on two workers. In each of them, the
//! client halts in the middle of what it says.
//!
//! Look at [`converse`]: some clients halt until all others have ended. If the session of one of
//! them blocked a worker, the sessions that are bound to that worker could not go on, and the
//! program would never end.

use std::collections::HashSet;
use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use procession::coroutine::{self, Wait};
use procession::net::{TcpListener, TcpStream};
use procession::sync::{Barrier, Semaphore};
use procession::{Child, Scheduler, SpawnOptions};

/// Number of clients that go on as soon as all are halfway.
pub const SWIFT: usize = 120;
/// Number of clients that go on once the others have ended.
pub const SLOW: usize = 8;
const ALL: usize = SLOW + SWIFT;

const WORKERS: usize = 2;

/// Only a hang takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub type Failed = Box<dyn Error + Send + Sync>;

/// The meeting point of all conversations.
struct Meeting {
    /// Every client that has said half waits here, and every session that has heard it.
    halfway: Barrier,
    /// Has one permit for each slow client, once the others have ended.
    go_on: Semaphore,
    /// The threads on which the sessions run.
    threads: Mutex<HashSet<ThreadId>>,
}

/// A socket of Procession, as the libraries use it.
pub struct Line {
    stream: TcpStream,
    halt: Option<Halt>,
}

enum Halt {
    Saying { meeting: Arc<Meeting>, is_slow: bool },
    Hearing(Arc<Meeting>),
}

impl Line {
    /// Sets the timeout of reads and writes.
    pub fn set_patience(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)?;
        self.stream.set_write_timeout(patience)
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = Read::read(&mut self.stream, buffer)?;
        if let Some(Halt::Hearing(meeting)) =
            self.halt.take_if(|halt| matches!(halt, Halt::Hearing(_)))
        {
            meeting.halfway.wait().wait();
        }
        Ok(count)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(Halt::Saying { meeting, is_slow }) =
            self.halt.take_if(|halt| matches!(halt, Halt::Saying { .. }))
        else {
            return Write::write(&mut self.stream, bytes);
        };
        let half = bytes.len().div_ceil(2);
        Write::write_all(&mut self.stream, &bytes[..half])?;
        meeting.halfway.wait().wait();
        if is_slow {
            drop(meeting.go_on.acquire(1).wait());
        }
        Ok(half)
    }

    fn flush(&mut self) -> io::Result<()> {
        Write::flush(&mut self.stream)
    }
}

/// Holds all conversations in coroutines. `serve` is a session, until the end of its line. `ask` is
/// a client, and receives its number. Returns the number of threads on which the sessions ran.
///
/// # Errors
/// The first error of a client or of a session. It is also an error if one of them does not end
/// within a minute.
pub fn converse(
    serve: impl Fn(Line) -> Result<(), Failed> + Send + Sync + 'static,
    ask: impl Fn(Line, usize) -> Result<(), Failed> + Send + Sync + 'static,
) -> Result<usize, Failed> {
    // If one of these threads is blocked, no other one can help.
    let builder =
        Scheduler::builder().name("conversations").worker_threads(WORKERS).max_threads(WORKERS);
    // SAFETY: neither the libraries nor this crate keep a thread-local pointer that is scoped to a
    // frame while a line waits.
    #[expect(unsafe_code, reason = "the promise that coroutines need")]
    let scheduler = unsafe { builder.enable_coroutines() }.build()?;
    let meeting = Arc::new(Meeting {
        halfway: Barrier::new(2 * ALL),
        go_on: Semaphore::new(0),
        threads: Mutex::new(HashSet::new()),
    });
    let listener = scheduler.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let sessions = {
        let (meeting, serve) = (Arc::clone(&meeting), Arc::new(serve));
        start(&scheduler, move |_| {
            let mut sessions = Vec::with_capacity(ALL);
            for _ in 0..ALL {
                let (stream, _) = coroutine::wait(listener.accept())?;
                let line = Line { stream, halt: Some(Halt::Hearing(Arc::clone(&meeting))) };
                let (meeting, serve) = (Arc::clone(&meeting), Arc::clone(&serve));
                let session = move |_: coroutine::Context<()>| {
                    meeting
                        .threads
                        .lock()
                        .expect("nobody panics with it")
                        .insert(thread::current().id());
                    serve(line)
                };
                sessions.push(
                    SpawnOptions::new()
                        .try_start_coroutine(session)
                        .map_err(|error| error.to_string())?,
                );
            }
            sessions.into_iter().try_for_each(|session| coroutine::wait(session)?)
        })?
    };
    let (say, ended) = mpsc::channel();
    let ask = Arc::new(ask);
    for number in 0..ALL {
        let (meeting, ask, say) = (Arc::clone(&meeting), Arc::clone(&ask), say.clone());
        let client = start(&scheduler, move |_| {
            let is_slow = number < SLOW;
            let connected = coroutine::wait(TcpStream::connect(address)).map_err(Failed::from);
            let asked = connected.and_then(|stream| {
                ask(Line { stream, halt: Some(Halt::Saying { meeting, is_slow }) }, number)
            });
            Ok(say.send((is_slow, asked))?)
        })?;
        client.detach();
    }
    drop(say);
    for number in 0..ALL {
        if number == SWIFT {
            meeting.go_on.add_permits(SLOW);
        }
        let (is_slow, asked) = ended.recv_timeout(PATIENCE)?;
        asked?;
        assert_eq!(is_slow, number >= SWIFT, "the slow ones end last");
    }
    sessions.join()??;
    let threads = meeting.threads.lock().expect("nobody panics with it").len();
    assert!(threads <= WORKERS, "no other thread was started");
    Ok(threads)
}

fn start<T: procession::process::Outcome + Send + 'static>(
    scheduler: &Scheduler,
    run: impl FnOnce(coroutine::Context<()>) -> Result<T, Failed> + Send + 'static,
) -> Result<Child<(), Result<T, Failed>>, Failed> {
    SpawnOptions::new()
        .on(scheduler)
        .try_start_coroutine(run)
        .map_err(|error| error.to_string().into())
}
