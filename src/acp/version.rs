//! The versions of ACP that the gateway speaks, and the names of members that differ between them.

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
    use super::*;

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
