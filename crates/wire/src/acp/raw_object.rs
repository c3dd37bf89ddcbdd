//! A JSON object with raw values.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::to_raw;

#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

pub(super) fn text_of(raw: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    serde_json::from_str(raw.get()).map(|Text(text)| text)
}

/// The empty result, also of `terminal/kill` and `terminal/release`.
pub fn empty_result() -> Box<RawValue> {
    to_raw(&serde_json::Map::new())
}

/// The elements of an array; none if the value is no array.
pub(super) fn elements(array: Option<&RawValue>) -> Vec<&RawValue> {
    let elements = array.and_then(|array| serde_json::from_str(array.get()).ok());
    elements.unwrap_or_default()
}

/// Objects in ACP have at most a dozen members. The limit bounds the quadratic search for repeated keys.
const MAX_MEMBERS: usize = 1024;

/// The members of an object in their order, borrowed from the text. Repeated keys are rejected.
#[derive(Debug, Clone)]
pub struct RawObject<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> RawObject<'a> {
    pub const fn empty() -> Self {
        Self(Vec::new())
    }

    /// Parses an object. `None` if the value is not an object, has too many members, a repeated key, or a key
    /// with a lone surrogate.
    pub fn parse(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok().and_then(Self::new)
    }

    /// `None` if a key is repeated.
    pub(super) fn new(Members(members): Members<'a>) -> Option<Self> {
        let is_new = |at: usize| members[..at].iter().all(|(name, _)| *name != members[at].0);
        (0..members.len()).all(is_new).then_some(Self(members))
    }

    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        let mut members = self.0.iter();
        members.find(|(name, _)| name == key).map(|member| member.1)
    }

    /// Returns a member that is not null.
    pub fn value(&self, key: &str) -> Option<&'a RawValue> {
        self.get(key).filter(|value| value.get() != "null")
    }

    /// Returns a member whose JSON begins with this character: a string, an array or an object.
    pub fn starting(&self, key: &str, start: char) -> Option<&'a RawValue> {
        self.get(key).filter(|value| value.get().starts_with(start))
    }

    /// Returns a string member; `None` if the member is absent or has another type.
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        text_of(self.get(key)?).ok()
    }

    /// Returns a nested object; `None` if the member is absent or has another type.
    pub fn object(&self, key: &str) -> Option<Self> {
        Self::parse(self.get(key)?)
    }

    /// Returns the other members as an object; `None` if there are none.
    pub fn without(&self, keys: &[&str]) -> Option<Box<RawValue>> {
        let others = self.0.iter().filter(|(name, _)| !keys.contains(&&**name));
        Members(others.cloned().collect()).to_raw()
    }

    /// The object with these members added or replaced. The other members keep their bytes and their order.
    pub fn with_members(&self, members: &[(&str, Box<RawValue>)]) -> Box<RawValue> {
        let is_other = |name: &str| members.iter().all(|(own, _)| *own != name);
        let others = self.0.iter().filter(|(name, _)| is_other(name)).cloned();
        let own = members.iter();
        let own = own.map(|(name, value)| (Cow::Borrowed(*name), &**value));
        to_raw(&Members(others.chain(own).collect()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }
}

pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl Members<'_> {
    /// Encodes the members as an object; `None` if there are none.
    pub(super) fn to_raw(&self) -> Option<Box<RawValue>> {
        (!self.0.is_empty()).then(|| to_raw(self))
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;

        impl<'de> Visitor<'de> for Whole {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Text(name)) = map.next_key()? {
                    if members.len() == MAX_MEMBERS {
                        return Err(A::Error::custom("too many members for a message of ACP"));
                    }
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::raw;

    #[test]
    fn members_keep_bytes_and_order() {
        let object =
            RawObject::parse(raw(r#"{"b": 1e400, "a":"\ud800", "n":{"x":"\u0041"}}"#)).unwrap();
        assert_eq!(
            object.iter().map(|(key, _)| key).collect::<Vec<_>>(),
            ["b", "a", "n"]
        );
        assert_eq!(object.get("b").unwrap().get(), "1e400");
        assert_eq!(
            object.text("a"),
            None,
            "a lone surrogate is not a valid string"
        );
        assert_eq!(object.object("n").unwrap().text("x").unwrap(), "A");
        assert_eq!(
            object.without(&["a"]).unwrap().get(),
            r#"{"b":1e400,"n":{"x":"\u0041"}}"#
        );
        assert!(
            RawObject::parse(raw(r#"{"a":1}"#))
                .unwrap()
                .without(&["a"])
                .is_none()
        );
    }

    #[test]
    fn non_objects_and_repeated_keys_are_rejected() {
        for wrong in [
            "null",
            "[]",
            "1",
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"\ud800":1}"#,
        ] {
            assert!(RawObject::parse(raw(wrong)).is_none(), "{wrong}");
        }
        let many = |n: usize| {
            (0..n)
                .map(|i| format!("\"{i}\":0"))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert!(RawObject::parse(raw(&format!("{{{}}}", many(MAX_MEMBERS)))).is_some());
        assert!(RawObject::parse(raw(&format!("{{{}}}", many(MAX_MEMBERS + 1)))).is_none());
    }
}
