//! Restores a session at the agent, and the sign-in that some agents need for it.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use crate::acp::{self, SessionSetup, auth};
use crate::agent::AgentFailure;
use crate::event::LostReason;
use crate::jsonrpc::RpcError;
use crate::pool::{Disposition, Lease};
use crate::session::agent_requests::EndedBy;
use crate::session::attachment::{AttachMethod, CallPurpose, LoadSignIn, Refused, RestoreStep, Retry, SetUp};
use crate::session::refusal::Refusal;

impl Actor {
    /// Handles the agent's refusal to resume or load the session. `resume` is the agent's error to the
    /// `session/resume` that preceded a `session/load`.
    pub(super) fn restore_refused(
        &mut self,
        method: AttachMethod,
        error: RpcError,
        resume: Option<RpcError>,
    ) {
        let refused = Refused {
            method,
            agent_session: self.journal.record().agent_session_id.as_deref().unwrap_or_default(),
            can_load: self.link.initialized().is_some_and(|known| known.capabilities.load_session),
            is_imported: self.client_calls.imports_history(),
        };
        match RestoreStep::after(refused, error, resume) {
            RestoreStep::Load(error) => {
                tracing::info!(session = %self.journal.session(), %error, "session/resume failed; trying session/load");
                self.set_up(SetUp::load_after(error));
            }
            RestoreStep::SignIn(error) => self.sign_in_for_load(error),
            RestoreStep::Reject(error) => self.setup_rejected(error),
            RestoreStep::Begin(reason, error) => self.begin_new_agent_session(reason, &error),
            RestoreStep::Retry { error, in_use } => self.retry_restore(error, in_use),
        }
    }

    /// Begins a new agent session on the same process, because the agent does not have the former one.
    fn begin_new_agent_session(&mut self, reason: LostReason, error: &RpcError) {
        self.set_up(SetUp::fresh(reason, Some(error.to_string())));
    }

    /// Whether the agent rejected the session id of a prompt.
    pub(super) fn is_session_rejected(&self, error: &RpcError) -> bool {
        let id = self.journal.record().agent_session_id.as_deref();
        id.is_some_and(|id| acp::rejects_session(error, id))
    }

    /// Continues the turn in a new agent session, because the agent does not have the restored one.
    pub(super) fn run_in_new_session(&mut self, error: &RpcError) {
        self.end_requests(EndedBy::Release);
        self.turns.prompt_withdrawn();
        self.begin_new_agent_session(LostReason::RejectedSession, error);
    }

    /// Releases the process and schedules the next attempt, on the same or another process.
    fn retry_restore(&mut self, error: RpcError, in_use: bool) {
        let Some(lease) = self.link.lease() else { return };
        if in_use && let Some(id) = &self.journal.record().agent_session_id {
            lease.session_in_use(id);
        }
        tracing::info!(session = %self.journal.session(), %error, in_use, "the agent did not restore the session; retrying");
        let refusal = Refusal::NotRestored(error.clone());
        let timeout = self.context.limits.restore_timeout;
        let Retry { is_healthy, at } = self.attachment.retry_restore(error, in_use, timeout, Instant::now());
        self.release(if is_healthy { Disposition::Reuse } else { Disposition::Stop }, &refusal);
        match at {
            Some(at) => self.attachment.wait_until(at),
            None => self.attach_failed(&refusal),
        }
    }

    /// Acquires another process if new processes sign in with the key of the agent's environment and this one
    /// did not. Returns false if `refusal` is final.
    pub(super) fn retried_with_key(&mut self, refusal: &Refusal) -> bool {
        let needed = matches!(refusal, Refusal::Agent(AgentFailure::AuthRequired { .. }));
        if !needed || !self.link.lease().is_some_and(Lease::sign_in_with_key) {
            return false;
        }
        tracing::info!(session = %self.journal.session(), "retrying with a process that signs in with the key of the agent's environment");
        self.release(Disposition::Stop, refusal);
        self.attachment.detach();
        self.reserve_or_fail();
        true
    }

    /// The agent refused to load the session without a sign-in. Begins the next step of the sign-in with its key, if
    /// there is one; otherwise `refusal` is final.
    fn sign_in_for_load(&mut self, refusal: RpcError) {
        let Some(process) = self.link.process() else { return };
        let Some(sign_in) = process.sign_in_by_variable_at_load() else {
            return self.setup_rejected(refusal);
        };
        let limits = &self.context.limits;
        let (method, params, timeout) = match self.attachment.load_sign_in() {
            LoadSignIn::NotTried => {
                // In HOME no settings of a project select a sign-in.
                let home = process.home();
                let home = home.to_string_lossy();
                let setup =
                    SessionSetup { cwd: &home, mcp_servers: &[], additional_directories: &[], meta: None };
                (acp::method::SESSION_NEW, acp::new_session(setup, None), limits.session_new_timeout)
            }
            LoadSignIn::KeyChecked => {
                (self.link.dialect().login_method(), auth::authenticate(sign_in, None), limits.call_timeout)
            }
            LoadSignIn::SignedIn => return self.setup_rejected(refusal),
        };
        if self.call_for(CallPurpose::SignIn { refusal }, method, &params, timeout) {
            tracing::info!(session = %self.journal.session(), method, "the agent loads no session without a sign-in, trying its key");
        }
    }

    /// Handles the agent's response to a step of the sign-in. `refusal` is its error to the load.
    pub(super) fn sign_in_answered(&mut self, refusal: RpcError, outcome: Result<Box<RawValue>, RpcError>) {
        if let Err(error) = outcome {
            tracing::info!(session = %self.journal.session(), %error, "the agent does not sign in with its key");
            return self.setup_rejected(refusal);
        }
        self.attachment.sign_in_advanced();
        self.set_up(SetUp::new(AttachMethod::Load));
    }
}
