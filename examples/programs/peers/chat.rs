//! The chat for tokio.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take to read a line, or to close its side.
const PATIENCE: Duration = Duration::from_secs(5);
const DRAIN: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct Chat {
    mailbox: usize,
    rooms: Arc<Mutex<HashMap<String, Room>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Room {
    names: HashSet<String>,
    lines: Sender<Utf8Bytes>,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mailbox = env::args().nth(1).map_or(Ok(1024), |number| number.parse())?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let chat = Chat { mailbox, rooms: Arc::default(), tasks: tasks.clone(), stop: stop.clone() };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("chat: listening on {}", listener.local_addr()?);
    let pages = Router::new().route("/{room}/{name}", any(enter)).with_state(chat);
    let server = axum::serve(listener, pages);
    let server = server.with_graceful_shutdown(stop.clone().cancelled_owned());
    tasks.spawn(async move { server.await });

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.cancel();
    tasks.close();
    if timeout(DRAIN, tasks.wait()).await.is_err() {
        eprintln!("chat: {} tasks were cut off", tasks.len());
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

async fn enter(
    State(chat): State<Chat>,
    Path((room, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade.on_upgrade(move |socket| {
        chat.tasks.clone().track_future(async move { chat.serve(socket, room, name).await })
    })
}

impl Chat {
    async fn serve(&self, socket: WebSocket, room: String, name: String) {
        let Some(lines) = self.join(&room, &name) else {
            return close(socket, close_code::POLICY, "the name is taken").await;
        };
        self.say(&room, format!("{name} joined"));
        self.talk(socket, lines, &room, &name).await;
        self.leave(&room, &name);
        if !self.stop.is_cancelled() {
            self.say(&room, format!("{name} left"));
        }
    }

    fn join(&self, room: &str, name: &str) -> Option<Receiver<Utf8Bytes>> {
        let mut rooms = self.rooms.lock().expect("no holder panics");
        let room = rooms.entry(room.to_owned()).or_insert_with(|| {
            let (names, lines) = (HashSet::new(), Sender::new(self.mailbox));
            Room { names, lines }
        });
        room.names.insert(name.to_owned()).then(|| room.lines.subscribe())
    }

    fn leave(&self, room: &str, name: &str) {
        let mut rooms = self.rooms.lock().expect("no holder panics");
        if let Entry::Occupied(mut entry) = rooms.entry(room.to_owned()) {
            entry.get_mut().names.remove(name);
            if entry.get().names.is_empty() {
                entry.remove();
            }
        }
    }

    fn say(&self, room: &str, line: String) {
        let rooms = self.rooms.lock().expect("no holder panics");
        if let Some(room) = rooms.get(room) {
            // Ignored: nobody is left in the room.
            let _ = room.lines.send(line.into());
        }
    }

    async fn talk(
        &self,
        mut socket: WebSocket,
        mut lines: Receiver<Utf8Bytes>,
        room: &str,
        name: &str,
    ) {
        loop {
            tokio::select! {
                // The lines first, so that all of them are sent before the end.
                biased;
                line = lines.recv() => {
                    // Fails for a client that is too many lines behind.
                    let Ok(line) = line else { return };
                    let sent = timeout(PATIENCE, socket.send(Message::Text(line))).await;
                    let Ok(Ok(())) = sent else { return };
                }
                () = self.stop.cancelled() => break,
                message = socket.recv() => match message {
                    Some(Ok(Message::Text(text))) => self.say(room, format!("{name}: {text}")),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                },
            }
        }
        close(socket, close_code::AWAY, "the chat ends").await;
    }
}

async fn close(mut socket: WebSocket, code: u16, reason: &'static str) {
    // Ignored: a client that does not close its side in time loses only the reason.
    let _ = timeout(PATIENCE, async {
        let _ = socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
        while let Some(Ok(_)) = socket.recv().await {}
    })
    .await;
}
