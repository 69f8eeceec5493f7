//! The wait without a handle, as on a system that has none.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::pin;
use std::process::{Command as StdCommand, Stdio};
use std::task::Poll;

use super::{ExitEvent, ExitWait};

#[test]
fn without_a_handle_a_helper_waits() {
    let mut child = StdCommand::new("sh")
        .args(["-c", "read line; exit $line"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut ends = ExitWait { event: ExitEvent::Helper(None), seen: false, with_group: false };
    let mut input = child.stdin.take().expect("it is piped");
    let status = crate::run(async {
        // A wait that is dropped leaves its helper for the next one.
        for _ in 0..3 {
            let mut wait = pin!(ends.wait(&mut child));
            let waits = poll_fn(|task| Poll::Ready(wait.as_mut().poll(task).is_pending())).await;
            assert!(waits, "it waits for its input");
        }
        input.write_all(b"7\n").expect("the shell reads");
        let status = ends.wait(&mut child).await.expect("it is our child");
        assert_eq!(ends.wait(&mut child).await.expect("it stays"), status);
        status
    });
    assert_eq!(status.code(), Some(7));
    assert!(ends.is_seen());
}
