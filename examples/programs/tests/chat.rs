//! Everybody in a room gets every line, also at the end, and a slow client is cut off.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use procession_programs::Program;
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const CHATS: [&str; 2] = [env!("CARGO_BIN_EXE_chat"), env!("CARGO_BIN_EXE_chat_tokio")];
const ROOMS: usize = 20;
/// The clients of a room.
const CLIENTS: usize = 15;
/// The lines that each client says before the signal, and once more.
const LINES: usize = 5;
/// So long that only a lost line reaches it.
const PATIENCE: Duration = Duration::from_secs(50);

async fn connect(address: SocketAddr, room: &str, name: &str) -> Result<Socket, Error> {
    Ok(connect_async(format!("ws://{address}/{room}/{name}")).await?.0)
}

/// Waits for the next line. At a close, returns its code and its reason as the error.
async fn line(socket: &mut Socket) -> Result<String, Error> {
    loop {
        match socket.next().await.ok_or("the stream ended without a close")?? {
            Message::Text(text) => return Ok(text.to_string()),
            Message::Close(Some(frame)) => {
                return Err(format!("{}: {}", frame.code, frame.reason).into());
            }
            _ => {}
        }
    }
}

/// Reads on until a line comes.
async fn read_until(socket: &mut Socket, wanted: &str) -> Result<(), Error> {
    while line(socket).await? != wanted {}
    Ok(())
}

/// Says some numbers.
async fn say(socket: &mut Socket, from: usize) -> Result<(), Error> {
    for number in from..from + LINES {
        socket.send(Message::text(number.to_string())).await?;
    }
    Ok(())
}

/// Counts the lines that came from each client, which are numbers in their order.
fn hear(heard: &mut BTreeMap<String, usize>, line: &str) {
    if let Some((name, number)) = line.split_once(": ") {
        let next = heard.entry(name.to_owned()).or_default();
        assert_eq!(number, next.to_string(), "{line}");
        *next += 1;
    }
}

/// Stays in a room until the chat ends it, and checks that every line has come.
async fn client(
    address: SocketAddr,
    room: usize,
    name: usize,
    entered: Arc<Barrier>,
    said: Arc<Barrier>,
) -> Result<(), Error> {
    let (room, name) = (format!("room{room}"), format!("client{name}"));
    let mut socket = connect(address, &room, &name).await?;
    read_until(&mut socket, &format!("{name} joined")).await?;
    entered.wait().await;
    let mut heard = BTreeMap::new();
    say(&mut socket, 0).await?;
    while heard.values().sum::<usize>() < CLIENTS * LINES {
        hear(&mut heard, &line(&mut socket).await?);
    }
    // A line that has come back to its client is in the room. The rest of the room may not have
    // read it when the signal comes.
    say(&mut socket, LINES).await?;
    while heard[&name] < 2 * LINES {
        hear(&mut heard, &line(&mut socket).await?);
    }
    said.wait().await;
    let close = loop {
        match line(&mut socket).await {
            Ok(line) => hear(&mut heard, &line),
            Err(close) => break close.to_string(),
        }
    };
    assert_eq!(close, "1001: the chat ends");
    assert_eq!(heard.len(), CLIENTS);
    assert!(heard.values().all(|count| *count == 2 * LINES), "{heard:?}");
    // Answers the close.
    while socket.next().await.is_some() {}
    Ok(())
}

async fn check_that_no_line_is_lost(path: &str) -> Result<(), Error> {
    let mut chat = Program::start(path, &[]);
    let address = chat.address();
    let said = Arc::new(Barrier::new(ROOMS * CLIENTS + 1));
    let mut clients = JoinSet::new();
    for room in 0..ROOMS {
        let entered = Arc::new(Barrier::new(CLIENTS));
        for name in 0..CLIENTS {
            clients.spawn(client(address, room, name, entered.clone(), said.clone()));
        }
    }
    tokio::select! {
        _ = said.wait() => {}
        Some(ended) = clients.join_next() => return ended?,
    }
    assert_eq!(chat.terminate().code, Some(0), "{path}");
    clients.join_all().await.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_lost() -> Result<(), Error> {
    for path in CHATS {
        timeout(PATIENCE, check_that_no_line_is_lost(path)).await??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_is_cut_off_and_holds_nobody_up() -> Result<(), Error> {
    for path in CHATS {
        let mut chat = Program::start(path, &["16"]);
        let address = chat.address();
        let mut slow = connect(address, "room", "slow").await?;
        read_until(&mut slow, "slow joined").await?;
        let mut fast = connect(address, "room", "fast").await?;
        let long = "x".repeat(64 * 1024);
        // The sockets hold some megabytes before lines wait in the mailbox.
        timeout(PATIENCE, async {
            loop {
                fast.send(Message::text(&long)).await?;
                loop {
                    match line(&mut fast).await?.as_str() {
                        "slow left" => return Ok::<_, Error>(()),
                        text if text.starts_with("fast: ") => break,
                        _ => {}
                    }
                }
            }
        })
        .await??;
        fast.close(None).await?;
        while fast.next().await.is_some() {}
        drop(slow);
        assert_eq!(chat.terminate().code, Some(0), "{path}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_taken_until_its_client_leaves() -> Result<(), Error> {
    for path in CHATS {
        let mut chat = Program::start(path, &[]);
        let address = chat.address();
        let mut ada = connect(address, "room", "ada").await?;
        read_until(&mut ada, "ada joined").await?;
        let mut other = connect(address, "room", "ada").await?;
        let refused = line(&mut other).await.expect_err("the name is taken");
        assert_eq!(refused.to_string(), "1008: the name is taken");
        // Answers the close.
        while other.next().await.is_some() {}
        // The same name in another room is another client.
        let mut other = connect(address, "lobby", "ada").await?;
        read_until(&mut other, "ada joined").await?;
        let mut ben = connect(address, "room", "ben").await?;
        read_until(&mut ben, "ben joined").await?;
        ada.close(None).await?;
        read_until(&mut ben, "ada left").await?;
        let mut ada = connect(address, "room", "ada").await?;
        read_until(&mut ada, "ada joined").await?;
        drop((ada, ben, other));
        assert_eq!(chat.terminate().code, Some(0), "{path}");
    }
    Ok(())
}
