//! `fs/*` of an agent, served from the session's folders.

use reqwest::StatusCode;
use serde_json::{Value, json};

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Gateway, Setup, eventually, procfs};

/// A session whose files the gateway serves, and the path of its folder.
async fn served(gateway: &Gateway, policy: Value) -> (String, String) {
    let body = json!({ "agent": "fake", "policy": policy });
    let (status, session) = gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let text = |name: &str| session[name].as_str().expect("a text").to_owned();
    (text("sessionId"), text("cwd"))
}

fn gateway() -> Gateway {
    Setup::fake_with(&["--directories"], "files = \"gateway\"")
        .settings("server.max_file_bytes = \"1KiB\"")
        .start()
}

async fn turn_text(gateway: &Gateway, session: &str, prompt: &str) -> String {
    let turn = gateway.turn(session, prompt).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    turn["text"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn an_agent_writes_and_reads_files_by_lines() {
    let gateway = gateway();
    let (session, cwd) = served(&gateway, json!({})).await;
    let written = turn_text(
        &gateway,
        &session,
        &format!("write path={cwd}/a/b.txt text=hello"),
    )
    .await;
    assert_eq!(written, "[written]");
    let file = format!("{cwd}/a/b.txt");
    assert_eq!(
        std::fs::read_to_string(&file).expect("it was written"),
        "hello"
    );
    std::fs::write(&file, "one\ntwo\nthree\n").expect("the folder is ours");
    for (window, lines) in [
        ("", "one\ntwo\nthree\n"),
        (" line=2", "two\nthree\n"),
        (" line=2 limit=1", "two\n"),
        (" limit=2", "one\ntwo\n"),
        (" line=9", ""),
    ] {
        let read = turn_text(&gateway, &session, &format!("read path={file}{window}")).await;
        assert_eq!(read, format!("[{lines}]"), "{window}");
    }
    let events = gateway.lawful(&session).await;
    assert!(
        events
            .iter()
            .all(|event| event["type"] != "request.created"),
        "no client received a request"
    );
}

#[tokio::test]
async fn errors_have_the_codes_of_acp() {
    let gateway = gateway();
    let (session, cwd) = served(&gateway, json!({})).await;
    std::fs::write(format!("{cwd}/large"), "x".repeat(1025)).expect("the folder is ours");
    std::fs::write(format!("{cwd}/binary"), b"\xff\xfe").expect("the folder is ours");
    let locked = format!("{cwd}/locked");
    std::fs::write(&locked, "").expect("the folder is ours");
    let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o444);
    std::fs::set_permissions(&locked, read_only).expect("it is ours");
    for (prompt, code) in [
        (format!("read path={cwd}/missing"), -32002),
        (format!("read path={cwd}/large"), -32602),
        (format!("read path={cwd}/binary"), -32602),
        (format!("read path={cwd}"), -32602),
        (format!("read path={cwd}/../x"), -32602),
        (format!("read path={cwd}/missing line=-1"), -32602),
        (format!("read path={cwd}/missing session=another"), -32602),
        (
            format!("write path={cwd}/x text={}", "x".repeat(1025)),
            -32602,
        ),
        (format!("write path={cwd}/locked text=x"), -32603),
        ("read path=relative".to_owned(), -32602),
        ("read path=/etc/passwd".to_owned(), -32602),
        ("write path=/etc/acp-gateway-test text=x".to_owned(), -32602),
        ("read".to_owned(), -32602),
    ] {
        assert_eq!(
            turn_text(&gateway, &session, &prompt).await,
            format!("[error {code}]"),
            "{prompt}"
        );
    }
    assert!(!std::path::Path::new("/etc/acp-gateway-test").exists());
}

#[tokio::test]
async fn errors_have_the_texts_of_the_sdks() {
    // Some agents decide by the text of an error: only this one means that a file is new.
    let received = tempfile::NamedTempFile::new().expect("a file");
    let log = received.path().to_str().expect("text");
    let gateway = Setup::fake_with(&["--log", log], "files = \"gateway\"").start();
    let (session, cwd) = served(&gateway, json!({})).await;
    let missing = format!("read path={cwd}/missing");
    for prompt in [&*missing, "read path=relative", r#"terminal ["output"]"#] {
        gateway.turn(&session, prompt).await;
    }
    let received = std::fs::read_to_string(received.path()).expect("it is ours");
    let errors: Vec<serde_json::Value> = received
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<serde_json::Value>(line)
                .ok()?
                .get("error")
                .cloned()
        })
        .collect();
    let uri = format!("file://{cwd}/missing");
    assert_eq!(
        errors,
        [
            json!({ "code": -32002, "message": format!("Resource not found: {uri}"), "data": { "uri": uri } }),
            json!({ "code": -32602, "message": "Invalid params: the path must be absolute" }),
            json!({
                "code": -32601,
                "message": "\"Method not found\": terminal/output",
                "data": { "method": "terminal/output" },
            }),
        ]
    );
}

#[tokio::test]
async fn additional_directories_are_served_and_other_sessions_folders_are_not() {
    let gateway = gateway();
    let (_, other) = served(&gateway, json!({})).await;
    let root = gateway
        .path("data/workspaces")
        .canonicalize()
        .expect("the root is there");
    std::fs::create_dir(root.join("more")).expect("the folder is ours");
    let body = json!({ "agent": "fake", "additionalDirectories": ["more"] });
    let (status, session) = gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let session = session["sessionId"].as_str().expect("an id");
    let more = root.join("more/file");
    let prompt = format!(
        "write path={} text=x; write path={other}/x text=x",
        more.display()
    );
    assert_eq!(
        turn_text(&gateway, session, &prompt).await,
        "[written][error -32602]"
    );
    assert!(more.exists());
}

#[tokio::test]
async fn session_can_restrict_the_capabilities_of_its_agent() {
    let gateway = gateway();
    let (session, cwd) = served(&gateway, json!({ "files": "off" })).await;
    let read = turn_text(&gateway, &session, &format!("read path={cwd}/x")).await;
    assert_eq!(read, "[error -32601]");
}

/// The memory in MiB that the gateway uses for sixty files of one MiB which the agent does not read, and after it has
/// read all.
async fn peak_memory(answers: usize) -> u64 {
    let setup = Setup::fake_with(&["--log", "received"], "files = \"gateway\"");
    let limits =
        format!("testing.max_file_requests = {answers}\ntesting.stdin_stall_timeout = \"2m\"");
    let gateway = setup.settings(&limits).start();
    let (session, cwd) = served(&gateway, json!({})).await;
    std::fs::write(format!("{cwd}/large"), "x".repeat(1 << 20)).expect("the folder is ours");
    let agent = turn_text(&gateway, &session, "pid")
        .await
        .strip_prefix("pid=")
        .and_then(|pid| pid.parse().ok())
        .and_then(Pid::from_raw)
        .expect("a pid");
    let before = procfs::resident(gateway.pid());
    let params = format!(r#"{{"sessionId":$SESSION,"path":"{cwd}/large"}}"#);
    let ask = format!("ask method=fs/read_text_file params={params} n=60 report=no; freeze");
    gateway.prompt(&session, &ask).await;
    let mut seen = Vec::new();
    // As long as it still grows, or has not begun to.
    eventually("nothing more is read", Duration::from_mins(1), || {
        let now = procfs::resident(gateway.pid());
        seen.push(now);
        let calm = seen.len() > 100
            && seen[seen.len() - 100..]
                .iter()
                .all(|earlier| now.abs_diff(*earlier) < 1024);
        async move { (calm && now > before + 2048).then_some(()) }
    })
    .await;
    kill_process(agent, Signal::CONT).expect("it is stopped");
    let events = gateway
        .log_until(&session, |event| {
            event["promptId"] == "p2" && event["type"] == "prompt.completed"
        })
        .await;
    assert!(!events.is_empty());
    let received = gateway.path("data/homes/default/fake/received");
    eventually("all are read", Duration::from_mins(1), || async {
        let log = std::fs::metadata(&received).expect("the agent's own record");
        (log.len() > 60 << 20).then_some(())
    })
    .await;
    (seen.into_iter().max().expect("it was looked at") - before) / 1024
}

#[tokio::test]
async fn agent_that_does_not_read_answers_is_served_a_bounded_number_of_files() {
    let (few, all) = tokio::join!(peak_memory(4), peak_memory(60));
    assert!(
        few * 2 < all && all >= 50,
        "{few} MiB with four places, {all} MiB with sixty"
    );
}
