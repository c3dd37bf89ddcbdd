//! Turns: one run for each key, exactly one end for each turn, starts in the order of the queue, and no queued prompt
//! that a stop of the gateway ends.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::logs::{Event, Logs};
use super::{Found, History, Rule, short};

/// The events of a turn in the log.
#[derive(Debug, Default)]
struct Turn<'a> {
    key: Option<&'a str>,
    queued: usize,
    started: usize,
    ends: Vec<&'a str>,
}

pub(super) fn check(history: &History, logs: &Logs<'_>, found: &mut Found) {
    for (session, log) in logs {
        let turns = in_order(session, log, history.unfinished, found);
        keys(session, &turns, found);
        promised(session, history, &turns, found);
    }
}

fn in_order<'a>(
    session: &str,
    log: &'a BTreeMap<u64, Event<'a>>,
    unfinished: bool,
    found: &mut Found,
) -> BTreeMap<&'a str, Turn<'a>> {
    let mut turns: BTreeMap<&str, Turn<'_>> = BTreeMap::new();
    let mut queue: Vec<&str> = Vec::new();
    for event in log.values() {
        let Some(id) = event.prompt_id.as_deref() else {
            continue;
        };
        let turn = turns.entry(id).or_default();
        if event.idempotency_key.is_some() {
            turn.key = event.idempotency_key.as_deref();
        }
        match &*event.kind {
            "prompt.queued" => {
                turn.queued += 1;
                queue.push(id);
            }
            "prompt.changed" => {
                if !queue.contains(&id) {
                    let what = format!(
                        "{session}: {id} changes outside the queue: {}",
                        short(event.text)
                    );
                    found.add(Rule::Reordered, what);
                }
                change(&mut queue, id, event.before);
            }
            "prompt.started" => {
                turn.started += 1;
                if queue.first().is_some_and(|first| *first != id) {
                    found.add(
                        Rule::Reordered,
                        format!("{session}: {id} starts before {}", queue[0]),
                    );
                }
                queue.retain(|queued| *queued != id);
            }
            "prompt.completed" | "prompt.failed" if turn.started + turn.queued == 0 => {
                found.add(
                    Rule::End,
                    format!(
                        "{session}: {id} ends before it starts: {}",
                        short(event.text)
                    ),
                );
                turn.ends.push(event.text);
            }
            "prompt.completed" | "prompt.failed" => {
                let stopped = |code: &str| event.text.contains(&format!("\"code\":\"{code}\""));
                if stopped("draining") || (turn.started == 0 && stopped("interrupted")) {
                    found.add(
                        Rule::Lost,
                        format!("{session}: {id} did not wait: {}", short(event.text)),
                    );
                }
                turn.ends.push(event.text);
            }
            _ => continue,
        }
        if event.is_end() {
            queue.retain(|queued| *queued != id);
        }
        if turn.queued > 1 || turn.started > 1 {
            found.add(
                Rule::Twice,
                format!("{session}: {id} starts again: {}", short(event.text)),
            );
        }
        if !turn.ends.is_empty() && !event.is_end() {
            found.add(
                Rule::End,
                format!(
                    "{session}: {id} goes on after its end: {}",
                    short(event.text)
                ),
            );
        }
    }
    turns.retain(|_, turn| turn.started + turn.queued + turn.ends.len() > 0);
    for (id, turn) in &turns {
        if turn.ends.len() > 1 || (turn.ends.is_empty() && !unfinished) {
            let ends: Vec<String> = turn.ends.iter().map(|end| short(end)).collect();
            found.add(
                Rule::End,
                format!("{session}: {id} has {} ends: {ends:?}", ends.len()),
            );
        }
    }
    turns
}

/// Moves a prompt in the queue. `null` is the end.
fn change<'a>(queue: &mut Vec<&'a str>, id: &'a str, before: Option<&RawValue>) {
    let Some(before) = before else { return };
    queue.retain(|queued| *queued != id);
    let at = queue
        .iter()
        .position(|queued| before.get() == format!("\"{queued}\""));
    queue.insert(at.unwrap_or(queue.len()), id);
}

fn keys(session: &str, turns: &BTreeMap<&str, Turn<'_>>, found: &mut Found) {
    let mut runs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, turn) in turns {
        if let Some(key) = turn.key {
            runs.entry(key).or_default().push(id);
        }
    }
    for (key, runs) in runs {
        if runs.len() > 1 {
            found.add(
                Rule::Twice,
                format!("{session}: the key {key:?} has the turns {runs:?}"),
            );
        }
    }
}

/// Checks the responses to clients' prompts.
fn promised(session: &str, history: &History, turns: &BTreeMap<&str, Turn<'_>>, found: &mut Found) {
    let mut by_key: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for answer in history
        .prompts
        .iter()
        .filter(|answer| answer.session == session)
    {
        if !(200..300).contains(&answer.status) {
            continue;
        }
        let id = answer.prompt.as_deref().unwrap_or_default();
        let key = answer.key.as_deref();
        match turns.get(id) {
            None => found.add(
                Rule::Lost,
                format!("{session}: the log does not have the turn of {answer:?}"),
            ),
            Some(turn) if turn.key != key => {
                found.add(
                    Rule::Twice,
                    format!("{session}: {id} has the key {:?}: {answer:?}", turn.key),
                );
            }
            Some(_) => {}
        }
        if let Some(key) = key {
            by_key.entry(key).or_default().insert(id);
        }
    }
    for (key, ids) in by_key {
        if ids.len() > 1 {
            found.add(
                Rule::Twice,
                format!("{session}: the key {key:?} was answered with {ids:?}"),
            );
        }
    }
}
