//! Assigns agent processes to sessions.
//!
//! This module owns every agent process that is not leased, the wait queue, and the back-off of agents that crash. It
//! decides nothing with a session: a lease names a user, and the pool asks the holder of a lease to release it. The
//! holder names its session only for lists of processes.
//!
//! Reading order: [`state`] (pure decisions), [`source`], [`scheduler`] (the pool itself) with [`homes`] and [`crashes`], [`lease`],
//! [`wait_queue`], [`sign_in`], [`stats`].

mod crashes;
mod homes;
mod lease;
mod scheduler;
mod sign_in;
mod source;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod wait_queue;

pub use crashes::CrashBackoff;
pub use lease::{Disposition, Lease, LeaseActivity};
pub use scheduler::Pool;
pub use sign_in::SignIn;
pub use source::{AgentSource, AgentSources};
pub use state::{Holder, LastFailure, Priority, RequestedSession};
pub use stats::{PoolCounts, PoolProcess, PoolStats};
pub use wait_queue::{AcquireError, PendingLease, RETRY_AFTER, ShortLease, ShortLeaseError};
