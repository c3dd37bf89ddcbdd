//! The agent's child sessions in a session's snapshot.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Budget;
use super::members::{Members, Null};
use crate::acp::RawObject;
use crate::types::limits::{FOLDED_SUBAGENT_BYTES, FOLDED_SUBAGENTS, SUBAGENT_ID_BYTES};

/// The child sessions, in the order of their first update. If there are too many, the oldest is removed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Subagents(Vec<Box<RawValue>>);

impl Subagents {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn list(&self) -> Vec<Box<RawValue>> {
        self.0.clone()
    }

    /// Removes all child sessions, because their process has ended. Returns whether there were any.
    pub(super) fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }

    /// Folds a `subagent_update`: omitted members stay, null clears, other values replace. Returns whether
    /// anything changed.
    pub(super) fn update(&mut self, update: &RawObject<'_>) -> bool {
        let Some(id) = update
            .text("sessionId")
            .filter(|id| id.len() <= SUBAGENT_ID_BYTES)
        else {
            return false;
        };
        let known = self.0.iter().position(|known| {
            RawObject::parse(known)
                .is_some_and(|known| known.text("sessionId").as_deref() == Some(&*id))
        });
        let mut budget = Budget::new(FOLDED_SUBAGENT_BYTES);
        let mut members = Members::default();
        if let Some(before) = known.and_then(|at| RawObject::parse(&self.0[at])) {
            members.merge(&before, &[], Null::Keeps, &mut budget);
        }
        members.merge(update, &[], Null::Clears, &mut budget);
        let merged = members.finish();
        match known {
            Some(at) if self.0[at].get() == merged.get() => return false,
            Some(at) => self.0[at] = merged,
            None => self.0.push(merged),
        }
        if self.0.len() > FOLDED_SUBAGENTS {
            self.0.remove(0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(subagents: &mut Subagents, text: &str) -> bool {
        subagents.update(&RawObject::parse(serde_json::from_str(text).unwrap()).unwrap())
    }

    fn shown(subagents: &Subagents) -> Vec<&str> {
        subagents.0.iter().map(|raw| raw.get()).collect()
    }

    #[test]
    fn omitted_members_stay_and_null_clears() {
        let mut all = Subagents::default();
        let first = r#"{"sessionUpdate":"subagent_update","sessionId":"c","title":"Look","state":{"state":"running"},"cwd":null,"x":1.10}"#;
        assert!(
            update(&mut all, first) && !update(&mut all, first),
            "an equal update is not a change"
        );
        assert!(update(&mut all, r#"{"sessionId":"d"}"#));
        assert!(update(
            &mut all,
            r#"{"sessionId":"c","title":null,"state":{"state":"idle"}}"#
        ));
        assert_eq!(
            shown(&all),
            [
                r#"{"sessionId":"c","state":{"state":"idle"},"x":1.10}"#,
                r#"{"sessionId":"d"}"#
            ]
        );
        assert!(!update(&mut all, "{}") && !update(&mut all, r#"{"sessionId":7}"#));
        assert!(all.clear() && !all.clear());
    }

    #[test]
    fn count_and_size_are_bounded() {
        let mut all = Subagents::default();
        for id in 0..100 {
            update(&mut all, &format!(r#"{{"sessionId":"{id}"}}"#));
        }
        assert_eq!(all.0.len(), FOLDED_SUBAGENTS);
        let big = "x".repeat(FOLDED_SUBAGENT_BYTES);
        assert!(update(
            &mut all,
            &format!(r#"{{"sessionId":"big","title":"{big}"}}"#)
        ));
        assert_eq!(shown(&all).last(), Some(&r#"{"sessionId":"big"}"#));
        assert!(!update(&mut all, &format!(r#"{{"sessionId":"{big}"}}"#)));
    }
}
