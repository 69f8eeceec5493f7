//! The table of the functions that programs may call. The tables of `docs/LUA.md`, the annotations
//! for editors and `check` are derived from it.

use std::fmt::Write as _;

mod functions;

use self::functions::Function;
pub(crate) use self::functions::{HOST_TABLES, LUA, SECTIONS};

/// The parts of a signature.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The name, as in `process.call`, `print` or `connection:read`.
    pub(crate) name: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    /// The types of the results.
    pub(crate) results: Vec<&'static str>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// `...` for any number of arguments.
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) optional: bool,
}

/// The type of a parameter that is the name of a global function of the program.
pub(crate) const ENTRY: &str = "entry";

/// The classes with methods. They are not global tables.
const OBJECTS: &[&str] = &["connection", "listener", "reader", "udp"];

const CLASSES: &str = r#"---@class pid: userdata The address of a process.
---@class call: table A request that was received, for process.reply.
---@alias target pid|string A PID, or the registered name of a process.
---@alias entry string|{ [1]: string, allow?: table<string, boolean|string|string[]>, limits?: table<string, integer>, priority?: "high"|"normal"|"batch" } The name of a global function of the program.
---@class connection: userdata A TCP connection.
local connection = {}
---@class listener: userdata A TCP listener.
local listener = {}
---@class socket_options
---@field tls? boolean|{ name?: string, protocols?: string[] } The TLS of a connection, or of those of a listener.
---@class udp: userdata A UDP socket.
local udp = {}
---@class reader A reader of lines and counts of bytes.
local reader = {}
---@class child
---@field start? entry The function that the child calls. A child has either this or a supervisor.
---@field args? any[] The arguments of the function.
---@field supervisor? supervisor_description
---@field id? string
---@field name? string
---@field restart? "permanent"|"transient"|"temporary"
---@field shutdown? number|"kill"|"wait"
---@field significant? boolean
---@class supervisor_description
---@field strategy? "one_for_one"|"one_for_all"|"rest_for_one"|"dynamic"
---@field intensity? integer
---@field period? number
---@field auto_shutdown? "never"|"any_significant"|"all_significant"
---@field back_off? number[]
---@field name? string
---@field children? child[]
---@class request A request of HTTP, with header names in lower case.
---@field method string
---@field path string
---@field query? string
---@field headers table<string, string>
---@field body string
"#;

impl Function {
    pub(crate) fn signature(&self) -> Signature {
        let parts = self.signature.split_once('(').and_then(|(name, rest)| {
            let (parameters, results) = rest.split_once(')')?;
            Some((name, parameters, results.strip_prefix(": ").unwrap_or_default()))
        });
        let (name, parameters, results) = parts.unwrap_or((self.signature, "", ""));
        let listed = |text: &'static str| text.split(", ").filter(|part| !part.is_empty());
        let parameters = listed(parameters).map(|parameter| {
            let (name, kind) = parameter.split_once(": ").unwrap_or((parameter, "any"));
            let bare = name.trim_end_matches('?');
            Parameter { name: bare, kind, optional: bare != name }
        });
        Signature { name, parameters: parameters.collect(), results: listed(results).collect() }
    }
}

impl Signature {
    /// Returns the smallest number of arguments, and the largest if there is one.
    pub(crate) fn arity(&self) -> (usize, Option<usize>) {
        let named = self.parameters.iter().filter(|parameter| parameter.name != "...");
        let least = named.clone().filter(|parameter| !parameter.optional).count();
        let is_open = self.parameters.iter().any(|parameter| parameter.name == "...");
        (least, (!is_open).then(|| named.count()))
    }

    /// Returns the call as the reference writes it, as in `process.call(to, request [, ms])`.
    pub(crate) fn call(&self) -> String {
        let (mut text, mut optional) = (format!("{}(", self.name), 0);
        for (index, parameter) in self.parameters.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            if parameter.optional {
                optional += 1;
                text += if index == 0 { "[" } else { " [" };
            }
            text += comma;
            text += parameter.name;
        }
        text + &"]".repeat(optional) + ")"
    }

    fn annotate(&self, description: &str, text: &mut String) {
        let mut line = |parts: std::fmt::Arguments<'_>| {
            text.write_fmt(parts).expect("a string has room");
            text.push('\n');
        };
        line(format_args!("---{description}"));
        for Parameter { name, kind, optional } in &self.parameters {
            let mark = if *optional { "?" } else { "" };
            line(format_args!("---@param {name}{mark} {kind}"));
        }
        for result in &self.results {
            line(format_args!("---@return {result}"));
        }
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name).collect();
        line(format_args!("function {}({}) end\n", self.name, names.join(", ")));
    }
}

/// Returns all functions of the library, without Lua's own.
pub(crate) fn signatures() -> impl Iterator<Item = Signature> {
    SECTIONS.iter().flat_map(|section| section.iter().map(Function::signature))
}

/// Returns the table of a section in `docs/LUA.md`.
#[cfg(test)]
fn table(section: &[Function]) -> String {
    let mut text = String::from("| function | description |\n|---|---|\n");
    for function in section {
        let (call, description) = (function.signature().call(), function.description);
        writeln!(text, "| `{call}` | {description} |").expect("a string has room");
    }
    text
}

/// Returns the declarations of the library for the [Lua language server](https://luals.github.io):
/// a file that an editor reads to complete and check the functions of `docs/LUA.md`.
///
/// ```
/// assert!(procession_lua::annotations().contains("function process.send(to, message) end"));
/// ```
pub fn annotations() -> String {
    let mut text = String::from("---@meta\n\n");
    text += CLASSES;
    for name in HOST_TABLES {
        writeln!(text, "\n---@type table<string, fun(value?: any): any, string?>\n{name} = {{}}")
            .expect("a string has room");
    }
    let mut known: Vec<&str> = OBJECTS.to_vec();
    for section in SECTIONS {
        for function in *section {
            let signature = function.signature();
            if let Some((table, _)) = signature.name.split_once(['.', ':'])
                && !known.contains(&table)
            {
                known.push(table);
                writeln!(text, "\n---@class {table}\n{table} = {{}}\n").expect("a string has room");
            }
            signature.annotate(function.description, &mut text);
        }
    }
    text
}

#[cfg(test)]
mod tests;
