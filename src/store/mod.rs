//! Durable data: runs of events and small records.
//!
//! Events and records are written in one commit. The module has three ports, and each consumer depends on the
//! port that it needs:
//!
//! - [`RecordStore`]: records, and the commit of a [`Batch`].
//! - [`EventStore`]: runs of events. A store of events is also a store of records.
//! - [`Maintenance`]: sizes, removal and disk space.
//!
//! This module owns durable data and the epoch. It knows runs, positions and records. It must not know ACP or
//! readers.
//!
//! Reading order: `run` and `record` (the data), `record_store`, `event_store` and `maintenance` (the
//! ports), `memory` and `sqlite` (the adapters), `usage` (log sizes in memory).

mod error;
mod event_store;
mod maintenance;
mod memory;
mod record;
mod record_store;
mod run;
mod sqlite;
mod usage;

#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
pub(crate) mod faulty;

pub use error::{BoxError, CommitError, ReadError};
pub use event_store::{EventStore, LogUsage, Page, Tail};
pub use maintenance::{Cut, Disk, Maintenance, Pruned};
pub use memory::MemoryStore;
pub use record::{Delete, Expect, Put, Record, Table};
pub use record_store::{Batch, RecordStore};
pub use run::{Run, RunHeader};
pub use sqlite::compress;
pub use sqlite::{CheckError, CheckReport, OpenError, RestoreReport, SqliteStore, copy, restore};
