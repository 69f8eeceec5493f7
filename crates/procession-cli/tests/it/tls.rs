//! TLS of programs in Lua, with the certificates that the options name.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rcgen::{CertifiedKey, generate_simple_self_signed};

use super::procession;

const SERVER: &str = "
  function answer(request) return request.path end
  function main()
    local listener = assert(net.listen('127.0.0.1:0', { tls = true }))
    print(listener:address())
    http.serve(listener, 'answer')
  end";
const CLIENT: &str = "
  function main(url)
    local response, cause = http.get(url)
    print(response and response.body or cause)
  end";

/// Makes a folder with the programs and a certificate for this machine.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).expect("the folder can be made");
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("there is entropy");
    for (file, content) in [
        ("server.lua", SERVER),
        ("client.lua", CLIENT),
        ("own.pem", &cert.pem()),
        ("own.key", &signing_key.serialize_pem()),
    ] {
        fs::write(path.join(file), content).expect("the file can be written");
    }
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path.join("own.key"), mode).expect("it is ours");
    path
}

fn run(folder: &Path, arguments: &str) -> (String, String) {
    let output = procession(arguments).current_dir(folder).output().expect("it can be started");
    let text = |bytes| String::from_utf8(bytes).expect("it is text");
    (text(output.stdout), text(output.stderr))
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Ignored: it may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_program_serves_and_a_program_asks_with_the_certificates_of_the_options() {
    let folder = folder("tls-options");
    let options = "run --allow-listen --tls-cert own.pem --tls-key own.key server.lua";
    let mut command = procession(options);
    command.current_dir(&folder).stdout(Stdio::piped());
    let mut server = Server(command.spawn().expect("it can be started"));
    let mut address = String::new();
    let output = server.0.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut address).expect("it says where it listens");
    let address = address.trim_end();
    for (options, wanted) in [
        (format!("--allow-net={address} --tls-roots own.pem"), "/it\n".to_owned()),
        (
            "--allow-net=127.0.0.1:1 --tls-roots own.pem".to_owned(),
            format!("cannot connect to {address}: it needs --allow-net={address}\n"),
        ),
    ] {
        let asked = run(&folder, &format!("run {options} client.lua https://{address}/it"));
        assert_eq!(asked, (wanted, String::new()));
    }
    let (refused, _) = run(&folder, &format!("run --allow-net client.lua https://{address}/it"));
    assert!(refused.starts_with(&format!("cannot connect to {address}: ")), "{refused}");
}

#[test]
fn files_of_options_that_cannot_be_used_are_named_before_the_program_runs() {
    let folder = folder("tls-mistakes");
    for (options, wanted) in [
        ("run --tls-cert own.pem", "a certificate and its key go together: see --help"),
        ("test --tls-key own.key", "a certificate and its key go together: see --help"),
        ("run --tls-roots own.key", "no TLS: own.key has not what it should have in PEM format"),
        (
            "test --tls-roots missing",
            "no TLS: cannot read missing: No such file or directory (os error 2)",
        ),
        (
            "check --tls-roots own.pem",
            "the option '--tls-roots' belongs to another command: see --help",
        ),
    ] {
        let said = run(&folder, &format!("{options} server.lua"));
        assert_eq!(said, (String::new(), format!("procession: {wanted}\n")), "{options}");
    }
}
