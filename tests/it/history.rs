//! Tests of the history checker: each rule rejects a history that violates it.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::support::History;
use super::support::history::{
    Alive, Frame, Journal, Log, MemoryUse, PromptAnswer, Reader, RequestAnswer, Rule,
};

mod broken;

const SESSION: &str = "s1";

/// An event of the log, as it would be sent.
fn event(seq: u64, kind: &str, members: &str) -> String {
    format!(
        r#"{{"id":"k3-{seq}","seq":{seq},"type":"{kind}","sessionId":"{SESSION}","time":"t",{members}}}"#
    )
}

fn update(seq: u64, text: &str) -> String {
    event(
        seq,
        "session.update",
        &format!(r#""promptId":"p1","update":{}"#, chunk(text)),
    )
}

fn chunk(text: &str) -> String {
    format!(
        r#"{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}"#
    )
}

const BLOCKS: &str = r#"[{"type":"text","text":"do it"}]"#;

/// A turn with a permission, from its beginning to its end.
fn log() -> Vec<String> {
    let request = r#""promptId":"p1","requestId":"r1","method":"session/request_permission""#;
    vec![
        event(1, "session.created", r#""session":{}"#),
        event(
            2,
            "prompt.started",
            &format!(r#""promptId":"p1","prompt":{BLOCKS},"idempotencyKey":"once""#),
        ),
        update(3, "one"),
        event(4, "request.created", request),
        event(
            5,
            "request.resolved",
            &format!(
                r#"{request},"resolution":"answered","result":{{"outcome":{{"outcome":"selected","optionId":"allow"}}}}"#
            ),
        ),
        update(6, "two"),
        event(
            7,
            "prompt.completed",
            r#""promptId":"p1","stopReason":"end_turn","result":{}"#,
        ),
    ]
}

fn journal() -> String {
    let prompt = format!(
        r#"{{"id":3,"method":"session/prompt","params":{{"sessionId":"a","prompt":{BLOCKS}}}}}"#
    );
    let update = |text: &str| {
        format!(
            r#"{{"method":"session/update","params":{{"sessionId":"a","update":{}}}}}"#,
            chunk(text)
        )
    };
    let lines = [
        format!("< {prompt}"),
        format!("> {}", update("one")),
        r#"> {"id":1,"method":"session/request_permission","params":{"sessionId":"a"}}"#.to_owned(),
        r#"< {"id":1,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}"#.to_owned(),
        format!("> {}", update("two")),
        r#"> {"id":3,"result":{"stopReason":"end_turn"}}"#.to_owned(),
        String::new(),
    ];
    lines.join("\n")
}

fn frame(text: &str) -> Frame {
    let id = text.split('"').nth(3).expect("an event begins with its id");
    Frame::Event {
        id: Some(id.into()),
        text: text.into(),
    }
}

/// A reader that was cut off in the middle, and one of many sessions.
fn readers(log: &[String]) -> Vec<Reader> {
    let sessions = [(SESSION.to_owned(), 0)].into();
    let mut one = Reader {
        name: "one".to_owned(),
        sessions,
        ..Reader::default()
    };
    one.frames.push(Frame::Connected { after: None });
    one.frames.extend(log[..4].iter().map(|text| frame(text)));
    one.frames.push(Frame::Connected {
        after: Some("k3-4".to_owned()),
    });
    one.frames.extend(log[4..].iter().map(|text| frame(text)));
    let mut all = Reader {
        name: "all".to_owned(),
        all: true,
        ..one.clone()
    };
    all.frames.clear();
    for (pos, text) in (10..).zip(log) {
        let id = Some(format!("k3-g{pos}").into_boxed_str());
        all.frames.push(Frame::Event {
            id,
            text: text.as_str().into(),
        });
    }
    vec![one, all]
}

/// One that keeps every rule.
fn good() -> History {
    let log = log();
    let events: Vec<Box<str>> = log.iter().map(|text| text.as_str().into()).collect();
    let read_to = events.len() as u64;
    let accepted = PromptAnswer {
        session: SESSION.to_owned(),
        key: Some("once".to_owned()),
        status: 202,
        prompt: Some("p1".to_owned()),
    };
    let answer = RequestAnswer {
        session: SESSION.to_owned(),
        request: "r1".to_owned(),
        status: 204,
        option: Some("allow".to_owned()),
    };
    History {
        readers: readers(&log),
        logs: [(
            SESSION.to_owned(),
            Log {
                after: 0,
                events,
                read_to,
            },
        )]
        .into(),
        prompts: vec![
            accepted.clone(),
            PromptAnswer {
                status: 200,
                ..accepted
            },
        ],
        answers: vec![
            answer.clone(),
            RequestAnswer {
                status: 409,
                ..answer
            },
        ],
        journals: vec![Journal::new("7.1", &journal())],
        alive: vec![Alive {
            pid: 7,
            what: "an agent".to_owned(),
            owner: "life 1".to_owned(),
            after: Duration::from_secs(9),
        }],
        memory: vec![MemoryUse {
            by: "life 1".to_owned(),
            kib: 100,
        }],
        memory_budget: Some(100),
        plain_words: true,
        ..History::default()
    }
}

/// The rules that a history breaks, after this was done to the good one.
#[track_caller]
fn breaks(what: impl FnOnce(&mut History), expected: &[Rule]) {
    let mut history = good();
    what(&mut history);
    let found = history.check();
    let rules: BTreeSet<Rule> = found.iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, expected.iter().copied().collect(), "{found:#?}");
}

#[test]
fn a_good_history_holds() {
    good().assert_holds();
}

#[test]
#[should_panic(expected = "1 violations:\nGap: one saw 4 of s1 when 3 was next")]
fn violation_is_described_in_the_panic_message() {
    let mut history = good();
    history.readers[0].frames.remove(3);
    history.assert_holds();
}

proptest! {
    /// The checker detects every event that is removed, duplicated or swapped in a reader's record.
    #[test]
    fn every_change_of_a_readers_record_is_detected(
        reader in 0..2usize, at in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), how in 0..4,
    ) {
        let mut history = good();
        let frames = &mut history.readers[reader].frames;
        let events: Vec<usize> =
            (0..frames.len()).filter(|at| matches!(frames[*at], Frame::Event { .. })).collect();
        let at = events[at.index(events.len())];
        let to = events[to.index(events.len())];
        match how {
            0 => drop(frames.remove(at)),
            1 => frames.insert(to + 1, frames[at].clone()),
            2 if at != to => frames.swap(at, to),
            _ => {
                let Frame::Event { text, .. } = &mut frames[at] else { unreachable!("events were chosen") };
                *text = text.replacen(r#""time":"t""#, r#""time":"u""#, 1).into();
            }
        }
        prop_assert!(!history.check().is_empty());
    }

    /// No event of the log can be dropped or doubled without a word.
    #[test]
    fn no_change_of_the_log_is_overlooked(at in 0..7usize, double in any::<bool>()) {
        let mut history = good();
        history.readers.clear();
        let events = &mut history.logs.get_mut(SESSION).expect("it is there").events;
        if double {
            events.insert(at, events[at].clone());
        } else {
            events.remove(at);
        }
        // Only the last event may be missing from a log that no reader has seen, if the turn need not be over.
        prop_assert!(!history.check().is_empty());
    }
}
