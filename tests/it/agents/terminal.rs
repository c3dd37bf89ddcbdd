//! Signing in in a terminal.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::socket::{Socket, offered};
use crate::key_life::{by, key};
use crate::support::gateway::KEY;
use crate::support::{Answer, Gateway, Setup, eventually};

const AUTH: &str = "/v1/agents/fake/auth";

/// An agent with a sign-in on disk, for terminals; and where the sign-in is.
fn setup(more: &str) -> (Setup, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signed-in");
    let args = [
        "--auth-required",
        "--auth-file",
        file.to_str().expect("text"),
    ];
    (
        Setup::fake_with(&args, &format!("terminal_auth = true\n{more}")),
        folder,
    )
}

async fn refused(gateway: &Gateway, path: &str, headers: &[(&'static str, &str)]) -> (u16, Value) {
    match Socket::connect(gateway, path, headers).await {
        Ok(_) => panic!("{path} was opened"),
        Err((status, problem)) => (status.as_u16(), problem["code"].clone()),
    }
}

async fn needs_sign_in(gateway: &Gateway) {
    gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await
        .problem(424, "agent_auth_required");
}

#[tokio::test]
async fn sign_in_makes_sessions_work_without_a_restart() {
    let (setup, _folder) = setup("pool = { max_size = 2, min_idle = 1 }");
    let gateway = setup.start();
    needs_sign_in(&gateway).await;
    assert_eq!(gateway.get(AUTH).await["terminalAuth"], true);
    let mut socket = Socket::open(
        &gateway,
        &format!("{}?cols=100&rows=30", offered(&gateway).await),
    )
    .await;
    socket.until("the word: ").await;
    socket.types("size\n").await;
    socket.until("100x30").await;
    socket
        .says(r#"{"type":"resize","cols":120,"rows":40}"#)
        .await;
    socket.types("size\n").await;
    socket.until("120x40").await;
    socket.types("sesame\n").await;
    let exit = socket.next().await.expect("its end");
    assert_eq!(
        exit,
        json!({ "type": "exit", "exitCode": 0, "signal": null })
    );
    assert!(socket.shown.contains("welcome"), "{}", socket.shown);
    assert_eq!(socket.next().await, None);
    gateway.session("fake").await;
    assert_eq!(gateway.get(AUTH).await["state"], "authenticated");
    let log = gateway.log();
    for secret in ["sesame", "welcome", "the word"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[tokio::test]
async fn sign_in_runs_as_the_user_of_its_agent() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("this test needs root");
        return;
    }
    let (setup, _folder) = setup("");
    let gateway = setup
        .settings("isolation.run_as = \"300000-300009\"")
        .start_with(|folder| {
            std::fs::set_permissions(folder, Permissions::from_mode(0o755))
                .expect("the folder is ours");
            Vec::new()
        });
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.until("the word: ").await;
    // Its supervisor started before it.
    let command = gateway.agents_alive().into_iter().max().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{command}/status")).expect("it runs");
    assert!(
        status.contains("Uid:\t300000\t300000\t300000\t300000\n"),
        "{status}"
    );
    socket.types("size\n").await;
    socket.until("80x24").await;
}

#[tokio::test]
async fn sign_in_reclaims_processes_that_started_before_it() {
    let (setup, folder) = setup("pool = { max_size = 2, min_idle = 1 }");
    std::fs::write(folder.path().join("signed-in"), "").expect("it is ours");
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.types("sesame\n").await;
    assert_eq!(socket.next().await.expect("its end")["exitCode"], 0);
    let events = gateway
        .log_until(&session, |event| event["type"] == "session.detached")
        .await;
    assert_eq!(events.last().expect("one")["reason"], "reclaimed");
    assert_eq!(gateway.turn(&session, "echo on").await["text"], "on");
}

#[tokio::test]
async fn failed_setting_changes_nothing() {
    let (setup, _folder) = setup("");
    let gateway = setup.start();
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.types("wrong\n").await;
    let exit = socket.next().await.expect("its end");
    assert_eq!(
        exit,
        json!({ "type": "exit", "exitCode": 1, "signal": null })
    );
    needs_sign_in(&gateway).await;
    // The place is free again.
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.until("the word: ").await;
}

#[tokio::test]
async fn closing_the_socket_ends_the_command() {
    let (setup, _folder) = setup("");
    let gateway = setup.start();
    needs_sign_in(&gateway).await;
    gateway.none_alive().await;
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.until("the word: ").await;
    assert!(!gateway.agents_alive().is_empty());
    socket.close().await;
    gateway.none_alive().await;
    needs_sign_in(&gateway).await;
}

#[tokio::test]
async fn a_socket_is_opened_once_and_one_at_a_time() {
    let (setup, _folder) = setup("");
    let gateway = setup.start();
    let key = format!("Bearer {KEY}");
    let admin = [("authorization", &*key)];
    let stale = offered(&gateway).await;
    let path = offered(&gateway).await;
    assert_eq!(
        refused(&gateway, &stale, &admin).await,
        (404, json!("not_found")),
        "another took its place"
    );
    gateway
        .call(Method::GET, &path)
        .await
        .problem(400, "malformed");
    let mut socket = Socket::open(&gateway, &path).await;
    socket.until("the word: ").await;
    assert_eq!(
        refused(&gateway, &path, &admin).await,
        (503, json!("pool_full"))
    );
    gateway
        .posted(AUTH, &[], &json!({ "methodId": "shell" }))
        .await
        .problem(503, "pool_full");
    socket.close().await;
    eventually("its place is free", Duration::from_secs(10), || async {
        (refused(&gateway, &path, &admin).await == (404, json!("not_found"))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn only_an_admins_key_or_ticket_and_no_foreign_page_opens_it() {
    let (setup, _folder) = setup("");
    let gateway = setup.start();
    let path = offered(&gateway).await;
    let key_text = format!("Bearer {KEY}");
    let admin = ("authorization", &*key_text);
    assert_eq!(
        refused(&gateway, &path, &[]).await,
        (401, json!("unauthorized"))
    );
    assert_eq!(
        refused(&gateway, &format!("{path}?ticket=x"), &[]).await,
        (401, json!("unauthorized"))
    );
    let foreign = [admin, ("origin", "http://evil.example")];
    assert_eq!(
        refused(&gateway, &path, &foreign).await,
        (403, json!("forbidden"))
    );
    let host = [admin, ("host", "evil.example")];
    assert_eq!(
        refused(&gateway, &path, &host).await,
        (421, json!("misdirected_request"))
    );

    let most = key(&gateway, "most", "read,prompt,approve,files").await;
    let most_text = format!("Bearer {most}");
    assert_eq!(
        refused(&gateway, &path, &[("authorization", &most_text)]).await,
        (403, json!("forbidden"))
    );
    let paths = json!({ "paths": [path] });
    Answer::of(by(&gateway, &most, Method::POST, "/v1/tickets").json(&paths))
        .await
        .problem(403, "forbidden");

    let ticket = async |paths: Value| {
        let answer = gateway
            .posted("/v1/tickets", &[], &json!({ "paths": paths }))
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.body["ticket"].as_str().expect("a ticket").to_owned()
    };
    let other = ticket(json!(["/v1/events"])).await;
    assert_eq!(
        refused(&gateway, &format!("{path}?ticket={other}"), &[]).await,
        (401, json!("unauthorized"))
    );
    let ticket = ticket(json!([path])).await;
    let page = [("origin", &*gateway.url)];
    let foreign = [("origin", "http://evil.example")];
    let path = format!("{path}?ticket={ticket}");
    assert_eq!(
        refused(&gateway, &path, &foreign).await,
        (403, json!("forbidden"))
    );
    let mut socket = Socket::connect(&gateway, &path, &page)
        .await
        .expect("a page of ours opens it");
    socket.until("the word: ").await;
    for wrong in [
        "/v1/agents/fake/auth",
        "/v1/agents/fake/auth/terminals",
        "/v1/agents/fake/auth/terminals/x/y",
    ] {
        gateway
            .posted("/v1/tickets", &[], &json!({ "paths": [wrong] }))
            .await
            .problem(422, "invalid");
    }
    assert!(!gateway.log().contains(&ticket));
}

#[tokio::test]
async fn stop_of_the_gateway_closes_the_terminal_and_ends_its_processes() {
    let (setup, _folder) = setup("");
    let mut gateway = setup.start();
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.until("the word: ").await;
    assert_eq!(gateway.stop(), Some(0));
    assert_eq!(socket.next().await, Some(json!({ "type": "shutdown" })));
    assert_eq!(socket.next().await, None);
    gateway.none_alive().await;
}

#[tokio::test]
async fn limits_end_it_with_a_problem() {
    let idle = "pool = { max_size = 1, min_idle = 0, idle_timeout = \"100ms\" }";
    let (first, _folder) = setup(idle);
    let gateway = first.settings("testing.sign_in_timeout = \"1s\"").start();
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    let end = socket.next().await.expect("its end");
    assert_eq!(
        (&end["type"], &end["problem"]["code"]),
        (&json!("problem"), &json!("agent_timeout"))
    );
    gateway.none_alive().await;

    let (second, _folder) = setup(idle);
    let gateway = second
        .settings(
            "testing.max_sign_in_output_bytes = \"64KiB\"\ntesting.max_websocket_message_bytes = \"1KiB\"",
        )
        .start();
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.types(&"x".repeat(2000)).await;
    assert_eq!(socket.next().await, None, "too long a message");
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.says(r#"{"type":"resize","cols":0,"rows":1}"#).await;
    assert_eq!(
        socket.next().await.expect("its end")["problem"]["code"],
        "invalid"
    );
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.types("flood\n").await;
    assert_eq!(
        socket.next().await.expect("its end")["problem"]["code"],
        "too_large"
    );
    assert!(socket.shown.len() <= 64 << 10, "{}", socket.shown.len());
    gateway.none_alive().await;
}

#[tokio::test]
async fn stalled_client_does_not_block_the_end_of_a_sign_in() {
    let idle = "pool = { max_size = 1, min_idle = 0, idle_timeout = \"100ms\" }";
    for stopped in [false, true] {
        let (setup, _folder) = setup(idle);
        let sign_in = if stopped { "10m" } else { "8s" };
        let limits = format!(
            "testing.sign_in_timeout = \"{sign_in}\"\ntesting.max_sign_in_output_bytes = \"1GiB\"\ntesting.write_stall_timeout = \"10m\""
        );
        let mut gateway = setup.settings(&limits).start();
        let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
        socket.until("the word: ").await;
        socket.types("flood\n").await;
        let began = Instant::now();
        if stopped {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(gateway.stop(), Some(0));
        }
        gateway.none_alive().await;
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn frames_are_never_compressed() {
    let (setup, _folder) = setup("");
    let gateway = setup.start();
    let path = offered(&gateway).await;
    let address = gateway.address();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(head.as_bytes()).await.expect("it is open");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("an answer"));
    }
    let answer = String::from_utf8(answer).expect("text").to_lowercase();
    assert!(answer.starts_with("http/1.1 101"), "{answer}");
    assert!(!answer.contains("sec-websocket-extensions"), "{answer}");
    // A frame with the bit of a compressed message, empty and with a mask of zeros.
    stream
        .write_all(&[0xc2, 0x80, 0, 0, 0, 0])
        .await
        .expect("it is open");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    drop(closed.expect("the gateway closes the connection"));
    // The command has ended, and its place is free.
    let mut socket = Socket::open(&gateway, &offered(&gateway).await).await;
    socket.until("the word: ").await;
}

#[tokio::test]
async fn off_by_default() {
    let gateway = Setup::fake(&["--auth-required"]).start();
    needs_sign_in(&gateway).await;
    gateway
        .posted(AUTH, &[], &json!({ "methodId": "shell" }))
        .await
        .problem(501, "agent_unsupported");
    let log = tempfile::NamedTempFile::new().expect("a file");
    let args = ["--log", log.path().to_str().expect("text")];
    for (entry, offered) in [("", false), ("terminal_auth = true", true)] {
        let gateway = Setup::fake_with(&args, entry).start();
        gateway.session("fake").await;
        let messages = std::fs::read_to_string(log.path()).expect("it is ours");
        let initialize = messages
            .lines()
            .rfind(|line| line.contains("initialize"))
            .expect("the first message");
        let initialize: Value = serde_json::from_str(initialize).expect("JSON");
        assert_eq!(
            initialize["params"]["clientCapabilities"]["auth"],
            json!({ "terminal": offered })
        );
    }
}

#[tokio::test]
async fn a_socket_counts_as_a_connection_for_as_long_as_it_is_open() {
    let (setup, _folder) = setup("");
    let gateway = setup.settings("server.max_connections = 2").start();
    let path = offered(&gateway).await;
    let mut socket = Socket::open(&gateway, &path).await;
    socket.until("the word: ").await;
    // One connection is the socket's, the other that of the calls before it.
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let is_served = || async {
        let mut stream = tokio::net::TcpStream::connect(&address)
            .await
            .expect("it listens");
        let head = format!("GET /livez HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        // A socket that is closed immediately may not accept the request.
        drop(tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes()).await);
        let mut answer = String::new();
        drop(tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await);
        answer.starts_with("HTTP/1.1 200")
    };
    gateway.get("/v1").await;
    assert!(!is_served().await, "a third is one too many");
    socket.close().await;
    eventually("its place is free", Duration::from_secs(10), || async {
        is_served().await.then_some(())
    })
    .await;
}
