//! Positions in the log as clients see them: `<epoch>-<seq>` in a session, `<epoch>-g<pos>` in the whole
//! store.

use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::ids::{IdError, SessionId};

/// A short token of a history. It changes only if the history may differ from the events that a client has seen.
///
/// Each store has a random epoch, which its positions contain. Each session has an epoch that is derived from the
/// store's epoch, so that an event id of another session is not a valid cursor of this session.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Display)]
pub struct Epoch(Arc<str>);

impl Epoch {
    /// Six characters of base 32.
    pub fn of_bytes(bytes: [u8; 6]) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let text: String = bytes
            .iter()
            .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
            .collect();
        Self(text.into())
    }

    /// The epoch of the events of a session in a store with this epoch.
    #[must_use]
    pub fn of_session(&self, session: SessionId) -> Self {
        let digest = Sha256::new()
            .chain_update(session.as_bytes())
            .chain_update(self.as_str())
            .finalize();
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&digest[..6]);
        Self::of_bytes(bytes)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Epoch {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = (1..=16).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(IdError)
        }
    }
}

/// The id of an event in its session. `seq` counts from 1 without gaps; 0 is the position before the first
/// event.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{epoch}-{seq}")]
pub struct EventId {
    pub epoch: Epoch,
    pub seq: u64,
}

/// A position in the whole store, for streams over many sessions.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{epoch}-g{pos}")]
pub struct Position {
    pub epoch: Epoch,
    pub pos: u64,
}

fn number(digits: &str) -> Result<u64, IdError> {
    let canonical = digits == "0" || !digits.starts_with('0');
    if !canonical || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(IdError);
    }
    digits.parse().map_err(|_| IdError)
}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (epoch, seq) = text.split_once('-').ok_or(IdError)?;
        Ok(Self {
            epoch: epoch.parse()?,
            seq: number(seq)?,
        })
    }
}

impl FromStr for Position {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (epoch, pos) = text.split_once("-g").ok_or(IdError)?;
        Ok(Self {
            epoch: epoch.parse()?,
            pos: number(pos)?,
        })
    }
}

text_form!(Epoch, EventId, Position);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_of_each_store_has_its_own_epoch() {
        let store: Epoch = "k3".parse().unwrap();
        let session = |number| SessionId::from_uuid(uuid::Uuid::from_u128(number));
        let of_one = store.of_session(session(1));
        assert_eq!(of_one, store.of_session(session(1)));
        assert_eq!(of_one.as_str().parse::<Epoch>(), Ok(of_one.clone()));
        let other_store: Epoch = "k4".parse().unwrap();
        for other in [
            store.clone(),
            store.of_session(session(2)),
            other_store.of_session(session(1)),
        ] {
            assert_ne!(of_one, other);
        }
    }

    #[test]
    fn cursors_round_trip_and_malformed_ones_are_rejected() {
        assert_eq!("k3-42".parse::<EventId>().unwrap().to_string(), "k3-42");
        assert_eq!("k3-g42".parse::<Position>().unwrap().to_string(), "k3-g42");
        for wrong in [
            "",
            "k3",
            "k3-",
            "-1",
            "k3-042",
            "k3-1\n",
            "k3-+1",
            "K3-1",
            "k3-g1",
            "k3-18446744073709551616",
        ] {
            assert_eq!(wrong.parse::<EventId>(), Err(IdError), "{wrong:?}");
        }
    }
}
