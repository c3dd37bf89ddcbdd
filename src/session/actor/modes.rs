//! The modes of `modes.deny`: checks of what clients send, and reports of a denied mode that the agent enters.

use super::Actor;
use crate::acp::{ModeCommand, ModePolicy, Outcome, RawObject, find_in_value, find_mode_command};
use crate::api::Session;
use crate::event::SessionPrivilegedMode;
use crate::session::agent_requests::policy;
use crate::session::client_calls::permit_mode;
use crate::session::error::{AnswerError, InputError};
use crate::types::{ModeSelection, Principal, RequestId, Scope};

impl Actor {
    /// The denied modes of the agent, with the modes and the options of the session.
    pub(super) fn mode_policy(&self) -> ModePolicy<'_> {
        let fold = self.journal.fold();
        ModePolicy {
            denied: &self.link.spec().settings.denied_modes,
            modes: fold.modes.as_deref(),
            config_options: fold.config_options.as_deref(),
        }
    }

    pub(super) fn with_denied_modes(&self, session: Session) -> Session {
        Session { denied_modes: self.mode_policy().offered(), ..session }
    }

    /// Checks the slash commands and the `_meta` of a prompt.
    pub(super) fn check_prompt_modes(
        &self,
        by: &Principal,
        blocks: &[RawObject<'_>],
    ) -> Result<(), InputError> {
        let denied = &self.link.spec().settings.denied_modes;
        let meta = blocks.iter().filter_map(|block| block.get("_meta"));
        for meta in meta {
            permit_mode(find_in_value(denied, meta))?;
        }
        match find_mode_command(denied, blocks) {
            Some(ModeCommand::Denied(entry)) => permit_mode(Some(entry)),
            Some(ModeCommand::Changes { name }) if !by.scopes.contains(Scope::Approve) => {
                let detail =
                    format!("the command /{name} can change the mode, so it requires the scope approve");
                Err(InputError::Forbidden(detail))
            }
            _ => Ok(()),
        }
    }

    /// Checks that an answer to a request of the agent selects no denied mode.
    pub(super) fn check_answer_modes(&self, id: RequestId, answer: &Outcome) -> Result<(), AnswerError> {
        let Ok(answer) = answer else { return Ok(()) };
        let request = self.agent_requests.get(id)?;
        let denied = &self.link.spec().settings.denied_modes;
        Ok(permit_mode(policy::denying_entry(denied, &request, answer))?)
    }

    /// Reports a denied mode that the agent has entered without a client.
    pub(super) fn report_privileged_mode(&mut self, entered: &ModeSelection, subagent: Option<&str>) {
        let (session, agent) = (self.journal.session(), &self.journal.record().agent);
        tracing::warn!(%session, %agent, mode = ?entered, "the agent entered a mode that its entry denies to clients");
        let ModeSelection { mode_id, config_id, value } = entered;
        let event = SessionPrivilegedMode {
            mode_id: mode_id.as_deref(),
            config_id: config_id.as_deref(),
            value: value.as_deref(),
            subagent,
        };
        self.journal.append(self.turns.sent(), &event);
    }

    /// Reports the current mode if it is denied and was not reported as `before`.
    pub(super) fn report_current_mode(&mut self, before: Option<&ModeSelection>) {
        if let Some(now) = self.mode_policy().current().filter(|now| Some(now) != before) {
            self.report_privileged_mode(&now, None);
        }
    }
}
