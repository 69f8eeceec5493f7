//! Processes of the system: their pipes, their ends, and that none stays behind.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::pin::pin;
use std::process::Command as StdCommand;
use std::task::Poll;
use std::time::Duration;

use futures_lite::io::BufReader;
use futures_lite::{AsyncBufReadExt, AsyncWriteExt, StreamExt};
use procession::os_process::{Child, Command, Stdio};
use procession::time::Instant;
use procession::{Scheduler, SpawnOptions, coroutine, io, spawn, timeout};

use crate::home::mpsc::channel;
use crate::scene::{driven, gone, soon, threaded};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A child that copies its input to its output.
fn cat() -> Child {
    let mut command = Command::new("cat");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("every system has it")
}

async fn waits<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_pending())).await
}

#[test]
fn output_and_status_are_those_of_the_child() {
    procession::run(async {
        let output = shell("cat; echo out; echo err >&2; exit 3").output().await.expect("it runs");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        let status = shell("exit 4").status().await.expect("it runs");
        assert_eq!(status.code(), Some(4));
        let mut inherits = Command::from(StdCommand::new("true"));
        assert!(inherits.stdout(Stdio::null()).status().await.expect("it runs").success());
        let output = shell("echo lost").stdout(Stdio::null()).output().await.expect("it runs");
        assert!(output.stdout.is_empty(), "it was set to null");
        let missing = Command::new("/nonexistent").spawn().expect_err("there is none");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_wait_goes_on_without_the_scheduler_of_the_start() {
    let (ended, other) = (threaded(1), threaded(1));
    let mut child = ended.block_on(async {
        Command::new("sleep").arg("1000").kill_on_drop(true).spawn().expect("every system has it")
    });
    let id = child.id().expect("it has not ended").to_string();
    assert!(ended.block_on(ended.shutdown(Duration::ZERO)).is_empty());
    drop(ended);
    let (waits, waiting) = channel();
    let waited = other.spawn(async move {
        let mut wait = pin!(child.wait());
        poll_fn(|task| {
            let polled = wait.as_mut().poll(task);
            // Ignored: the test has stopped to listen after the first time.
            let _ = waits.send(polled.is_pending());
            polled
        })
        .await
    });
    assert!(soon(&waiting), "it sleeps");
    drop(waiting);
    let killed =
        StdCommand::new("kill").args(["-KILL", &id]).status().expect("every system has it");
    assert!(killed.success());
    let status = waited.join().expect("it returns").expect("it is our child");
    assert_eq!(status.code(), None, "a signal ended it");
}

#[test]
fn both_outputs_are_read_at_once() {
    procession::run(async {
        // Each is more than a pipe holds, and the child waits for the second to be read first.
        let script = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero";
        let output = shell(script).output().await.expect("it runs");
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 300_000));
    });
}

#[test]
fn pipes_carry_data_in_both_directions() {
    procession::run(async {
        let mut child = cat();
        let mut input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        // More than two pipes hold, so the writer has to wait for the reader.
        let writer = spawn(async move {
            for n in 0..40_000 {
                input.write_all(format!("line {n}\n").as_bytes()).await?;
            }
            AsyncWriteExt::close(&mut input).await?;
            let closed = input.write(b"more").await.expect_err("it is closed");
            assert_eq!(closed.kind(), ErrorKind::BrokenPipe);
            Ok::<_, std::io::Error>(())
        });
        let mut lines = BufReader::new(output).lines();
        let mut count = 0;
        while let Some(line) = lines.next().await {
            assert_eq!(line.expect("it can be read"), format!("line {count}"));
            count += 1;
        }
        assert_eq!(count, 40_000);
        writer.await.expect("it does not panic").expect("everything was written");
        assert!(child.wait().await.expect("it is our child").success());
    });
}

#[test]
fn a_wait_closes_the_input_and_can_be_dropped() {
    procession::run(async {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it is there");
        let id = child.id().expect("it runs");
        assert_eq!(child.try_wait().expect("it is our child"), None);
        let input = child.stdin.take();
        assert!(waits(child.wait()).await, "its input is open");
        child.stdin = input;
        let status = child.wait().await.expect("it is our child");
        assert!(status.success());
        assert_eq!(child.wait().await.expect("it stays"), status);
        assert_eq!(child.try_wait().expect("it stays"), Some(status));
        assert_eq!(child.id(), None);
        child.start_kill().expect("nothing happens");
        gone(id);
    });
}

#[test]
fn a_child_is_killed_when_asked_and_on_drop() {
    procession::run(async {
        let mut child = cat();
        let id = child.id().expect("it runs");
        child.kill().await.expect("it is our child");
        assert_eq!(child.id(), None);
        gone(id);
        let child = cat();
        let id = child.id().expect("it runs");
        drop(child);
        gone(id);
    });
}

#[test]
fn a_child_that_is_asked_to_end_ends_as_it_likes() {
    let script = "trap 'kill $!; exit 9' TERM; sleep 1000 & echo started; wait";
    procession::run(async {
        let mut child = shell(script).stdout(Stdio::piped()).spawn().expect("it runs");
        let output = child.stdout.take().expect("it is piped");
        assert_eq!(output.read(&mut [0; 8]).await.expect("it is open"), 8);
        child.terminate().expect("it is our child");
        assert_eq!(child.wait().await.expect("it is our child").code(), Some(9));
        child.terminate().expect("the end was seen, so nothing is sent");
        // The shell waits for a process of its group, which gets the signal, too.
        let script = "sleep 1000 & trap \"wait $!; exit \\$?\" TERM; echo started; wait";
        let mut command = shell(script);
        command.stdout(Stdio::piped()).kill_group(true).kill_on_drop(true);
        let mut child = command.spawn().expect("it runs");
        let output = child.stdout.take().expect("it is piped");
        assert_eq!(output.read(&mut [0; 8]).await.expect("it is open"), 8);
        child.terminate().expect("it is our child");
        assert_eq!(child.wait().await.expect("it is our child").code(), Some(128 + 15));
    });
}

#[test]
fn a_group_is_killed_with_its_child() {
    // The process in the background has the pipe. Its end is the end of the pipe.
    let script = "sleep 1000 & echo started; wait";
    procession::run(async {
        for drops in [false, true] {
            let mut command = shell(script);
            command.stdout(Stdio::piped()).kill_group(true).kill_on_drop(true);
            let mut child = command.spawn().expect("it runs");
            let output = child.stdout.take().expect("it is piped");
            assert_eq!(output.read(&mut [0; 8]).await.expect("it is open"), 8);
            if drops {
                drop(child);
            } else {
                child.kill().await.expect("it is our child");
            }
            assert_eq!(output.read(&mut [0; 8]).await.expect("it is open"), 0);
        }
    });
}

#[test]
fn a_group_ends_with_a_child_that_ends() {
    procession::run(async {
        let mut leaves = shell("sleep 1000 & echo started; exit 3");
        let output = leaves.kill_group(true).output().await.expect("it runs");
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"started\n"[..]));
        let mut child = shell("sleep 1000 & exit 4");
        let mut child = child.stdout(Stdio::piped()).kill_group(true).spawn().expect("it runs");
        let output = child.stdout.take().expect("it is piped");
        let status = loop {
            if let Some(status) = child.try_wait().expect("it is our child") {
                break status;
            }
            procession::yield_now().await;
        };
        assert_eq!((status.code(), child.id()), (Some(4), None));
        assert_eq!(output.read(&mut [0; 8]).await.expect("it is open"), 0);
        child.start_kill().expect("the end was seen, so nothing is killed");
    });
}

/// Goal: a description that is used again without `kill_group` starts a process in the group that
/// it would have without the first use. Method: the process prints its group.
#[test]
fn a_group_to_kill_is_forgotten_with_the_setting() {
    async fn printed(command: &mut Command) -> (String, String) {
        let child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let pid = child.id().expect("it runs").to_string();
        let output = child.wait_with_output().await.expect("it is our child");
        (pid, String::from_utf8(output.stdout).expect("it is a number").trim().to_owned())
    }
    procession::run(async {
        let script = "cut -d' ' -f5 /proc/$$/stat";
        let (_, ours) = printed(&mut shell(script)).await;
        let mut again = shell(script);
        let (pid, group) = printed(again.kill_group(true)).await;
        assert_eq!(group, pid);
        let (_, group) = printed(again.kill_group(false)).await;
        assert_eq!(group, ours);
        let (pid, group) = printed(again.process_group(0)).await;
        assert_eq!(group, pid);
        let (pid, group) = printed(again.kill_group(true)).await;
        assert_eq!(group, pid);
        let (pid, group) = printed(again.kill_group(false)).await;
        assert_eq!(group, pid, "the group of its own was asked for");
    });
}

#[test]
fn a_pipe_that_others_hold_is_not_waited_for_beyond_the_delay() {
    procession::run(async {
        let mut leaves = shell("sleep 1000 & echo $!; yes | head -c 60000 >&2");
        let output = leaves.wait_delay(Duration::from_millis(1)).output().await.expect("it runs");
        assert!(output.status.success());
        assert_eq!(output.stderr.len(), 60_000, "all that was in the pipe");
        let left = String::from_utf8(output.stdout).expect("it is a number");
        let killed = Command::new("kill").args(["-KILL", left.trim()]).status().await;
        assert!(killed.expect("every system has it").success(), "it was there");
        // Without such processes, the delay is not waited for.
        let mut ends = shell("echo out; echo err >&2");
        let output = ends.wait_delay(Duration::from_secs(1_000_000)).output().await;
        let output = output.expect("it runs");
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    });
}

#[test]
fn a_terminated_process_takes_its_child_with_it() {
    let scheduler = threaded(1);
    let (tells, told) = channel();
    drop(scheduler.spawn(async move {
        let mut child = cat();
        tells.send(child.id().expect("it runs")).expect("the test listens");
        let _input = child.stdin.take();
        child.wait().await.map(drop)
    }));
    let id = soon(&told);
    drop(scheduler);
    gone(id);
}

#[test]
fn a_dropped_child_goes_on_and_leaves_no_zombie() {
    let ids: Vec<_> = procession::run(async {
        let mut inputs = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..5 {
            let mut child = Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .expect("it is there");
            inputs.push(child.stdin.take().expect("it is piped"));
            ids.push(child.id().expect("it runs"));
        }
        for id in &ids {
            assert!(Path::new(&format!("/proc/{id}")).exists(), "it goes on");
        }
        // From the last to the first, so that the thread is there for some and has to be rung.
        while let Some(input) = inputs.pop() {
            input.write_all(b"still read").await.expect("the child reads");
            drop(input);
        }
        ids
    });
    ids.into_iter().for_each(gone);
}

#[test]
fn a_pipe_leads_from_one_child_to_another() {
    procession::run(async {
        let mut first = shell("echo b; echo a").stdout(Stdio::piped()).spawn().expect("it runs");
        let pipe: Stdio = first.stdout.take().expect("it is piped").try_into().expect("it is open");
        let output = Command::new("sort").stdin(pipe).output().await.expect("it runs");
        assert_eq!(output.stdout, b"a\nb\n");
        assert!(first.wait().await.expect("it is our child").success());
    });
}

#[test]
fn a_proxy_copies_between_a_socket_and_a_child() {
    procession::run(async {
        let (client, mut server) = procession::net::UnixStream::pair().expect("it is allowed");
        let mut child = cat();
        let mut input = child.stdin.take().expect("it is piped");
        let mut output = child.stdout.take().expect("it is piped");
        let proxy = spawn(async move {
            let copied = io::copy(&mut server, &mut input).await?;
            drop(input);
            io::copy(&mut output, &mut server).await.map(|back| (copied, back))
        });
        client.write_all(&[1; 100_000][..50_000]).await.expect("the proxy reads");
        client.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut echo = Vec::new();
        futures_lite::AsyncReadExt::read_to_end(&mut &client, &mut echo).await.expect("it ends");
        assert_eq!(echo, [1; 50_000]);
        assert_eq!(proxy.await.expect("no panic").expect("no error"), (50_000, 50_000));
    });
}

#[test]
fn a_snapshot_shows_what_waits_for_a_child() {
    let scheduler = driven();
    let mut child = cat();
    let input = child.stdin.take();
    let waiter = scheduler.spawn(async move { child.wait().await.map(|status| status.success()) });
    scheduler.block_on(procession::yield_now());
    let snapshot = scheduler.snapshot();
    let row = snapshot.processes.iter().find(|row| row.pid == waiter.pid()).expect("it waits");
    assert!(row.waiting.for_readable(), "{row:?}");
    drop(input);
    assert!(scheduler.block_on(waiter).expect("it does not panic").expect("it is our child"));
}

#[test]
fn coroutines_and_threads_have_children_too() {
    let talk = |mut child: Child| {
        let mut input = child.stdin.take().expect("it is piped");
        Write::write_all(&mut input, b"hello").expect("the child reads");
        drop(input);
        let mut text = String::new();
        Read::read_to_string(child.stdout.as_mut().expect("it is piped"), &mut text)
            .expect("the child writes");
        assert!(coroutine::wait(child.wait()).expect("it is our child").success());
        text
    };
    assert_eq!(talk(cat()), "hello");
    let builder = Scheduler::builder().worker_threads(1);
    // SAFETY: the coroutine here refers to no thread-local.
    let builder = unsafe { builder.enable_coroutines() };
    let scheduler = builder.build().expect("the system has threads");
    let talks = SpawnOptions::new()
        .on(&scheduler)
        .try_start_coroutine(move |_: coroutine::Context<()>| talk(cat()));
    assert_eq!(talks.expect("it is allowed").join().expect("it does not panic"), "hello");
}

#[test]
fn the_test_clock_stands_still_while_a_child_runs() {
    let scheduler = driven();
    scheduler.block_on(async {
        let before = Instant::now();
        let ran = timeout(Duration::from_secs(3600), shell("exit 0").status()).await;
        assert!(ran.expect("the hour does not pass").expect("it runs").success());
        assert_eq!(Instant::now(), before);
    });
}

#[test]
fn standard_streams_pass_data_through() {
    const NAME: &str = "children::standard_streams_pass_data_through";
    if std::env::var_os("PROCESSION_CHILD").is_some() {
        procession::run(async {
            let mut lines = BufReader::new(io::stdin()).lines();
            let (mut out, mut err) = (io::stdout(), io::stderr());
            while let Some(line) = lines.next().await {
                let line = format!("{}\n", line.expect("it is text"));
                out.write_all(line.as_bytes()).await.expect("it is open");
                err.write_all(line.as_bytes()).await.expect("it is open");
            }
            out.flush().await.expect("it is open");
            err.flush().await.expect("it is open");
        });
        std::process::exit(0);
    }
    let program = std::env::current_exe().expect("it runs");
    let bytes: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    procession::run(async {
        let mut child = Command::new(program)
            // With one thread, the harness never says that a test takes long.
            .args([NAME, "--exact", "--nocapture", "--test-threads", "1"])
            .env("PROCESSION_CHILD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let input = child.stdin.take().expect("it is piped");
        let sent = bytes.clone();
        let writer = spawn(async move { input.write_all(sent.as_bytes()).await });
        let output = child.wait_with_output().await.expect("it is our child");
        writer.await.expect("it does not panic").expect("the child reads");
        assert!(output.status.success());
        let out = String::from_utf8(output.stdout).expect("it is text");
        assert!(out.ends_with(&bytes), "after the lines of the test harness");
        assert!(String::from_utf8(output.stderr).expect("it is text") == bytes);
    });
}

#[test]
fn a_read_of_standard_input_neither_keeps_the_program_nor_loses_data() {
    const NAME: &str =
        "children::a_read_of_standard_input_neither_keeps_the_program_nor_loses_data";
    if std::env::var_os("PROCESSION_CHILD").is_some() {
        procession::run(async {
            let mut input = io::stdin();
            assert!(waits(input.read(&mut [0; 8])).await, "nothing was sent");
            io::stderr().write_all(b"?").await.expect("it is open");
            let mut bytes = [0; 2];
            // Another handle has what the abandoned read gets.
            assert_eq!(io::stdin().read(&mut bytes).await.expect("it is open"), 2);
            assert_eq!(&bytes, b"ab");
            assert_eq!(input.read(&mut bytes).await.expect("it is open"), 2);
            assert_eq!(&bytes, b"cd");
            assert!(waits(input.read(&mut bytes)).await, "nothing more was sent");
        });
        std::process::exit(0);
    }
    let program = std::env::current_exe().expect("it runs");
    procession::run(async {
        let mut child = Command::new(program)
            .args([NAME, "--exact", "--nocapture"])
            .env("PROCESSION_CHILD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let input = child.stdin.take().expect("it is piped");
        let errors = child.stderr.take().expect("it is piped");
        assert_eq!(errors.read(&mut [0; 1]).await.expect("it asks"), 1);
        input.write_all(b"abcd").await.expect("the child reads");
        // The input stays open until the child has ended.
        let status = child.wait().await.expect("it is our child");
        drop(input);
        assert!(status.success());
    });
}
