//! Ids and cursors: each has exactly one spelling, and all other texts are rejected.

use std::fmt::Display;
use std::str::FromStr;

use base::types::{
    AgentName, Epoch, EventId, Position, PromptId, RequestId, SessionId, TerminalId,
};

use super::input::Input;

/// The input is a list of texts.
pub fn ids(data: &[u8]) {
    let mut input = Input::new(data);
    let mut sessions: Vec<(SessionId, String)> = Vec::new();
    let mut prompts: Vec<(PromptId, u32)> = Vec::new();
    while let Some(text) = input.text() {
        let text = &text;
        only::<Epoch>(text, epoch(text));
        only::<EventId>(text, split_id(text, "-").is_some());
        only::<Position>(text, split_id(text, "-g").is_some());
        only::<AgentName>(text, agent(text));
        sessions.extend(only::<SessionId>(text, session(text)).map(|id| (id, text.clone())));
        prompts
            .extend(only::<PromptId>(text, counted(text, 'p').is_some()).zip(counted(text, 'p')));
        only::<RequestId>(text, counted(text, 'r').is_some());
        only::<TerminalId>(text, counted(text, 't').is_some());
        if let Ok(id) = text.parse::<EventId>() {
            let (epoch, seq) = split_id(text, "-").expect("it is one");
            assert_eq!((id.epoch.as_str(), id.seq), (epoch, seq));
        }
        if let Ok(id) = text.parse::<Position>() {
            let (epoch, pos) = split_id(text, "-g").expect("it is one");
            assert_eq!((id.epoch.as_str(), id.pos), (epoch, pos));
            assert!(text.parse::<EventId>().is_err(), "no text is both");
        }
    }
    for (a, b) in prompts.iter().zip(prompts.iter().skip(1)) {
        assert_eq!(
            a.0.cmp(&b.0),
            a.1.cmp(&b.1),
            "turns are ordered by their numbers"
        );
        assert_eq!(a.0.number(), a.1);
    }
    for (a, b) in sessions.iter().zip(sessions.iter().skip(1)) {
        assert_eq!(
            a.0.cmp(&b.0),
            a.1.cmp(&b.1),
            "sessions are ordered as their texts are"
        );
        assert_eq!(
            a.0.as_bytes().cmp(b.0.as_bytes()),
            a.1.cmp(&b.1),
            "and as their keys in the store"
        );
    }
}

/// Checks that a text parses exactly when the model accepts it, and that it prints unchanged, also in JSON.
fn only<T>(text: &str, expected: bool) -> Option<T>
where
    T: FromStr
        + Display
        + PartialEq
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let parsed: Option<T> = text.parse().ok();
    assert_eq!(
        parsed.is_some(),
        expected,
        "{}: {text:?}",
        std::any::type_name::<T>()
    );
    let json = serde_json::to_string(text).expect("a text is JSON");
    assert_eq!(serde_json::from_str::<T>(&json).ok(), parsed);
    if let Some(id) = &parsed {
        assert_eq!(id.to_string(), text);
        assert_eq!(serde_json::to_string(id).expect("an id is JSON"), json);
    }
    parsed
}

fn epoch(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9'))
}

/// An epoch and a number, separated by `between`.
pub(crate) fn split_id<'a>(text: &'a str, between: &str) -> Option<(&'a str, u64)> {
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (head, digits) = text.split_at(text.len() - digits);
    let epoch_text = head.strip_suffix(between)?;
    let number: u64 = digits.parse().ok()?;
    (epoch(epoch_text) && number.to_string() == digits).then_some((epoch_text, number))
}

fn counted(text: &str, letter: char) -> Option<u32> {
    let number: u32 = text.get(1..)?.parse().ok()?;
    (number > 0 && format!("{letter}{number}") == text).then_some(number)
}

fn session(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hex = |group: &&str| {
        group
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}

fn agent(text: &str) -> bool {
    let plain = |c: char| matches!(c, 'a'..='z' | '0'..='9');
    text.len() <= 64
        && text.starts_with(plain)
        && text.chars().all(|c| plain(c) || c == '_' || c == '-')
}
