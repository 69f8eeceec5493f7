//! Accounts, each a process, below a tree of supervisors. A command in each line of a connection.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use futures_lite::io::{AsyncBufReadExt, BufReader};
use futures_lite::stream::StreamExt;
use procession::behaviour::{Server, ServerContext};
use procession::fs::File;
use procession::net::{TcpListener, TcpStream};
use procession::process::{Named, Registry, until_cancelled};
use procession::supervisor::{ChildSpec, Restart, Started, Supervisor, SupervisorRef, Template};
use procession::{Context, Exit, Reply, observe};

const TIMEOUT: Duration = Duration::from_secs(20);
const IDLE: Duration = Duration::from_secs(60);

type Error = Box<dyn std::error::Error + Send + Sync>;
type Answer = Result<String, Error>;

enum Entry {
    Balance(String, Reply<u64>),
    Put(String, u64, Reply<()>),
}

/// Keeps the balances in a file, so that they outlive their accounts.
async fn ledger(mut cx: Context<Entry>, started: Started, path: PathBuf) -> Result<(), Error> {
    let mut file = File::options().read(true).append(true).create(true).open(path).await?;
    let (mut text, mut balances) = (String::new(), HashMap::new());
    file.read_to_string(&mut text).await?;
    for (name, balance) in text.lines().filter_map(|line| line.split_once(' ')) {
        balances.insert(name.to_owned(), balance.parse()?);
    }
    started.ready();
    while let Some(entry) = cx.recv().await {
        match entry {
            Entry::Balance(name, reply) => reply.send(*balances.get(&name).unwrap_or(&0)),
            Entry::Put(name, balance, reply) => {
                file.write_all(format!("{name} {balance}\n").as_bytes()).await?;
                file.flush().await?;
                balances.insert(name, balance);
                reply.send(());
            }
        }
    }
    Ok(())
}

enum Request {
    Show(Reply<Answer>),
    Deposit(u64, Reply<Answer>),
    Withdraw(u64, Reply<Answer>),
    Visit,
    Crash,
}

/// An account. It closes when nobody has used it for a minute.
struct Account {
    name: String,
    balance: u64,
    visits: u64,
}

impl Account {
    async fn change(&mut self, balance: u64, reply: Reply<Answer>) {
        let (ledger, name) = (Named::new("ledger"), self.name.clone());
        let put = ledger.call(|reply| Entry::Put(name, balance, reply), TIMEOUT).await;
        put.map_err(|error| error.cause()).expect("the ledger answers");
        self.balance = balance;
        reply.send(Ok(balance.to_string()));
    }
}

impl Server for Account {
    type Message = Request;

    async fn init(&mut self, cx: &mut ServerContext<Self>) -> Result<(), Exit> {
        let (ledger, name) = (Named::new("ledger"), self.name.clone());
        let balance = ledger.call(|reply| Entry::Balance(name, reply), TIMEOUT).await;
        self.balance = balance.map_err(|error| Exit::failed(error.to_string()))?;
        cx.set_timeout(IDLE);
        Ok(())
    }

    async fn handle(&mut self, request: Request, cx: &mut ServerContext<Self>) {
        match request {
            Request::Show(reply) => reply.send(Ok(format!("{} {}", self.balance, self.visits))),
            Request::Deposit(amount, reply) => self.change(self.balance + amount, reply).await,
            Request::Withdraw(amount, reply) => match self.balance.checked_sub(amount) {
                Some(balance) => self.change(balance, reply).await,
                None => reply.send(Err(format!("the balance is {}", self.balance).into())),
            },
            Request::Visit => self.visits += 1,
            Request::Crash => panic!("{} was told to crash", self.name),
        }
        cx.set_timeout(IDLE);
    }

    async fn handle_timeout(&mut self, cx: &mut ServerContext<Self>) {
        cx.stop(Exit::Normal);
    }
}

#[derive(Clone)]
struct Accounts {
    registry: Registry<()>,
    account: Template<String, Request>,
}

impl Accounts {
    async fn open(&self, name: &str) -> Answer {
        let open = SupervisorRef::named("open")?;
        open.add_another(&self.account, name.to_owned()).await?;
        Ok(String::new())
    }

    async fn call(&self, name: &str, request: impl FnOnce(Reply<Answer>) -> Request) -> Answer {
        self.registry.call(name, request, TIMEOUT).await?
    }

    fn cast(&self, name: &str, request: Request) -> Answer {
        self.registry.send(name, request)?;
        Ok(String::new())
    }

    async fn run(&self, line: &str) -> Answer {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["open", name] => self.open(name).await,
            ["show", name] => self.call(name, Request::Show).await,
            ["visit", name] => self.cast(name, Request::Visit),
            ["crash", name] => self.cast(name, Request::Crash),
            ["deposit", name, amount] => {
                let amount = amount.parse::<NonZeroU64>()?.get();
                self.call(name, |reply| Request::Deposit(amount, reply)).await
            }
            ["withdraw", name, amount] => {
                let amount = amount.parse::<NonZeroU64>()?.get();
                self.call(name, |reply| Request::Withdraw(amount, reply)).await
            }
            _ => Err("unknown command".into()),
        }
    }
}

async fn serve(stream: TcpStream, accounts: Accounts) -> Result<(), Error> {
    let mut lines = BufReader::new(&stream).lines();
    while let Some(Some(line)) = until_cancelled(lines.next()).await {
        let answer = match accounts.run(&line?).await {
            Ok(text) => format!("ok {text}\n"),
            Err(error) => format!("error {error}\n"),
        };
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

async fn listen(_: Context<()>, accounts: Accounts) -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("accounts: listening on {}", listener.local_addr()?);
    let connections = SupervisorRef::named("connections")?;
    let connection = Template::new(move |_: Context<()>, stream| serve(stream, accounts.clone()));
    let connection = connection.label("connection");
    while let Some(accepted) = until_cancelled(listener.accept()).await {
        connections.add_another(&connection, accepted?.0).await?;
    }
    Ok(())
}

/// The tree: what depends on a part is started again with it.
#[procession::main(run_until_signal = Duration::from_secs(30))]
async fn main() -> Result<(), Error> {
    observe::install_panic_hook();
    let path = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: accounts FILE")?);
    let registry = Registry::unique();
    let entries = registry.clone();
    let account = Template::server(|name| Account { name, balance: 0, visits: 0 })
        .enter(move |name: &String| entries.entry(name.as_str(), ()))
        .label("account")
        .restart(Restart::Transient);
    let accounts = Accounts { registry, account };
    let ledger = ChildSpec::with_init("ledger", move |cx, up| ledger(cx, up, path.clone()));
    let open = Supervisor::dynamic().intensity(1000, Duration::from_secs(5));
    let connections = Supervisor::dynamic();
    let tree = Supervisor::rest_for_one()
        .child(ledger.name("ledger"))
        .child(ChildSpec::supervisor("open", open).name("open"))
        .child(ChildSpec::supervisor("connections", connections).name("connections"))
        .child(ChildSpec::new("server", move |cx| listen(cx, accounts.clone())));
    Err(tree.try_start().await?.await.into())
}
