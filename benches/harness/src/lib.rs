//! The cost of acp-gateway, compared with the physical limit of the same machine and with other servers.
//!
//! Everything runs on loopback. The harness checks that each reader receives each event once and in order.

mod agent;
mod bridge;
mod check;
mod clock;
mod compare;
mod document;
mod drive;
mod gate;
mod goals;
mod http;
mod limit;
mod load;
mod marker;
mod measure;
mod options;
mod proc;
mod results;
mod rpc;
mod server;
mod stats;
mod targets;

use std::error::Error;

pub use agent::play as play_agent;
pub use bridge::serve as serve_bridge;
pub use drive::run as run_bench;
pub use limit::serve as serve_limit;

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;
