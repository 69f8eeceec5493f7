//! The execution of the commands.

use std::io::Write;

use crate::failure::Failure;
use crate::flags::LowArgs;
use crate::node::status;
use crate::{program, see, tools};

pub(crate) fn run(args: LowArgs, out: &mut impl Write) -> Result<(), Failure> {
    match args {
        LowArgs::Help(text) => out.write_all(text.as_bytes())?,
        LowArgs::Version => writeln!(out, "procession {}", env!("CARGO_PKG_VERSION"))?,
        LowArgs::Run(args) => program::run(&args)?,
        LowArgs::Trial(args) => procession_trial::run(&args, out)?,
        LowArgs::See(args) => see::run(&args, out)?,
        LowArgs::ClusterStatus(args, peer) => status::status(&args, &peer, out)?,
        LowArgs::Check(files) => tools::check(&files, out)?,
        LowArgs::Test(args) => tools::test(&args, out)?,
        LowArgs::Annotations => tools::annotations(out)?,
    }
    out.flush()?;
    Ok(())
}
