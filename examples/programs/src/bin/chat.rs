//! Chat rooms by WebSockets: `chat [MAILBOX]`. A client connects to `/ROOM/NAME`.
//!
//! Each client in a room receives what the others say, and a line when one joins or leaves. A
//! client that reads too slowly is cut off when MAILBOX lines wait for it. At SIGTERM each client
//! gets the lines that were said before, and a close.

use std::env;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::any;
use procession::http::Server;
use procession::mailbox::WhenFull;
use procession::net::TcpListener;
use procession::process::{Groups, OnCancel, Registry, RegistryEvent};
use procession::{Context, SpawnOptions, timeout};

/// How long a client may take to read a line, or to close its side.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Chat {
    mailbox: u32,
    rooms: Groups,
    /// Everybody by `ROOM/NAME`, with the room and the name.
    names: Registry<(String, String)>,
}

#[procession::main(run_until_signal = Duration::from_secs(20))]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mailbox = env::args().nth(1).map_or(Ok(1024), |number| number.parse())?;
    let chat = Chat { mailbox, rooms: Groups::new(), names: Registry::unique() };
    let options = SpawnOptions::new().on_cancel(OnCancel::Drop);
    options.spawn(say_who_leaves(chat.clone())).detach();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("chat: listening on {}", listener.local_addr()?);
    let pages = Router::new().route("/{room}/{name}", any(enter)).with_state(chat);
    Ok(Server::new().upgrades().serve(listener, pages).await?)
}

/// Hands the socket of a client to a process.
async fn enter(
    State(chat): State<Chat>,
    Path((room, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(async move |socket| {
        let options = SpawnOptions::new().label(format!("{room}/{name}"));
        let options = options.mailbox(chat.mailbox, WhenFull::Kill);
        options.start(|cx| talk(cx, socket, chat, room, name)).detach();
    })
}

async fn talk(
    mut cx: Context<Utf8Bytes>,
    mut socket: WebSocket,
    chat: Chat,
    room: String,
    name: String,
) {
    let key = format!("{room}/{name}");
    if chat.names.register(key, cx.pid(), (room.clone(), name.clone())).is_err() {
        return close(socket, close_code::POLICY, "the name is taken").await;
    }
    chat.rooms.join(room.as_str(), cx.pid()).expect("this process runs");
    chat.say(&room, format!("{name} joined"));
    loop {
        tokio::select! {
            line = cx.recv() => {
                let Some(line) = line else { break };
                let sent = timeout(PATIENCE, socket.send(Message::Text(line))).await;
                let Ok(Ok(())) = sent else { return };
            }
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) => chat.say(&room, format!("{name}: {text}")),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
    close(socket, close_code::AWAY, "the chat ends").await;
}

async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    // Ignored: a client that does not close its side in time loses only the reason.
    let _ = timeout(PATIENCE, async {
        let _ = socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
        while let Some(Ok(_)) = socket.recv().await {}
    })
    .await;
}

/// Tells the room when a client has left, because it has ended or was cut off.
async fn say_who_leaves(chat: Chat) {
    let mut changes = chat.names.listen();
    loop {
        if let RegistryEvent::Unregister { value, .. } = changes.recv().await {
            chat.say(&value.0, format!("{} left", value.1));
        }
    }
}

impl Chat {
    fn say(&self, room: &str, line: String) {
        // Ignored: nobody is left in the room.
        let _ = self.rooms.broadcast(room, Utf8Bytes::from(line));
    }
}
