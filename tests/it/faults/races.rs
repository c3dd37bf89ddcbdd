//! Clients that send the same or opposite requests at the same time: one wins, and every response is true.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Case;
use super::pressure::Standstill;
use crate::support::gateway::KEY;
use crate::support::log::{agent_text, all};
use crate::support::{Answer, Gateway, Random, figure};

/// Clients with a connection each that is open already.
async fn clients(gateway: &Gateway, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let client = Client::builder().no_proxy().build().expect("a client");
        let alive = client
            .get(format!("{}/livez", gateway.url))
            .send()
            .await
            .expect("an answer");
        alive.bytes().await.expect("a body");
        clients.push(client);
    }
    clients
}

/// The prompt that a client posts, with its key.
struct Post<'a> {
    client: &'a Client,
    path: &'a str,
    key: Option<&'a str>,
    body: &'a Value,
    /// How long after the others.
    after: Duration,
}

impl<'a> Post<'a> {
    fn new(client: &'a Client, path: &'a str, body: &'a Value) -> Self {
        Self {
            client,
            path,
            key: None,
            body,
            after: Duration::ZERO,
        }
    }
}

/// Sends all of them at the same instant, each after its own while; the answers in their order.
async fn at_once(case: &Case, posts: &[Post<'_>]) -> Vec<Answer> {
    let together = Arc::new(Barrier::new(posts.len()));
    let mut sent = JoinSet::new();
    for (at, post) in posts.iter().enumerate() {
        let together = Arc::clone(&together);
        let after = post.after;
        let mut request = post
            .client
            .post(format!("{}{}", case.url, post.path))
            .bearer_auth(KEY)
            .json(post.body);
        if let Some(key) = post.key {
            request = request.header("Idempotency-Key", key);
        }
        sent.spawn(async move {
            together.wait().await;
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            (at, Answer::of(request).await)
        });
    }
    let mut answers = sent.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    for (post, (_, answer)) in posts.iter().zip(&answers) {
        case.answered(post.path, post.key, post.body, answer);
    }
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The one that began something, and did not find it begun.
#[track_caller]
fn the_first(answers: &[Answer]) -> usize {
    let began = |answer: &Answer| {
        answer.status.is_success() && answer.header("idempotency-replayed").is_none()
    };
    let found: Vec<usize> = (0..answers.len())
        .filter(|at| began(&answers[*at]))
        .collect();
    match found[..] {
        [one] => one,
        _ => panic!("{} of {} were the first", found.len(), answers.len()),
    }
}

const CONNECTIONS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn one_key_on_twenty_connections_at_the_same_instant_is_one_turn() {
    let (case, session) = Case::fake(&[]).await;
    let clients = clients(&case, CONNECTIONS).await;
    let path = format!("/v1/sessions/{session}/prompts");
    for round in 1..=5 {
        let body = json!({ "prompt": format!("echo round-{round}") });
        let key = format!("key {round}");
        let posts = clients.iter().map(|client| Post {
            key: Some(&key),
            ..Post::new(client, &path, &body)
        });
        let answers = at_once(&case, &posts.collect::<Vec<_>>()).await;
        the_first(&answers);
        for answer in answers {
            match answer.status {
                // A client that arrives after the end of the turn receives that result.
                StatusCode::ACCEPTED | StatusCode::OK => {
                    assert_eq!(answer.body["promptId"], format!("p{round}"));
                }
                _ => assert_eq!(
                    answer.problem(409, "idempotency_in_flight")["retryable"],
                    true
                ),
            }
        }
        let again = case
            .posted(
                &path,
                &[("Idempotency-Key", &key), ("Prefer", "wait=60")],
                &body,
            )
            .await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(
            (&again.body["promptId"], again.status.as_u16()),
            (&json!(format!("p{round}")), 200)
        );
        assert_eq!(
            case.received(&format!("round-{round}")),
            1,
            "the agent was prompted once"
        );
    }
    assert_eq!(all(&case.holds().await, "prompt.started").len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_with_two_bodies_at_the_same_instant_is_one_turn_of_one_body() {
    let (case, session) = Case::fake(&[]).await;
    let clients = clients(&case, CONNECTIONS).await;
    let path = format!("/v1/sessions/{session}/prompts");
    for round in 1..=5 {
        let bodies =
            ["left", "right"].map(|side| json!({ "prompt": format!("echo {side}-{round}") }));
        let key = format!("key {round}");
        let posts = clients.iter().zip(bodies.iter().cycle());
        let posts = posts.map(|(client, body)| Post {
            key: Some(&key),
            ..Post::new(client, &path, body)
        });
        let answers = at_once(&case, &posts.collect::<Vec<_>>()).await;
        let won = the_first(&answers);
        for (at, answer) in answers.into_iter().enumerate() {
            match answer.status {
                StatusCode::ACCEPTED | StatusCode::OK => {
                    assert_eq!(at % 2, won % 2, "a replay of its own body");
                }
                StatusCode::CONFLICT => drop(answer.problem(409, "idempotency_in_flight")),
                _ => {
                    assert_ne!(at % 2, won % 2, "its own body is no other one");
                    answer.problem(422, "idempotency_mismatch");
                }
            }
        }
        let headers = [("Idempotency-Key", &*key), ("Prefer", "wait=60")];
        case.posted(&path, &headers, &bodies[1 - won % 2])
            .await
            .problem(422, "idempotency_mismatch");
        assert_eq!(
            case.posted(&path, &headers, &bodies[won % 2]).await.body["promptId"],
            format!("p{round}")
        );
        let received = ["left", "right"].map(|side| case.received(&format!("{side}-{round}")));
        assert_eq!((received[won % 2], received[1 - won % 2]), (1, 0));
    }
    assert_eq!(all(&case.holds().await, "prompt.started").len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_on_twenty_connections_at_the_same_instant_is_one_session() {
    let mut case = Case::with(&["--slow-start", "300"], "", "");
    let clients = clients(&case, CONNECTIONS).await;
    let body = json!({ "agent": "fake" });
    let posts = clients.iter().map(|client| Post {
        key: Some("k"),
        ..Post::new(client, "/v1/sessions", &body)
    });
    let answers = at_once(&case, &posts.collect::<Vec<_>>()).await;
    let won = the_first(&answers);
    let session = answers[won].body["sessionId"].clone();
    for answer in answers {
        match answer.status {
            StatusCode::CREATED => assert_eq!(answer.body["sessionId"], session),
            _ => drop(answer.problem(409, "idempotency_in_flight")),
        }
    }
    assert_eq!(
        case.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(case.received("session/new"), 1);
    case.follow(session.as_str().expect("an id"));
    case.holds().await;
}

/// Four tabs, each with an answer of its own, by both routes.
#[tokio::test(flavor = "multi_thread")]
async fn of_several_tabs_that_answer_one_permission_one_wins_in_every_round() {
    const ROUNDS: usize = 30;
    let (case, session) = Case::fake(&[]).await;
    let tabs = clients(&case, 4).await;
    let options = ["allow", "reject", "allow_always", "cancelled"];
    let declined = json!({ "cancelled": true });
    let outcome =
        json!({ "result": { "outcome": { "outcome": "selected", "optionId": "reject" } } });
    let mut wins = [0; 4];
    for round in 1..=ROUNDS {
        let mut stream = case
            .events(&format!("/v1/sessions/{session}/events?after=tail"))
            .await;
        stream.until("ready").await;
        case.prompt(&session, "permission").await;
        stream.until("request.created").await;
        let [by_kind, general] = ["permissions", "requests"]
            .map(|kind| format!("/v1/sessions/{session}/{kind}/r{round}"));
        let [allow, always] = ["allow", "allow_always"].map(|option| json!({ "optionId": option }));
        let posts = [
            Post::new(&tabs[0], &by_kind, &allow),
            Post::new(&tabs[1], &general, &outcome),
            Post::new(&tabs[2], &by_kind, &always),
            Post::new(&tabs[3], &by_kind, &declined),
        ];
        let answers = at_once(&case, &posts).await;
        let won = the_first(&answers);
        assert_eq!(answers[won].status, StatusCode::NO_CONTENT);
        wins[won] += 1;
        for (at, answer) in answers.into_iter().enumerate() {
            if at != won {
                assert_eq!(
                    answer.problem(409, "request_resolved")["resolution"],
                    "answered"
                );
            }
        }
        let events = stream.until("prompt.completed").await;
        let received: Vec<&str> = events
            .iter()
            .filter_map(|event| event.data["update"]["content"]["text"].as_str())
            .collect();
        assert_eq!(
            received,
            [format!("permission: {}", options[won])],
            "round {round}"
        );
        assert_eq!(
            case.received(&format!(r#"{{"jsonrpc":"2.0","id":{round},"result":"#)),
            1,
            "round {round}"
        );
    }
    figure(&format!("of {ROUNDS} rounds the tabs won {wins:?}"));
    let log = case.holds().await;
    assert_eq!(all(&log, "request.resolved").len(), ROUNDS);
}

/// Two cancels, of the turn and of all, around the instant at which the turn ends by itself, and a prompt that waits
/// behind it and is cancelled around the instant at which it starts.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_at_the_start_or_end_of_a_turn_gives_one_end() {
    const ROUNDS: usize = 25;
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let (case, session) = Case::fake(&[]).await;
    let tabs = clients(&case, 3).await;
    let prompts = format!("/v1/sessions/{session}/prompts");
    let mut cancelled = 0;
    let empty = json!({});
    for round in 0..ROUNDS {
        let one = 2 * round + 1;
        let two = 2 * round + 2;
        case.prompt(&session, &format!("slow chunks=1 ms={}", random.below(10)))
            .await;
        let behind = json!({ "prompt": "echo behind", "queue": true });
        assert_eq!(
            case.posted(&prompts, &[], &behind).await.body["promptId"],
            format!("p{two}")
        );
        let mut soon = || Duration::from_micros(random.below(10_000));
        let cancels = [one, two, two].map(|prompt| format!("{prompts}/p{prompt}/cancel"));
        let posts = tabs.iter().zip(&cancels);
        let posts = posts.map(|(tab, path)| Post {
            after: soon(),
            ..Post::new(tab, path, &empty)
        });
        let answers = at_once(&case, &posts.collect::<Vec<_>>()).await;
        assert!(
            answers
                .iter()
                .all(|answer| [202, 204].contains(&answer.status.as_u16())),
            "{answers:?}"
        );
        for prompt in [one, two] {
            let path = format!("{prompts}/p{prompt}");
            let ended =
                Answer::of(case.request(Method::GET, &path).header("Prefer", "wait=60")).await;
            assert_eq!(ended.body["status"], "completed", "{ended:?}");
            cancelled += usize::from(ended.body["stopReason"] == "cancelled");
        }
        assert_eq!(
            case.post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
                .await
                .0,
            204
        );
    }
    figure(&format!(
        "{cancelled} of {} turns were cancelled",
        2 * ROUNDS
    ));
    let log = case.holds().await;
    assert_eq!(all(&log, "prompt.completed").len(), 2 * ROUNDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_cancel_and_answer_send_the_agent_one_of_them() {
    const ROUNDS: usize = 25;
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let (case, session) = Case::fake(&[]).await;
    let tabs = clients(&case, 3).await;
    let allow = json!({ "optionId": "allow" });
    let empty = json!({});
    let mut answered = 0;
    for round in 1..=ROUNDS {
        let mut stream = case
            .events(&format!("/v1/sessions/{session}/events?after=tail"))
            .await;
        stream.until("ready").await;
        case.prompt(&session, "permission wait=yes").await;
        stream.until("request.created").await;
        let base = format!("/v1/sessions/{session}");
        let permission = format!("{base}/permissions/r{round}");
        let all = format!("{base}/cancel");
        let one = format!("{base}/prompts/p{round}/cancel");
        // An answer needs slightly more time than a cancel to reach its session.
        let after = Duration::from_micros(random.below(6000));
        let posts = [
            Post::new(&tabs[0], &permission, &allow),
            Post {
                after,
                ..Post::new(&tabs[1], &all, &empty)
            },
            Post {
                after,
                ..Post::new(&tabs[2], &one, &empty)
            },
        ];
        let answers = at_once(&case, &posts).await;
        let events = stream.until("prompt.completed").await;
        let resolved: Vec<&Value> = events
            .iter()
            .filter(|event| event.of("request.resolved"))
            .map(|event| &event.data)
            .collect();
        let [resolved] = resolved[..] else {
            panic!("round {round}: {events:?}")
        };
        let mut answers = answers.into_iter();
        let answer = answers.next().expect("the first");
        if answer.status == StatusCode::NO_CONTENT {
            answered += 1;
            assert_eq!(resolved["resolution"], "answered");
        } else {
            assert_eq!(
                answer.problem(409, "request_resolved")["resolution"],
                resolved["resolution"]
            );
            assert_eq!(resolved["resolution"], "cancelled");
        }
        assert!(answers.all(|answer| [202, 204].contains(&answer.status.as_u16())));
        case.until_received(&format!(r#"{{"jsonrpc":"2.0","id":{round},"result":"#), 1)
            .await;
    }
    figure(&format!(
        "{answered} of {ROUNDS} answers came before the cancel"
    ));
    let log = case.holds().await;
    assert_eq!(all(&log, "prompt.completed").len(), ROUNDS);
}

/// The turn is accepted, and its start is not durable yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_cancelled_before_it_was_sent_is_never_sent() {
    let (case, session) = Case::fake(&[]).await;
    case.turn(&session, "echo warm").await;
    let mut still = Some(Standstill::of(&case));
    let body = json!({ "prompt": "echo never" });
    let prompts = format!("/v1/sessions/{session}/prompts");
    let accepted = case.request(Method::POST, &prompts).json(&body);
    let cancels = [
        format!("{prompts}/p2/cancel"),
        format!("/v1/sessions/{session}/cancel"),
    ];
    let (accepted, cancelled) = tokio::join!(Answer::of(accepted), async {
        // A turn that the actor has not received yet cannot be cancelled.
        loop {
            let mut answer = std::pin::pin!(case.call(Method::POST, &cancels[0]));
            // A cancel without a response was received, and waits for the blocked commit.
            let soon = tokio::time::timeout(Duration::from_secs(4), &mut answer).await;
            let answer = if let Ok(answer) = soon {
                answer
            } else {
                drop(still.take());
                answer.await
            };
            if answer.status != StatusCode::NOT_FOUND {
                return (answer, case.call(Method::POST, &cancels[1]).await);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(
        (accepted.status, &accepted.body["promptId"]),
        (StatusCode::ACCEPTED, &json!("p2"))
    );
    assert_eq!(
        (cancelled.0.status.as_u16(), &cancelled.0.body["promptIds"]),
        (202, &json!(["p2"]))
    );
    assert_eq!(
        cancelled.1.status,
        StatusCode::NO_CONTENT,
        "it is over already"
    );
    assert_eq!(case.turn(&session, "echo then").await["text"], "then");
    assert_eq!(
        (case.received("never"), case.received("session/cancel")),
        (0, 0)
    );
    let log = case.holds().await;
    assert_eq!(agent_text(&log), "warmthen");
    assert_eq!(all(&log, "prompt.completed")[1]["stopReason"], "cancelled");
}
