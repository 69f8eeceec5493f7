use super::check;

/// Returns the findings as `LINE:COLUMN: MESSAGE`.
fn found(source: &str) -> Vec<String> {
    let findings = check("t", source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let text = |finding: super::Finding| finding.to_string().split_off("t:".len());
    findings.into_iter().map(text).collect()
}

#[test]
fn mistakes_are_found_with_their_places() {
    let cases = [
        ("x = y", "1:5: the global `y` is not defined"),
        ("local t = {}\nt.a = { b = z }", "2:13: the global `z` is not defined"),
        ("process.sned(1, 2)", "1:1: `process` has no function `sned`"),
        ("local f = string.trim", "1:11: `string` has no function `trim`"),
        ("process.send(1)", "1:1: `process.send(to, message)` is called with 1 argument"),
        ("process['send'](1)", "1:1: `process.send(to, message)` is called with 1 argument"),
        ("_G.process.self(1)", "1:1: `process.self()` is called with 1 argument"),
        ("process.receive(1, 2)", "1:1: `process.receive([ms])` is called with 2 arguments"),
        ("process.receive(1, 2, ...)", "1:1: `process.receive([ms])` is called with 2 arguments"),
        ("json.decode()", "1:1: `json.decode(text)` is called with no argument"),
        ("process.spawn('child')", "1:1: the program has no function `child` for `process.spawn`"),
        ("net.serve(1, 'a.b')", "1:1: the program has no function `a.b` for `net.serve`"),
        ("do local y end return y", "1:23: the global `y` is not defined"),
        ("for i = 1, 2 do end return i", "1:28: the global `i` is not defined"),
        (
            "repeat local done = true until done return done",
            "1:44: the global `done` is not defined",
        ),
        ("local function f(a) return a end return a", "1:41: the global `a` is not defined"),
        ("local x = x", "1:11: the global `x` is not defined"),
        ("dofile 'other'", "1:1: the global `dofile` is not defined"),
        ("#!/usr/bin/lua\nreturn y", "2:8: the global `y` is not defined"),
        ("return [[\n]] .. y", "2:7: the global `y` is not defined"),
        ("return 0x1p-2, 1e+5, .5, y", "1:26: the global `y` is not defined"),
        ("-- y\n--[[ y\n]] return 'y\\'', \"y\", y", "3:23: the global `y` is not defined"),
        ("return function(...) return y end", "1:29: the global `y` is not defined"),
        ("t = {} return t:m(y)", "1:19: the global `y` is not defined"),
        ("return not y", "1:12: the global `y` is not defined"),
        ("goto done ::done:: return y", "1:27: the global `y` is not defined"),
    ];
    for (source, expected) in cases {
        assert_eq!(found(source), [expected], "{source}");
    }
}

/// The source may be hostile.
#[test]
fn findings_and_errors_cannot_control_a_terminal() {
    for (source, expected) in [
        (
            "process.spawn('\x1b[2J')",
            "1:1: the program has no function `\\u{1b}[2J` for `process.spawn`",
        ),
        (
            "process.spawn([[a\nb\u{9b}]])",
            "1:1: the program has no function `a b\\u{9b}` for `process.spawn`",
        ),
        ("process['\x1b[2J']()", "1:1: `process` has no function `\\u{1b}[2J`"),
        ("return _G['\x1b[2J'].x", "1:8: the global `\\u{1b}[2J` is not defined"),
    ] {
        assert_eq!(found(source), [expected], "{source}");
    }
    let named = check("\x1b[2J", "return y").expect("it is Lua");
    assert_eq!(named[0].to_string(), "\\u{1b}[2J:1:8: the global `y` is not defined");
    let wrong = check("\x1b[2J", "return 1 '\x1b[2J'").expect_err("it is not Lua").to_string();
    assert!(!wrong.contains('\x1b') && wrong.contains("near ''\\u{1b}[2J''"), "{wrong}");
}

#[test]
fn correct_programs_have_no_findings() {
    for source in [
        "counter = 0 function f() counter = counter + 1 end",
        "function f() later = 1 end return later",
        "function m() end process.spawn('m', 1, 2)",
        "t = {} function t.m() end function t:n() return self end process.spawn('t.m')",
        "process.spawn(name_of()) function name_of() return 'x' end",
        "function string.trim(s) return s end return string.trim('a')",
        "process.send(...)",
        "process.send(1, f()) function f() end",
        "process.send(f()) function f() end",
        "assert(io == nil and nil ~= 1)",
        "_G[1] = 2 return anything, process.own",
        "local _ENV = {} return anything",
        "local process = {} process.sned(1)",
        "command.upper('x')",
        "local a <const>, b <close> = 1, nil return a, b",
        "for k, v in pairs({}) do print(k, v) end",
        "return ('x'):rep(3), (\"y\"):upper() .. [==[ ]] ]==]",
        "while true do break end if 1 then elseif 2 then else end",
        "http.serve(1, 'answer') function answer() end",
        "process.spawn('http.serve', 1, 'answer') function answer() end",
        "print { 1, [2] = 3, a = 4; 5 } print 'x'",
        "return 1 // 2 << 3 >> 4 ~= 5, ~6, 1 .. 2",
    ] {
        assert_eq!(found(source), [""; 0], "{source}");
    }
}

#[test]
fn what_is_not_lua_is_an_error_with_its_line() {
    let error = check("t.lua", "x = = 1").expect_err("it is not Lua").to_string();
    assert!(error.contains("t.lua:1:"), "{error}");
}

#[test]
fn the_programs_and_the_examples_of_the_reference_have_no_findings() {
    let mut sources = Vec::new();
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../programs");
    for entry in std::fs::read_dir(programs).expect("the folder exists") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_some_and(|extension| extension == "lua") {
            sources.push(std::fs::read_to_string(&path).expect("it can be read"));
        }
    }
    assert!(sources.len() >= 5, "the programs were found");
    let document = include_str!("../../../../docs/LUA.md");
    let examples = document.split("```lua\n").skip(1);
    sources.extend(examples.filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())));
    for source in sources {
        assert_eq!(found(&source), [""; 0], "{source}");
    }
}
