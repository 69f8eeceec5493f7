//! The entries of the reference.

/// A function of the library.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its name, parameters and results, as in `json.decode(text: string): any, string?`. A name
    /// with a colon is a method.
    pub(super) signature: &'static str,
    /// The description, which begins with a verb.
    pub(super) description: &'static str,
}

const fn function(signature: &'static str, description: &'static str) -> Function {
    Function { signature, description }
}

/// The global tables with functions that the host of a program chooses.
pub(crate) const HOST_TABLES: &[&str] = &["command"];

/// The functions of the library, by the tables of `docs/LUA.md`.
pub(crate) const SECTIONS: &[&[Function]] = &[
    PROCESS,
    GROUPS,
    SUPERVISORS,
    VALUES,
    CLOCK,
    FILES,
    SOCKETS,
    READERS,
    DATAGRAMS,
    HTTP,
    NODE,
    ERLANG,
];

const PROCESS: &[Function] = &[
    function(
        "process.spawn(name: entry, ...: any): pid",
        "starts a process that calls the global function `name`, or as [below](#limits-of-a-process-that-you-start), with copies of the other arguments; returns its PID",
    ),
    function(
        "process.spawn_link(name: entry, ...: any): pid",
        "starts a process like `spawn`, and links it to this one",
    ),
    function("process.self(): pid", "returns the PID of this process"),
    function(
        "process.send(to: target, message: any): boolean, string|nil",
        "sends to a PID or a name; returns `true` if the process accepted the message, `false` if it has ended, and `false` and the cause if its mailbox is full; an unknown name is an error",
    ),
    function(
        "process.receive(ms?: number): any, call|string|nil, \"down\"|\"exit\"|\"node_up\"|\"node_down\"|nil",
        "waits for a message and returns it; see below",
    ),
    function(
        "process.call(to: target, request: any, ms?: number): any, string?",
        "sends a request and returns the reply; returns `nil` and the cause if the process ends or the time is over",
    ),
    function("process.reply(call: call, value: any): boolean", "replies to a call, once"),
    function(
        "process.link(to: target): boolean",
        "links two processes, so that if one fails, the other fails as well",
    ),
    function("process.unlink(to: target): boolean", "removes a link"),
    function(
        "process.trap_exits(traps?: boolean): boolean",
        "if `true` (the default), exits of linked processes arrive as messages; returns the previous setting",
    ),
    function(
        "process.monitor(to: target): boolean",
        "sends this process a message when the other process ends",
    ),
    function(
        "process.exit(to: target, reason?: string): boolean",
        "[ends](#ends-of-processes) a process for the reason `\"shutdown\"` (the default), `\"normal\"`, `\"kill\"`, or any other text for a failure",
    ),
    function(
        "process.cancel(to: target): boolean",
        "[asks](#cancels) a process to end; returns `true` if it exists",
    ),
    function("process.register(name: string): boolean", "registers this process"),
    function("process.whereis(name: string): pid?", "returns the PID with this name, or `nil`"),
    function(
        "process.send_after(ms: number, to: target, message: any): integer|false",
        "sends later; returns the number of the timer, or `false` if the process has ended or takes no messages",
    ),
    function(
        "process.cancel_timer(timer: integer|false): boolean",
        "cancels a timer; returns `false` if it has fired or never was",
    ),
    function(
        "process.info(of?: target): table?",
        "describes a process, by default this one; see below",
    ),
    function("process.yield()", "lets all processes run that are ready"),
    function("process.cancelled(): boolean", "returns `true` if this process was cancelled"),
];

const GROUPS: &[Function] = &[
    function(
        "group.join(name: string, pid?: target): boolean",
        "adds a process, by default this one; returns `false` if it was a member before",
    ),
    function(
        "group.leave(name: string, pid?: target): boolean",
        "removes a process, by default this one; returns `false` if it was no member",
    ),
    function(
        "group.members(name: string): pid[]",
        "returns the members in the order of their joins",
    ),
    function(
        "group.send(name: string, message: any): integer",
        "sends to each member; returns how many accepted the message",
    ),
];

const SUPERVISORS: &[Function] = &[
    function(
        "supervisor.start(description: supervisor_description): pid?, string?",
        "starts a supervisor, linked to this process; returns its PID",
    ),
    function(
        "supervisor.start_child(supervisor: target, child: child): pid?, string?",
        "adds a child, and starts it; returns its PID",
    ),
    function(
        "supervisor.terminate_child(supervisor: target, child: pid|string): boolean?, string?",
        "stops the child with this id or PID",
    ),
    function(
        "supervisor.restart_child(supervisor: target, id: string): pid?, string?",
        "starts a child that was stopped; returns its PID",
    ),
    function(
        "supervisor.delete_child(supervisor: target, id: string): boolean?, string?",
        "forgets a child that was stopped",
    ),
    function(
        "supervisor.which(supervisor: target): table[]?, string?",
        "returns the children: tables `{ id, pid, status, restart, is_supervisor }`",
    ),
    function(
        "supervisor.count(supervisor: target): table?, string?",
        "returns the numbers of children: a table `{ children, running, supervisors }`",
    ),
];

const VALUES: &[Function] = &[
    function("time.now(): number", "returns the milliseconds since this process began"),
    function(
        "time.sleep(ms: number): boolean",
        "waits; returns `false` if a cancel ended the wait, else `true`",
    ),
    function(
        "json.encode(value: any): string",
        "returns text; keys 1 to n make an array, strings as keys make an object, sorted by key",
    ),
    function(
        "json.decode(text: string): any, string?",
        "returns a value, or `nil` and the cause; `null` becomes `nil`; at most 64 levels",
    ),
    function("log.debug(...: any)", "writes a line to standard error, with level and PID"),
    function("log.info(...: any)", "like `log.debug`"),
    function("log.warn(...: any)", "like `log.debug`"),
    function("log.error(...: any)", "like `log.debug`"),
    function("os.getenv(name: string): string?", "returns a variable of the environment, or `nil`"),
    function("print(...: any)", "writes a line to standard output"),
    function("io.write(...: string|number)", "like `print`, without an end of line"),
    function(
        "io.read(format?: string|integer): string?, string?",
        "reads standard input: `\"l\"` (the default) a line, `\"L\"` a line with its end, `\"a\"` everything, a number that many bytes; returns `nil` at the end, or `nil` and the cause",
    ),
    function("io.lines(): fun(): string?", "returns an iterator over the lines of standard input"),
];

const CLOCK: &[Function] = &[
    function("time.since_epoch(): number", "returns the milliseconds since 1970"),
    function(
        "os.time(date?: table): integer",
        "returns the seconds since 1970, now or at a date `{ year, month, day [, hour] [, min] [, sec] }`, whose fields it completes",
    ),
    function(
        "os.date(format?: string, seconds?: integer): string|table",
        "formats a time as Lua does, or returns the fields of a date for `\"*t\"`",
    ),
];

const DATAGRAMS: &[Function] = &[
    function("net.udp(address: string): udp?, string?", "returns a UDP socket at `\"host:port\"`"),
    function(
        "udp:send_to(address: string, bytes: string, ms?: number): boolean?, string?",
        "sends a datagram",
    ),
    function(
        "udp:receive_from(ms?: number): string?, string?",
        "waits for a datagram; returns its bytes and its sender",
    ),
    function("udp:address(): string", "returns the address of the socket"),
    function("udp:close()", "like `connection:forget`"),
];

const FILES: &[Function] = &[
    function(
        "fs.read(path: string, from?: integer, count?: integer): string?, string?",
        "returns bytes, starting at the offset `from`, as many as the memory limit leaves",
    ),
    function(
        "fs.write(path: string, bytes: string): boolean?, string?",
        "writes a file, and replaces an existing file",
    ),
    function(
        "fs.append(path: string, bytes: string): boolean?, string?",
        "writes at the end of a file, and creates it if there is none",
    ),
    function("fs.list(path: string): string[]?, string?", "returns the sorted names in a folder"),
    function(
        "fs.kind(path: string): string?, string?",
        "returns `\"file\"`, `\"directory\"` or `\"other\"`",
    ),
    function("fs.make_directory(path: string): boolean?, string?", "makes a folder"),
    function("fs.remove(path: string): boolean?, string?", "removes a file or an empty folder"),
    function(
        "fs.rename(from: string, to: string): boolean?, string?",
        "renames a file or a folder, and replaces an existing file",
    ),
    function("fs.size(path: string): integer?, string?", "returns the size in bytes"),
    function(
        "fs.lines(path: string): fun(): string?",
        "returns an iterator over the lines, without their ends; raises an error if the file cannot be read",
    ),
];

const SOCKETS: &[Function] = &[
    function(
        "net.listen(address: string, options?: socket_options): listener?, string?",
        "returns a listener at `\"host:port\"`; for options see [TLS](#tls)",
    ),
    function("listener:accept(): connection?, string?", "waits for the next connection"),
    function("listener:address(): string", "returns the address of the listener"),
    function("listener:close()", "closes the listener for this process"),
    function("listener:forget()", "like `connection:forget`"),
    function(
        "net.connect(address: string, ms?: number, options?: socket_options): connection?, string?",
        "returns a connection; for options see [TLS](#tls)",
    ),
    function(
        "connection:read(most?: integer, ms?: number): string?, string?",
        "returns bytes that have arrived, at most 65 536; `nil` at the end",
    ),
    function("connection:write(bytes: string, ms?: number): boolean?, string?", "writes all bytes"),
    function("connection:close()", "closes a connection, for all processes"),
    function("connection:forget()", "closes the socket for this process alone"),
    function(
        "net.serve(listener: listener, name: entry, ...: any)",
        "serves connections; see below",
    ),
    function("net.reader(connection: connection): reader", "returns a reader; see below"),
];

const READERS: &[Function] = &[
    function(
        "reader.line(most?: integer, ms?: number): string?, string?",
        "returns a line without its end, or `nil` and `\"too long\"` beyond `most` bytes, by default 65 536",
    ),
    function(
        "reader.lines(most?: integer, ms?: number): fun(): string?",
        "returns an iterator, which ends when `reader.line` fails",
    ),
    function(
        "reader.exactly(count: integer, ms?: number): string?, string?",
        "returns `count` bytes",
    ),
    function("reader.wait(ms?: number): boolean?, string?", "waits until bytes are buffered"),
    function("reader.buffered(): integer", "returns the number of buffered bytes"),
];

const HTTP: &[Function] = &[
    function(
        "http.serve(listener: listener, name: entry, ms?: number)",
        "serves HTTP/1.1 until a cancel, as `net.serve` does",
    ),
    function(
        "http.request(request: string|table): table?, string?",
        "sends a request; returns a table `{ status, headers, body }`",
    ),
    function(
        "http.get(url: string, ms?: number): table?, string?",
        "gets the URL, like `http.request`",
    ),
    function(
        "http.post(url: string, body: string, ms?: number): table?, string?",
        "posts the body to the URL, like `http.request`",
    ),
];

const NODE: &[Function] = &[
    function("node.name(): string?", "returns the name of the node, or `nil` without one"),
    function(
        "node.connect(name: string, address?: string, ms?: number): boolean?, string?",
        "connects to a node, at `address` or where its EPMD says; returns `true` also if it is connected already",
    ),
    function(
        "node.peers(): table[]",
        "returns a table for each connected node: `name`, `age`, `queued_bytes`, `sent`, `received`, `refused`, `not_allowed`, `denied`, and, if known, `round_trip` and `unconfirmed`; times are in milliseconds",
    ),
    function(
        "node.send(name: string, node: string, message: any): boolean, string?",
        "sends to a name on a node; returns `true` if the queue of the connection took the message",
    ),
    function(
        "node.call(name: string, node: string, request: any, ms?: number): any, string?",
        "calls it as `GenServer.call` does; returns the reply",
    ),
    function(
        "node.monitor(name: string, node: string): boolean?, string?",
        "reports when the process ends, or its node cannot be reached",
    ),
    function(
        "node.subscribe(): boolean",
        "reports each node that is connected or will be, and the end of each connection",
    ),
];

const ERLANG: &[Function] = &[
    function(
        "node.atom(text: string): userdata",
        "returns the atom; equal atoms are the same object",
    ),
    function("node.tuple(...: any): table", "returns a table that is sent as a tuple"),
    function("node.map(entries: table): table", "returns a copy of a table that is sent as a map"),
    function(
        "node.kind(value: any): string",
        "returns the type that the value has in Erlang: `\"atom\"`, `\"integer\"`, `\"float\"`, `\"binary\"`, `\"list\"`, `\"tuple\"`, `\"map\"`, `\"pid\"`, `\"reference\"` or another",
    ),
    function(
        "node.format(value: any): string",
        "returns the value in the notation of Erlang, up to 1 MiB",
    ),
];

/// The globals of Lua itself that programs have. A line holds the fields of one table, or the
/// functions and tables outside of any.
pub(crate) const LUA: &[(&str, &str)] = &[
    (
        "",
        "_G _VERSION assert coroutine error getmetatable ipairs load math next package pairs pcall rawequal rawget rawlen rawset require select setmetatable string table tonumber tostring type utf8 xpcall",
    ),
    ("coroutine", "close create isyieldable resume running status wrap yield"),
    (
        "math",
        "abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max maxinteger min mininteger modf pi pow rad random randomseed sin sinh sqrt tan tanh tointeger type ult",
    ),
    (
        "string",
        "byte char find format gmatch gsub len lower match pack packsize rep reverse sub unpack upper",
    ),
    ("package", "loaded"),
    ("table", "concat insert move pack remove sort unpack"),
    ("utf8", "char charpattern codepoint codes len offset"),
];
