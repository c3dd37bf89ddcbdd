//! The versions of ACP that the gateway speaks, and the differences between their outgoing messages.

use super::method;

/// The version of ACP on a connection. It does not change between `initialize` and the end of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AcpVersion {
    #[default]
    V1,
    V2,
}

impl AcpVersion {
    /// Returns the version for a `protocolVersion`; `None` if the gateway does not speak it.
    pub const fn from_number(version: u64) -> Option<Self> {
        match version {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Returns the value of `protocolVersion`.
    pub const fn number(self) -> u64 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The method that signs in with one of `authMethods`. The params are `{methodId}` in both versions.
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

    /// The member that identifies an element of `authMethods`.
    pub const fn auth_method_id_key(self) -> &'static str {
        match self {
            Self::V1 => "id",
            Self::V2 => "methodId",
        }
    }

    /// The member that identifies an element of `configOptions`.
    pub const fn config_option_id_key(self) -> &'static str {
        match self {
            Self::V1 => "id",
            Self::V2 => "configId",
        }
    }

    /// Returns true if sessions have modes. Otherwise, the mode is the option with the category `mode`.
    pub const fn has_modes(self) -> bool {
        matches!(self, Self::V1)
    }

    /// The method that restores a session and replays its history.
    pub const fn replay_method(self) -> &'static str {
        match self {
            Self::V1 => method::SESSION_LOAD,
            Self::V2 => method::SESSION_RESUME,
        }
    }

    /// Returns true if the agent may request files and terminals from its client.
    pub const fn has_client_methods(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Returns true if the answer to `session/prompt` ends the turn. Otherwise the answer only confirms that
    /// the message was inserted, and a `state_update` reports the end of the work.
    pub const fn answer_ends_turn(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Returns true if a single tool call or terminal of the agent can be cancelled.
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
