//! The state of a pool: who works, who is idle, what is queued, who waits to submit.
//!
//! # Pool protocol
//!
//! ## Problem
//! A submitter finds all workers busy and queues its job; the last busy worker has just looked into the queue and becomes idle: the job
//! waits for nothing. A worker's keep-alive is over while a submitter hands it a job: the job goes with the worker. Two submitters see
//! room for one more worker, and both start one: the pool exceeds its capacity. A submitter looks, finds the pool open, and
//! submits after `close` has returned. Counters of idle workers that are changed apart from the workers' list say so for ever.
//!
//! ## States
//! Everything is under one lock, and every step is one critical section. *Live* workers are *idle*, which are on the stack, or *busy*,
//! which is the difference, so that it cannot disagree. A worker that leaves is not live from the moment of the decision. A job is in
//! the queue, or in the order or the launch of one worker, or run. A *place* is what a job needs to be taken: busy workers, queued jobs and
//! reservations use one each, and there are as many as the capacity and the queue's limit together. The *generation* counts how often
//! the pool was closed; a reservation of an earlier one is void.
//!
//! ## Steps
//! Submitter: `Enter`, if there is a place and nobody waits for one: `Claim` the worker that became idle last and write the job
//! into its order, or start a worker with it while fewer live than the capacity, or queue it. Else it may `Wait` in the list.
//! Worker: `Finish` a job: take the next from the queue; or leave, if there are too many or the pool is closed; or `Park`, by a push to the idle.
//! Parked, it waits for an order. Its keep-alive over, it `Expire`s: if it is still idle, it leaves; else its order has been written.
//! Or the worker `Rest`s: pushed to the idle, it ends, and is no more than its place on the stack. `Claim` writes no order then, but has it launched
//! with its job, as a new worker is; a timer of the pool `Reap`s those whose keep-alive is over.
//! Handle: `Withdraw` a job that is still queued, by its ticket.
//! If no worker could be started for a job that is queued, and its pool's workers rest, somebody `Retries` after a while.
//! After each step `Settle`: queued jobs go to parked workers, free places to those who wait, in their order, and idle workers leave from the bottom of
//! the stack while too many are live or the pool is closed.
//!
//! ## Why it works
//! `Finish` looks into the queue and parks in one step, and `Enter` looks for idle workers and queues in one: whichever comes second
//! sees the first. `Claim` and `Expire` both take the worker off the stack, so one of them does. The capacity is compared, the worker started, or allowed to, and counted in
//! one step. `close` is one step: what entered before it is queued or runs, what comes after sees it closed. A withdrawn job is out of the
//! queue, so nobody runs it, and one that a worker has taken is not there to be withdrawn.
//! A job is queued only while a worker is live, or, where they rest, busy; and a worker parks, rests or leaves only when nothing is queued, or another
//! stays: so what is queued is run, also if the system starts no more workers.
//!
//! ## Details that look wrong and are not
//! Workers are started under the lock: else a job could be queued behind a start that the system then refuses. Of those that rest only what can be
//! refused is done there, the reservation of a process; it is started, with its job, when the lock is free again.
//! While one that rests is started again, it may not have come to its end: from its push on it touches nothing that is the worker's.
//! Who is served has its place already, and it is counted as reserved until he uses it: a newcomer cannot take it from him.
//!
//! ## Allowed
//! After the capacity was lowered, more workers may be busy than it says, until they finish. A worker that leaves may
//! still run its hook while another starts. A worker that is started again may count twice, for a moment, among the processes of its scheduler; at
//! its limit, a job can be refused that would have had room a moment later. Of two jobs that are launched at once, the later ticket may begin first.
//! Who waits for a place does so for the job that began to: if that hands its wait to another job, and ends, the other is not known to wait.
//! What the first job of a process was made of is freed with the process, after the jobs that it found queued.
//!
//! ## Rejected
//! - One atomic word of packed counts: the queue, the stack and the list of those who wait then have locks of their own, and each pair of them is
//!   a race to be argued. A lock is taken twice for each job, and held for some ten nanoseconds.
//! - Waking idle workers in the order in which they came, as condition variables do: a trickle of jobs keeps all of them alive.
//! - Async workers that wait as processes while they are idle, each with a timer for its keep-alive: to wake one touches twice as many cold cache
//!   lines as to start another in memory that was just freed (`pool` on one processor: 1690 ns for each job, now 690; on two, 1810 and 1320 ns of CPU).
//! - To start the processes of workers that rest under the lock: `pool` takes 1.3 times as long.
//! - A seat on the heap for each worker that rests, too: with 200 000 workers `pool_large_many` had a peak of 109 MiB, and has one of 87, in as much time.
//! - Spinning longer for the lock than `std` does: 2 % of `pool_many`. Backing off (`lock_with_backoff`) where workers are processes:
//!   `pool_many` takes 1.3 times as long, `pool_co` 1.1. Threads, which come more often, back off: `pool_threads` takes 0.7 of the time.
//! - To box a job under the lock, when it is certain to be taken (those of scopes are, which borrow): `pool_threads` is as slow as without
//!   backing off, `pool` takes 1.05 times as long. Boxing before costs who is refused an allocation.
//! - A box for the future beside that of the process that runs it: `pool` takes 1.4 times as long, `pool_many` 1.1, since one more line is in
//!   no cache when the job goes on. A job is boxed with room for its worker instead (`processes.rs`, `AsyncJob`).
//! - To look for an order four times before a thread parks, and let others run in between: on one CPU, where the thread that is woken for an
//!   empty job interrupts its submitter, `pool_threads` takes 0.65 of the time; but beside four threads that compute, on two, a tenth of the
//!   jobs begin 4 ms late and not 15 us: who gives way waits for the others' slices, who is woken does not.
//! - Tombstones in the queue for jobs that were cancelled: they use up places. Here one is left only to keep the order, and is not counted.
//!
//! ## Checked by
//! `models::*`: claim against park, rest, expire, reap, close; submit against resize; withdraw against run and help. And `tests/it/pool/model.rs`:
//! the whole interface of every kind of pool against a sequential model.

pub(crate) mod busy;
mod control;
pub(crate) mod core;
pub(crate) mod idle;
mod mutation;
pub(crate) mod outcome;
pub(crate) mod picture;
mod places;
mod queue;
pub(crate) mod seat;
mod submit;
pub(crate) mod synced;
pub(crate) mod wakes;
mod withdraw;
mod work;

#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
