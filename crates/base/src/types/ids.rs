//! Ids of the objects in the API. An id is a handle, never a credential.

use std::str::FromStr;

use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id")]
pub struct IdError;

/// The id of a session: a UUID v7 in lower case with hyphens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
#[display("{}", _0.hyphenated())]
pub struct SessionId(Uuid);

impl SessionId {
    /// The id of the audit log among the logs of the store. No session has it.
    pub const AUDIT: Self = Self(Uuid::nil());

    pub const fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The same id with the number of the store that creates the session, in the last 16 random bits of the UUID. The store of a
    /// session is then known without a lookup. The other 58 random bits keep ids unique.
    #[must_use]
    pub const fn in_shard(self, shard: u16) -> Self {
        let mut bytes = *self.as_bytes();
        [bytes[14], bytes[15]] = shard.to_be_bytes();
        Self(Uuid::from_bytes(bytes))
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    /// Accepts only the text that `Display` writes, so that a session has exactly one URL.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = Uuid::try_parse(text).map_err(|_| IdError)?;
        let mut buffer = Uuid::encode_buffer();
        if id.hyphenated().encode_lower(&mut buffer) == text {
            Ok(Self(id))
        } else {
            Err(IdError)
        }
    }
}

/// Ids that count from 1 within a session. The text form starts with a letter.
macro_rules! counted {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
        #[display("{}{_0}", $letter)]
        pub struct $name(u32);

        impl $name {
            pub const FIRST: Self = Self(1);

            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            pub const fn number(self) -> u32 {
                self.0
            }

            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let digits = text.strip_prefix($letter).ok_or(IdError)?;
                let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                if !plain || digits.starts_with('0') {
                    return Err(IdError);
                }
                digits.parse().map(Self).map_err(|_| IdError)
            }
        }

    };
}

counted!(
    /// The id of a turn in its session: `p1`, `p2`, ...
    PromptId,
    "p"
);
counted!(
    /// The id of an agent's request that a client answers: `r1`, `r2`, ...
    RequestId,
    "r"
);

counted!(
    /// The id of a terminal that the gateway runs for a session: `t1`, `t2`, ...
    TerminalId,
    "t"
);

text_form!(SessionId, PromptId, RequestId, TerminalId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_text_form() {
        let id = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
        assert_eq!(id.parse::<SessionId>().unwrap().to_string(), id);
        for wrong in [
            "01938C5E-7A3B-7C4D-8E5F-0123456789AB",
            "01938c5e7a3b7c4d8e5f0123456789ab",
            "",
            "x\n",
        ] {
            assert_eq!(wrong.parse::<SessionId>(), Err(IdError), "{wrong:?}");
        }
        assert_eq!("p12".parse::<PromptId>().unwrap().number(), 12);
        for wrong in ["p0", "p", "12", "p01", "p+1", "p99999999999", "r1"] {
            assert_eq!(wrong.parse::<PromptId>(), Err(IdError), "{wrong:?}");
        }
    }
}
