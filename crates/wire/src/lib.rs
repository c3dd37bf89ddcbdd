//! The lines on the wire. No I/O.
//!
//! - [`jsonrpc`]: raw envelopes, one on each line, with a size limit; the only writer of messages; pending requests in both directions.
//! - [`acp`]: typed views of ACP, the versions and their differences, capabilities.
//! - [`fleet`]: the frames between a gateway and the members of its fleet.

pub mod jsonrpc;
pub mod acp;
pub mod fleet;
