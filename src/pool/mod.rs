//! Assigns agent processes to sessions.
//!
//! This module owns every agent process that is not leased, the wait queue, and the back-off of agents that crash. It
//! does not know what a session is: a lease names a principal, and the pool asks its holder to release it.
//!
//! Reading order: [`lease`], [`state`] (pure decisions), [`wait_queue`] (the pool itself), [`start`] with
//! [`homes`] and [`crashes`], [`reuse`] with [`session_history`], [`short_lease`], [`auth`], [`sign_in`].

mod auth;
mod crashes;
mod session_history;
mod homes;
mod lease;
mod wait_queue;
mod reuse;
mod sign_in;
mod start;
mod state;
mod short_lease;

pub use crashes::CrashBackoff;
pub use lease::{Disposition, Lease, LeaseActivity};
pub use short_lease::{Priority, ShortLease, ShortLeaseError};
pub use sign_in::SignIn;
pub use state::RequestedSession;
pub use wait_queue::{AcquireError, PendingLease, Pool, PoolStats};
