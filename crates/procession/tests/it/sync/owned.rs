//! Guards and permits that own their lock, downgrades, and limited waits.

use std::sync::Arc;
use std::time::Duration;

use procession::sync::{AcquireError, Mutex, RwLock, Semaphore};
use procession::time::{Elapsed, Instant};
use procession::{sleep, spawn};

use super::probe::probe;
use crate::scene::driven;

#[test]
fn an_owned_guard_unlocks_in_another_process() {
    driven().block_on(async {
        let mutex = Arc::new(Mutex::new(0));
        let mut held = mutex.clone().lock_owned().await;
        assert!(mutex.try_lock().is_err() && mutex.clone().try_lock_owned().is_err());
        let process = spawn(async move {
            sleep(Duration::from_secs(1)).await;
            *held += 1;
        });
        assert_eq!(*mutex.lock().await, 1);
        process.await.expect("it does not panic");
        let last = mutex.clone().try_lock_owned().expect("it is free");
        drop(mutex);
        assert_eq!(*last, 1, "the guard keeps the mutex");
    });
}

#[test]
fn owned_permits_come_back_in_another_process() {
    driven().block_on(async {
        let semaphore = Arc::new(Semaphore::new(3));
        let mut permits = semaphore.clone().acquire_owned(3).await.expect("it is open");
        assert!(semaphore.clone().try_acquire_owned(1).is_err());
        let one = permits.split(1).expect("there are three");
        assert!(permits.split(3).is_none());
        assert_eq!((permits.count(), one.count()), (2, 1));
        let process = spawn(async move {
            sleep(Duration::from_secs(1)).await;
            drop(permits);
        });
        let mut two = semaphore.clone().acquire_owned(2).await.expect("it is open");
        process.await.expect("it does not panic");
        two.merge(one);
        assert_eq!((two.count(), semaphore.available_permits()), (3, 0));
        two.forget();
        semaphore.add_permits(1);
        let mut last = semaphore.acquire(1).await.expect("it is open");
        assert!(last.split(2).is_none());
        let rest = last.split(1).expect("there is one");
        last.merge(rest);
        drop(last);
        assert_eq!(semaphore.available_permits(), 1);
        semaphore.close();
        assert!(semaphore.clone().acquire_owned(1).await.is_err());
    });
}

#[test]
#[should_panic(expected = "permits of two semaphores")]
fn permits_of_two_semaphores_are_not_merged() {
    let semaphores = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
    let [mut one, other] =
        semaphores.map(|semaphore| semaphore.try_acquire_owned(1).expect("free"));
    one.merge(other);
}

#[test]
fn a_cancelled_owned_wait_takes_nothing() {
    let semaphore = Arc::new(Semaphore::new(1));
    let held = semaphore.try_acquire(1).expect("it is free");
    let mut waits = probe(semaphore.clone().acquire_owned(1));
    assert!(waits.is_pending());
    drop(held);
    assert!(waits.is_woken());
    drop(waits);
    assert_eq!((semaphore.available_permits(), Arc::strong_count(&semaphore)), (1, 1));
}

#[test]
fn a_downgrade_lets_readers_in_and_no_writer() {
    let lock = Arc::new(RwLock::new(0));
    let mut writes = lock.try_write().expect("it is free");
    *writes = 1;
    let mut reader = probe(lock.read());
    let mut writer = probe(lock.write());
    let mut late = probe(lock.clone().read_owned());
    assert!(reader.is_pending() && writer.is_pending() && late.is_pending());
    let reads = writes.downgrade();
    assert!(reader.is_woken() && !writer.is_woken() && !late.is_woken());
    assert_eq!((*reads, *reader.output()), (1, 1));
    drop(reads);
    drop(writer.output());
    assert_eq!(*late.output(), 1);
    assert!(lock.try_write().is_ok(), "all permits are back");
}

#[test]
fn a_downgraded_writer_keeps_writers_out() {
    let lock = RwLock::new(0);
    let reads = lock.try_write().expect("it is free").downgrade();
    assert!(lock.try_write().is_err() && lock.try_read().is_ok());
    drop(reads);
    assert!(lock.try_write().is_ok());
}

#[test]
fn an_owned_downgrade_keeps_one_permit() {
    let lock = Arc::new(RwLock::new(0));
    let mut writes = lock.clone().try_write_owned().expect("it is free");
    *writes = 1;
    assert!(lock.clone().try_read_owned().is_err());
    let reads = writes.downgrade();
    let more = lock.clone().try_read_owned().expect("readers share");
    assert_eq!((*reads, *more), (1, 1));
    assert!(lock.clone().try_write_owned().is_err());
    drop(more);
    assert!(lock.try_write().is_err());
    drop(reads);
    let mut writes = probe(lock.clone().write_owned());
    assert_eq!(*writes.output(), 1);
    assert!(lock.try_write().is_ok(), "all permits are back");
}

#[test]
fn waits_for_locks_can_be_limited() {
    driven().block_on(async {
        const SECOND: Duration = Duration::from_secs(1);
        let (mutex, lock) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
        let semaphore = Arc::new(Semaphore::new(1));
        let begin = Instant::now();
        let held = (mutex.lock().await, lock.write().await, semaphore.acquire(1).await);
        assert_eq!(mutex.lock_timeout(SECOND).await.err(), Some(Elapsed));
        assert_eq!(mutex.clone().lock_owned_timeout(SECOND).await.err(), Some(Elapsed));
        assert_eq!(lock.read_timeout(SECOND).await.err(), Some(Elapsed));
        assert_eq!(lock.write_timeout(SECOND).await.err(), Some(Elapsed));
        assert_eq!(lock.clone().read_owned_timeout(SECOND).await.err(), Some(Elapsed));
        assert_eq!(lock.clone().write_owned_timeout(SECOND).await.err(), Some(Elapsed));
        assert_eq!(semaphore.acquire_timeout(1, SECOND).await.err(), Some(AcquireError::Elapsed));
        let owned = semaphore.clone().acquire_owned_timeout(1, SECOND).await;
        assert_eq!(owned.err(), Some(AcquireError::Elapsed));
        assert_eq!(Instant::now() - begin, 8 * SECOND);
        drop(held);
        assert!(mutex.clone().lock_owned_timeout(SECOND).await.is_ok());
        assert!(
            lock.read_timeout(SECOND).await.is_ok() && lock.write_timeout(SECOND).await.is_ok()
        );
        let reads = lock.clone().read_owned_timeout(SECOND).await.expect("it is free");
        assert!(lock.try_read().is_ok() && lock.try_write().is_err());
        drop(reads);
        let writes = lock.clone().write_owned_timeout(SECOND).await.expect("it is free");
        assert!(lock.try_read().is_err());
        drop(writes);
        assert!(lock.try_write().is_ok(), "a wait that has ended holds no permit");
        assert!(semaphore.acquire_timeout(1, SECOND).await.is_ok());
        assert_eq!(Instant::now() - begin, 8 * SECOND);
    });
}
