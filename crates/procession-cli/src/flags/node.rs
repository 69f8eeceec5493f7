//! The options of the commands that are nodes of a cluster.

use std::path::PathBuf;

use crate::flags::commands::Command;
use crate::flags::table::{Flag, Parsed, Takes, key};
use crate::flags::usage::UsageError;

const BOTH: &[Command] = &[Command::Node, Command::Cluster];
const NODE: &[Command] = &[Command::Node];

type Set = fn(&mut Parsed, &std::ffi::OsStr) -> Result<(), UsageError>;

const fn value(
    long: &'static str,
    name: &'static str,
    help: &'static str,
    of: &'static [Command],
    set: Set,
) -> Flag {
    Flag { long, short: None, help, of, takes: Takes::Value(name, set) }
}

const fn plain(
    long: &'static str,
    help: &'static str,
    of: &'static [Command],
    set: fn(&mut Parsed),
) -> Flag {
    Flag { long, short: None, help, of, takes: Takes::Nothing(set) }
}

pub(super) const FLAGS: &[Flag] = &[
    value("name", "NAME", "be the node NAME, a word, @ and a host", BOTH, |parsed, name| {
        parsed.node.name = Some(key("--name", name)?);
        Ok(())
    }),
    value(
        "cookie-file",
        "FILE",
        "read the cookie from FILE; node creates it (~/.erlang.cookie)",
        BOTH,
        |parsed, file| {
            parsed.node.cookie_file = Some(PathBuf::from(file));
            Ok(())
        },
    ),
    value(
        "listen",
        "ADDR",
        "accept other nodes at ADDR, an IP address and a port (127.0.0.1:0, any free port)",
        NODE,
        |parsed, address| {
            parsed.node.listen = Some(key("--listen", address)?);
            Ok(())
        },
    ),
    plain("no-epmd", "do not register the port at the EPMD of this machine", NODE, |parsed| {
        parsed.node.no_epmd = true;
    }),
    value(
        "peer",
        "NODE[:PORT]",
        "stay connected to NODE, at PORT or where its EPMD says; the program may use it",
        NODE,
        |parsed, peer| {
            parsed.node.peers.push(key("--peer", peer)?);
            Ok(())
        },
    ),
    value(
        "grant-look",
        "NODES",
        "let NODES (word@host, *@host or *) ask for the status",
        NODE,
        |parsed, nodes| {
            parsed.node.looks.push(key("--grant-look", nodes)?);
            Ok(())
        },
    ),
    value(
        "grant-exits",
        "NODES",
        "let NODES link to processes and send them exit signals",
        NODE,
        |parsed, nodes| {
            parsed.node.exits.push(key("--grant-exits", nodes)?);
            Ok(())
        },
    ),
    value(
        "grant-send",
        "NODES[=NAME]",
        "let only NODES, and others with such a grant, send: to all processes, or to NAME",
        NODE,
        |parsed, sends| {
            parsed.node.sends.push(key("--grant-send", sends)?);
            Ok(())
        },
    ),
    value(
        "grant-monitor",
        "NODES",
        "let only NODES, and those that may send, monitor processes",
        NODE,
        |parsed, nodes| {
            parsed.node.monitors.push(key("--grant-monitor", nodes)?);
            Ok(())
        },
    ),
    plain("grants-only", "let no node send or monitor without a grant", NODE, |parsed| {
        parsed.node.grants_only = true;
    }),
    value("tls-cert", "FILE", "speak TLS with the certificates in FILE", BOTH, |parsed, file| {
        parsed.node.tls_cert = Some(PathBuf::from(file));
        Ok(())
    }),
    value("tls-key", "FILE", "use the private key in FILE, of mode 0600", BOTH, |parsed, file| {
        parsed.node.tls_key = Some(PathBuf::from(file));
        Ok(())
    }),
    value(
        "tls-ca",
        "FILE",
        "demand certificates of the authority in FILE",
        BOTH,
        |parsed, file| {
            parsed.node.tls_ca = Some(PathBuf::from(file));
            Ok(())
        },
    ),
    plain("accept-plain-text", "talk to other machines without certificates", BOTH, |parsed| {
        parsed.node.accepts_plain_text = true
    }),
    plain("json", "print the status as JSON", &[Command::Cluster], |parsed| {
        parsed.node.json = true;
    }),
];
