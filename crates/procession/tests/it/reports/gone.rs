//! The expected ends of connections are reported, but not as failures.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_lite::io::{AsyncRead, AsyncWrite};
use procession::io::copy_bidirectional;
use procession::observe::{ReportLevel, Reporting};
use procession::process::Outcome as _;
use procession::{Exit, SpawnOptions, sleep};
use rustix::io::Errno;

use super::observed_with;
use super::reached::ended;

/// The error of a library that wraps another one.
#[derive(Debug)]
struct Wrapping<E>(E);

impl<E> fmt::Display for Wrapping<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl<E: Error + 'static> Error for Wrapping<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// A stream in which nothing moves.
struct Silent;

impl AsyncRead for Silent {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }
}

impl AsyncWrite for Silent {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
        _: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[test]
fn a_peer_that_has_gone_is_no_failure_to_look_at() {
    let gone = [
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::UnexpectedEof,
    ];
    let (scheduler, exits, _) = observed_with(Reporting::new());
    scheduler.block_on(async {
        for kind in gone {
            let direct = SpawnOptions::new()
                .spawn_fallible(async move { Err::<(), _>(io::Error::from(kind)) });
            ended(&direct).await;
            let boxed = SpawnOptions::new().spawn_fallible(async move {
                let error: Box<dyn std::error::Error + Send + Sync> = io::Error::from(kind).into();
                Err::<(), _>(error)
            });
            ended(&boxed).await;
        }
        // The errors of libraries for servers wrap that of the connection.
        for kind in &gone[..3] {
            let wrapped = io::Error::other(Wrapping(Wrapping(io::Error::from(*kind))));
            ended(&SpawnOptions::new().spawn_fallible(async { Err::<(), _>(wrapped) })).await;
        }
        // A file may end too early.
        let format = SpawnOptions::new().spawn_fallible(async {
            Err::<(), _>(io::Error::other(Wrapping(io::Error::from(io::ErrorKind::UnexpectedEof))))
        });
        ended(&format).await;
    });
    let exits = exits.lock();
    let (format, gone) = exits.split_last().expect("they failed");
    assert_eq!(gone.len(), 11);
    for report in gone {
        assert!(report.exit.is_disconnect() && report.level == ReportLevel::Debug, "{report}");
    }
    let early = Exit::failed("wrapped: unexpected end of file");
    assert_eq!((&format.exit, format.level), (&early, ReportLevel::Error));
    let crashes = scheduler.crashes();
    assert_eq!(crashes.len(), 1, "clients that leave push out no failure: {crashes:?}");
}

/// The errors of anyhow, eyre, thiserror and axum have sources that nobody can ask for, but their
/// texts end with the text of the last source.
#[test]
fn the_text_of_an_error_shows_that_the_peer_has_gone() {
    let text_of = |number| format!("reading: {}", io::Error::from_raw_os_error(number));
    let gone = [Errno::CONNRESET, Errno::CONNABORTED, Errno::PIPE].map(Errno::raw_os_error);
    assert!(text_of(gone[0]).ends_with(&format!(" (os error {})", gone[0])));
    let exit_of = |text: String| Err::<(), _>(text).failure().expect("it is an error");
    for number in gone {
        assert_eq!(exit_of(text_of(number)), Exit::disconnected(text_of(number)));
    }
    let reset = text_of(gone[0]);
    let others = [
        text_of(Errno::CONNREFUSED.raw_os_error()),
        format!("{reset}, while it was read"),
        format!("{}0)", reset.trim_end_matches(')')),
        "the end (os error many)".to_owned(),
    ];
    for text in others {
        assert_eq!(exit_of(text.clone()), Exit::failed(text));
    }
    let boxed: Box<dyn Error + Send + Sync> = reset.clone().into();
    assert_eq!(Err::<(), _>(boxed).failure(), Some(Exit::disconnected(reset)));
}

#[test]
fn a_connection_that_is_silent_for_too_long_is_no_failure_to_look_at() {
    let (scheduler, exits, _) = observed_with(Reporting::new());
    scheduler.block_on(async {
        drop(SpawnOptions::new().spawn_fallible(async {
            let (mut client, mut server) = (Silent, Silent);
            let copy = copy_bidirectional(&mut client, &mut server);
            copy.idle_timeout(Duration::from_secs(60)).await
        }));
        sleep(Duration::from_secs(61)).await;
        // Another time that is over may be a failure.
        let late = || async { Err::<(), _>(io::Error::from(io::ErrorKind::TimedOut)) };
        ended(&SpawnOptions::new().spawn_fallible(late())).await;
    });
    let exits = exits.lock();
    let [silent, late] = &exits[..] else { panic!("{} reports", exits.len()) };
    assert!(silent.exit.is_disconnect() && silent.level == ReportLevel::Debug, "{silent}");
    assert!(silent.to_string().contains("no data has moved in either direction for 60s"));
    assert!(!late.exit.is_disconnect() && late.level == ReportLevel::Error, "{late}");
}
