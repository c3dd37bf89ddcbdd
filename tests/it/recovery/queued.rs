//! Prompts that were accepted and had not reached the agent: a restart runs each of them once, in their order.

use std::time::Duration;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::LIMITS;
use crate::key_life::{key_command, user_key};
use crate::support::gateway::KEY;
use crate::support::log::{all, one};
use crate::support::{Answer, Events, Follower, Gateway, History, Setup, eventually};

/// A configuration whose agent stores sessions and writes a journal into `journals`.
pub(super) fn setup(journals: &tempfile::TempDir, more: &str, limits: &str) -> Setup {
    let journals = journals.path().to_str().expect("UTF-8");
    let more = if more.is_empty() {
        "pool = { max_size = 8, min_idle = 0 }"
    } else {
        more
    };
    Setup::fake_with(&["--resume-any", "--journal", journals], more).settings(&format!(
        "{LIMITS}testing.drain_cancel_timeout = \"10s\"\n{limits}"
    ))
}

pub(super) fn journals() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A session whose first turn hangs in the agent.
pub(super) async fn hanging(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "stream n=1 size=8; hang").await;
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    session
}

pub(super) async fn queue(
    gateway: &Gateway,
    session: &str,
    text: &str,
    key: Option<&str>,
) -> Answer {
    let body = json!({ "prompt": text, "queue": true });
    let headers: Vec<(&str, &str)> = key
        .map(|key| ("Idempotency-Key", key))
        .into_iter()
        .collect();
    gateway
        .posted(&format!("/v1/sessions/{session}/prompts"), &headers, &body)
        .await
}

/// Waits for the end of a prompt.
pub(super) async fn ended(gateway: &Gateway, session: &str, prompt: &str) -> Value {
    let path = format!("/v1/sessions/{session}/prompts/{prompt}");
    let answer = Answer::of(
        gateway
            .request(Method::GET, &path)
            .header("Prefer", "wait=60"),
    )
    .await;
    assert!(
        answer.body["endedAt"].is_string(),
        "{answer:?}\n{}",
        gateway.log()
    );
    answer.body
}

/// Checks the whole history of sessions without a running turn.
pub(super) async fn judge(gateway: &Gateway, sessions: &[&str], journals: &tempfile::TempDir) {
    let followers = sessions
        .iter()
        .map(|session| Follower::start(gateway, session))
        .collect();
    History::of(gateway, followers)
        .await
        .with_agents(journals.path())
        .assert_holds();
}

/// Changes the configuration of a gateway that does not run.
pub(super) fn reconfigure(gateway: &Gateway, changes: &[(&str, &str)]) {
    let path = gateway.path("config.toml");
    let mut config = std::fs::read_to_string(&path).expect("the folder is ours");
    for (from, to) in changes {
        assert!(config.contains(from), "{config}");
        config = config.replace(from, to);
    }
    std::fs::write(&path, config).expect("the folder is ours");
}

pub(super) fn of<'a>(events: &'a [Value], kind: &str, prompt: &str) -> Vec<&'a Value> {
    all(events, kind)
        .into_iter()
        .filter(|event| event["promptId"] == prompt)
        .collect()
}

/// Queues `echo a` and `echo b` behind a turn that hangs, ends the gateway, and sees both run after its start.
async fn two_run_after(end: impl AsyncFnOnce(&mut Gateway)) -> Vec<Value> {
    let journals = journals();
    let mut gateway = setup(&journals, "", "timeouts.drain_timeout = \"300ms\"").start();
    let session = hanging(&gateway).await;
    for text in ["echo a", "echo b"] {
        assert_eq!(
            queue(&gateway, &session, text, None).await.status.as_u16(),
            202
        );
    }
    end(&mut gateway).await;
    gateway.start();
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "a");
    assert_eq!(ended(&gateway, &session, "p3").await["text"], "b");
    let events = gateway.lawful(&session).await;
    let started: Vec<&Value> = all(&events, "prompt.started")
        .iter()
        .map(|e| &e["promptId"])
        .collect();
    assert_eq!(
        started,
        ["p1", "p2", "p3"],
        "each of them once, in their order"
    );
    assert_eq!(all(&events, "prompt.queued").len(), 2);
    judge(&gateway, &[&session], &journals).await;
    events
}

#[tokio::test]
async fn queued_prompts_run_in_order_after_a_kill() {
    let events = two_run_after(async |gateway| gateway.kill()).await;
    assert_eq!(
        one(&events, "prompt.failed")["problem"]["code"],
        "interrupted",
        "the turn that ran"
    );
}

#[tokio::test]
async fn queued_prompts_run_in_order_after_a_drain() {
    let stop =
        async |gateway: &mut Gateway| assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    let events = two_run_after(stop).await;
    assert_eq!(all(&events, "prompt.failed").len(), 0);
    assert_eq!(
        of(&events, "prompt.completed", "p1")[0]["stopReason"],
        "cancelled"
    );
}

/// A session whose first prompt waits for the only process, which another session uses.
async fn waiting_for_a_process(
    journals: &tempfile::TempDir,
    limits: &str,
) -> (Gateway, String, String) {
    let gateway = setup(journals, "pool = { max_size = 1, min_idle = 0 }", limits).start();
    let waiting = gateway.session("fake").await;
    let holder = hanging(&gateway).await;
    let answer = queue(&gateway, &waiting, "echo first", Some("first")).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["status"]),
        (202, &json!("queued"))
    );
    assert_eq!(
        queue(&gateway, &waiting, "echo second", None).await.body["status"],
        "queued"
    );
    (gateway, holder, waiting)
}

#[tokio::test]
async fn prompt_that_waits_for_a_process_runs_after_a_drain() {
    let journals = journals();
    let (mut gateway, holder, session) =
        waiting_for_a_process(&journals, "timeouts.drain_timeout = \"300ms\"").await;
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    gateway.start();
    assert_eq!(ended(&gateway, &session, "p1").await["text"], "first");
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "second");
    assert_eq!(
        ended(&gateway, &holder, "p1").await["stopReason"],
        "cancelled"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(
        of(&events, "prompt.started", "p1").len(),
        1,
        "no second start"
    );
    assert_eq!(
        of(&events, "prompt.queued", "p1")[0]["prompt"][0]["text"],
        "echo first"
    );
    let again = queue(&gateway, &session, "echo first", Some("first")).await;
    assert_eq!(
        (&again.body["promptId"], &again.body["text"]),
        (&json!("p1"), &json!("first")),
        "{again:?}"
    );
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    judge(&gateway, &[&session, &holder], &journals).await;
}

#[tokio::test]
async fn prompt_that_waits_for_a_process_survives_several_drains() {
    let journals = journals();
    let (mut gateway, holder, session) =
        waiting_for_a_process(&journals, "timeouts.drain_timeout = \"300ms\"").await;
    for _ in 0..3 {
        assert_eq!(
            queue(&gateway, &holder, "stream n=1 size=8; hang", None)
                .await
                .status
                .as_u16(),
            202
        );
    }
    for _ in 0..3 {
        assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
        gateway.start();
    }
    gateway
        .call(Method::POST, &format!("/v1/sessions/{holder}/cancel"))
        .await;
    assert_eq!(ended(&gateway, &session, "p1").await["text"], "first");
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "second");
    gateway
        .call(Method::POST, &format!("/v1/sessions/{holder}/cancel"))
        .await;
    for prompt in ["p1", "p2", "p3", "p4"] {
        assert_eq!(
            ended(&gateway, &holder, prompt).await["stopReason"],
            "cancelled"
        );
    }
    judge(&gateway, &[&session, &holder], &journals).await;
}

#[tokio::test]
async fn prompt_that_waits_for_a_process_runs_after_a_kill() {
    let journals = journals();
    let (mut gateway, holder, session) = waiting_for_a_process(&journals, "").await;
    let before = gateway.all_events(&session).await;
    assert_eq!(
        all(&before, "prompt.started").len(),
        0,
        "no agent can have seen it"
    );
    gateway.kill();
    gateway.start();
    assert_eq!(ended(&gateway, &session, "p1").await["text"], "first");
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "second");
    assert_eq!(
        ended(&gateway, &holder, "p1").await["error"]["code"],
        "interrupted",
        "an agent saw this one"
    );
    let events = gateway.lawful(&session).await;
    let started: Vec<&Value> = all(&events, "prompt.started")
        .iter()
        .map(|event| &event["promptId"])
        .collect();
    assert_eq!(started, ["p1", "p2"]);
    judge(&gateway, &[&session, &holder], &journals).await;
}

#[tokio::test]
async fn prompt_that_waits_for_a_process_can_be_changed_and_moved() {
    let journals = journals();
    let (gateway, holder, session) = waiting_for_a_process(&journals, "").await;
    for (prompt, body) in [
        ("p1", json!({ "prompt": "echo changed" })),
        ("p2", json!({ "before": "p1" })),
    ] {
        let path = format!("{}/v1/sessions/{session}/prompts/{prompt}", gateway.url);
        let answer = Answer::of(gateway.http.patch(&path).bearer_auth(KEY).json(&body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(
        gateway.get_session(&session).await["queued"],
        json!(["p2", "p1"])
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{holder}/cancel"))
        .await;
    assert_eq!(ended(&gateway, &session, "p1").await["text"], "changed");
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "second");
    judge(&gateway, &[&session, &holder], &journals).await;
}

#[tokio::test]
async fn a_retry_with_the_same_key_after_a_restart_returns_the_prompt_that_runs() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "timeouts.drain_timeout = \"300ms\"").start();
    let session = hanging(&gateway).await;
    queue(&gateway, &session, "echo once", Some("k")).await;
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    gateway.start();
    let again = queue(&gateway, &session, "echo once", Some("k")).await;
    assert_eq!(again.body["promptId"], "p2", "{again:?}");
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "once");
    let finished = queue(&gateway, &session, "echo once", Some("k")).await;
    assert_eq!(
        (finished.status.as_u16(), &finished.body["text"]),
        (200, &json!("once")),
        "{finished:?}"
    );
    assert_eq!(gateway.get_session(&session).await["queued"], json!([]));
    judge(&gateway, &[&session], &journals).await;
}

#[tokio::test]
async fn queued_wait_returns_202_at_a_drain_and_resumes_by_id() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "timeouts.drain_timeout = \"1s\"").start();
    let session = hanging(&gateway).await;
    let path = format!("/v1/sessions/{session}/prompts");
    let request = gateway
        .request(Method::POST, &path)
        .header("Prefer", "wait=60");
    let request = request.json(&json!({ "prompt": "echo a", "queue": true }));
    let mut waiting = JoinSet::new();
    waiting.spawn(Answer::of(request));
    eventually("it is in the queue", Duration::from_secs(10), || async {
        (gateway.get_session(&session).await["queued"] == json!(["p2"])).then_some(())
    })
    .await;
    let request = gateway
        .request(Method::POST, &path)
        .header("Accept", "text/event-stream");
    let request = request.json(&json!({ "prompt": "echo b", "queue": true }));
    let mut streaming = JoinSet::new();
    streaming.spawn(async move {
        Events::new(request.send().await.expect("it answers"))
            .rest()
            .await
    });
    eventually("both are in the queue", Duration::from_secs(10), || async {
        (gateway.get_session(&session).await["queued"] == json!(["p2", "p3"])).then_some(())
    })
    .await;
    gateway.signal(Signal::TERM);
    let answer = waiting
        .join_next()
        .await
        .expect("there is one")
        .expect("no panic");
    assert_eq!(
        (answer.status.as_u16(), &answer.body["status"]),
        (202, &json!("queued")),
        "{answer:?}"
    );
    let frames = streaming
        .join_next()
        .await
        .expect("there is one")
        .expect("no panic");
    assert!(
        frames.last().is_some_and(|frame| frame.of("shutdown")),
        "{frames:?}"
    );
    assert_eq!(
        gateway.ended(Duration::from_secs(30)),
        Some(0),
        "{}",
        gateway.log()
    );
    gateway.start();
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "a");
    assert_eq!(ended(&gateway, &session, "p3").await["text"], "b");
}

#[tokio::test]
async fn restored_prompt_of_a_user_whose_keys_were_revoked_fails() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "").start();
    gateway.key = user_key(&gateway, "ci", "read,prompt").await;
    let revoked = gateway.key.clone();
    let session = hanging(&gateway).await;
    queue(&gateway, &session, "echo never", None).await;
    gateway.kill();
    key_command(&gateway, &["revoke", "ci"]);
    let reader = ["create", "reader", "--user", "ci", "--scopes", "read"];
    gateway.key = key_command(&gateway, &reader);
    gateway.start();
    let failed = ended(&gateway, &session, "p2").await;
    assert_eq!(failed["error"]["code"], "key_revoked", "{failed}");
    let events = gateway.all_events(&session).await;
    assert_eq!(of(&events, "prompt.started", "p2").len(), 0);
    assert!(!gateway.log().contains(KEY) && !gateway.log().contains(&revoked));
}

#[tokio::test]
async fn a_restored_prompt_past_queued_prompt_max_age_fails() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "timeouts.queued_prompt_max_age = \"200ms\"").start();
    let session = hanging(&gateway).await;
    queue(&gateway, &session, "echo old", None).await;
    gateway.kill();
    // The age of the prompt is the condition: it is measured by the clock.
    tokio::time::sleep(Duration::from_millis(300)).await;
    gateway.start();
    let failed = ended(&gateway, &session, "p2").await;
    assert_eq!(failed["error"]["code"], "prompt_expired", "{failed}");
    assert!(
        failed["error"]["detail"]
            .as_str()
            .is_some_and(|text| text.contains("queued_prompt_max_age"))
    );
    assert_eq!(gateway.turn(&session, "echo new").await["text"], "new");
}

#[tokio::test]
async fn restored_prompts_can_be_cancelled() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "").start();
    let session = hanging(&gateway).await;
    for text in ["stream n=1 size=8; hang", "echo never", "echo then"] {
        queue(&gateway, &session, text, None).await;
    }
    gateway.kill();
    gateway.start();
    let path = format!("/v1/sessions/{session}/prompts");
    let cancelled = gateway
        .call(Method::POST, &format!("{path}/p3/cancel"))
        .await;
    assert_eq!(cancelled.body["promptIds"], json!(["p3"]), "{cancelled:?}");
    assert_eq!(
        ended(&gateway, &session, "p3").await["stopReason"],
        "cancelled"
    );
    gateway
        .call(Method::POST, &format!("{path}/p2/cancel"))
        .await;
    assert_eq!(
        ended(&gateway, &session, "p2").await["stopReason"],
        "cancelled"
    );
    assert_eq!(ended(&gateway, &session, "p4").await["text"], "then");
    let events = gateway.lawful(&session).await;
    assert_eq!(of(&events, "prompt.started", "p3").len(), 0);
    judge(&gateway, &[&session], &journals).await;
}

#[tokio::test]
async fn restored_prompts_wait_for_the_limits_of_the_pool_and_of_their_key() {
    let journals = journals();
    let pool = "pool = { max_size = 6, min_idle = 0 }";
    let mut gateway = setup(&journals, pool, "testing.max_queue_places = 1\n").start();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        let session = hanging(&gateway).await;
        queue(&gateway, &session, "echo on", None).await;
        sessions.push(session);
    }
    gateway.kill();
    reconfigure(
        &gateway,
        &[
            ("max_size = 6", "max_size = 1"),
            (
                "limits.per_key.max_live_sessions = 200",
                "limits.per_key.max_live_sessions = 2",
            ),
        ],
    );
    gateway.start();
    for session in &sessions {
        assert_eq!(ended(&gateway, session, "p2").await["text"], "on");
    }
    let sessions: Vec<&str> = sessions.iter().map(String::as_str).collect();
    judge(&gateway, &sessions, &journals).await;
}

#[tokio::test]
async fn a_new_prompt_does_not_overtake_restored_ones() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "").start();
    let sessions = [hanging(&gateway).await, hanging(&gateway).await];
    for session in &sessions {
        queue(&gateway, session, "stream n=1 size=8; hang", None).await;
    }
    gateway.kill();
    reconfigure(
        &gateway,
        &[(
            "limits.per_key.max_live_sessions = 200",
            "limits.per_key.max_live_sessions = 1",
        )],
    );
    gateway.start();
    // One of the two runs and hangs; the prompt of the other waits for its key's limit.
    let behind = eventually("one of them runs", Duration::from_secs(20), || async {
        for (at, session) in sessions.iter().enumerate() {
            let events = gateway.all_events(session).await;
            if events
                .iter()
                .any(|e| e["type"] == "session.update" && e["promptId"] == "p2")
            {
                return Some(&sessions[1 - at]);
            }
        }
        None
    })
    .await;
    let path = format!("/v1/sessions/{behind}/prompts");
    let refused = gateway
        .posted(&path, &[], &json!({ "prompt": "echo rude" }))
        .await;
    assert_eq!(refused.problem(409, "turn_running")["promptId"], "p2");
    let answer = queue(&gateway, behind, "echo polite", None).await;
    assert_eq!(
        (&answer.body["promptId"], &answer.body["status"]),
        (&json!("p3"), &json!("queued"))
    );
}

#[tokio::test]
async fn a_restored_prompt_of_an_agent_that_was_removed_fails() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "").start();
    let session = hanging(&gateway).await;
    queue(&gateway, &session, "echo never", None).await;
    gateway.kill();
    reconfigure(&gateway, &[("[agents.fake]", "[agents.other]")]);
    gateway.start();
    assert_eq!(
        ended(&gateway, &session, "p2").await["error"]["code"],
        "agent_start_failed"
    );
}

#[tokio::test]
async fn restored_prompt_keeps_attachments_of_deleted_files() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "").start();
    let session = hanging(&gateway).await;
    let cwd = gateway.get_session(&session).await["cwd"]
        .as_str()
        .expect("a path")
        .to_owned();
    let file = std::path::Path::new(&cwd).join("note.txt");
    std::fs::write(&file, "a note that was attached").expect("the folder is there");
    let body =
        json!({ "prompt": "echo seen", "queue": true, "attachments": [{ "path": "note.txt" }] });
    let answer = gateway
        .posted(&format!("/v1/sessions/{session}/prompts"), &[], &body)
        .await;
    assert_eq!(answer.status.as_u16(), 202, "{answer:?}");
    std::fs::remove_file(&file).expect("it was there");
    gateway.kill();
    gateway.start();
    ended(&gateway, &session, "p2").await;
    let events = gateway.lawful(&session).await;
    let blocks = &of(&events, "prompt.queued", "p2")[0]["prompt"];
    let followers = vec![Follower::start(&gateway, &session)];
    let history = History::of(&gateway, followers)
        .await
        .with_agents(journals.path());
    let sent = history.journals.iter().flat_map(|journal| &journal.lines);
    let sent: Vec<String> = sent
        .map(|line| format!("{line:?}"))
        .filter(|line| line.contains("note.txt"))
        .collect();
    assert_eq!(sent.len(), 1, "it was sent once: {sent:#?}, {blocks}");
    history.assert_holds();
}

#[tokio::test]
async fn prompts_of_a_session_that_was_deleted_do_not_run_after_a_restart() {
    let journals = journals();
    let mut gateway = setup(&journals, "", "").start();
    let deleted = hanging(&gateway).await;
    let closed = hanging(&gateway).await;
    for session in [&deleted, &closed] {
        queue(&gateway, session, "echo never", None).await;
    }
    assert_eq!(
        gateway
            .call(Method::DELETE, &format!("/v1/sessions/{deleted}"))
            .await
            .status
            .as_u16(),
        204
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{closed}/close"))
        .await;
    gateway.kill();
    gateway.start();
    assert_eq!(
        gateway
            .call(Method::GET, &format!("/v1/sessions/{deleted}"))
            .await
            .status
            .as_u16(),
        404
    );
    assert_eq!(
        ended(&gateway, &closed, "p2").await["stopReason"],
        "cancelled"
    );
    assert_eq!(
        of(&gateway.all_events(&closed).await, "prompt.started", "p2").len(),
        0
    );
}
