//! Sessions of agents that need `authenticate` although their key is in their environment.
//!
//! Some agents reject every session without the call: the pool signs in each new process. Others, such as Gemini CLI, reject
//! only the load of a session, because no sign-in is selected in their settings. For such an agent, the call could replace
//! a sign-in that a person has selected, for example a sign-in that the provider rejects temporarily. Therefore the
//! gateway first checks that the same process opens a new session and still rejects the load. With a selected sign-in,
//! both requests would succeed or both would fail.

/// How far a process is with the sign-in that it needs to load the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::session) enum LoadSignIn {
    #[default]
    NotTried,
    /// The process opened a new session, so its key works or the error was transient.
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
