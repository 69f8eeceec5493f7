//! Clients of all kinds: with checked buffers, loaded by name, on stdio, and with deep stacks.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::channel;
use std::time::Duration;

use procession::coroutine::Context;
use procession::observe::StallKind;
use procession::{Exit, SpawnOptions};
use procession_c_clients::plain::{CHECKED_READS, Loaded, checked_poll, deep_read, stdio_line};

use super::{Begun, builder, coroutine, is_child, run_as_child, sockets, write};

/// Goal: the forms that `_FORTIFY_SOURCE` calls suspend, too. Method: there is one thread, and the
/// process that writes runs on it.
#[test]
fn checked_calls_suspend() {
    let scheduler = builder().max_threads(1).build().expect("the system has threads");
    for (form, read) in CHECKED_READS.into_iter().enumerate() {
        let (here, there) = sockets();
        let begun = Begun::new();
        let tell = begun.teller();
        let reads = coroutine(&scheduler, move || {
            tell();
            let polled = checked_poll(here.as_fd(), 60_000);
            (polled, read(here.as_fd(), 5), read(here.as_fd(), 16))
        });
        begun.wait(1);
        write(&scheduler, there, "hello");
        assert_eq!(reads.join(), Ok((1, 5, 0)), "form {form}");
    }
    assert_eq!(scheduler.snapshot().blocking_sections, 0);
}

#[test]
fn a_checked_read_without_room_ends_the_program() {
    if is_child() {
        let scheduler = builder().build().expect("the system has threads");
        let (here, there) = sockets();
        (&there).write_all(b"hello").expect("its peer is there");
        let reads = coroutine(&scheduler, move || CHECKED_READS[0](here.as_fd(), 17));
        panic!("{:?}", reads.join());
    }
    let child = run_as_child("plain::a_checked_read_without_room_ends_the_program");
    let report = String::from_utf8_lossy(&child.stderr);
    assert!(report.contains("buffer overflow detected"), "{report}");
    assert_eq!(child.status.signal(), Some(libc::SIGABRT));
}

#[test]
fn a_library_that_is_loaded_by_name_suspends() {
    let loaded = Loaded::load();
    let scheduler = builder().max_threads(1).build().expect("the system has threads");
    let (here, there) = sockets();
    let echoes = coroutine(&scheduler, move || loaded.echo(here.as_fd()));
    // Its peer runs on the same thread, and waits there for what is sent.
    let peer = coroutine(&scheduler, move || {
        let mut word = [0; 7];
        (&there).read_exact(&mut word).expect("it is sent");
        (&there).write_all(&word).expect("its peer is there");
        word
    });
    assert_eq!(peer.join(), Ok(*b"loaded\0"));
    assert_eq!(echoes.join(), Ok(true));
}

/// Goal: a client on stdio blocks its thread, which is reported, and the scheduler goes on.
#[test]
fn a_client_on_stdio_is_reported_as_a_stall() {
    let (told, stalls) = channel();
    let observed = builder().stall_after(Duration::from_millis(5)).on_stall(move |stall| {
        // Only the first is received.
        let _ = told.send((stall.pid, stall.kind));
    });
    let scheduler = observed.build().expect("the system has threads");
    let (here, there) = sockets();
    let reads = coroutine(&scheduler, move || stdio_line(here.as_fd()));
    let stall = stalls.recv_timeout(Duration::from_secs(60)).expect("it is reported");
    assert_eq!(stall, (Some(reads.pid()), StallKind::Blocked));
    // On another thread, which took the place of the first one.
    write(&scheduler, there, "a line\n");
    assert_eq!(reads.join(), Ok(Some(c"a line\n".to_owned())));
}

#[test]
fn a_stack_that_is_too_small_is_named() {
    const SMALL: usize = 16 << 10;
    let scheduler = builder().build().expect("the system has threads");
    let (here, there) = sockets();
    let bytes = if is_child() { 16 * SMALL } else { 64 << 10 };
    let options = SpawnOptions::new().on(&scheduler).label("deep client");
    let options = if is_child() { options.stack_size(SMALL) } else { options };
    let begun = Begun::new();
    let tell = begun.teller();
    let reads = options
        .try_start_coroutine(move |_: Context<()>| {
            tell();
            deep_read(here.as_fd(), bytes)
        })
        .expect("coroutines are enabled");
    begun.wait(1);
    write(&scheduler, there, "!");
    // The default stack has room.
    assert_eq!(reads.join(), Ok::<_, Exit>(1));
    assert!(!is_child(), "the stack is too small");
    let child = run_as_child("plain::a_stack_that_is_too_small_is_named");
    let report = String::from_utf8_lossy(&child.stderr);
    assert!(report.contains("deep client"), "{report}");
    assert!(report.contains("has overflowed its stack of "), "{report}");
    assert_eq!(child.status.signal(), Some(libc::SIGABRT));
}
