//! The plans of an agent: a single plan without an id, or several plans with ids.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::FOLDED_MEMBER_BYTES;
use wire::acp::{RawObject, update};

/// The number of plans that a session's snapshot remembers by id. Beyond it, the least recently changed plan
/// is evicted.
const FOLDED_PLANS: usize = 16;

/// The plans, in the order of their last change.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Plans(Vec<Plan>);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    /// `None`: the only plan of an agent that does not use plan ids.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    plan_id: Option<String>,
    plan: Box<RawValue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    None,
    Made,
    /// The plan is too large. The old plan was removed, because it is outdated.
    TooLarge,
}

impl Plans {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The plan that changed last: an update of kind `plan`, or the `plan` of a `plan_update`.
    pub fn last(&self) -> Option<&RawValue> {
        self.0.last().map(|plan| &*plan.plan)
    }

    /// Folds an update. Kinds that do not concern plans have no effect.
    pub fn update(&mut self, kind: &str, raw: &RawValue) -> Change {
        let object = || RawObject::parse(raw);
        let change = match kind {
            update::PLAN => Some(self.set(None, raw)),
            update::PLAN_UPDATE => object().and_then(|update| {
                let id = update.object("plan")?.text("planId")?;
                Some(self.set(Some(&id), update.get("plan")?))
            }),
            update::PLAN_REMOVED => {
                object().and_then(|update| Some(self.remove(&update.text("planId")?)))
            }
            _ => None,
        };
        change.unwrap_or(Change::None)
    }

    fn set(&mut self, id: Option<&str>, raw: &RawValue) -> Change {
        self.0.retain(|plan| plan.plan_id.as_deref() != id);
        if raw.get().len() > FOLDED_MEMBER_BYTES {
            return Change::TooLarge;
        }
        self.0.push(Plan {
            plan_id: id.map(str::to_owned),
            plan: raw.to_owned(),
        });
        if self.0.len() > FOLDED_PLANS {
            self.0.remove(0);
        }
        Change::Made
    }

    fn remove(&mut self, id: &str) -> Change {
        let before = self.0.len();
        self.0.retain(|plan| plan.plan_id.as_deref() != Some(id));
        if self.0.len() == before {
            Change::None
        } else {
            Change::Made
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(plans: &mut Plans, text: &str) -> Change {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        plans.update(&wire::acp::update::kind_of(raw).unwrap(), raw)
    }

    #[test]
    fn plan_is_the_one_that_changed_last() {
        let mut plans = Plans::default();
        assert!(plans.last().is_none());
        let plain = r#"{"sessionUpdate":"plan","entries":[]}"#;
        update(&mut plans, plain);
        let named = |id: &str| format!(r#"{{"type":"items","planId":"{id}","entries":[]}}"#);
        let set = |id: &str| format!(r#"{{"sessionUpdate":"plan_update","plan":{}}}"#, named(id));
        update(&mut plans, &set("a"));
        update(&mut plans, &set("b"));
        update(&mut plans, &set("a"));
        assert_eq!(plans.last().unwrap().get(), named("a"));
        let gone = r#"{"sessionUpdate":"plan_removed","planId":"a"}"#;
        assert_eq!(update(&mut plans, gone), Change::Made);
        assert_eq!(update(&mut plans, gone), Change::None);
        assert_eq!(plans.last().unwrap().get(), named("b"));
        update(
            &mut plans,
            r#"{"sessionUpdate":"plan_removed","planId":"b"}"#,
        );
        assert_eq!(plans.last().unwrap().get(), plain);
        for id in 0..100 {
            update(&mut plans, &set(&id.to_string()));
        }
        assert_eq!(plans.0.len(), FOLDED_PLANS);
    }

    #[test]
    fn plan_may_be_list_file_or_text() {
        let mut plans = Plans::default();
        for plan in [
            r#"{"type":"items","planId":"p","entries":[{"content":"a","n":1.10}]}"#,
            r#"{"type":"file","planId":"p","uri":"file:///plan.md"}"#,
            r##"{"type":"markdown","planId":"p","content":"# \ud83d"}"##,
            r#"{"type":"of_the_future","planId":"p"}"#,
        ] {
            let set = format!(r#"{{"sessionUpdate":"plan_update","plan":{plan}}}"#);
            assert_eq!(update(&mut plans, &set), Change::Made);
            assert_eq!((plans.0.len(), plans.last().unwrap().get()), (1, plan));
        }
        for odd in [
            r#"{"sessionUpdate":"plan_update","plan":{"type":"items"}}"#,
            r#"{"sessionUpdate":"plan_update","plan":null}"#,
            r#"{"sessionUpdate":"plan_removed"}"#,
            r#"{"sessionUpdate":"notice","planId":"p"}"#,
        ] {
            assert_eq!(update(&mut plans, odd), Change::None, "{odd}");
        }
        let huge = format!(
            r#"{{"planId":"p","content":"{}"}}"#,
            "x".repeat(FOLDED_MEMBER_BYTES)
        );
        let huge = format!(r#"{{"sessionUpdate":"plan_update","plan":{huge}}}"#);
        assert_eq!(update(&mut plans, &huge), Change::TooLarge);
        assert!(plans.is_empty(), "an outdated plan is removed");
    }
}
