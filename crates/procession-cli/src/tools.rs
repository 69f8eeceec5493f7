//! The tools for programs in Lua: `check`, `test` and `annotations`.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession_lua::{PermissionError, Program, TestReport, Tests};

use crate::certificates::{Certificates, CertificatesError};
use crate::failure::Failure;
use crate::format::plain_lines;
use crate::permissions::Allowed;

/// The end of the names of the files that `test` finds in a folder.
const TEST_FILES: &str = "_test.lua";

/// The number of seeds with which a test is simulated, unless an option says otherwise.
pub(crate) const SEEDS: u64 = 100;

#[derive(Debug)]
pub(crate) struct TestArgs {
    pub(crate) paths: Vec<OsString>,
    pub(crate) seed: u64,
    pub(crate) timeout: Duration,
    /// The number of seeds of a simulation, instead of one run on the test clock.
    pub(crate) simulated: Option<u64>,
    /// Only tests of which the name contains this text are run, or is this text.
    pub(crate) filter: String,
    pub(crate) is_exact: bool,
    /// The options with their values, for a line that runs a test again.
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "only simulations are replayed"))]
    pub(crate) options: Vec<(&'static str, Option<OsString>)>,
    pub(crate) allowed: Allowed,
    pub(crate) certificates: Certificates,
}

impl Default for TestArgs {
    fn default() -> Self {
        let timeout = Duration::from_secs(60);
        Self {
            paths: Vec::new(),
            seed: 0,
            timeout,
            simulated: None,
            filter: String::new(),
            is_exact: false,
            options: Vec::new(),
            allowed: Allowed::default(),
            certificates: Certificates::default(),
        }
    }
}

/// The failure of a tool.
#[derive(Debug)]
pub(crate) enum ToolError {
    Read(PathBuf, io::Error),
    /// Holds the number of mistakes.
    Mistakes(usize),
    /// Holds the number of tests that failed, of how many, and the seed unless they had several.
    Failed(usize, usize, Option<u64>),
    #[cfg(not(feature = "sim"))]
    NoSimulation,
    NoTests,
    Permission(PermissionError),
    Certificates(CertificatesError),
}

impl Error for ToolError {}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Mistakes(1) => f.write_str("1 mistake found"),
            Self::Mistakes(count) => write!(f, "{count} mistakes found"),
            Self::Failed(failed, of, None) => write!(f, "{failed} of {of} tests failed"),
            Self::Failed(failed, of, Some(seed)) => {
                write!(f, "{failed} of {of} tests failed with the seed {seed}")
            }
            #[cfg(not(feature = "sim"))]
            Self::NoSimulation => {
                f.write_str("this command was built without the feature sim, which --sim needs")
            }
            Self::Permission(error) => error.fmt(f),
            Self::Certificates(error) => error.fmt(f),
            Self::NoTests => f.write_str("there are no tests: see test --help"),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ToolError> {
    fs::read(path).map_err(|error| ToolError::Read(path.to_owned(), error))
}

/// Prints the mistakes in programs, in all files, even if one file is not valid Lua.
pub(crate) fn check(files: &[OsString], out: &mut impl Write) -> Result<(), Failure> {
    let mut mistakes = 0;
    for file in files {
        let file = Path::new(file);
        match procession_lua::check(file.display().to_string(), read(file)?) {
            Ok(findings) => {
                mistakes += findings.len();
                findings
                    .iter()
                    .try_for_each(|finding| writeln!(out, "{}", plain_lines(finding)))?;
            }
            Err(error) => {
                mistakes += 1;
                writeln!(out, "{}", plain_lines(&error))?;
            }
        }
    }
    out.flush()?;
    match mistakes {
        0 => Ok(()),
        count => Err(ToolError::Mistakes(count).into()),
    }
}

/// Runs tests, and prints a line for each. If a test fails, prints its output and the reason.
pub(crate) fn test(args: &TestArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        find_tests(Path::new(path), true, &mut files)?;
    }
    let permissions = args.allowed.permissions().map_err(ToolError::Permission)?;
    let tls = args.certificates.tls().map_err(ToolError::Certificates)?;
    let (mut failed, mut count) = (0, 0);
    for file in files {
        let name = file.display().to_string();
        let found = Program::read(&file)
            .and_then(|it| Tests::find(&it.permissions(permissions.clone()).tls(tls.clone())));
        let tests = match found {
            Ok(tests) => tests.seed(args.seed).timeout(args.timeout),
            Err(error) => {
                (failed, count) = (failed + 1, count + 1);
                writeln!(out, "{}", plain_lines(&error))?;
                continue;
            }
        };
        for test in tests.names().iter().filter(|test| args.includes(test)) {
            let report = match args.simulated {
                None => tests.run(test),
                Some(seeds) => simulate(args, seeds, &tests, &file, test)?,
            };
            count += 1;
            failed += usize::from(report.failure.is_some());
            print(out, &name, test, &report)?;
        }
    }
    out.flush()?;
    match (failed, count) {
        (_, 0) => Err(ToolError::NoTests.into()),
        (0, _) => Ok(writeln!(out, "{count} passed")?),
        _ => {
            let seed = args.simulated.is_none().then_some(args.seed);
            Err(ToolError::Failed(failed, count, seed).into())
        }
    }
}

impl TestArgs {
    fn includes(&self, test: &str) -> bool {
        if self.is_exact { test == self.filter } else { test.contains(&self.filter) }
    }
}

/// Runs a test in a simulation.
#[cfg(feature = "sim")]
fn simulate(
    args: &TestArgs,
    seeds: u64,
    tests: &Tests,
    file: &Path,
    test: &str,
) -> Result<TestReport, ToolError> {
    let command = replay(&args.options, test, file);
    let end = args.seed.saturating_add(seeds);
    Ok(tests.simulate(test, end - seeds..end, &command))
}

/// Returns a command line that runs exactly one test, with the same options. The tape of the replay
/// takes the place of the seeds.
#[cfg(any(feature = "sim", test))]
fn replay(options: &[(&'static str, Option<OsString>)], test: &str, file: &Path) -> String {
    let mut line = "procession test".to_owned();
    let is_kept = |long: &&str| !["seed", "seeds", "filter", "exact"].contains(long);
    for (long, value) in options.iter().filter(|(long, _)| is_kept(long)) {
        line += " --";
        line += long;
        if let Some(value) = value {
            line.push('=');
            line += &quoted(value.as_encoded_bytes());
        }
    }
    let (test, file) = (quoted(test.as_bytes()), quoted(file.as_os_str().as_encoded_bytes()));
    line + &format!(" --filter={test} --exact -- {file}")
}

/// Returns a word as a shell takes it.
#[cfg(any(feature = "sim", test))]
fn quoted(word: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(byte);
    match str::from_utf8(word) {
        Ok(word) if !word.is_empty() && word.bytes().all(|byte| is_plain(&byte)) => word.to_owned(),
        Ok(word) if !word.contains(char::is_control) => {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
        // Shells know these escapes.
        _ => format!("$'{}'", word.escape_ascii()),
    }
}

#[cfg(not(feature = "sim"))]
fn simulate(_: &TestArgs, _: u64, _: &Tests, _: &Path, _: &str) -> Result<TestReport, ToolError> {
    Err(ToolError::NoSimulation)
}

fn print(out: &mut impl Write, file: &str, test: &str, report: &TestReport) -> io::Result<()> {
    let name = plain_lines(&format_args!("{file}: {test}"));
    let Some(failure) = &report.failure else { return writeln!(out, "{name} ... ok") };
    writeln!(out, "{name} ... FAILED")?;
    out.write_all(&report.output)?;
    writeln!(out, "{}", plain_lines(failure))
}

/// Finds the files of tests at a path: the file itself, or the files in a folder and the folders in
/// it.
fn find_tests(path: &Path, is_named: bool, found: &mut Vec<PathBuf>) -> Result<(), ToolError> {
    let failed = |error| ToolError::Read(path.to_owned(), error);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        let is_test = path.as_os_str().as_encoded_bytes().ends_with(TEST_FILES.as_bytes());
        if is_named || is_test {
            found.push(path.to_owned());
        }
        return Ok(());
    }
    let entries: io::Result<Vec<_>> =
        fs::read_dir(path).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut entries = entries.map_err(failed)?;
    entries.sort();
    // A link to a folder may lead back, so it is not followed.
    entries.retain(|entry| !(entry.is_symlink() && entry.is_dir()));
    entries.iter().try_for_each(|entry| find_tests(entry, false, found))
}

pub(crate) fn annotations(out: &mut impl Write) -> Result<(), Failure> {
    Ok(out.write_all(procession_lua::annotations().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::Path;

    use super::{TestArgs, replay};

    #[test]
    fn a_replay_has_the_same_options_and_one_test() {
        let broken = OsString::from_vec(b"a\xff'".to_vec());
        let options = [
            ("sim", None),
            ("seeds", Some("20".into())),
            ("filter", Some("deposit".into())),
            ("timeout", Some("7".into())),
            ("allow-net", Some("[::1]:80".into())),
            ("allow-read", Some("it's here".into())),
            ("allow-listen", None),
            ("tls-roots", Some(broken)),
        ];
        let line = replay(&options, "test_deposit", Path::new("-a_test.lua"));
        let expected = r"procession test --sim --timeout=7 --allow-net='[::1]:80' --allow-read='it'\''s here' --allow-listen --tls-roots=$'a\xff\'' --filter=test_deposit --exact -- -a_test.lua";
        assert_eq!(line, expected);
        let mut args = TestArgs { filter: "test_deposit".to_owned(), ..TestArgs::default() };
        assert!(args.includes("test_deposit") && args.includes("test_deposits"));
        args.is_exact = true;
        assert!(args.includes("test_deposit") && !args.includes("test_deposits"));
    }
}
