//! Pairs of tasks that take turns, for `shares`.

use std::sync::Arc;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::workload::Failed;

/// Starts a pair that sends messages there and back. It returns the number of round trips.
pub(crate) fn in_messages(stop: Arc<AtomicBool>) -> JoinHandle<Result<u64, Failed>> {
    let (to_pong, mut there) = mpsc::unbounded_channel();
    let (to_ping, mut here) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let pong = tokio::spawn(async move {
            while let Some(number) = there.recv().await {
                to_ping.send(number + 1)?;
            }
            Ok::<(), Failed>(())
        });
        let mut turns = 0;
        while !stop.load(Relaxed) {
            to_pong.send(turns)?;
            turns = here.recv().await.expect("the other ends after this one");
        }
        drop(to_pong);
        pong.await??;
        Ok(turns)
    })
}

/// The same over two channels that hold one message. There are none that hold nothing.
pub(crate) fn in_channels(stop: Arc<AtomicBool>) -> JoinHandle<Result<u64, Failed>> {
    let (to_pong, mut there) = mpsc::channel(1);
    let (to_ping, mut here) = mpsc::channel(1);
    tokio::spawn(async move {
        let pong = tokio::spawn(async move {
            while let Some(number) = there.recv().await {
                to_ping.send(number + 1).await?;
            }
            Ok::<(), Failed>(())
        });
        let mut turns = 0;
        while !stop.load(Relaxed) {
            to_pong.send(turns).await?;
            turns = here.recv().await.expect("the other ends after this one");
        }
        drop(to_pong);
        pong.await??;
        Ok(turns)
    })
}
