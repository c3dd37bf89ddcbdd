//! The names that a key permits for members of the fleet.

use std::sync::Arc;

use crate::acp::known_agents::is_known_name;
use base::types::AgentName;

/// The names that a key permits. A member is an agent to clients, so a key must not give its members the name of an agent
/// that clients expect elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MemberNames {
    /// Every name except those of known agents.
    #[default]
    Unreserved,
    Any,
    /// Only these names, which may be those of known agents.
    Only(Arc<[AgentName]>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberNameError {
    #[error(
        "a known agent has this name; permit it with `acp-gateway key update KEY --member-names`"
    )]
    Known,
    #[error("the key does not permit this name; see `acp-gateway key update KEY --member-names`")]
    NotListed,
}

impl MemberNames {
    pub fn check(&self, name: &AgentName) -> Result<(), MemberNameError> {
        match self {
            Self::Unreserved if is_known_name(name.as_str()) => Err(MemberNameError::Known),
            Self::Only(names) if !names.contains(name) => Err(MemberNameError::NotListed),
            Self::Unreserved | Self::Any | Self::Only(_) => Ok(()),
        }
    }

    /// Whether every name that `other` permits is permitted too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (Self::Unreserved, Self::Unreserved) => true,
            (_, Self::Only(names)) => names.iter().all(|name| self.check(name).is_ok()),
            (_, Self::Any) | (Self::Only(_), Self::Unreserved) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(names: &[&str]) -> MemberNames {
        MemberNames::Only(names.iter().map(|name| name.parse().unwrap()).collect())
    }

    #[test]
    fn names_of_known_agents_need_a_permission() {
        let name = |name: &str| name.parse::<AgentName>().unwrap();
        for known in [
            "claude",
            "claude-code",
            "codex",
            "codex-acp",
            "gemini",
            "demo",
        ] {
            let reserved = Err(MemberNameError::Known);
            assert_eq!(MemberNames::Unreserved.check(&name(known)), reserved);
            assert_eq!(MemberNames::Any.check(&name(known)), Ok(()));
            assert_eq!(only(&[known]).check(&name(known)), Ok(()));
        }
        assert_eq!(MemberNames::Unreserved.check(&name("laptop")), Ok(()));
        let not_listed = Err(MemberNameError::NotListed);
        assert_eq!(only(&["claude"]).check(&name("laptop")), not_listed);
    }

    #[test]
    fn names_cover_a_part_of_themselves() {
        let all = [
            &MemberNames::Any,
            &MemberNames::Unreserved,
            &only(&["a", "claude"]),
            &only(&["a"]),
        ];
        let covers = all.map(|names| all.map(|other| names.covers(other)));
        assert_eq!(
            covers,
            [
                [true, true, true, true],
                [false, true, false, true],
                [false, false, true, true],
                [false, false, false, true],
            ]
        );
    }
}
