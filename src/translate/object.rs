//! JSON objects in the lines of agents with another protocol. A required member is read with a typed error.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::acp::RawObject;
use crate::jsonrpc::{TooDeep, check_depth};

/// The reason why an object in a line is not translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("the line is not a JSON object")]
    NotAnObject,
    #[error("the line is nested deeper than {max}")]
    Depth { max: usize },
    #[error("`{object}` has no valid member `{member}`")]
    Member {
        object: &'static str,
        member: &'static str,
    },
    #[error("the line answers an unknown request")]
    UnknownRequest,
}

/// An object in a line, with its name for errors.
#[derive(Debug, Clone)]
pub(super) struct Object<'a> {
    name: &'static str,
    members: RawObject<'a>,
}

impl<'a> Object<'a> {
    /// Parses a whole line.
    pub(super) fn line(
        line: &'a [u8],
        max_depth: usize,
    ) -> Result<(Self, &'a RawValue), LineError> {
        check_depth(line, max_depth).map_err(|TooDeep { max }| LineError::Depth { max })?;
        let raw: &RawValue = serde_json::from_slice(line).map_err(|_| LineError::NotAnObject)?;
        let members = RawObject::parse(raw).ok_or(LineError::NotAnObject)?;
        Ok((
            Self {
                name: "line",
                members,
            },
            raw,
        ))
    }

    /// Parses a value that is not a member of another object.
    pub(super) fn parse(name: &'static str, raw: &'a RawValue) -> Result<Self, LineError> {
        let members = RawObject::parse(raw).ok_or(LineError::Member {
            object: name,
            member: "type",
        })?;
        Ok(Self { name, members })
    }

    pub(super) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// A member that is not null.
    pub(super) fn get(&self, member: &str) -> Option<&'a RawValue> {
        self.members
            .get(member)
            .filter(|value| value.get() != "null")
    }

    pub(super) fn text(&self, member: &str) -> Option<Cow<'a, str>> {
        self.members.text(member)
    }

    pub(super) fn number(&self, member: &str) -> Option<u64> {
        self.get(member)?.get().parse().ok()
    }

    pub(super) fn is_true(&self, member: &str) -> bool {
        self.get(member).is_some_and(|value| value.get() == "true")
    }

    pub(super) fn object(&self, member: &'static str) -> Option<Self> {
        Some(Self {
            name: member,
            members: self.members.object(member)?,
        })
    }

    /// All members, also those with the value null.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members.iter()
    }

    /// The members that are objects.
    pub(super) fn objects(&self) -> Vec<Self> {
        let members = self
            .members
            .iter()
            .filter_map(|(_, value)| RawObject::parse(value));
        members
            .map(|members| Self {
                name: self.name,
                members,
            })
            .collect()
    }

    pub(super) fn array(&self, member: &str) -> Option<Vec<&'a RawValue>> {
        serde_json::from_str(self.get(member)?.get()).ok()
    }

    fn missing(&self, member: &'static str) -> LineError {
        LineError::Member {
            object: self.name,
            member,
        }
    }

    pub(super) fn required(&self, member: &'static str) -> Result<&'a RawValue, LineError> {
        self.get(member).ok_or_else(|| self.missing(member))
    }

    pub(super) fn required_text(&self, member: &'static str) -> Result<Cow<'a, str>, LineError> {
        self.text(member).ok_or_else(|| self.missing(member))
    }

    pub(super) fn required_number(&self, member: &'static str) -> Result<u64, LineError> {
        self.number(member).ok_or_else(|| self.missing(member))
    }

    pub(super) fn required_object(&self, member: &'static str) -> Result<Self, LineError> {
        self.object(member).ok_or_else(|| self.missing(member))
    }

    pub(super) fn required_array(
        &self,
        member: &'static str,
    ) -> Result<Vec<&'a RawValue>, LineError> {
        self.array(member).ok_or_else(|| self.missing(member))
    }
}
