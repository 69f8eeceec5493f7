//! Tests that are written in Lua.

use std::time::Duration;

use procession::{Exit, Scheduler, SpawnOptions};

use crate::failure::Error;
use crate::output::Output;
use crate::program::Program;
use crate::repeatable::RepeatableRun;

/// The default limit of the time of a test, on the test clock.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The default number of steps that the processes of a test may perform together. An endless loop
/// takes some ten seconds for them.
const STEPS_MAX: u64 = 100_000;

/// The tests of a program: its global functions with names that begin with `test_`.
///
/// Each test is a process on a separate scheduler, with one worker and the [test
/// clock](procession::scheduler::Builder::test_clock). A sleep therefore takes no time, and the
/// same seed makes the same run, down to random numbers and the order of `pairs`. A test fails if
/// its function raises an error.
///
/// Sockets, files and the addresses that `tostring` returns for tables and functions belong to the
/// outside world. They are not repeatable.
///
/// ```
/// use procession_lua::{Program, Tests};
///
/// let program = Program::load("sleepy", "
///   function test_sleeps()
///     local start = time.now()
///     time.sleep(3600 * 1000)
///     assert(time.now() - start == 3600 * 1000)
///   end
///   function test_fails() error('broken') end
/// ")?;
/// let tests = Tests::find(&program)?.timeout(std::time::Duration::from_secs(7200));
/// assert_eq!(tests.names(), ["test_fails", "test_sleeps"]);
/// assert_eq!(tests.run("test_sleeps").failure, None);
/// let failure = tests.run("test_fails").failure.expect("it fails");
/// assert!(failure.contains("sleepy:7: broken"), "{failure}");
/// # Ok::<(), procession_lua::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tests {
    program: Program,
    names: Vec<String>,
    seed: u64,
    timeout: Duration,
    steps_max: u64,
}

/// The outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestReport {
    /// The reason why the test failed, with the traceback of an error. `None` if it passed.
    pub failure: Option<String>,
    /// Everything that its processes printed and logged, at most about 1 MiB.
    pub output: Vec<u8>,
}

impl Tests {
    /// Finds the tests of a program, in the order of their names.
    ///
    /// # Errors
    /// Returns an [`Error`] if the program fails before one of its functions is called.
    pub fn find(program: &Program) -> Result<Self, Error> {
        let names = names(program).map_err(|cause| Error::Start {
            program: program.inner().name.clone(),
            function: "the tests".to_owned(),
            cause: cause.to_string(),
        })?;
        let program = program.clone();
        Ok(Self { program, names, seed: 0, timeout: TIMEOUT, steps_max: STEPS_MAX })
    }

    /// Returns the names of the tests.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Sets the seed of the order of processes and of random numbers. Default: 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the limit of the time of each test, on the test clock. Default: 60 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the number of steps that the processes of a test may perform together. A test that
    /// needs more fails, as an endless loop does. Default: 100 000.
    #[must_use]
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.steps_max = steps;
        self
    }

    /// Runs a test.
    ///
    /// # Blocking
    /// Blocks the thread until the test has ended.
    ///
    /// # Panics
    /// In a process, which cannot run another scheduler.
    pub fn run(&self, name: &str) -> TestReport {
        let output = Output::captured();
        let run = RepeatableRun::new(self.seed, self.steps_max);
        let program = self.program.clone().output(output.clone(), output.clone()).repeatable(run);
        let failure = self.failure(&program, name);
        TestReport { failure, output: output.take_captured() }
    }

    fn failure(&self, program: &Program, name: &str) -> Option<String> {
        let built = Scheduler::builder()
            .worker_threads(1)
            .test_clock()
            .seed(self.seed)
            .on_exit(|_| {})
            .build();
        let scheduler = match built {
            Ok(scheduler) => scheduler,
            Err(error) => return Some(format!("cannot start a scheduler: {error}")),
        };
        outcome(&scheduler, program, name, self.timeout)
    }

    #[cfg(feature = "sim")]
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    #[cfg(feature = "sim")]
    pub(crate) fn steps_max(&self) -> u64 {
        self.steps_max
    }

    #[cfg(feature = "sim")]
    pub(crate) fn limit(&self) -> Duration {
        self.timeout
    }
}

/// Runs a test on a scheduler, and shuts that down. Returns the failure of the test.
pub(crate) fn outcome(
    scheduler: &Scheduler,
    program: &Program,
    name: &str,
    timeout: Duration,
) -> Option<String> {
    scheduler.block_on(async {
        let child = match program.spawn_with(SpawnOptions::new().on(scheduler), name, []) {
            Ok(child) => child,
            Err(error) => return Some(error.to_string()),
        };
        let ended = procession::timeout(timeout, child).await;
        // Ignored: the processes that are left are no failure of the test.
        drop(scheduler.shutdown(Duration::ZERO).await);
        match ended {
            Ok(Ok(_)) => None,
            Ok(Err(Exit::Failed(text))) => Some(text.to_string()),
            Ok(Err(exit)) => Some(exit.to_string()),
            Err(_) => Some(format!("it did not end within {timeout:?}")),
        }
    })
}

fn names(program: &Program) -> mlua::Result<Vec<String>> {
    let lua = program.open()?;
    let mut names = Vec::new();
    for pair in lua.globals().pairs::<mlua::Value, mlua::Value>() {
        if let (mlua::Value::String(name), mlua::Value::Function(_)) = pair?
            && name.as_bytes().starts_with(b"test_")
        {
            names.push(name.to_string_lossy());
        }
    }
    names.sort();
    Ok(names)
}
