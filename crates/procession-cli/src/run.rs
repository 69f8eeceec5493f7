//! The execution of the commands, and their failures.

use std::fmt;
use std::io::{self, Write};

use crate::flags::{LowArgs, UsageError};
use crate::node::{self, NodeError};
use crate::program::{self, RunError};
use crate::see::{self, SeeError};
use crate::tools::{self, ToolError};
use crate::trial::{self, TrialError};

pub(crate) fn run(args: LowArgs, out: &mut impl Write) -> Result<(), Failure> {
    match args {
        LowArgs::Help(text) => out.write_all(text.as_bytes())?,
        LowArgs::Version => writeln!(out, "procession {}", env!("CARGO_PKG_VERSION"))?,
        LowArgs::Run(args) => program::run(&args)?,
        LowArgs::Trial(args) => trial::run(&args, out)?,
        LowArgs::See(args) => see::run(&args, out)?,
        LowArgs::ClusterStatus(args, peer) => node::status(&args, &peer, out)?,
        LowArgs::Check(files) => tools::check(&files, out)?,
        LowArgs::Test(args) => tools::test(&args, out)?,
        LowArgs::Annotations => tools::annotations(out)?,
    }
    out.flush()?;
    Ok(())
}

/// The failure of the command.
#[derive(Debug)]
pub(crate) enum Failure {
    Usage(UsageError),
    Trial(TrialError),
    Run(RunError),
    See(SeeError),
    Node(NodeError),
    Tool(ToolError),
    Output(io::Error),
    /// The failure was reported already.
    Told,
}

impl Failure {
    /// Returns `true` if the reader of the output went away, which is not an error.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Trial(_)
            | Self::Run(_)
            | Self::See(_)
            | Self::Node(_)
            | Self::Tool(_)
            | Self::Output(_)
            | Self::Told => 1,
        }
    }
}

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Self {
        Self::Trial(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) => error.fmt(f),
            Self::Trial(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::See(error) => error.fmt(f),
            Self::Node(error) => error.fmt(f),
            Self::Tool(error) => error.fmt(f),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Self::Told => Ok(()),
        }
    }
}
