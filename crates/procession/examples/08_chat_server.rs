//! Look at the owner of the data: the room is a process, and the list of members is a variable of
//! that process. Nothing is locked.
//!
//! Each client has two processes. One reads lines and sends them to the room. The other has a
//! mailbox and writes the lines of the room. If a client does not read, its socket fills up, then
//! its mailbox, and then it misses lines; the room waits for no client. If a client sends more than
//! the room can take, the room's mailbox fills up, then the client's socket, and then the client
//! has to wait.
//!
//! With an address, it serves until it is stopped. Connect two clients:
//!
//! ```text
//! cargo run -p procession --example 08_chat_server -- 127.0.0.1:7000
//! nc 127.0.0.1 7000
//! ```
#![expect(clippy::print_stdout, reason = "an example shows its output")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use futures_lite::io::BufReader;
use futures_lite::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, StreamExt};
use procession::mailbox::WhenFull;
use procession::net::{ReadHalf, TcpListener, TcpStream, WriteHalf};
use procession::{Address, Child, Context, Pid, Scheduler, SpawnOptions, spawn};

enum Room {
    Joins(Address<Arc<str>>),
    Says(Pid, String),
    Leaves(Pid),
}

/// Maximum number of lines that wait for a member. A slower reader misses lines.
const BEHIND_MAX: u32 = 100;
/// Maximum length of a line in bytes. A longer line becomes several.
const LINE_MAX: u64 = 1000;
/// Maximum number of messages that wait for the room.
const UNHEARD_MAX: u32 = 1000;

async fn room(mut cx: Context<Room>) {
    let mut members = BTreeMap::new();
    while let Some(message) = cx.recv().await {
        let line = match message {
            Room::Joins(member) => {
                let line = format!("{} joins\n", member.pid());
                members.insert(member.pid(), member);
                line
            }
            Room::Says(member, text) => format!("{member}: {text}\n"),
            Room::Leaves(member) => {
                members.remove(&member);
                format!("{member} leaves\n")
            }
        };
        let line: Arc<str> = line.into();
        for member in members.values() {
            // Ignored: the member has left, or is too far behind.
            let _ = member.send(Arc::clone(&line));
        }
    }
}

async fn write(mut cx: Context<Arc<str>>, mut stream: WriteHalf<Arc<TcpStream>>) -> io::Result<()> {
    while let Some(line) = cx.recv().await {
        AsyncWriteExt::write_all(&mut stream, line.as_bytes()).await?;
    }
    stream.shutdown().await
}

async fn read(
    stream: ReadHalf<Arc<TcpStream>>,
    writer: Child<Arc<str>, io::Result<()>>,
    room: Address<Room>,
) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while let Ok(1..) = (&mut stream).take(LINE_MAX).read_line(&mut line).await {
        let says = std::mem::take(&mut line);
        if room.send_wait(Room::Says(writer.pid(), says.trim_end().to_owned())).await.is_err() {
            break;
        }
    }
    // Ignored: a room that has ended need not know.
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

/// Reads lines until one ends with `end`.
async fn hear(
    lines: &mut (impl StreamExt<Item = io::Result<String>> + Unpin),
    end: &str,
) -> io::Result<()> {
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
        let local = listener.local_addr()?;
        println!("listening on {local}");
        if address.is_some() {
            return serve(listener).await;
        }
        drop(spawn(serve(listener)));
        let (ann, bob) = (TcpStream::connect(local).await?, TcpStream::connect(local).await?);
        let mut heard = BufReader::new(&bob).lines();
        // Both have joined once Bob receives the line that Bob sent.
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
