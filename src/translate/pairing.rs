//! The ids of a recording: which request of the replay has the answer of which recorded request.
//!
//! A replay sends its own requests to the recorded agent, with its own ids and at its own time. The n-th request of a kind
//! gets the answer that the n-th recorded request of the kind got.

use std::collections::HashMap;

use serde_json::value::{RawValue, to_raw_value};

use crate::acp::RawObject;

/// The part of a line that pairs it with another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Request {
        id: Box<str>,
        kind: String,
    },
    Answer {
        id: Box<str>,
    },
    /// A notification, or a line without an id.
    Other,
}

impl Part {
    pub(super) fn of(line: &RawValue) -> Self {
        let Some(members) = RawObject::parse(line) else {
            return Self::Other;
        };
        let id_of = |object: &RawObject<'_>, name| object.get(name).map(|id| Box::from(id.get()));
        match members.text("type").as_deref() {
            Some("control_request") => {
                let kind = members
                    .object("request")
                    .and_then(|request| request.text("subtype").map(String::from));
                match (id_of(&members, "request_id"), kind) {
                    (Some(id), Some(kind)) => Self::Request { id, kind },
                    _ => Self::Other,
                }
            }
            Some("control_response") => {
                let response = members.object("response");
                let id = response.and_then(|response| id_of(&response, "request_id"));
                id.map_or(Self::Other, |id| Self::Answer { id })
            }
            _ => match (id_of(&members, "id"), members.text("method")) {
                (Some(id), Some(method)) => Self::Request {
                    id,
                    kind: method.into_owned(),
                },
                (Some(id), None) if members.get("jsonrpc").is_some() => Self::Answer { id },
                _ => Self::Other,
            },
        }
    }
}

/// The line with another id.
pub(super) fn with_id(line: &RawValue, id: &str) -> Box<RawValue> {
    let Some(members) = RawObject::parse(line) else {
        return line.to_owned();
    };
    let id = RawValue::from_string(id.to_owned()).expect("an id is JSON");
    if let Some(response) = members
        .object("response")
        .filter(|response| response.get("request_id").is_some())
    {
        return replaced(
            &members,
            "response",
            &replaced(&response, "request_id", &id),
        );
    }
    replaced(&members, "id", &id)
}

fn replaced(object: &RawObject<'_>, name: &str, value: &RawValue) -> Box<RawValue> {
    let member = |(other, current): (&str, &RawValue)| {
        let value = if other == name { value } else { current };
        format!("{}:{value}", to_raw_value(other).expect("a name is text"))
    };
    let members: Vec<_> = object.iter().map(member).collect();
    RawValue::from_string(format!("{{{}}}", members.join(","))).expect("names and values are JSON")
}

/// The recorded requests of the client, and the requests of the replay to the agent.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The recorded ids of each kind, in their order.
    recorded: HashMap<String, Vec<Box<str>>>,
    /// The number of requests of the replay of each kind.
    sent: HashMap<String, usize>,
    /// The ids of the replay, by recorded ids.
    ids: HashMap<Box<str>, Box<str>>,
    /// Answers to requests that the replay has not sent yet.
    early: HashMap<Box<str>, Box<RawValue>>,
}

/// The effect of a request of the replay.
#[derive(Debug)]
pub(super) enum Sent {
    /// The recording has the answer later.
    Waiting,
    /// The answer of the recording, which was read before.
    Answered(Box<RawValue>),
    /// The recording has no such request.
    Missing,
}

impl Requests {
    /// Adds a recorded request of the client.
    pub(super) fn add(&mut self, line: &RawValue) {
        if let Part::Request { id, kind } = Part::of(line) {
            self.recorded.entry(kind).or_default().push(id);
        }
    }

    /// Pairs a request of the replay.
    pub(super) fn sent(&mut self, id: &str, kind: &str) -> Sent {
        let number = self.sent.entry(kind.to_owned()).or_default();
        let recorded = self
            .recorded
            .get(kind)
            .and_then(|ids| ids.get(*number))
            .cloned();
        *number += 1;
        let Some(recorded) = recorded else {
            return Sent::Missing;
        };
        self.ids.insert(recorded.clone(), id.into());
        self.early
            .remove(&recorded)
            .map_or(Sent::Waiting, |answer| Sent::Answered(with_id(&answer, id)))
    }

    /// A recorded answer with the id of the replay. `None` if the replay has not sent the request.
    pub(super) fn answered(&mut self, id: Box<str>, line: &RawValue) -> Option<Box<RawValue>> {
        if let Some(own) = self.ids.get(&id) {
            return Some(with_id(line, own));
        }
        self.early.insert(id, line.to_owned());
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn lines_of_each_protocol_are_requests_answers_or_others() {
        let request = |id: &str, kind: &str| Part::Request {
            id: id.into(),
            kind: kind.to_owned(),
        };
        for (line, part) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
                request("1", "m"),
            ),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, Part::Other),
            (
                r#"{"jsonrpc":"2.0","id":"a","result":null}"#,
                Part::Answer { id: "\"a\"".into() },
            ),
            (
                r#"{"type":"control_request","request_id":"r","request":{"subtype":"interrupt"}}"#,
                request("\"r\"", "interrupt"),
            ),
            (
                r#"{"type":"control_response","response":{"request_id":"r"}}"#,
                Part::Answer { id: "\"r\"".into() },
            ),
            (r#"{"type":"user","message":{}}"#, Part::Other),
            ("7", Part::Other),
        ] {
            assert_eq!(Part::of(&raw(line)), part, "{line}");
        }
    }

    #[test]
    fn answers_get_the_id_of_the_request_that_the_replay_sends() {
        let mut requests = Requests::default();
        for id in ["1", "2"] {
            requests.add(&raw(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#
            )));
        }
        let answer = |id: &str| raw(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1.10}}"#));
        assert!(
            requests.answered("1".into(), &answer("1")).is_none(),
            "the replay sends the request later"
        );
        let Sent::Answered(line) = requests.sent("\"x\"", "m") else {
            panic!("the answer was read")
        };
        assert_eq!(line.get(), r#"{"jsonrpc":"2.0","id":"x","result":1.10}"#);
        assert!(matches!(requests.sent("\"y\"", "m"), Sent::Waiting));
        let line = requests.answered("2".into(), &answer("2")).unwrap();
        assert_eq!(line.get(), r#"{"jsonrpc":"2.0","id":"y","result":1.10}"#);
        assert!(matches!(requests.sent("\"z\"", "m"), Sent::Missing));
        let response =
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"r"}}"#;
        let expected =
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"n"}}"#;
        assert_eq!(with_id(&raw(response), "\"n\"").get(), expected);
    }
}
