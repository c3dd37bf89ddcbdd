//! Idle processes that already have a folder, for new sessions.

use super::scheduler::Pool;
use super::state::PoolKey;
use crate::acp::ClientCapabilities;
use crate::agent::{AgentSpec, IdleFolder};
use crate::types::Principal;

impl Pool {
    /// Assigns an idle process to a new session of the principal, with its folder. `None` if there is no such process. The
    /// session renames the folder to `name`, and then requests a process with it. No other request gets the process.
    pub fn claim_folder(
        &self,
        spec: &AgentSpec,
        principal: &Principal,
        offer: ClientCapabilities,
        name: &str,
    ) -> Option<IdleFolder> {
        let mut state = self.state();
        let agent = state.configured(&PoolKey::new(&spec.name, &principal.tenant))?;
        agent
            .idle_process_with_folder(&principal.id, offer)?
            .assign_folder(name)
    }
}
