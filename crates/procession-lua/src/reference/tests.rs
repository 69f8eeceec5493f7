use std::collections::BTreeSet;

use procession::process::Priority;

use super::{HOST_TABLES, LUA, OBJECTS, SECTIONS, annotations, signatures, table};
use crate::program::Program;

/// Returns the names that a process of a program finds, as in `process.send`.
fn found() -> BTreeSet<String> {
    let source = "
      names = {}
      for name, value in pairs(_G) do
        if name ~= 'names' then
          names[#names + 1] = name
          if type(value) == 'table' and name ~= '_G' then
            for key in pairs(value) do
              if key:find('^[%w_]+$') then names[#names + 1] = name .. '.' .. key end
            end
          end
        end
      end";
    let program = Program::load("names", source).expect("the source is valid Lua");
    let lua = program.open().expect("the program runs");
    let names: Vec<String> = lua.globals().get("names").expect("the program made it");
    names.into_iter().collect()
}

#[test]
fn the_reference_names_every_function_that_a_program_finds() {
    let mut named = BTreeSet::new();
    for (table, fields) in LUA {
        for field in fields.split(' ') {
            named.insert(if table.is_empty() { field.into() } else { format!("{table}.{field}") });
        }
    }
    for signature in signatures() {
        let table = signature.name.split(['.', ':']).next().expect("a split has a first part");
        if !OBJECTS.contains(&table) {
            named.insert(signature.name.to_owned());
            named.insert(table.to_owned());
        }
    }
    named.extend(HOST_TABLES.iter().map(ToString::to_string));
    let found = found();
    let (missing, extra): (Vec<_>, Vec<_>) =
        (found.difference(&named).collect(), named.difference(&found).collect());
    assert!(missing.is_empty(), "the reference lacks {missing:?}");
    assert!(extra.is_empty(), "programs do not find {extra:?}");
}

#[test]
fn the_tables_of_the_document_are_those_of_the_reference() {
    let document = include_str!("../../../../docs/LUA.md");
    for table in SECTIONS.iter().map(|section| table(section)) {
        assert!(
            document.contains(&table),
            "docs/LUA.md must contain:

{table}"
        );
    }
}

#[test]
fn the_annotations_name_what_an_entry_takes_and_what_is_received() {
    let annotations = annotations();
    let mut lines = annotations.lines();
    let entry = lines.find(|line| line.starts_with("---@alias entry ")).expect("it has a type");
    for key in ["allow", "limits", "priority"] {
        assert!(entry.contains(&format!(" {key}?: ")), "{key}: {entry}");
    }
    for priority in Priority::ALL {
        assert!(entry.contains(&format!("\"{priority}\"")), "{priority}: {entry}");
    }
    let receive = signatures().find(|signature| signature.name == "process.receive");
    let kinds = receive.expect("it is there").results[2];
    for kind in ["down", "exit", "node_up", "node_down"] {
        assert!(kinds.contains(&format!("\"{kind}\"")), "{kind}: {kinds}");
    }
}

#[test]
fn every_signature_can_be_read() {
    for signature in signatures() {
        let name = signature.name;
        assert!(!name.contains(['(', ' ']), "{name}");
        let optional = signature.parameters.iter().map(|parameter| parameter.optional);
        assert!(optional.is_sorted(), "{name}: an optional parameter comes before a required one");
    }
    let call = signatures().find(|signature| signature.name == "process.call").expect("it is");
    assert_eq!(call.call(), "process.call(to, request [, ms])");
    assert_eq!((call.arity(), call.results.len()), ((2, Some(3)), 2));
    let read = signatures().find(|signature| signature.name == "connection:read").expect("it is");
    assert_eq!(read.call(), "connection:read([most [, ms]])");
}
