//! JSON that translations read and create, and the bounds of the state that they retain. Values keep the bytes of their sender.

use std::borrow::Cow;
use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

pub(super) use super::protocol::LineError;
use super::protocol::Output;
use wire::acp::{RawObject, error_code, method, object, to_raw};
use wire::jsonrpc::{CallId, Message, RpcError, TooDeep, check_depth};

pub(super) fn update(session: &str, update: &impl Serialize) -> Output {
    let params = object(&[("sessionId", to_raw(session)), ("update", to_raw(update))]);
    notification(method::SESSION_UPDATE, params)
}

pub(super) fn notification(method: &str, params: Box<RawValue>) -> Output {
    Output::ToClient(Message::Notification {
        method: method.into(),
        params,
    })
}

/// A chunk of this kind. `text` is a string, which passes unchanged.
pub(super) fn chunk(session: &str, kind: &str, text: &RawValue, message: Option<&str>) -> Output {
    let mut members = Members::default();
    members.set("sessionUpdate", to_raw(kind));
    members.set("content", text_block(text));
    members.set_some("messageId", message.map(to_raw));
    update(session, &members)
}

pub(super) fn text_block(text: &RawValue) -> Box<RawValue> {
    object(&[("type", to_raw("text")), ("text", text.to_owned())])
}

pub(super) fn response(call: CallId, outcome: Result<Box<RawValue>, RpcError>) -> Output {
    let id = to_raw(&call.number());
    Output::ToClient(Message::Response { id, outcome })
}

pub(super) fn invalid_params(detail: impl Display) -> RpcError {
    let message = format!("Invalid params: {detail}");
    RpcError::new(error_code::INVALID_PARAMS, message)
}

pub(super) fn invalid_request(detail: impl Display) -> RpcError {
    let message = format!("Invalid request: {detail}");
    RpcError::new(error_code::INVALID_REQUEST, message)
}

pub(super) fn internal(detail: impl Display) -> RpcError {
    RpcError::new(error_code::INTERNAL, format!("Internal error: {detail}"))
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUpdate<'a> {
    pub(super) session_update: &'static str,
    pub(super) tool_call_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Cow<'a, RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) locations: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_output: Option<&'a RawValue>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<Value>,
}

/// The members of an object that a translation creates, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Members<'a>(Vec<(&'a str, Cow<'a, RawValue>)>);

impl<'a> Members<'a> {
    /// Sets a member. A member with this name keeps its position.
    pub(super) fn set(&mut self, name: &'a str, value: Box<RawValue>) {
        self.insert(name, Cow::Owned(value));
    }

    pub(super) fn set_some(&mut self, name: &'a str, value: Option<Box<RawValue>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    fn insert(&mut self, name: &'a str, value: Cow<'a, RawValue>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| *known != name);
    }
}

impl<'a> FromIterator<(&'a str, &'a RawValue)> for Members<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a RawValue)>>(members: I) -> Self {
        let mut all = Self::default();
        for (name, value) in members {
            all.insert(name, Cow::Borrowed(value));
        }
        all
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

pub(super) const fn missing(object: &'static str, member: &'static str) -> LineError {
    LineError::Member { object, member }
}

#[derive(Debug, Clone)]
pub(super) struct Object<'a> {
    name: &'static str,
    members: RawObject<'a>,
}

impl<'a> Object<'a> {
    pub(super) fn line(line: &'a [u8], max: usize) -> Result<(Self, &'a RawValue), LineError> {
        check_depth(line, max).map_err(|TooDeep { max }| LineError::Depth { max })?;
        let raw: &RawValue = serde_json::from_slice(line).map_err(|_| LineError::NotAnObject)?;
        let members = RawObject::parse(raw).ok_or(LineError::NotAnObject)?;
        let name = "line";
        Ok((Self { name, members }, raw))
    }

    /// Parses a value that is not a member of another object.
    pub(super) fn parse(name: &'static str, raw: &'a RawValue) -> Result<Self, LineError> {
        let members = RawObject::parse(raw).ok_or(missing(name, "type"))?;
        Ok(Self { name, members })
    }

    pub(super) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// A member that is not null.
    pub(super) fn get(&self, member: &str) -> Option<&'a RawValue> {
        self.members.value(member)
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
        let members = self.members.object(member)?;
        Some(Self {
            name: member,
            members,
        })
    }

    /// All members, also those with the value null.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members.iter()
    }

    pub(super) fn objects(&self) -> Vec<Self> {
        let members = self.members.iter();
        let objects = members.filter_map(|(_, value)| Self::parse(self.name, value).ok());
        objects.collect()
    }

    pub(super) fn array(&self, member: &str) -> Option<Vec<&'a RawValue>> {
        serde_json::from_str(self.get(member)?.get()).ok()
    }

    fn missing(&self, member: &'static str) -> LineError {
        missing(self.name, member)
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
        name: &'static str,
    ) -> Result<Vec<&'a RawValue>, LineError> {
        self.array(name).ok_or_else(|| self.missing(name))
    }
}

/// Counts the bytes of one part of the state, of which at most `MAX` are retained.
#[derive(Debug, Default)]
pub(super) struct Budget<const MAX: usize> {
    used: usize,
}

impl<const MAX: usize> Budget<MAX> {
    /// Reserves bytes. Returns `false` and reserves none if they do not fit.
    #[must_use]
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        let fits = self.fits(bytes);
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub(super) fn fits(&self, bytes: usize) -> bool {
        bytes <= MAX - self.used
    }

    pub(super) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    pub(super) fn release_all(&mut self) {
        self.used = 0;
    }

    #[cfg(test)]
    pub(super) const fn used(&self) -> usize {
        self.used
    }
}

/// The first bytes of a text, up to `max` and to the end of a character.
pub(super) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_above_the_maximum_are_not_reserved() {
        let mut budget = Budget::<10>::default();
        assert!(budget.reserve(6) && !budget.reserve(5) && budget.reserve(4));
        assert_eq!(budget.used(), 10);
        assert!(!budget.fits(1));
        budget.release(4);
        assert!(budget.fits(4) && !budget.fits(usize::MAX));
        budget.release_all();
        assert!(budget.reserve(10));
    }

    #[test]
    fn text_is_cut_at_the_end_of_a_character() {
        assert_eq!(
            (cut("aä", 2), cut("aä", 3), cut("aä", 9)),
            ("a", "aä", "aä")
        );
    }
}
