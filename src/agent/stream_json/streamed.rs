//! The text blocks that partial messages have already delivered.
//!
//! With partial messages the CLI sends a text as deltas, and then the whole message with the same id. The main
//! conversation and each subagent are separate lanes.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::agent::message::to_raw;

/// The maximum number of lanes. The oldest lane is replaced; its messages could then repeat text.
const MAX_LANES: usize = 64;
/// The maximum number of blocks of one message.
const MAX_BLOCKS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Message,
    Thought,
}

/// The messages that are being streamed, by the id of the tool call that runs the subagent.
#[derive(Debug, Default)]
pub(super) struct Streamed(Vec<Lane>);

#[derive(Debug)]
struct Lane {
    parent: Option<Box<str>>,
    message: Box<str>,
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    index: u64,
    kind: TextKind,
    /// The size of the delivered text, decoded.
    bytes: usize,
    /// The whole message has arrived.
    complete: bool,
}

impl Streamed {
    fn lane(&mut self, parent: Option<&str>) -> Option<&mut Lane> {
        self.0.iter_mut().find(|lane| lane.parent.as_deref() == parent)
    }

    /// Begins a message. Forgets the former message of the lane.
    pub(super) fn begin_message(&mut self, parent: Option<&str>, message: &str) {
        self.0.retain(|lane| lane.parent.as_deref() != parent);
        if self.0.len() >= MAX_LANES {
            self.0.remove(0);
        }
        self.0.push(Lane { parent: parent.map(Into::into), message: message.into(), blocks: Vec::new() });
    }

    /// Begins a text block of the lane's message.
    pub(super) fn begin_block(&mut self, parent: Option<&str>, index: u64, kind: TextKind) {
        if let Some(lane) = self.lane(parent).filter(|lane| lane.blocks.len() < MAX_BLOCKS) {
            lane.blocks.push(Block { index, kind, bytes: 0, complete: false });
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
        let Lane { message, blocks, .. } = self.lane(parent)?;
        let block = blocks.iter_mut().rev().find(|block| block.index == index && block.kind == kind)?;
        block.bytes += decoded_len(text);
        Some(message)
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
        let block = lane.and_then(|lane| {
            let open = |block: &&mut Block| block.kind == kind && !block.complete;
            lane.blocks.iter_mut().find(open)
        });
        let delivered = block.map_or(0, |block| {
            block.complete = true;
            block.bytes
        });
        if delivered == 0 {
            return (decoded_len(text) > 0).then_some(Cow::Borrowed(text));
        }
        let whole: Cow<'_, str> = serde_json::from_str(text.get()).ok()?;
        let rest = whole.get(delivered..).filter(|rest| !rest.is_empty())?;
        Some(Cow::Owned(to_raw(&rest)))
    }
}

/// The size of the decoded string.
fn decoded_len(text: &RawValue) -> usize {
    let literal = text.get();
    if !literal.contains('\\') {
        return literal.len().saturating_sub(2);
    }
    serde_json::from_str::<Cow<'_, str>>(literal).map_or(literal.len(), |text| text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn rest(streamed: &mut Streamed, message: &str, kind: TextKind, text: &str) -> Option<String> {
        let text = raw(text);
        streamed.remainder(None, message, kind, &text).map(|rest| rest.get().to_owned())
    }

    #[test]
    fn whole_message_adds_only_the_text_that_was_not_streamed() {
        let mut streamed = Streamed::default();
        streamed.begin_message(None, "m");
        for (index, kind) in [(0, TextKind::Thought), (1, TextKind::Message), (2, TextKind::Message)] {
            streamed.begin_block(None, index, kind);
        }
        for (index, kind, text) in [
            (0, TextKind::Thought, r#""think""#),
            (1, TextKind::Message, r#""a\n\u00e4""#),
            (2, TextKind::Message, r#""sec""#),
        ] {
            assert_eq!(streamed.add(None, index, kind, &raw(text)), Some("m"));
        }
        assert_eq!(streamed.add(None, 3, TextKind::Message, &raw("\"x\"")), None);
        assert_eq!(streamed.add(Some("sub"), 0, TextKind::Message, &raw("\"x\"")), None);
        assert_eq!(rest(&mut streamed, "m", TextKind::Message, r#""a\nä""#), None);
        assert_eq!(rest(&mut streamed, "m", TextKind::Thought, r#""think""#), None);
        assert_eq!(rest(&mut streamed, "m", TextKind::Message, r#""second""#), Some(r#""ond""#.to_owned()));
        assert_eq!(rest(&mut streamed, "m", TextKind::Message, r#""third""#), Some(r#""third""#.to_owned()));
        assert_eq!(rest(&mut streamed, "other", TextKind::Message, r#""x""#), Some(r#""x""#.to_owned()));
    }

    #[test]
    fn repeated_message_id_begins_a_new_message() {
        let mut streamed = Streamed::default();
        for _ in 0..2 {
            streamed.begin_message(None, "m");
            streamed.begin_block(None, 0, TextKind::Message);
            streamed.add(None, 0, TextKind::Message, &raw("\"text\""));
            assert_eq!(rest(&mut streamed, "m", TextKind::Message, "\"text\""), None);
        }
        assert_eq!(rest(&mut streamed, "m", TextKind::Message, "\"\""), None, "an empty text is no chunk");
    }

    #[test]
    fn number_of_lanes_is_bounded() {
        let mut streamed = Streamed::default();
        for lane in 0..2 * MAX_LANES {
            streamed.begin_message(Some(&lane.to_string()), "m");
        }
        assert_eq!(streamed.0.len(), MAX_LANES);
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
