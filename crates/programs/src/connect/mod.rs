//! A member of a fleet: runs processes of an agent for a gateway, over one WebSocket.
//!
//! Only a client. The processes outlive the connection, so a cut of the network and a restart of the gateway lose
//! nothing (ADR 39). The roots of the member are enforced here, not only by the gateway.
//!
//! `connect` removes requests for files and terminals from the output before it numbers the output, and answers them
//! itself. It sets the matching capabilities in `initialize`. A line of the gateway that is not exactly one message is
//! discarded.
//!
//! Reading order: [`driver`] (the connection and the channels), [`process`] (one process and its lines), [`gate`] (the roots, and
//! messages of the gateway) and [`client_tools`] (requests of the agent).

mod driver;
mod gate;
mod process;
mod client_tools;

use std::num::NonZeroU32;

use http::{HeaderValue, Uri};

pub use self::driver::{ConnectError, run};
pub use self::gate::{RootError, Roots};
use base::shutdown::Shutdown;
use base::types::AgentName;
use children::{ChildSpec, Spawner};
use outgoing::Client;
use wire::fleet::MemberInfo;

pub struct Options {
    pub url: Uri,
    pub authorization: HeaderValue,
    pub client: Client,
    pub name: AgentName,
    pub info: MemberInfo,
    /// `None`: the member reconnects forever.
    pub max_attempts: Option<NonZeroU32>,
    pub agent: Agent,
    pub shutdown: Shutdown,
}

#[derive(Debug, Clone)]
pub struct Agent {
    pub child: ChildSpec,
    pub spawner: Spawner,
    pub roots: Roots,
    pub serves: OfferedTools,
}

/// The methods of a client that the member serves to its agent instead of the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfferedTools {
    pub files: bool,
    pub terminals: bool,
}

impl OfferedTools {
    pub(super) fn any(self) -> bool {
        self.files || self.terminals
    }
}
