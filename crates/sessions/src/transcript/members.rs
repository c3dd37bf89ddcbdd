//! An agent's object that its updates change member by member.

use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::Budget;
use wire::acp::RawObject;

#[derive(Debug, Default)]
pub(super) struct Members(Vec<(String, Box<RawValue>)>);

/// The meaning of null in an update, which differs between ACP v1 and v2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Null {
    /// Null keeps the member, like an omitted member.
    #[default]
    Keeps,
    Clears,
}

impl Members {
    /// Merges the members of an update, including unknown ones. An omitted member stays. A value other than
    /// null replaces the member.
    pub(super) fn merge(
        &mut self,
        update: &RawObject<'_>,
        omitted: &[&str],
        null: Null,
        budget: &mut Budget,
    ) {
        let included = |key: &str| key != "sessionUpdate" && !omitted.contains(&key);
        for (key, value) in update.iter().filter(|(key, _)| included(key)) {
            match (value.get(), null) {
                ("null", Null::Keeps) => {}
                ("null", Null::Clears) => self.clear(key, budget),
                (_, Null::Clears) if key == "_meta" => {
                    let patched = self.get(key).and_then(|old| patched(old, value));
                    self.set(key, patched.as_deref().unwrap_or(value), budget);
                }
                _ => self.set(key, value, budget),
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| &**value)
    }

    /// Sets a member whose size is counted elsewhere.
    pub(super) fn set_uncounted(&mut self, key: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    pub(super) fn clear(&mut self, key: &str, budget: &mut Budget) {
        if let Some(at) = self.0.iter().position(|(name, _)| name == key) {
            let (name, old) = self.0.remove(at);
            budget.release(name.len() + old.get().len());
        }
    }

    pub(super) fn set(&mut self, key: &str, value: &RawValue, budget: &mut Budget) {
        let old = self.get(key).map(|old| old.get().len());
        budget.release(old.unwrap_or_default());
        let added = value.get().len() + if old.is_some() { 0 } else { key.len() };
        if budget.reserve(added) {
            self.set_uncounted(key, value.to_owned());
        } else {
            // The old value still fits, because its size was released just before.
            budget.reserve(old.unwrap_or_default());
        }
    }

    pub(super) fn finish(&self) -> Box<RawValue> {
        to_raw_value(self).expect("raw members with string keys serialize")
    }
}

/// Applies a patch to an object key by key: null removes a key. `None` if one of the two is not an object.
fn patched(old: &RawValue, patch: &RawValue) -> Option<Box<RawValue>> {
    let old = RawObject::parse(old)?;
    let patch = RawObject::parse(patch)?;
    let kept = old.iter().filter(|(key, _)| patch.get(key).is_none());
    let new = patch.iter().filter(|(_, value)| value.get() != "null");
    let owned = |(key, value): (&str, &RawValue)| (key.to_owned(), value.to_owned());
    Some(Members(kept.map(owned).chain(new.map(owned)).collect()).finish())
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(members: &mut Members, text: &str, budget: &mut Budget) {
        members.merge(
            &RawObject::parse(serde_json::from_str(text).unwrap()).unwrap(),
            &["summary"],
            Null::Keeps,
            budget,
        );
    }

    #[test]
    fn null_keeps_member() {
        let mut members = Members::default();
        let mut budget = Budget::new(1000);
        merge(
            &mut members,
            r#"{"sessionUpdate":"x","a":1.10,"b":[1,2],"n":null,"summary":1}"#,
            &mut budget,
        );
        merge(
            &mut members,
            r#"{"b":[3],"a":null,"new":{"\u0061":1}}"#,
            &mut budget,
        );
        assert_eq!(
            members.finish().get(),
            r#"{"a":1.10,"b":[3],"new":{"\u0061":1}}"#
        );
        assert!(!budget.exceeded);
    }

    #[test]
    fn null_clears_member() {
        let mut members = Members::default();
        let mut budget = Budget::new(20);
        for text in [
            r#"{"a":"12345","b":1,"c":null}"#,
            r#"{"a":null,"c":null}"#,
            r#"{"c":"1234567890"}"#,
        ] {
            let update = serde_json::from_str(text).unwrap();
            members.merge(
                &RawObject::parse(update).unwrap(),
                &[],
                Null::Clears,
                &mut budget,
            );
        }
        assert_eq!(members.finish().get(), r#"{"b":1,"c":"1234567890"}"#);
        assert!(!budget.exceeded, "a cleared member must release its size");
    }

    #[test]
    fn meta_is_patched_by_key_when_null_clears() {
        let mut members = Members::default();
        let mut budget = Budget::new(100);
        let mut patch = |text: &str| {
            let object = RawObject::parse(serde_json::from_str(text).unwrap()).unwrap();
            members.merge(&object, &["content"], Null::Clears, &mut budget);
            members.finish().get().to_owned()
        };
        patch(r#"{"sessionUpdate":"x","a":1,"content":[],"_meta":{"x":1.10,"y":{"z":1},"w":0}}"#);
        let now = patch(r#"{"a":null,"c":2,"_meta":{"y":{"q":2},"w":null}}"#);
        assert_eq!(now, r#"{"_meta":{"x":1.10,"y":{"q":2}},"c":2}"#);
        assert_eq!(patch(r#"{"_meta":null,"c":[]}"#), r#"{"c":[]}"#);
        assert_eq!(budget.left, 100 - "c[]".len());
    }

    #[test]
    fn oversized_member_keeps_old_value() {
        let mut members = Members::default();
        let mut budget = Budget::new(8);
        merge(&mut members, r#"{"a":"12345"}"#, &mut budget);
        merge(&mut members, r#"{"a":"123456789"}"#, &mut budget);
        merge(&mut members, r#"{"b":1}"#, &mut budget);
        assert!(budget.exceeded);
        merge(&mut members, r#"{"a":"54321"}"#, &mut budget);
        assert_eq!(members.finish().get(), r#"{"a":"54321"}"#);
    }
}
