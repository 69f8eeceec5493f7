//! Sockets in blocking style.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use procession::SpawnOptions;
use procession::coroutine::Wait;
use procession::net::{TcpListener, TcpStream};

use super::{coroutine, threaded};

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Code that does not know this runtime: it answers each line with the same in capitals.
fn shout(stream: impl Read + Write) -> io::Result<usize> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut lines) = (String::new(), 0);
    while stream.read_line(&mut line)? > 0 {
        stream.get_mut().write_all(line.to_uppercase().as_bytes())?;
        stream.get_mut().flush()?;
        line.clear();
        lines += 1;
    }
    Ok(lines)
}

#[test]
fn code_for_blocking_sockets_runs_in_coroutines_unchanged() {
    // With one worker, anything that blocked its thread would wait forever.
    let scheduler = threaded(1);
    let lines = coroutine(&scheduler, |_| {
        let listener = coroutine::wait(TcpListener::bind(HERE))?;
        let address = listener.local_addr()?;
        let serves = SpawnOptions::new().try_start_coroutine(move |_: coroutine::Context<()>| {
            let (stream, _) = coroutine::wait(listener.accept())?;
            shout(stream)
        });
        let stream = coroutine::wait(TcpStream::connect(address))?;
        let (mut to, mut from) = (&stream, BufReader::new(&stream));
        for number in 0..100 {
            writeln!(to, "line {number}")?;
            let mut answer = String::new();
            from.read_line(&mut answer)?;
            assert_eq!(answer, format!("LINE {number}\n"));
        }
        drop(from);
        drop(stream);
        coroutine::wait(serves.expect("they are enabled")).expect("it does not panic")
    });
    assert_eq!(lines.join().expect("it does not panic").expect("the system has sockets"), 100);
}

#[test]
fn many_coroutines_wait_for_sockets_on_few_threads() {
    let scheduler = threaded(2);
    let listener = scheduler.block_on(TcpListener::bind(HERE)).expect("the system has sockets");
    let address = listener.local_addr().expect("it is bound");
    let accepts = coroutine(&scheduler, move |_| {
        let serve = |stream| {
            SpawnOptions::new()
                .try_start_coroutine(move |_: coroutine::Context<()>| shout(stream))
                .expect("they are enabled")
        };
        let all: Vec<_> = (0..30)
            .map(|_| serve(coroutine::wait(listener.accept()).expect("they connect").0))
            .collect();
        all.into_iter()
            .map(|child| {
                coroutine::wait(child).expect("it does not panic").expect("it is connected")
            })
            .sum::<usize>()
    });
    let clients: Vec<_> = (0..30)
        .map(|_| {
            coroutine(&scheduler, move |_| {
                let mut stream = coroutine::wait(TcpStream::connect(address)).expect("it listens");
                let mut answer = [0; 3];
                for _ in 0..10 {
                    Write::write_all(&mut stream, b"ab\n").expect("it is connected");
                    Read::read_exact(&mut stream, &mut answer).expect("it is connected");
                    assert_eq!(&answer, b"AB\n");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
    assert_eq!(accepts.join(), Ok(300));
}

#[test]
fn timeouts_are_reported_as_by_std_and_threads_block() {
    let scheduler = threaded(1);
    let listener = scheduler.block_on(TcpListener::bind(HERE)).expect("the system has sockets");
    let address = listener.local_addr().expect("it is bound");
    let kind = coroutine(&scheduler, move |_| {
        let mut stream = coroutine::wait(TcpStream::connect(address))?;
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        Ok::<_, io::Error>(
            Read::read(&mut stream, &mut [0]).expect_err("there is no writer").kind(),
        )
    });
    let kind = kind.join().expect("it does not panic").expect("the system has sockets");
    assert_eq!(kind, io::ErrorKind::WouldBlock);

    let client = crate::home::net::TcpStream::connect(address).expect("it listens");
    // The connection of the coroutine comes first.
    let accepted = scheduler.block_on(async { [listener.accept().await, listener.accept().await] });
    let [_, Ok((stream, _))] = accepted else { panic!("two have connected") };
    crate::home::thread::scope(|scope| {
        scope.spawn(move || shout(stream).expect("it is connected"));
        (&client).write_all(b"from a thread\n").expect("it is connected");
        let mut answer = String::new();
        BufReader::new(&client).read_line(&mut answer).expect("it is connected");
        assert_eq!(answer, "FROM A THREAD\n");
        drop(client);
    });
    assert_eq!(async { 1 }.wait(), 1);
}
