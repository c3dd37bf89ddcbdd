//! Agents that exit, hang or ignore requests: the turn ends with the reason, and the session continues.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::Case;
use crate::support::log::{agent_text, all, one};
use crate::support::{eventually, is_alive};

/// Milliseconds of an event's time within its day.
fn millis(event: &Value) -> u64 {
    let time = event["time"].as_str().expect("a time");
    let part = |from: usize, to: usize| -> u64 { time[from..to].parse().expect("digits") };
    ((part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19)) * 1000 + part(20, 23)
}

#[tokio::test]
async fn crash_fails_the_turn_within_a_second_with_exit_code_and_stderr() {
    let (gateway, session) = Case::fake(&[]).await;
    let began = Instant::now();
    let turn = gateway.turn(&session, "crash code=42").await;
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    let error = &turn["error"];
    assert_eq!(
        (&turn["status"], &error["code"]),
        (&json!("failed"), &json!("agent_exited"))
    );
    assert_eq!(
        (&error["exitCode"], &error["signal"]),
        (&json!(42), &Value::Null),
        "{error}"
    );
    assert_eq!(error["stderrTail"], "boom\n");
    assert_eq!(
        turn["text"], "chunk 0 chunk 1 chunk 2 ",
        "the log keeps its earlier output"
    );

    let events = gateway.lawful(&session).await;
    let exited = one(&events, "agent.exited");
    assert_eq!(
        (&exited["exitCode"], &exited["stderrTail"]),
        (&json!(42), &json!("boom\n"))
    );
    let last_word = all(&events, "session.update").pop().expect("a chunk");
    let failed = one(&events, "prompt.failed");
    let took = millis(failed).saturating_sub(millis(last_word));
    // Less than a second, and the pauses of a busy machine.
    assert!(took < 10_000, "{took} ms");
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["state"], &shown["attached"]),
        (&json!("idle"), &json!(false))
    );
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    gateway.holds().await;
}

#[tokio::test]
async fn a_crash_by_a_signal_names_the_signal() {
    let (gateway, session) = Case::fake(&[]).await;
    for signal in ["KILL", "ABRT"] {
        let turn = gateway
            .turn(&session, &format!("crash signal={signal}"))
            .await;
        let error = &turn["error"];
        assert_eq!(error["code"], "agent_exited", "{turn}");
        assert_eq!(
            (&error["exitCode"], &error["signal"]),
            (&Value::Null, &json!(format!("SIG{signal}")))
        );
    }
    gateway.holds().await;
}

/// Runs a turn that crashes and a turn after it. Returns the second `session.attached` and the whole log.
async fn reattached(args: &[&str]) -> (Value, Vec<Value>) {
    let (gateway, session) = Case::fake(args).await;
    gateway.turn(&session, "echo one").await;
    assert_eq!(
        gateway.turn(&session, "crash chunks=0").await["error"]["code"],
        "agent_exited"
    );
    let turn = gateway.turn(&session, "echo two").await;
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("completed"), &json!("two")),
        "{turn}"
    );
    let events = gateway.holds().await;
    assert_eq!(all(&events, "session.attached").len(), 2);
    (all(&events, "session.attached")[1].clone(), events)
}

#[tokio::test]
async fn the_next_prompt_resumes_where_the_agent_can() {
    let (attached, events) = reattached(&["--resume", "--state", "state"]).await;
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("resume"), &json!("kept"))
    );
    assert_eq!(agent_text(&events), "onetwo");
}

#[tokio::test]
async fn the_next_prompt_loads_and_the_history_is_not_doubled() {
    let (attached, events) = reattached(&["--state", "state"]).await;
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("load"), &json!("kept"))
    );
    assert_eq!(agent_text(&events), "onetwo");
    let user = |event: &&Value| event["update"]["sessionUpdate"] == "user_message_chunk";
    assert_eq!(events.iter().filter(user).count(), 0);
}

#[tokio::test]
async fn next_prompt_starts_a_new_context_without_load_and_reports_it() {
    let (attached, events) = reattached(&["--no-load"]).await;
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("fresh"), &json!("lost"))
    );
    assert_eq!(agent_text(&events), "onetwo");
}

#[tokio::test]
async fn a_resume_that_fails_becomes_a_load() {
    let (attached, _) = reattached(&["--fail-resume", "--state", "state"]).await;
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("load"), &json!("kept"))
    );
}

#[tokio::test]
async fn a_load_that_fails_becomes_a_fresh_start() {
    let (attached, _) = reattached(&["--fail-load", "--state", "state"]).await;
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("fresh"), &json!("lost"))
    );
}

#[tokio::test]
async fn an_agent_that_closes_its_stdout_is_ended() {
    let (gateway, session) = Case::fake(&[]).await;
    let turn = gateway.turn(&session, "close-stdout").await;
    assert_eq!(
        (&turn["error"]["code"], &turn["text"]),
        (&json!("agent_exited"), &json!("bye")),
        "{turn}"
    );
    gateway.none_alive().await;
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    gateway.holds().await;
}

/// Begins a turn that will not end, and cancels it when the agent is in it.
async fn cancelled(args: &[&str], text: &str) -> (Case, String, Vec<Value>) {
    let limits = "testing.cancel_timeout = \"200ms\"\ntesting.cancel_total_timeout = \"1s\"";
    let (gateway, session) = Case::fake_with(args, "", limits).await;
    gateway.prompt(&session, text).await;
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    let answer = gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["promptIds"]),
        (202, &json!(["p1"]))
    );
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    (gateway, session, events)
}

#[tokio::test]
async fn a_cancel_that_is_ignored_ends_the_agent_and_the_turn() {
    for (args, text) in [
        (&[][..], "stream n=1; hang cancel=no"),
        (
            &["--ignore-eof", "--ignore-term"][..],
            "stream n=1; hang cancel=no",
        ),
        (&["--ignore-eof"][..], "ignore-cancel ms=20"),
    ] {
        let (gateway, session, events) = cancelled(args, text).await;
        assert_eq!(
            one(&events, "prompt.failed")["problem"]["code"],
            "cancel_timeout",
            "{args:?} {text}"
        );
        gateway.none_alive().await;
        assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
        gateway.holds().await;
    }
}

#[tokio::test]
async fn silent_agent_is_cancelled_at_the_timeout() {
    let (mut gateway, first) = Case::fake_with(
        &[],
        "turn_idle_timeout = \"5s\"",
        "timeouts.tool_call_idle_timeout = \"8s\"",
    )
    .await;
    let second = gateway.session().await;
    let third = gateway.session().await;
    let silent = async |session: &str, script: &str, cause: &str, least: Duration| {
        let begun = Instant::now();
        let turn = gateway.turn(session, script).await;
        assert!(begun.elapsed() >= least, "{script}");
        assert_eq!(
            (&turn["status"], &turn["stopReason"], &turn["cancelCause"]),
            (&json!("completed"), &json!("cancelled"), &json!(cause))
        );
        let path = format!("/v1/sessions/{session}/transcript");
        let transcript = gateway.get(&path).await;
        assert_eq!(transcript["turns"][0]["cancelCause"], cause);
    };
    let tool = "running-tool; hang";
    let ((), (), turn) = tokio::join!(
        silent(&first, "hang", "silence", Duration::from_secs(5)),
        silent(&second, tool, "tool_call_silence", Duration::from_secs(8)),
        gateway.turn(&third, "slow chunks=60 ms=120"),
    );
    assert_eq!(
        turn["stopReason"], "end_turn",
        "an agent with output is not idle"
    );
    gateway.hold().await;
}

#[tokio::test]
async fn descendants_end_with_their_agent() {
    let (gateway, session) = Case::fake(&[]).await;
    let turn = gateway.turn(&session, "fork; crash chunks=0").await;
    assert_eq!(turn["error"]["code"], "agent_exited");
    let pid = turn["text"]
        .as_str()
        .and_then(|text| text.strip_prefix("pid="))
        .expect("a pid");
    let pid: u32 = pid.parse().expect("a number");
    eventually(
        "the grandchild is dead",
        Duration::from_secs(10),
        || async { (!is_alive(pid)).then_some(()) },
    )
    .await;
    gateway.holds().await;
}

#[tokio::test]
async fn stderr_is_kept_to_its_last_bytes_without_the_secrets() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let secret = "sk-a-secret-of-the-operator";
    let file = folder.path().join("secret");
    std::fs::write(&file, format!("{secret}\n")).expect("the folder is ours");
    let env = format!("env = {{ API_KEY = {{ from_file = {file:?} }} }}");
    let (gateway, session) =
        Case::fake_with(&[], &env, "testing.max_stderr_bytes = \"4KiB\"").await;
    let text = format!("env; stderr text=first; stderr bytes=100000; stderr text=key:{secret}:end");
    let turn = gateway.turn(&session, &text).await;
    let environment = turn["text"].as_str().expect("its environment");
    assert!(
        environment.contains(&format!("API_KEY={secret}\n")),
        "the agent has it: {environment}"
    );

    let path = format!("/v1/sessions/{session}/stderr");
    let tail = eventually("the tail", Duration::from_secs(10), || async {
        let response = gateway
            .request(Method::GET, &path)
            .send()
            .await
            .expect("an answer");
        let tail = response.text().await.expect("a body");
        tail.ends_with(":end\n").then_some(tail)
    })
    .await;
    assert!((3000..=4096).contains(&tail.len()), "{}", tail.len());
    assert!(
        tail.ends_with("a line of stderr\nkey:[secret]:end\n"),
        "{tail}"
    );
    assert!(!tail.contains("first"));

    let turn = gateway
        .turn(&session, &format!("stderr text={secret}; crash"))
        .await;
    let tail = turn["error"]["stderrTail"].as_str().expect("a tail");
    assert!(tail.ends_with("[secret]\nboom\n"), "{tail}");
    let events = gateway.lawful(&session).await;
    let exited = one(&events, "agent.exited").to_string();
    assert!(
        exited.contains("[secret]") && !exited.contains(secret),
        "{exited}"
    );
    assert!(
        !gateway.log().contains(secret),
        "the gateway's own log has it"
    );
    gateway.holds().await;
}
