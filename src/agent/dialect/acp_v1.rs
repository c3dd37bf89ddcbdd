//! Agents that speak ACP v1.

use super::Dialect;
use crate::acp::{AcpVersion, method};

/// The dialect of ACP v1.
#[derive(Debug, Clone, Copy)]
pub struct AcpV1;

impl Dialect for AcpV1 {
    fn version(&self) -> AcpVersion {
        AcpVersion::V1
    }

    fn login_method(&self) -> &'static str {
        method::AUTHENTICATE
    }

    fn logout_method(&self) -> &'static str {
        method::LOGOUT
    }

    fn replay_method(&self) -> &'static str {
        method::SESSION_LOAD
    }

    fn has_modes(&self) -> bool {
        true
    }

    fn has_client_methods(&self) -> bool {
        true
    }

    fn answer_ends_turn(&self) -> bool {
        true
    }

    fn has_cancel_targets(&self) -> bool {
        false
    }
}
