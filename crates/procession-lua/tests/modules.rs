//! Programs of several files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::{Exit, Scheduler, SpawnOptions};
use procession_lua::{Error, Program, Value};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn run(program: &Program) -> Result<Value, Exit> {
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", []);
    let main = main.expect("the program has main");
    main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end"))
}

/// A folder with files, until it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("procession-{name}-{}", std::process::id()));
        let folder = Self(path);
        for (name, source) in files {
            folder.write(name, source);
        }
        folder
    }

    fn write(&self, name: &str, source: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("it can be made");
        fs::write(path, source).expect("it can be written");
    }

    fn read(&self) -> Result<Program, Error> {
        Program::read(self.0.join("main.lua"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignored: what is left is in the folder for temporary files.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_module_runs_once_in_each_process_that_requires_it() {
    let main = "
        local a = require 'lib.a'
        function child(to) process.send(to, { a.name, require('lib.b').count, runs }) end
        function main()
          assert(require('lib.a') == a and package.loaded['lib.a'] == a)
          assert(require 'string' == string)
          local b = require(\"lib.b\")
          b.count = b.count + 1
          process.spawn('child', process.self())
          local seen = process.receive()
          return table.concat({ a.name, b.count, runs, table.unpack(seen) }, ' ')
        end";
    let files = [
        ("main.lua", main),
        (
            "lib/a.lua",
            "#!shebang\nlocal b = require 'lib.b' b.count = b.count + 1 return { name = ... }",
        ),
        ("lib/b.lua", "runs = (runs or 0) + 1 return { count = 0 }"),
    ];
    let folder = Folder::new("modules", &files);
    let program = folder.read().expect("it is valid");
    assert_eq!(run(&program), Ok(Value::string("lib.a 2 1 lib.a 1 1")));
    let names = program.files().iter().map(|file| file.file_name().expect("it has one"));
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["a.lua", "b.lua", "main.lua"]);
    // A change of a module is another version.
    assert_eq!(folder.read().expect("it is valid").version(), program.version());
    folder.write("lib/b.lua", "return { count = 10 }");
    assert_ne!(folder.read().expect("it is valid").version(), program.version());
}

#[test]
fn failures_of_modules_name_them() {
    let main = "
        function main()
          local causes = {}
          for _, name in ipairs { 'one', 'missing', 'fails', 'fails', '../outside', '\\27' } do
            local ok, cause = pcall(require, name)
            causes[#causes + 1] = tostring(cause)
          end
          assert(not pcall(require) and not pcall(require, {}))
          return table.concat(causes, '\\n')
        end
        local function names() require 'one' require 'missing' require 'fails' require '../outside' end";
    let files = [
        ("main.lua", main),
        ("one.lua", "require 'two'"),
        ("two.lua", "\n\nrequire('one')"),
        ("fails.lua", "error('broken')"),
        ("../outside.lua", "return 1"),
    ];
    let folder = Folder::new("modules-failures/inner", &files);
    let causes = run(&folder.read().expect("it is valid")).expect("it ends");
    let Value::String(causes) = causes else { panic!("it is a text") };
    let shown = String::from_utf8(causes.to_vec()).expect("it is text");
    let path = |name: &str| folder.0.join(name).display().to_string();
    let expected = [
        format!("{}:3: module 'one' requires itself: one -> two -> one", path("two.lua")),
        "the program has no module 'missing'".to_owned(),
        format!("{}:1: broken", path("fails.lua")),
        format!("{}:1: broken", path("fails.lua")),
        "the program has no module '../outside'".to_owned(),
        "the program has no module '\\u{1b}'".to_owned(),
    ];
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_module_that_cannot_be_read_is_an_error_before_anything_runs() {
    let folder =
        Folder::new("modules-unread", &[("main.lua", "require 'lib.a' function main() end")]);
    folder.write("lib/a.lua", "return");
    folder.write("../modules-outside.lua", "return");
    folder.read().expect("it is valid");
    let outside = "it leads out of the folder of the program";
    type Make = fn(&Path) -> io::Result<()>;
    let makes: [(Make, &str); 4] = [
        (|path| symlink("../../modules-outside.lua", path), outside),
        (|path| symlink("/dev/null", path), outside),
        (|path| fs::create_dir(path), "it is not a regular file"),
        (|path| fs::write(path, "return ("), "a.lua:1: "),
    ];
    for (make, cause) in makes {
        let path = folder.0.join("lib/a.lua");
        // Ignored: it is one or the other.
        drop(fs::remove_file(&path));
        drop(fs::remove_dir(&path));
        make(&path).expect("it can be made");
        let error = folder.read().expect_err("it cannot be read").to_string();
        assert!(error.contains("lib/a.lua") && error.contains(cause), "{error}");
    }
    fs::remove_file(folder.0.join("../modules-outside.lua")).expect("it is there");
}

/// Some editors put the mark at the beginning of a file. Lua itself also skips it.
#[test]
fn a_byte_order_mark_belongs_to_no_program() {
    for head in
        ["", "#!/usr/bin/procession run\n", "\u{feff}", "\u{feff}#!/usr/bin/procession run\n"]
    {
        let main = format!("{head}function main() return require('a') end");
        let module = format!("{head}return 'module'");
        let folder = Folder::new("mark", &[("main.lua", &main), ("a.lua", &module)]);
        let read = folder.read().expect("it is valid");
        assert_eq!(run(&read), Ok(Value::string("module")), "{head:?}");
        let loaded = Program::load("main", main.clone()).expect("it is valid");
        let loaded = loaded.module("a", &module).expect("it is valid");
        assert_eq!(run(&loaded), Ok(Value::string("module")), "{head:?}");
        assert_eq!(procession_lua::check("main.lua", main).expect("it is valid"), []);
    }
}
