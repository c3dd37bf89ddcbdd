//! The event log. The crate does not know ACP.
//!
//! - [`limits`]: the limits of the crate.
//! - [`store`]: the ports of a store, with an adapter in SQLite: runs of events and small records in one commit.
//! - [`eventlog`]: append, commit, tail and read of the log.
//! - [`audit`]: one more log with a hash chain.

pub mod limits;
pub mod store;
pub mod eventlog;
pub mod audit;
