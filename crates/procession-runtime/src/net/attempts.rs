//! Connecting to a host with several addresses ("happy eyeballs", RFC 8305).
//!
//! An address may not answer, for example because the network drops its packets, and the system
//! takes two minutes to say so. So the next address is tried soon, while the attempts before it go
//! on. The first connection wins, and the other attempts are dropped.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use crate::time::{Sleep, sleep};

/// Interval between the beginnings of two attempts, as recommended by the RFC.
const DELAY: Duration = Duration::from_millis(250);

/// Returns the first connection, or the error of the attempt that failed last.
pub(super) async fn first_connected<T, F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    if let [address] = addresses[..] {
        return connect(address).await;
    }
    let mut addresses = interleaved(addresses).into_iter();
    let mut attempts: Vec<Pin<Box<F>>> = Vec::new();
    let mut last_error = None;
    let mut delay = pin!(None::<Sleep>);
    poll_fn(|task| {
        loop {
            let mut at = 0;
            while at < attempts.len() {
                match attempts[at].as_mut().poll(task) {
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                    Poll::Ready(Err(error)) => {
                        last_error = Some(error);
                        drop(attempts.remove(at));
                        delay.set(None);
                    }
                    Poll::Pending => at += 1,
                }
            }
            if let Some(delay) = delay.as_mut().as_pin_mut()
                && delay.poll(task).is_pending()
            {
                return Poll::Pending;
            }
            match (addresses.next(), last_error.take()) {
                (Some(address), error) => {
                    attempts.push(Box::pin(connect(address)));
                    delay.set((addresses.len() > 0).then(|| sleep(DELAY)));
                    last_error = error;
                }
                (None, Some(error)) if attempts.is_empty() => return Poll::Ready(Err(error)),
                (None, error) => {
                    last_error = error;
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}

/// Orders addresses so that the families take turns, beginning with the family of the first
/// address. The order within a family stays.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = addresses.first().map(SocketAddr::is_ipv6);
    let (same, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| Some(address.is_ipv6()) == first);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut order = Vec::new();
    loop {
        let pair = [same.next(), other.next()];
        if pair == [None, None] {
            return order;
        }
        order.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::interleaved;

    #[test]
    fn families_take_turns_and_keep_their_order() {
        let order = |names: &[&str]| -> Vec<String> {
            let parsed = names.iter().map(|name| name.parse::<SocketAddr>().expect("an address"));
            interleaved(parsed.collect()).into_iter().map(|address| address.to_string()).collect()
        };
        assert_eq!(
            order(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]),
            ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]
        );
        assert_eq!(order(&["1.1.1.1:1", "2.2.2.2:1"]), ["1.1.1.1:1", "2.2.2.2:1"]);
        assert_eq!(order(&["1.1.1.1:1", "[::1]:1"]), ["1.1.1.1:1", "[::1]:1"]);
    }
}
