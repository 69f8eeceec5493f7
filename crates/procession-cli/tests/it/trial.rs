//! A short trial, with a client of the test in addition to its own clients.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{check, procession};

/// A trial that has begun, and its address.
struct Begun {
    child: Child,
    text: BufReader<ChildStdout>,
    address: String,
}

fn begin(arguments: &str) -> Begun {
    let mut child = procession(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let mut text = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    text.read_line(&mut line).expect("the output is text");
    let address = line.split(['/', ' ']).find(|word| word.starts_with("127.0.0.1:"));
    let address = address.unwrap_or_else(|| panic!("it says where it serves: {line}")).to_owned();
    Begun { child, text, address }
}

impl Begun {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for the end. Returns what it printed after the first line, and the rest.
    fn end(mut self) -> (String, Output) {
        let mut text = String::new();
        self.text.read_to_string(&mut text).expect("the output is text");
        (text, self.child.wait_with_output().expect("it can be waited for"))
    }
}

/// Sends a request like `curl`.
fn ask(stream: &mut TcpStream, page: &str) -> String {
    write!(stream, "GET {page} HTTP/1.1\r\nhost: me\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    let mut bytes = [0; 256];
    while !answer.ends_with("\n") || !answer.contains("\r\n\r\n") {
        let count = stream.read(&mut bytes).expect("it answers");
        assert_ne!(count, 0, "it answers to the end: {answer}");
        answer += std::str::from_utf8(&bytes[..count]).expect("the answer is text");
    }
    answer
}

/// Sends half a request, and waits until the server has read it.
fn ask_half(stream: &mut TcpStream) {
    stream.write_all(b"GET / HT").expect("it listens");
    let port = |address: std::io::Result<SocketAddr>| {
        format!(":{:04X}", address.expect("it is connected").port())
    };
    let (own, other) = (port(stream.local_addr()), port(stream.peer_addr()));
    let is_read = || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("this is Linux");
        table.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            // The addresses of the server's side, and what waits to be sent and to be read.
            matches!(&*fields, [_, local, remote, _, queues, ..]
                if local.ends_with(&other) && remote.ends_with(&own) && queues.ends_with(":00000000"))
        })
    };
    while !is_read() {
        std::thread::yield_now();
    }
}

#[test]
fn a_trial_goes_through_all_stages_keeps_its_promises_and_answers_others_meanwhile() {
    let trial = begin("trial --seconds 3");
    let mut stream = TcpStream::connect(&trial.address).expect("it listens");
    let answer = ask(&mut stream, "/whatever");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("answered by p"),
        "{answer}"
    );
    drop(stream);
    let (text, output) = trial.end();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{text}");
    assert!(text.contains("Look into it at http://127.0.0.1:"), "{text}");
    let stages = [
        "clean",
        "beside",
        "beside",
        "beside",
        "while one request in 100",
        "with",
        "shutdown under load",
    ];
    let (told, ledger) = text.split_once("The ledger:\n").expect("there is a ledger");
    // The lines behind the head of the table.
    let table = told.lines().skip_while(|line| !line.contains("requests/s")).skip(1);
    let lines: Vec<&str> = table.filter(|line| line.len() > 90).collect();
    assert_eq!(lines.len(), stages.len(), "{text}");
    for (line, stage) in lines.iter().zip(stages) {
        let figures: Vec<f64> =
            line[46..].split_whitespace().map(|word| word.parse().expect("a figure")).collect();
        let [rate, p50, p99, longest, threads, _] = figures[..] else {
            panic!("six figures: {line}")
        };
        assert!(line.starts_with(stage) && rate > 0.0 && threads > 0.0, "{text}");
        assert!(p50 <= p99 && p99 <= longest + 0.05, "{text}");
    }
    assert_eq!(ledger.matches(" = ").count(), 6, "{text}");
    assert!(ledger.ends_with("verdict: every promise was kept\n"), "{text}");
    // The numbers of panics and stages are consistent.
    let panics = ledger
        .lines()
        .find_map(|line| line.trim().strip_prefix("panics"))
        .expect("they are in the ledger");
    assert!(!panics.trim().starts_with("0 "), "{text}");
}

#[test]
fn the_first_signal_ends_a_trial_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let trial = begin("trial --seconds 600");
        ask(&mut TcpStream::connect(&trial.address).expect("it listens"), "/");
        trial.signal(signal);
        let (text, output) = trial.end();
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("shutdown, asked for by a signal: took "), "{text}");
        assert!(
            text.ends_with(
                "verdict: every promise was kept, as far as it was held: a signal ended it\n"
            ),
            "{text}"
        );
    }
}

#[test]
fn the_second_signal_ends_a_trial_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let trial = begin("trial --seconds 600 --deadline 600");
        let mut idle = TcpStream::connect(&trial.address).expect("it listens");
        ask(&mut idle, "/");
        // Half a request. The shutdown waits for its end.
        let mut half = TcpStream::connect(&trial.address).expect("it listens");
        ask(&mut half, "/");
        ask_half(&mut half);
        trial.signal(signal);
        // Idle connections are closed when the shutdown begins.
        let closed = idle.read(&mut [0]);
        assert!(
            matches!(&closed, Ok(0))
                || closed.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        );
        trial.signal(signal);
        let (text, output) = trial.end();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(!text.contains("verdict"), "{text}");
    }
}

#[test]
fn a_deadline_ends_what_does_not_end_by_itself() {
    let trial = begin("trial --seconds 600 --deadline 1");
    let mut half = TcpStream::connect(&trial.address).expect("it listens");
    ask(&mut half, "/");
    ask_half(&mut half);
    trial.signal(Signal::TERM);
    let (text, output) = trial.end();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(matches!(half.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn an_address_that_is_taken_or_none_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, _taken) = taken.expect("the system gives a port");
    check(
        &format!("trial --listen {address}"),
        &format!(
            "procession: cannot listen on {address}: Address already in use (os error 98)\nexit code: 1\n"
        ),
    );
    let output =
        procession("trial --listen nonsense").output().expect("the command can be started");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("procession: cannot listen on nonsense: "), "{errors}");
}
