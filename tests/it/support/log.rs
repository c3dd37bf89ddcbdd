//! Questions to a session's log, and the rules that every log keeps.

use std::collections::HashMap;

use serde_json::Value;

use super::Event;

/// The events, without frames that are not in the log.
pub(crate) fn logged(frames: Vec<Event>) -> Vec<Value> {
    frames
        .into_iter()
        .map(|frame| frame.data)
        .filter(|event| event["seq"].is_u64())
        .collect()
}

pub(crate) fn all<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

/// The one event of this type.
pub(crate) fn one<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    match all(events, kind)[..] {
        [event] => event,
        ref found => panic!("{} events of type {kind} in {events:#?}", found.len()),
    }
}

pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().expect("an event has a type"))
        .collect()
}

/// The agent's text, joined.
pub(crate) fn agent_text(events: &[Value]) -> String {
    let chunks = all(events, "session.update")
        .into_iter()
        .map(|event| &event["update"]);
    let chunks = chunks.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks
        .map(|chunk| {
            chunk["content"]["text"]
                .as_str()
                .expect("the fake agent says text")
        })
        .collect()
}

/// Lines of the agent that were no messages.
pub(crate) fn noise(events: &[Value]) -> u64 {
    all(events, "agent.invalid_output")
        .iter()
        .map(|event| event["lines"].as_u64().expect("a number"))
        .sum()
}

/// Checks the rules for every log: no gap, no duplicate, and one end for each turn.
pub(crate) fn assert_lawful(events: &[Value]) {
    let mut ends: HashMap<&str, usize> = HashMap::new();
    for (seq, event) in (1u64..).zip(events) {
        assert_eq!(event["seq"], seq, "{event}");
        let kind = event["type"].as_str().expect("a type");
        let turn = event["promptId"].as_str();
        match (kind, turn) {
            ("prompt.queued", Some(turn)) => {
                assert!(ends.insert(turn, 0).is_none(), "{turn} twice");
            }
            ("prompt.started", Some(turn)) => assert_eq!(*ends.entry(turn).or_default(), 0),
            ("prompt.completed" | "prompt.failed", Some(turn)) => {
                *ends.get_mut(turn).expect("a turn ends after its beginning") += 1;
            }
            ("session.update", Some(turn)) => {
                assert_eq!(event["late"] == true, ends[turn] > 0, "{event}");
            }
            _ => {}
        }
    }
    assert!(
        ends.values().all(|ends| *ends == 1),
        "each turn has one end: {ends:?} in {events:#?}"
    );
}
