//! The race for one request: two tabs answer it, nobody does in time, the turn is cancelled, the agent takes it back or
//! ends. Whatever comes first decides, and the agent hears one answer at most.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::value::RawValue;
use shuttle::future::{block_on, spawn};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::actor::{Actor, Context, AgentMessage, EventLoop, Lease, Record, Turn};
use super::refusal::Refusal;
use super::requests::{OfferedRequest, Outcome, Wait};
use crate::acp;
use crate::api::Resolution;
use crate::eventlog::{Item, SessionLog, Start};
use crate::follow;
use crate::types::{Ids, Limits, Principal, PromptId, RequestId, Scopes, Tenant};

/// The agent's own id of its request. Both requests have it: agents use ids again.
const AGENTS_ID: &str = "0";
const PROMPT: PromptId = PromptId::FIRST;
const REQUESTS: u32 = 2;

/// What comes to the owner, from whomever.
enum Input {
    Look(RequestId, oneshot::Sender<Result<(), Refusal>>),
    Answer(&'static str, RequestId, oneshot::Sender<Result<u64, Refusal>>),
    /// Time has passed.
    Late,
    Cancel,
    TakenBack,
    AgentEnds,
    End,
}

/// Two requests, and everything that can end them at once.
pub fn first_answer_wins() {
    block_on(async {
        let log = follow::log(1000);
        let session = follow::open(&log, 1).await;
        let lease = Lease::new(session.clone());
        let (inputs, receiver) = mpsc::channel(2);
        let owner = spawn(run_actor(actor(session.clone(), lease.clone()), receiver));
        let reader = spawn(resolutions(session.clone()));
        let mut others = Vec::new();
        for input in [Input::Late, Input::Cancel, Input::TakenBack, Input::AgentEnds] {
            let inputs = inputs.clone();
            others.push(spawn(async move { inputs.send(input).await.ok().expect("the owner is there") }));
        }
        let tabs = ["alice", "bob"].map(|name| spawn(tab(name, inputs.clone(), session.clone())));
        let mut told = Vec::new();
        for tab in tabs {
            told.push(tab.await.expect("it ends"));
        }
        for other in others {
            other.await.expect("it ends");
        }
        inputs.send(Input::End).await.ok().expect("the owner is there");
        owner.await.expect("it ends");
        let events = reader.await.expect("it ends");
        judge(&events, &told.concat(), &lease.process().agent_messages());
        log.close().await;
    });
}

fn actor(log: SessionLog, lease: Lease) -> Actor {
    Actor {
        context: Context { ids: Ids::system(), limits: Limits::default() },
        record: Record { session_id: log.session(), last_request: 0 },
        log,
        event_loop: EventLoop { lease: Some(lease) },
        turn: Some(Turn { prompt: PROMPT, last_activity: Instant::now() }),
        requests: BTreeMap::new(),
        resolved: VecDeque::new(),
        outbox: VecDeque::new(),
    }
}

/// The owner's loop: one input at a time, and after each what has become durable goes out.
async fn run_actor(mut actor: Actor, mut inputs: mpsc::Receiver<Input>) {
    for wait in [Wait::AtMost(Duration::from_secs(60)), Wait::Turn] {
        let lease = actor.event_loop.lease.as_ref().expect("it has just begun");
        let incoming = lease.process().connection.received(AGENTS_ID);
        let params = RawValue::from_string(r#"{"sessionId":"s","options":[]}"#.to_owned()).expect("JSON");
        let method = acp::method::SESSION_REQUEST_PERMISSION;
        let offer = OfferedRequest { method, incoming, params, prompt: Some(PROMPT), subagent: None, wait };
        assert!(actor.offer_request(offer).is_some(), "two may wait");
    }
    let mut commits = actor.log.commits();
    let mut over = false;
    while !over || !actor.outbox.is_empty() {
        tokio::select! {
            biased;
            input = inputs.recv(), if !over => match input.expect("the race holds a sender") {
                Input::Look(id, reply) => drop(reply.send(actor.pending(id).map(drop))),
                Input::Answer(name, id, reply) => {
                    let outcome: Outcome = Ok(acp::selected(name));
                    drop(reply.send(actor.answer(&principal(name), id, outcome)));
                }
                Input::Late => {
                    assert!(actor.request_deadline().is_none_or(|at| at > Instant::now()));
                    actor.expire_requests(Instant::now() + Duration::from_secs(120));
                }
                Input::Cancel => actor.cancel_requests(),
                Input::TakenBack => {
                    let id = format!(r#"{{"requestId":{AGENTS_ID}}}"#);
                    actor.cancelled_by_agent(&RawValue::from_string(id).expect("JSON"));
                }
                Input::AgentEnds => {
                    actor.withdraw_requests();
                    actor.turn = None;
                }
                Input::End => {
                    // The turn is over: what of it still waits is withdrawn.
                    actor.withdraw_questions();
                    over = true;
                }
            },
            changed = commits.changed(), if !actor.outbox.is_empty() => changed.expect("the log is open"),
        }
        actor.send_answers();
    }
}

fn principal(name: &str) -> Principal {
    Principal { id: name.into(), tenant: Tenant::default(), scopes: Scopes::default() }
}

/// What a tab was told: by whom a request was answered, for all that it knows.
#[derive(Debug, Clone)]
struct Observed {
    tab: &'static str,
    id: RequestId,
    outcome: Result<u64, (Resolution, Option<String>)>,
}

/// A tab looks at each request and answers it, as the handle of a session does: the owner is asked twice.
async fn tab(name: &'static str, inputs: mpsc::Sender<Input>, log: SessionLog) -> Vec<Observed> {
    let mut told = Vec::new();
    for number in 1..=REQUESTS {
        let id = RequestId::new(number);
        // Until the request is there: the log says so.
        log.wait(number.into()).await.expect("the log is open");
        let (reply, looked) = oneshot::channel();
        inputs.send(Input::Look(id, reply)).await.ok().expect("the owner is there");
        let outcome = match looked.await.expect("an answer") {
            Ok(()) => {
                let (reply, answered) = oneshot::channel();
                inputs.send(Input::Answer(name, id, reply)).await.ok().expect("the owner is there");
                answered.await.expect("an answer")
            }
            Err(refusal) => Err(refusal),
        };
        let outcome = outcome.map_err(|refusal| match refusal {
            Refusal::RequestResolved { id: of, resolution, by } => {
                assert_eq!(of, id);
                (resolution, by)
            }
            Refusal::NotFound(what) => panic!("{what} {id} is known"),
        });
        told.push(Observed { tab: name, id, outcome });
    }
    told
}

/// How a request ended, as the log has it.
#[derive(Debug)]
struct LoggedResolution {
    seq: u64,
    id: String,
    resolution: String,
    by: Option<String>,
}

/// The resolutions in the log, up to the last that can come.
async fn resolutions(log: SessionLog) -> Vec<LoggedResolution> {
    let mut reader = log.reader(Start::Beginning);
    let mut found: Vec<LoggedResolution> = Vec::new();
    while found.len() < REQUESTS as usize {
        let Item::Run(run) = reader.next().await.expect("the store reads") else { continue };
        for frame in run.events().filter(|frame| frame.kind() == "request.resolved") {
            let event: serde_json::Value = serde_json::from_slice(frame.json()).expect("an event is JSON");
            let text = |name: &str| event[name].as_str().map(str::to_owned);
            found.push(LoggedResolution {
                seq: frame.seq(),
                id: text("requestId").expect("it has one"),
                resolution: text("resolution").expect("it has one"),
                by: text("by"),
            });
        }
    }
    // Whatever else was appended by then is committed with it or soon after; it holds no second resolution.
    found
}

fn judge(events: &[LoggedResolution], told: &[Observed], heard: &[AgentMessage]) {
    assert_eq!(events.len(), REQUESTS as usize, "each ends once: {events:?}");
    for number in 1..=REQUESTS {
        let id = RequestId::new(number);
        let mut of = events.iter().filter(|event| event.id == id.to_string());
        let event = of.next().expect("each request ends");
        assert!(of.next().is_none(), "it ends once: {events:?}");
        let mut winners = 0;
        for told in told.iter().filter(|told| told.id == id) {
            match &told.outcome {
                Ok(seq) => {
                    winners += 1;
                    assert_eq!((*seq, event.by.as_deref()), (event.seq, Some(told.tab)), "{told:?} {event:?}");
                }
                Err((resolution, by)) => {
                    let known = serde_json::to_value(resolution).expect("a word");
                    assert_eq!(known.as_str(), Some(&*event.resolution), "{told:?} {event:?}");
                    assert_eq!(by, &event.by, "who comes second hears who was first");
                }
            }
        }
        assert_eq!(winners, u32::from(event.resolution == "answered"), "{told:?} {event:?}");
    }
    assert_eq!(heard.len(), REQUESTS as usize, "one answer for each: {heard:?} {events:?}");
    assert!(heard.iter().all(|heard| heard.id == AGENTS_ID));
    for event in events.iter().filter(|event| event.resolution == "answered") {
        let by = event.by.as_deref().expect("an answer is somebody's");
        let mut of = heard.iter().filter(|heard| heard.outcome.contains(by) && heard.committed >= event.seq);
        assert!(of.next().is_some(), "the agent hears it once it is durable: {heard:?} {event:?}");
    }
}
