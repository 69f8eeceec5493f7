//! The options of the commands that are nodes of a cluster.

use crate::flags::commands::Command;
use crate::flags::table::{Flag, key, seconds};

const BOTH: &[Command] = &[Command::Node, Command::Cluster];
const NODE: &[Command] = &[Command::Node];

pub(super) const FLAGS: &[Flag] = &[
    Flag::value("name", "NAME", "be the node NAME, a word, @ and a host", BOTH, |parsed, name| {
        key("--name", name).map(|it| parsed.node.name = Some(it))
    }),
    Flag::file(
        "cookie-file",
        "read the cookie from FILE; node creates it (~/.erlang.cookie)",
        BOTH,
        |parsed, file| parsed.node.cookie_file = Some(file),
    ),
    Flag::value(
        "listen",
        "ADDR",
        "accept other nodes at ADDR, an IP address and a port (127.0.0.1:0, any free port)",
        NODE,
        |parsed, address| key("--listen", address).map(|it| parsed.node.listen = Some(it)),
    ),
    Flag::plain(
        "no-epmd",
        "do not register the port at the EPMD of this machine",
        NODE,
        |parsed| {
            parsed.node.no_epmd = true;
        },
    ),
    Flag::plain(
        "visible",
        "be seen by nodes of Erlang and Elixir among all nodes",
        NODE,
        |parsed| {
            parsed.node.is_visible = true;
        },
    ),
    Flag::value(
        "patience",
        "SECONDS",
        "give a node up after SECONDS without a sign of life, 1 to 60 (4)",
        NODE,
        |parsed, text| seconds("--patience", text).map(|it| parsed.node.patience = Some(it)),
    ),
    Flag::value(
        "peer",
        "NODE[:PORT]",
        "stay connected to NODE, at PORT or where its EPMD says; the program may use it",
        NODE,
        |parsed, peer| key("--peer", peer).map(|it| parsed.node.peers.push(it)),
    ),
    Flag::value(
        "grant-look",
        "NODES",
        "let NODES (word@host, *@host or *) ask for the status",
        NODE,
        |parsed, nodes| key("--grant-look", nodes).map(|it| parsed.node.looks.push(it)),
    ),
    Flag::value(
        "grant-exits",
        "NODES",
        "let NODES link to processes and send them exit signals",
        NODE,
        |parsed, nodes| key("--grant-exits", nodes).map(|it| parsed.node.exits.push(it)),
    ),
    Flag::value(
        "grant-send",
        "NODES[=NAME]",
        "let only NODES, and others with such a grant, send: to all processes, or to NAME",
        NODE,
        |parsed, sends| key("--grant-send", sends).map(|it| parsed.node.sends.push(it)),
    ),
    Flag::value(
        "grant-monitor",
        "NODES",
        "let only NODES, and those that may send, monitor processes",
        NODE,
        |parsed, nodes| key("--grant-monitor", nodes).map(|it| parsed.node.monitors.push(it)),
    ),
    Flag::plain("grants-only", "let no node send or monitor without a grant", NODE, |parsed| {
        parsed.node.grants_only = true;
    }),
    Flag::file("tls-cert", "speak TLS with the certificates in FILE", BOTH, |parsed, file| {
        parsed.node.tls_cert = Some(file)
    }),
    Flag::file("tls-key", "use the private key in FILE, of mode 0600", BOTH, |parsed, file| {
        parsed.node.tls_key = Some(file)
    }),
    Flag::file("tls-ca", "demand certificates of the authority in FILE", BOTH, |parsed, file| {
        parsed.node.tls_ca = Some(file)
    }),
    Flag::plain(
        "accept-plain-text",
        "talk to other machines without certificates",
        BOTH,
        |parsed| parsed.node.accepts_plain_text = true,
    ),
    Flag::plain("json", "print the status as JSON", &[Command::Cluster], |parsed| {
        parsed.node.json = true;
    }),
];
