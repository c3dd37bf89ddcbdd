//! Changes of queued prompts by clients.
//!
//! A prompt that a drain returned to the queue has started already, so clients cannot change it, and it stays at the head.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::Turns;
use super::turn::Queued;
use crate::agent::AgentSpec;
use crate::session::record::{PromptEdit, PromptRecord};
use crate::types::{PromptId, PromptStatus};

impl Turns {
    /// A prompt of the queue that has not started.
    pub(in crate::session) fn queued(&self, prompt: PromptId) -> Option<&Queued> {
        self.queue.iter().find(|queued| is_prompt(queued, prompt))
    }

    /// The ids of the queue, in order.
    pub(in crate::session) fn order(&self) -> Vec<PromptId> {
        self.queue
            .iter()
            .map(|queued| queued.record.prompt_id)
            .collect()
    }

    /// The order after a move of `prompt` before another queued prompt, or to the end (`None`). `None`: the order stays.
    pub(in crate::session) fn moved(
        &self,
        prompt: PromptId,
        before: Option<PromptId>,
    ) -> Option<Vec<PromptId>> {
        if before == Some(prompt) {
            return None;
        }
        let order = self.order();
        let mut moved: Vec<PromptId> = order.iter().copied().filter(|id| *id != prompt).collect();
        let at = before.and_then(|before| moved.iter().position(|id| *id == before));
        moved.insert(at.unwrap_or(moved.len()), prompt);
        (moved != order).then_some(moved)
    }

    /// Puts the queue into this order, which has the same prompts.
    pub(in crate::session) fn reorder(&mut self, order: &[PromptId]) {
        let place = |queued: &Queued| order.iter().position(|id| *id == queued.record.prompt_id);
        self.queue.make_contiguous().sort_by_key(place);
    }

    /// Replaces the content of a queued prompt. `checked` is the entry whose denied modes it was checked against.
    pub(in crate::session) fn edit(
        &mut self,
        prompt: PromptId,
        blocks: Box<RawValue>,
        edit: PromptEdit,
        checked: Arc<AgentSpec>,
    ) -> Option<&PromptRecord> {
        let queued = self
            .queue
            .iter_mut()
            .find(|queued| is_prompt(queued, prompt))?;
        queued.blocks = blocks;
        queued.checked = Some(checked);
        queued.record.edit = Some(edit);
        Some(&queued.record)
    }
}

fn is_prompt(queued: &Queued, prompt: PromptId) -> bool {
    queued.record.prompt_id == prompt && queued.record.status == PromptStatus::Queued
}
