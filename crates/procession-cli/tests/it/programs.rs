//! The programs in `programs/`, run by the command, with clients over TCP.

use std::io::{BufRead, BufReader, Read, Write, pipe};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::procession;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(30);

fn program(arguments: &str) -> Command {
    let mut command = procession("run");
    command
        .args(["--allow-listen", concat!("--allow-read=", env!("CARGO_MANIFEST_DIR"), "/../..")])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../programs"))
        .args(arguments.split_whitespace());
    command
}

fn said(arguments: &str) -> (String, String, i32) {
    let output = program(arguments).output().expect("the command can be started");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (text(output.stdout), text(output.stderr), output.status.code().expect("it was not killed"))
}

/// A program that serves until it is dropped.
struct Server(Child, String);

impl Server {
    fn start(name: &str) -> Self {
        // What has begun may take its time, even at the end.
        Self::begin(program(&format!("--deadline 600 {name} 127.0.0.1:0")))
    }

    /// Starts the program with that many descriptors.
    fn start_limited(name: &str, descriptors: u32) -> Self {
        let all = program(&format!("{name} 127.0.0.1:0"));
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""))
            .arg(all.get_program());
        command.args(all.get_args()).current_dir(all.get_current_dir().expect("it has one"));
        Self::begin(command)
    }

    fn begin(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says where it listens");
        let address =
            line.trim().strip_prefix("listening at ").expect("it says where it listens").to_owned();
        Self(child, address)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.1).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("the time is not zero");
        stream
    }

    /// Sends, and reads as many bytes as are expected.
    fn check(stream: &mut TcpStream, sent: &str, expected: &str) {
        stream.write_all(sent.as_bytes()).expect("it reads");
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("it answers");
        assert_eq!(String::from_utf8_lossy(&answer), expected, "to {sent:?}");
    }

    /// Returns the bytes of memory that it has.
    fn resident(&self) -> usize {
        let path = format!("/proc/{}/statm", self.0.id());
        let pages = std::fs::read_to_string(path).expect("it runs");
        let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("the second word is a number") * 4096
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    fn wait(mut self) -> Option<i32> {
        self.0.wait().expect("it is a child").code()
    }

    /// Asks for the end, and waits for it.
    fn end(self) {
        self.signal(Signal::TERM);
        assert_eq!(self.wait(), Some(0));
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
    assert!(
        err.contains("main of skynet.lua failed: ") && err.contains("must be a power of ten"),
        "{err}"
    );
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
    assert!(err.contains("cannot get the size of missing: No such file"), "{err}");
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
    let ok =
        |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    Server::check(
        &mut client,
        "POST /echo HTTP/1.1\r\nHost: me\r\nContent-Length: 5\r\n\r\nhello",
        &ok("hello"),
    );
    let two = "POST /echo HTTP/1.1\r\nHost: me\r\nContent-Length: 1\r\n\r\na".repeat(2);
    Server::check(&mut client, &two, &ok("a").repeat(2));
    Server::check(
        &mut client,
        "GET /count HTTP/1.1\r\nHost: me\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
    );
    for (sent, expected) in [
        ("GET /broken HTTP/1.1\r\nHost: me\r\n\r\n", "HTTP/1.1 500 "),
        ("GET /nowhere HTTP/1.1\r\nHost: me\r\n\r\n", "HTTP/1.1 404 "),
        ("nonsense\r\n\r\n", "HTTP/1.1 400 "),
        ("GET / HTTP/1.1\r\nHost: me\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 "),
        ("GET / HTTP/1.1\r\nHost: me\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413 "),
        ("GET / HTTP/1.1\r\nHost: me\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 "),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        ("GET / HTTP/1.1\r\nHost: me\r\n no name\r\n\r\n", "HTTP/1.1 400 "),
        (&format!("GET / HTTP/1.1\r\nHost: me\r\n{}", "a: b\r\n".repeat(101)), "HTTP/1.1 431 "),
        (&format!("GET / HTTP/1.1\r\nHost: me\r\na: {}", "b".repeat(9000)), "HTTP/1.1 431 "),
        (&"a".repeat(9000), "HTTP/1.1 400 "),
    ] {
        Server::check(&mut server.connect(), sent, expected);
    }
    // The client closes its half after its last request, and gets all answers.
    let mut client = server.connect();
    client.write_all(two.as_bytes()).expect("it reads");
    client.shutdown(Shutdown::Write).expect("it is open");
    let mut answers = String::new();
    client.read_to_string(&mut answers).expect("it closes in order");
    assert_eq!(answers, ok("a").repeat(2));
    // Half requests, which are never completed.
    for half in [
        "GET / HT",
        "GET / HTTP/1.1\r\nhost",
        "POST /echo HTTP/1.1\r\nHost: me\r\nContent-Length: 5\r\n\r\nhe",
    ] {
        let mut client = server.connect();
        client.write_all(half.as_bytes()).expect("it reads");
        client.shutdown(Shutdown::Write).expect("it is open");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it closes in order");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "to {half:?}: {answer}");
    }
    Server::check(
        &mut server.connect(),
        "POST /echo HTTP/1.1\r\nHost: me\r\nContent-Length: 1\r\n\r\na",
        &ok("a"),
    );
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
    // More than a request may contain. Bytes that are unread when the server closes may cost the
    // answer.
    let mut other = server.connect();
    let values = format!("$500000\r\n{}\r\n", "v".repeat(500_000)).repeat(3);
    drop(other.write_all(format!("*64\r\n{values}").as_bytes()));
    let mut answer = Vec::new();
    drop(other.read_to_end(&mut answer));
    assert!(answer.is_empty() || answer == b"-ERR Protocol error: too big a request\r\n");
    Server::check(&mut client, "PING\r\n", "+PONG\r\n");
    server.end();
}

#[test]
fn answers_larger_than_the_memory_of_a_process_come_in_parts() {
    let server = Server::start("kv.lua");
    let mut client = server.connect();
    let value = "v".repeat(500_000);
    Server::check(
        &mut client,
        &format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000\r\n{value}\r\n"),
        "+OK\r\n",
    );
    let many = 150;
    client.write_all("GET k\r\n".repeat(many).as_bytes()).expect("it reads");
    let mut answer = vec![0; "$500000\r\n".len() + value.len() + 2];
    for _ in 0..many {
        client.read_exact(&mut answer).expect("it answers");
    }
    assert!(answer.starts_with(b"$500000\r\nv") && answer.ends_with(b"v\r\n"));
    server.end();
}

/// If a client sends requests with long answers and reads none, the server holds only some answers,
/// and serves other clients.
#[test]
fn a_client_that_never_reads_costs_bounded_memory() {
    let body = "b".repeat(100_000);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{body}\r\n");
    let echo = format!("POST /echo HTTP/1.1\r\nHost: me\r\nContent-Length: 100000\r\n\r\n{body}");
    for (name, first, request, other, answer) in [
        ("kv.lua", &*set, &*"GET k\r\n".repeat(100), "PING\r\n", "+PONG\r\n"),
        ("http.lua", "", &*echo, "GET /nowhere HTTP/1.1\r\nHost: me\r\n\r\n", NOWHERE),
    ] {
        let server = Server::start(name);
        let mut client = server.connect();
        client.write_all(first.as_bytes()).expect("it reads");
        client.set_nonblocking(true).expect("it is a socket");
        let (mut sent, mut full) = (0, 0);
        // The server stops to read once nothing more fits.
        while sent < 200 << 20 && full < 20 {
            match client.write(&request.as_bytes()[sent % request.len()..]) {
                Ok(count) => (sent, full) = (sent + count, 0),
                Err(_) => {
                    full += 1;
                    Server::check(&mut server.connect(), other, answer);
                }
            }
        }
        assert_eq!(full, 20, "{name} took {sent} bytes");
        let resident = server.resident();
        assert!(resident < 64 << 20, "{name}: {resident} bytes");
    }
}

/// The answer of the HTTP server to a request for `/nowhere`.
const NOWHERE: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 21\r\n\r\nthere is no /nowhere\n";

#[test]
fn a_signal_amid_the_load_finishes_what_has_come() {
    let many = 500;
    let counts = (1..=many).map(|n| format!("{{\"count\":{n}}}\n"));
    let head = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: me\r\n\r\n");
    let numbers = (1..=many).map(|n| format!(":{n}\r\n")).collect::<String>();
    for (name, request, expected, (first, answer)) in [
        ("kv.lua", "INCR n\r\n", numbers, ("GET k\r\n".to_owned(), "$-1\r\n")),
        (
            "http.lua",
            &*get("/count"),
            counts.map(|body| head(&body)).collect(),
            (get("/nowhere"), NOWHERE),
        ),
    ] {
        let server = Server::start(name);
        let (mut client, mut idle) = (server.connect(), server.connect());
        // A connection that was not accepted yet would be reset.
        Server::check(&mut idle, &first, answer);
        client.write_all(request.repeat(many).as_bytes()).expect("it reads");
        // The request has begun.
        let mut answer = vec![0; 4];
        client.read_exact(&mut answer).expect("it answers");
        server.signal(Signal::TERM);
        client.read_to_end(&mut answer).expect("it closes in order");
        assert_eq!(String::from_utf8_lossy(&answer), expected, "of {name}");
        assert_eq!(idle.read(&mut [0]).expect("it closes in order"), 0);
        assert_eq!(server.wait(), Some(0), "{name}");
    }
}

#[test]
fn a_request_that_has_begun_may_come_to_its_end_after_a_signal() {
    let server = Server::start("http.lua");
    let (mut client, mut idle) = (server.connect(), server.connect());
    // A connection that was not accepted yet would be reset.
    Server::check(&mut idle, "GET /nowhere HTTP/1.1\r\nHost: me\r\n\r\n", NOWHERE);
    client
        .write_all(b"POST /echo HTTP/1.1\r\nHost: me\r\nContent-Length: 5\r\n\r\nhe")
        .expect("it reads");
    server.signal(Signal::TERM);
    // Idle connections are closed, so the signal has come.
    assert_eq!(idle.read(&mut [0]).expect("it closes in order"), 0);
    // New clients are refused while the request is being completed. The deadline would cut the
    // request off.
    while TcpStream::connect(&server.1).is_ok() {}
    client.write_all(b"llo").expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it closes in order");
    assert!(answer.ends_with("Content-Length: 5\r\n\r\nhello"), "{answer}");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn the_second_signal_ends_a_program_at_once() {
    let path = format!("{}/stays.lua", env!("CARGO_TARGET_TMPDIR"));
    let source = "function main() print('begins') process.receive() print('stays') while true do time.sleep(1000) end end";
    std::fs::write(&path, source).expect("the folder is there");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = program(&format!("--deadline 600 {path}"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        for line in ["begins", "stays"] {
            assert_eq!(lines.next().expect("it says so").expect("it is text"), line);
            kill_process(Pid::from_child(&child), signal).expect("it runs");
        }
        assert_eq!(child.wait().expect("it is a child").code(), Some(code));
    }
}

#[test]
fn what_does_not_end_by_itself_is_ended_by_the_deadline() {
    let path = format!("{}/stubborn.lua", env!("CARGO_TARGET_TMPDIR"));
    let source = "function main() print('begins') while true do time.sleep(1000) end end";
    std::fs::write(&path, source).expect("the folder is there");
    let mut command = program(&format!("--deadline 1 {path}"));
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped"))
        .read_line(&mut line)
        .expect("it says that it begins");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let output = child.wait_with_output().expect("it is a child");
    let errors = String::from_utf8_lossy(&output.stderr);
    let told = format!("procession: cannot end {path}: 1 of its processes ");
    assert!(errors.starts_with(&told), "{errors}");
    assert_eq!(output.status.code(), Some(1));
}

/// Writes a program for one test, and returns its path.
fn written(name: &str, source: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, source).expect("the folder is there");
    path
}

/// Prints more than a pipe holds, and less than a pipe and the buffer hold. A pipe holds 16 pages.
/// A write may leave nearly half a page empty, so 33 kB may fill it. The buffer has 64 KiB.
const FITS: &str = "for i = 1, 90 do print(string.rep('x', 999)) end";

#[test]
fn all_that_is_printed_arrives_in_order_before_the_exit() {
    let source = "
        function noisy(name) for i = 1, 1000 do print(name, i) end end
        function main()
          for name = 1, 8 do process.monitor(process.spawn('noisy', name)) end
          for name = 1, 8 do process.receive() end
          noisy('main')
        end";
    let (out, err, code) = said(&written("noisy.lua", source));
    assert_eq!((err.as_str(), code), ("", 0));
    for name in ["1", "2", "3", "4", "5", "6", "7", "8", "main"] {
        let numbers = out.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        assert!(numbers.map(|number| number.parse::<u32>()).eq((1..=1000).map(Ok)), "of {name}");
    }
    assert!(out.ends_with("main\t1000\n"));
}

#[test]
fn standard_input_is_read_by_lines_counts_and_as_a_whole() {
    let source = "
        function reads(main) process.send(main, io.read()) end
        function main()
          io.write(io.read(), 1, '|', io.read('L'), io.read(2), '|')
          process.spawn('reads', process.self())
          io.write(process.receive(), '|', io.read('a'), '|', tostring(io.read('l')), io.read('a'))
        end";
    let mut child = program(&written("reads.lua", source))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program is there");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"one\ntwo\nthree\nfour\n\xff\0").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it has started");
    assert_eq!(output.stdout, b"one1|two\nth|ree|four\n\xff\0|nil");
}

/// Goal: a cancel loses no line, whenever it arrives. Method: readers that are cancelled amid many
/// lines.
#[test]
fn readers_that_are_cancelled_lose_no_line() {
    const LINES: usize = 10_000;
    let source = "
        function reads(main)
          local count, line, cause = -1
          repeat
            line, cause = io.read()
            count = count + 1
          until not line
          process.send(main, { count, cause })
        end
        function main()
          local count, message = 0
          repeat
            local pid = process.spawn('reads', process.self())
            for _ = 1, math.random(20) do process.yield() end
            process.cancel(pid)
            message = process.receive()
            count = count + message[1]
          until not message[2]
          print(count)
        end";
    let mut child = program(&written("cancelled.lua", source))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program is there");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all("line\n".repeat(LINES).as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it has started");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{LINES}\n"));
}

/// Goal: a shutdown ends the wait of a process only when the process itself is cancelled, after the
/// processes that its supervisor stops before.
#[test]
fn a_shutdown_ends_the_waits_of_supervised_processes_in_order() {
    let source = "
        local waits = {
          accept = function() return assert(net.listen('127.0.0.1:0')):accept() end,
          datagram = function() return assert(net.udp('127.0.0.1:0')):receive_from() end,
          input = io.read,
        }
        function waiter(name)
          local _, cause = waits[name]()
          print(name, cause, process.cancelled())
        end
        function last()
          print('begins')
          process.receive()
          -- A wait that ends too early would end now.
          for _ = 1, 1000 do process.yield() end
          print('last')
        end
        function main()
          local children = {}
          for i, name in ipairs { 'accept', 'datagram', 'input' } do
            children[i] = { id = name, start = 'waiter', args = { name } }
          end
          children[#children + 1] = { id = 'last', start = 'last' }
          assert(supervisor.start { strategy = 'rest_for_one', children = children })
          process.receive()
        end";
    let mut child = program(&written("in_order.lua", source))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program is there");
    let input = child.stdin.take().expect("it is piped");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut text = String::new();
    out.read_line(&mut text).expect("it says that it begins");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    out.read_to_string(&mut text).expect("it is text");
    assert_eq!(
        text,
        "begins\nlast\ninput\tcancelled\ttrue\ndatagram\tcancelled\ttrue\naccept\tcancelled\ttrue\n"
    );
    assert_eq!(child.wait().expect("it is a child").code(), Some(0));
    drop(input);
}

#[test]
fn standard_error_in_the_same_file_keeps_its_place() {
    let source = "
        function fails() error('of a child', 0) end
        function main()
          for i = 1, 100 do print(i) log.info(i) end
          process.monitor(process.spawn('fails'))
          process.receive()
          print('last')
          error('of main', 0)
        end";
    let (mut reader, writer) = pipe().expect("the system gives a pipe");
    let mut command = program(&written("both.lua", source));
    command.stdout(writer.try_clone().expect("the system gives a descriptor")).stderr(writer);
    let mut child = command.spawn().expect("it can be started");
    // The command holds the write ends.
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("it is text");
    assert_eq!(child.wait().expect("it is a child").code(), Some(1));
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.starts_with(['\t', 's', '['])).collect();
    for (i, pair) in lines[..200].chunks(2).enumerate() {
        let number = (i + 1).to_string();
        assert!(
            pair[0] == number && pair[1].starts_with("info p") && pair[1].ends_with(&number),
            "{pair:?}"
        );
    }
    let [failed, last, ended] = lines[200..] else { panic!("{:?}", &lines[200..]) };
    assert!(failed.contains(" fails failed: ") && last == "last", "{failed}, {last}");
    assert!(ended.starts_with("procession: main of ") && ended.contains("of main"), "{ended}");
}

#[test]
fn a_reader_that_never_reads_does_not_hold_up_the_exit() {
    // One program is asked to end while it prints. The other has ended, and its output was not
    // read.
    let endless = written(
        "endless.lua",
        &format!("function main() log.info('begins') while true do {FITS} end end"),
    );
    let fits = written("fits.lua", &format!("function main() {FITS} log.info('begins') end"));
    for (path, is_asked) in [(endless, true), (fits, false)] {
        let mut command = program(&format!("--deadline 1 {path}"));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("it is text");
        assert!(line.ends_with("\tbegins\n") || line.ends_with(" begins\n"), "{line}");
        if is_asked {
            kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
        }
        let mut rest = String::new();
        errors.read_to_string(&mut rest).expect("it is text");
        assert_eq!(
            rest,
            "procession: cannot write to standard output: its reader did not take everything in time\n",
            "of {path}"
        );
        assert_eq!(child.wait().expect("it is a child").code(), Some(1), "{path}");
    }
}

#[test]
fn readers_of_both_streams_that_never_read_do_not_hold_up_the_exit() {
    // Both streams are the same pipe, so the error cannot be printed either, or each has its own
    // pipe.
    let path = written(
        "both_fit.lua",
        &format!("function main() {FITS} log.info(string.rep('y', 65536)) end"),
    );
    for is_same in [true, false] {
        let (_reader, writer) = pipe().expect("the system gives a pipe");
        let mut command = program(&format!("--deadline 1 {path}"));
        match is_same {
            true => command
                .stderr(writer.try_clone().expect("the system gives a descriptor"))
                .stdout(writer),
            false => command.stderr(Stdio::piped()).stdout(writer),
        };
        let mut child = command.spawn().expect("it can be started");
        let _unread = child.stderr.take();
        assert_eq!(child.wait().expect("it is a child").code(), Some(1));
    }
}

#[test]
fn a_program_with_refused_output_ends_and_reports_it() {
    let path = written("refused.lua", &format!("function main() for i = 1, 10 do {FITS} end end"));
    let (reader, writer) = pipe().expect("the system gives a pipe");
    drop(reader);
    let output = program(&path).stdout(writer).stderr(Stdio::piped()).spawn();
    let output =
        output.and_then(|child| child.wait_with_output()).expect("the command can be started");
    assert_eq!(
        (String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()),
        ("", Some(0))
    );

    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("there is a device that is always full");
    let output = program(&path).stdout(full).stderr(Stdio::piped()).spawn();
    let output =
        output.and_then(|child| child.wait_with_output()).expect("the command can be started");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "procession: cannot write to standard output: No space left on device (os error 28)\n"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn with_few_descriptors_the_rest_waits_until_some_are_closed() {
    for (name, request, answer) in [
        ("kv.lua", "PING\r\n", "+PONG\r\n"),
        (
            "http.lua",
            "POST /echo HTTP/1.1\r\nHost: me\r\nContent-Length: 1\r\n\r\na",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        ),
    ] {
        let server = Server::start_limited(name, 64);
        let mut clients: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
        let mut rest = clients.split_off(30);
        for client in &mut clients {
            Server::check(client, request, answer);
        }
        drop(clients);
        for client in &mut rest[..30] {
            Server::check(client, request, answer);
        }
        drop(rest);
        Server::check(&mut server.connect(), request, answer);
        server.end();
    }
}
