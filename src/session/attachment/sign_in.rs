//! Sessions of agents that need `authenticate` although their key is in their environment.
//!
//! Some agents refuse every session without the call: the pool signs in each new process. Others, such as Gemini CLI, refuse
//! only to load a session, because no sign-in is selected in their settings. There the call could replace a sign-in
//! that a person has selected, for example one that the provider refuses for a moment. So the gateway first checks that
//! the same process opens a new session and still refuses the load: a selected sign-in would fail or work for both.

use super::Attachment;
use crate::jsonrpc::RpcError;

/// How far a process is with the sign-in that it needs to load the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::session) enum LoadSignIn {
    #[default]
    NotTried,
    /// The process opened a new session, so its key works or the refusal was transient.
    KeyChecked,
    SignedIn,
}

impl Attachment {
    /// The progress of the sign-in that the process needs to load the session.
    pub(in crate::session) fn load_sign_in(&self) -> LoadSignIn {
        self.load_sign_in
    }

    /// Handles the response to a step of the sign-in. Returns the agent's error to the load if the step failed.
    pub(in crate::session) fn sign_in_answered(&mut self, succeeded: bool) -> Option<RpcError> {
        let super::State::SigningIn { refusal, .. } =
            std::mem::replace(&mut self.state, super::State::Attached)
        else {
            return None;
        };
        if !succeeded {
            return Some(refusal);
        }
        self.load_sign_in = match self.load_sign_in {
            LoadSignIn::NotTried => LoadSignIn::KeyChecked,
            LoadSignIn::KeyChecked | LoadSignIn::SignedIn => LoadSignIn::SignedIn,
        };
        None
    }
}
