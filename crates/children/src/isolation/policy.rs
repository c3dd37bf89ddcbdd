//! The operator's requirements for the isolation of all agents.

use std::str::FromStr;

/// The operator's requirements for all agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IsolationPolicy {
    /// A child whose level cannot be applied completely does not start.
    pub required: bool,
    /// Children may start with the rights of root.
    pub allow_root: bool,
    /// The users of children, if the gateway runs as root.
    pub run_as: Option<UserRange>,
}

/// The kernel shows files of unknown owners as those of this user.
const OVERFLOW_USER: u32 = 65534;

/// Both ends belong to the range. It contains neither root nor the user of files without a known owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("{first}-{last}")]
pub struct UserRange {
    first: u32,
    last: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserRangeError {
    #[error("must be the first and the last user id, such as \"100000-165535\"")]
    Syntax,
    #[error("must not contain 0, the user id of root")]
    Root,
    #[error("must not contain {OVERFLOW_USER}, the user id of files without a known owner")]
    Overflow,
    #[error("must not contain {}, which is no user id", u32::MAX)]
    NoUser,
    #[error("the first user id must not be greater than the last one")]
    Reversed,
}

impl UserRange {
    pub const fn first(self) -> u32 {
        self.first
    }

    pub const fn last(self) -> u32 {
        self.last
    }

    pub const fn contains(self, user: u32) -> bool {
        self.first <= user && user <= self.last
    }
}

impl FromStr for UserRange {
    type Err = UserRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').ok_or(UserRangeError::Syntax)?;
        // `parse` accepts a sign.
        let id = |text: &str| {
            if !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(UserRangeError::Syntax);
            }
            text.parse().map_err(|_| UserRangeError::Syntax)
        };
        let range = Self {
            first: id(first.trim())?,
            last: id(last.trim())?,
        };
        match range {
            Self { first, last } if first > last => Err(UserRangeError::Reversed),
            range if range.contains(0) => Err(UserRangeError::Root),
            range if range.contains(OVERFLOW_USER) => Err(UserRangeError::Overflow),
            range if range.contains(u32::MAX) => Err(UserRangeError::NoUser),
            range => Ok(range),
        }
    }
}

#[cfg(test)]
mod user_range_tests {
    use super::*;

    #[test]
    fn range_is_two_ids_without_root() {
        let range: UserRange = "100000-165535".parse().unwrap();
        assert_eq!((range.first(), range.last()), (100_000, 165_535));
        assert!(range.contains(100_000) && range.contains(165_535));
        assert!(!range.contains(99_999) && !range.contains(165_536));
        assert_eq!(range.to_string(), "100000-165535");
        assert_eq!("7-7".parse::<UserRange>().map(UserRange::first), Ok(7));
        for (text, error) in [
            ("", UserRangeError::Syntax),
            ("100000", UserRangeError::Syntax),
            ("100000-", UserRangeError::Syntax),
            ("+1-2", UserRangeError::Syntax),
            ("a-b", UserRangeError::Syntax),
            ("1-2-3", UserRangeError::Syntax),
            ("1-4294967296", UserRangeError::Syntax),
            ("0-10", UserRangeError::Root),
            ("0-0", UserRangeError::Root),
            ("60000-70000", UserRangeError::Overflow),
            ("100000-4294967295", UserRangeError::NoUser),
            ("9-8", UserRangeError::Reversed),
        ] {
            assert_eq!(text.parse::<UserRange>(), Err(error), "{text:?}");
        }
    }
}
