//! Sessions of agents that need `authenticate` although their key is in their environment.
//!
//! Some agents refuse every session without the call: the pool signs in each new process. Others, such as Gemini CLI, refuse
//! only to load a session, because no sign-in is selected in their settings. There the call could replace a sign-in
//! that a person has selected, for example one that the provider refuses for a moment. So the gateway first checks that
//! the same process opens a new session and still refuses the load: a selected sign-in would fail or work for both.

/// How far a process is with the sign-in that it needs to load the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::session) enum LoadSignIn {
    #[default]
    NotTried,
    /// The process opened a new session, so its key works or the refusal was transient.
    KeyChecked,
    SignedIn,
}

impl LoadSignIn {
    /// The progress after a successful step.
    pub(super) fn next(self) -> Self {
        match self {
            Self::NotTried => Self::KeyChecked,
            Self::KeyChecked | Self::SignedIn => Self::SignedIn,
        }
    }
}
