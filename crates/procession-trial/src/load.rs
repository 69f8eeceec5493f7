//! The clients. They have a separate scheduler, so that no fault of the service slows them down.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Duration;

use procession::net::TcpStream;
use procession::time::Instant;
use procession::timeout;
use procession_sync::Arc;
use procession_sync::atomic::Ordering::Relaxed;

use crate::faults;
use crate::figures::{Latencies, Sums};
use crate::service::{FAULT, WORK};

/// Number of clients, if there are descriptors for them.
pub(crate) const CONNECTIONS: u64 = 50;
/// A request that is not answered within this time is lost.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes. The service sends neither a longer head nor a longer body.
const ANSWER_MAX: usize = 4096;
/// One request in this many asks for a fault, which panics.
pub(crate) const FAULT_EVERY: u64 = 100;
/// The time between two bytes of a slow client.
pub(crate) const DRIP: Duration = Duration::from_millis(10);

/// The data of a client.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) target: SocketAddr,
    pub(crate) until: Instant,
    pub(crate) sums: Arc<Sums>,
    pub(crate) latencies: Arc<Latencies>,
    /// Each client drops it when it ends.
    pub(crate) _ends: Sender<()>,
}

fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: trial\r\n\r\n").into_bytes()
}

impl Client {
    /// Sends requests until it is time to end. If `faulty`, one request in [`FAULT_EVERY`] asks for
    /// a fault.
    pub(crate) async fn run(self, number: u64, faulty: bool) {
        let (work, fault) = (request(WORK), request(FAULT));
        let mut open = None;
        // Spread, so that the clients do not fail together, and the first one fails soon.
        let mut count = number * FAULT_EVERY / CONNECTIONS;
        while Instant::now() < self.until {
            let Some(stream) = self.connect(open.take()).await else { return };
            count += 1;
            let panics = faulty && count.is_multiple_of(FAULT_EVERY);
            let start = Instant::now();
            self.sums.asked.fetch_add(1, Relaxed);
            let answer = match stream.write_all(if panics { &fault } else { &work }).await {
                Ok(()) => read_answer(&stream).await,
                Err(error) => Err(error),
            };
            match answer {
                Err(error) if panics && is_closed(&error) => {
                    self.sums.panicked.fetch_add(1, Relaxed);
                }
                answer => open = self.account(stream, answer, start, panics),
            }
        }
    }

    /// Sends requests like [`run`](Self::run), but byte by byte.
    pub(crate) async fn run_slowly(self) {
        let work = request(WORK);
        let (last, before) = work.split_last().expect("a request has bytes");
        let mut open = None;
        loop {
            let Some(stream) = self.connect(open.take()).await else { return };
            let left = self.until.saturating_duration_since(Instant::now());
            match timeout(left, faults::drip(&stream, before, DRIP)).await {
                Ok(Ok(())) => {}
                // Ends in the middle of a request, as slow clients do.
                Err(_) => return,
                Ok(Err(_)) if self.sums.is_ending() => return,
                Ok(Err(error)) => {
                    return self.sums.lose(|| format!("a slow client was cut off: {error}"));
                }
            }
            self.sums.asked.fetch_add(1, Relaxed);
            let answer = match stream.write_all(&[*last]).await {
                Ok(()) => read_answer(&stream).await,
                Err(error) => Err(error),
            };
            // Not counted, because the client itself causes the latencies.
            open = self.account_unmeasured(stream, answer);
        }
    }

    /// Connects to the service, unless a connection is open. Returns `None` if that fails, which is
    /// a loss unless the service ends.
    async fn connect(&self, open: Option<TcpStream>) -> Option<TcpStream> {
        if open.is_some() {
            return open;
        }
        let connected = async {
            let stream = TcpStream::connect_timeout(self.target, TIMEOUT).await?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Ok::<_, io::Error>(stream)
        };
        match connected.await {
            Ok(stream) => Some(stream),
            Err(_) if self.sums.is_ending() => None,
            Err(error) => {
                // Also counted as asked, so that the sums agree.
                self.sums.asked.fetch_add(1, Relaxed);
                self.sums.lose(|| format!("cannot connect: {error}"));
                None
            }
        }
    }

    /// Counts an answer. Returns the stream if it can be used again.
    fn account(
        &self,
        stream: TcpStream,
        answer: io::Result<Answer>,
        start: Instant,
        panics: bool,
    ) -> Option<TcpStream> {
        let latency = Instant::now().saturating_duration_since(start);
        match answer {
            Ok(answer) if answer.status == 200 && !panics => {
                self.sums.answer(&self.latencies, latency);
                answer.keeps_open.then_some(stream)
            }
            answer => self.account_failure(answer),
        }
    }

    fn account_unmeasured(
        &self,
        stream: TcpStream,
        answer: io::Result<Answer>,
    ) -> Option<TcpStream> {
        match answer {
            Ok(answer) if answer.status == 200 => {
                self.sums.answered.fetch_add(1, Relaxed);
                answer.keeps_open.then_some(stream)
            }
            answer => self.account_failure(answer),
        }
    }

    fn account_failure(&self, answer: io::Result<Answer>) -> Option<TcpStream> {
        match answer {
            // Closed without a byte. If the request had begun nevertheless, the service has counted
            // one more than were answered.
            Err(error) if self.sums.is_ending() && is_closed(&error) => {
                self.sums.turned_away.fetch_add(1, Relaxed);
            }
            Err(error) => self.sums.lose(|| format!("a request was not answered: {error}")),
            Ok(answer) => {
                self.sums.lose(|| format!("a request was answered with status {}", answer.status))
            }
        }
        None
    }
}

/// Returns `true` if the other end closed the connection, in whatever way.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    keeps_open: bool,
}

/// Reads one answer, to the last byte of its body.
async fn read_answer(stream: &TcpStream) -> io::Result<Answer> {
    let mut bytes = [0; ANSWER_MAX];
    let mut length = 0;
    loop {
        match stream.read(&mut bytes[length..]).await? {
            0 if length == ANSWER_MAX => return Err(malformed("is too long")),
            // In the middle of an answer, this is always a loss.
            0 if length > 0 => return Err(malformed("ends in the middle")),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => length += count,
        }
        if let Some((answer, size)) = parse(&bytes[..length])?
            && length >= size
        {
            return if length == size {
                Ok(answer)
            } else {
                Err(malformed("is longer than it says"))
            };
        }
    }
}

fn malformed(how: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the answer {how}"))
}

/// Returns the answer and its size including the body, once the head is complete.
fn parse(bytes: &[u8]) -> io::Result<Option<(Answer, usize)>> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|_| malformed("is no text"))?;
    let mut lines = text.split("\r\n");
    let status =
        lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let mut answer =
        Answer { status: status.ok_or_else(|| malformed("has no status"))?, keeps_open: true };
    let mut body = None;
    for line in lines {
        let (name, value) =
            line.split_once(':').ok_or_else(|| malformed("has a strange header"))?;
        if name.eq_ignore_ascii_case("content-length") {
            body = value.trim().parse::<usize>().ok().filter(|length| *length <= ANSWER_MAX);
        } else if name.eq_ignore_ascii_case("connection") {
            answer.keeps_open = !value.trim().eq_ignore_ascii_case("close");
        }
    }
    let body = body.ok_or_else(|| malformed("has no length"))?;
    Ok(Some((answer, head + 4 + body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: close\r\n\r\nhello";
        let whole = Some((Answer { status: 200, keeps_open: false }, bytes.len()));
        assert_eq!(parse(bytes).ok(), Some(whole));
        assert_eq!(parse(&bytes[..30]).ok(), Some(None));
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [
            &b"nonsense\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        ] {
            assert!(parse(bytes).is_err());
        }
    }
}
