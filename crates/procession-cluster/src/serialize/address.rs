//! Addresses in messages between nodes, for `#[serde(with)]`.
//!
//! A field of type [`Address`] is the PID of the process in a message to
//! another node, or `{Name, Node}` if it stands for a name. The process of an address that leaves
//! the program is [attached](crate::Node::attach_as), so that the other node can send to it.
//!
//! It is written and read only in messages to and from typed processes: see
//! [`Node::address`](crate::Node::address) and [`Node::attach_as`](crate::Node::attach_as).

use procession::Address;
use serde_core::de::{self, Deserialize, DeserializeOwned, Deserializer};
use serde_core::ser::{self, Serialize, Serializer};

use super::scope;
use crate::remote::Remote;
use crate::term::Term;

/// Writes an address.
///
/// # Errors
/// The error of the serializer: it is not in a message to a process of another node, or the process
/// is of a node that this one does not know.
pub fn serialize<M, S>(address: &Address<M>, serializer: S) -> Result<S::Ok, S::Error>
where
    M: DeserializeOwned + Send + 'static,
    S: Serializer,
{
    let outside = || ser::Error::custom("an address is written only in a message to another node");
    let node = scope::with(|scope| scope.node.clone()).ok_or_else(outside)?;
    let pid = address.pid();
    let remote = match pid.remote_parts() {
        Some(_) => node.remote_of(pid),
        None => Some(Remote::from(node.attach_as(address).pid())),
    };
    match remote {
        Some(Remote::Pid(pid)) => Term::from(pid),
        Some(Remote::Name { name, node }) => Term::tuple([name.into(), node.into()]),
        None => return Err(ser::Error::custom("the process is of a node that is not known")),
    }
    .serialize(serializer)
}

/// Reads an address. If it is of a process of this node, that must receive messages of the type.
///
/// # Errors
/// The error of the deserializer: the term has another form, it is not in a message to a typed
/// process, or it is of a process of this node that has ended or receives another type.
pub fn deserialize<'de, M, D>(deserializer: D) -> Result<Address<M>, D::Error>
where
    M: Serialize + Send + 'static,
    D: Deserializer<'de>,
{
    let term = Term::deserialize(deserializer)?;
    let outside = || de::Error::custom("an address is read only in a message to a typed process");
    let node = scope::with(|scope| scope.node.clone()).ok_or_else(outside)?;
    let remote = match &term {
        Term::Pid(pid) => Remote::from(pid),
        Term::Tuple(items) => match &**items {
            [Term::Atom(name), Term::Atom(node)] => {
                Remote::Name { name: name.clone(), node: node.clone() }
            }
            _ => return Err(wrong(&term)),
        },
        _ => return Err(wrong(&term)),
    };
    if remote.node() != node.name() {
        let none = || de::Error::custom("the program has known too many nodes");
        return node.try_address(remote).ok_or_else(none);
    }
    Address::of(node.pid_of_remote(&remote)).map_err(de::Error::custom)
}

fn wrong<E: de::Error>(term: &Term) -> E {
    E::custom(format_args!("{} came, and not a process", crate::reason::bounded(term)))
}
