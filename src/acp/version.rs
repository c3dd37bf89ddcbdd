//! The versions of ACP that the gateway speaks, and where they differ for whoever sends.

use super::method;

/// What a process speaks. One connection speaks one version, from `initialize` to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcpVersion {
    #[default]
    V1,
    V2,
}

impl AcpVersion {
    /// The dialect of a `protocolVersion`; None: one that the gateway does not speak.
    pub const fn from_number(version: u64) -> Option<Self> {
        match version {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// The `protocolVersion` that it has on the wire.
    pub const fn number(self) -> u64 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The method that signs in with one of `authMethods`; its params are `{methodId}` in both.
    pub const fn login_method(self) -> &'static str {
        match self {
            Self::V1 => method::AUTHENTICATE,
            Self::V2 => method::AUTH_LOGIN,
        }
    }

    /// The method that signs out.
    pub const fn logout_method(self) -> &'static str {
        match self {
            Self::V1 => method::LOGOUT,
            Self::V2 => method::AUTH_LOGOUT,
        }
    }

    /// The member of an element of `authMethods` that names it.
    pub const fn auth_method_id_key(self) -> &'static str {
        match self {
            Self::V1 => "id",
            Self::V2 => "methodId",
        }
    }

    /// The member of an element of `configOptions` that names it.
    pub const fn config_option_id_key(self) -> &'static str {
        match self {
            Self::V1 => "id",
            Self::V2 => "configId",
        }
    }

    /// Whether a session has modes of its own. Without them its mode is the option of the category `mode`.
    pub const fn has_modes(self) -> bool {
        matches!(self, Self::V1)
    }

    /// The method that gives a session back with all that was said.
    pub const fn replay_method(self) -> &'static str {
        match self {
            Self::V1 => method::SESSION_LOAD,
            Self::V2 => method::SESSION_RESUME,
        }
    }

    /// Whether an agent may ask for files and terminals of the client's.
    pub const fn has_client_methods(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether the answer to `session/prompt` is the end of the turn. Where it is not, the answer says that the
    /// message was inserted, and a `state_update` tells when the agent has stopped working.
    pub const fn answer_ends_turn(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether one tool call or one terminal of the agent can be cancelled.
    pub const fn has_cancel_targets(self) -> bool {
        matches!(self, Self::V2)
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;

    #[test]
    fn method_names_match_the_schema() {
        assert_eq!(AcpVersion::V1.login_method(), v1::AGENT_METHOD_NAMES.authenticate);
        assert_eq!(AcpVersion::V1.logout_method(), v1::AGENT_METHOD_NAMES.logout);
        assert_eq!(AcpVersion::V2.login_method(), v2::AGENT_METHOD_NAMES.auth_login);
        assert_eq!(AcpVersion::V2.logout_method(), v2::AGENT_METHOD_NAMES.auth_logout);
        for dialect in [AcpVersion::V1, AcpVersion::V2] {
            assert_eq!(AcpVersion::from_number(dialect.number()), Some(dialect));
        }
        assert_eq!((AcpVersion::from_number(0), AcpVersion::from_number(3)), (None, None));
    }
}
