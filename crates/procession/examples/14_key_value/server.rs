//! The connections, and the tree of all processes.

#[path = "protocol.rs"]
mod protocol;
#[path = "shard.rs"]
mod shard;

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use futures_lite::future::or;
use procession::net::{TcpListener, TcpStream};
use procession::process::{Named, exit, whereis};
use procession::supervisor::{ChildError, ChildSpec, Supervisor, SupervisorRef, Template};
use procession::{Context, Exit};
use procession_sync::Arc;

use protocol::{Answer, parse};
use shard::{Batch, Key, Operation, shard};

/// Maximum number of requests that are passed to the shards together.
const BATCH_MAX: usize = 256;
/// Size in bytes of the answers that are buffered before they are written.
const ANSWERS_MAX: usize = 64 << 10;
/// Size in bytes of the read buffer.
const READ_MAX: usize = 16 << 10;
/// A client that sends nothing, or reads nothing, for this long is disconnected.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);
/// A shard answers within microseconds. A shard that fails is restarted with no data.
const SHARD_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTIONS: &str = "connections";

/// Returns the tree of all processes. It stops in reverse order: first the acceptor, then the open
/// connections, which answer what has arrived, and then the shards that they ask.
pub(crate) fn tree(listener: TcpListener, shards: usize) -> Supervisor {
    let listener = Arc::new(listener);
    let accept = move |cx| accept(cx, Arc::clone(&listener), shards);
    let name = |number| format!("shard {number}");
    let tree = (0..shards).map(|number| ChildSpec::new(name(number), shard).name(name(number)));
    tree.fold(Supervisor::one_for_one(), Supervisor::child)
        .child(ChildSpec::supervisor(CONNECTIONS, Supervisor::dynamic()).name(CONNECTIONS))
        .child(ChildSpec::new("acceptor", accept))
}

async fn accept(cx: Context<Infallible>, listener: Arc<TcpListener>, shards: usize) {
    let shards: Vec<Named<Batch>> =
        (0..shards).map(|number| Named::new(format!("shard {number}"))).collect();
    let connections = whereis(CONNECTIONS).and_then(SupervisorRef::of);
    let connections =
        connections.unwrap_or_else(|| exit(Exit::failed("there is no supervisor of connections")));
    let template = Template::new(|cx: Context<Infallible>, connection: Connection| async move {
        // Ignored: an error of a connection concerns only its client.
        let _ = connection.run(cx).await;
    });
    loop {
        let next = async { Some(listener.accept().await) };
        let stream = match or(
            async {
                cx.cancelled().await;
                None
            },
            next,
        )
        .await
        {
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => exit(Exit::failed(format!("cannot accept a connection: {error}"))),
            None => return,
        };
        let connection = Connection { stream, shards: shards.clone(), answers: Vec::new() };
        match connections.add_another(&template, connection).await {
            Ok(_) => {}
            // A connection that could not be started is closed.
            Err(refused) if matches!(refused.cause(), ChildError::Start(_)) => {}
            Err(_) => return,
        }
    }
}

/// The answer to one request: known at once, or the answers of shards at these places. The numbers
/// in several answers are added.
enum Asked {
    Now(Answer),
    Shards(Vec<(usize, usize)>),
}

/// Appends an operation to the batch of the shard that owns its key. Returns the shard and the
/// index in its batch.
fn put(
    batches: &mut [Vec<Operation>],
    key: &[u8],
    operation: impl FnOnce(Key) -> Operation,
) -> (usize, usize) {
    // FNV-1a. Any hash that spreads the keys would do.
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let shard = (key.iter().fold(0xcbf2_9ce4_8422_2325, mix) >> 32) as usize % batches.len();
    batches[shard].push(operation(Arc::from(key)));
    (shard, batches[shard].len() - 1)
}

fn ask(arguments: &[&[u8]], batches: &mut [Vec<Operation>]) -> Asked {
    let name = arguments[0][..arguments[0].len().min(64)].to_ascii_uppercase();
    let refused = |text: &str| Asked::Now(Answer::error(text));
    match (&name[..], &arguments[1..]) {
        (b"PING", []) => Asked::Now(Answer::Text("PONG")),
        (b"PING", [text]) => Asked::Now(Answer::Value(Some(Arc::from(*text)))),
        (b"GET", [key]) => Asked::Shards(vec![put(batches, key, Operation::Get)]),
        (b"INCR", [key]) => Asked::Shards(vec![put(batches, key, Operation::Increment)]),
        (b"DEL", keys @ [_, ..]) => {
            Asked::Shards(keys.iter().map(|key| put(batches, key, Operation::Delete)).collect())
        }
        (b"SET", [key, value, options @ ..]) => {
            let time = match options {
                [] => None,
                [ex, time] if ex.eq_ignore_ascii_case(b"EX") => {
                    match std::str::from_utf8(time)
                        .ok()
                        .and_then(|text| text.parse::<i64>().ok())
                        .map(u64::try_from)
                    {
                        Some(Ok(seconds @ 1..)) => Some(Duration::from_secs(seconds)),
                        Some(_) => return refused("invalid expire time in 'set' command"),
                        None => return refused("value is not an integer or out of range"),
                    }
                }
                _ => return refused("syntax error"),
            };
            Asked::Shards(vec![put(batches, key, |key| {
                Operation::Set(key, Arc::from(*value), time)
            })])
        }
        (b"GET" | b"SET" | b"DEL" | b"INCR" | b"PING", _) => {
            let name = name.to_ascii_lowercase();
            refused(&format!("wrong number of arguments for '{}' command", name.escape_ascii()))
        }
        _ => refused(&format!("unknown command '{}'", name.escape_ascii())),
    }
}

struct Connection {
    stream: TcpStream,
    shards: Vec<Named<Batch>>,
    /// Answers that are not written yet.
    answers: Vec<u8>,
}

impl Connection {
    /// Serves until the client disconnects or breaks the protocol. If the process is cancelled,
    /// answers what has arrived first.
    async fn run(mut self, cx: Context<Infallible>) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        self.stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        self.stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let (mut bytes, mut part) = (Vec::new(), vec![0; READ_MAX]);
        loop {
            let cancelled = async {
                cx.cancelled().await;
                Ok(None)
            };
            let count =
                match or(async { self.stream.read(&mut part).await.map(Some) }, cancelled).await? {
                    Some(count) => count,
                    None => match self.stream.try_read(&mut part) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                        read => read?,
                    },
                };
            bytes.extend(&part[..count]);
            if count == 0 || !self.serve(&mut bytes).await? {
                return Ok(());
            }
        }
    }

    /// Answers all complete requests, and removes them from `bytes`. Returns `false` if the client
    /// broke the protocol.
    async fn serve(&mut self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let mut at = 0;
        loop {
            let mut batches: Vec<Vec<Operation>> = self.shards.iter().map(|_| Vec::new()).collect();
            let (mut asked, mut malformed) = (Vec::new(), None);
            while asked.len() < BATCH_MAX {
                match parse(&bytes[at..]) {
                    Ok(Some((arguments, length))) => {
                        at += length;
                        asked
                            .extend((!arguments.is_empty()).then(|| ask(&arguments, &mut batches)));
                    }
                    Ok(None) => break,
                    Err(error) => {
                        malformed = Some(Answer::error(format!("Protocol error: {}", error.0)));
                        break;
                    }
                }
            }
            let is_all = asked.len() < BATCH_MAX;
            let mut answers = Vec::new();
            for (shard, batch) in self.shards.iter().zip(batches) {
                let answer = match batch.is_empty() {
                    true => Ok(Vec::new()),
                    false => shard.call(|reply| Batch(batch, reply), SHARD_TIMEOUT).await,
                };
                // Each of these requests gets an error.
                answers.push(answer.unwrap_or_default());
            }
            for asked in asked {
                match asked {
                    Asked::Now(answer) => answer.write(&mut self.answers),
                    Asked::Shards(places) => {
                        together(&mut answers, &places).write(&mut self.answers)
                    }
                }
                if self.answers.len() >= ANSWERS_MAX {
                    self.flush().await?;
                }
            }
            if let Some(error) = &malformed {
                error.write(&mut self.answers);
            }
            self.flush().await?;
            if is_all || malformed.is_some() {
                bytes.drain(..at);
                return Ok(malformed.is_none());
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.answers).await?;
        self.answers.clear();
        Ok(())
    }
}

/// Combines the answers at these places into the answer to one request.
fn together(answers: &mut [Vec<Answer>], places: &[(usize, usize)]) -> Answer {
    let mut part = |(shard, index): &(usize, usize)| match answers[*shard].get_mut(*index) {
        Some(answer) => std::mem::replace(answer, Answer::Text("OK")),
        None => Answer::error("the shard does not answer"),
    };
    let (first, others) = places.split_first().expect("it asks for one key at least");
    others.iter().fold(part(first), |sum, place| match (sum, part(place)) {
        (Answer::Number(sum), Answer::Number(more)) => Answer::Number(sum + more),
        (Answer::Number(_), error) | (error, _) => error,
    })
}
