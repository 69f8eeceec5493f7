//! The permissions of programs.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procession::{Scheduler, SpawnOptions};
use procession_lua::{Deployment, Message, Permissions, Program, Value};
use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a program, and returns the text that it returns.
fn run(source: &str, permissions: Permissions) -> String {
    let program = Program::load("test", source).unwrap_or_else(|error| panic!("{error}: {source}"));
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let options = SpawnOptions::new().on(&scheduler);
    let main = program.permissions(permissions).spawn_with(options, "main", []);
    let main = main.expect("the program has main");
    match main.join_timeout(TIMEOUT).unwrap_or_else(|_| panic!("the program must end")) {
        Ok(Value::String(bytes)) => String::from_utf8(bytes.to_vec()).expect("it is text"),
        other => panic!("the program must return a text, but: {other:?}: {source}"),
    }
}

/// Returns the result of an expression as text, or the cause of its failure.
fn result(expression: &str, permissions: &Permissions) -> String {
    let source = format!(
        "function main()
           local ok, value, cause = pcall(function() return {expression} end)
           return tostring(value == nil and cause or value)
         end"
    );
    run(&source, permissions.clone())
}

/// A folder of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("procession-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the system has a folder for temporary files");
        Self(path.canonicalize().expect("it is there"))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("it is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignored: what is left is in the folder for temporary files.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn without_permissions_everything_outside_is_refused_by_the_name_of_the_option() {
    for (call, refused) in [
        (
            "net.connect('127.0.0.1:9')",
            "cannot connect to 127.0.0.1:9: it needs --allow-net=127.0.0.1:9",
        ),
        (
            "net.connect('no.such.invalid:80')",
            "cannot connect to no.such.invalid:80: it needs --allow-net=no.such.invalid:80",
        ),
        ("net.listen('127.0.0.1:0')", "cannot listen at 127.0.0.1:0: it needs --allow-listen"),
        ("fs.read('Cargo.toml')", "cannot read Cargo.toml: it needs --allow-read=Cargo.toml"),
        (
            "fs.size('Cargo.toml')",
            "cannot get the size of Cargo.toml: it needs --allow-read=Cargo.toml",
        ),
        ("fs.lines('Cargo.toml')()", "cannot read Cargo.toml: it needs --allow-read=Cargo.toml"),
        ("fs.write('new.txt', '')", "cannot write new.txt: it needs --allow-write=new.txt"),
        ("fs.append('new.txt', '')", "cannot write new.txt: it needs --allow-write=new.txt"),
        ("os.getenv('PATH')", "cannot read a variable: it needs --allow-env=PATH"),
    ] {
        assert_eq!(result(call, &Permissions::none()), refused);
    }
    assert!(!PathBuf::from("new.txt").exists());
}

#[test]
fn a_folder_permits_what_the_kernel_finds_below_it() {
    let folder = Folder::new("below");
    for (name, content) in [("in/sub/a.txt", "a"), ("out.txt", "out"), ("in2/b.txt", "b")] {
        let path = folder.path(name);
        fs::create_dir_all(PathBuf::from(&path).parent().expect("it has one"))
            .expect("it can be made");
        fs::write(path, content).expect("it can be written");
    }
    symlink("sub/a.txt", folder.path("in/link")).expect("it can be made");
    symlink("../out.txt", folder.path("in/out")).expect("it can be made");
    symlink(folder.path("in/sub/a.txt"), folder.path("in/root")).expect("it can be made");
    let given = Permissions::none().read_below(folder.path("in")).expect("it is there");
    for name in ["in/sub/a.txt", "in/link", "in/./sub//../sub/a.txt"] {
        let call = format!("fs.read({:?})", folder.path(name));
        assert_eq!(result(&call, &given), "a", "{name}");
        let call = format!("fs.size({:?})", folder.path(name));
        assert_eq!(result(&call, &given), "1", "{name}");
    }
    let outside = [
        folder.path("in/out"),
        folder.path("in/root"),
        folder.path("in/../out.txt"),
        folder.path("in/sub/../../out.txt"),
        folder.path("in2/b.txt"),
        folder.path("out.txt"),
        "/etc/passwd".to_owned(),
        "../../../../../../etc/passwd".to_owned(),
        "/proc/self/root/etc/passwd".to_owned(),
    ];
    for path in outside {
        let refused = format!("cannot read {path}: it needs --allow-read={path}");
        assert_eq!(result(&format!("fs.read({path:?})"), &given), refused);
    }
    let write = result(&format!("fs.write({:?}, 'x')", folder.path("in/sub/a.txt")), &given);
    assert!(write.contains("it needs --allow-write="), "{write}");
    // The folder that was permitted stays the one, whatever its path leads to later.
    fs::rename(folder.path("in"), folder.path("moved")).expect("it can be moved");
    symlink(folder.path("in2"), folder.path("in")).expect("it can be made");
    let read = result(&format!("fs.read({:?})", folder.path("in/b.txt")), &given);
    assert!(read.contains("No such file"), "{read}");
}

#[test]
fn a_file_permits_itself_alone() {
    let folder = Folder::new("file");
    let [own, other] = ["own.txt", "other.txt"].map(|name| folder.path(name));
    let given = Permissions::none().write_below(&own).expect("its folder is there");
    assert_eq!(result(&format!("fs.write({own:?}, 'one ')"), &given), "true");
    assert_eq!(result(&format!("fs.append({own:?}, 'two')"), &given), "true");
    assert_eq!(fs::read(&own).expect("it was written"), b"one two");
    for refused in [format!("fs.write({other:?}, '')"), format!("fs.write('{own}/x', '')")] {
        let cause = result(&refused, &given);
        assert!(cause.contains("it needs --allow-write="), "{cause}");
    }
    assert_eq!(result(&format!("fs.write({own:?}, 'new')"), &given), "true");
    assert_eq!(fs::read(&own).expect("it was written"), b"new");
    let read = Permissions::none().read_below(&own).expect("it is there");
    assert_eq!(result(&format!("fs.read({own:?})"), &read), "new");
    let cause = result("fs.write('/dev/null', '')", &Permissions::all());
    assert_eq!(cause, "cannot write /dev/null: it is not a regular file");
    let missing = Permissions::none().read_below(folder.path("none/x")).expect_err("it is missing");
    assert!(missing.to_string().starts_with("cannot permit reads below "), "{missing}");
}

#[test]
fn addresses_are_checked_after_names_are_resolved() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = listener.local_addr().expect("it has one").port();
    let connects = |host: &str, permissions: &Permissions| {
        let call = format!("net.connect('{host}:{port}')");
        let result = result(&call, permissions);
        if result.starts_with("connection ") { "connected".to_owned() } else { result }
    };
    let given = |address: &str| Permissions::none().connect_to(address).expect("it is an address");
    let refused = |host: &str, needed: &str| {
        format!("cannot connect to {host}:{port}: it needs --allow-net={needed}:{port}")
    };
    for address in [format!("127.0.0.1:{port}"), "127.0.0.1".to_owned()] {
        let given = given(&address);
        assert_eq!(connects("127.0.0.1", &given), "connected");
        assert_eq!(connects("localhost", &given), "connected");
        assert_eq!(connects("127.0.0.2", &given), refused("127.0.0.2", "127.0.0.2"));
        assert_eq!(connects("0.0.0.0", &given), refused("0.0.0.0", "0.0.0.0"));
        assert_eq!(
            connects("example.invalid", &given),
            refused("example.invalid", "example.invalid")
        );
    }
    assert_eq!(connects("localhost", &given("localhost")), "connected");
    assert_eq!(connects("127.0.0.1", &given("localhost")), refused("127.0.0.1", "127.0.0.1"));
    assert_eq!(connects("127.0.0.1", &given("127.0.0.1:1")), refused("127.0.0.1", "127.0.0.1"));
    // To the resolver this is a name for 127.0.0.1.
    assert_eq!(connects("127.1", &given("127.1")), refused("127.1", "127.0.0.1"));
    let error = Permissions::none().connect_to("http://host").expect_err("it is no address");
    let text = "cannot permit connections to \"http://host\": ";
    assert!(error.to_string().starts_with(text), "{error}");
}

#[test]
fn a_variable_is_found_if_it_is_set() {
    let given = Permissions::none().env_var("PATH").env_var("NO_SUCH_VARIABLE");
    assert_eq!(result("os.getenv('PATH')", &given), std::env::var("PATH").expect("it is set"));
    assert_eq!(result("os.getenv('NO_SUCH_VARIABLE') or 'unset'", &given), "unset");
    let refused = result("os.getenv('HOME')", &given);
    assert!(refused.ends_with("it needs --allow-env=HOME"), "{refused}");
}

#[test]
fn a_child_has_the_permissions_of_its_parent_or_fewer() {
    let source = "
        function tries(to)
          local causes = {}
          for _, call in ipairs {
            { fs.read, 'Cargo.toml' }, { net.listen, '127.0.0.1:0' }, { os.getenv, 'PATH' },
          } do
            local ok, done = pcall(table.unpack(call))
            causes[#causes + 1] = ok and done and 'may' or 'may not'
          end
          process.send(to, table.concat(causes, ', '))
        end
        function again(to, allow) process.spawn({ 'tries', allow = allow }, to) end
        function main()
          local me, seen = process.self(), {}
          local function note() seen[#seen + 1] = process.receive() end
          process.spawn('tries', me) note()
          process.spawn({ 'tries' }, me) note()
          process.spawn({ 'tries', allow = { read = false, env = true } }, me) note()
          process.spawn_link({ 'again', allow = { read = false } }, me, { read = true, env = false }) note()
          process.spawn({ 'again', allow = { all = false } }, me, { all = true }) note()
          for _, options in ipairs {
            {}, { 'tries', 'tries' }, { 'tries', allow = true }, { 'tries', allow = { 'read' } },
            { 'tries', allow = { listen = '.' } }, { 'tries', allow = { run = false } }, 7,
          } do
            assert(not pcall(process.spawn, options, me))
          end
          return table.concat(seen, '; ')
        end";
    let seen = run(source, Permissions::all());
    let (all, no_read, listen) = ("may, may, may", "may not, may, may", "may not, may, may not");
    assert_eq!(seen, [all, all, no_read, listen, "may not, may not, may not"].join("; "));
}

/// Each program has another order of the keys of a table.
#[test]
fn a_key_of_allow_is_an_exception_to_all_in_any_order() {
    let source = "
        local calls = { read = { fs.read, 'Cargo.toml' }, listen = { net.listen, '127.0.0.1:0' }, env = { os.getenv, 'PATH' } }
        function tries(to)
          local may = {}
          for name, call in pairs(calls) do
            local ok, done = pcall(table.unpack(call))
            if ok and done then may[#may + 1] = name end
          end
          process.send(to, table.concat(may, ' '))
        end
        function main()
          local function may(allow)
            process.spawn({ 'tries', allow = allow }, process.self())
            return process.receive()
          end
          for name in pairs(calls) do
            assert(may { all = false, [name] = true } == name)
            assert(not may { all = true, [name] = false }:find(name))
          end
          assert(may { all = false, env = 'PATH' } == 'env')
          for _, value in ipairs { true, 'x' } do
            local ok, cause = pcall(may, { run = value })
            assert(not ok and cause:find('there is no permission \"run\"', 1, true), cause)
          end
          return 'done'
        end";
    for _ in 0..4 {
        assert_eq!(run(source, Permissions::all()), "done");
    }
}

/// A new version of the program may have more permissions, but not for processes that have fewer.
#[test]
fn an_upgraded_process_keeps_its_permissions() {
    let old = "
        function reads()
          while true do
            local _, call = process.receive()
            process.reply(call, fs.read('Cargo.toml', 0, 0) or 'refused')
          end
        end
        function upgrade() end
        function starts() return process.spawn({ 'reads', allow = { read = false } }) end
        function asks(pid) return process.call(pid, 1) end
        resume_reads = reads";
    let load = |source: &str| Program::load("test", source).expect("it is Lua");
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    scheduler.block_on(async {
        let deployment = Deployment::new(load(old).permissions(Permissions::all()));
        let start = deployment.program().spawn("starts", []).expect("it starts");
        let reader = start.await.expect("it ends");
        let asks = async || {
            let asks = deployment.program().spawn("asks", [reader.clone()]).expect("it starts");
            asks.await
        };
        // It has begun when it answers. A process that begins later is also upgraded, and is not
        // counted.
        assert_eq!(asks().await, Ok(Value::string("refused")));
        let new = load(&format!("{old} -- new")).permissions(Permissions::all());
        let replaced = deployment.replace(new).await.expect("it is replaced");
        assert_eq!(replaced.upgraded, 1);
        assert_eq!(asks().await, Ok(Value::string("refused")));
    });
}

#[test]
fn folders_are_changed_only_below_a_permitted_one() {
    let folder = Folder::new("folders");
    fs::create_dir(folder.path("inside")).expect("the folder is there");
    fs::write(folder.path("outside.txt"), "kept").expect("the folder is there");
    symlink(folder.path("."), folder.path("inside/link")).expect("the folder is there");
    let inside = folder.path("inside");
    let permissions = Permissions::none().write_below(&inside).expect("the folder is there");
    let permissions = permissions.read_below(&inside).expect("the folder is there");
    let at = |name: &str| format!("'{}'", folder.path(name));
    let result = |expression: &str| result(expression, &permissions);
    let refused = |act: &str, name: &str, option: &str| {
        format!("cannot {act} {0}: it needs --allow-{option}={0}", folder.path(name))
    };
    assert_eq!(result(&format!("fs.make_directory({})", at("inside/new"))), "true");
    assert_eq!(result(&format!("fs.write({}, 'text')", at("inside/new/a"))), "true");
    let moved = format!("fs.rename({}, {})", at("inside/new/a"), at("inside/b"));
    assert_eq!(result(&moved), "true");
    let listed = format!("table.concat(fs.list({}), ' ')", at("inside"));
    assert_eq!(result(&listed), "b link new");
    for (name, kind) in [("inside/b", "file"), ("inside/new", "directory")] {
        assert_eq!(result(&format!("fs.kind({})", at(name))), kind);
    }
    for name in ["outside.txt", "inside/../outside.txt", "inside/link/outside.txt"] {
        let removed = result(&format!("fs.remove({})", at(name)));
        assert_eq!(removed, refused("remove", name, "write"));
    }
    let stolen = format!("fs.rename({}, {})", at("inside/link/outside.txt"), at("inside/c"));
    assert_eq!(result(&stolen), refused("rename", "inside/link/outside.txt", "write"));
    let given = format!("fs.rename({}, {})", at("inside/b"), at("b"));
    let needed = format!("it needs --allow-write={}", folder.path("b"));
    assert_eq!(result(&given), format!("cannot rename {}: {needed}", folder.path("inside/b")));
    let own = result(&format!("fs.remove({})", at("inside")));
    assert_eq!(own, refused("remove", "inside", "write"));
    // A process that may write all and read little does not get to read more by a rename.
    let writes = Permissions::none().write_below(folder.path(".")).expect("the folder is there");
    let reads = writes.clone().read_below(folder.path("inside")).expect("the folder is there");
    let gains = format!("fs.rename({}, {})", at("outside.txt"), at("inside/c"));
    for permissions in [&writes, &reads] {
        assert_eq!(self::result(&gains, permissions), refused("rename", "outside.txt", "read"));
    }
    let moved = format!("fs.rename({}, {})", at("inside/b"), at("moved"));
    assert_eq!(self::result(&moved, &reads), "true");
    fs::rename(folder.path("moved"), folder.path("inside/b")).expect("it was moved");
    assert_eq!(result(&format!("fs.list({})", at("."))), refused("list", ".", "read"));
    // A link is removed, and not the folder that it leads to.
    for name in ["inside/link", "inside/new", "inside/b"] {
        assert_eq!(result(&format!("fs.remove({})", at(name))), "true");
    }
    assert!(fs::read(folder.path("outside.txt")).is_ok());
    let full = result(&format!("fs.remove({})", at("inside/..")));
    assert!(full.contains("the path has no name"), "{full}");
}

#[test]
fn datagrams_need_the_permissions_of_a_listener_and_of_their_address() {
    let bind = "net.udp('127.0.0.1:0')";
    let none = result(bind, &Permissions::none());
    assert_eq!(none, "cannot bind 127.0.0.1:0: it needs --allow-listen");
    let send = format!("{bind}:send_to('127.0.0.1:9', 'x')");
    let listens = Permissions::none().listen();
    let refused = "cannot send to 127.0.0.1:9: it needs --allow-net=127.0.0.1:9";
    assert_eq!(result(&send, &listens), refused);
    let one = listens.connect_to("127.0.0.1:9").expect("it is an address");
    assert_eq!(result(&send, &one), "true");
    assert_eq!(
        result("net.udp('127.0.0.1:0'):accept()", &one).split(": ").last().unwrap_or(""),
        "argument 1 must be a listener"
    );
}

/// Goal: a process that may only listen cannot tell a name server something by the names that it
/// asks for.
#[test]
fn a_listener_resolves_no_name_that_may_not_be_connected_to() {
    let listens = Permissions::none().listen();
    for (call, act) in [("net.listen", "cannot listen at"), ("net.udp", "cannot bind")] {
        let asked = result(&format!("{call}('a.secret.invalid:0')"), &listens);
        let refused = format!("{act} a.secret.invalid:0: it needs --allow-net=a.secret.invalid:0");
        assert_eq!(asked, refused);
        let near = result(&format!("{call}('localhost:0')"), &listens);
        assert!(!near.contains("--allow-"), "{near}");
    }
}

#[test]
fn a_child_has_only_the_objects_that_its_parent_names_and_has() {
    let folder = Folder::new("narrow");
    for name in ["a", "a/b", "c"] {
        fs::create_dir_all(folder.path(name)).expect("the folder is there");
        fs::write(folder.path(&format!("{name}/file")), "text").expect("the folder is there");
    }
    let permissions = Permissions::none().read_below(folder.path("a")).expect("it is there");
    let permissions = permissions.connect_to("127.0.0.1").expect("it is an address");
    let permissions = permissions.env_var("PATH").env_var("HOME");
    let found = |allow: &str, act: &str| {
        let source = format!(
            "function child(parent)
               local ok, value, cause = pcall(function() return {act} end)
               process.send(parent, tostring(value == nil and cause or value))
             end
             function main()
               local ok, cause = pcall(process.spawn, {{ 'child', allow = {allow} }}, process.self())
               return ok and process.receive() or cause
             end"
        );
        run(&source, permissions.clone())
    };
    let inner = folder.path("a/b");
    let read = |name: &str| format!("fs.read('{}')", folder.path(name));
    let allow = format!("{{ read = '{inner}' }}");
    assert_eq!(found(&allow, &read("a/b/file")), "text");
    assert!(found(&allow, &read("a/file")).contains("it needs --allow-read="));
    let file = format!("{{ read = {{ '{}' }} }}", folder.path("a/file"));
    assert_eq!(found(&file, &read("a/file")), "text");
    assert!(found(&file, &read("a/b/file")).contains("it needs --allow-read="));
    for outside in ["c", "a/../c", "."] {
        let refused = found(&format!("{{ read = '{}' }}", folder.path(outside)), "1");
        assert!(refused.contains("cannot allow") && refused.contains("--allow-read"), "{refused}");
    }
    let net = "{ net = { '127.0.0.1:9', '127.0.0.1:10' } }";
    let refused = "cannot connect to 127.0.0.1:11: it needs --allow-net=127.0.0.1:11";
    assert_eq!(found(net, "net.connect('127.0.0.1:11')"), refused);
    assert!(found(net, "net.connect('127.0.0.1:9')").contains("refused"));
    let more = found("{ net = '127.0.0.2' }", "1");
    assert!(more.ends_with("cannot allow 127.0.0.2: it needs --allow-net=127.0.0.2"), "{more}");
    let env = "{ env = 'HOME' }";
    assert_eq!(found(env, "os.getenv('HOME') ~= ''"), "true");
    assert!(found(env, "os.getenv('PATH')").contains("it needs --allow-env=PATH"));
    assert!(found("{ env = 'USER' }", "1").contains("it needs --allow-env=USER"));
    assert!(found("{ listen = 'x' }", "1").contains("is true or false"));
}

#[test]
fn a_list_of_objects_for_a_child_is_bounded() {
    let given = |permission: &str, list: &str| {
        let source = format!(
            "function child(main) process.send(main, 'started') end
             function main()
               local list = {{}}
               {list}
               local ok, cause = pcall(process.spawn, {{ 'child', allow = {{ {permission} = list }} }}, process.self())
               return ok and process.receive() or cause
             end"
        );
        run(&source, Permissions::none().connect().env().read().write())
    };
    for (permission, list, refused) in [
        ("net", "for i = 1, 1024 do list[i] = 'host' .. i end", "started"),
        ("net", "for i = 1, 1025 do list[i] = 'host' .. i end", "1024 objects for \"net\""),
        ("env", "for i = 1, 1025 do list[i] = 'V' .. i end", "1024 objects for \"env\""),
        ("env", "for i = 1, 2 do list[i] = ('x'):rep(1 << 15) end", "started"),
        ("env", "for i = 1, 3 do list[i] = ('x'):rep(1 << 15) end", "65536 bytes together"),
        ("read", "for i = 1, 64 do list[i] = 'file' .. i end", "started"),
        ("read", "for i = 1, 65 do list[i] = 'file' .. i end", "64 objects for \"read\""),
        ("write", "for i = 1, 65 do list[i] = 'file' .. i end", "64 objects for \"write\""),
    ] {
        let found = given(permission, list);
        assert!(found.contains(refused), "{permission}, {list}: {found}");
    }
}

/// Returns the number of descriptors that the program has open below a folder.
fn open_below(folder: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").expect("the system has it");
    let paths = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(folder)).count()
}

/// The permissions of a child keep folders open: each once, and counted by the limits.
#[test]
fn folders_that_a_child_keeps_open_are_shared_and_count_as_sockets() {
    let below = |folder: &Folder, names: &[&str]| {
        names.iter().fold(Permissions::none(), |given, name| {
            given.read_below(folder.path(name)).expect("it is there")
        })
    };
    let cause = "`limited` and all processes below it may have 3 sockets";
    for (opened, end, permit) in [
        (2, cause, &(|_: &Folder| Permissions::none().read()) as &dyn Fn(&Folder) -> Permissions),
        (2, cause, &|folder| below(folder, &["."])),
        // The child shares the folders of its parent.
        (0, "; ready", &|folder| below(folder, &["a", "b", "c"])),
    ] {
        let (more, text) = opened_for_children(permit);
        assert_eq!(more, opened, "{text}");
        assert!(text.ends_with(end), "{text}");
    }
}

/// Returns the number of folders that the children of a process have opened, and the end of the
/// program.
fn opened_for_children(permit: &dyn Fn(&Folder) -> Permissions) -> (usize, String) {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let folder = Folder::new(&format!("open-{}", RUNS.fetch_add(1, Relaxed)));
    for name in ["a", "b", "c"] {
        fs::create_dir(folder.path(name)).expect("the folder is there");
    }
    let list = |names: &[&str]| {
        let paths = names.iter().map(|name| format!("{:?}", folder.path(name)));
        paths.collect::<Vec<_>>().join(", ")
    };
    let (two, four) = (list(&["a/1", "a/2", "b/1", "b"]), list(&["a", "b", "c", "c/1"]));
    let source = format!(
        "local function allowed(paths) return {{ 'child', allow = {{ read = paths }} }} end
         function child(main) process.send(main, 'ready') process.receive() end
         function limited(main)
           local own = process.self()
           local kept = process.spawn(allowed {{ {two} }}, own)
           assert(process.receive() == 'ready')
           local ok, cause = pcall(process.spawn, allowed {{ {four} }}, own)
           if ok then cause = process.receive() end
           process.send(main, cause)
           process.receive()
           process.exit(kept, 'kill')
           -- The child lets go of its folders.
           local again
           repeat
             process.yield()
             ok, again = pcall(process.spawn, allowed {{ {four} }}, own)
           until ok
           process.send(main, 'let go')
         end
         function main()
           local pid = process.spawn({{ 'limited', limits = {{ sockets = 3 }} }}, process.self())
           local cause = process.receive()
           process.call('test', 'count')
           process.send(pid, 'go on')
           return process.receive(20000) .. '; ' .. cause
         end"
    );
    let permissions = permit(&folder);
    let before = open_below(&folder.0);
    let program = Program::load("test", &*source).expect("it is Lua").permissions(permissions);
    let scheduler = Scheduler::builder().worker_threads(2).build().expect("the system has threads");
    let path = folder.0.clone();
    let host = scheduler.start(move |mut cx: procession::Context<Message>| async move {
        let Some(Message::Call { from, tag, .. }) = cx.recv().await else { return 0 };
        let count = open_below(&path);
        let answer = Message::Answer { tag, value: Value::Nil };
        procession::mailbox::send(from, answer).expect("it waits");
        count
    });
    scheduler.register("test", host.pid()).expect("the name is free");
    let main = program.spawn_with(SpawnOptions::new().on(&scheduler), "main", []);
    let ended = main.expect("it has main").join_timeout(TIMEOUT);
    let Ok(Ok(Value::String(text))) = ended else { panic!("it must end: {ended:?}") };
    let count = host.join_timeout(TIMEOUT).expect("it ends").expect("it does not fail");
    (count - before, String::from_utf8_lossy(&text).into_owned())
}

/// The kernel shows the host in `/proc`: its variables, its memory, and what it has opened.
#[test]
fn files_of_proc_need_all_permissions() {
    let folder = Folder::new("proc");
    symlink("/proc/self/environ", folder.path("link")).expect("the folder is there");
    symlink("loop", folder.path("loop")).expect("the folder is there");
    let link = format!("fs.read({:?})", folder.path("link"));
    let needed = "which has the memory and variables of the host: it needs --allow-all";
    let environ = "fs.read('/proc/self/environ', 0, 1)";
    let reads = Permissions::none().read();
    for call in [
        environ,
        "fs.read('/proc/self/mem', 0, 1)",
        "fs.lines('/proc/self/maps')()",
        "fs.size('/proc/self/exe')",
        "fs.list('/proc/self/fd')",
        "fs.read('/proc/self/cwd/Cargo.toml')",
        "fs.read('/proc/self/root/etc/passwd')",
        "fs.read('/dev/fd/1')",
        &link,
    ] {
        let refused = result(call, &reads);
        assert!(refused.starts_with("cannot ") && refused.ends_with(needed), "{call}: {refused}");
    }
    let circle = result(&format!("fs.read({:?})", folder.path("loop")), &reads);
    assert!(circle.contains("symbolic links"), "{circle}");
    let writes = Permissions::none().read().write().env().connect().listen();
    for call in [
        "fs.write('/proc/self/mem', 'x')",
        "fs.append('/proc/self/comm', 'x')",
        "fs.write('/proc/self/cwd/new.txt', 'x')",
        "fs.make_directory('/proc/self/cwd/new')",
        "fs.remove('/proc/self/cwd/new.txt')",
    ] {
        let refused = result(call, &writes);
        assert!(refused.ends_with(needed), "{call}: {refused}");
    }
    let below = |path: &str| Permissions::none().read_below(path).expect("it is there");
    for path in ["/", "/proc", "/proc/self"] {
        let call = format!("fs.read('/proc/{}/environ', 0, 1)", std::process::id());
        let refused = result(&call, &below(path));
        assert!(refused.ends_with(needed), "{path}: {refused}");
    }
    // A named file is meant.
    assert_eq!(result("#fs.read('/proc/self/environ', 0, 1)", &below("/proc/self/environ")), "1");
    assert_eq!(result(&format!("#{environ}"), &Permissions::all()), "1");
    // A child cannot name what its parent may not use.
    let child = |allow: &str, permissions: &Permissions| {
        let source = format!(
            "function child(main) process.send(main, select(2, {environ}) or 'read') end
             function main()
               local ok, cause = pcall(process.spawn, {{ 'child', allow = {{ {allow} }} }}, process.self())
               return ok and process.receive() or cause
             end"
        );
        run(&source, permissions.clone())
    };
    for permissions in [&writes, &below("/"), &below("/proc")] {
        let named = format!("read = '/proc/{}/environ'", std::process::id());
        let refused = child(&named, permissions);
        assert!(refused.contains("cannot allow ") && refused.ends_with(needed), "{refused}");
    }
    assert_eq!(child("read = '/proc/self/environ'", &Permissions::all()), "read");
    for allow in ["env = false", "read = '/proc'", "exits = false"] {
        let refused = child(allow, &Permissions::all());
        assert!(refused.ends_with(needed), "{allow}: {refused}");
    }
}
