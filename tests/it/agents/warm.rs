//! Idle processes that the pool starts ahead, so that the next session does not wait for an agent's start.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gateway, Setup, eventually, figure};

const PATIENCE: Duration = Duration::from_secs(30);

async fn pool(gateway: &Gateway, agent: &str) -> Value {
    gateway.get(&format!("/v1/agents/{agent}")).await["pool"].clone()
}

/// Waits until the pool's figures are these.
async fn until(gateway: &Gateway, agent: &str, expected: Value) {
    let expected = expected.as_object().expect("figures");
    let what = format!("{expected:?}");
    eventually(&what, PATIENCE, || async {
        let pool = pool(gateway, agent).await;
        expected
            .iter()
            .all(|(name, figure)| pool[name] == *figure)
            .then_some(())
    })
    .await;
}

async fn timed(gateway: &Gateway, agent: &str) -> Duration {
    let began = Instant::now();
    gateway.session(agent).await;
    began.elapsed()
}

fn starts(gateway: &Gateway) -> usize {
    let messages = std::fs::read_to_string(gateway.path("data/homes/default/fake/messages"))
        .unwrap_or_default();
    messages.matches(r#""method":"initialize""#).count()
}

#[tokio::test]
async fn idle_process_hides_a_slow_start_and_the_next_one_starts() {
    let pool = "pool = { max_size = 4, min_idle = 1 }";
    // The test polls for as long as three starts need.
    let limits = "limits.per_key.max_requests_per_minute = 60000";
    let gateway = Setup::fake_with(&["--slow-start", "2500"], pool)
        .settings(limits)
        .start();
    until(
        &gateway,
        "fake",
        json!({ "idle": 1, "starting": 0, "minIdle": 1, "processes": 1 }),
    )
    .await;
    for leased in 1..=2 {
        let before = gateway.agents_alive();
        let session = gateway.session("fake").await;
        let turn = gateway.turn(&session, "pid").await;
        let pid = turn["text"]
            .as_str()
            .and_then(|text| text.strip_prefix("pid=")?.parse().ok());
        assert!(
            before.contains(&pid.expect("a pid")),
            "{pid:?} started for the session, and {before:?} before it"
        );
        until(
            &gateway,
            "fake",
            json!({ "idle": 1, "leased": leased, "processes": leased + 1 }),
        )
        .await;
    }
}

#[tokio::test]
async fn idle_processes_never_exceed_max_size() {
    let gateway = Setup::fake_with(&["--close"], "pool = { max_size = 3, min_idle = 2 }").start();
    until(&gateway, "fake", json!({ "idle": 2, "processes": 2 })).await;
    let mut sessions = Vec::new();
    for (idle, processes) in [(2, 3), (1, 3), (0, 3)] {
        sessions.push(gateway.session("fake").await);
        until(
            &gateway,
            "fake",
            json!({ "idle": idle, "processes": processes }),
        )
        .await;
    }
    // A process that serves a principal again is not an idle process for other principals.
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{}", sessions[0]))
        .await;
    until(&gateway, "fake", json!({ "leased": 2, "processes": 3 })).await;
    gateway.session("fake").await;
    let now = pool(&gateway, "fake").await;
    assert!(
        now["processes"]
            .as_u64()
            .is_some_and(|processes| processes <= 3),
        "{now}"
    );
}

#[tokio::test]
async fn failing_idle_processes_back_off_without_rejecting_sessions() {
    let limits = "testing.min_backoff = \"1500ms\"\ntesting.max_breaker_crashes = 2\n";
    let broken = Setup::fake_with(
        &["--exit-at-start", "3"],
        "pool = { max_size = 2, min_idle = 1 }",
    );
    // Repeated failures are in the log at this level.
    let debug = "telemetry.log_filter = \"debug\"\n";
    let broken = broken.settings(&format!("{limits}{debug}")).start();
    let short = Setup::fake_with(
        &["--short-life", "50", "--log", "messages"],
        "pool = { max_size = 2, min_idle = 1 }",
    );
    let short = short.settings(limits).start();
    // After the first it waits for 1.5 s, then for 3 s.
    let failed = || broken.log().matches("could not start the agent").count();
    eventually("the second try", PATIENCE, || async {
        (failed() > 1).then_some(())
    })
    .await;
    let body = json!({ "agent": "fake" });
    let problem = broken
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(502, "agent_exited");
    assert!(
        problem["stderrTail"]
            .as_str()
            .is_some_and(|tail| tail.contains("cannot start")),
        "{problem}"
    );
    // One that ends by itself is started again as one that fails, not at once.
    eventually("the second start", PATIENCE, || async {
        (starts(&short) > 1).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(starts(&short) <= 3, "{}", starts(&short));
}

#[tokio::test]
async fn agent_without_its_sign_in_has_no_idle_processes() {
    let pool = "pool = { max_size = 4, min_idle = 1, idle_timeout = \"100ms\" }";
    let gateway = Setup::fake_with(&["--auth-required"], pool).start();
    until(&gateway, "fake", json!({ "idle": 1, "minIdle": 1 })).await;
    let body = json!({ "agent": "fake" });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(424, "agent_auth_required");
    until(
        &gateway,
        "fake",
        json!({ "idle": 0, "starting": 0, "processes": 0, "minIdle": 0 }),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(
        self::pool(&gateway, "fake").await["processes"],
        0,
        "after another look too"
    );
    let signed_in = gateway
        .posted("/v1/agents/fake/auth", &[], &json!({ "methodId": "login" }))
        .await;
    assert_eq!(signed_in.status, 204);
    until(
        &gateway,
        "fake",
        json!({ "idle": 1, "minIdle": 1, "starting": 0 }),
    )
    .await;
    gateway.session("fake").await;
}

#[tokio::test]
async fn unused_agent_has_no_idle_processes() {
    let pool =
        "pool = { max_size = 4, min_idle = 2, min_idle_for = \"8s\", idle_timeout = \"100ms\" }";
    let gateway = Setup::fake_with(&[], pool).start();
    until(&gateway, "fake", json!({ "idle": 2, "minIdle": 2 })).await;
    until(
        &gateway,
        "fake",
        json!({ "idle": 0, "processes": 0, "minIdle": 0 }),
    )
    .await;
    gateway.session("fake").await;
    until(&gateway, "fake", json!({ "idle": 2 })).await;
}

#[tokio::test]
async fn sessions_of_the_demo_agent_are_made_at_once_one_after_the_other() {
    let demo = "[agents.demo]\nbuiltin = \"demo\"\npool = { max_size = 32, min_idle = 4 }\n";
    let gateway = Setup::default().table(demo).start();
    until(&gateway, "demo", json!({ "idle": 4 })).await;
    let mut took = Vec::new();
    for _ in 0..20 {
        took.push(timed(&gateway, "demo").await);
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    figure(&format!(
        "20 sessions of the demo agent, 4 idle processes: median {median:?}, longest {:?}",
        took[19]
    ));
    assert!(median < Duration::from_millis(700), "{took:?}");
}
