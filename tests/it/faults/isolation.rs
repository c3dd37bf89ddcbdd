//! Crashes of the agent in one session do not affect other sessions.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Answer, Gateway, Setup, eventually};

const LIMITS: &str = "limits.per_key.max_requests_per_minute = 60000\nlimits.per_key.max_prompts_per_minute = 60000\n";

async fn turn(gateway: &Gateway, session: &str, text: &str) -> Answer {
    let path = format!("/v1/sessions/{session}/prompts");
    gateway
        .posted(&path, &[("Prefer", "wait=60")], &json!({ "prompt": text }))
        .await
}

#[tokio::test]
async fn crashing_prompts_of_one_session_refuse_no_other_session() {
    let gateway = Setup::fake(&["--state", "state", "--close"])
        .settings(LIMITS)
        .start();
    let mut sessions = Vec::new();
    for _ in 0..32 {
        sessions.push(gateway.session("fake").await);
    }
    let crashing = sessions.remove(0);
    let mut outcomes = Vec::new();
    for _ in 0..6 {
        outcomes.push(turn(&gateway, &crashing, "crash chunks=0").await);
    }
    let others = sessions
        .iter()
        .map(|session| turn(&gateway, session, "hello"));
    for answer in join_all(others).await {
        assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
        assert_eq!(answer.body["text"], "hello", "{answer:?}");
    }
    let sixth = outcomes.pop().expect("the sixth");
    for crashed in outcomes {
        assert_eq!(crashed.body["error"]["code"], "agent_exited", "{crashed:?}");
    }
    let wait: u64 = sixth
        .header("retry-after")
        .expect("Retry-After")
        .parse()
        .expect("seconds");
    assert!((1..=16).contains(&wait), "{wait}");
    let problem = sixth.problem(503, "crash_loop");
    assert_eq!(
        (&problem["retryAfterSeconds"], &problem["retryable"]),
        (&json!(wait), &json!(true))
    );
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("this session")),
        "{problem}"
    );
}

#[tokio::test]
async fn session_accepts_prompts_again_after_its_back_off() {
    let limits = format!(
        "{LIMITS}testing.min_backoff = \"2s\"\ntesting.max_backoff = \"5s\"\ntesting.max_breaker_crashes = 2\ntesting.session_idle_timeout = \"100ms\"\n"
    );
    let gateway = Setup::fake(&["--state", "state"]).settings(&limits).start();
    let session = gateway.session("fake").await;
    turn(&gateway, &session, "crash chunks=0").await;
    let before = Instant::now();
    turn(&gateway, &session, "crash chunks=0").await;
    // The second back-off lasts four seconds.
    turn(&gateway, &session, "hello")
        .await
        .problem(503, "crash_loop");
    let path = format!("/v1/sessions/{session}/prompts");
    let prompt: Value = eventually("a prompt is accepted", Duration::from_mins(1), || async {
        let answer = gateway
            .posted(
                &path,
                &[("Prefer", "wait=60")],
                &json!({ "prompt": "hello" }),
            )
            .await;
        (answer.status.as_u16() == 200).then_some(answer.body)
    })
    .await;
    assert!(
        before.elapsed() > Duration::from_secs(3),
        "the back-off was over too early"
    );
    assert_eq!(prompt["text"], "hello");
}
