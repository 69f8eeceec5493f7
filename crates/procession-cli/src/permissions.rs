//! The permissions of programs in Lua, from the options of the command.

use std::ffi::OsString;

use procession_lua::{PermissionError, Permissions};

/// The options of a command line. Nothing but their text was looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed(Vec<(Kind, Option<OsString>)>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Net,
    Listen,
    Read,
    Write,
    Env,
    Exits,
    All,
}

impl Allowed {
    /// Adds an option. Without a value, it permits everything of its kind.
    pub(crate) fn add(&mut self, kind: Kind, value: Option<OsString>) {
        self.0.push((kind, value));
    }

    /// Opens the folders that the options name.
    pub(crate) fn permissions(&self) -> Result<Permissions, PermissionError> {
        self.0.iter().try_fold(Permissions::none(), |given, (kind, value)| {
            Ok(match (kind, value) {
                (Kind::Net, None) => given.connect(),
                (Kind::Net, Some(address)) => given.connect_to(&address.to_string_lossy())?,
                (Kind::Listen, _) => given.listen(),
                (Kind::Read, None) => given.read(),
                (Kind::Read, Some(path)) => given.read_below(path)?,
                (Kind::Write, None) => given.write(),
                (Kind::Write, Some(path)) => given.write_below(path)?,
                (Kind::Env, None) => given.env(),
                (Kind::Env, Some(name)) => given.env_var(name),
                (Kind::Exits, _) => given.exits(),
                (Kind::All, _) => Permissions::all(),
            })
        })
    }
}
