//! The versions of ACP that the gateway speaks, and the differences between them.
//!
//! A difference between versions is a method of [`AcpVersion`], or a message takes the version as a parameter. Other
//! modules call these methods and do not compare versions. Only `agent` compares them, when it selects the version of a
//! connection. The gateway does not translate updates between versions: they stay raw.

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

    /// The method that signs in with one of `authMethods`. The params are `{methodId}`.
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

    /// The method that restores a session and replays its history.
    pub const fn replay_method(self) -> &'static str {
        match self {
            Self::V1 => method::SESSION_LOAD,
            Self::V2 => method::SESSION_RESUME,
        }
    }

    /// Whether sessions have modes. Otherwise, the mode is the option with the category `mode`.
    pub const fn has_modes(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether the agent may request files and terminals from its client.
    pub const fn has_client_methods(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether the answer to `session/prompt` ends the turn. Otherwise the answer only confirms that the message was
    /// inserted, and a `state_update` reports the end of the work.
    pub const fn answer_ends_turn(self) -> bool {
        matches!(self, Self::V1)
    }

    /// Whether a single tool call or terminal of the agent can be cancelled.
    pub const fn has_cancel_targets(self) -> bool {
        matches!(self, Self::V2)
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
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::{v1, v2};

    use super::*;

    #[test]
    fn method_names_match_the_schema() {
        let first = &v1::AGENT_METHOD_NAMES;
        let second = &v2::AGENT_METHOD_NAMES;
        assert_eq!(AcpVersion::V1.login_method(), first.authenticate);
        assert_eq!(AcpVersion::V1.logout_method(), first.logout);
        assert_eq!(AcpVersion::V1.replay_method(), first.session_load);
        assert_eq!(AcpVersion::V2.login_method(), second.auth_login);
        assert_eq!(AcpVersion::V2.logout_method(), second.auth_logout);
        assert_eq!(AcpVersion::V2.replay_method(), second.session_resume);
    }

    #[test]
    fn numbers_of_other_versions_are_rejected() {
        for version in [AcpVersion::V1, AcpVersion::V2] {
            assert_eq!(AcpVersion::from_number(version.number()), Some(version));
        }
        assert_eq!(
            (AcpVersion::from_number(0), AcpVersion::from_number(3)),
            (None, None)
        );
    }
}
