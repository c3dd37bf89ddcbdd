//! Messages to and from agents: each prompt at most once, and only after its start was in the log.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::journal::{Journal, Message};
use super::logs::{Event, Logs};
use super::{Found, History, Rule, short};

/// The members of params that the rules check.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    session_id: &'a RawValue,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    update: Option<&'a RawValue>,
}

/// A prompt that an agent received, its output, and whether it answered.
struct Run<'a> {
    agent: &'a str,
    session: &'a str,
    id: &'a str,
    sent: Vec<&'a str>,
    answered: bool,
}

/// A turn in the log, by its last blocks.
struct Turn<'a> {
    name: String,
    logged: Vec<&'a str>,
    completed: bool,
}

pub(super) fn check(history: &History, logs: &Logs<'_>, found: &mut Found) {
    if history.journals.is_empty() {
        return;
    }
    let mut runs: BTreeMap<&str, Vec<Run<'_>>> = BTreeMap::new();
    for journal in &history.journals {
        runs_of(journal, &mut runs);
    }
    let turns = turns(logs);
    for (blocks, runs) in &runs {
        let count = turns.get(blocks).map_or(0, Vec::len);
        if runs.len() > count {
            let by: Vec<&str> = runs.iter().map(|run| run.agent).collect();
            let what = format!(
                "{count} turns, and agents {by:?} were prompted: {}",
                short(blocks)
            );
            found.add(Rule::Twice, what);
        } else if let (true, [run], Some([turn])) = (
            history.plain_words,
            &runs[..],
            turns.get(blocks).map(Vec::as_slice),
        ) {
            words(run, turn, found);
        }
    }
}

fn runs_of<'a>(journal: &'a Journal, runs: &mut BTreeMap<&'a str, Vec<Run<'a>>>) {
    let mut open: Vec<(&str, Run<'_>)> = Vec::new();
    for line in &journal.lines {
        let Some(Message { id, method, params }) = line.message() else {
            continue;
        };
        let id = id.map_or("null", RawValue::get);
        let params =
            params.and_then(|params| serde_json::from_str::<Params<'_>>(params.get()).ok());
        match (line.to_client, method.as_deref(), params) {
            (
                false,
                Some("session/prompt"),
                Some(Params {
                    session_id,
                    prompt: Some(prompt),
                    ..
                }),
            ) => {
                let agent = &*journal.name;
                let session = session_id.get();
                open.push((
                    prompt.get(),
                    Run {
                        agent,
                        session,
                        id,
                        sent: Vec::new(),
                        answered: false,
                    },
                ));
            }
            (
                true,
                Some("session/update"),
                Some(Params {
                    session_id,
                    update: Some(update),
                    ..
                }),
            ) => {
                let running = open
                    .iter_mut()
                    .find(|(_, run)| run.session == session_id.get() && !run.answered);
                if let Some((_, run)) = running {
                    run.sent.push(update.get());
                }
            }
            (true, None, _) => {
                if let Some((_, run)) = open
                    .iter_mut()
                    .find(|(_, run)| run.id == id && !run.answered)
                {
                    run.answered = true;
                }
            }
            _ => {}
        }
    }
    for (blocks, run) in open {
        runs.entry(blocks).or_default().push(run);
    }
}

fn turns<'a>(logs: &'a Logs<'a>) -> HashMap<&'a str, Vec<Turn<'a>>> {
    let mut turns: HashMap<&str, Vec<Turn<'_>>> = HashMap::new();
    for (session, log) in logs {
        let mut of_turn: BTreeMap<&str, Vec<&Event<'_>>> = BTreeMap::new();
        for event in log.values() {
            if let Some(turn) = event.prompt_id.as_deref() {
                of_turn.entry(turn).or_default().push(event);
            }
        }
        for (id, events) in of_turn {
            let Some(blocks) = events.iter().rev().find_map(|event| event.prompt) else {
                continue;
            };
            let live = events.iter().filter(|event| !event.late && !event.replayed);
            turns.entry(blocks.get()).or_default().push(Turn {
                name: format!("{id} of {session}"),
                logged: live
                    .filter_map(|event| event.update)
                    .map(RawValue::get)
                    .collect(),
                completed: events.iter().any(|event| event.kind == "prompt.completed"),
            });
        }
    }
    turns
}

/// The log contains a prefix of the agent's output in a turn, or all of it if the agent ended the turn.
fn words(run: &Run<'_>, turn: &Turn<'_>, found: &mut Found) {
    let sent = &run.sent;
    let logged = &turn.logged;
    let name = &turn.name;
    let differs = sent
        .iter()
        .zip(logged)
        .position(|(sent, logged)| sent != logged);
    if let Some(at) = differs {
        let sent = short(sent[at]);
        let logged = short(logged[at]);
        found.add(
            Rule::Words,
            format!(
                "{name}: update {at} is {logged}, agent {} said {sent}",
                run.agent
            ),
        );
    } else if logged.len() > sent.len()
        || (run.answered && turn.completed && logged.len() < sent.len())
    {
        let sent = sent.len();
        let logged = logged.len();
        found.add(
            Rule::Words,
            format!("{name}: {logged} updates, agent {} said {sent}", run.agent),
        );
    }
}
