//! Tests that run on a scheduler with a test clock: the attribute [`test`](macro@test), and checks.

#[doc(hidden)]
pub use procession_runtime::testing::Test;
#[doc(inline)]
pub use procession_runtime::testing::assert_no_leaks;

/// Makes an async function a test, which runs on the test clock.
///
/// ```
/// # fn main() { waits_for_a_day() }
/// # /*
/// #[procession::testing::test]
/// # */
/// # #[procession::main(worker_threads = 1, test_clock)]
/// async fn waits_for_a_day() {
///     let start = procession::time::Instant::now();
///     procession::sleep(std::time::Duration::from_secs(24 * 60 * 60)).await;
///     assert_eq!((procession::time::Instant::now() - start).as_secs(), 24 * 60 * 60);
/// }
/// ```
///
/// The test has its own scheduler, with one worker and a [test
/// clock](crate::scheduler::Builder::test_clock). The clock jumps to the next deadline when nothing
/// can run, so the test takes no time, and it runs the same way each time. It fails if the function
/// panics or returns an `Err`. It also fails if a process panics and nobody sees it: no code takes
/// its result, and no monitor, link or supervisor learns of its end. Reports of failures are
/// captured with the output of the test. Processes that are left when the function returns are
/// terminated.
///
/// The attribute is not in the root of the crate, because `use procession::*` would make `#[test]`
/// ambiguous. With `use procession::testing::test`, `#[test]` is this attribute. On a function that
/// is not async, and without options, it acts like the attribute of the language.
///
/// # Options
/// Options have the same forms as the options of [`main`](macro@crate::main).
///
/// - `seed = n` sets the seed of the scheduler's random choices. The default is 0.
/// - `repeats = n` runs the test `n` times, with the seeds `seed`, `seed + 1` and so on. If `n` is
///   above 1, the order of processes is [shuffled](crate::scheduler::Builder::shuffled) in each
///   run. The default is 1.
/// - `time_limit = d` fails the test if it has not ended after the
///   [`Duration`](std::time::Duration) `d` by the scheduler's clock, and lists what the processes
///   wait for. The default is 30 days, and a minute on the real clock.
/// - `real_clock` runs the test without a test clock, and with as many workers as `main` has.
/// - Any method of [`Builder`](crate::scheduler::Builder) is called for each run, after the
///   settings above.
///
/// The first run that fails ends the test. The test prints its seed. To repeat this run alone, set
/// the environment variable `PROCESSION_SEED` to it:
///
/// ```text
/// PROCESSION_SEED=17 cargo test the_name_of_the_test
/// ```
///
/// The variable replaces the seed of every test that runs. A run repeats the course of events
/// exactly only with one worker and the test clock, and if the test depends on nothing else that
/// varies.
///
/// # Deadlocks
/// On the test clock, a test fails immediately if all its processes wait for one another, because
/// the clock jumps to the limit. The message lists each process, what it waits for and where, and
/// the process that has the lock or the answer that it waits for. The clock stands still while the
/// scheduler waits for a descriptor, a file or a job of [`spawn_blocking`](crate::spawn_blocking),
/// so a test that waits forever for a descriptor, a file or a job hangs. The clock does not stand
/// still for other threads: a test that waits for another thread needs `real_clock`.
///
/// ```
/// use std::time::Duration;
/// use procession::{Context, start};
///
/// # /*
/// #[procession::testing::test(repeats = 100, time_limit = Duration::from_secs(5))]
/// # */
/// # #[procession::main(worker_threads = 1, test_clock, shuffled)]
/// async fn every_order_is_fine() -> Result<(), procession::Exit> {
///     let mut adds = start(|mut cx: Context<u32>| async move {
///         let mut sum = 0;
///         while let Some(n) = cx.recv().await {
///             sum += n;
///         }
///         sum
///     });
///     let senders = [1, 2, 3].map(|n| {
///         let to = adds.address().clone();
///         procession::spawn(async move { to.send(n).is_ok() })
///     });
///     for sender in senders {
///         assert!(sender.await?);
///     }
///     adds.cancel();
///     assert_eq!(adds.await?, 6);
///     Ok(())
/// }
/// # fn main() -> Result<(), procession::Exit> { every_order_is_fine() }
/// ```
pub use procession_macros::test;
