//! A task of a test, which is polled by hand and counts its wake-ups; and plain threads.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use crate::home::thread;

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Starts a plain thread, which waits like any other waiter.
#[expect(clippy::disallowed_methods, reason = "plain threads are what is tested")]
pub(crate) fn plain_thread<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::spawn(run)
}

/// A future with a waker that counts.
pub(crate) struct Probe<F> {
    future: Pin<Box<F>>,
    woken: Arc<WakeCount>,
}

pub(crate) fn probe<F: Future>(future: F) -> Probe<F> {
    Probe { future: Box::pin(future), woken: Arc::default() }
}

impl<F: Future> Probe<F> {
    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut TaskContext::from_waker(&waker))
    }

    #[track_caller]
    pub(crate) fn is_pending(&mut self) -> bool {
        self.poll().is_pending()
    }

    /// Returns the output of a future that must be complete.
    #[track_caller]
    pub(crate) fn output(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future is complete"),
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.0.load(SeqCst) > 0
    }

    /// Returns the number of clones of the waker that others hold.
    pub(crate) fn wakers_held(&self) -> usize {
        Arc::strong_count(&self.woken) - 1
    }

    pub(crate) fn pinned(&mut self) -> Pin<&mut F> {
        self.future.as_mut()
    }
}
