//! Finds out by the first bytes of a connection whether it is HTTP/2.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use hyper::rt::{Read, ReadBuf};
use procession_runtime::inner::{OwnProcess, poll_last};

use super::is_told;
use crate::Error;

/// What an HTTP/2 client sends first. No request of HTTP/1.1 begins like this.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads until the protocol is known. Returns the bytes that were read, and `true` if they are the
/// beginning of HTTP/2.
///
/// Once the running process is cancelled, returns what has arrived. If the bytes do not yet show
/// the version, the connection is treated as HTTP/1.1.
pub(super) async fn read<I: Read + Unpin>(stream: &mut I) -> Result<(Vec<u8>, bool), Error> {
    let own = OwnProcess::get();
    let mut bytes = Vec::new();
    while PREFACE.starts_with(&bytes) && bytes.len() < PREFACE.len() {
        let mut memory = [0; PREFACE.len()];
        let mut part = ReadBuf::new(&mut memory[bytes.len()..]);
        let arrived = poll_fn(|task| {
            let polled = Pin::new(&mut *stream).poll_read(task, part.unfilled());
            if polled.is_ready() || !is_told(own.as_ref(), task) {
                return polled;
            }
            let again =
                poll_last(task, |task| Pin::new(&mut *stream).poll_read(task, part.unfilled()));
            Poll::Ready(ready!(again).unwrap_or(Ok(())))
        });
        arrived.await.map_err(|cause| Error::io("read the first request", cause))?;
        if part.filled().is_empty() {
            break;
        }
        bytes.extend(part.filled());
    }
    let is_http2 = bytes == PREFACE;
    Ok((bytes, is_http2))
}
