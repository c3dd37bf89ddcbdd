//! Sessions of agents that need `authenticate` although their key is in their environment.
//!
//! Some agents refuse every session without the call: the pool signs in each new process. Others, as Gemini CLI, refuse
//! only to load a session, because no sign-in is selected in their settings. There the call could replace a sign-in
//! that a person has selected, for example one that the provider refuses for a moment. So the gateway first checks that
//! the same process opens a new session and still refuses the load: a selected sign-in would fail or work for both.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::{AttachMethod, Attachment};
use super::refusal::Refusal;
use crate::acp::{self, SessionSetup, auth};
use crate::agent::AgentFailure;
use crate::jsonrpc::RpcError;
use crate::pool::{Disposition, Lease};

/// How far a process is with the sign-in that it needs to load the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LoadSignIn {
    #[default]
    NotTried,
    /// The process opened a new session, so its key works or the refusal was transient.
    KeyChecked,
    SignedIn,
}

impl Actor {
    /// Acquires another process if new processes sign in with the key of the agent's environment and this one
    /// did not. Returns false if `refusal` is final.
    pub(super) fn retried_with_key(&mut self, refusal: &Refusal) -> bool {
        let needed = matches!(refusal, Refusal::Agent(AgentFailure::AuthRequired { .. }));
        if !needed || !self.event_loop.lease.as_ref().is_some_and(Lease::sign_in_with_key) {
            return false;
        }
        tracing::info!(session = %self.record.session_id, "retrying with a process that signs in with the key of the agent's environment");
        self.release(Disposition::Stop, refusal);
        self.attachment = Attachment::Detached;
        if let Err(refusal) = self.reserve() {
            self.attach_failed(&refusal);
        }
        true
    }

    /// The agent refused to load the session without a sign-in. Begins the next step of the sign-in with its key, if
    /// there is one; otherwise `refusal` is final.
    pub(super) fn sign_in_for_load(&mut self, refusal: RpcError) {
        let Some(lease) = &self.event_loop.lease else { return };
        let process = lease.process();
        let Some(sign_in) = process.sign_in_by_variable_at_load() else {
            return self.setup_rejected(refusal);
        };
        let limits = &self.context.limits;
        let (method, params, limit) = match self.restore.load_sign_in {
            LoadSignIn::NotTried => {
                // In HOME no settings of a project select a sign-in.
                let home = process.home();
                let setup = SessionSetup {
                    cwd: &home.to_string_lossy(),
                    mcp_servers: &[],
                    additional_directories: &[],
                    meta: None,
                };
                (acp::method::SESSION_NEW, acp::new_session(setup, None), limits.session_new_timeout)
            }
            LoadSignIn::KeyChecked => {
                (self.dialect().login_method(), auth::authenticate(sign_in, None), limits.call_timeout)
            }
            LoadSignIn::SignedIn => return self.setup_rejected(refusal),
        };
        // A closed stdin shows as the end of the process, which comes through the batches.
        if let Ok(call) = process.connection.call(method, &params) {
            let deadline = Instant::now() + limit;
            tracing::info!(session = %self.record.session_id, method, "the agent loads no session without a sign-in, trying its key");
            self.attachment = Attachment::SigningIn { call, deadline, refusal };
        }
    }

    /// The agent's answer to a step of the sign-in.
    pub(super) fn sign_in_answered(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        let attached = std::mem::replace(&mut self.attachment, Attachment::Attached);
        let Attachment::SigningIn { refusal, .. } = attached else { return };
        match outcome {
            Ok(_) => {
                self.restore.load_sign_in = match self.restore.load_sign_in {
                    LoadSignIn::NotTried => LoadSignIn::KeyChecked,
                    LoadSignIn::KeyChecked | LoadSignIn::SignedIn => LoadSignIn::SignedIn,
                };
                self.set_up(AttachMethod::Load, None);
            }
            Err(error) => {
                tracing::info!(session = %self.record.session_id, %error, "the agent does not sign in with its key");
                self.setup_rejected(refusal);
            }
        }
    }
}
