//! The failure of a supervisor.

/// The exit code of a supervisor that could not run the child.
pub(super) const EXIT_SETUP_FAILED: u8 = 125;

/// A failed step and its cause.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(super) struct SupervisorError {
    pub(super) step: &'static str,
    pub(super) source: std::io::Error,
}

impl SupervisorError {
    pub(super) fn at<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self { step, source: source.into() }
    }
}
