//! Finds mistakes in programs without running them.

mod lexer;
mod parser;

use std::collections::HashSet;
use std::fmt;

use self::lexer::Kind;
use self::parser::{Act, Arguments, Use, Uses};
use crate::failure::{Error, label};
use crate::reference::{ENTRY, HOST_TABLES, LUA, Signature, signatures};
use crate::source::{compile, load_error, lua_text};

/// A mistake that [`check`] found. Its `Display` is the place and the message, as compilers print
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the program.
    pub program: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in bytes, from 1.
    pub column: u32,
    /// The message, without characters that control a terminal.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = label(&self.program);
        write!(f, "{program}:{}:{}: {}", self.line, self.column, self.message)
    }
}

/// Checks the source of a program without running it, and returns its mistakes in the order of the
/// source.
///
/// These are mistakes:
/// - a global that neither Lua, nor the library, nor the program defines, unless it is compared
///   with `nil`,
/// - a function that a table of the library does not have,
/// - a wrong number of arguments for a function of the library,
/// - the start of a process with a function that the program does not have.
///
/// A program that defines globals by computed names, as in `_G[name] = value`, may have any global.
///
/// # Errors
/// Returns an [`Error`] if the source is not valid Lua.
///
/// # Examples
/// ```
/// let source = "function main() proces.send() end";
/// let findings = procession_lua::check("main.lua", source)?;
/// assert_eq!(findings[0].to_string(), "main.lua:1:17: the global `proces` is not defined");
/// # Ok::<(), procession_lua::Error>(())
/// ```
pub fn check(name: impl Into<String>, source: impl Into<Vec<u8>>) -> Result<Vec<Finding>, Error> {
    let (program, source) = (name.into(), source.into());
    compile(&format!("@{program}"), lua_text(&source), false)
        .map_err(|error| load_error(&program, &error))?;
    let text = String::from_utf8_lossy(lua_text(&source)).into_owned();
    let found = parser::parse(&lexer::tokens(&text));
    let rules = Rules::new(&found);
    let finding = |used: &Use<'_>| {
        let message = label(&rules.judge(used)?);
        Some(Finding { program: program.clone(), line: used.line, column: used.column, message })
    };
    let mut findings: Vec<Finding> = found.uses.iter().filter_map(finding).collect();
    findings.sort_by_key(|finding| (finding.line, finding.column));
    Ok(findings)
}

/// Returns the names of the modules that a source requires by a literal name.
pub(crate) fn required(source: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(lua_text(source));
    let tokens = lexer::tokens(&text);
    let mut names = Vec::new();
    for at in 0..tokens.len() {
        let is_field = at > 0 && matches!(tokens[at - 1].kind, Kind::Word("." | ":" | "function"));
        if tokens[at].kind != Kind::Name("require") || is_field {
            continue;
        }
        let next = |offset: usize| tokens.get(at + offset).map(|token| token.kind);
        let named = if next(1) == Some(Kind::Word("(")) { next(2) } else { next(1) };
        if let Some(Kind::Text(Some(name))) = named {
            names.push(name.to_owned());
        }
    }
    names
}

/// The names that a program may use.
struct Rules<'a> {
    library: Vec<Signature>,
    /// The paths that the program assigns.
    defined: HashSet<&'a [&'a str]>,
    is_dynamic: bool,
}

impl<'a> Rules<'a> {
    fn new(found: &'a Uses<'a>) -> Self {
        let writes = found.uses.iter().filter(|used| matches!(used.act, Act::Write));
        Self {
            library: signatures().collect(),
            defined: writes.map(|used| &used.path[..]).collect(),
            is_dynamic: found.is_dynamic,
        }
    }

    /// Returns the message about a mistake.
    fn judge(&self, used: &Use<'_>) -> Option<String> {
        match &used.act {
            Act::Write => None,
            Act::Read => self.judge_path(&used.path),
            Act::Call(arguments) => {
                self.judge_path(&used.path).or_else(|| self.judge_call(&used.path, arguments))
            }
        }
    }

    fn judge_path(&self, path: &[&str]) -> Option<String> {
        let name = path[0];
        if self.defined.contains(&path[..1]) || self.is_dynamic {
            return None;
        }
        if !self.is_global(name) {
            return Some(format!("the global `{name}` is not defined"));
        }
        let field = path.get(1)?;
        let is_table = name != "_G" && !HOST_TABLES.contains(&name) && self.has_fields(name);
        let is_known = self.defined.contains(&path[..2]) || self.is_field(name, field);
        (is_table && !is_known).then(|| format!("`{name}` has no function `{field}`"))
    }

    fn is_global(&self, name: &str) -> bool {
        HOST_TABLES.contains(&name)
            || self.is_field("", name)
            || self.library.iter().any(|known| known.name.split('.').next() == Some(name))
    }

    fn has_fields(&self, table: &str) -> bool {
        LUA.iter().any(|(name, _)| *name == table)
            || self
                .library
                .iter()
                .any(|known| known.name.split_once('.').is_some_and(|(prefix, _)| prefix == table))
    }

    fn is_field(&self, table: &str, field: &str) -> bool {
        let fields = LUA.iter().filter(|(name, _)| *name == table);
        fields.flat_map(|(_, fields)| fields.split(' ')).any(|known| known == field)
            || self.library.iter().any(|known| known.name.split_once('.') == Some((table, field)))
    }

    fn judge_call(&self, path: &[&str], arguments: &Arguments<'_>) -> Option<String> {
        if self.defined.contains(path) || self.defined.contains(&path[..1]) {
            return None;
        }
        let name = path.join(".");
        let known = self.library.iter().find(|known| known.name == name)?;
        let (least, most) = known.arity();
        // A call or `...` in the last place may also be no value.
        let given = arguments.count;
        let surely = given - usize::from(arguments.is_open);
        let wrong = given < least && !arguments.is_open || most.is_some_and(|most| surely > most);
        if wrong {
            return Some(format!("`{}` is called with {}", known.call(), counted(surely)));
        }
        let entry = known.parameters.iter().position(|parameter| parameter.kind == ENTRY)?;
        let text = (*arguments.texts.get(entry)?)?;
        (!self.is_entry(text)).then(|| format!("the program has no function `{text}` for `{name}`"))
    }

    /// Returns `true` if a process can call the function with this name.
    fn is_entry(&self, name: &str) -> bool {
        let path: Vec<&str> = name.splitn(2, '.').collect();
        self.is_dynamic || self.defined.contains(&path[..]) || self.judge_path(&path).is_none()
    }
}

fn counted(arguments: usize) -> String {
    match arguments {
        0 => "no argument".to_owned(),
        1 => "1 argument".to_owned(),
        count => format!("{count} arguments"),
    }
}

#[cfg(test)]
mod tests;
