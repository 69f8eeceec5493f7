//! Addresses of processes of other nodes, and replies that leave the program.
//!
//! Method: a relay with a box in it, which is the other node. It refuses, and tells of room, as the
//! test wants.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use procession::mailbox::relay::{
    NodeRelay, Parcel, Relay, RelayCause, RelayError, RemoteNode, RemoteSignal, RoomFuture,
};
use procession::mailbox::{Recipient, call_all};
use procession::sync::Notify;
use procession::{Address, CallError, Context, Pid, Reply};
use procession_sync::Mutex;

use super::HOUR;
use crate::scene::driven;

#[derive(Clone, Default)]
struct Far(Arc<State>);

#[derive(Default)]
struct State {
    taken: Mutex<Vec<(Option<Pid>, Box<dyn Any + Send>)>>,
    refusal: Mutex<Option<RelayCause>>,
    room: Notify,
    /// Set if it tells of room.
    tells: Mutex<bool>,
    /// How often it will tell of room that it does not have.
    lies: Mutex<u32>,
}

impl Far {
    fn refuses(&self, cause: Option<RelayCause>) {
        *self.0.refusal.lock() = cause;
    }

    /// Takes out the messages of one type.
    fn taken<M: 'static>(&self) -> Vec<M> {
        let taken = std::mem::take(&mut *self.0.taken.lock());
        taken.into_iter().filter_map(|(_, message)| Some(*message.downcast().ok()?)).collect()
    }
}

impl Relay for Far {
    fn relay(&self, parcel: Parcel) -> Result<(), RelayError> {
        if let Some(cause) = *self.0.refusal.lock() {
            return Err(parcel.refused(cause));
        }
        self.0.taken.lock().push((parcel.from, parcel.message));
        Ok(())
    }

    fn room(&self, parcel: &Parcel) -> Option<RoomFuture> {
        assert!(parcel.message.is::<String>(), "it is the message that found no room");
        let mut lies = self.0.lies.lock();
        if *lies > 0 {
            *lies -= 1;
            return Some(Box::pin(std::future::ready(())));
        }
        let far = self.clone();
        let tells = *self.0.tells.lock();
        tells.then(|| -> RoomFuture { Box::pin(async move { far.0.room.notified().await }) })
    }
}

impl NodeRelay for Far {
    fn signal(&self, _: RemoteSignal) {}
}

/// Returns another node and the address of a process there.
fn far<M: Send + 'static>() -> (RemoteNode, Far, Address<M>) {
    let far = Far::default();
    let node = RemoteNode::join(far.clone()).expect("not all numbers are taken");
    let address = node.address(7, 1, Arc::new(far.clone()));
    (node, far, address)
}

#[test]
fn a_message_goes_to_the_relay_of_the_address_and_comes_back_if_that_refuses_it() {
    let (node, far, address) = far::<String>();
    assert_eq!(address.pid(), node.pid(7, 1));
    assert!(address.is_alive(), "its end is not seen");
    assert_eq!(HashSet::from([address.clone()]).len(), 1);
    assert_eq!(address, address.clone());
    let scheduler = driven();
    let sender = scheduler.spawn({
        let address = address.clone();
        async move { address.send("one".into()).is_ok() && address.try_send("two".into()).is_ok() }
    });
    let pid = sender.pid();
    assert_eq!(sender.join(), Ok(true));
    assert_eq!(far.0.taken.lock()[1].0, Some(pid));
    assert_eq!(far.taken::<String>(), ["one", "two"]);
    far.refuses(Some(RelayCause::NoConnection));
    for error in [
        address.send("three".into()).unwrap_err(),
        address.try_send("three".into()).unwrap_err(),
        address.send_blocking("three".into()).unwrap_err(),
        Recipient::from(address.clone()).send("three".into()).unwrap_err(),
    ] {
        assert!(error.is_no_connection(), "{error}");
        assert_eq!((error.pid(), error.into_inner()), (address.pid(), "three".into()));
    }
}

#[test]
fn a_mapped_recipient_of_another_node_returns_what_it_is_given() {
    let (_node, far, address) = far::<String>();
    let mapped: Recipient<u32> = address.map(|number: u32| number.to_string());
    let error = mapped.send(7).unwrap_err();
    assert!(error.is_not_relayed() && error.to_string().contains("another node"), "{error}");
    assert_eq!(error.into_inner(), 7);
    let same = Recipient::from(address);
    assert!(same.is_alive());
    same.send("seven".into()).expect("the relay takes it");
    assert_eq!(far.taken::<String>(), ["seven"]);
}

#[test]
fn a_sender_waits_for_room_at_the_relay_if_that_tells_of_it() {
    let (_node, far, address) = far::<String>();
    far.refuses(Some(RelayCause::Full));
    let scheduler = driven();
    let error = scheduler.block_on(address.send_wait("one".into())).unwrap_err();
    assert!(error.is_full(), "it does not tell: {error}");
    *far.0.tells.lock() = true;
    let waits = scheduler.spawn({
        let address = address.clone();
        async move { address.send_wait("two".into()).await.is_ok() }
    });
    scheduler.block_on(procession::sleep(Duration::from_secs(1)));
    // Told, but there is no room yet.
    far.0.room.notify_waiters();
    scheduler.block_on(procession::sleep(Duration::from_secs(1)));
    assert!(!waits.is_finished());
    far.refuses(None);
    scheduler.block_on(procession::sleep(Duration::from_secs(1)));
    assert!(!waits.is_finished(), "it was not told");
    far.0.room.notify_one();
    assert_eq!(waits.join(), Ok(true));
    assert_eq!(far.taken::<String>(), ["two"]);
}

#[test]
fn a_call_of_many_that_waits_for_room_at_the_relay_waits_for_no_other_call() {
    let (_node, far, address) = far::<String>();
    far.refuses(Some(RelayCause::Full));
    *far.0.tells.lock() = true;
    let scheduler = driven();
    let silent = scheduler.start(|cx: Context<String>| async move { cx.cancelled().await });
    let addresses = [silent.address().clone(), address];
    let replies = Arc::new(Mutex::new(Vec::new()));
    let asks = scheduler.spawn({
        let replies = replies.clone();
        async move {
            let message = |reply: Reply<u32>| {
                replies.lock().push(reply);
                String::new()
            };
            let answers = call_all(&addresses, message, HOUR).await;
            answers.into_iter().map(Result::ok).collect::<Vec<_>>()
        }
    });
    scheduler.block_on(procession::sleep(Duration::from_secs(1)));
    far.refuses(None);
    far.0.room.notify_one();
    scheduler.block_on(procession::sleep(Duration::from_secs(1)));
    assert_eq!(far.taken::<String>().len(), 1, "the first call still waits");
    replies.lock().drain(..).for_each(|reply| reply.send(7));
    assert_eq!(asks.join(), Ok(vec![Some(7), Some(7)]));
}

/// A relay that tells of room, and then has none, holds up its own call alone.
#[test]
fn a_call_of_many_is_not_held_up_by_a_faulty_relay() {
    let (_node, far, address) = far::<String>();
    far.refuses(Some(RelayCause::Full));
    *far.0.lies.lock() = 100;
    let scheduler = driven();
    let receives = scheduler.start(|mut cx: Context<String>| async move {
        cx.recv().await;
        *far.0.lies.lock()
    });
    let addresses = [address, receives.address().clone()];
    let asks = scheduler.spawn(async move {
        let answers = call_all(&addresses, |_: Reply<u32>| "asked".to_owned(), HOUR).await;
        answers.into_iter().map(|answer| answer.is_err_and(|e| e.is_refused())).collect()
    });
    assert!(receives.join().is_ok_and(|lies| lies > 0), "it was asked before the last lie");
    assert_eq!(asks.join(), Ok(vec![true, false]));
}

#[test]
fn a_delayed_message_goes_to_the_relay() {
    let (_node, far, address) = far::<String>();
    let scheduler = driven();
    let sender = scheduler.spawn(async move {
        let sent = address.send_after(Duration::from_secs(5), "late".into());
        procession::sleep(Duration::from_secs(4)).await;
        (sent.is_ok(), address)
    });
    let (sent, _address) = sender.join().expect("it returns");
    assert!(sent);
    assert!(far.0.taken.lock().is_empty());
    scheduler.block_on(procession::sleep(Duration::from_secs(2)));
    assert_eq!(far.taken::<String>(), ["late"]);
}

#[test]
fn a_call_ends_by_the_reply_its_drop_or_the_end_of_the_connection() {
    let (_node, far, address) = far::<Reply<u32>>();
    let scheduler = driven();
    let call = |address: &Address<Reply<u32>>| {
        let address = address.clone();
        scheduler
            .spawn(async move { address.call(|reply| reply, HOUR).await.map_err(|e| e.cause()) })
    };
    let settle = |with: fn(Reply<u32>)| {
        let call = call(&address);
        scheduler.block_on(procession::sleep(Duration::from_secs(1)));
        with(far.taken().pop().expect("it was sent"));
        call.join().expect("it returns")
    };
    assert_eq!(settle(|reply| reply.send(7)), Ok(7));
    assert_eq!(settle(drop), Err(CallError::<()>::NoReply.cause()));
    assert_eq!(settle(Reply::disconnected), Err(CallError::<()>::NoConnection.cause()));
    far.refuses(Some(RelayCause::NoConnection));
    let error = scheduler.block_on(address.call(|reply| reply, HOUR)).unwrap_err();
    assert!(error.is_no_connection() && error.is_refused());
    assert_eq!(
        CallError::<()>::NoConnection.to_string(),
        "the connection to its node ended before the reply came"
    );
    let (_node, _far, silent) = self::far::<Reply<u32>>();
    let mut all = scheduler.block_on(call_all(&[address, silent], |reply| reply, HOUR));
    assert!(matches!(all.pop(), Some(Err(CallError::Elapsed))));
    assert!(matches!(all.pop(), Some(Err(CallError::Refused(_)))));
}

#[test]
fn of_two_rights_to_reply_the_first_reply_counts_and_the_last_drop() {
    let scheduler = driven();
    let with = |both: fn(Reply<u32>, Reply<u32>)| {
        let server = scheduler.start(move |mut cx: Context<Reply<u32>>| async move {
            let one = cx.recv().await.expect("a call comes");
            let other = one.share().expect("the caller waits");
            assert!(one.share().is_none(), "there are two");
            both(one, other);
        });
        scheduler.block_on(server.call(|reply| reply, HOUR)).map_err(|error| error.cause())
    };
    assert_eq!(
        with(|one, other| {
            drop(one);
            other.send(1);
        }),
        Ok(1)
    );
    assert_eq!(
        with(|one, other| {
            one.send(2);
            assert_eq!(other.try_send(3), Err(3));
        }),
        Ok(2)
    );
    assert_eq!(
        with(|one, other| {
            drop(other);
            // The original is alone again.
            drop(one.share());
            one.send(4);
        }),
        Ok(4)
    );
    assert_eq!(with(|one, other| drop((one, other))), Err(CallError::<()>::NoReply.cause()));
    assert_eq!(
        with(|one, other| {
            other.disconnected();
            assert_eq!(one.try_send(5), Err(5));
        }),
        Err(CallError::<()>::NoConnection.cause())
    );
}

#[test]
fn a_function_gets_the_reply_or_learns_that_there_is_none() {
    let got = Arc::new(Mutex::new(Vec::new()));
    let reply = || {
        let got = Arc::clone(&got);
        Reply::from_fn(move |value: Option<u32>| got.lock().push(value))
    };
    assert!(!reply().is_abandoned());
    assert_eq!(std::mem::take(&mut *got.lock()), [None]);
    assert_eq!(reply().try_send(1), Ok(()));
    let one = reply();
    let other = one.share().expect("nothing was replied");
    drop(one);
    assert_eq!(*got.lock(), [Some(1)]);
    other.send(2);
    assert_eq!(*got.lock(), [Some(1), Some(2)]);
    let panics = Reply::from_fn(|_: Option<u32>| crate::scene::panic_quietly("in a reply"));
    assert_eq!(panics.try_send(3), Ok(()), "the panic ends there");
}
