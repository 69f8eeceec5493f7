//! `accounts` keeps what it has confirmed, although accounts crash all the time.

use std::env;
use std::fs::remove_file;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::scope;

use procession_programs::Program;

const CLIENTS: usize = 100;
const DEPOSITS: usize = 50;

/// A connection to the program.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: SocketAddr) -> Client {
        Client(BufReader::new(TcpStream::connect(address).expect("the program listens")))
    }

    /// Runs a command. Returns the answer, which is empty if the program has closed the connection.
    fn run(&mut self, command: &str) -> String {
        let mut line = String::new();
        // An error means that the connection is closed.
        if self.0.get_mut().write_all(format!("{command}\n").as_bytes()).is_ok() {
            let _ = self.0.read_line(&mut line);
        }
        line.trim_end().to_owned()
    }
}

/// The path of a file for a test, which does not exist.
fn ledger(test: &str) -> String {
    let path = format!("{}/{test}.ledger", env!("CARGO_TARGET_TMPDIR"));
    // An error means that no earlier run has left the file.
    let _ = remove_file(&path);
    path
}

const ACCOUNTS: [&str; 1] = [env!("CARGO_BIN_EXE_accounts")];

/// The counterpart. Its reports of crashes go to standard output, which the tests do not read, so
/// they are turned off.
const IN_ELIXIR: [&str; 4] = [
    "elixir",
    "--erl",
    "-kernel logger_level none",
    concat!(env!("CARGO_MANIFEST_DIR"), "/peers/accounts.exs"),
];

/// The commands that start the programs: the counterpart only where Elixir is installed.
fn programs() -> impl Iterator<Item = &'static [&'static str]> {
    let path = env::var_os("PATH").unwrap_or_default();
    let has_elixir = env::split_paths(&path).any(|folder| folder.join("elixir").is_file());
    let in_elixir = has_elixir.then_some(&IN_ELIXIR[..]);
    if in_elixir.is_none() {
        println!("no Elixir: its program is skipped");
    }
    [&ACCOUNTS[..]].into_iter().chain(in_elixir)
}

fn start(command: &[&str], ledger: &str) -> (Program, SocketAddr) {
    let mut program = Program::start(command[0], &[&command[1..], &[ledger]].concat());
    let address = program.address();
    (program, address)
}

/// The balance that the program says.
fn balance(client: &mut Client, account: usize) -> usize {
    assert_eq!(client.run(&format!("open {account}")), "ok");
    let answer = client.run(&format!("show {account}"));
    let balance = answer.strip_prefix("ok ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    balance.unwrap_or_else(|| panic!("no balance in {answer:?}"))
}

#[test]
fn what_was_confirmed_outlives_crashes_and_the_program() {
    programs().for_each(survives_crashes);
}

fn survives_crashes(command: &[&str]) {
    let ledger = ledger("crashes");
    let (program, address) = start(command, &ledger);
    // Each client makes its deposits, while another one lets all accounts crash again and again. A
    // deposit without an `ok` may have been made or not.
    let unconfirmed: Vec<usize> = scope(|threads| {
        let mut crasher = Client::new(address);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|account| {
                let mut client = Client::new(address);
                assert_eq!(client.run(&format!("open {account}")), "ok");
                threads.spawn(move || {
                    let mut unconfirmed = 0;
                    for _ in 0..DEPOSITS {
                        while !client.run(&format!("deposit {account} 1")).starts_with("ok ") {
                            unconfirmed += 1;
                        }
                    }
                    unconfirmed
                })
            })
            .collect();
        for crash in 0..3 * CLIENTS {
            crasher.run(&format!("crash {}", crash % CLIENTS));
        }
        clients.into_iter().map(|client| client.join().expect("no assertion failed")).collect()
    });
    assert_eq!(program.terminate().code, Some(0));

    let (program, address) = start(command, &ledger);
    let mut client = Client::new(address);
    for (account, unconfirmed) in unconfirmed.into_iter().enumerate() {
        let possible = DEPOSITS..=DEPOSITS + unconfirmed;
        assert!(possible.contains(&balance(&mut client, account)), "{account}");
    }
    assert_eq!(program.terminate().code, Some(0));
}

#[test]
fn a_crash_restarts_one_account_and_keeps_the_others() {
    programs().for_each(restarts_one_account);
}

fn restarts_one_account(command: &[&str]) {
    let (program, address) = start(command, &ledger("one"));
    let mut client = Client::new(address);
    for command in [
        "open ann",
        "open bob",
        "deposit ann 7",
        "visit ann",
        "deposit bob 8",
        "visit bob",
        "crash ann",
    ] {
        assert!(client.run(command).starts_with("ok"), "{command}");
    }
    // Until the account has been restarted, a call may find the old one, and gets no answer.
    let shown =
        std::iter::repeat_with(|| client.run("show ann")).find(|show| show.starts_with("ok"));
    assert_eq!(shown.as_deref(), Some("ok 7 0"));
    assert_eq!(client.run("show bob"), "ok 8 1");
    assert_eq!(client.run("withdraw bob 9"), "error the balance is 8");
    assert_eq!(program.terminate().code, Some(0));
}

#[test]
fn what_was_confirmed_at_the_end_of_the_program_is_kept() {
    let ledger = ledger("end");
    let (program, address) = start(&ACCOUNTS, &ledger);
    let confirmed: Vec<usize> = scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|account| {
                let mut client = Client::new(address);
                assert_eq!(client.run(&format!("open {account}")), "ok");
                // The first deposit is made before the program is asked to end.
                assert_eq!(client.run(&format!("deposit {account} 1")), "ok 1");
                threads.spawn(move || {
                    let deposit = || client.run(&format!("deposit {account} 1"));
                    1 + std::iter::repeat_with(deposit)
                        .take_while(|ok| ok.starts_with("ok"))
                        .count()
                })
            })
            .collect();
        assert_eq!(program.terminate().code, Some(0));
        clients.into_iter().map(|client| client.join().expect("it does not panic")).collect()
    });

    let (program, address) = start(&ACCOUNTS, &ledger);
    let mut client = Client::new(address);
    for (account, confirmed) in confirmed.into_iter().enumerate() {
        // The program answers the command that it has begun, and so it confirms all that it does.
        assert_eq!(balance(&mut client, account), confirmed, "{account}");
    }
    drop(program);
}
