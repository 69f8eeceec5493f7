//! The node of a program in a build without the feature `cluster`: there is none.

use std::future::Ready;
use std::io;
use std::time::Duration;

use procession::Pid;

use crate::arguments::Arguments;
use crate::permissions::Permissions;
use crate::program::OwnNode;
use crate::value::Value;

type Work = Ready<io::Result<Value>>;

fn none<T>() -> Result<T, String> {
    Err("the host of the program has no node".to_owned())
}

impl OwnNode {
    pub(crate) fn send(&self, _: Pid, _: &Value) -> Result<Value, String> {
        none()
    }

    pub(crate) fn call(&self, _: Pid, _: &Value, _: Option<Duration>) -> Result<Work, String> {
        none()
    }

    pub(crate) fn reply(&self, _: &Value, _: &Value) -> Option<Result<Value, String>> {
        None
    }

    pub(crate) fn serve(
        &self,
        operation: &[u8],
        _: &Arguments,
        _: &Permissions,
    ) -> Result<Value, String> {
        if operation == b"name" { Ok(Value::Nil) } else { none() }
    }

    pub(crate) fn connect(&self, _: &Arguments, _: &Permissions) -> Result<Work, String> {
        none()
    }

    pub(crate) fn call_named(&self, _: &Arguments, _: &Permissions) -> Result<Work, String> {
        none()
    }
}
