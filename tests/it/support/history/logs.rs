//! The logs: each event at its position, no duplicates, no gaps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Found, History, Rule, short};

/// The members of an event that the rules check.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event<'a> {
    #[serde(skip)]
    pub(crate) text: &'a str,
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
    pub(crate) seq: u64,
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) session_id: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) prompt_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) idempotency_key: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) prompt: Option<&'a RawValue>,
    /// The place of a moved prompt: `null` is the end of the queue.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(crate) before: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) request_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) resolution: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) update: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) late: bool,
    #[serde(default)]
    pub(crate) replayed: bool,
}

fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Event<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        let event: Self = serde_json::from_str(text)?;
        Ok(Self { text, ..event })
    }

    /// The epoch of its id; none when the id is not `<epoch>-<seq>`.
    pub(super) fn epoch(&self) -> Option<&str> {
        let (epoch, seq) = self.id.split_once('-')?;
        (!epoch.is_empty() && seq == self.seq.to_string()).then_some(epoch)
    }

    pub(super) fn is_end(&self) -> bool {
        matches!(&*self.kind, "prompt.completed" | "prompt.failed")
    }
}

/// The events of each session by their seqs.
pub(super) type Logs<'a> = BTreeMap<&'a str, BTreeMap<u64, Event<'a>>>;

pub(super) fn read<'a>(history: &'a History, found: &mut Found) -> Logs<'a> {
    let mut logs = Logs::new();
    for (session, log) in &history.logs {
        let mut epochs: Vec<String> = Vec::new();
        let events = logs.entry(session).or_default();
        let mut last = log.after;
        for text in &log.events {
            let event = match Event::parse(text) {
                Ok(event) => event,
                Err(error) => {
                    found.add(
                        Rule::Changed,
                        format!("log of {session}: {error}: {}", short(text)),
                    );
                    continue;
                }
            };
            match event.epoch() {
                Some(epoch) if event.session_id == **session => epochs.push(epoch.to_owned()),
                _ => found.add(Rule::Id, format!("log of {session}: {}", short(text))),
            }
            let seq = event.seq;
            if events.contains_key(&seq) {
                found.add(
                    Rule::Duplicate,
                    format!("log of {session} has {seq} twice: {}", short(text)),
                );
            } else if seq <= last {
                found.add(
                    Rule::Reordered,
                    format!("log of {session} has {seq} after {last}"),
                );
            } else if seq > last + 1 {
                found.add(
                    Rule::Gap,
                    format!("log of {session} has {seq} after {last}"),
                );
            }
            last = last.max(seq);
            events.insert(seq, event);
        }
        epochs.sort_unstable();
        epochs.dedup();
        if epochs.len() > 1 && !history.resets {
            let epochs = epochs.join(", ");
            found.add(
                Rule::Id,
                format!("log of {session} has several epochs: {epochs}"),
            );
        }
    }
    logs
}
