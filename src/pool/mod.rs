//! Assigns agent processes to sessions.
//!
//! This module owns every agent process that is not leased, the wait queue, and the back-off of agents that crash. It
//! does not know what a session is: a lease names a principal, and the pool asks its holder to release it.
//!
//! Reading order: [`lease`], [`state`] (pure decisions), [`wait_queue`] (the pool itself), [`start`] with
//! [`homes`] and [`crashes`], [`reuse`] with [`session_history`], [`short_lease`], [`auth`], [`sign_in`].

mod auth;
mod crashes;
mod held;
mod homes;
mod lease;
mod line;
mod reuse;
mod sign_in;
mod start;
mod state;
mod visit;

pub use crashes::Crashes;
pub use lease::{Fate, Lease, Standing};
pub use line::{Figures, Place, Pool, Refused};
pub use sign_in::SignIn;
pub use state::Wanted;
pub use visit::{Manner, NoVisit, Visit};
