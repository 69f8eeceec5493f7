//! Look at `Transport`: the blocking HTTP client ureq, with sockets of Procession in place of its
//! own, in coroutines. The clients send requests to a server in blocking style, which uses
//! httparse.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::fmt;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::Duration;

use procession_blocking_examples::{Failed, Line, converse};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport as UreqTransport,
};
use ureq::{Agent, Error};

const REQUESTS: usize = 5;
const HEADERS: usize = 16;
/// Maximum size of the head of a request in bytes.
const HEAD_MAX: usize = 8 << 10;
const BODY: &str = "what is sent is sent back";

/// A connector that returns the one line that it has.
struct OneLine(Mutex<Option<Line>>);

impl Connector for OneLine {
    type Out = Transport;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Transport>, Error> {
        let line = self.0.lock().expect("nobody panics with it").take();
        let line = line.ok_or(Error::ConnectionFailed)?;
        let buffers = LazyBuffers::new(
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(Some(Transport { line, buffers }))
    }
}

struct Transport {
    line: Line,
    buffers: LazyBuffers,
}

impl UreqTransport for Transport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.line.set_patience(timeout.not_zero().map(|left| *left))?;
        self.line.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.line.set_patience(timeout.not_zero().map(|left| *left))?;
        let count = self.line.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        true
    }
}

/// Answers with the body that was sent or, without one, with the path.
fn serve(mut line: Line) -> Result<(), Failed> {
    let mut heard = Vec::new();
    let mut part = [0; 1024];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        if let httparse::Status::Complete(head) = request.parse(&heard)? {
            let length = request
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case("content-length"));
            let length = length.map_or(Ok(0), |header| {
                std::str::from_utf8(header.value)?.parse::<usize>().map_err(Failed::from)
            })?;
            if heard.len() >= head + length {
                let path = request.path.unwrap_or_default().as_bytes();
                let body = if length > 0 { &heard[head..head + length] } else { path };
                let mut answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len())
                        .into_bytes();
                answer.extend_from_slice(body);
                line.write_all(&answer)?;
                heard.drain(..head + length);
                continue;
            }
        } else if heard.len() > HEAD_MAX {
            return Err("the head of a request is too long".into());
        }
        let count = line.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        heard.extend_from_slice(&part[..count]);
    }
}

fn ask(line: Line, number: usize) -> Result<(), Failed> {
    let config = Agent::config_builder().timeout_global(Some(Duration::from_secs(60))).build();
    let agent =
        Agent::with_parts(config, OneLine(Mutex::new(Some(line))), DefaultResolver::default());
    for request in 0..REQUESTS {
        let path = format!("/{number}/{request}");
        let answer =
            agent.get(format!("http://127.0.0.1{path}")).call()?.body_mut().read_to_string()?;
        assert_eq!(answer, path);
    }
    let answer = agent.post("http://127.0.0.1/").send(BODY)?.body_mut().read_to_string()?;
    assert_eq!(answer, BODY);
    Ok(())
}

fn main() -> Result<(), Failed> {
    let threads = converse(serve, ask)?;
    println!("ureq: all have had their answers, on {threads} threads");
    Ok(())
}

impl fmt::Debug for OneLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneLine(..)")
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport(..)")
    }
}

#[test]
fn ureq_runs_in_coroutines_with_sockets_of_ours() {
    main().expect("the server is local");
}
