//! The sign-in of a tenant to an agent: its state, and the slot for a sign-in in a terminal.

use serde_json::value::RawValue;
use tokio::time::Instant;
use uuid::Uuid;

use crate::acp::auth::{AuthState, TerminalAuth};

/// The sign-in state of one tenant at one agent.
#[derive(Clone, Default)]
pub(super) struct SignInState {
    /// The number of the last sign-in or sign-out. Processes of an earlier generation do not have it.
    pub(super) generation: u64,
    pub(super) state: AuthState,
    /// Params of the last successful sign-in, sent to new processes.
    pub(super) sign_in_params: Option<Box<RawValue>>,
    /// The agent refused a prompt because the sign-in is missing. That it opens sessions does not prove a sign-in
    /// then.
    pub(super) prompt_refused: bool,
    /// The pool does not try the key of the environment: it did before, or a client signed in or out.
    pub(super) key_tried: bool,
    /// A sign-in in a terminal.
    pub(super) slot: Option<SignInSlot>,
}

impl SignInState {
    /// Resets the state because the configuration entry of the agent changed.
    pub(super) fn reset(&mut self) {
        self.update(AuthState::default(), None);
        self.key_tried = false;
        self.slot = self
            .slot
            .take()
            .filter(|slot| matches!(slot, SignInSlot::Open));
    }

    /// Records a sign-in or sign-out. Only processes that start from now on have the new generation.
    pub(super) fn update(&mut self, state: AuthState, params: Option<Box<RawValue>>) -> u64 {
        (self.state, self.sign_in_params) = (state, params);
        (self.prompt_refused, self.key_tried) = (false, true);
        self.generation += 1;
        self.generation
    }
}

/// The state of the sign-in slot of an agent and a tenant.
#[derive(Debug, Clone)]
pub(super) enum SignInSlot {
    /// Waits for its connection. A later offer replaces this one.
    Offered {
        id: Uuid,
        method: TerminalAuth,
        until: Instant,
    },
    Open,
}

impl SignInSlot {
    pub(super) fn is_offered(&self, id: Uuid) -> bool {
        matches!(self, Self::Offered { id: offered, until, .. } if *offered == id && Instant::now() < *until)
    }
}
