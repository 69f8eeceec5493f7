//! The programs in `programs/`, run by the command, with clients over TCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::procession;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn program(arguments: &str) -> Command {
    let mut command = procession("run");
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../programs")).args(arguments.split_whitespace());
    command
}

fn said(arguments: &str) -> (String, String, i32) {
    let output = program(arguments).output().expect("the command can be started");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (text(output.stdout), text(output.stderr), output.status.code().expect("it was not killed"))
}

/// A program that serves, until it is dropped.
struct Server(Child, String);

impl Server {
    fn start(name: &str) -> Self {
        let mut child =
            program(&format!("{name} 127.0.0.1:0")).stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says where it listens");
        let address = line.trim().strip_prefix("listening at ").expect("it says where it listens").to_owned();
        Self(child, address)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.1).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream
    }

    /// Sends, and takes as many bytes as are expected.
    fn check(stream: &mut TcpStream, sent: &str, expected: &str) {
        stream.write_all(sent.as_bytes()).expect("it reads");
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("it answers");
        assert_eq!(String::from_utf8_lossy(&answer), expected, "to {sent:?}");
    }

    /// Asks for the end, and waits for it.
    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.0.wait().expect("it is a child").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn hello_greets() {
    assert_eq!(said("hello.lua"), ("Hello, world!\n".into(), String::new(), 0));
    assert_eq!(said("hello.lua --name"), ("Hello, --name!\n".into(), String::new(), 0));
}

#[test]
fn skynet_adds_up() {
    let (out, _, code) = said("--stats skynet.lua 100");
    assert_eq!((out.as_str(), code), ("100 leaves, sum 4950\n", 0));
    let (_, err, code) = said("skynet.lua 12");
    assert!(err.contains("main of skynet.lua failed: ") && err.contains("must be a power of ten"), "{err}");
    assert_eq!(code, 1);
}

#[test]
fn words_are_counted_the_same_in_any_number_of_parts() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-APACHE");
    let (one, err, code) = said(&format!("wordcount.lua {file} 1"));
    assert_eq!((err.as_str(), code), ("", 0));
    let words = std::fs::read_to_string(file).expect("it is there");
    let letters = |word: &&str| word.chars().any(|letter| !letter.is_ascii_punctuation());
    let count = words.split_whitespace().filter(letters).count();
    assert!(one.starts_with(&format!("{count} words, ")), "{count} words: {one}");
    for parts in [2, 7, 64] {
        assert_eq!(said(&format!("wordcount.lua {file} {parts}")).0, one, "in {parts} parts");
    }
    let (_, err, code) = said("wordcount.lua missing");
    assert!(err.contains("cannot look at missing: No such file"), "{err}");
    assert_eq!(code, 1);
}

#[test]
fn guests_of_the_chat_hear_each_other() {
    let server = Server::start("chat.lua");
    let (mut ann, mut bob) = (server.connect(), server.connect());
    Server::check(&mut ann, "Ann\n", "Your name?\n* Ann is here\n");
    Server::check(&mut bob, "Bob\n", "Your name?\n* Bob is here\n");
    Server::check(&mut ann, "hello\n", "* Bob is here\nAnn: hello\n");
    Server::check(&mut bob, "", "Ann: hello\n");
    drop(bob);
    Server::check(&mut ann, "", "* Bob has gone\n");
    server.end();
}

#[test]
fn the_http_service_answers_and_outlives_what_fails() {
    let server = Server::start("http.lua");
    let mut client = server.connect();
    let ok = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    Server::check(&mut client, "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", &ok("hello"));
    let two = "POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\na".repeat(2);
    Server::check(&mut client, &two, &ok("a").repeat(2));
    Server::check(&mut client, "GET /count HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n");
    for (sent, expected) in [
        ("GET /broken HTTP/1.1\r\n\r\n", "HTTP/1.1 500 "),
        ("GET /nowhere HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("nonsense\r\n\r\n", "HTTP/1.1 400 "),
        ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 "),
        ("GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413 "),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 501 "),
    ] {
        Server::check(&mut server.connect(), sent, expected);
    }
    server.end();
}

#[test]
fn the_key_value_server_speaks_the_protocol_of_redis() {
    let server = Server::start("kv.lua");
    let mut client = server.connect();
    Server::check(&mut client, "PING\r\n", "+PONG\r\n");
    Server::check(&mut client, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nb\0\r\n", "+OK\r\n");
    Server::check(&mut client, "*2\r\n$3\r\nget\r\n$1\r\nk\r\n", "$5\r\na\r\nb\0\r\n");
    Server::check(
        &mut client,
        "SET n 41 EX 100\r\nINCR n\r\nINCR k\r\nGET none\r\n",
        "+OK\r\n:42\r\n-ERR value is not an integer or out of range\r\n$-1\r\n",
    );
    Server::check(&mut client, "DEL n k none\r\nGET n\r\n", ":2\r\n$-1\r\n");
    Server::check(
        &mut client,
        "SET n 1 EX 0\r\nFROB\r\nGET\r\n",
        "-ERR invalid expire time in 'set' command\r\n-ERR unknown command\r\n-ERR wrong number of arguments\r\n",
    );
    // Half a request, and then the rest.
    Server::check(&mut client, "*2\r\n$3\r\nGE", "");
    Server::check(&mut client, "T\r\n$4\r\nnone\r\n", "$-1\r\n");
    let many = 2500;
    Server::check(
        &mut client,
        &"INCR many\r\n".repeat(many),
        &(1..=many).map(|n| format!(":{n}\r\n")).collect::<String>(),
    );
    for (sent, wrong) in [
        ("*-1\r\n", "invalid multibulk length"),
        ("*99999999999\r\n", "invalid multibulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1\r\n$999999999\r\n", "invalid bulk length"),
        ("*1\r\n:3\r\n", "expected '$'"),
        ("*1\r\n$4\r\nPINGxx", "a bulk string without its end"),
    ] {
        let mut other = server.connect();
        Server::check(&mut other, sent, &format!("-ERR Protocol error: {wrong}\r\n"));
        assert_eq!(other.read(&mut [0]).expect("it closes in order"), 0, "after {sent:?}");
    }
    Server::check(&mut client, "PING\r\n", "+PONG\r\n");
    server.end();
}
