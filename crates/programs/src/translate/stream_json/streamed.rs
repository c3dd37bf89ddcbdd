//! The messages that are being streamed, and the subagents.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::bounds::{self};
use crate::translate::message::Budget;
use wire::acp::{to_raw, update as kind};

/// The maximum number of subagents. The messages of further ones belong to the session itself.
const MAX_SUBAGENTS: usize = 1024;

/// The ids of their tool calls.
#[derive(Debug, Default)]
pub(super) struct Subagents {
    ids: Vec<String>,
    budget: Budget<{ bounds::SUBAGENTS }>,
}

impl Subagents {
    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    pub(super) fn add(&mut self, id: &str) -> bool {
        let added =
            !self.contains(id) && self.ids.len() < MAX_SUBAGENTS && self.budget.reserve(id.len());
        if added {
            self.ids.push(id.to_owned());
        }
        added
    }
}

/// The maximum number of lanes. The oldest lane is replaced; its messages could then repeat text.
const MAX_LANES: usize = 64;
const BLOCK_BYTES: usize = size_of::<Block>();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Message,
    Thought,
}

impl TextKind {
    pub(super) const fn chunk(self) -> &'static str {
        match self {
            Self::Message => kind::AGENT_MESSAGE_CHUNK,
            Self::Thought => kind::AGENT_THOUGHT_CHUNK,
        }
    }
}

/// The messages that are being streamed, by the id of the tool call that runs the subagent.
///
/// With partial messages the CLI sends a text as deltas, and then the whole message with the same id. The main
/// conversation and each subagent are separate lanes.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    /// The lane with the oldest message is the first.
    lanes: Vec<Lane>,
    budget: Budget<{ bounds::STREAMED }>,
}

#[derive(Debug)]
struct Lane {
    parent: Option<Box<str>>,
    message: Box<str>,
    blocks: Vec<Block>,
}

impl Lane {
    fn bytes(&self) -> usize {
        self.parent.as_ref().map_or(0, |parent| parent.len())
            + self.message.len()
            + self.blocks.len() * BLOCK_BYTES
    }
}

#[derive(Debug)]
struct Block {
    index: u64,
    kind: TextKind,
    /// The size of the delivered text, decoded.
    bytes: usize,
    complete: bool,
}

impl Streamed {
    fn lane(&mut self, parent: Option<&str>) -> Option<&mut Lane> {
        let mut lanes = self.lanes.iter_mut();
        lanes.find(|lane| lane.parent.as_deref() == parent)
    }

    fn remove(&mut self, at: usize) {
        let lane = self.lanes.remove(at);
        self.budget.release(lane.bytes());
    }

    /// Begins a message. Forgets the previous message of the lane. A message with ids above the bound is not kept.
    pub(super) fn begin_message(&mut self, parent: Option<&str>, message: &str) {
        let is_own = |lane: &Lane| lane.parent.as_deref() == parent;
        if let Some(at) = self.lanes.iter().position(is_own) {
            self.remove(at);
        }
        let bytes = parent.map_or(0, str::len) + message.len();
        if bytes > bounds::STREAMED {
            return;
        }
        while self.lanes.len() >= MAX_LANES || !self.budget.reserve(bytes) {
            self.remove(0);
        }
        self.lanes.push(Lane {
            parent: parent.map(Into::into),
            message: message.into(),
            blocks: Vec::new(),
        });
    }

    /// Begins a text block of the lane's message. Without space, the oldest lane of another message is forgotten, and
    /// without another one the block is not kept.
    pub(super) fn begin_block(&mut self, parent: Option<&str>, index: u64, kind: TextKind) {
        if self.lane(parent).is_none() {
            return;
        }
        while !self.budget.reserve(BLOCK_BYTES) {
            let is_other = |lane: &Lane| lane.parent.as_deref() != parent;
            match self.lanes.iter().position(is_other) {
                Some(at) => self.remove(at),
                None => return,
            }
        }
        if let Some(lane) = self.lane(parent) {
            lane.blocks.push(Block {
                index,
                kind,
                bytes: 0,
                complete: false,
            });
        }
    }

    /// Counts a delta, and returns the id of its message. `None`: the block is not known.
    pub(super) fn add(
        &mut self,
        parent: Option<&str>,
        index: u64,
        kind: TextKind,
        text: &RawValue,
    ) -> Option<&str> {
        let lane = self.lane(parent)?;
        let is_own = |block: &&mut Block| block.index == index && block.kind == kind;
        let block = lane.blocks.iter_mut().rfind(is_own)?;
        block.bytes += decoded_len(text);
        Some(&lane.message)
    }

    /// Returns the part of a block of a whole message that was not delivered. `None`: all of it was.
    pub(super) fn remainder<'a>(
        &mut self,
        parent: Option<&str>,
        message: &str,
        kind: TextKind,
        text: &'a RawValue,
    ) -> Option<Cow<'a, RawValue>> {
        let lane = self.lane(parent).filter(|lane| *lane.message == *message);
        let is_open = |block: &&mut Block| block.kind == kind && !block.complete;
        let block = lane.and_then(|lane| lane.blocks.iter_mut().find(is_open));
        let mut delivered = 0;
        if let Some(block) = block {
            block.complete = true;
            delivered = block.bytes;
        }
        if delivered == 0 {
            return (decoded_len(text) > 0).then_some(Cow::Borrowed(text));
        }
        let whole: Cow<'_, str> = serde_json::from_str(text.get()).ok()?;
        let rest = whole.get(delivered..).filter(|rest| !rest.is_empty())?;
        Some(Cow::Owned(to_raw(&rest)))
    }
}

fn decoded_len(text: &RawValue) -> usize {
    let literal = text.get();
    if !literal.contains('\\') {
        return literal.len().saturating_sub(2);
    }
    serde_json::from_str::<Cow<'_, str>>(literal).map_or(literal.len(), |text| text.len())
}

#[cfg(test)]
mod subagents_tests {
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
        let mut subagents = Subagents::default();
        let half = bounds::SUBAGENTS / 2;
        assert!(!subagents.add(&"x".repeat(bounds::SUBAGENTS + 1)));
        let added = ["a", "b", "c"].map(|id| subagents.add(&id.repeat(half)));
        assert_eq!(added, [true, true, false]);
        assert_eq!(
            subagents.ids.iter().map(String::len).sum::<usize>(),
            subagents.budget.used()
        );
    }
}

#[cfg(test)]
mod streamed_tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn rest(streamed: &mut Streamed, message: &str, kind: TextKind, text: &str) -> Option<String> {
        let text = raw(text);
        streamed
            .remainder(None, message, kind, &text)
            .map(|rest| rest.get().to_owned())
    }

    #[test]
    fn whole_message_adds_only_the_text_that_was_not_streamed() {
        let mut streamed = Streamed::default();
        streamed.begin_message(None, "m");
        for (index, kind) in [
            (0, TextKind::Thought),
            (1, TextKind::Message),
            (2, TextKind::Message),
        ] {
            streamed.begin_block(None, index, kind);
        }
        for (index, kind, text) in [
            (0, TextKind::Thought, r#""think""#),
            (1, TextKind::Message, r#""a\n\u00e4""#),
            (2, TextKind::Message, r#""sec""#),
        ] {
            assert_eq!(streamed.add(None, index, kind, &raw(text)), Some("m"));
        }
        assert_eq!(
            streamed.add(None, 3, TextKind::Message, &raw("\"x\"")),
            None
        );
        assert_eq!(
            streamed.add(Some("sub"), 0, TextKind::Message, &raw("\"x\"")),
            None
        );
        assert_eq!(
            rest(&mut streamed, "m", TextKind::Message, r#""a\nä""#),
            None
        );
        assert_eq!(
            rest(&mut streamed, "m", TextKind::Thought, r#""think""#),
            None
        );
        assert_eq!(
            rest(&mut streamed, "m", TextKind::Message, r#""second""#),
            Some(r#""ond""#.to_owned())
        );
        assert_eq!(
            rest(&mut streamed, "m", TextKind::Message, r#""third""#),
            Some(r#""third""#.to_owned())
        );
        assert_eq!(
            rest(&mut streamed, "other", TextKind::Message, r#""x""#),
            Some(r#""x""#.to_owned())
        );
    }

    #[test]
    fn repeated_message_id_begins_a_new_message() {
        let mut streamed = Streamed::default();
        for _ in 0..2 {
            streamed.begin_message(None, "m");
            streamed.begin_block(None, 0, TextKind::Message);
            streamed.add(None, 0, TextKind::Message, &raw("\"text\""));
            assert_eq!(
                rest(&mut streamed, "m", TextKind::Message, "\"text\""),
                None
            );
        }
        assert_eq!(
            rest(&mut streamed, "m", TextKind::Message, "\"\""),
            None,
            "an empty text is no chunk"
        );
    }

    #[test]
    fn number_of_lanes_is_bounded() {
        let mut streamed = Streamed::default();
        for lane in 0..2 * MAX_LANES {
            streamed.begin_message(Some(&lane.to_string()), "m");
        }
        assert_eq!(streamed.lanes.len(), MAX_LANES);
    }

    fn retained(streamed: &Streamed) -> usize {
        let bytes = streamed.lanes.iter().map(Lane::bytes).sum();
        assert_eq!(streamed.budget.used(), bytes);
        bytes
    }

    #[test]
    fn size_of_ids_is_bounded() {
        let mut streamed = Streamed::default();
        for lane in 0..9 {
            streamed.begin_message(Some(&lane.to_string()), &"m".repeat(bounds::STREAMED / 4));
            assert!(retained(&streamed) <= bounds::STREAMED);
        }
        assert_eq!(streamed.lanes.len(), 3);
        let long = "m".repeat(bounds::STREAMED + 1);
        streamed.begin_message(Some("8"), &long);
        assert_eq!(
            streamed.lanes.len(),
            2,
            "the previous message of the lane is forgotten"
        );
        streamed.begin_block(Some("8"), 0, TextKind::Message);
        assert_eq!(
            streamed.add(Some("8"), 0, TextKind::Message, &raw("\"x\"")),
            None
        );
        assert_eq!(
            rest(&mut streamed, &long, TextKind::Message, "\"x\""),
            Some("\"x\"".to_owned())
        );
    }

    #[test]
    fn number_of_blocks_is_bounded() {
        let mut streamed = Streamed::default();
        streamed.begin_message(Some("other"), "m");
        streamed.begin_message(None, "m");
        for index in 0..bounds::STREAMED as u64 {
            streamed.begin_block(None, index, TextKind::Message);
        }
        assert_eq!(streamed.lanes.len(), 1, "the other lane is forgotten");
        assert!(retained(&streamed) <= bounds::STREAMED);
        assert_eq!(
            streamed.add(None, 0, TextKind::Message, &raw("\"x\"")),
            Some("m")
        );
        assert_eq!(
            streamed.add(
                None,
                bounds::STREAMED as u64 - 1,
                TextKind::Message,
                &raw("\"x\"")
            ),
            None
        );
        streamed.begin_message(None, "m");
        assert_eq!(retained(&streamed), 1);
    }

    #[test]
    fn lone_surrogate_passes_unchanged() {
        let mut streamed = Streamed::default();
        assert_eq!(
            rest(&mut streamed, "m", TextKind::Message, r#""\ud83d""#),
            Some(r#""\ud83d""#.to_owned())
        );
    }
}
