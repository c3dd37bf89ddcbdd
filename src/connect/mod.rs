//! A member of a fleet: runs processes of an agent for a gateway, over one WebSocket.
//!
//! Only a client. The processes outlive the connection, so a cut of the network and a restart of the gateway lose
//! nothing (ADR 39). The roots of the member are enforced here, not only by the gateway.
//!
//! A request for files or terminals leaves the output before it is numbered. `connect` answers it, and sets the
//! capabilities in `initialize`. A line of the gateway that is not exactly one message is discarded.
//!
//! Reading order: [`agent`] with [`roots`], [`driver`] (the connection and the channels), [`process`] (one process)
//! with [`lines`], [`gate`] (messages of the gateway) and [`serving`] (requests of the agent).

mod agent;
mod driver;
mod gate;
mod lines;
mod process;
mod roots;
mod serving;

use std::fmt;
use std::num::NonZeroU32;

use http::{HeaderValue, Uri};

use crate::fleet::MemberInfo;
use crate::outgoing::Client;
use crate::shutdown::Shutdown;
use crate::types::AgentName;

pub use agent::{Agent, Serves};
pub use driver::{ConnectError, run};
pub use roots::{RootError, Roots};

/// The settings of `connect`.
pub struct Options {
    pub url: Uri,
    /// The header with the key.
    pub authorization: HeaderValue,
    pub client: Client,
    pub name: AgentName,
    pub info: MemberInfo,
    /// `None`: the member reconnects forever.
    pub max_attempts: Option<NonZeroU32>,
    pub agent: Agent,
    pub shutdown: Shutdown,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("url", &self.url)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
