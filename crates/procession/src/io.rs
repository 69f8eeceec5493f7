//! Copying between streams, and standard input, output and error.
//!
//! The streams of this crate implement the traits
//! [`AsyncRead`](https://docs.rs/futures-io/0.3/futures_io/trait.AsyncRead.html),
//! [`AsyncWrite`](https://docs.rs/futures-io/0.3/futures_io/trait.AsyncWrite.html) and
//! [`AsyncSeek`](https://docs.rs/futures-io/0.3/futures_io/trait.AsyncSeek.html) of `futures-io`.
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

#[doc(inline)]
pub use procession_runtime::io::{
    CopyBidirectional, Stderr, Stdin, Stdout, copy, copy_bidirectional, stderr, stdin, stdout,
};

#[cfg(feature = "tokio")]
#[doc(inline)]
pub use procession_runtime::compat::{Compat, CompatError, compat};
