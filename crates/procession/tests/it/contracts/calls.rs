//! A call ends with its reply, its timeout, or the end of the called process, whichever is first.

use std::time::Duration;

use procession::mailbox::{WhenFull, call_all};
use procession::process::send_exit;
use procession::sync::RecvError;
use procession::{
    Address, CallError, Context, Exit, Reply, Scheduler, SpawnOptions, sleep, spawn, timeout,
    yield_now,
};

use super::HOUR;
use crate::scene::{assert_conserved, driven, threaded};

type Question = (u32, Reply<u32>);

/// Starts a process that answers after a while.
fn server(scheduler: &Scheduler, timeout: Duration) -> Address<Question> {
    let server = scheduler.start(move |mut cx: Context<Question>| async move {
        while let Some((n, reply)) = cx.recv().await {
            sleep(timeout).await;
            reply.send(n + 1);
        }
    });
    server.detach()
}

#[test]
fn a_call_to_a_dying_process_ends_at_its_death() {
    let scheduler = driven();
    // The process ends while the question is in its mailbox, in its hands, or with another process
    // that it was passed on to.
    for place in 0..3 {
        let dies = scheduler.start(move |mut cx: Context<Question>| async move {
            if place == 0 {
                return sleep(2 * HOUR).await;
            }
            let question = cx.recv().await;
            if place == 2 {
                let helper = procession::SpawnOptions::new().link().spawn(async move {
                    let _question = question;
                    std::future::pending::<()>().await
                });
                return helper.await.expect("it is never done");
            }
            sleep(2 * HOUR).await;
            drop(question);
        });
        let address = dies.address().clone();
        let pid = dies.pid();
        let start = scheduler.now();
        drop(scheduler.spawn(async move {
            sleep(HOUR).await;
            send_exit(pid, Exit::failed("on purpose"));
        }));
        let call =
            scheduler.spawn(async move { address.call(|reply| (1, reply), 24 * HOUR).await });
        let error = call.join().expect("it ends").expect_err("there is no reply");
        assert!(error.is_no_reply(), "place {place}");
        assert_eq!(
            scheduler.now() - start,
            HOUR,
            "place {place}: at the death, not at the timeout"
        );
        assert_eq!(dies.join(), Err(Exit::failed("on purpose")));
    }
}

#[test]
fn a_late_reply_meets_nobody() {
    let scheduler = driven();
    let slow = server(&scheduler, 2 * HOUR);
    let caller = scheduler.start(move |mut cx: Context<u32>| async move {
        let late = slow.call(|reply| (1, reply), HOUR).await.expect_err("it is slow").is_elapsed();
        // A call can be given up from outside, too.
        let cancelled = timeout(HOUR, slow.call(|reply| (2, reply), 24 * HOUR)).await.is_err();
        sleep(10 * HOUR).await;
        (late, cancelled, cx.try_recv())
    });
    assert_eq!(caller.join(), Ok((true, true, Err(RecvError::Empty))));
}

#[test]
fn several_are_called_at_once() {
    let scheduler = driven();
    let mut servers: Vec<_> = (0..4).map(|n| server(&scheduler, HOUR * n)).collect();
    let gone = scheduler.start(|_: Context<Question>| async {});
    servers.push(gone.address().clone());
    assert_eq!(gone.join(), Ok(()));
    let start = scheduler.now();
    let asks = scheduler.spawn(async move {
        let answers = call_all(&servers, |reply| (10, reply), 2 * HOUR + HOUR / 2).await;
        let sort = |answer: Result<u32, procession::CallError<Question>>| match answer {
            Ok(n) => n,
            Err(error) if error.is_elapsed() => 1,
            Err(error) if error.is_refused() => 2,
            Err(_) => 3,
        };
        answers.into_iter().map(sort).collect::<Vec<_>>()
    });
    assert_eq!(asks.join(), Ok(vec![11, 11, 11, 1, 2]));
    assert_eq!(scheduler.now() - start, 2 * HOUR + HOUR / 2, "side by side");
}

#[test]
fn a_message_whose_process_ends_before_it_has_room_comes_back() {
    let scheduler = driven();
    let slow = server(&scheduler, 24 * HOUR);
    let options = SpawnOptions::new().on(&scheduler).mailbox(1, WhenFull::Wait);
    let full = options.start(|_: Context<Question>| sleep(HOUR)).detach();
    let fills = full.clone();
    let filled =
        scheduler.spawn(async move { fills.call(|reply| (1, reply), 24 * HOUR).await.is_err() });
    scheduler.block_on(sleep(HOUR / 2));
    let asks = scheduler
        .spawn(async move { call_all(&[slow, full], |reply| (10, reply), 2 * HOUR).await });
    let mut answers = asks.join().expect("it does not panic");
    let refused = answers.pop().expect("two were called").expect_err("it has ended");
    let CallError::Refused(error) = refused else { panic!("{refused:?}") };
    assert!(error.is_ended());
    assert_eq!(error.into_inner().0, 10);
    assert!(answers.pop().expect("two were called").is_err_and(|error| error.is_elapsed()));
    assert_eq!(filled.join(), Ok(true));
}

#[test]
fn one_answer_may_be_given_to_several() {
    let scheduler = driven();
    let barrier = scheduler.start(|mut cx: Context<Reply<usize>>| async move {
        let mut waiting = Vec::new();
        while waiting.len() < 5 {
            waiting.extend(cx.recv().await);
        }
        let count = waiting.len();
        waiting.into_iter().for_each(|reply| reply.send(count));
    });
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let address = barrier.address().clone();
            scheduler.spawn(async move { address.call(|reply| reply, HOUR).await.ok() })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.join(), Ok(Some(5)));
    }
}

#[test]
fn replies_timeouts_and_deaths_race() {
    let scheduler = threaded(2);
    let callers: Vec<_> = (0..8_u64)
        .map(|seed| {
            scheduler.spawn(async move {
                let mut chance = fastrand::Rng::with_seed(seed);
                let (mut replied, mut ended) = (0, 0);
                for n in 0..300 {
                    let server = procession::start(|mut cx: Context<Question>| async move {
                        while let Some((n, reply)) = cx.recv().await {
                            yield_now().await;
                            reply.send(n + 1);
                        }
                    });
                    let pid = server.pid();
                    let killer = chance
                        .bool()
                        .then(|| spawn(async move { send_exit(pid, Exit::failed("now")) }));
                    let timeout = if chance.bool() {
                        HOUR
                    } else {
                        Duration::from_nanos(chance.u64(0..20_000))
                    };
                    match server.call(|reply| (n, reply), timeout).await {
                        Ok(reply) => {
                            assert_eq!(reply, n + 1);
                            replied += 1;
                        }
                        Err(error) => {
                            assert!(
                                error.is_elapsed() || killer.is_some(),
                                "nobody ended it: {error}"
                            );
                            ended += 1;
                        }
                    }
                    send_exit(pid, Exit::Shutdown);
                }
                replied + ended
            })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.join(), Ok(300));
    }
    assert_conserved(&scheduler);
}

#[test]
fn a_call_to_many_reaches_all_though_the_first_do_not_answer() {
    let scheduler = threaded(1);
    let mute = |scheduler: &Scheduler| {
        let mute = scheduler.start(|mut cx: Context<Question>| async move {
            let _question = cx.recv().await;
            std::future::pending::<()>().await
        });
        mute.detach()
    };
    // More calls than one step may perform.
    let mut servers: Vec<_> = (0..300).map(|_| mute(&scheduler)).collect();
    let (asked, asks) = crate::home::mpsc::channel();
    let last = scheduler.start(move |mut cx: Context<Question>| async move {
        let question = cx.recv().await;
        asked.send(()).expect("the test listens");
        drop(question);
    });
    servers.push(last.detach());
    let caller =
        scheduler.spawn(async move { call_all(&servers, |reply| (0, reply), HOUR).await.len() });
    crate::scene::soon(&asks);
    procession::process::kill(caller.pid());
    assert!(caller.join().is_err());
}

/// What a process does with the question that a call of many puts to it.
#[derive(Clone, Copy, Debug)]
enum Callee {
    Answers,
    Late,
    Mute,
    DropsIt,
    Ended,
    Fails,
    RefusesIt,
    HasNoRoom,
    /// It makes room for the question while the call waits, and answers it.
    MakesRoom,
}

#[derive(Debug, PartialEq)]
enum Called {
    Answered,
    Elapsed,
    NoReply,
    Refused,
}

impl Callee {
    const ALL: [Self; 9] = [
        Self::Answers,
        Self::Late,
        Self::Mute,
        Self::DropsIt,
        Self::Ended,
        Self::Fails,
        Self::RefusesIt,
        Self::HasNoRoom,
        Self::MakesRoom,
    ];

    async fn start(self) -> Address<Option<Reply<u32>>> {
        let options = match self {
            Self::RefusesIt => SpawnOptions::new().mailbox(1, WhenFull::Reject),
            Self::HasNoRoom | Self::MakesRoom => SpawnOptions::new().mailbox(1, WhenFull::Wait),
            _ => SpawnOptions::new(),
        };
        let callee = options.start(move |mut cx: Context<Option<Reply<u32>>>| async move {
            match self {
                Self::Ended => return,
                Self::RefusesIt | Self::HasNoRoom => return std::future::pending().await,
                Self::MakesRoom => {
                    sleep(HOUR / 2).await;
                    cx.recv().await;
                }
                _ => {}
            }
            let Some(Some(reply)) = cx.recv().await else { return };
            match self {
                Self::Late => sleep(2 * HOUR).await,
                Self::DropsIt => return drop(reply),
                Self::Fails => procession::process::exit(Exit::failed("asked to")),
                Self::Mute => std::future::pending().await,
                _ => {}
            }
            reply.send(7);
            std::future::pending().await
        });
        if matches!(self, Self::RefusesIt | Self::HasNoRoom | Self::MakesRoom) {
            callee.send(None).expect("there is room for one");
        }
        if let Self::Ended = self {
            let address = callee.address().clone();
            callee.await.expect("it ends");
            return address;
        }
        callee.detach()
    }

    fn expected(self) -> Called {
        match self {
            Self::Answers | Self::MakesRoom => Called::Answered,
            Self::Late | Self::Mute | Self::HasNoRoom => Called::Elapsed,
            Self::DropsIt | Self::Fails => Called::NoReply,
            Self::Ended | Self::RefusesIt => Called::Refused,
        }
    }
}

/// Each address has the result that it has alone, whatever those before it and behind it do.
#[test]
fn a_call_to_several_has_the_result_of_each() {
    let scheduler = driven();
    let asks = scheduler.spawn(async {
        for first in Callee::ALL {
            for second in Callee::ALL {
                for third in Callee::ALL {
                    let callees = [first, second, third];
                    let mut addresses = Vec::new();
                    for callee in callees {
                        addresses.push(callee.start().await);
                    }
                    let answers = call_all(&addresses, Some, HOUR).await;
                    let results: Vec<_> = answers
                        .into_iter()
                        .map(|answer| match answer {
                            Ok(7) => Called::Answered,
                            Ok(other) => panic!("{other} came"),
                            Err(error) if error.is_elapsed() => Called::Elapsed,
                            Err(error) if error.is_refused() => Called::Refused,
                            Err(error) if error.is_no_reply() => Called::NoReply,
                            Err(other) => panic!("{other}"),
                        })
                        .collect();
                    assert_eq!(results, callees.map(Callee::expected), "{callees:?}");
                    for address in addresses {
                        procession::process::kill(address.pid());
                    }
                }
            }
        }
    });
    assert_eq!(asks.join(), Ok(()));
}
