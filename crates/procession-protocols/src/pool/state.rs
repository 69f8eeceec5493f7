//! The state of a pool: its workers, its queue, and the submitters that wait for a place.
//!
//! # Pool protocol
//!
//! ## Problem
//! - A submitter finds all workers busy and queues its job. The last busy worker has just checked
//!   the queue, and becomes idle. The job waits although a worker is free.
//! - The keep-alive of a worker ends while a submitter hands it a job. The job is lost with the
//!   worker.
//! - Two submitters see room for one more worker, and both start one. The pool exceeds its
//!   capacity.
//! - A submitter finds the pool open, and enters its job after `close` has returned.
//! - A counter of idle workers is changed apart from their list. Once they disagree, they disagree
//!   forever.
//!
//! ## States
//! One lock guards everything, and every step is one critical section.
//!
//! A *live* worker is *idle* or *busy*. The idle workers are on a stack, and the number of busy
//! workers is the difference, so the counts cannot disagree. A worker stops being live at the
//! moment at which it is decided that it leaves. An idle worker *parks* or *rests*, depending on
//! the kind of the pool: a parked worker waits in its seat for an order, a resting worker has no
//! process and is only an entry of the stack.
//!
//! A queued job is *ready*, or *held* behind an earlier job of its key. While a key has jobs that
//! have not ended, it has a *turn*. One job has the turn: the job of the key that is ready or runs.
//! Ready jobs are in levels, one for each priority.
//!
//! A job is in the queue, in the order or the launch of one worker, or running. A *place* is what a
//! job needs to be taken. Each busy worker, queued job and reservation uses one, and there are as
//! many as the capacity and the limit of the queue together. The *generation* counts how often the
//! pool was closed. A reservation of an earlier generation is void.
//!
//! ## Steps
//! Submitter:
//! - `Enter`, if there is a place and no submitter waits: `Claim` the worker that became idle last
//!   and write the job into its order. If no worker is idle and fewer are live than the capacity,
//!   start one with the job. Otherwise queue the job. If the key of the job has a turn, hold the
//!   job behind it instead, whether a worker is idle or not.
//! - `Wait` in the list, if `Enter` is not possible.
//!
//! Worker:
//! - `Finish` a job. If more workers are live than may be, leave. Otherwise take the next job from
//!   the queue. If the queue is empty, leave a closed pool, and `Park` or `Rest` in an open pool.
//!   Both push the worker to the stack of idle workers.
//! - `Expire` after the keep-alive, if it is parked. A worker that is still idle leaves; any other
//!   finds an order.
//! - `Die`, if its process was killed. Queued jobs get other workers in its place.
//!
//! The pool, where workers rest:
//! - `Claim` writes no order. The worker is launched with its job, as a new one is.
//! - `Reap` from a timer: the workers leave that have rested until now.
//! - `Retry` from a timer, if a job was queued because no worker could be started for it.
//! - `Employ` after a `Finish` or `Withdraw`, which start no workers, if one may be started for a
//!   job that is ready.
//!
//! Each end of a job that has the turn of its key passes the turn to the next job of the key, which
//! is ready then, in the place of its ticket.
//!
//! Handle: `Withdraw` a job that is still queued, by its ticket. `Lend`, if a job of a pool of
//! processes awaits the handle. If the awaited job is queued, the place of the job that waits, the
//! *lender*, is lent to the awaited job, or to the job that has the turn of its key. One more
//! worker may be live for each place that is lent, and it takes a job for which a place is lent,
//! not the next one of the queue.
//!
//! A loan ends when the lender ends, or when the job in the lent place, the *borrower*, ends. Until
//! then the lender lends to no other job, even if it has dropped the handle. If a borrower that is
//! a lender itself ends, its borrower becomes the borrower of its lender.
//!
//! The pools of one family, the members of a pool, lend each other places: a job of one member that
//! awaits a queued job of another member is a *guest* there. A guest lends as a job does, to one
//! job of each member at a time.
//!
//! Waiter for a quiescent pool: `Watch`, which enlists it unless the pool is quiescent already.
//! `Settle` takes it out of the list and wakes it, and its next `Watch` does not find it there.
//!
//! Each step ends with `Settle`, as far as the step can cause it. Queued jobs go to parked workers,
//! and free places to waiters, in their order. While more workers are live than may be, or the pool
//! is closed, idle workers leave from the bottom of the stack.
//!
//! ## Why it works
//! - `Finish` checks the queue and pushes the worker in one step. `Enter` checks the stack and
//!   queues the job in one step. Whichever is second sees the first.
//! - `Claim` and `Expire` both take the worker off the stack, so only one of the two does.
//! - The capacity is compared, and the worker is started and counted, in one step.
//! - `close` is one step. A job that entered before it is queued or runs; a job that enters after
//!   it finds the pool closed.
//! - A withdrawn job is out of the queue, so no worker runs it. A job that a worker has taken is
//!   not in the queue, so it cannot be withdrawn.
//! - A key has a turn exactly while one of its jobs is ready or runs, because the end of a job
//!   passes or removes the turn in the step that counts the end. So a held job becomes ready.
//! - A job is ready in the queue only while a worker is live, or busy if workers rest. A worker
//!   parks, rests or leaves only if no job is ready or another worker stays. So every queued job is
//!   run, even if the system starts no more workers.
//! - While a job is ready, the pool has as many workers as its capacity allows, or one was refused.
//!   Each step that could leave it otherwise starts workers by `employ`: a worker that is killed
//!   frees its place, a job that no worker ran passes the turn of its key, and the capacity rises.
//!   A step that cannot start workers has its caller `Employ` them. For example, the end of a job
//!   passes the turn of its key to a job for which a place is lent, and the worker takes an older
//!   job, or leaves because the place in which it ran was lent.
//! - A job that awaits a queued job of its pool is no reason why that job waits: the loan lets it
//!   begin, whatever the other workers wait for. Loans form chains as deep as jobs wait for jobs,
//!   and the last job of a chain works. If the awaited job is held by its key, the loan lets the
//!   first job of the key begin, and then each later one.
//! - A lender and its borrower both work if the lender continues before the borrower has ended.
//!   They are two at most, because the lender has one borrower at a time.
//! - A job that could only wait forever for a place is refused. If all other jobs wait already, for
//!   a place or for a job of the pool, `Wait` refuses its caller. If the last job to wait awaits a
//!   job, `Lend` refuses a job that waits for a place.
//! - A waiter that was served is known by its missing entry. The pool may be open again, or have
//!   jobs again, by the time the waiter looks.
//!
//! ## Details that look wrong and are not
//! Workers are started under the lock. Otherwise a job could be queued behind a start that the
//! system then refuses. For workers that are processes, only the part that can be refused happens
//! under the lock: the reservation of a process. The process starts after the lock is free, because
//! a start runs code of the user, for example of a subscriber that makes a span.
//!
//! A resting worker that is started again may not have ended its last process yet. From its push
//! on, that process touches nothing that belongs to the worker.
//!
//! A waiter that was served has its place already. The place counts as reserved until the waiter
//! uses it, so a newcomer cannot take it.
//!
//! ## Allowed
//! - After the capacity was lowered, more workers may be busy than it allows, until they finish.
//! - A worker that leaves may still run its hook while another one starts.
//! - A worker that is started again may count twice for a moment among the processes of its
//!   scheduler. At the process limit, a job can be refused that would have had room a moment later.
//! - If two jobs are launched at the same time, the job with the later ticket may begin first.
//! - A member does not learn that a job of another member has ended. So a guest lends its place
//!   until its borrower has ended and the handles that it has polled are dropped, although the next
//!   job of the guest's worker works beside the borrower then. And the jobs that wait for another
//!   member do not count as blocked, so a submit that can only wait forever for places of two
//!   members is not refused.
//! - A waiter is counted as blocked for the job that began the wait. If that job passes its wait on
//!   to another job and ends, the other job is not known to wait.
//! - A job that awaits several others, or that polls a handle and continues, works at the same time
//!   as the job in the place that it lent, until one of the two ends. It counts as blocked until
//!   the awaited jobs have ended or it has dropped their handles, so another job may be refused
//!   that would have had a place later.
//! - Jobs of processes that await one another in a circle wait forever. Only a submit is refused.
//! - The allocation of the first job of a process is freed with the process, after the queued jobs
//!   that the process also ran.
//!
//! ## Rejected
//! - Refusing to await a queued job of the own pool if no other job could go on. The caller has the
//!   handle already, and can do nothing useful with the error. Thread pools run such a job on the
//!   thread that waits, so async pools would be the only pools in which nested jobs fail.
//! - Ending a loan when the handle is dropped. If a job drops the handles of 200 jobs, one after
//!   another, all 200 then run at the same time as the job, in a pool for one.
//! - Refusing to await a running job if no other job could go on. The job may await it with a
//!   timeout. So the submit is refused, which is also what happens if the submit is second.
//! - Lending a place to the next job of the queue. If each of 100,000 jobs awaits another job that
//!   it has submitted, all 100,000 begin before the first awaited job does, so the capacity bounds
//!   nothing.
//! - Polling the awaited job inside the job that awaits it. It would be dropped with that job, but
//!   a job runs on when its handle is dropped.
//! - One atomic word of packed counts. The queue, the stack and the wait list then have separate
//!   locks, and every pair of locks is a race that needs an argument. A lock is taken twice for
//!   each job and held for some ten nanoseconds.
//! - Waking idle workers in the order in which they became idle, as condition variables do. A
//!   trickle of jobs then keeps all workers alive.
//! - Idle async workers that wait as processes, each with a timer for its keep-alive. Waking one
//!   touches twice as many cold cache lines as starting another in memory that was just freed.
//!   `pool` on one processor: 1690 ns per job, against 690 ns now; on two processors: 1810 ns of
//!   CPU time, against 1320 ns.
//! - Starting the processes of resting workers under the lock: `pool` takes 1.3 times as long.
//! - A seat on the heap for each resting worker. With 200,000 workers, `pool_large_many` had a peak
//!   of 109 MiB, against 87 MiB now, in the same time.
//! - Spinning longer for the lock than std does: 2 % of `pool_many`.
//! - Backing off from the lock (`lock_with_backoff`) where workers are processes: `pool_many` takes
//!   1.3 times as long, `pool_co` 1.1 times. Threads contend more often and do back off:
//!   `pool_threads` takes 0.7 of the time.
//! - Boxing a job under the lock, once it is certain to be taken. `pool_threads` is then as slow as
//!   without backing off, and `pool` takes 1.05 times as long. Boxing earlier costs a refused
//!   submitter one allocation. The jobs of scopes, which borrow, are boxed under the lock.
//! - A box for the future, apart from the box of its process. One more cache line is cold when the
//!   job continues: `pool` takes 1.4 times as long, `pool_many` 1.1 times. A job is boxed with room
//!   for its worker instead (`AsyncJob` in `async_pool.rs`).
//! - Looking for an order four times, and yielding in between, before a thread parks. On one CPU,
//!   where a thread that is woken for an empty job interrupts its submitter, `pool_threads` takes
//!   0.65 of the time. But on two CPUs, while four other threads compute, a tenth of the jobs begin
//!   4 ms late instead of 15 us, because a thread that yields waits for the time slices of the
//!   other threads, and a thread that is woken does not.
//! - Counting the tombstones of withdrawn jobs in the queue: they use up places. Here a tombstone
//!   only keeps the order of the tickets, and is not counted.
//!
//! ## Checked by
//! `models::*`: claim against park, rest, expire, reap and close; submit against resize; withdraw
//! against run and help; hold against the end of a turn; die against finish; watch against reopen;
//! lend against finish and against the end of a loan. `lane_tests` plays jobs with priorities and
//! keys at random. `tests/it/pool/model.rs` compares the whole interface of every kind of pool with
//! a sequential model, and `nested.rs` there has the loans.

pub mod busy;
pub mod core;
pub mod idle;
pub mod lane;
mod loans;
pub mod mutation;
pub mod outcome;
mod places;
mod queue;
mod submit;
pub mod synced;
mod work;

#[cfg(all(test, not(procession_loom)))]
mod lane_tests;
#[cfg(all(test, procession_loom))]
mod models;
#[cfg(all(test, not(procession_loom)))]
mod tests;
