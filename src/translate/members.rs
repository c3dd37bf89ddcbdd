//! The members of an object that a translation creates, in their order. Values keep the bytes of their sender.

use std::borrow::Cow;

use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

/// The members of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Members<'a>(Vec<(&'a str, Cow<'a, RawValue>)>);

impl<'a> Members<'a> {
    /// Sets a member. A member with this name keeps its position.
    pub(super) fn set(&mut self, name: &'a str, value: Box<RawValue>) {
        self.insert(name, Cow::Owned(value));
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
