//! Assigns agent processes to sessions.
//!
//! This module owns every agent process that is not leased, the wait queue, and the back-off of agents that crash. It
//! decides nothing with a session: a lease names a principal, and the pool asks the holder of a lease to release it. The
//! holder names its session only for lists of processes.
//!
//! Reading order: [`state`] (pure decisions) with [`sign_in_state`] and [`session_history`], [`source`], [`scheduler`] (the pool itself), [`start`] with [`homes`] and [`crashes`], [`lease`] and [`reuse`],
//! [`wait_queue`], [`short_lease`], [`auth`], [`sign_in`], [`stats`], [`process_table`], [`processes`].

mod auth;
mod crashes;
mod homes;
mod idle_folder;
mod lease;
mod process_table;
mod processes;
mod reuse;
mod scheduler;
mod session_history;
mod short_lease;
mod sign_in;
mod sign_in_state;
mod source;
mod start;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod wait_queue;

pub use crashes::CrashBackoff;
pub use lease::{Disposition, Lease, LeaseActivity};
pub use process_table::Holder;
pub use processes::PoolProcess;
pub use scheduler::Pool;
pub use short_lease::{ShortLease, ShortLeaseError};
pub use sign_in::SignIn;
pub use source::{AgentSource, AgentSources};
pub use state::{Priority, RequestedSession};
pub use stats::PoolStats;
pub use wait_queue::{AcquireError, PendingLease};
