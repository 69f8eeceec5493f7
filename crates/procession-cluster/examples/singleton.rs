//! A process that runs on one of several nodes at a time, by the leases of etcd. It writes its
//! fence, ten times a second.
//!
//! ```console
//! $ etcd &
//! $ cargo run -p procession-cluster --features etcd --example singleton a http://127.0.0.1:2379
//! a 5
//! a 5
//! ```
//!
//! Start it as `b` in another terminal, and it waits. End the first one by Ctrl-C, kill it, or stop
//! it by `kill -STOP`: the other one goes on, with a greater fence.
//!
//! For `https` URLs and for a user of etcd, set the variables that `etcdctl` reads:
//! `ETCDCTL_CACERT`, `ETCDCTL_CERT`, `ETCDCTL_KEY` and `ETCDCTL_USER`.

use std::env;
use std::error::Error;
use std::io::Write;
use std::time::Duration;

use procession::supervisor::Supervisor;
use procession::{Context, Scheduler, timeout};
use procession_cluster::exclusive::{Etcd, ExclusiveNames, Fence, Singleton};
use procession_cluster::{Cookie, Node, Tls};

type BoxError = Box<dyn Error + Send + Sync>;

/// Writes the fence until the process is asked to end. A line is one write, so the lines of several
/// programs in one file are in the order in which they were written.
async fn tick(name: String, cx: Context<()>, fence: Fence) -> Result<(), std::io::Error> {
    while timeout(Duration::from_millis(100), cx.cancelled()).await.is_err() {
        writeln!(std::io::stdout(), "{name} {fence}")?;
    }
    Ok(())
}

fn etcd(urls: Vec<String>) -> Result<Etcd, BoxError> {
    let set = |name: &str| env::var(format!("ETCDCTL_{name}")).ok();
    let etcd = Etcd::new(urls)?;
    let etcd = match (set("CACERT"), set("CERT").zip(set("KEY"))) {
        (Some(authority), Some((own, key))) => etcd.tls(Tls::read(own, key, authority)?),
        (Some(authority), None) => etcd.authority(authority)?,
        (None, _) => etcd,
    };
    Ok(match set("USER").as_deref().and_then(|user| user.split_once(':')) {
        Some((name, password)) => etcd.user(name, password),
        None => etcd,
    })
}

async fn serve(name: String, urls: Vec<String>) -> Result<(), BoxError> {
    let node = format!("{name}@127.0.0.1");
    let node = Node::builder(node).cookie(Cookie::random()?).start().await?;
    let names = ExclusiveNames::builder(&node).store(etcd(urls)?).start();
    let ticks = move |cx: Context<()>, fence| tick(name.clone(), cx, fence);
    let ticks = Singleton::new(&names, "ticks", ticks);
    Supervisor::one_for_one().child(ticks).try_start().await?.await;
    Ok(())
}

fn main() -> Result<(), BoxError> {
    let mut arguments = env::args().skip(1);
    let name = arguments.next().ok_or("say a name, and the URLs of etcd")?;
    let deadline = Duration::from_secs(5);
    let served = serve(name, arguments.collect());
    Scheduler::global().run_until_signal(deadline, served)?.into_output().unwrap_or(Ok(()))
}
