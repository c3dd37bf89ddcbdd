//! Requests of agents: at most one answer each, equal to the response of its client.

use std::collections::BTreeMap;

use serde_json::Value;

use super::logs::{Event, Logs};
use super::{Found, History, Rule, short};

#[derive(Debug, Default)]
struct Request<'a> {
    created: Option<&'a Event<'a>>,
    resolved: Vec<&'a Event<'a>>,
}

pub(super) fn check(history: &History, logs: &Logs<'_>, found: &mut Found) {
    for (session, log) in logs {
        let mut requests: BTreeMap<&str, Request<'_>> = BTreeMap::new();
        let mut over: BTreeMap<&str, u64> = BTreeMap::new();
        for event in log.values() {
            if event.is_end() {
                over.insert(event.prompt_id.as_deref().unwrap_or_default(), event.seq);
            }
            let Some(id) = event.request_id.as_deref() else {
                continue;
            };
            let request = requests.entry(id).or_default();
            if event.kind == "request.created" {
                if request.created.replace(event).is_some() {
                    found.add(
                        Rule::Answer,
                        format!("{session}: {id} is asked twice: {}", short(event.text)),
                    );
                }
            } else if event.kind == "request.resolved" {
                if request.created.is_none() {
                    found.add(
                        Rule::Answer,
                        format!("{session}: {id} is answered before it is asked"),
                    );
                }
                request.resolved.push(event);
            }
        }
        for (id, request) in &requests {
            let created = request.created;
            let question = created.is_some_and(|event| {
                event.method.as_deref() == Some("session/request_permission")
                    && event
                        .prompt_id
                        .as_deref()
                        .is_some_and(|turn| over.contains_key(turn))
            });
            match request.resolved.len() {
                0 if question => {
                    found.add(
                        Rule::Answer,
                        format!("{session}: {id} is open, and its turn is over"),
                    );
                }
                0 | 1 => {}
                many => found.add(
                    Rule::Answer,
                    format!("{session}: {id} has {many} answers in the log"),
                ),
            }
        }
        responses(session, history, &requests, found);
    }
    journals(history, found);
}

/// Checks the responses to clients' answers.
fn responses(
    session: &str,
    history: &History,
    requests: &BTreeMap<&str, Request<'_>>,
    found: &mut Found,
) {
    let mut accepted: BTreeMap<&str, usize> = BTreeMap::new();
    for answer in history
        .answers
        .iter()
        .filter(|answer| answer.session == session)
    {
        if !(200..300).contains(&answer.status) {
            continue;
        }
        *accepted.entry(&answer.request).or_default() += 1;
        let resolved = requests
            .get(&*answer.request)
            .and_then(|request| request.resolved.first());
        let Some(resolved) = resolved else {
            found.add(
                Rule::Lost,
                format!("{session}: the log does not have {answer:?}"),
            );
            continue;
        };
        let result: Value = resolved.result.map_or(Value::Null, |raw| {
            serde_json::from_str(raw.get()).unwrap_or_default()
        });
        let option = result["outcome"]["optionId"].as_str();
        let other = answer.option.is_some() && answer.option.as_deref() != option;
        if resolved.resolution.as_deref() != Some("answered") || other {
            found.add(
                Rule::Answer,
                format!(
                    "{session}: {answer:?}, and the log: {}",
                    short(resolved.text)
                ),
            );
        }
    }
    for (id, accepted) in accepted {
        if accepted > 1 {
            found.add(
                Rule::Answer,
                format!("{session}: {accepted} answers to {id} were taken"),
            );
        }
    }
}

/// Checks that agents received at most one response to each of their requests, and no other response.
fn journals(history: &History, found: &mut Found) {
    for journal in &history.journals {
        let mut open: BTreeMap<&str, usize> = journal.open.iter().map(|id| (&**id, 1)).collect();
        for line in &journal.lines {
            let Some(message) = line.message() else {
                continue;
            };
            let Some(id) = message.id else { continue };
            if line.to_client && message.method.is_some() {
                *open.entry(id.get()).or_default() += 1;
            } else if !line.to_client && message.method.is_none() && id.get() != "null" {
                match open.get_mut(id.get()) {
                    Some(left) if *left > 0 => *left -= 1,
                    _ => found.add(
                        Rule::Answer,
                        format!(
                            "agent {}: an answer too many: {}",
                            journal.name,
                            short(&line.text)
                        ),
                    ),
                }
            }
        }
    }
}
