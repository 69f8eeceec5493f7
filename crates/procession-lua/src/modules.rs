//! The modules of a program: the files that it requires, and the modules that its host adds.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::check::required;
use crate::failure::Error;
use crate::permissions::{Beneath, Folder};
use crate::source::{compile, load_error, lua_text};
use crate::version::Version;

/// The modules of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modules {
    /// The compiled modules, by their names.
    pub(crate) codes: BTreeMap<String, Vec<u8>>,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
}

impl Modules {
    /// Reads the modules that a source requires by a literal name, and the modules that these
    /// require, from the files below a folder. A module without a file is left out: the host may
    /// add it, and if not, `require` fails. Returns the version of the source together with its
    /// modules.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or is not valid Lua.
    pub(crate) fn read(folder: &Path, source: &[u8]) -> Result<(Self, Version), Error> {
        let mut modules = Self::default();
        let mut version = Version::of(source);
        let mut wanted = required(source);
        if wanted.is_empty() {
            return Ok((modules, version));
        }
        let failed = |file: &Path, cause: io::Error| Error::Read {
            program: file.display().to_string(),
            cause,
        };
        let opened = Folder::open(folder).map_err(|cause| failed(folder, cause))?;
        while let Some(name) = wanted.pop() {
            let Some(below) = file_of(&name) else { continue };
            let file = folder.join(&below);
            if modules.files.contains(&file) {
                continue;
            }
            let Some(source) = read(&opened, &below).map_err(|cause| failed(&file, cause))? else {
                continue;
            };
            let shown = file.display().to_string();
            let code = compile(&format!("@{shown}"), lua_text(&source), false);
            let code = code.map_err(|error| load_error(&shown, &error))?;
            wanted.extend(required(&source));
            version = version.with(name.as_bytes()).with(&source);
            modules.codes.insert(name, code);
            modules.files.push(file);
        }
        Ok((modules, version))
    }
}

/// Returns the path of a module: the dots of its name separate folders. Returns `None` for a text
/// that is no name of a module.
fn file_of(name: &str) -> Option<PathBuf> {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    name.split('.').all(is_part).then(|| format!("{}.lua", name.replace('.', "/")).into())
}

/// Reads a file below a folder. Returns `None` if there is none.
fn read(folder: &Folder, below: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match folder.open_file(below)? {
        Beneath::File(file) => file,
        Beneath::Nothing => return Ok(None),
        Beneath::Outside => {
            return Err(io::Error::other("it leads out of the folder of the program"));
        }
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut source = Vec::new();
    file.read_to_end(&mut source)?;
    Ok(Some(source))
}
