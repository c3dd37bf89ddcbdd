//! Starts of processes: the first ones in a HOME, and idle processes that died.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup, eventually};

/// An agent that fails when two instances set up a new HOME at once.
const EXCLUSIVE: [&str; 2] = ["--exclusive-start", "300"];
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 60000\nlimits.per_key.max_prompts_per_minute = 60000\n";

/// Creates a session with each of these agents at the same time. Returns the status and the body of each response.
async fn create_at_once(gateway: &Gateway, agents: &[&str]) -> Vec<(u16, Value)> {
    let create = async |agent: &&str| {
        let answer = gateway
            .posted("/v1/sessions", &[], &json!({ "agent": agent }))
            .await;
        (answer.status.as_u16(), answer.body)
    };
    join_all(agents.iter().map(create)).await
}

fn assert_created(answers: &[(u16, Value)], gateway: &Gateway) {
    for (status, body) in answers {
        assert_eq!(*status, 201, "{body}\n{}", gateway.log());
    }
}

#[tokio::test]
async fn first_starts_in_a_new_home_run_one_at_a_time() {
    let pool = "pool = { max_size = 8, min_idle = 2 }";
    let gateway = Setup::fake_with(&EXCLUSIVE, pool).settings(LIMITS).start();
    assert_created(&create_at_once(&gateway, &["fake"; 4]).await, &gateway);
    assert!(
        gateway.path("data/homes/default/fake/initialized").exists(),
        "the agent set up its HOME"
    );
    assert!(
        !gateway.log().contains("did not start"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn first_starts_of_agents_that_share_a_home_run_one_at_a_time() {
    let more = "home = \"user\"\npool = { max_size = 4, min_idle = 1 }";
    let setup = Setup::default()
        .agent("one", fake_agent(), &EXCLUSIVE, more)
        .agent("two", fake_agent(), &EXCLUSIVE, more);
    let gateway = setup.settings(LIMITS).start();
    assert_created(
        &create_at_once(&gateway, &["one", "two", "one", "two"]).await,
        &gateway,
    );
    assert!(
        gateway.path("initialized").exists(),
        "the agents set up the user's HOME"
    );
    assert!(
        !gateway.log().contains("did not start"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn a_start_that_failed_beside_another_start_is_retried() {
    let gateway = Setup::fake(&EXCLUSIVE).settings(LIMITS).start();
    gateway.session("fake").await;
    // As if the agent had another reason to set up its HOME again, of which the gateway knows nothing.
    let home = gateway.path("data/homes/default/fake");
    std::fs::remove_file(home.join("initialized")).expect("the agent has set up its HOME");
    assert_created(&create_at_once(&gateway, &["fake"; 3]).await, &gateway);
    assert!(
        gateway.log().contains("retrying"),
        "no start failed: {}",
        gateway.log()
    );
}

#[tokio::test]
async fn starts_that_waited_for_a_first_start_that_failed_fail_with_it() {
    let args = ["--hang-initialize"];
    let gateway = Setup::fake_with(&args, "start_timeout = \"4s\"")
        .settings(LIMITS)
        .start();
    let began = Instant::now();
    for (status, body) in create_at_once(&gateway, &["fake"; 4]).await {
        assert_eq!(
            (status, &body["code"]),
            (504, &json!("agent_timeout")),
            "{body}"
        );
    }
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "not one after the other: {:?}",
        began.elapsed()
    );
}

/// The pid of the session's process.
async fn pid(gateway: &Gateway, session: &str) -> Pid {
    let turn = gateway.turn(session, "pid").await;
    let pid = turn["text"]
        .as_str()
        .and_then(|text| text.strip_prefix("pid=")?.parse().ok());
    pid.and_then(Pid::from_raw).expect("a pid")
}

#[tokio::test]
async fn crashes_of_idle_processes_neither_reject_nor_delay_prompts() {
    let gateway = Setup::fake(&["--state", "state"]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    let began = Instant::now();
    for round in 0..8 {
        kill_process(pid(&gateway, &session).await, Signal::KILL).expect("it is the test's agent");
        eventually(
            "the gateway knows of it",
            Duration::from_secs(10),
            || async { (gateway.get_session(&session).await["attached"] == false).then_some(()) },
        )
        .await;
        let turn = gateway.turn(&session, "hello").await;
        assert_eq!(turn["text"], "hello", "round {round}: {turn}");
    }
    // With a back-off that doubles from a second on it would be minutes.
    assert!(
        began.elapsed() < Duration::from_mins(1),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn dead_idle_process_is_never_leased_to_a_session() {
    let pool = "pool = { max_size = 4, min_idle = 1 }";
    let gateway = Setup::fake_with(&["--state", "state"], pool)
        .settings(LIMITS)
        .start();
    let mut known = HashSet::new();
    for round in 0..10 {
        let agents = eventually("an idle process", Duration::from_secs(20), || async {
            let pool = gateway.get("/v1/agents/fake").await["pool"].clone();
            (pool["idle"] == 1 && pool["starting"] == 0).then(|| gateway.agents_alive())
        })
        .await;
        let idle: Vec<u32> = agents
            .into_iter()
            .filter(|pid| !known.contains(pid))
            .collect();
        assert!(!idle.is_empty(), "round {round}: no idle process");
        for pid in &idle {
            let pid = Pid::from_raw(i32::try_from(*pid).expect("a pid")).expect("a pid");
            // It may have ended with the one before.
            kill_process(pid, Signal::KILL).ok();
        }
        known.extend(idle);
        let answer = gateway
            .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
            .await;
        assert_eq!(answer.status.as_u16(), 201, "round {round}: {answer:?}");
        let session = answer.body["sessionId"].as_str().expect("an id").to_owned();
        let deleted = gateway
            .call(reqwest::Method::DELETE, &format!("/v1/sessions/{session}"))
            .await;
        assert_eq!(deleted.status.as_u16(), 204, "{deleted:?}");
    }
}

#[tokio::test]
async fn status_has_the_error_of_the_last_start() {
    let flag = tempfile::tempdir().expect("a temporary folder");
    let ready = flag.path().join("ready");
    let fake = fake_agent();
    let script = format!("test -e {} && exec {fake}; exit 3", ready.display());
    let more = "pool = { min_idle = 0 }\nisolation = \"off\"";
    let gateway = Setup::default()
        .agent("late", "sh", &["-c", &script], more)
        .start();
    let status = async || gateway.get("/v1/agents/late").await["status"].clone();
    assert_eq!(
        status().await,
        json!({ "state": "available", "detail": null }),
        "nothing is known yet"
    );
    let failed = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "late" }))
        .await;
    failed.problem(502, "agent_exited");
    let unavailable = status().await;
    assert_eq!(unavailable["state"], "unavailable");
    assert!(
        unavailable["detail"]
            .as_str()
            .is_some_and(|text| text.contains("exited with code 3")),
        "{unavailable}"
    );
    std::fs::write(&ready, "").expect("the folder is ours");
    gateway.session("late").await;
    assert_eq!(
        status().await,
        json!({ "state": "available", "detail": null })
    );
}
