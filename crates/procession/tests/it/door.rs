//! The door: its answers, and the peers that get them.
//!
//! Method: blocking sockets speak HTTP to a scheduler of the same program.

mod access;
mod asks;
mod life;
mod live;
mod metrics;
mod openmetrics;
mod sections;
mod views;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::Scheduler;
use procession::observe::DoorOptions;
use procession::scheduler::Builder;
use procession::time::Instant;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

use crate::home::net::{TcpStream, UnixStream};
use crate::home::thread;
use crate::scene::TIMEOUT;

/// Returns the time that has passed since then.
fn since(begin: Instant) -> Duration {
    Instant::now().saturating_duration_since(begin)
}

/// Asks again and again until it is true.
fn wait_until(mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(since(begin) < TIMEOUT, "it never becomes true");
        thread::yield_now();
    }
}

/// A directory of one test. Dropping this removes it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("procession-test-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignored: the test may have removed it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A scheduler with a door.
struct Scene {
    scheduler: Scheduler,
    folder: Folder,
}

impl Scene {
    fn new(builder: Builder, settings: impl FnOnce(DoorOptions) -> DoorOptions) -> Self {
        let folder = Folder::new();
        let options = settings(DoorOptions::default().directory(&folder.0));
        let scheduler = builder.door(options).build().expect("the directory is new");
        Self { scheduler, folder }
    }

    fn threaded(settings: impl FnOnce(DoorOptions) -> DoorOptions) -> Self {
        Self::new(Scheduler::builder().name("seen").worker_threads(2), settings)
    }

    fn socket(&self) -> PathBuf {
        self.scheduler.door().expect("it was asked for").socket().to_owned()
    }

    fn get(&self, target: &str) -> Answer {
        ask(&self.socket(), &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn post(&self, target: &str) -> Answer {
        ask(&self.socket(), &format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Sends a request by TCP.
    fn by_tcp(&self, head: &str) -> Answer {
        let address = self.scheduler.door().and_then(|door| door.tcp()).expect("it was asked for");
        exchange(TcpStream::connect(address).expect("it listens"), head.as_bytes())
    }
}

/// A response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head has an end");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.expect("a response has a status");
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }
}

trait Timed: Read + Write {
    fn set_timeout(&self, timeout: Duration);
}

impl Timed for UnixStream {
    fn set_timeout(&self, timeout: Duration) {
        self.set_read_timeout(Some(timeout)).expect("it is not zero");
    }
}

impl Timed for TcpStream {
    fn set_timeout(&self, timeout: Duration) {
        self.set_read_timeout(Some(timeout)).expect("it is not zero");
    }
}

/// Reads the whole response.
fn response(stream: &mut impl Timed) -> io::Result<Answer> {
    stream.set_timeout(TIMEOUT);
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(Answer::parse(&text))
}

fn exchange(mut stream: impl Timed, request: &[u8]) -> Answer {
    stream.write_all(request).expect("the door reads");
    response(&mut stream).expect("the door answers")
}

fn connect(socket: &Path) -> UnixStream {
    UnixStream::connect(socket).expect("the door listens")
}

fn ask(socket: &Path, request: &str) -> Answer {
    exchange(connect(socket), request.as_bytes())
}

/// Sends a request, and returns the response as it is.
fn bytes(socket: &Path, request: &str) -> Vec<u8> {
    let mut stream = connect(socket);
    stream.set_timeout(TIMEOUT);
    stream.write_all(request.as_bytes()).expect("the door reads");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the door answers");
    bytes
}
