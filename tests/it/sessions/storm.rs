//! Many clients at once, an agent that fails in every way, and a log that keeps its rules all the same.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::log::all;
use crate::support::random::rounds;
use crate::support::{Answer, Gateway, Setup, eventually};

const LIMITS: &str = "limits.per_key.max_prompts_per_minute = 100000\nlimits.per_key.max_requests_per_minute = 1000000\ntesting.min_backoff = \"1ms\"\n\
                      testing.max_backoff = \"5ms\"\ntesting.max_breaker_crashes = 100000\ntesting.cancel_timeout = \"100ms\"\ntesting.cancel_total_timeout = \"300ms\"\n\
                      testing.stop_stdin_timeout = \"50ms\"\ntesting.session_close_timeout = \"50ms\"\ntesting.stop_term_timeout = \"50ms\"\ntesting.session_idle_timeout = \"10ms\"\ntimeouts.queue_timeout = \"1s\"";
const PROMPTS: [&str; 14] = [
    "hello",
    "stream n=50 size=16",
    "slow chunks=3 ms=10",
    "crash chunks=1",
    "crash signal=KILL",
    "permission",
    "permissions n=2",
    "hang",
    "hang cancel=no",
    "late n=2 ms=5",
    "cancel-notify ms=5",
    "garbage n=3",
    "error",
    "unknown-response",
];
const STORM: Duration = Duration::from_secs(2);
/// Longer than any action with these limits.
const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers that look random, and are the same each time (Numerical Recipes' generator).
struct Dice(u32);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) as usize % sides
    }
}

/// One thing that a client may do.
async fn act(gateway: &Gateway, session: &str, dice: &mut Dice) -> Answer {
    let path = |what: &str| format!("/v1/sessions/{session}{what}");
    let put =
        |what: &str, body: Value| Answer::of(gateway.request(Method::PUT, &path(what)).json(&body));
    match dice.roll(16) {
        0..=5 => {
            let body =
                json!({ "prompt": PROMPTS[dice.roll(PROMPTS.len())], "queue": dice.roll(2) == 0 });
            gateway.posted(&path("/prompts"), &[], &body).await
        }
        6 | 7 => gateway.call(Method::POST, &path("/cancel")).await,
        8 => {
            let prompt = 1 + dice.roll(50);
            gateway
                .call(Method::POST, &path(&format!("/prompts/p{prompt}/cancel")))
                .await
        }
        9 | 10 => {
            let open = gateway.call(Method::GET, &path("/requests")).await;
            let Some(request) = open.body["requests"][0]["requestId"].as_str() else {
                return open;
            };
            let body = json!({ "optionId": (["allow", "reject"][dice.roll(2)]) });
            gateway
                .posted(&path(&format!("/permissions/{request}")), &[], &body)
                .await
        }
        11 => gateway.call(Method::POST, &path("/close")).await,
        12 => gateway.call(Method::POST, &path("/attach")).await,
        13 => {
            put(
                "/mode",
                json!({ "modeId": (["ask", "code"][dice.roll(2)]) }),
            )
            .await
        }
        14 => {
            let body = json!({ "title": format!("title {}", dice.roll(100)) });
            Answer::of(gateway.request(Method::PATCH, &path("")).json(&body)).await
        }
        _ => gateway.call(Method::GET, &path("/transcript")).await,
    }
}

/// Runs actions one after another until the end of the storm, and some in any case. Returns their number.
async fn client(gateway: &Gateway, sessions: &[String], seed: u32) -> usize {
    let storm = STORM * u32::try_from(rounds(1)).expect("few rounds");
    let mut dice = Dice(seed);
    let mut count = 0;
    let began = Instant::now();
    while began.elapsed() < storm || count < 20 {
        let session = &sessions[dice.roll(sessions.len())];
        let answer = tokio::time::timeout(PATIENCE, act(gateway, session, &mut dice)).await;
        let answer = answer.unwrap_or_else(|_| panic!("never an answer: {}", gateway.log()));
        let code = answer.body["code"].as_str();
        let expected = answer.status.is_success()
            || matches!(
                (answer.status.as_u16(), code),
                (404, Some("not_found"))
                    | (409, Some("turn_running" | "session_closed" | "request_resolved"))
                    | (429, Some("queue_full"))
                    | (502, Some("agent_exited"))
                    | (503, Some("pool_full"))
                    // Turns without a cancel may use all processes.
                    | (504, Some("agent_timeout"))
            );
        assert!(expected, "{answer:?}\n{}", gateway.log());
        count += 1;
    }
    count
}

/// Ends the running turns and returns the log.
async fn calmed(gateway: &Gateway, session: &str) -> Vec<Value> {
    eventually("the session is idle", Duration::from_secs(30), || async {
        gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
            .await;
        let shown = gateway.get_session(session).await;
        let still = ["idle", "closed"]
            .iter()
            .any(|state| shown["state"] == *state);
        (still && shown["promptId"].is_null() && shown["queued"] == json!([])).then_some(())
    })
    .await;
    gateway.lawful(session).await
}

#[tokio::test]
async fn concurrent_clients_keep_one_end_per_turn_and_a_valid_log() {
    for resumes in [
        &["--resume", "--close", "--state", "state"][..],
        &["--no-load"],
    ] {
        let setup = Setup::fake_with(
            resumes,
            "pool = { max_size = 2, min_idle = 0, idle_timeout = \"30ms\", no_load_idle_timeout = \"30ms\", no_load_reclaim_timeout = \"0s\" }",
        );
        let mut gateway = setup.settings(LIMITS).start();
        let mut sessions = Vec::new();
        for _ in 0..3 {
            sessions.push(gateway.session("fake").await);
        }
        let (a, b, c, d) = tokio::join!(
            client(&gateway, &sessions, 1),
            client(&gateway, &sessions, 2),
            client(&gateway, &sessions, 3),
            client(&gateway, &sessions, 4),
        );
        assert!(
            a + b + c + d > 50,
            "only {} things were done",
            a + b + c + d
        );
        let mut logs = Vec::new();
        let mut started = 0;
        for session in &sessions {
            let events = calmed(&gateway, session).await;
            started += all(&events, "prompt.started").len();
            let opened = all(&events, "request.created").len();
            assert_eq!(
                all(&events, "request.resolved").len(),
                opened,
                "each request is resolved once"
            );
            logs.push(events);
        }
        assert!(started > 5, "only {started} turns were begun");
        assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
        gateway.kill();
        // No deadline from here on: with few processes, a turn may wait for a released one.
        let config = gateway.path("config.toml");
        let hurried = std::fs::read_to_string(&config).expect("the folder is ours");
        let calm = hurried.replace(
            "timeouts.queue_timeout = \"1s\"",
            "timeouts.queue_timeout = \"1m\"",
        );
        std::fs::write(&config, calm).expect("the folder is ours");
        gateway.start();
        for (session, before) in sessions.iter().zip(&logs) {
            let after = gateway.lawful(session).await;
            assert_eq!(after[..before.len()], before[..], "committed events stay");
            gateway
                .call(Method::POST, &format!("/v1/sessions/{session}/attach"))
                .await;
            assert_eq!(gateway.turn(session, "hello").await["text"], "hello");
            let deleted = gateway
                .call(Method::DELETE, &format!("/v1/sessions/{session}"))
                .await;
            assert_eq!(deleted.status, StatusCode::NO_CONTENT);
        }
        assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    }
}
