//! Copying between streams, and standard input, output and error.
//!
//! The streams of this crate implement the traits [`AsyncRead`](futures_io::AsyncRead),
//! [`AsyncWrite`](futures_io::AsyncWrite) and [`AsyncSeek`](futures_io::AsyncSeek) of `futures-io`.
//! So what the crates `futures` and `futures-lite` offer for these traits works with them:
//! `BufReader` with `lines`, `read_line` and `split`; `BufWriter`; `AsyncReadExt` and
//! `AsyncWriteExt`. This module only has what these crates do not have, or what the runtime has to
//! do itself.
//!
//! ```
//! use futures_lite::io::BufReader;
//! use futures_lite::{AsyncBufReadExt, StreamExt};
//! use procession::net::UnixStream;
//!
//! procession::run(async {
//!     let (ours, theirs) = UnixStream::pair()?;
//!     theirs.write_all(b"one\ntwo\n").await?;
//!     drop(theirs);
//!     let lines: Vec<_> = BufReader::new(ours).lines().try_collect().await?;
//!     assert_eq!(lines, ["one", "two"]);
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod copy;

pub use self::copy::{CopyBidirectional, copy, copy_bidirectional};
pub use crate::stdio::{Stderr, Stdin, Stdout, stderr, stdin, stdout};
