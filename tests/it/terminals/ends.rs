//! How commands end, and that nothing of them stays.

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{SERVED, gateway, play, prompt, shell};
use crate::support::{Gateway, Setup, eventually, is_alive};

/// Leaves a process in its own session whose parents have ended and that ignores TERM.
const RUNAWAY: &str = "(setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >runaway; while :; do sleep 1; done' >/dev/null 2>&1 &); \
     while ! [ -s runaway ]; do sleep 0.02; done";

async fn cwd(gateway: &Gateway, session: &str) -> String {
    gateway.get_session(session).await["cwd"]
        .as_str()
        .expect("a path")
        .to_owned()
}

/// The pid that a script writes into a file of the session's folder.
async fn pid_in(file: &str) -> u32 {
    eventually(file, Duration::from_secs(20), || async {
        let text = std::fs::read_to_string(Path::new(file)).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    })
    .await
}

async fn dead(what: &str, pids: &[u32]) {
    eventually(what, Duration::from_secs(30), || async {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    })
    .await;
}

/// A running command with such a process, in a turn that has ended. Returns their pids.
async fn left_running(gateway: &Gateway, session: &str) -> [u32; 2] {
    let script =
        format!("{RUNAWAY}; echo $$ >program; echo up; trap '' TERM; while :; do sleep 0.05; done");
    play(gateway, session, &json!([shell(&script), { "poll": "up" }])).await;
    let folder = cwd(gateway, session).await;
    let pids = [
        pid_in(&format!("{folder}/runaway")).await,
        pid_in(&format!("{folder}/program")).await,
    ];
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    pids
}

fn exits(events: &[Value]) -> Vec<(&Value, &Value, &Value)> {
    let ends = events
        .iter()
        .filter(|event| event["type"] == "terminal.exited");
    ends.map(|event| (&event["terminalId"], &event["exitCode"], &event["signal"]))
        .collect()
}

#[tokio::test]
async fn waiters_are_notified_before_and_after_the_end() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let steps = json!([
        shell("while ! [ -e go ]; do sleep 0.02; done; exit 7"),
        "begin-wait",
        "begin-wait",
        { "create": { "command": "touch", "args": ["go"] } },
        "waited",
        { "wait": { "terminalId": "t1" } },
    ]);
    let came = play(&gateway, &session, &steps).await;
    let seven = json!({ "exitCode": 7, "signal": null });
    assert_eq!(
        came[2..].iter().map(|(_, came)| came).collect::<Vec<_>>(),
        [&seven, &seven, &seven]
    );
}

#[tokio::test]
async fn killed_terminal_keeps_its_output() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let script = format!("{RUNAWAY}; echo up; trap '' TERM; while :; do sleep 0.05; done");
    let steps = json!([shell(&script), { "poll": "up" }, "begin-wait", "kill", "waited", "output", "kill", "release"]);
    let came = play(&gateway, &session, &steps).await;
    let killed = json!({ "exitCode": null, "signal": "SIGKILL" });
    let came: Vec<&Value> = came.iter().map(|(_, came)| came).collect();
    assert_eq!(came[1..3], [&json!({}), &killed]);
    assert_eq!(
        came[3],
        &json!({ "output": "up\n", "truncated": false, "exitStatus": killed })
    );
    assert_eq!(came[4..], [&json!({}), &json!({})]);
    let folder = cwd(&gateway, &session).await;
    dead("the runaway", &[pid_in(&format!("{folder}/runaway")).await]).await;
    let events = gateway.lawful(&session).await;
    assert_eq!(
        exits(&events),
        [(&json!("t1"), &Value::Null, &json!("SIGKILL"))]
    );
}

#[tokio::test]
async fn a_release_kills_and_its_end_is_still_shown() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let steps = json!([shell("echo up; exec sleep 60"), { "poll": "up" }, "begin-wait", "release", "waited", "wait"]);
    let came = play(&gateway, &session, &steps).await;
    let came: Vec<&Value> = came.iter().map(|(_, came)| came).collect();
    assert_eq!(
        came[1..],
        [
            &json!({}),
            &json!({ "exitCode": null, "signal": "SIGKILL" }),
            &json!({ "error": -32002 }),
        ]
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(exits(&events).len(), 1);
    let shown = gateway
        .get(&format!("/v1/sessions/{session}/terminals/t1"))
        .await;
    assert_eq!(
        (&shown["output"], &shown["exitStatus"]["signal"]),
        (&json!("up\n"), &json!("SIGKILL"))
    );
}

#[tokio::test]
async fn background_process_lives_until_the_release_of_the_terminal() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let came = play(
        &gateway,
        &session,
        &json!([shell(&format!("{RUNAWAY}; exit 0")), "wait"]),
    )
    .await;
    assert_eq!(came[1].1["exitCode"], 0);
    let folder = cwd(&gateway, &session).await;
    let runaway = pid_in(&format!("{folder}/runaway")).await;
    assert!(is_alive(runaway));
    play(
        &gateway,
        &session,
        &json!([{ "release": { "terminalId": "t1" } }]),
    )
    .await;
    dead("the runaway", &[runaway]).await;
}

#[tokio::test]
async fn delete_of_a_session_ends_its_terminals() {
    let gateway = gateway();
    for way in ["close", "delete", "crash", "stop"] {
        let session = gateway.session("fake").await;
        let pids = left_running(&gateway, &session).await;
        let path = format!("/v1/sessions/{session}");
        match way {
            "close" => drop(gateway.post(&format!("{path}/close"), &json!({})).await),
            "delete" => drop(gateway.call(Method::DELETE, &path).await),
            "crash" => drop(gateway.turn(&session, "crash").await),
            _ => {
                let steps = json!([shell("sleep 60"), { "pause": 60_000 }]);
                gateway.prompt(&session, &prompt(&steps)).await;
                let mut gateway = gateway;
                assert_eq!(gateway.stop(), Some(0));
                return dead(way, &pids).await;
            }
        }
        dead(way, &pids).await;
        if way != "delete" {
            let events = gateway.lawful(&session).await;
            assert_eq!(
                exits(&events),
                [(&json!("t1"), &Value::Null, &json!("SIGKILL"))],
                "{way}"
            );
            let index_of = |kind: &str| events.iter().position(|event| event["type"] == kind);
            assert!(
                index_of("terminal.exited") < index_of("session.detached"),
                "{way}"
            );
        }
    }
}

#[tokio::test]
async fn no_process_survives_a_kill_and_the_next_start_reports_it() {
    let mut gateway = gateway();
    let session = gateway.session("fake").await;
    let pids = left_running(&gateway, &session).await;
    gateway
        .log_until(&session, |event| event["type"] == "terminal.output")
        .await;
    gateway.kill();
    dead("all that it ran", &pids).await;
    gateway.start();
    let events = gateway.lawful(&session).await;
    assert_eq!(
        exits(&events),
        [(&json!("t1"), &Value::Null, &Value::Null)],
        "its exit status is unknown"
    );
    let shown = gateway
        .get(&format!("/v1/sessions/{session}/terminals/t1"))
        .await;
    assert_eq!(shown["output"], "up\n");
    assert_eq!(
        shown["exitStatus"],
        json!({ "exitCode": null, "signal": null })
    );
    let next = play(&gateway, &session, &json!([shell("exit"), "wait"])).await;
    assert_eq!(
        next[0].1,
        json!({ "terminalId": "t2" }),
        "no id comes twice"
    );
}

#[tokio::test]
async fn a_running_command_keeps_the_process_but_not_for_ever() {
    let more =
        format!("{SERVED}\npool = {{ max_size = 2, min_idle = 0, idle_timeout = \"200ms\" }}");
    let gateway = Setup::fake_with(&["--close"], &more)
        .settings("testing.terminal_idle_timeout = \"8s\"")
        .start();
    let session = gateway.session("fake").await;
    let pids = left_running(&gateway, &session).await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(is_alive(pids[1]));
    assert_eq!(
        gateway.get_session(&session).await["attached"],
        true,
        "it is not idle"
    );
    dead("a command that ran without a turn for too long", &pids).await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(exits(&events).len(), 1);
    assert_eq!(events.last().expect("the end")["reason"], "idle");
}

#[tokio::test]
async fn silent_agent_with_a_running_command_is_not_cancelled() {
    let gateway = Setup::fake_with(&[], &format!("{SERVED}\nturn_idle_timeout = \"5s\"")).start();
    let session = gateway.session("fake").await;
    let came = play(
        &gateway,
        &session,
        &json!([shell("sleep 8; exit 4"), { "pause": 7000 }, "wait"]),
    )
    .await;
    assert_eq!(came[1].1["exitCode"], 4);
}

#[tokio::test]
async fn cancelled_turn_stops_its_command_and_keeps_the_terminal() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let script =
        format!("{RUNAWAY}; echo $$ >program; echo up; trap '' TERM; while :; do sleep 0.05; done");
    gateway
        .prompt(&session, &prompt(&json!([shell(&script), "wait"])))
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "terminal.output")
        .await;
    let folder = cwd(&gateway, &session).await;
    let pids = [
        pid_in(&format!("{folder}/runaway")).await,
        pid_in(&format!("{folder}/program")).await,
    ];
    let (status, _) = gateway
        .post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
        .await;
    assert_eq!(status, 202);
    dead("the command of the cancelled turn", &pids).await;
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(events.last().expect("the end")["stopReason"], "cancelled");
    gateway
        .log_until(&session, |event| event["type"] == "terminal.exited")
        .await;
    let came = play(
        &gateway,
        &session,
        &json!([{ "output": { "terminalId": "t1" } }]),
    )
    .await;
    let killed = json!({ "exitCode": null, "signal": "SIGKILL" });
    assert_eq!(
        came[0].1,
        json!({ "output": "up\n", "truncated": false, "exitStatus": killed })
    );
    gateway.lawful(&session).await;
}
