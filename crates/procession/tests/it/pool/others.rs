//! Several pools as one, and pools of objects.

use std::sync::Arc;
use std::time::Duration;

use procession::pool::{
    AsyncPool, Balance, ObjectPool, OnFull, Pool, PoolError, PoolStats, Queue, WaitError,
};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::SeqCst;

use super::gated;
use crate::scene::{driven, panic_quietly};

#[test]
fn round_robin_goes_round_and_offers_what_a_full_pool_refuses_to_another() {
    let pools = Pool::builder()
        .capacity(1)
        .on_full(OnFull::Refuse)
        .members(3, Balance::RoundRobin)
        .build()
        .expect("valid");
    let (gates, jobs): (Vec<_>, Vec<_>) = (0..3).map(|_| gated()).unzip();
    for job in jobs {
        pools.execute(job).expect("one has room");
    }
    assert!(pools.members().iter().all(|member| member.stats().busy == 1));
    assert!(pools.execute(|| ()).expect_err("all are full").is_full());
    assert_eq!(pools.wait(None), Err(WaitError::Open));
    pools.close();
    assert_eq!(pools.wait(Some(Duration::ZERO)), Err(WaitError::TimedOut));
    gates.into_iter().for_each(|gate| gate.open());
    pools.wait(None).expect("they end");
    pools.reopen().expect("they have ended");
    pools.resize(2).expect("in range");
    assert_eq!((pools.stats().capacity, pools.stats().completed), (6, 3));
    assert!(matches!(
        Pool::builder().members(0, Balance::RoundRobin).build(),
        Err(PoolError::OutOfRange(_))
    ));
}

#[test]
fn full_members_refuse_by_turns() {
    let builder = Pool::builder().capacity(1).on_full(OnFull::Refuse);
    let pools = builder.members(2, Balance::RoundRobin).build().expect("valid");
    let (gates, jobs): (Vec<_>, Vec<_>) = (0..2).map(|_| gated()).unzip();
    for job in jobs {
        pools.execute(job).expect("one has room");
    }
    for _ in 0..10 {
        assert!(pools.execute(|| ()).expect_err("both are full").is_full());
    }
    let refused: Vec<_> = pools.members().iter().map(|member| member.stats().refused).collect();
    assert_eq!(refused, [5, 5]);
    gates.into_iter().for_each(|gate| gate.open());
}

#[test]
fn least_loaded_does_not_count_idle_workers() {
    let builder = Pool::builder().capacity(4).members(2, Balance::LeastLoaded);
    let pools = builder.build().expect("valid");
    let warm = &pools.members()[0];
    warm.resize(8).expect("in range");
    for _ in 0..3 {
        let handles: Vec<_> = (0..4).map(|_| warm.submit(|| ()).expect("open")).collect();
        handles.into_iter().for_each(|handle| handle.join().expect("it returns"));
    }
    warm.wait_idle(None).expect("nothing runs");
    let (gate, job) = gated();
    pools.members()[1].execute(job).expect("open");
    gate.wait_for_job();
    for _ in 0..4 {
        let place = pools.try_reserve().expect("there is room");
        assert_eq!(warm.stats().reserved, 1, "its workers are warm, but it has nothing to do");
        drop(place);
    }
    gate.open();
}

#[test]
fn several_pools_of_processes_share_the_work() {
    let scheduler = driven();
    let pools = Pool::builder()
        .capacity(2)
        .members(3, Balance::LeastLoaded)
        .on(&scheduler)
        .build_async()
        .expect("valid");
    let sum = scheduler.block_on(async {
        let mut handles = Vec::new();
        for n in 0..30 {
            let job = async move {
                procession::sleep(Duration::from_millis(1)).await;
                n
            };
            handles.push(pools.submit(job).await.expect("open"));
        }
        let mut sum = 0;
        for handle in handles {
            sum += handle.await.expect("it returns");
        }
        sum
    });
    assert_eq!(sum, 435);
    assert!(pools.members().iter().all(|member| member.stats().completed > 0));
}

/// The numbers of several pools are the sums of theirs. Each number is made greater than zero in
/// two of the pools.
#[test]
fn the_numbers_of_several_pools_are_the_sums_of_theirs() {
    let scheduler = driven();
    let pools = Pool::builder()
        .capacity(2)
        .queue(Queue::Bounded(1))
        .on_full(OnFull::Refuse)
        .members(3, Balance::RoundRobin)
        .on(&scheduler)
        .build_async()
        .expect("valid");
    scheduler.block_on(async {
        for member in &pools.members()[1..] {
            member.execute(async {}).await.expect("there is room");
            let fails = member.submit(async { panic_quietly("as told") }).await;
            let ends = fails.expect("there is room").await;
            assert!(ends.map(|never: ()| never).is_err());
            member.idle().await.expect("it stays open");
            for _ in 0..3 {
                member.execute(std::future::pending()).await.expect("there is room");
            }
            assert!(member.execute(async {}).await.is_err(), "it is full");
            let queued = member.stats().queued;
            assert_eq!(queued, 1);
        }
        let warm = &pools.members()[0];
        warm.execute(async {}).await.expect("there is room");
        warm.idle().await.expect("it stays open");
    });
    let (all, each): (PoolStats, Vec<_>) =
        (pools.stats(), pools.members().iter().map(AsyncPool::stats).collect());
    macro_rules! sums {
        ($($number:ident)*) => {$(
            let parts: Vec<_> = each.iter().map(|stats| stats.$number).collect();
            let sum = parts.iter().fold(0, |sum, part| sum + part);
            assert_eq!(all.$number, sum, "{} of {parts:?}", stringify!($number));
        )*};
    }
    sums!(capacity live busy idle free queued reserved waiting inline);
    sums!(submitted completed panicked cancelled refused);
    sums!(workers_started workers_retired workers_refused);
    assert!([all.idle, all.busy, all.queued].iter().all(|&number| number > 0), "{all:?}");
    assert!(all.refused == 2 && all.panicked == 2 && all.completed == 3, "{all:?}");
    super::assert_sums(&all);
    pools.shutdown_now();
    assert!(pools.stats().closed);
}

/// Counts the objects that are alive.
struct Object(Arc<AtomicUsize>, u32);

impl Object {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self(Arc::clone(alive), 0)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn an_object_comes_back_reset_unless_it_is_not_worth_it() {
    let alive = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&alive);
    let objects = ObjectPool::builder(move || Object::new(&made))
        .reset(|object| {
            if object.1 == 2 {
                panic_quietly("it cannot be reset");
            }
            std::mem::take(&mut object.1) != 9
        })
        .build();
    assert!(objects.get_kept().is_none());
    let mut object = objects.get();
    object.1 = 7;
    drop(object);
    assert_eq!((objects.get().1, alive.load(SeqCst)), (0, 1));
    objects.get().1 = 2;
    assert_eq!((alive.load(SeqCst), objects.kept_objects()), (0, (0, 0)), "its reset panicked");
    objects.get().1 = 9;
    assert_eq!(
        (alive.load(SeqCst), objects.kept_objects()),
        (0, (0, 0)),
        "it was not worth keeping"
    );
    let taken = objects.get().into_inner();
    assert_eq!(objects.kept_objects(), (0, 0));
    drop(taken);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn no_more_objects_are_kept_than_the_limits_say_and_none_for_ever() {
    let alive = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&alive);
    let objects = ObjectPool::builder(move || Object::new(&made))
        .local(2)
        .shared(3)
        .expiry(Duration::ZERO)
        .build();
    let used: Vec<_> = (0..10).map(|_| objects.get()).collect();
    assert_eq!(alive.load(SeqCst), 10);
    drop(used);
    assert_eq!((alive.load(SeqCst), objects.kept_objects()), (5, (5, 0)));
    assert_eq!(
        (objects.expire(), objects.kept_objects()),
        (0, (0, 5)),
        "first they become victims"
    );
    drop(objects.get());
    assert_eq!(objects.kept_objects(), (1, 4), "a victim that is used is none any more");
    assert_eq!((objects.expire(), objects.kept_objects()), (4, (0, 1)));
    assert_eq!((objects.clear(), alive.load(SeqCst)), (1, 0));
}

#[test]
fn objects_go_from_thread_to_thread_and_none_is_used_twice_at_once() {
    let alive = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&alive);
    let objects = ObjectPool::builder(move || Object::new(&made)).local(1).shared(2).build();
    crate::home::thread::scope(|scope| {
        for thread in 0..4 {
            let objects = &objects;
            scope.spawn(move || {
                for _ in 0..500 {
                    let (mut first, mut second) = (objects.get(), objects.get());
                    (first.1, second.1) = (thread, thread + 10);
                    assert_eq!((first.1, second.1), (thread, thread + 10));
                }
            });
        }
    });
    let (kept, victims) = objects.kept_objects();
    assert_eq!(alive.load(SeqCst), kept + victims);
    let other = objects.clone();
    drop(objects);
    drop(other);
    assert_eq!(alive.load(SeqCst), 0);
}
