//! The race for one request: two clients answer it, it expires, the turn is cancelled, or the agent withdraws
//! it or exits. The first input decides, and the agent receives at most one answer.

use std::time::Duration;

use serde_json::value::RawValue;
use shuttle::future::{block_on, spawn};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::actor::{Actor, AgentMessage, Link};
use super::error::{AnswerError, NotFound, RequestResolved};
use super::journal::Journal;
use super::requests::{EndedBy, Offer, Wait, requests};
use crate::follow;
use base::types::{Author, PromptId, RequestId, Timestamp};
use events::api::{PendingRequest, Resolution};
use log::eventlog::{Item, SessionLog, Start};
use wire::acp::{self, Outcome};

/// The agent's id of its request. Both requests have the same id, because agents reuse ids.
const AGENTS_ID: &str = "0";
const PROMPT: PromptId = PromptId::FIRST;
const REQUESTS: u32 = 2;

/// An input of the actor.
enum Input {
    Look(RequestId, oneshot::Sender<Result<(), AnswerError>>),
    Answer(
        &'static str,
        RequestId,
        oneshot::Sender<Result<u64, AnswerError>>,
    ),
    /// The deadline passed.
    Late,
    Cancel,
    Withdrawn,
    AgentEnds,
    End,
}

/// Two requests, and all inputs that can resolve them concurrently.
pub fn first_answer_wins() {
    block_on(async {
        let log = follow::log(1000);
        let session = follow::open(&log, 1).await;
        let link = Link::new(session.clone());
        let (inputs, receiver) = mpsc::channel(2);
        let owner = spawn(run_actor(actor(session.clone(), link.clone()), receiver));
        let reader = spawn(resolutions(session.clone()));
        let mut others = Vec::new();
        for input in [
            Input::Late,
            Input::Cancel,
            Input::Withdrawn,
            Input::AgentEnds,
        ] {
            let inputs = inputs.clone();
            others.push(spawn(async move {
                inputs.send(input).await.expect("the actor ended")
            }));
        }
        let tabs = ["alice", "bob"].map(|name| spawn(tab(name, inputs.clone(), session.clone())));
        let mut observed = Vec::new();
        for tab in tabs {
            observed.push(tab.await.expect("a client panicked"));
        }
        for other in others {
            other.await.expect("a task panicked");
        }
        inputs.send(Input::End).await.expect("the actor ended");
        owner.await.expect("the actor panicked");
        let events = reader.await.expect("the reader panicked");
        judge(&events, &observed.concat(), &link.agent_messages());
        log.close().await;
    });
}

fn actor(log: SessionLog, link: Link) -> Actor {
    Actor {
        journal: Journal::new(log),
        link,
        requests: requests(),
    }
}

/// The actor's loop: it handles one input at a time, and then sends the answers that became durable.
async fn run_actor(mut actor: Actor, mut inputs: mpsc::Receiver<Input>) {
    for wait in [Wait::AtMost(Duration::from_secs(60)), Wait::Turn] {
        let incoming = actor.link.process().connection.received(AGENTS_ID);
        let request = PendingRequest {
            request_id: RequestId::new(0),
            method: acp::method::SESSION_REQUEST_PERMISSION.to_owned(),
            params: RawValue::from_string(r#"{"sessionId":"s","options":[]}"#.to_owned())
                .expect("invalid JSON"),
            prompt_id: Some(PROMPT),
            subagent: None,
            acp_client: None,
            created_at: Timestamp::from_millis(0),
            deadline: None,
        };
        actor.offer(Offer {
            request,
            incoming,
            wait,
        });
    }
    let mut commits = actor.journal.log().commits();
    let mut over = false;
    while !over || actor.requests.waits_for_commit() {
        tokio::select! {
            biased;
            input = inputs.recv(), if !over => match input.expect("all senders were dropped") {
                Input::Look(id, reply) => drop(reply.send(actor.requests.get(id).map(drop))),
                Input::Answer(name, id, reply) => {
                    let outcome: Outcome = Ok(acp::selected(name));
                    drop(reply.send(actor.answer(&author(name), id, outcome)));
                }
                Input::Late => {
                    assert!(actor.requests.deadline().is_none_or(|at| at > Instant::now()));
                    actor.expire_requests(Instant::now() + Duration::from_secs(120));
                }
                Input::Cancel => actor.end_requests(EndedBy::Cancel(Some(PROMPT))),
                Input::Withdrawn => {
                    let id = RawValue::from_string(AGENTS_ID.to_owned()).expect("invalid JSON");
                    actor.cancelled_by_agent(&id);
                }
                Input::AgentEnds => actor.end_requests(EndedBy::Release),
                Input::End => {
                    // The turn has ended: withdraw its pending requests.
                    actor.end_requests(EndedBy::TurnEnd);
                    over = true;
                }
            },
            changed = commits.changed(), if actor.requests.waits_for_commit() => changed.expect("the log is closed"),
        }
        actor.send_responses();
    }
}

fn author(name: &str) -> Author {
    Author {
        name: name.into(),
        key: name.into(),
        address: [127, 0, 0, 1].into(),
        http_request_id: None,
    }
}

/// The result that a client received: the request was answered by this client, or was already resolved.
#[derive(Debug, Clone)]
struct Observed {
    tab: &'static str,
    id: RequestId,
    outcome: Result<u64, (Resolution, Option<String>)>,
}

/// A client looks up each request and answers it, like a session handle: two inputs for the actor.
async fn tab(name: &'static str, inputs: mpsc::Sender<Input>, log: SessionLog) -> Vec<Observed> {
    let mut observed = Vec::new();
    for number in 1..=REQUESTS {
        let id = RequestId::new(number);
        // Wait until the request is committed.
        log.wait(number.into()).await.expect("the log is closed");
        let (reply, looked) = oneshot::channel();
        inputs
            .send(Input::Look(id, reply))
            .await
            .expect("the actor ended");
        let outcome = match looked.await.expect("no reply") {
            Ok(()) => {
                let (reply, answered) = oneshot::channel();
                inputs
                    .send(Input::Answer(name, id, reply))
                    .await
                    .expect("the actor ended");
                answered.await.expect("no reply")
            }
            Err(error) => Err(error),
        };
        let outcome = outcome.map_err(|error| match error {
            AnswerError::Resolved(RequestResolved {
                id: of,
                resolution,
                by,
            }) => {
                assert_eq!(of, id);
                (resolution, by)
            }
            AnswerError::NotFound(NotFound(what)) => panic!("{what} {id} must be known"),
        });
        observed.push(Observed {
            tab: name,
            id,
            outcome,
        });
    }
    observed
}

/// The resolution of a request in the log.
#[derive(Debug)]
struct LoggedResolution {
    seq: u64,
    id: String,
    resolution: String,
    by: Option<String>,
}

/// Reads the log until all requests are resolved.
async fn resolutions(log: SessionLog) -> Vec<LoggedResolution> {
    let mut reader = log.reader(Start::Beginning);
    let mut found: Vec<LoggedResolution> = Vec::new();
    while found.len() < REQUESTS as usize {
        let Item::Run(run) = reader.next().await.expect("could not read the store") else {
            continue;
        };
        for frame in run
            .events()
            .filter(|frame| frame.kind() == "request.resolved")
        {
            let event: serde_json::Value =
                serde_json::from_slice(frame.raw_json()).expect("an event must be JSON");
            let text = |name: &str| event[name].as_str().map(str::to_owned);
            found.push(LoggedResolution {
                seq: frame.seq(),
                id: text("requestId").expect("no request id"),
                resolution: text("resolution").expect("no resolution"),
                by: text("by"),
            });
        }
    }
    // Later events may still be committed, but none of them is a second resolution.
    found
}

fn judge(events: &[LoggedResolution], observed: &[Observed], received: &[AgentMessage]) {
    assert_eq!(
        events.len(),
        REQUESTS as usize,
        "each request is resolved once: {events:?}"
    );
    for number in 1..=REQUESTS {
        let id = RequestId::new(number);
        let mut of = events.iter().filter(|event| event.id == id.to_string());
        let event = of.next().expect("a request was not resolved");
        assert!(
            of.next().is_none(),
            "a request was resolved twice: {events:?}"
        );
        let mut winners = 0;
        for observed in observed.iter().filter(|observed| observed.id == id) {
            match &observed.outcome {
                Ok(seq) => {
                    winners += 1;
                    assert_eq!(
                        (*seq, event.by.as_deref()),
                        (event.seq, Some(observed.tab)),
                        "{observed:?} {event:?}"
                    );
                }
                Err((resolution, by)) => {
                    let known =
                        serde_json::to_value(resolution).expect("a resolution must serialize");
                    assert_eq!(
                        known.as_str(),
                        Some(&*event.resolution),
                        "{observed:?} {event:?}"
                    );
                    assert_eq!(
                        by, &event.by,
                        "the second client must learn who answered first"
                    );
                }
            }
        }
        assert_eq!(
            winners,
            u32::from(event.resolution == "answered"),
            "{observed:?} {event:?}"
        );
    }
    assert_eq!(
        received.len(),
        REQUESTS as usize,
        "the agent must receive one answer for each request: {received:?} {events:?}"
    );
    assert!(received.iter().all(|received| received.id == AGENTS_ID));
    for event in events.iter().filter(|event| event.resolution == "answered") {
        let by = event.by.as_deref().expect("an answer must name its client");
        let mut of = received
            .iter()
            .filter(|received| received.outcome.contains(by) && received.committed >= event.seq);
        assert!(
            of.next().is_some(),
            "the agent must receive the answer after its commit: {received:?} {event:?}"
        );
    }
}
