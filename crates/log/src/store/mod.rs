//! Durable data: runs of events and small records.
//!
//! Events and records are written in one commit. The module has three ports, and each consumer depends on the
//! port that it needs:
//!
//! - [`RecordStore`]: records, and the commit of a [`Batch`].
//! - [`EventStore`]: runs of events. A store of events is also a store of records.
//! - [`Maintenance`]: sizes, removal and disk space.
//!
//! This module owns durable data and the epoch. It knows runs with their users, positions and records. It must not know ACP
//! or readers.
//!
//! Reading order: `run`, `ports` (records, the ports, their errors), `sqlite` (the adapter), `usage` (log sizes in
//! memory). Tests compare `sqlite` with the simpler `memory`.

mod ports;
mod run;
mod sqlite;
mod usage;

#[cfg(test)]
pub(crate) mod contract;
#[cfg(any(test, feature = "testing"))]
pub mod faulty;
#[cfg(any(test, feature = "testing"))]
mod memory;

#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryStore;
pub use ports::{
    Batch, BoxError, CommitError, Cut, Disk, EventStore, LogUsage, Maintenance, Page, Pruned,
    ReadError, Record, RecordState, RecordStore, Table, Tail,
};
pub use run::{Run, RunHeader};
pub use sqlite::{
    CheckError, CheckReport, ExportFile, FILE_PART_BYTES, FORMAT, MAX_EXPORTED_RECORD_BYTES,
    Migration, OpenError, RestoreReport, SqliteStore, compress, copy, migrate, restore,
};
