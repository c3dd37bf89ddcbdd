//! The subagents that were announced.

use super::bounds;
use crate::translate::budget::Budget;

/// The maximum number of subagents. The messages of further ones belong to the session itself.
const MAX_SUBAGENTS: usize = 1024;

/// The ids of their tool calls.
#[derive(Debug)]
pub(super) struct Subagents {
    ids: Vec<String>,
    budget: Budget,
}

impl Default for Subagents {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            budget: Budget::new(bounds::SUBAGENTS),
        }
    }
}

impl Subagents {
    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// Adds a subagent. Returns whether it is new and was added.
    pub(super) fn add(&mut self, id: &str) -> bool {
        let added =
            !self.contains(id) && self.ids.len() < MAX_SUBAGENTS && self.budget.reserve(id.len());
        if added {
            self.ids.push(id.to_owned());
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subagent_is_added_once() {
        let mut subagents = Subagents::default();
        assert!(subagents.add("a") && !subagents.add("a"));
        assert!(subagents.contains("a") && !subagents.contains("b"));
    }

    #[test]
    fn number_and_size_of_subagents_are_bounded() {
        let mut subagents = Subagents::default();
        for id in 0..2 * MAX_SUBAGENTS {
            assert_eq!(subagents.add(&id.to_string()), id < MAX_SUBAGENTS);
        }
        let (mut subagents, half) = (Subagents::default(), bounds::SUBAGENTS / 2);
        assert!(!subagents.add(&"x".repeat(bounds::SUBAGENTS + 1)));
        let added = ["a", "b", "c"].map(|id| subagents.add(&id.repeat(half)));
        assert_eq!(added, [true, true, false]);
        assert_eq!(
            subagents.ids.iter().map(String::len).sum::<usize>(),
            subagents.budget.used()
        );
    }
}
