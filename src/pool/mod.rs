//! Which process serves which session.
//!
//! It owns every agent process that is not leased, the line of those who wait for one, and the back-off of agents
//! that crash. It does not know what a session is: a lease names a principal, and is taken back by asking.

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
