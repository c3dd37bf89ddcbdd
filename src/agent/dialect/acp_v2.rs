//! Agents that speak ACP v2.

use super::Dialect;
use crate::acp::{AcpVersion, method};

/// The dialect of ACP v2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcpV2;

impl Dialect for AcpV2 {
    fn version(&self) -> AcpVersion {
        AcpVersion::V2
    }

    fn login_method(&self) -> &'static str {
        method::AUTH_LOGIN
    }

    fn logout_method(&self) -> &'static str {
        method::AUTH_LOGOUT
    }

    fn replay_method(&self) -> &'static str {
        method::SESSION_RESUME
    }

    fn has_modes(&self) -> bool {
        false
    }

    fn has_client_methods(&self) -> bool {
        false
    }

    fn answer_ends_turn(&self) -> bool {
        false
    }

    fn has_cancel_targets(&self) -> bool {
        true
    }
}
