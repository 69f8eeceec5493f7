//! Files and directories.
//!
//! The functions and types have the names of their models in [`std::fs`], work alike, and are
//! futures. The kernel has no readiness for files: a call on a file that is not in memory blocks
//! its thread until the disk has answered. So an operation runs on a helper thread while its
//! process waits and the worker runs other processes.
//!
//! ```
//! use procession::fs;
//!
//! # let folder = std::env::temp_dir().join(format!("procession-fs-{}", std::process::id()));
//! procession::run(async {
//!     fs::create_dir_all(&folder).await?;
//!     let path = folder.join("greeting");
//!     fs::write(&path, "hello").await?;
//!     assert_eq!(fs::read_to_string(&path).await?, "hello");
//!     assert_eq!(fs::metadata(&path).await?.len(), 5);
//!     fs::remove_dir_all(&folder).await
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The same futures work everywhere: await them in a process, and pass them to
//! [`coroutine::wait`](crate::coroutine::wait) in a coroutine or on a plain thread. [`File`] also
//! implements [`std::io::Read`], [`Write`](std::io::Write) and [`Seek`](std::io::Seek) for these.
//!
//! # The helper threads
//! All schedulers of the program share one pool of helpers for files, apart from the threads of
//! [`spawn_blocking`](crate::spawn_blocking()). It has at most 512 threads, which are started as
//! operations need them and end after 10 s without work. When all threads are busy, operations wait
//! in a queue, in the order in which they began. The queue has no bound, but a [`File`] runs one
//! operation at a time, and a process usually waits for the operation that it began.
//!
//! A read of what the system has in memory (its page cache) needs no helper: the worker first asks
//! for what is there without waiting (`preadv2` with `RWF_NOWAIT`), at most 64 KiB at a time.
//! [`read`] and [`read_to_string`] do so for files of up to 64 KiB on ext4, XFS, Btrfs and F2FS, if
//! the path is in memory as well (`openat2` with `RESOLVE_CACHED`, Linux 5.12).
//!
//! If the system refuses to start even one thread, an operation returns an error and has done
//! nothing.
//!
//! # Cancellation
//! An operation begins when its future is first polled, or a little later if a helper may not be
//! needed, or the process has used up its budget. From then on it runs to its end on a
//! helper, even if the future is dropped; only its result is lost. [`File`] keeps what an abandoned
//! operation has read, and the error of an abandoned write, for its next operation.
//!
//! # At the end
//! A helper that has accepted data finishes its write although the process that wrote has ended. So
//! that the data is not lost, the end of the scheduler and of the program waits for all operations
//! that write: the writes of [`File`], [`Stdout`](crate::io::Stdout) and
//! [`Stderr`](crate::io::Stderr), and the functions here that change files and directories. For
//! example, if the last act of a program is to write a line, the line is not lost.
//!
//! | what ends | how long it waits | what it leaves |
//! |---|---|---|
//! | [`Scheduler::shutdown`] | until its deadline | it returns the number, in [`Unfinished`] |
//! | `Scheduler::run_until_signal` | until its deadline | `Stopped` prints the number and fails |
//! | [`run`] and [`Scheduler::block_on`] | 10 s | the helper continues |
//! | the program | 10 s | it prints the number on standard error |
//!
//! A shutdown waits for all writes that the scheduler has accepted. `run`, `block_on`,
//! `try_block_on` and [`JoinHandle::join`](crate::JoinHandle::join) wait only on a plain thread,
//! for the writes that the scheduler has accepted during the call, from any process. The program
//! ends when `main` returns, or by [`exit`](std::process::exit). It waits for all writes, except
//! writes that a shutdown has left or that a `block_on` has waited 10 s for. It prints how many
//! writes are left that no shutdown has reported.
//!
//! [`Scheduler::shutdown`]: crate::Scheduler::shutdown
//! [`Unfinished`]: crate::snapshot::Unfinished
//! [`run`]: crate::run
//! [`Scheduler::block_on`]: crate::Scheduler::block_on
//!
//! Messages that wait in a connection to [another node](crate::relay::Outgoing) are waited for in
//! the same way, and counted apart. A write that failed is counted with what is left, if its error
//! was never returned because the file was dropped. Reading and opening is not waited for.
//!
//! The end waits for a limited time because a write to a pipe or a FIFO may wait for its reader
//! forever. To wait as long as it takes, call [`flush`](File::flush).
//!
//! If nobody reads what a process writes, each call on a plain thread during which the scheduler
//! accepts such a write takes 10 s longer. If a program often calls `block_on` from plain threads,
//! let processes that write for slow readers run on another scheduler.
//!
//! # Files that never end
//! Opening a FIFO, or reading from one or from a terminal, may block a helper forever. That harms
//! neither the process, which can be cancelled, nor the end of the scheduler or the program. But
//! the helper stays taken, and there are only 512 helpers. Use
//! [`net::Readiness`](crate::net::Readiness) for such files: it waits without a thread.
//!
//! # On the test clock
//! The clock stands still until the operation has ended.

pub(crate) mod buffered;
mod dir;
mod file;
mod file_traits;
pub(crate) mod jobs;
mod open_options;
mod paths;

pub use dir::{DirEntry, ReadDir, read_dir};
pub use file::File;
pub use open_options::OpenOptions;
pub use paths::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink,
    symlink_metadata, try_exists, write,
};
