//! Look at who owns what: the room is a process, and its members are data of that process; nothing is locked.
//!
//! Each client has two processes: one reads lines and sends them to the room, one has a mailbox and writes what the room says. A
//! client that does not read has a full socket, then a full mailbox, and then misses lines; the room waits for nobody. One that says more than
//! the room can listen to has to wait: the room's mailbox is full, then his socket.
//! With an address it serves until it is stopped: `cargo run --example 08_chat_server -- 127.0.0.1:7000`, then `nc 127.0.0.1 7000` twice.
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use futures_lite::io::BufReader;
use futures_lite::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, StreamExt};
use procession::net::{ReadHalf, TcpListener, TcpStream, WriteHalf};
use procession::{Address, Child, Context, Pid, Scheduler, SpawnOptions, WhenFull, spawn};

enum Room {
    Joins(Address<Arc<str>>),
    Says(Pid, String),
    Leaves(Pid),
}

/// Lines that wait for a member at most: who reads so slowly misses some.
const BEHIND_MAX: u32 = 100;
/// Bytes of a line at most: a longer one is several.
const LINE_MAX: u64 = 1000;
/// What waits for the room at most.
const UNHEARD_MAX: u32 = 1000;

async fn room(mut cx: Context<Room>) {
    let mut members = BTreeMap::new();
    while let Some(message) = cx.receive().await {
        let line = match message {
            Room::Joins(member) => {
                let line = format!("{} joins\n", member.pid());
                members.insert(member.pid(), member);
                line
            }
            Room::Says(who, text) => format!("{who}: {text}\n"),
            Room::Leaves(who) => {
                members.remove(&who);
                format!("{who} leaves\n")
            }
        };
        let line: Arc<str> = line.into();
        for member in members.values() {
            // Ignored: it has gone, or is too far behind.
            let _ = member.send(Arc::clone(&line));
        }
    }
}

async fn write(mut cx: Context<Arc<str>>, mut stream: WriteHalf<Arc<TcpStream>>) -> io::Result<()> {
    while let Some(line) = cx.receive().await {
        AsyncWriteExt::write_all(&mut stream, line.as_bytes()).await?;
    }
    stream.shutdown().await
}

async fn read(stream: ReadHalf<Arc<TcpStream>>, writer: Child<Arc<str>, io::Result<()>>, room: Address<Room>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while let Ok(1..) = (&mut stream).take(LINE_MAX).read_line(&mut line).await {
        let says = std::mem::take(&mut line);
        if room.send_wait(Room::Says(writer.pid(), says.trim_end().to_owned())).await.is_err() {
            break;
        }
    }
    // Ignored: a room that has gone need not know.
    let _ = room.send_wait(Room::Leaves(writer.pid())).await;
    writer.cancel();
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    let room = SpawnOptions::new().mailbox(UNHEARD_MAX, WhenFull::Wait).start(room);
    loop {
        let (reads, writes) = listener.accept().await?.0.into_split();
        let behind = SpawnOptions::new().mailbox(BEHIND_MAX, WhenFull::Reject);
        let writer = behind.start(move |cx| write(cx, writes));
        room.send_wait(Room::Joins(writer.address().clone())).await.map_err(io::Error::other)?;
        drop(spawn(read(reads, writer, room.address().clone())));
    }
}

/// Reads until a line with that end has come.
async fn hear(lines: &mut (impl StreamExt<Item = io::Result<String>> + Unpin), end: &str) -> io::Result<()> {
    while let Some(line) = lines.next().await {
        if line?.ends_with(end) {
            return Ok(());
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn main() -> io::Result<()> {
    let scheduler = Scheduler::builder().name("chat").build().map_err(io::Error::other)?;
    let address = std::env::args().nth(1);
    scheduler.block_on(async {
        let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
        let here = listener.local_addr()?;
        println!("listening on {here}");
        if address.is_some() {
            return serve(listener).await;
        }
        drop(spawn(serve(listener)));
        let (ann, bob) = (TcpStream::connect(here).await?, TcpStream::connect(here).await?);
        let mut heard = BufReader::new(&bob).lines();
        // Both have joined when Bob hears himself.
        bob.write_all(b"hello\n").await?;
        hear(&mut heard, ": hello").await?;
        ann.write_all(b"good morning\n").await?;
        hear(&mut heard, ": good morning").await?;
        drop(ann);
        hear(&mut heard, " leaves").await?;
        println!("Bob has heard everything");
        Ok(())
    })
}
