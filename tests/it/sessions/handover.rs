//! A session passes from one process to another without losing its conversation.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::log::{agent_text, all, kinds, one};
use crate::support::{Gateway, Setup, eventually, is_alive};

/// An agent like Codex: it keeps a session locked until its process ends, also after `session/close`.
const LOCKING: &[&str] = &[
    "--lock", "--resume", "--close", "--fork", "--list", "--state", "state",
];
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 100000\nlimits.per_key.max_prompts_per_minute = 100000\nlimits.per_key.max_live_sessions = 200\ntesting.min_backoff = \"10ms\"\ntesting.max_breaker_crashes = 1000";

fn locking(pool: &str, limits: &str) -> Gateway {
    Setup::fake_with(LOCKING, &format!("pool = {{ {pool} }}"))
        .settings(&format!("{LIMITS}\n{limits}"))
        .start()
}

async fn remembering(gateway: &Gateway, count: usize) -> Vec<String> {
    let mut sessions = Vec::new();
    for number in 0..count {
        let session = gateway.session("fake").await;
        let turn = gateway
            .turn(&session, &format!("remember FRUIT{number}"))
            .await;
        assert_eq!(turn["status"], "completed", "{turn}");
        sessions.push(session);
    }
    sessions
}

async fn recalled(gateway: &Gateway, session: &str) -> Value {
    let turn = gateway.turn(session, "recall").await;
    assert_eq!(turn["status"], "completed", "{turn}\n{}", gateway.log());
    turn["text"].clone()
}

async fn assert_all_recalled(gateway: &Gateway, sessions: &[String], when: &str) {
    let turns = join_all(sessions.iter().map(|session| recalled(gateway, session))).await;
    for (number, text) in turns.iter().enumerate() {
        assert_eq!(*text, format!("FRUIT{number}"), "{when}");
    }
}

async fn assert_none_lost(gateway: &Gateway, sessions: &[String]) {
    for session in sessions {
        let events = gateway.lawful(session).await;
        for attached in all(&events, "session.attached") {
            assert_eq!(attached["context"], "kept", "{attached}");
        }
    }
}

fn kill_agents(gateway: &Gateway) -> usize {
    let agents = gateway.agents_alive();
    for pid in &agents {
        let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
        // It may have ended by itself.
        kill_process(pid, Signal::KILL).unwrap_or_default();
    }
    agents.len()
}

/// A turn that begins before the gateway has noticed the end of its process would fail.
async fn all_detached(gateway: &Gateway) {
    eventually(
        "no session has a process",
        Duration::from_secs(10),
        || async {
            let sessions = gateway.get("/v1/sessions").await;
            let mut sessions = sessions["sessions"].as_array().expect("a list").iter();
            sessions
                .all(|session| session["attached"] == false)
                .then_some(())
        },
    )
    .await;
}

async fn fork(gateway: &Gateway, session: &str) -> String {
    let forked = gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/fork"))
        .await;
    assert_eq!(
        forked.status,
        StatusCode::CREATED,
        "{forked:?}\n{}",
        gateway.log()
    );
    forked.body["sessionId"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn twenty_conversations_on_four_processes_keep_their_context() {
    let mut gateway = locking("max_size = 4, min_idle = 1", "");
    let sessions = remembering(&gateway, 20).await;
    assert_all_recalled(&gateway, &sessions, "after hand-over").await;
    assert!(kill_agents(&gateway) > 0);
    all_detached(&gateway).await;
    assert_all_recalled(&gateway, &sessions, "after the agents were killed").await;
    gateway.kill();
    gateway.start();
    assert_all_recalled(&gateway, &sessions, "after the gateway was killed").await;
    assert_none_lost(&gateway, &sessions).await;
    let agents = gateway.get("/v1/agents/fake").await;
    assert!(
        agents["pool"]["processes"]
            .as_u64()
            .is_some_and(|live| live <= 4),
        "{agents}"
    );
}

#[tokio::test]
async fn a_process_that_keeps_sessions_locked_is_stopped_and_not_reused() {
    let gateway = locking("max_size = 2, min_idle = 0", "");
    let sessions = remembering(&gateway, 3).await;
    // The first one lost its process to the third, and gets that of the second.
    assert_eq!(recalled(&gateway, &sessions[0]).await, "FRUIT0");
    assert_all_recalled(&gateway, &sessions, "after hand-over").await;
    let agents = gateway.get("/v1/agents/fake").await;
    assert_eq!(agents["pool"]["keepsSessionsLocked"], true, "{agents}");
    let first = gateway.turn(&sessions[0], "pid").await["text"].clone();
    let mut pids = vec![first];
    for session in &sessions[1..] {
        pids.push(gateway.turn(session, "pid").await["text"].clone());
    }
    pids.sort_by_key(Value::to_string);
    pids.dedup();
    assert_eq!(
        pids.len(),
        3,
        "each session has a process of its own: {pids:?}"
    );
    let warnings = gateway.log().matches("keeps a session locked").count();
    assert_eq!(warnings, 1, "{}", gateway.log());
}

#[tokio::test]
async fn an_idle_timeout_keeps_the_context_of_an_agent_that_locks_sessions() {
    let gateway = locking("max_size = 4, min_idle = 0, idle_timeout = \"100ms\"", "");
    let sessions = remembering(&gateway, 3).await;
    for session in &sessions {
        gateway
            .log_until(session, |event| event["type"] == "session.detached")
            .await;
    }
    // Another session uses the processes that closed their sessions.
    let others = remembering(&gateway, 4).await;
    assert_all_recalled(&gateway, &sessions, "after the idle timeout").await;
    assert_none_lost(&gateway, &sessions).await;
    assert_none_lost(&gateway, &others).await;
}

#[tokio::test]
async fn a_fork_of_an_agent_that_locks_sessions_keeps_the_context() {
    for max in [1, 2, 4] {
        let gateway = locking(&format!("max_size = {max}, min_idle = 0"), "");
        let parent = remembering(&gateway, 1).await.remove(0);
        let child = fork(&gateway, &parent).await;
        assert_eq!(recalled(&gateway, &child).await, "FRUIT0");
        gateway.turn(&child, "remember PEAR").await;
        let grandchild = fork(&gateway, &child).await;
        assert_eq!(recalled(&gateway, &parent).await, "FRUIT0");
        assert_eq!(recalled(&gateway, &child).await, "FRUIT0,PEAR");
        assert_eq!(recalled(&gateway, &grandchild).await, "FRUIT0,PEAR");
        assert_none_lost(&gateway, &[parent, child, grandchild]).await;
    }
}

#[tokio::test]
async fn a_session_that_another_process_of_the_gateway_keeps_locked_is_adopted() {
    let gateway = locking("max_size = 2, min_idle = 0", "");
    std::fs::create_dir(gateway.path("data/workspaces/w")).expect("the root is ours");
    let body = json!({ "agent": "fake", "cwd": "w" });
    let created = gateway.posted("/v1/sessions", &[], &body).await;
    let first = created.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    gateway.turn(&first, "remember PLUM").await;
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{first}"))
        .await;
    let other = gateway.session("fake").await;
    gateway.turn(&other, "echo busy").await;
    let listed = gateway.get("/v1/agents/fake/sessions").await;
    let theirs = listed["sessions"].as_array().expect("a list").iter();
    let theirs: Vec<&Value> = theirs.filter(|s| s["cwd"] == created.body["cwd"]).collect();
    let id = &theirs[0]["agentSessionId"];
    let body = json!({ "agent": "fake", "agentSessionId": id, "cwd": "w" });
    let adopted = gateway.posted("/v1/sessions", &[], &body).await;
    assert_eq!(adopted.status, StatusCode::CREATED, "{adopted:?}");
    let adopted = adopted.body["sessionId"].as_str().expect("an id");
    assert_eq!(recalled(&gateway, adopted).await, "PLUM");
}

#[tokio::test]
async fn lock_of_an_external_process_is_awaited() {
    let gateway = locking(
        "max_size = 2, min_idle = 0, idle_timeout = \"100ms\"",
        "testing.restore_timeout = \"6s\"",
    );
    let session = remembering(&gateway, 1).await.remove(0);
    gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    eventually("no process is left", Duration::from_secs(10), || async {
        kill_agents(&gateway);
        gateway.agents_alive().is_empty().then_some(())
    })
    .await;
    let locks = gateway.path("data/homes/default/fake/state.locks");
    let lock = std::fs::read_dir(&locks)
        .expect("locks")
        .next()
        .expect("a lock")
        .expect("a file")
        .path();
    // This test plays another client of the agent.
    std::fs::write(&lock, std::process::id().to_string()).expect("the folder is ours");
    let failed = gateway.turn(&session, "recall").await;
    assert_eq!(
        (&failed["status"], &failed["error"]["retryable"]),
        (&json!("failed"), &json!(true)),
        "{failed}"
    );
    assert_eq!(failed["error"]["acp"]["code"], -32600, "{failed}");
    let running = gateway.prompt(&session, "recall").await;
    eventually(
        "the session was refused once more",
        Duration::from_secs(10),
        || async { (gateway.log().matches("in use").count() >= 2).then_some(()) },
    )
    .await;
    std::fs::remove_file(&lock).expect("the folder is ours");
    let path = format!(
        "/v1/sessions/{session}/prompts/{}",
        running["promptId"].as_str().expect("an id")
    );
    let turn = eventually("the turn ended", Duration::from_secs(30), || async {
        let turn = gateway.get(&path).await;
        (turn["status"] == "completed").then_some(turn)
    })
    .await;
    drop(turn);
    assert_none_lost(&gateway, std::slice::from_ref(&session)).await;
    assert_eq!(recalled(&gateway, &session).await, "FRUIT0");
}

#[tokio::test]
async fn a_load_that_is_refused_for_another_reason_is_retried_and_then_fails_without_losing_the_context()
 {
    for more in [&[][..], &["--resume"], &["--resume", "--close"]] {
        let args = [
            &["--state", "state", "--refuse-restore", "refusals"][..],
            more,
        ]
        .concat();
        let gateway = Setup::fake_with(&args, "pool = { max_size = 2, min_idle = 0 }")
            .settings(LIMITS)
            .start();
        let session = remembering(&gateway, 1).await.remove(0);
        let refusals = gateway.path("data/homes/default/fake/refusals");
        gateway.turn(&session, "crash").await;
        std::fs::write(&refusals, "2").expect("the folder is ours");
        assert_eq!(
            recalled(&gateway, &session).await,
            "FRUIT0",
            "it is asked again"
        );
        gateway.turn(&session, "crash").await;
        std::fs::write(&refusals, "1000").expect("the folder is ours");
        let failed = gateway.turn(&session, "recall").await;
        assert_eq!(failed["error"]["code"], "agent_error", "{failed}");
        assert_eq!(failed["error"]["retryable"], true, "{failed}");
        std::fs::write(&refusals, "0").expect("the folder is ours");
        assert_eq!(
            recalled(&gateway, &session).await,
            "FRUIT0",
            "nothing was lost"
        );
        assert_none_lost(&gateway, &[session]).await;
    }
}

/// A session whose agent refuses each load for an unknown reason.
async fn refused() -> (Gateway, String) {
    let args = [
        "--state",
        "state",
        "--refuse-restore",
        "refusals",
        "--refusal",
        "No sessions directory found",
    ];
    let gateway = Setup::fake_with(&args, "pool = { max_size = 2, min_idle = 0 }")
        .settings(LIMITS)
        .start();
    let session = remembering(&gateway, 1).await.remove(0);
    let refusals = gateway.path("data/homes/default/fake/refusals");
    gateway.turn(&session, "crash").await;
    std::fs::write(&refusals, "1000000").expect("the folder is ours");
    (gateway, session)
}

#[tokio::test]
async fn refusal_of_a_load_is_temporary_only_a_bounded_number_of_times() {
    let (mut gateway, session) = refused().await;
    let failed = gateway.turn(&session, "recall").await;
    assert_eq!(failed["error"]["retryable"], true, "{failed}");
    gateway.kill();
    gateway.start();
    let failed = gateway.turn(&session, "recall").await;
    assert_eq!(failed["error"]["retryable"], true, "{failed}");
    let turn = gateway.turn(&session, "echo goes on").await;
    assert_eq!(turn["text"], "goes on", "{turn}");
    let events = gateway.lawful(&session).await;
    let attached = all(&events, "session.attached");
    let lost = attached.last().expect("it is attached");
    assert_eq!(
        (&lost["context"], &lost["reason"]),
        (&json!("lost"), &json!("not_restored")),
        "{lost}"
    );
    assert!(lost["detail"].is_string(), "{lost}");
    assert_eq!(gateway.turn(&session, "echo again").await["text"], "again");
}

#[tokio::test]
async fn attach_with_a_new_context_continues_a_session_that_cannot_be_restored() {
    let (gateway, session) = refused().await;
    let path = format!("/v1/sessions/{session}/attach");
    let attach = async |body: Value| gateway.posted(&path, &[], &body).await;
    attach(json!({ "context": "old" }))
        .await
        .problem(422, "invalid");
    let kept = attach(json!({})).await;
    assert_eq!(kept.problem(502, "agent_error")["retryable"], true);
    let answer = attach(json!({ "context": "new" })).await;
    assert_eq!(
        (answer.status, &answer.body["attached"]),
        (StatusCode::OK, &json!(true)),
        "{answer:?}"
    );
    assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
    // It also replaces the conversation of a process that has it.
    assert_eq!(
        attach(json!({ "context": "new" })).await.status,
        StatusCode::OK
    );
    let events = gateway.lawful(&session).await;
    let lost: Vec<&Value> = all(&events, "session.attached")
        .iter()
        .filter(|attached| attached["context"] == "lost")
        .map(|attached| &attached["reason"])
        .collect();
    assert_eq!(lost, ["requested", "requested"]);
    assert_eq!(
        attach(json!({})).await.status,
        StatusCode::OK,
        "the session has a process"
    );
    let running = gateway.prompt(&session, "stream n=1 size=8; hang").await;
    let prompt = running["promptId"].as_str().expect("an id").to_owned();
    gateway
        .log_until(&session, |event| {
            event["type"] == "session.update" && event["promptId"] == prompt.as_str()
        })
        .await;
    let rejected = attach(json!({ "context": "new" })).await;
    assert_eq!(
        rejected.problem(409, "turn_running")["promptId"],
        prompt.as_str()
    );
}

#[tokio::test]
async fn lost_context_has_a_reason() {
    for (args, reason, detail) in [
        (
            &["--state", "state", "--fail-load"][..],
            "not_found",
            Some("Resource not found (-32002)"),
        ),
        (&["--no-load"], "unsupported", None),
        (
            &["--resume", "--no-methods", "--state", "state"],
            "unsupported",
            Some("Method not found (-32601)"),
        ),
    ] {
        let gateway = Setup::fake(args).settings(LIMITS).start();
        let session = remembering(&gateway, 1).await.remove(0);
        gateway.turn(&session, "crash").await;
        assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
        let events = gateway.lawful(&session).await;
        let attached = all(&events, "session.attached");
        assert_eq!(
            (attached[0].get("reason"), attached[0].get("detail")),
            (None, None)
        );
        let lost = attached[1];
        assert_eq!(
            (&lost["context"], &lost["reason"]),
            (&json!("lost"), &json!(reason)),
            "{lost}"
        );
        let text = lost.get("detail").and_then(Value::as_str);
        assert_eq!(text.is_some(), detail.is_some(), "{lost}");
        assert!(
            text.unwrap_or_default()
                .contains(detail.unwrap_or_default()),
            "{lost}"
        );
        assert!(gateway.log().contains(reason), "{}", gateway.log());
    }
}

#[tokio::test]
async fn process_that_had_a_session_gets_it_again() {
    let setup = Setup::fake_with(
        &["--close", "--state", "state"],
        "pool = { max_size = 2, min_idle = 0 }",
    );
    let gateway = setup.start();
    let sessions = [gateway.session("fake").await, gateway.session("fake").await];
    let pids = join_all(sessions.iter().map(|session| gateway.turn(session, "pid"))).await;
    assert_ne!(pids[0]["text"], pids[1]["text"]);
    for (session, idle) in sessions.iter().zip(1..) {
        gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/close"))
            .await;
        eventually("the process is idle", Duration::from_secs(10), || async {
            let agent = gateway.get("/v1/agents/fake").await;
            (agent["pool"]["idle"] == idle).then_some(())
        })
        .await;
    }
    for (session, pid) in sessions.iter().zip(&pids).rev() {
        gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/attach"))
            .await;
        assert_eq!(
            gateway.turn(session, "pid").await["text"],
            pid["text"],
            "the process that held it"
        );
    }
}

#[tokio::test]
async fn an_agent_that_cannot_load_keeps_its_process_past_the_idle_timeout() {
    let pool = "pool = { max_size = 1, min_idle = 0, idle_timeout = \"50ms\", no_load_idle_timeout = \"1h\", no_load_reclaim_timeout = \"1500ms\" }";
    let gateway = Setup::fake_with(&["--no-load"], pool)
        .settings(LIMITS)
        .start();
    let agent = gateway.get("/v1/agents/fake").await;
    let policy = (
        &agent["pool"]["noLoadIdleTimeoutSeconds"],
        &agent["pool"]["noLoadReclaimTimeoutSeconds"],
    );
    assert_eq!(policy, (&json!(3600), &json!(1)), "{agent}");
    let session = gateway.session("fake").await;
    let pid = gateway.turn(&session, "pid").await["text"].clone();
    // The next session waits until the process has been idle for long enough.
    let other = gateway.session("fake").await;
    let events = gateway.lawful(&session).await;
    let at = |kind: &str| -> jiff::Timestamp {
        let time = one(&events, kind)["time"].as_str().expect("a time");
        time.parse().expect("a time")
    };
    let idle = at("session.detached").duration_since(at("prompt.completed"));
    assert!(
        idle >= jiff::SignedDuration::from_millis(1300),
        "reclaimed after {idle:?}"
    );
    assert_eq!(
        one(&events, "session.detached")["reason"],
        "reclaimed",
        "not idle"
    );
    assert_ne!(gateway.turn(&other, "pid").await["text"], pid);
}

#[tokio::test]
async fn agent_without_load_releases_its_process_after_its_own_idle_timeout() {
    let pool = "pool = { max_size = 1, min_idle = 0, no_load_idle_timeout = \"100ms\" }";
    let gateway = Setup::fake_with(&["--no-load"], pool).start();
    let session = gateway.session("fake").await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(events.last().expect("the end")["reason"], "idle");
}

fn replayed(events: &[Value]) -> Vec<&Value> {
    events
        .iter()
        .filter(|event| event["replayed"] == true)
        .collect()
}

#[tokio::test]
async fn history_behind_the_answer_to_load_never_appears_in_the_next_turn() {
    let setup = Setup::fake(&["--state", "state", "--late-history"])
        .settings(&format!("{LIMITS}\ntesting.replay_quiet_interval = \"4s\""));
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "slow chunks=5 ms=1").await;
    let before = agent_text(&gateway.lawful(&session).await);
    gateway.turn(&session, "crash chunks=0").await;
    // A turn that lasts longer than the history needs.
    let after = "chunk 0 chunk 1 chunk 2 ";
    assert_eq!(
        gateway.turn(&session, "slow chunks=3 ms=150").await["text"],
        after
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(all(&events, "session.attached")[1]["by"], "load");
    assert_eq!(
        agent_text(&events),
        format!("{before}{after}"),
        "no old answer inside the new one"
    );
    assert!(replayed(&events).is_empty());
}

#[tokio::test]
async fn late_history_of_an_adopted_or_forked_session_is_marked_replayed() {
    let gateway = Setup::fake(&["--state", "state", "--late-history", "--fork", "--list"])
        .settings("testing.replay_quiet_interval = \"4s\"")
        .start();
    std::fs::create_dir(gateway.path("data/workspaces/w")).expect("the root is ours");
    let body = json!({ "agent": "fake", "cwd": "w" });
    let created = gateway.posted("/v1/sessions", &[], &body).await;
    let first = created.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    gateway.turn(&first, "slow chunks=5 ms=1").await;
    let before = agent_text(&gateway.lawful(&first).await);
    let forked = fork(&gateway, &first).await;
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{first}"))
        .await;
    let listed = gateway.get("/v1/agents/fake/sessions").await;
    let id = &listed["sessions"][0]["agentSessionId"];
    let body = json!({ "agent": "fake", "agentSessionId": id, "cwd": "w" });
    let adopted = gateway.posted("/v1/sessions", &[], &body).await;
    assert_eq!(adopted.status, StatusCode::CREATED, "{adopted:?}");
    let adopted = adopted.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    for session in [forked, adopted] {
        let after = "chunk 0 chunk 1 chunk 2 ";
        assert_eq!(
            gateway.turn(&session, "slow chunks=3 ms=150").await["text"],
            after
        );
        let events = gateway.lawful(&session).await;
        let history = replayed(&events);
        assert_eq!(
            history.len(),
            6,
            "a prompt and five chunks: {:?}",
            kinds(&events)
        );
        assert!(
            history.iter().all(|event| event.get("promptId").is_none()),
            "{history:?}"
        );
        assert_eq!(agent_text(&events), format!("{before}{after}"));
    }
}

#[tokio::test]
async fn prompt_after_a_resume_is_not_delayed() {
    let gateway = Setup::fake(&["--state", "state", "--resume"])
        .settings("testing.replay_quiet_interval = \"30s\"\ntesting.min_backoff = \"10ms\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "crash").await;
    let began = Instant::now();
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn delayed_prompt_is_sent_after_replay_quiet_timeout_or_cancelled_before() {
    let limits = "testing.replay_quiet_interval = \"1h\"\ntesting.replay_quiet_timeout = \"700ms\"\ntesting.min_backoff = \"10ms\"";
    let gateway = Setup::fake(&["--state", "state"]).settings(limits).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "crash").await;
    let began = Instant::now();
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
    assert!(
        began.elapsed() >= Duration::from_millis(700),
        "{:?}",
        began.elapsed()
    );
    let limits = "testing.replay_quiet_interval = \"1h\"\ntesting.replay_quiet_timeout = \"1h\"\ntesting.min_backoff = \"10ms\"";
    let gateway = Setup::fake(&["--state", "state"]).settings(limits).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "crash").await;
    gateway.prompt(&session, "echo two").await;
    gateway
        .log_until(&session, |event| {
            event["type"] == "session.attached" && event["by"] == "load"
        })
        .await;
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(events.last().expect("the end")["stopReason"], "cancelled");
}

#[tokio::test]
async fn a_prompt_that_is_rejected_for_its_session_id_runs_in_a_new_session() {
    for more in [&[][..], &["--resume"]] {
        let args = [&["--state", "state", "--false-load"][..], more].concat();
        let gateway = Setup::fake(&args).settings(LIMITS).start();
        let session = gateway.session("fake").await;
        gateway.turn(&session, "echo one").await;
        gateway.turn(&session, "crash").await;
        let turn = gateway.turn(&session, "echo two").await;
        assert_eq!(
            (&turn["status"], &turn["text"]),
            (&json!("completed"), &json!("two")),
            "{turn}"
        );
        let events = gateway.lawful(&session).await;
        let attached = all(&events, "session.attached");
        assert_eq!(attached.len(), 3, "{attached:?}");
        assert_eq!(attached[1]["context"], "kept", "so the agent said");
        let lost = attached[2];
        assert_eq!(
            (&lost["by"], &lost["context"]),
            (&json!("fresh"), &json!("lost"))
        );
        assert_eq!(lost["reason"], "rejected_session");
        assert!(
            lost["detail"]
                .as_str()
                .is_some_and(|text| text.contains("-32602")),
            "{lost}"
        );
        let of_turn = |kind: &str| {
            all(&events, kind)
                .iter()
                .filter(|e| e["promptId"] == turn["promptId"])
                .count()
        };
        assert_eq!(
            (
                of_turn("prompt.started"),
                of_turn("prompt.completed"),
                of_turn("prompt.failed")
            ),
            (1, 1, 0)
        );
        assert_eq!(gateway.turn(&session, "echo three").await["text"], "three");
        assert_eq!(
            all(&gateway.lawful(&session).await, "session.attached").len(),
            3
        );
    }
}

#[tokio::test]
async fn a_process_with_tools_of_a_closed_session_serves_no_other() {
    let setup = Setup::fake_with(
        &["--close", "--state", "state"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup.settings(LIMITS).start();
    let first = gateway.session("fake").await;
    let turn = gateway.turn(&first, "pid").await;
    let pid = turn["text"].clone();
    let second = gateway.session("fake").await;
    assert_eq!(
        gateway.turn(&second, "pid").await["text"],
        pid,
        "nothing was left: it is reused"
    );
    let left = gateway.turn(&second, "fork").await["text"].clone();
    let left: u32 = left
        .as_str()
        .and_then(|text| text.strip_prefix("pid=")?.parse().ok())
        .expect("a pid");
    assert!(is_alive(left));
    let third = gateway.session("fake").await;
    assert_ne!(
        gateway.turn(&third, "pid").await["text"],
        pid,
        "it was not reused"
    );
    eventually(
        "the agent's stored session is gone",
        Duration::from_secs(10),
        || async { (!is_alive(left)).then_some(()) },
    )
    .await;
}
