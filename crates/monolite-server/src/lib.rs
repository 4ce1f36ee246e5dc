//! Databases of Monolite over the network, for the unmodified clients of libSQL: the protocol
//! Hrana, versions 1, 2 and 3, over HTTP and WebSocket.

#![forbid(unsafe_code)]

pub mod hrana;
