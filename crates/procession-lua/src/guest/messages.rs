//! The operations of a guest on messages of HTTP.

use std::sync::Arc;

use procession::machine::Yields;
use procession::time::Instant;

use super::state::{Cancel, Running, Served, Taken};
use crate::arguments::Arguments;
use crate::http::{self, Asked, Memory};
use crate::value::Value;

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
                match http::try_next_request(&to, self.memory(arguments)) {
                    Some(request) => Ok(Served::Done(request)),
                    None => {
                        let memory = self.memory(arguments);
                        let work = http::next_request(to, timeout, memory);
                        self.in_helper(yields, Cancel::Ignored, String::new(), work)
                    }
                }
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

    /// Writes an answer. The program gets `true` if the connection stays open.
    fn answer(
        &mut self,
        arguments: &Arguments,
        text: Vec<u8>,
        stays: bool,
        yields: &Yields<'_>,
    ) -> Result<Served, String> {
        let (to, until) = (arguments.connection(0)?, arguments.deadline(3)?);
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
