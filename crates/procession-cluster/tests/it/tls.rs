//! Nodes with certificates. The certificates in `tests/tls` are good until 2126: `node` is for
//! `localhost` and `127.0.0.1`, `elsewhere` for another host, and `impostor` is by another
//! authority.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;

use procession::{Context, start};
use procession_cluster::{ConnectError, Letter, Node, Term, Tls, TlsError};

use crate::{PATIENCE, connect, cookie, listens, run, seen_by};

fn file(name: &str) -> String {
    format!("{}/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Copies the key to a file with this mode.
fn key(name: &str, mode: u32) -> String {
    let test = std::thread::current().name().map(|name| name.replace("::", "-"));
    let path =
        format!("{}/{}-{name}.key", env!("CARGO_TARGET_TMPDIR"), test.as_deref().unwrap_or("test"));
    std::fs::copy(file(&format!("{name}.key")), &path).expect("the folder is there");
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&path, permissions).expect("it is ours");
    path
}

fn tls(name: &str) -> Tls {
    Tls::read(file(&format!("{name}.crt")), key(name, 0o600), file("authority.crt"))
        .expect("they fit")
}

#[test]
fn nodes_with_certificates_talk() {
    let security = tls("node");
    run(async move {
        let a = listens("a@127.0.0.1").tls(security.clone()).start().await.expect("it starts");
        let b = listens("b@localhost").tls(security.clone()).start().await.expect("it starts");
        connect(&a, &b).await;
        seen_by(&b, &a).await;
        let server = start(|mut cx: Context<Letter>| async move {
            while let Some(letter) = cx.recv().await {
                if let Letter::Call { request, reply } = letter {
                    reply.send_wait(request).await.expect("it is connected");
                }
            }
        });
        let member = b.attach(&server.address().map(|letter| letter));
        for length in [0, 10, 20_000, 15 << 20] {
            let request = Term::from(vec![7; length]);
            let reply = a.call(member.pid(), request.clone(), PATIENCE).await;
            assert_eq!(reply.expect("it replies"), request);
        }
        server.cancel();
        // With a certificate, a node may listen for other machines.
        let wide = Node::builder("c@127.0.0.1").cookie(cookie()).tls(security);
        wide.listen((Ipv4Addr::UNSPECIFIED, 0).into()).start().await.expect("it is secure");
    });
}

#[test]
fn a_wrong_certificate_or_none_is_refused() {
    let [node, elsewhere, impostor] = ["node", "elsewhere", "impostor"].map(tls);
    run(async move {
        let (node, elsewhere, impostor) = (Some(node), Some(elsewhere), Some(impostor));
        let pairs = [
            ("another authority's", &impostor, &node),
            ("the acceptor of another authority", &node, &impostor),
            ("another host's", &elsewhere, &node),
            ("the acceptor of another host", &node, &elsewhere),
            ("plain text to TLS", &None, &node),
            ("TLS to plain text", &node, &None),
        ];
        for (what, of_a, of_b) in pairs {
            let (mut a, mut b) = (listens("a@127.0.0.1"), listens("b@127.0.0.1"));
            if let Some(tls) = of_a {
                a = a.tls(tls.clone());
            }
            if let Some(tls) = of_b {
                b = b.tls(tls.clone());
            }
            let a = a.start().await.expect("it starts");
            let b = b.start().await.expect("it starts");
            let address = b.local_addr().expect("it listens");
            let refused = a.connect_at("b@127.0.0.1", address).await.expect_err(what);
            let is_told = matches!(
                refused,
                ConnectError::Tls(_) | ConnectError::Lost(_) | ConnectError::Handshake(_)
            );
            assert!(is_told, "{what}: {refused}");
            assert!(a.peers().is_empty() && b.peers().is_empty(), "{what}");
        }
    });
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let refused = Tls::read(file("node.crt"), key("node", 0o644), file("authority.crt"));
    assert!(matches!(&refused, Err(TlsError::File(..))), "{refused:?}");
    let refused = Tls::read(file("elsewhere.crt"), key("node", 0o600), file("authority.crt"));
    assert!(matches!(&refused, Err(TlsError::Certificate(_))), "{refused:?}");
    let refused = Tls::read(key("node", 0o600), key("node", 0o600), file("authority.crt"));
    assert!(matches!(&refused, Err(TlsError::Pem(_))), "{refused:?}");
}
