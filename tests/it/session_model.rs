//! Compares a session with a model of it: any order of client actions, and agents with arbitrary behaviour. In every
//! case each admitted prompt ends once, each request is answered once, the log has no gap, and the queue has a bound.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::log::all;
use crate::support::{Answer, Gateway, Setup, eventually};

/// Prompts that may wait.
const QUEUE: usize = 2;

#[derive(Debug, Clone)]
enum Step {
    Prompt {
        text: &'static str,
        queue: bool,
    },
    /// The running turn and all that wait.
    CancelAll,
    /// One of the turns, or one that never was.
    Cancel(u32),
    /// Edits the first turn, and moves it before the second one or to the end.
    Change(u32, Option<u32>),
    /// Two tabs answer this request at once.
    Answer(u32),
    Pause,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = prop::sample::select(vec![
        "echo a",
        "stream n=3 size=8",
        "hang",
        "error",
        "crash chunks=1",
        "permission",
        "permission; error",
        "late n=2 ms=1",
        "stop reason=refusal",
    ]);
    let step = prop_oneof![
        6 => (text, prop::bool::weighted(0.7)).prop_map(|(text, queue)| Step::Prompt { text, queue }),
        1 => Just(Step::CancelAll),
        2 => (0_u32..10).prop_map(Step::Cancel),
        3 => (1_u32..8, prop::option::of(1_u32..8)).prop_map(|(prompt, before)| Step::Change(prompt, before)),
        4 => (0_u32..5).prop_map(Step::Answer),
        2 => Just(Step::Pause),
    ];
    prop::collection::vec(step, 1..14)
}

/// The responses to clients.
#[derive(Debug, Default)]
struct Responses {
    /// Turns that were admitted, in their order.
    prompts: Vec<String>,
    /// The content of the last accepted edit, by turn.
    edits: HashMap<String, String>,
    /// Accepted answers, by request.
    answers: HashMap<String, usize>,
}

async fn play(gateway: &Gateway, session: &str, steps: &[Step]) -> Responses {
    let mut responses = Responses::default();
    let of = |what: &str| format!("/v1/sessions/{session}/{what}");
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Prompt { text, queue } => {
                let body = json!({ "prompt": text, "queue": queue });
                let answer = gateway.posted(&of("prompts"), &[], &body).await;
                match (answer.status.as_u16(), answer.body["code"].as_str()) {
                    (202, _) => {
                        responses.prompts.push(
                            answer.body["promptId"]
                                .as_str()
                                .expect("it has an id")
                                .to_owned(),
                        );
                    }
                    (409, Some("turn_running")) => {
                        assert!(!queue, "a prompt with `queue` is not rejected: {answer:?}");
                    }
                    (429, Some("queue_full")) => assert!(*queue, "{answer:?}"),
                    _ => panic!("{step:?}: {answer:?}"),
                }
            }
            Step::CancelAll => {
                let answer = gateway.call(Method::POST, &of("cancel")).await;
                assert!(matches!(answer.status.as_u16(), 202 | 204), "{answer:?}");
            }
            Step::Cancel(number) => {
                let known = responses.prompts.contains(&format!("p{number}"));
                let answer = gateway
                    .call(Method::POST, &of(&format!("prompts/p{number}/cancel")))
                    .await;
                // A cancel of an ended turn returns 204.
                let fits = if known { [202, 204] } else { [404, 404] };
                assert!(fits.contains(&answer.status.as_u16()), "{answer:?}");
            }
            Step::Change(number, before) => {
                let known = responses.prompts.contains(&format!("p{number}"));
                let text = format!("echo change {at}");
                let body =
                    json!({ "prompt": text, "before": before.map(|before| format!("p{before}")) });
                let path = format!("{}/p{number}", of("prompts"));
                let answer = Answer::of(gateway.request(Method::PATCH, &path).json(&body)).await;
                match (answer.status.as_u16(), answer.body["code"].as_str()) {
                    (200, _) => drop(responses.edits.insert(format!("p{number}"), text)),
                    (409, Some("prompt_not_queued")) => assert!(known, "{answer:?}"),
                    (404, _) => assert!(!known, "{answer:?}"),
                    _ => panic!("{step:?}: {answer:?}"),
                }
            }
            Step::Answer(number) => {
                let path = of(&format!("permissions/r{number}"));
                let allow = json!({ "optionId": "allow" });
                let reject = json!({ "optionId": "reject" });
                let tabs = (
                    gateway.posted(&path, &[], &allow),
                    gateway.posted(&path, &[], &reject),
                );
                let (one, two) = tokio::join!(tabs.0, tabs.1);
                for answer in [one, two] {
                    match answer.status.as_u16() {
                        204 => *responses.answers.entry(format!("r{number}")).or_default() += 1,
                        404 | 409 => {}
                        _ => panic!("{step:?}: {answer:?}"),
                    }
                }
            }
            Step::Pause => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
    responses
}

/// Ends all running turns and returns the whole log.
async fn settled(gateway: &Gateway, session: &str) -> Vec<Value> {
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    eventually(
        "the session is idle",
        std::time::Duration::from_mins(1),
        || async {
            let shown = gateway.get_session(session).await;
            (shown["state"] == "idle" && shown["queued"] == json!([])).then_some(())
        },
    )
    .await;
    gateway.lawful(session).await
}

fn judge(events: &[Value], responses: &Responses) {
    let ids = |kinds: &[&str]| -> Vec<String> {
        let of = events
            .iter()
            .filter(|event| kinds.iter().any(|kind| event["type"] == *kind));
        of.filter_map(|event| event["promptId"].as_str().map(str::to_owned))
            .collect()
    };
    let mut ended = ids(&["prompt.completed", "prompt.failed"]);
    ended.sort_by_key(|id| (id.len(), id.clone()));
    assert_eq!(
        ended, responses.prompts,
        "every admitted turn ends once, and no other turn does"
    );

    let mut waiting = Vec::new();
    let mut running = None;
    let mut content = HashMap::new();
    for event in events {
        let turn = event["promptId"].as_str();
        match event["type"].as_str().expect("an event has a type") {
            // Behind a running turn, or until a process has the session.
            "prompt.queued" => {
                waiting.extend(turn);
                assert!(waiting.len() <= QUEUE, "{waiting:?}");
            }
            "prompt.changed" => {
                let id = turn.expect("it belongs to a turn");
                assert!(waiting.contains(&id), "only a prompt in the queue changes");
                if event.get("before").is_some() {
                    waiting.retain(|waiting| *waiting != id);
                    let at = waiting
                        .iter()
                        .position(|waiting| event["before"] == **waiting);
                    waiting.insert(at.unwrap_or(waiting.len()), id);
                }
                content.extend(
                    event["prompt"][0]["text"]
                        .as_str()
                        .map(|text| (id.to_owned(), text.to_owned())),
                );
            }
            "prompt.started" => {
                assert_eq!(running, None, "one turn at a time");
                if let Some(position) = waiting.iter().position(|id| Some(*id) == turn) {
                    assert_eq!(position, 0, "in their order");
                    waiting.remove(0);
                }
                running = turn;
            }
            "prompt.completed" | "prompt.failed" => {
                waiting.retain(|id| Some(*id) != turn);
                running = running.filter(|id| Some(*id) != turn);
            }
            "request.created" => assert_eq!(turn, running, "a question is of the turn that runs"),
            _ => {}
        }
    }
    assert_eq!((waiting.len(), running), (0, None));
    assert_eq!(content, responses.edits, "the log has the accepted edits");

    for created in all(events, "request.created") {
        let id = &created["requestId"];
        let resolved: Vec<&Value> = all(events, "request.resolved")
            .into_iter()
            .filter(|event| event["requestId"] == *id)
            .collect();
        assert_eq!(resolved.len(), 1, "{id} ends once");
        let accepted = responses
            .answers
            .get(id.as_str().expect("it is text"))
            .copied()
            .unwrap_or(0);
        assert_eq!(
            accepted,
            usize::from(resolved[0]["resolution"] == "answered"),
            "{id}: {}",
            resolved[0]
        );
    }
}

#[tokio::test]
async fn session_matches_its_model_for_any_order_of_actions() {
    const SESSIONS: usize = 32;
    const AT_ONCE: usize = 4;
    let limits = format!(
        "limits.per_session.max_queued_prompts = {QUEUE}\nlimits.per_key.max_prompts_per_minute = 10000\ntesting.max_breaker_crashes = 1000\ntesting.max_backoff = \"10ms\"\ntesting.min_backoff = \"1ms\""
    );
    let gateway = Setup::fake(&[]).settings(&limits).start();
    let mut runner = TestRunner::deterministic();
    let strategy = steps();
    let mut asked = 0;
    for _ in 0..SESSIONS / AT_ONCE {
        let cases: Vec<Vec<Step>> = (0..AT_ONCE)
            .map(|_| strategy.new_tree(&mut runner).expect("steps").current())
            .collect();
        let played = cases.iter().map(|steps| async {
            let session = gateway.session("fake").await;
            let responses = play(&gateway, &session, steps).await;
            (settled(&gateway, &session).await, responses)
        });
        for (steps, (events, responses)) in cases
            .iter()
            .zip(futures_util::future::join_all(played).await)
        {
            asked += all(&events, "request.created").len();
            println!("{steps:?}\n  {responses:?}");
            judge(&events, &responses);
        }
    }
    assert!(asked > SESSIONS / 4, "agents asked {asked} times");
}
