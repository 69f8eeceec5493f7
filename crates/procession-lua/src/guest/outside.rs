//! The operations of a guest on files and sockets.

use procession::machine::Yields;
use procession::sync::CancellationToken;

use super::state::{Cancel, Running, Served, Taken};
use crate::arguments::Arguments;
use crate::datagrams;
use crate::fs::{self, Part, Writing};
use crate::net;
use crate::program::Program;
use crate::value::Value;

impl Running {
    pub(super) fn serve_outside(
        &mut self,
        operation: &[u8],
        arguments: &Arguments,
        program: &Program,
        yields: &mut Yields<'_>,
    ) -> Result<Served, String> {
        Ok(match operation {
            b"node.connect" => {
                let name = arguments.short(0)?;
                let work = program.inner().node.connect(arguments, &self.bounds.permissions)?;
                let ends = Cancel::Ends { limited: true };
                self.in_helper(yields, ends, format!("cannot connect to {name}"), work)?
            }
            b"node.call" => {
                let work = program.inner().node.call_named(arguments, &self.bounds.permissions)?;
                self.in_helper(yields, Cancel::Ignored, String::new(), work)?
            }
            b"connect" => {
                let (address, timeout) = (arguments.text(0)?, arguments.duration(1)?);
                let (tls, secured) = (program.inner().tls.clone(), arguments.secured(2)?);
                let secured = secured.map(|secured| (secured, self.account.hold()));
                let ends = Cancel::Ends { limited: timeout.is_some() };
                self.in_helper(
                    yields,
                    ends,
                    format!("cannot connect to {address}"),
                    net::connect(self.bounds.clone(), tls, address, timeout, secured),
                )?
            }
            b"listen" => {
                let address = arguments.text(0)?;
                let act = format!("cannot listen at {address}");
                let (tls, secured) = (program.inner().tls.clone(), arguments.secured(1)?);
                self.check_listen(&address, &act)?;
                self.in_helper(
                    yields,
                    Cancel::Ignored,
                    act,
                    net::listen(self.bounds.clone(), tls, address, secured),
                )?
            }
            b"accept" => {
                let (listener, token) = (arguments.listener(0)?, CancellationToken::new());
                let (bounds, held) = (self.bounds.clone(), self.account.hold());
                let accept = listener.accept(token.clone(), bounds, held);
                let passed = Cancel::Passed { limited: false, token };
                self.in_helper(yields, passed, String::new(), accept)?
            }
            b"accept waiting" => {
                let listener = arguments.listener(0)?;
                let accept = listener.accept_waiting(self.bounds.clone(), self.account.hold());
                let work = async { Ok(accept.await?.map_or(Value::Nil, Value::from)) };
                self.in_helper(yields, Cancel::Ignored, String::new(), work)?
            }
            b"read" => {
                let most = arguments.integer_or(1, i64::MAX)?;
                let most = usize::try_from(most).unwrap_or(1);
                self.read(arguments, Taken::Given(most), arguments.deadline(2)?, yields)?
            }
            b"write" => self.write(arguments, yields)?,
            b"udp" => {
                let address = arguments.text(0)?;
                let act = format!("cannot bind {address}");
                self.check_listen(&address, &act)?;
                self.in_helper(
                    yields,
                    Cancel::Ignored,
                    act,
                    datagrams::bind(self.bounds.clone(), address),
                )?
            }
            b"send to" => {
                let (socket, address) = (arguments.datagrams(0)?, arguments.text(1)?);
                let (bytes, timeout) = (arguments.bytes(2)?, arguments.duration(3)?);
                let act = format!("cannot send to {address}");
                let sending = socket.send(self.bounds.permissions.clone(), address, bytes, timeout);
                let work = async { sending.await.map(|()| true) };
                self.in_helper(yields, Cancel::Ignored, act, work)?
            }
            b"receive from" => {
                let (socket, timeout) = (arguments.datagrams(0)?, arguments.duration(1)?);
                let token = CancellationToken::new();
                let receive = socket.receive(token.clone(), timeout);
                let work = async {
                    let (bytes, sender) = receive.await?;
                    Ok(Value::list([Value::string(bytes), Value::string(sender.to_string())]))
                };
                let passed = Cancel::Passed { limited: timeout.is_some(), token };
                self.in_helper(yields, passed, String::new(), work)?
            }
            _ => match operation.strip_prefix(b"http.") {
                Some(operation) => return self.serve_http(operation, arguments, yields),
                None => return self.serve_files(operation, arguments, yields),
            },
        })
    }

    fn serve_files(
        &mut self,
        operation: &[u8],
        arguments: &Arguments,
        yields: &Yields<'_>,
    ) -> Result<Served, String> {
        let Some(operation) = operation.strip_prefix(b"fs.") else {
            return Err("the runtime has no such operation".to_owned());
        };
        let path = arguments.path(0)?;
        let (permissions, shown) = (self.bounds.permissions.clone(), path.display().to_string());
        Ok(match operation {
            b"read" => {
                let from = arguments.integer_or(1, 0)?;
                let act = format!("cannot read {shown}");
                let from = u64::try_from(from).map_err(|_| format!("{act} from offset {from}"))?;
                let count = u64::try_from(arguments.integer_or(2, -1)?).ok();
                let part = Part { from, count, most: arguments.1 as u64 };
                self.in_helper(yields, Cancel::Ignored, act, fs::read(permissions, path, part))?
            }
            b"size" => {
                let act = format!("cannot get the size of {shown}");
                self.in_helper(yields, Cancel::Ignored, act, fs::size(permissions, path))?
            }
            b"write" | b"append" => {
                let bytes = arguments.bytes(1)?;
                let how = if operation == b"write" { Writing::New } else { Writing::Appended };
                let act = format!("cannot write {shown}");
                self.in_helper(
                    yields,
                    Cancel::Ignored,
                    act,
                    fs::write(permissions, path, bytes, how),
                )?
            }
            b"list" => {
                let act = format!("cannot list {shown}");
                self.in_helper(
                    yields,
                    Cancel::Ignored,
                    act,
                    fs::list(permissions, path, arguments.1),
                )?
            }
            b"kind" => {
                let act = format!("cannot get the kind of {shown}");
                self.in_helper(yields, Cancel::Ignored, act, fs::kind(permissions, path))?
            }
            b"make_directory" => {
                let act = format!("cannot make {shown}");
                self.in_helper(yields, Cancel::Ignored, act, fs::make_directory(permissions, path))?
            }
            b"remove" => {
                let act = format!("cannot remove {shown}");
                self.in_helper(yields, Cancel::Ignored, act, fs::remove(permissions, path))?
            }
            b"rename" => {
                let act = format!("cannot rename {shown}");
                self.in_helper(
                    yields,
                    Cancel::Ignored,
                    act,
                    fs::rename(permissions, path, arguments.path(1)?),
                )?
            }
            _ => return Err("the runtime has no such operation".to_owned()),
        })
    }

    fn check_listen(&self, address: &str, act: &str) -> Result<(), String> {
        let checked = self.bounds.permissions.check_listen(address);
        checked.map_err(|error| format!("{act}: {error}"))
    }
}
