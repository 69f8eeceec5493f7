//! Calls a function without arguments on a node of the BEAM by its `erpc`, and prints the result.
//!
//! ```console
//! $ cargo run -p procession-cluster --example erpc -- rabbit@127.0.0.1 cookie rabbit is_running
//! true
//! ```
//!
//! The second argument is the file with the cookie. The process that `erpc` starts on the other
//! node ends with what the function has returned, and its monitor reports that.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use procession::{Context, Exit, start};
use procession_cluster::{Cookie, Node, Term};

type Failed = Box<dyn Error + Send + Sync>;

/// The time that the other node has for anything.
const LIMIT: Duration = Duration::from_secs(30);

async fn call(mut cx: Context<()>, arguments: [String; 4]) -> Result<String, Failed> {
    let [other, cookie, module, function] = arguments;
    let name = format!("erpc_{}@127.0.0.1", std::process::id());
    let node = Node::builder(name).cookie(Cookie::read_or_create(cookie)?).start().await?;
    node.connect(&other).await?;
    // Its first argument is in the result. `erpc` has a reference there.
    let [module, function] = [module, function].map(|word| Term::atom(&word));
    let call = vec![Term::atom("call"), module, function, Term::List(Vec::new())];
    let (_, monitor) = node.spawn_monitor(&other, "erpc", "execute_call", call, LIMIT).await?;
    let down = cx.down(monitor).await.ok_or("this process was cancelled")?;
    node.stop().await;
    let Exit::Failed(reason) = &down.exit else { return Err(down.exit.to_string().into()) };
    let reason = reason.to_string();
    let result = reason.strip_prefix("{call,return,").and_then(|rest| rest.strip_suffix('}'));
    Ok(result.ok_or(reason.clone())?.to_owned())
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments = <[String; 4]>::try_from(arguments)
        .map_err(|_| "the arguments are: NODE COOKIE-FILE MODULE FUNCTION")?;
    let result = procession::run(async {
        let called =
            start(|cx| async { call(cx, arguments).await.map_err(|error| error.to_string()) });
        called.await.map_err(Failed::from)?.map_err(Failed::from)
    })?;
    writeln!(std::io::stdout(), "{result}")?;
    Ok(())
}
