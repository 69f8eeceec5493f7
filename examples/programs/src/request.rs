//! Requests that a test holds in the middle.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A request. The program has read its head, and waits for its body.
#[derive(Debug)]
pub struct Begun(BufReader<TcpStream>);

/// Begins a POST. Returns once the program has asked for the body, which it does when the handler
/// of the request runs.
///
/// # Panics
/// Panics if the program does not ask for the body.
pub async fn begin(address: SocketAddr, path: &str, content: &str, length: usize) -> Begun {
    let mut stream = BufReader::new(TcpStream::connect(address).await.expect("it listens"));
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: program\r\nexpect: 100-continue\r\n\
         content-type: {content}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("the program reads");
    for end in ["HTTP/1.1 100 Continue\r\n", "\r\n"] {
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("the program answers");
        assert_eq!(line, end);
    }
    Begun(stream)
}

/// Sends the body, and reads the answer until the program closes the connection, because it ends.
/// Returns the status.
///
/// # Panics
/// Panics if there is no answer.
pub async fn finish(mut begun: Begun, body: &str) -> u16 {
    begun.0.write_all(body.as_bytes()).await.expect("the program reads");
    let mut answer = String::new();
    begun.0.read_to_string(&mut answer).await.expect("the program answers");
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next());
    status.and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}
