//! Joining a cluster: starting a node, and making its connections in both directions.

pub(crate) mod builder;
pub(crate) mod connect;
pub(crate) mod find;
mod handshakes;
pub(crate) mod ping;
