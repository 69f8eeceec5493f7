//! TLS by the host. The certificates are made here.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use procession::time::Instant;
use procession::{Context, Scheduler, SpawnOptions};
use procession_lua::{Message, Permissions, Program, Tls, TlsError, Value};
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder with the files of a test, and an authority.
struct Folder {
    path: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Folder {
    fn new(test: &str) -> Self {
        // Two tests that run at the same time may have the same name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tls-{test}-{}", NEXT.fetch_add(1, Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("the folder can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, test);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("there is entropy");
        let authority = CertifiedIssuer::self_signed(params, key).expect("it signs");
        fs::write(path.join("authority.pem"), authority.pem()).expect("it can be written");
        Self { path, authority }
    }

    /// Makes a certificate for `names`, which is good until a year.
    fn certificate(&self, file: &str, names: &[&str], until: i32) {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("these are names");
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("there is entropy");
        let certificate = params.signed_by(&key, &self.authority).expect("it signs");
        fs::write(self.path.join(format!("{file}.pem")), certificate.pem()).expect("it is ours");
        let path = self.path.join(format!("{file}.key"));
        fs::write(&path, key.serialize_pem()).expect("it is ours");
        set_mode(&path, 0o600);
    }

    /// Trusts the authority, and has a certificate.
    fn tls(&self, file: &str) -> Tls {
        let (certificate, key) = (format!("{file}.pem"), format!("{file}.key"));
        let tls = self.trusting();
        let tls = tls.certificate(self.path.join(certificate), self.path.join(key));
        tls.expect("they fit")
    }

    fn trusting(&self) -> Tls {
        Tls::new().trust(self.path.join("authority.pem")).expect("it is one")
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn scheduler() -> Scheduler {
    Scheduler::builder().worker_threads(2).build().expect("the system has threads")
}

fn program(source: &str, tls: Tls) -> Program {
    let program = Program::load("test", source).unwrap_or_else(|error| panic!("{error}: {source}"));
    program.permissions(Permissions::all()).tls(tls)
}

/// Runs `main` of a program with these arguments, and returns its text.
fn run(program: &Program, arguments: &[&str]) -> String {
    run_on(&scheduler(), program, arguments)
}

fn run_on(scheduler: &Scheduler, program: &Program, arguments: &[&str]) -> String {
    let arguments = arguments.iter().map(|&argument| Value::from(argument));
    let main = program.spawn_with(SpawnOptions::new().on(scheduler), "main", arguments);
    match main.expect("it has main").join_timeout(TIMEOUT).expect("it ends") {
        Ok(Value::String(text)) => String::from_utf8(text.to_vec()).expect("it is text"),
        other => panic!("the program must return a text, but: {other:?}"),
    }
}

/// A server. Its `main` returns the address.
const SERVER: &str = "
  function answer(request)
    return { headers = { Path = request.path }, body = request.body:rep(3) }
  end
  function serve(listener) http.serve(listener, 'answer', 10000) end
  function main(host)
    local tls = { protocols = { 'http/1.1' } }
    local listener = assert(net.listen((host or '127.0.0.1') .. ':0', { tls = tls }))
    process.spawn('serve', listener)
    return listener:address()
  end";

/// Returns the body of a URL, or the cause of the failure.
const CLIENT: &str = "
  function main(url)
    local response, cause = http.get(url, 10000)
    return response and response.headers.path or cause
  end";

/// A connection that is closed while something is unread is reset, and what was written last is
/// lost.
#[test]
fn a_client_that_sends_a_long_body_reads_the_refusal() {
    let folder = Folder::new("refused");
    folder.certificate("server", &["127.0.0.1", "localhost"], 2100);
    let scheduler = scheduler();
    let address = run_on(&scheduler, &program(SERVER, folder.tls("server")), &[]);
    let client = "
      function main(address)
        local client = assert(net.connect(address, 10000, { tls = true }))
        local head = 'POST / HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 8388608\\r\\n\\r\\n'
        assert(client:write(head .. ('x'):rep(8388608)))
        local got = ''
        while true do
          local bytes, cause = client:read(65536, 10000)
          if not bytes then return got .. tostring(cause) end
          got = got .. bytes
        end
      end";
    let got = run_on(&scheduler, &program(client, folder.trusting()), &[&address]);
    assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
    assert!(got.ends_with("\r\n\r\nContent Too Large\nnil"), "{got}");
}

#[test]
fn requests_and_answers_of_any_size_pass_through_tls() {
    let folder = Folder::new("sizes");
    folder.certificate("server", &["127.0.0.1", "localhost"], 2100);
    let source = format!(
        "{SERVER}
        local serve_here = main
        function main()
          local base = 'https://' .. serve_here()
          for _, size in ipairs {{ 0, 1, 16384, 100000, 1 << 20 }} do
            local body = ('x'):rep(size)
            local response = assert(http.post(base .. '/a?b', body, 30000))
            assert(response.status == 200 and response.headers.path == '/a')
            assert(response.body == body:rep(3), size)
          end
          return 'done'
        end"
    );
    assert_eq!(run(&program(&source, folder.tls("server")), &[]), "done");
}

#[test]
fn a_server_is_refused_with_the_cause() {
    let folder = Folder::new("refused");
    folder.certificate("good", &["127.0.0.1", "localhost"], 2100);
    folder.certificate("other", &["other.example"], 2100);
    folder.certificate("old", &["127.0.0.1"], 2001);
    let stranger = Folder::new("stranger").trusting();
    let scheduler = scheduler();
    for (server, client, cause) in [
        ("good", folder.trusting(), ""),
        ("other", folder.trusting(), "its certificate is for another name"),
        ("old", folder.trusting(), "its certificate has expired"),
        ("good", stranger, "its certificate is of an unknown authority"),
        ("good", Tls::new(), "its certificate is of an unknown authority"),
    ] {
        let address = run_on(&scheduler, &program(SERVER, folder.tls(server)), &[]);
        let found =
            run_on(&scheduler, &program(CLIENT, client), &[&format!("https://{address}/it")]);
        let wanted = match cause {
            "" => "/it".to_owned(),
            cause => format!("cannot connect to {address}: the peer is refused: {cause}"),
        };
        // The authorities of the system may be missing.
        let is_missing = found.contains("--tls-roots");
        assert!(found == wanted || is_missing, "{found}, and not {wanted}");
    }
}

#[test]
fn the_name_to_check_can_differ_from_the_host() {
    let folder = Folder::new("name");
    folder.certificate("server", &["db.example"], 2100);
    let source = format!(
        "{SERVER}
        local serve_here = main
        function main()
          local address = serve_here()
          local function try(tls)
            local connection, cause = net.connect(address, 10000, {{ tls = tls }})
            return connection and tostring(connection):match('^%a+ %a+') or cause:match('[^:]*$')
          end
          return table.concat({{
            try {{ name = 'db.example' }}, try(true), try {{ name = 'no name' }},
            try {{ name = 'db.example', protocols = {{ 'h2' }} }},
          }}, ',')
        end"
    );
    let found = run(&program(&source, folder.tls("server")), &[]);
    let wanted = "TLS connection, its certificate is for another name, \
                  \"no name\" is no name of a host, it has none of the protocols";
    assert_eq!(found, wanted);
}

#[test]
fn plain_text_and_tls_do_not_mix() {
    let folder = Folder::new("mixed");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let scheduler = scheduler();
    let server = program(SERVER, folder.tls("server"));
    let address = run_on(&scheduler, &server, &[]);
    let mut plain = TcpStream::connect(&address).expect("it listens");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    match plain.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // The server serves others.
    let client = program(CLIENT, folder.trusting());
    assert_eq!(run_on(&scheduler, &client, &[&format!("https://{address}/a")]), "/a");

    // The cause is the same for a program that reads by itself.
    let reads = program(
        "function main()
           local listener = assert(net.listen('127.0.0.1:0', { tls = true }))
           local client = assert(net.connect(listener:address()))
           local server = assert(listener:accept())
           client:write('hello, this is no handshake')
           local none, cause = server:read(nil, 10000)
           local again, same = server:read(nil, 10000)
           assert(none == nil and again == nil and cause == same)
           return cause
         end",
        folder.tls("server"),
    );
    assert_eq!(run_on(&scheduler, &reads, &[]), "the peer is refused: it does not speak TLS");

    let plain = program(&SERVER.replace(", { tls = tls }", ""), Tls::new());
    let address = run_on(&scheduler, &plain, &[]);
    let found = run_on(&scheduler, &client, &[&format!("https://{address}/")]);
    let cause = "the peer is refused: it does not speak TLS";
    assert_eq!(found, format!("cannot connect to {address}: {cause}"));
}

#[test]
fn the_limit_of_time_includes_the_handshake() {
    let folder = Folder::new("silent");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = silent.local_addr().expect("it has one").to_string();
    let source = "
      function main(address)
        local none, cause = net.connect(address, 20, { tls = true })
        assert(none == nil and cause:find(': timeout$'), cause)
        local none, cause = http.get('https://' .. address, 20)
        assert(none == nil and cause:find(': timeout$'), cause)
        -- The other way round, the client is silent, and stays so.
        local listener = assert(net.listen('127.0.0.1:0', { tls = true }))
        local client = assert(net.connect(listener:address()))
        local server = assert(listener:accept())
        local none, cause = server:read(nil, 20)
        assert(none == nil and cause == 'timeout', cause)
        -- The head of a record that does not come.
        client:write('\\22\\3\\1\\1\\0')
        local none, cause = server:read(nil, 20)
        assert(none == nil and cause == 'timeout', cause)
        local none, cause = server:write('hello', 20)
        assert(none == nil and cause == 'timeout', cause)
        client:close()
        local none, cause = server:read(nil, 10000)
        assert(none == nil, cause)
        return cause
      end";
    let found = run(&program(source, folder.tls("server")), &[&address]);
    assert_eq!(found, "the peer cut the connection of TLS off");
}

/// The account of a process has half of its memory: room for 16 sessions.
const SMALL: usize = 2 << 20;

/// The process that accepts has room for fewer sessions than there are connections.
#[test]
fn a_session_counts_for_the_process_of_its_connection() {
    let folder = Folder::new("sessions");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let scheduler = scheduler();
    let server = program(SERVER, folder.tls("server")).memory_limit(SMALL);
    let address = run_on(&scheduler, &server, &[]);
    let client = "
      function main(address)
        local clients = {}
        for i = 1, 40 do
          local client = assert(net.connect(address, 10000, { tls = true }))
          client:write('GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n')
          local got, cause = client:read()
          assert(got and got:find('^HTTP/1.1 200'), cause)
          clients[i] = client
        end
        return 'done'
      end";
    assert_eq!(run_on(&scheduler, &program(client, folder.trusting()), &[&address]), "done");
}

/// The process that accepts keeps its connections, and also gives each to a process that ends. If
/// the sessions counted for these processes, it could hold any number of them.
#[test]
fn a_client_waits_while_there_is_no_room_for_its_session() {
    let folder = Folder::new("waits");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let source = "
      function connects(address, main)
        local clients = {}
        for i = 1, 17 do clients[i] = assert(net.connect(address)) end
        process.send(main, 'connected')
        process.receive()
      end
      function ends() end
      function main()
        local listener = assert(net.listen('127.0.0.1:0', { tls = true }))
        process.spawn('connects', listener:address(), process.self())
        assert(process.receive() == 'connected')
        local kept = {}
        for i = 1, 16 do
          kept[i] = assert(listener:accept())
          process.spawn('ends', kept[i])
        end
        local none, cause = listener:accept()
        kept[1]:close()
        assert(listener:accept())
        return cause
      end";
    let found = run(&program(source, folder.tls("server")).memory_limit(SMALL), &[]);
    assert_eq!(found, "the process has no memory for a session of TLS");
}

#[test]
fn a_slow_client_of_an_http_server_is_ended_by_its_limit() {
    let folder = Folder::new("slow");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let source = SERVER.replace("10000)", "50)");
    let scheduler = scheduler();
    let address = run_on(&scheduler, &program(&source, folder.tls("server")), &[]);
    let mut slow = TcpStream::connect(&address).expect("it listens");
    // A record of 256 bytes, of which none arrives.
    slow.write_all(b"\x16\x03\x01\x01\x00").expect("it listens");
    let mut answer = Vec::new();
    match slow.read_to_end(&mut answer) {
        Ok(_) => assert!(!answer.starts_with(b"HTTP"), "{answer:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// A process that serves one connection.
const ABANDONED: &str = "
    function answer()
      process.send('test', 'begun')
      time.sleep(3600000)
      return 'answer'
    end
    function one()
      local listener = assert(net.listen('127.0.0.1:0', { tls = true }))
      process.send('test', listener:address())
      local connection = assert(listener:accept())
      listener:close()
      http['serve connection'](connection, 'answer', 3600000)
    end
    function client(address)
      local connection = assert(net.connect(address, 10000, { tls = true }))
      assert(connection:write('GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n'))
      process.receive()
    end";

/// Goal: over TLS, too, the request of a client that has closed its connection ends within a limit.
#[test]
fn a_closed_connection_ends_the_request() {
    let folder = Folder::new("closed");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let program = program(ABANDONED, folder.tls("server"));
    let scheduler = Scheduler::builder().worker_threads(1).test_clock().build();
    let scheduler = scheduler.expect("the test clock needs no threads");
    let test = scheduler.start(move |mut cx: Context<Message>| async move {
        procession::process::register("test", cx.pid()).expect("the name is free");
        let one = program.spawn("one", []).expect("it starts");
        let Some(Message::Plain(address)) = cx.recv().await else { panic!("it is an address") };
        let client = program.spawn("client", [address]).expect("it starts");
        assert_eq!(cx.recv().await, Some(Message::Plain("begun".into())));
        client.kill();
        let start = Instant::now();
        one.await.expect("it ends in order");
        assert_eq!((Instant::now() - start).as_secs(), 5);
    });
    scheduler.block_on(test).expect("it is right");
}

/// Goal: over TLS, too, the request of a client that has reset its connection ends.
#[test]
fn a_reset_connection_ends_the_request() {
    let folder = Folder::new("reset");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let program = program(ABANDONED, folder.tls("server"));
    let scheduler = scheduler();
    let (tells, told) = mpsc::channel();
    let test = scheduler.start(move |mut cx: Context<Message>| async move {
        procession::process::register("test", cx.pid()).expect("the name is free");
        let one = program.spawn("one", []).expect("it starts");
        for _ in 0..2 {
            let text = cx.recv().await;
            let Some(Message::Plain(Value::String(text))) = text else { panic!("it is a text") };
            tells.send(text).expect("the test waits");
        }
        one.await.expect("it ends in order");
    });
    let text = || {
        let text = told.recv_timeout(TIMEOUT).expect("the guest sends it");
        String::from_utf8(text.to_vec()).expect("it is text")
    };
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.path.join("authority.pem"));
    roots.add(authority.expect("it is one")).expect("it is one");
    let provider = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("it is a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("it is valid");
    let mut client = StreamOwned::new(session, TcpStream::connect(text()).expect("it listens"));
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("it is connected");
    assert_eq!(text(), "begun");
    scheduler.block_on(async {
        let socket = procession::net::TcpStream::try_from(client.sock).expect("it is a socket");
        socket.set_linger(Some(Duration::ZERO)).expect("it is a socket");
    });
    test.join_timeout(TIMEOUT).expect("it ends").expect("it is right");
}

#[test]
fn a_reader_learns_whether_the_end_is_the_end() {
    let folder = Folder::new("end");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let source = "
      function serve()
        process.register('server')
        local listener = assert(net.listen('127.0.0.1:0', { tls = true }))
        local _, call = process.receive()
        process.reply(call, listener:address())
        local found = {}
        for index = 1, 2 do
          local connection = assert(listener:accept())
          local text, bytes, cause = '', nil, nil
          repeat
            bytes, cause = connection:read(nil, 10000)
            text = text .. (bytes or '')
          until not bytes
          connection:close()
          found[index] = text .. ' ' .. tostring(cause)
        end
        local _, call = process.receive()
        process.reply(call, table.concat(found, ','))
      end
      function main() return (process.call(process.spawn('serve'), 'address')) end";
    let ends = "function main() return (process.call('server', 'result')) end";
    let scheduler = scheduler();
    let address = run_on(&scheduler, &program(source, folder.tls("server")), &[]);

    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.path.join("authority.pem"));
    roots.add(authority.expect("it is one")).expect("it is one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    for says_so in [true, false] {
        let name = "127.0.0.1".try_into().expect("it is one");
        let session = rustls::ClientConnection::new(Arc::new(config.clone()), name);
        let socket = TcpStream::connect(&address).expect("it listens");
        let mut stream = rustls::StreamOwned::new(session.expect("it begins"), socket);
        stream.write_all(b"hello").expect("it reads");
        if says_so {
            stream.conn.send_close_notify();
        }
        stream.flush().expect("it reads");
        stream.sock.shutdown(Shutdown::Write).expect("it is open");
        // Ignored: with bytes that it had not read, this end would reset the connection.
        drop(stream.read_to_end(&mut Vec::new()));
    }
    let found = run_on(&scheduler, &program(ends, Tls::new()), &[]);
    assert_eq!(found, "hello nil,hello the peer cut the connection of TLS off");
}

/// A server sends tickets that the client never asked for and may not read.
#[test]
fn what_a_client_writes_before_it_closes_is_not_lost() {
    let folder = Folder::new("tickets");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let listen = || TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let (listener, told) = (listen(), listen());
    let address = |listener: &TcpListener| listener.local_addr().expect("it has one").to_string();
    let addresses = [address(&listener), address(&told)];
    let file = |name: &str| folder.path.join(name);
    let certificate = CertificateDer::from_pem_file(file("server.pem")).expect("it is one");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("it is one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they fit");
    let accept = move || {
        let (mut socket, _) = listener.accept().expect("it listens");
        let session = rustls::ServerConnection::new(Arc::new(config));
        let mut session = session.expect("it begins");
        while session.is_handshaking() || session.wants_write() {
            session.complete_io(&mut socket).expect("the client does its part");
        }
        // The tickets are in the client's socket.
        drop(told.accept().expect("it listens"));
        rustls::StreamOwned::new(session, socket)
    };
    let source = "
      function main(address, told)
        local connection = assert(net.connect(address, 10000, { tls = true }))
        assert(not assert(net.connect(told, 10000)):read())
        assert(connection:write(('x'):rep(400000)))
        connection:close()
        return 'closed'
      end";
    let addresses = addresses.each_ref().map(String::as_str);
    let mut stream = std::thread::scope(|scope| {
        let server = scope.spawn(accept);
        assert_eq!(run(&program(source, folder.trusting()), &addresses), "closed");
        server.join().expect("it accepts")
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("nothing is lost");
    assert_eq!(received.len(), 400_000);
}

#[test]
fn a_writer_waits_for_a_reader_that_begins_late() {
    let folder = Folder::new("late");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let source = "
      local SIZE = 24 << 20
      function write(connection) assert(connection:write(('y'):rep(SIZE))) connection:close() end
      function main()
        local listener = assert(net.listen('127.0.0.1:0', { tls = true }))
        process.spawn('accept', process.self(), listener)
        local client = assert(net.connect(listener:address(), 10000, { tls = true }))
        local server = process.receive(10000)
        process.monitor(process.spawn('write', server))
        server:forget()
        -- The sockets and the session do not hold all of it.
        local down, cause = process.receive(50)
        assert(down == nil and cause == 'timeout')
        local count = 0
        repeat
          local bytes, cause = client:read()
          assert(not bytes or not bytes:find('[^y]'))
          count = count + #(bytes or '')
          assert(cause == nil, cause)
        until not bytes
        assert(count == SIZE, count)
        local reason = process.receive(10000).reason
        assert(reason == 'the process ended normally', reason)
        return 'done'
      end
      function accept(parent, listener)
        local connection = assert(listener:accept())
        -- The handshake needs both sides.
        assert(connection:write(''))
        process.send(parent, connection)
      end";
    assert_eq!(run(&program(source, folder.tls("server")), &[]), "done");
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new("mistakes");
    folder.certificate("server", &["127.0.0.1"], 2100);
    let tls = folder.tls("server");
    for (call, wanted, tls) in [
        (
            "net.listen('127.0.0.1:0', { tls = true })",
            "cannot listen at 127.0.0.1:0: the host gives the program no certificate: it needs --tls-cert",
            Tls::new(),
        ),
        (
            "net.listen('127.0.0.1:0', { tls = { name = 'a' } })",
            "cannot listen at 127.0.0.1:0: `name` is for connections, and a listener has none",
            tls.clone(),
        ),
        (
            "net.listen('127.0.0.1:0', { tsl = true })",
            "the only option of a socket is `tls`",
            tls.clone(),
        ),
        (
            "net.listen('127.0.0.1:0', true)",
            "argument 2 must be a table of options, not boolean",
            tls.clone(),
        ),
        (
            "net.connect('127.0.0.1:9', 1, { tls = 1 })",
            "`tls` must be a boolean or a table",
            tls.clone(),
        ),
        (
            "net.connect('127.0.0.1:9', 1, { tls = { protocols = { '' } } })",
            "`protocols` must be a list of at most 16 texts of 1 to 255 bytes",
            tls.clone(),
        ),
        (
            "net.connect('127.0.0.1:9', 1, { tls = { protocols = { first = 'h2' } } })",
            "`protocols` must be a list of at most 16 texts of 1 to 255 bytes",
            tls.clone(),
        ),
        (
            "net.connect('127.0.0.1:9', 1, { tls = { key = 'a' } })",
            "`tls` may have a text `name` and a list of texts `protocols`",
            tls,
        ),
    ] {
        let source = format!("function main() return select(2, {call}) end");
        assert_eq!(run(&program(&source, tls), &[]), wanted);
    }
}

#[test]
fn files_that_are_no_certificates_are_refused() {
    let folder = Folder::new("files");
    folder.certificate("server", &["127.0.0.1"], 2100);
    folder.certificate("other", &["127.0.0.1"], 2100);
    let file = |name: &str| folder.path.join(name);
    fs::write(file("empty"), "").expect("it is ours");
    assert!(matches!(Tls::new().trust(file("missing")), Err(TlsError::File(..))));
    assert!(
        matches!(Tls::new().trust(file("empty")), Err(TlsError::Pem(path)) if path == file("empty"))
    );
    let certificate = |name: &str, key: &str| Tls::new().certificate(file(name), file(key));
    assert!(matches!(certificate("server.pem", "other.key"), Err(TlsError::Certificate(..))));
    assert!(matches!(
        certificate("server.pem", "server.pem"),
        Err(TlsError::File(..) | TlsError::Pem(_))
    ));
    assert!(matches!(certificate("empty", "server.key"), Err(TlsError::Pem(_))));
    set_mode(&file("server.key"), 0o644);
    let error = certificate("server.pem", "server.key").expect_err("all can read it");
    assert!(error.to_string().contains("its mode is 644"), "{error}");
    set_mode(&file("server.key"), 0o640);
    certificate("server.pem", "server.key").expect("some may read it");
}
