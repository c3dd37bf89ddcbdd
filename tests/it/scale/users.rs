//! Many users of many tenants at once: each sees only what it owns, and a request costs what it costs for one user.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::task::JoinSet;

use super::{ALONE, LIMITS};
use crate::key_life::{by, key_command};
use crate::support::{Answer, Gateway, Random, Setup, figure, procfs};

const TENANTS: usize = 20;
const USERS: usize = 500;
const AT_ONCE: usize = 50;
/// The requests of a round, and the rounds of a measurement.
const REQUESTS: usize = 20_000;
const ROUNDS: usize = 9;
/// The most that requests of many users may cost, in relation to those of one user.
const MOST: f64 = 1.03;

#[derive(Clone)]
struct Person {
    key: String,
    session: String,
    /// The position in the events of all sessions before the session.
    start: String,
}

fn path(session: &str) -> String {
    format!("/v1/sessions/{session}")
}

/// Creates the keys while no gateway runs, because the command waits for a gateway to read its keys.
fn keys(gateway: &mut Gateway) -> Vec<String> {
    assert_eq!(gateway.stop(), Some(0));
    let key = |number: usize| {
        // The same names in all tenants.
        let name = format!("person-{}", number / TENANTS);
        let tenant = format!("tenant-{}", number % TENANTS);
        key_command(gateway, &["create", &name, "--tenant", &tenant])
    };
    let keys = (0..USERS).map(key).collect();
    gateway.start();
    keys
}

async fn call(gateway: &Gateway, key: &str, path: &str) -> Answer {
    Answer::of(by(gateway, key, Method::GET, path)).await
}

/// Creates a session, and runs a turn with a text of this person.
async fn begin(gateway: &Gateway, key: String) -> Person {
    let start = call(gateway, &key, "/v1/events?after=tail").await;
    let start = start.body["lastEventId"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    let created = by(gateway, &key, Method::POST, "/v1/sessions").json(&json!({ "agent": "fake" }));
    let created = Answer::of(created).await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");
    let session = created.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let turn = by(
        gateway,
        &key,
        Method::POST,
        &format!("{}/prompts", path(&session)),
    );
    let turn = turn.header("prefer", "wait=60");
    let turn = Answer::of(turn.json(&json!({ "prompt": format!("echo {session}") }))).await;
    assert_eq!(turn.body["status"], "completed", "{turn:?}");
    Person {
        key,
        session,
        start,
    }
}

/// Reads everything that a person can list, and the sessions of others by their ids.
async fn check(gateway: &Gateway, person: Person, others: Vec<String>) {
    let list = call(gateway, &person.key, "/v1/sessions?tasks=true").await;
    let sessions = list.body["sessions"].as_array().expect("a list");
    let ids: Vec<_> = sessions
        .iter()
        .map(|session| &session["sessionId"])
        .collect();
    assert_eq!(ids, [&json!(person.session)]);
    let page = call(
        gateway,
        &person.key,
        &format!("/v1/events?after={}&limit=1000", person.start),
    )
    .await;
    let events = page.body["events"].as_array().expect("a page");
    let of: BTreeSet<_> = events
        .iter()
        .map(|event| event["sessionId"].to_string())
        .collect();
    assert_eq!(of, BTreeSet::from([json!(person.session).to_string()]));
    assert!(
        page.body
            .to_string()
            .contains(&format!("echo {}", person.session))
    );
    for other in others {
        for more in ["", "/events", "/transcript", "/files"] {
            let answer = call(gateway, &person.key, &format!("{}{more}", path(&other))).await;
            answer.problem(404, "not_found");
        }
    }
}

/// Reads sessions, round after round through these people. Returns the processor time of the gateway in ticks.
async fn cost(gateway: &Gateway, people: &[Person]) -> f64 {
    let before = procfs::processor_ticks(gateway.pid());
    let mut workers = JoinSet::new();
    for worker in 0..8 {
        let requests: Vec<_> = (worker..REQUESTS)
            .step_by(8)
            .map(|number| {
                let Person { key, session, .. } = &people[number % people.len()];
                by(gateway, key, Method::GET, &path(session))
            })
            .collect();
        workers.spawn(async move {
            for request in requests {
                let answer = request.send().await.expect("an answer");
                assert_eq!(answer.status(), StatusCode::OK);
                answer.bytes().await.expect("a body");
            }
        });
    }
    workers.join_all().await;
    let ticks = procfs::processor_ticks(gateway.pid()) - before;
    f64::from(u32::try_from(ticks).expect("less than a year"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_users_of_twenty_tenants_are_isolated_and_cost_as_one() {
    let _alone = ALONE.lock().await;
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let mut gateway = Setup::fake_with(&[], "pool = { max_size = 64, min_idle = 0 }\n")
        .settings(LIMITS)
        .start();
    let mut keys = keys(&mut gateway).into_iter();
    let gateway = &gateway;
    let mut people = Vec::new();
    while people.len() < USERS {
        let next = keys.by_ref().take(AT_ONCE).map(|key| begin(gateway, key));
        people.extend(futures_util::future::join_all(next).await);
    }
    for group in people.chunks(AT_ONCE) {
        let checks = group.iter().map(|person| {
            let others = (0..4).map(|_| &random.one_of(&people).session);
            let others = others.filter(|other| **other != person.session);
            check(gateway, person.clone(), others.cloned().collect())
        });
        futures_util::future::join_all(checks).await;
    }
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let one = cost(gateway, &people[..1]).await;
        let many = cost(gateway, &people).await;
        ratios.push(many / one);
    }
    let ratio = median(ratios.clone());
    figure(&format!(
        "requests of {USERS} users cost {ratio:.3} of those of one user ({ratios:.3?})"
    ));
    assert!(ratio <= MOST, "{ratio}");
}
