//! The agent that a member offers.

use std::sync::Arc;

use super::roots::Roots;
use crate::process::{ChildSpec, Spawner};
use crate::types::Limits;

/// The agent of a member: how its processes start, and their access through this program.
#[derive(Debug, Clone)]
pub struct Agent {
    pub child: ChildSpec,
    pub spawner: Spawner,
    pub roots: Roots,
    pub serves: Serves,
    pub limits: Arc<Limits>,
}

/// The methods of a client that the member serves to its agent instead of the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Serves {
    /// `fs/*`.
    pub files: bool,
    /// `terminal/*`.
    pub terminals: bool,
}

impl Serves {
    pub(super) fn any(self) -> bool {
        self.files || self.terminals
    }
}
