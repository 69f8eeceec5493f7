//! Servers and state machines with states.

mod server;
mod statem;
