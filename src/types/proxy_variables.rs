//! The variables that name the proxies of outgoing connections.

use std::fmt;

/// The values of `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`. A value that is not set is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyVariables {
    pub https: String,
    pub http: String,
    pub all: String,
    pub no: String,
}

impl fmt::Debug for ProxyVariables {
    /// Omits the values, because a URL of a proxy can contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyVariables").finish_non_exhaustive()
    }
}
