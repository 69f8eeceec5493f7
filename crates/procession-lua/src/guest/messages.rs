//! The operations of a guest on messages of HTTP.

use std::sync::Arc;
use std::time::Duration;

use procession::machine::Yields;
use procession::time::Instant;

use super::state::{Awaited, Cancel, Client, Helper, Running, Served, Taken};
use crate::arguments::Arguments;
use crate::http::{self, Asked, Memory};
use crate::value::Value;

/// The time that the process of an abandoned request has to end after its cancel.
const CANCEL_TIME: Duration = Duration::from_secs(5);

impl Running {
    pub(super) fn serve_http(
        &mut self,
        operation: &[u8],
        arguments: &Arguments,
        yields: &Yields<'_>,
    ) -> Result<Served, String> {
        let to = arguments.connection(0)?;
        match operation {
            b"wait" => {
                let until = match self.cancelled {
                    true => Some(Instant::now()),
                    false => arguments.deadline(1)?,
                };
                self.read(arguments, Taken::Kept(Arc::clone(&self.account)), until, yields)
            }
            b"next" => {
                let timeout = arguments.duration(1)?.unwrap_or_default();
                // Most requests arrive as a whole. They need no process that waits.
                let served = match http::try_next_request(&to, self.memory(arguments)) {
                    Some(request) => Served::Done(request),
                    None => {
                        let memory = self.memory(arguments);
                        let work = http::next_request(Arc::clone(&to), timeout, memory);
                        self.in_helper(yields, Cancel::Ignored, String::new(), work)?
                    }
                };
                self.client = Some(Client { connection: to, reads: self.tag, watch: None });
                Ok(served)
            }
            b"answer" => {
                let (text, stays) = http::answer(&arguments.value(1)?, &arguments.value(2)?)?;
                self.answer(arguments, text, stays, yields)
            }
            b"refuse" => {
                let text = http::refusal(arguments.integer(1)?);
                self.answer(arguments, text, false, yields)
            }
            b"end" => {
                if to.end() {
                    return Ok(Served::Done(Value::Nil));
                }
                let ends = Cancel::Ends { limited: true };
                let work = async { to.linger().await.map(|()| Value::Nil) };
                self.in_helper(yields, ends, String::new(), work)
            }
            b"request" => {
                let most = usize::try_from(arguments.integer(2)?).unwrap_or(0).min(arguments.1);
                let asked = match Asked::new(&arguments.value(1)?, most) {
                    Ok(asked) => asked,
                    // The caller raises an error.
                    Err(cause) => return Ok(Served::Done(Value::string(cause))),
                };
                let until = arguments.deadline(3)?.ok_or("a request needs a limit of time")?;
                let work = http::request(to, asked, until, self.memory(arguments));
                self.in_helper(yields, Cancel::Ignored, String::new(), work)
            }
            _ => Err("the runtime has no such operation".to_owned()),
        }
    }

    fn memory(&self, arguments: &Arguments) -> Memory {
        Memory { account: Arc::clone(&self.account), most: arguments.1 }
    }

    /// Watches the client of a request that is not answered when a step ends. Most requests are
    /// answered before.
    pub(super) fn watch_client(&mut self, yields: &Yields<'_>) {
        let Some(client) = self.client.as_mut().filter(|client| client.watch.is_none()) else {
            return;
        };
        if matches!(self.waits, Awaited::Done(tag, ..) if tag == client.reads) {
            return;
        }
        self.tag += 1;
        let (connection, own) = (Arc::clone(&client.connection), yields.pid());
        let work = async move {
            connection.until_abandoned().await;
            procession::process::cancel(own);
            procession::sleep(CANCEL_TIME).await;
            procession::process::kill(own);
            Ok(Value::Nil)
        };
        // Ignored: if there is no room for a process, the next step tries again.
        client.watch = Helper::start(yields, self.tag, String::new(), work).ok();
    }

    /// Writes an answer. The program gets `true` if the connection stays open.
    fn answer(
        &mut self,
        arguments: &Arguments,
        text: Vec<u8>,
        stays: bool,
        yields: &Yields<'_>,
    ) -> Result<Served, String> {
        let (to, until) = (arguments.connection(0)?, arguments.deadline(3)?);
        self.client = None;
        let written = match to.try_write(&text) {
            Ok(None) => return Ok(Served::Done(stays.into())),
            Ok(Some(written)) => written,
            Err(_) => return Ok(Served::Done(false.into())),
        };
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let work = async move {
            let written = to.write(text.into(), written, timeout).await;
            Ok(Value::Boolean(stays && written.is_ok()))
        };
        self.in_helper(yields, Cancel::Ignored, String::new(), work)
    }
}
