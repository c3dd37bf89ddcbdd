//! The modes of `modes.deny`: checks of what clients send, and reports of a denied mode that the agent enters.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::Actor;
use crate::session::binding::client_calls::permit_mode;
use crate::session::error::{AnswerError, InputError};
use crate::session::requests::answers::denying_entry;
use agents::agent::AgentSpec;
use base::types::{Access, ModeSelection, Principal, RequestId, Scope};
use events::event::SessionPrivilegedMode;
use wire::acp::{
    self, DeniedModes, ModeCommand, Outcome, PromptCapabilities, RawObject, find_in_value,
    find_mode_command,
};

pub(super) const ANY_CONTENT: PromptCapabilities = PromptCapabilities {
    image: true,
    audio: true,
    embedded_context: true,
};

impl Actor {
    pub(super) fn client_rules(&self) -> Arc<AgentSpec> {
        self.binding
            .client_rules(&self.context, self.journal.record())
    }

    pub(super) fn current_denied_mode(&self) -> Option<ModeSelection> {
        self.journal.mode_policy(&self.client_rules()).current()
    }

    pub(super) fn entered_mode(&self, kind: &str, update: &RawValue) -> Option<ModeSelection> {
        if !acp::update::selects_modes(kind) {
            return None;
        }
        self.journal
            .mode_policy(&self.client_rules())
            .of_update(kind, update)
    }

    pub(super) fn check_prompt_modes(
        &self,
        by: &Principal,
        blocks: &[RawObject<'_>],
    ) -> Result<(), InputError> {
        match permitted_command(&self.client_rules().settings.denied_modes, blocks)? {
            Some(name) if !by.scopes.contains(Scope::Approve) => {
                let detail = format!(
                    "the command /{name} can change the mode, so it requires the scope approve"
                );
                Err(InputError::MissingScope(Scope::Approve, detail))
            }
            Some(name) if self.require(&by.user, Access::Approve).is_err() => {
                let detail = format!(
                    "the command /{name} can change the mode, so it requires the access approve to the session"
                );
                Err(InputError::Forbidden(detail))
            }
            _ => Ok(()),
        }
    }

    /// Checks the prompt of the running turn again if the agent's entry has changed since its last check. Reports the
    /// mode of the session if only the new entry denies it.
    pub(super) fn recheck_prompt_modes(&mut self) -> Result<(), InputError> {
        let entry = self.client_rules();
        let Some((blocks, previous)) = self.turns.unchecked(&entry) else {
            return Ok(());
        };
        let blocks = acp::validate_prompt(blocks, ANY_CONTENT)
            .map_err(|error| InputError::invalid("/prompt", error.to_string()))?;
        permitted_command(&entry.settings.denied_modes, &blocks)?;
        // After a restart, the attach has reported the mode.
        let previous = previous.map(|entry| self.journal.mode_policy(entry).current());
        self.turns.set_checked(entry);
        if let Some(before) = previous {
            self.report_current_mode(before.as_ref());
        }
        Ok(())
    }

    /// Checks that an answer to a request of the agent selects no denied mode.
    pub(super) fn check_answer_modes(
        &self,
        id: RequestId,
        answer: &Outcome,
    ) -> Result<(), AnswerError> {
        let Ok(answer) = answer else { return Ok(()) };
        let request = self.requests.get(id)?;
        let entry = self.client_rules();
        Ok(permit_mode(denying_entry(
            &entry.settings.denied_modes,
            &request,
            answer,
        ))?)
    }

    pub(super) fn report_privileged_mode(
        &mut self,
        entered: &ModeSelection,
        subagent: Option<&str>,
    ) {
        let session = self.journal.session();
        let agent = &self.journal.record().agent;
        tracing::warn!(%session, %agent, mode = ?entered, "the agent entered a mode that its entry denies to clients");
        let event = SessionPrivilegedMode {
            mode_id: entered.mode_id.as_deref(),
            config_id: entered.config_id.as_deref(),
            value: entered.value.as_deref(),
            subagent,
        };
        self.journal.append(self.turns.sent(), &event);
    }

    pub(super) fn report_current_mode(&mut self, before: Option<&ModeSelection>) {
        if let Some(now) = self.current_denied_mode().filter(|now| Some(now) != before) {
            self.report_privileged_mode(&now, None);
        }
    }
}

/// Checks that the `_meta` and the slash command of a prompt select no denied mode. Returns the name of a command that may
/// change the mode.
fn permitted_command(
    denied: &DeniedModes,
    blocks: &[RawObject<'_>],
) -> Result<Option<String>, InputError> {
    for meta in blocks.iter().filter_map(|block| block.get("_meta")) {
        permit_mode(find_in_value(denied, meta))?;
    }
    match find_mode_command(denied, blocks) {
        Some(ModeCommand::Denied(entry)) => permit_mode(Some(entry)).map(|()| None),
        Some(ModeCommand::Changes { name }) => Ok(Some(name)),
        None => Ok(None),
    }
}
