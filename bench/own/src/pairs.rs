//! Pairs of processes that take turns, for `shares`.

use std::sync::Arc;

use procession::sync::channel::{self, Receiver, Sender};
use procession::{Context, JoinHandle};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use super::workload::Failed;

/// Starts a pair of processes that send messages back and forth. The handle returns the number of
/// round trips.
pub(super) fn in_messages(stop: Arc<AtomicBool>) -> JoinHandle<Result<u64, Failed>> {
    let ping = move |mut cx: Context<u64>| async move {
        let home = cx.address();
        let pong = procession::start(move |mut cx: Context<u64>| async move {
            while let Some(number) = cx.recv().await {
                home.send(number + 1)?;
            }
            Ok::<(), Failed>(())
        });
        let mut turns = 0;
        while !stop.load(Relaxed) {
            pong.send(turns)?;
            turns = cx.recv().await.expect("nobody cancels the workload");
        }
        pong.cancel();
        pong.await??;
        Ok(turns)
    };
    procession::start(ping).into_parts().1
}

/// Starts a pair of processes that do the same over two rendezvous channels.
pub(super) fn in_channels(stop: Arc<AtomicBool>) -> JoinHandle<Result<u64, Failed>> {
    let (to_pong, there): (Sender<u64>, Receiver<u64>) = channel::bounded(0);
    let (to_ping, here): (Sender<u64>, Receiver<u64>) = channel::bounded(0);
    procession::spawn(async move {
        let pong = procession::spawn(async move {
            while let Some(number) = there.recv().await {
                to_ping.send(number + 1).await.map_err(Failed::error)?;
            }
            Ok::<(), Failed>(())
        });
        let mut turns = 0;
        while !stop.load(Relaxed) {
            to_pong.send(turns).await.map_err(Failed::error)?;
            turns = here.recv().await.expect("the other ends after this one");
        }
        drop(to_pong);
        pong.await??;
        Ok(turns)
    })
}
