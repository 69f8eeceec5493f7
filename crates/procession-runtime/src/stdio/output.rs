//! Standard output and standard error.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, Stderr as StdStderr, Stdout as StdStdout, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::coroutine::wait;
use crate::fs::buffered::{BlockingFile, Buffered};
use crate::scheduler::placed::placed;

macro_rules! output {
    ($(#[$type_doc:meta])* $Output:ident, $(#[$make_doc:meta])* $make:ident, $Std:ident, $what:literal) => {
        $(#[$type_doc])*
        pub struct $Output(Buffered<$Std>);

        $(#[$make_doc])*
        pub fn $make() -> $Output {
            $Output(Buffered::new(io::$make()))
        }

        impl BlockingFile for $Std {
            fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
                (&mut &*self).write(bytes)
            }

            fn hand_over(&self) -> io::Result<()> {
                (&mut &*self).flush()
            }

            fn step_back(&self, _: usize) -> io::Result<()> {
                unreachable!("nothing is read from an output")
            }
        }

        impl $Output {
            /// Hands a part of `bytes`, at most 2 MiB, to a helper, and returns its length. Waits
            /// only for the previous write.
            ///
            /// # Errors
            /// Returns the error of an earlier write through this handle, or an error if the system
            /// has no thread for the call. In both cases nothing of `bytes` was taken. The earlier
            /// data is kept, and the next operation tries again to write it.
            ///
            /// # Cancellation
            /// If the future is dropped before it completes, nothing was taken.
            #[track_caller]
            pub fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> {
                placed(poll_fn(move |task| self.0.poll_write(task, bytes)))
            }

            /// Hands all of `bytes` to a helper.
            ///
            /// # Errors
            /// Returns the same errors as [`write`](Self::write).
            ///
            /// # Cancellation
            /// If the future is dropped before it completes, a part of `bytes` may have been taken.
            #[track_caller]
            pub fn write_all(&mut self, mut bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
                placed(async move {
                    while !bytes.is_empty() {
                        let count = self.write(bytes).await?;
                        bytes = &bytes[count..];
                    }
                    Ok(())
                })
            }

            /// Waits until the system has everything that was written through this handle.
            ///
            /// # Errors
            /// Returns the error of an earlier write. The data is kept, and the next operation
            /// tries again.
            #[track_caller]
            pub fn flush(&mut self) -> impl Future<Output = io::Result<()>> {
                placed(poll_fn(move |task| self.0.poll_written(task)))
            }
        }

        impl futures_io::AsyncWrite for $Output {
            fn poll_write(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().0.poll_write(task, bytes)
            }

            fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().0.poll_written(task)
            }

            /// Does what `poll_flush` does. The output stays open.
            fn poll_close(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().0.poll_written(task)
            }
        }

        #[cfg(feature = "tokio-io")]
        impl tokio::io::AsyncWrite for $Output {
            fn poll_write(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().0.poll_write(task, bytes)
            }

            fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().0.poll_written(task)
            }

            fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().0.poll_written(task)
            }
        }

        /// Writes in blocking style. A coroutine is suspended while it waits, and a plain thread is
        /// parked.
        impl Write for $Output {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                wait($Output::write(self, bytes))
            }

            fn flush(&mut self) -> io::Result<()> {
                wait($Output::flush(self))
            }
        }

        impl fmt::Debug for $Output {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }
        }
    };
}

output!(
    /// Standard output. Made by [`stdout`].
    ///
    /// It implements the traits for writing of `futures-io`, std and, with the feature `tokio-io`,
    /// tokio.
    Stdout,
    /// Returns a handle to the standard output of the program.
    ///
    /// A helper thread writes, through [`std::io::stdout`], and flushes after each write. If the
    /// reader of the output is slow, the process waits and its worker runs other processes, unlike
    /// with `println!`.
    ///
    /// A write returns when the data is handed over; the next write or [`flush`](Stdout::flush)
    /// waits for it and returns its error. The end of the program also waits for the data, for at
    /// most 10 s; see [At the end](crate::fs#at-the-end). Call `flush` to wait for a reader that is
    /// slower. Writes through one handle are written in order. Writes through several handles are
    /// written in any order.
    ///
    /// ```
    /// procession::run(async {
    ///     let mut out = procession::io::stdout();
    ///     out.write_all(b"hello\n").await?;
    ///     out.flush().await
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    stdout,
    StdStdout,
    "Stdout"
);

output!(
    /// Standard error. Made by [`stderr`].
    ///
    /// It implements the same traits as [`Stdout`].
    Stderr,
    /// Returns a handle to the standard error of the program; see [`stdout`].
    ///
    /// ```
    /// procession::run(async {
    ///     let mut err = procession::io::stderr();
    ///     err.write_all(b"a warning\n").await?;
    ///     err.flush().await
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    stderr,
    StdStderr,
    "Stderr"
);
