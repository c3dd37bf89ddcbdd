//! All processes of a pool, from their starts to their ends.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::{AgentSpec, Connection};
use crate::types::{PromptId, SessionId, Timestamp};

/// The session of a lease, as its holder reports it. The pool makes no decision with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub session: SessionId,
    /// The running turn, and when this process got it.
    pub turn: Option<(PromptId, Timestamp)>,
}

/// A process from its start to its end.
pub(super) struct Started {
    pub(super) spec: Arc<AgentSpec>,
    pub(super) at: Instant,
    pub(super) connection: Option<Connection>,
}

/// All processes of one tenant and one agent, by their ids.
#[derive(Default)]
pub(super) struct Processes(HashMap<Uuid, Started>);

impl Processes {
    /// Adds a process that starts.
    pub(super) fn start(&mut self, id: Uuid, spec: Arc<AgentSpec>) {
        self.0.insert(
            id,
            Started {
                spec,
                at: Instant::now(),
                connection: None,
            },
        );
    }

    /// The process has completed its handshake.
    pub(super) fn connected(&mut self, id: Uuid, connection: &Connection) {
        self.0
            .get_mut(&id)
            .into_iter()
            .for_each(|started| started.connection = Some(connection.clone()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Uuid, &Started)> {
        self.0.iter().map(|(id, started)| (*id, started))
    }

    /// Removes a process that has ended.
    pub(super) fn end(&mut self, id: Uuid) {
        self.0.remove(&id);
    }
}
