//! Invalid input: the response is a problem with the right code, and nothing starts.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup, chat_turns};

async fn problem(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let media = response.headers().get("content-type").cloned();
    let text = response.text().await.expect("a body");
    assert_eq!(media.expect("a type"), "application/problem+json", "{text}");
    let problem: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(problem["status"], status.as_u16());
    (status, problem)
}

fn post(gateway: &Gateway, path: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
    gateway
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .body(body)
}

#[tokio::test]
async fn invalid_body_starts_nothing() {
    let gateway = Setup::fake(&[]).start();
    let deep = format!(
        r#"{{"agent":"fake","metadata":{}{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    for (body, status, code, pointer) in [
        ("", 400, "malformed", None),
        ("{\"agent\":", 400, "malformed", None),
        ("{\"agent\":\"fake\"}}", 400, "malformed", None),
        ("{\"agent\":\"\u{0}\"}", 400, "malformed", None),
        ("[]", 422, "invalid", Some("")),
        ("{}", 422, "invalid", Some("/agent")),
        (r#"{"agent":7}"#, 422, "invalid", Some("/agent")),
        (r#"{"agent":"../x"}"#, 422, "invalid", Some("/agent")),
        (r#"{"agent":"nobody"}"#, 422, "invalid", Some("/agent")),
        (
            r#"{"agent":"fake","command":"sh"}"#,
            422,
            "invalid",
            Some("/command"),
        ),
        (
            r#"{"agent":"fake","env":{"A":"b"}}"#,
            422,
            "invalid",
            Some("/env"),
        ),
        (
            r#"{"agent":"fake","policy":{"files":"all"}}"#,
            422,
            "invalid",
            Some("/policy/files"),
        ),
        (deep.as_str(), 422, "invalid", Some("")),
    ] {
        let (got, problem) = problem(post(&gateway, "/v1/sessions", body.to_owned())).await;
        let body = &body[..body.len().min(60)];
        assert_eq!(
            (got.as_u16(), problem["code"].as_str()),
            (status, Some(code)),
            "{body}: {problem}"
        );
        if let Some(pointer) = pointer {
            assert_eq!(
                problem["errors"][0]["pointer"], pointer,
                "{body}: {problem}"
            );
        }
    }
    let (status, problem) = problem(post(
        &gateway,
        "/v1/sessions",
        b"{\"agent\":\"\xff\"}".to_vec(),
    ))
    .await;
    assert_eq!(
        (status.as_u16(), problem["code"].as_str()),
        (400, Some("malformed"))
    );
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    assert_eq!(gateway.get("/v1/agents/fake").await["pool"]["processes"], 0);
}

#[tokio::test]
async fn a_fault_of_ours_is_in_the_log_under_its_requests_id() {
    let gateway = Setup::fake(&[]).start();
    let folders = gateway.path("data/workspaces");
    std::fs::remove_dir(&folders).expect("it is empty");
    std::fs::write(&folders, "no folder can be made in it").expect("the place is free");
    let request =
        post(&gateway, "/v1/sessions", r#"{"agent":"fake"}"#).header("x-request-id", "find-me.1");
    let (status, problem) = problem(request).await;
    assert_eq!(
        (status.as_u16(), problem["code"].as_str()),
        (500, Some("internal"))
    );
    assert_eq!(problem["instance"], "/v1/sessions#find-me.1");
    let log = gateway.log();
    let faults = log
        .lines()
        .filter(|line| line.contains("ERROR"))
        .collect::<Vec<_>>();
    assert!(
        faults.iter().any(|line| line.contains("find-me.1")),
        "{log}"
    );
}

#[tokio::test]
async fn each_500_of_each_surface_writes_its_instance_to_the_log() {
    let gateway = Setup::fake(&[]).start();
    let folders = gateway.path("data/workspaces");
    std::fs::remove_dir(&folders).expect("it is empty");
    std::fs::write(&folders, "no folder can be made in it").expect("the place is free");
    let creation = ("/v1/sessions", json!({ "agent": "fake" }));
    let requests = std::iter::once(creation).chain(chat_turns());
    for (at, (path, body)) in requests.enumerate() {
        let instance = format!("surface.{at}");
        let answer = gateway
            .request(Method::POST, path)
            .header("x-request-id", &instance)
            .json(&body)
            .send()
            .await
            .expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a body");
        assert_eq!(status, 500, "{path}: {text}");
        let log = gateway.log();
        let own = log
            .lines()
            .filter(|line| line.contains("instance") && line.contains(&instance));
        assert_eq!(own.count(), 1, "{path}: {log}");
    }
}

#[tokio::test]
async fn if_match_accepts_a_list_of_revisions() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}");
    let patched = async |tags: &[&str]| {
        let mut request = gateway
            .request(Method::PATCH, &path)
            .json(&json!({ "metadata": { "at": tags } }));
        for tags in tags {
            request = request.header("if-match", *tags);
        }
        request.send().await.expect("an answer").status().as_u16()
    };
    let tag = async || format!("\"r{}\"", gateway.get(&path).await["revision"]);
    let stale = tag().await;
    assert_eq!(patched(&[&format!("\"x,y\", {}", tag().await)]).await, 200);
    assert_eq!(patched(&[&stale]).await, 412);
    assert_eq!(patched(&[&stale, &tag().await]).await, 200);
    assert_eq!(
        patched(&[&format!("W/{}", tag().await)]).await,
        412,
        "the comparison is strong"
    );
    assert_eq!(patched(&["*"]).await, 200);
}

#[tokio::test]
async fn a_client_that_brings_a_command_is_forbidden() {
    let gateway = Setup::fake(&[]).start();
    for server in [
        json!({ "name": "x", "command": "/bin/sh", "args": ["-c", "id"], "env": [] }),
        json!({ "type": "http", "name": "x", "url": "http://169.254.169.254/", "headers": [] }),
    ] {
        let body = json!({ "agent": "fake", "mcpServers": [server] });
        let (status, problem) =
            problem(gateway.request(Method::POST, "/v1/sessions").json(&body)).await;
        assert_eq!(
            (status.as_u16(), problem["code"].as_str()),
            (403, Some("forbidden")),
            "{problem}"
        );
    }
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
}

#[tokio::test]
async fn body_must_be_json_within_the_limit() {
    let gateway = Setup::fake(&[])
        .settings("server.max_body_bytes = \"4KiB\"\nserver.max_prompt_bytes = \"8KiB\"")
        .start();
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
    ] {
        let request = gateway
            .request(Method::POST, "/v1/sessions")
            .header("content-type", media);
        let (status, problem) = problem(request.body(r#"{"agent":"fake"}"#)).await;
        assert_eq!(
            (status.as_u16(), problem["code"].as_str()),
            (415, Some("unsupported_media_type")),
            "{media}"
        );
    }
    let (status, problem) = problem(gateway.request(Method::POST, "/v1/sessions").body("{}")).await;
    assert_eq!(
        (status.as_u16(), problem["code"].as_str()),
        (415, Some("unsupported_media_type"))
    );

    let large = json!({ "paths": ["x".repeat(5000)] }).to_string();
    let chunked =
        reqwest::Body::wrap_stream(tokio_stream::iter([Ok::<_, std::io::Error>(large.clone())]));
    let session = json!({ "agent": "fake", "prompt": "x".repeat(9000) }).to_string();
    for (path, body) in [
        ("/v1/tickets", reqwest::Body::from(large)),
        ("/v1/tickets", chunked),
        ("/v1/sessions", reqwest::Body::from(session)),
    ] {
        let (status, problem) = self::problem(post(&gateway, path, body)).await;
        assert_eq!(
            (status.as_u16(), problem["code"].as_str()),
            (413, Some("too_large")),
            "{problem}"
        );
    }
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/prompts");
    let (status, problem) = self::problem(post(
        &gateway,
        &path,
        json!({ "prompt": "x".repeat(9000) }).to_string(),
    ))
    .await;
    assert_eq!(
        (status.as_u16(), problem["code"].as_str()),
        (413, Some("too_large")),
        "{problem}"
    );
    let turn = gateway.turn(&session, &"x".repeat(6000)).await;
    assert_eq!(
        turn["status"], "completed",
        "a prompt may be larger than other bodies"
    );
}

#[tokio::test]
async fn invalid_ids_and_invalid_queries_have_different_errors() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    for path in [
        "/v1/sessions/nonsense".to_owned(),
        format!("/v1/sessions/{}", session.to_uppercase()),
        format!("/v1/sessions/{session}%00"),
        format!("/v1/sessions/{session}/prompts/p0"),
        format!("/v1/sessions/{session}/prompts/p%0a1"),
        format!("/v1/sessions/{session}/prompts/p99999999999"),
        format!("/v1/sessions/{session}/nothing"),
        "/v1/agents/A".to_owned(),
        "/v1/nothing".to_owned(),
        "/index.html".to_owned(),
    ] {
        let (status, problem) = problem(gateway.request(Method::GET, &path)).await;
        assert_eq!(
            (status.as_u16(), problem["code"].as_str()),
            (404, Some("not_found")),
            "{path}"
        );
    }
    for (query, pointer) in [
        ("?limit=0", "limit"),
        ("?limit=201", "limit"),
        ("?limit=x", "limit"),
        ("?limit=1&limit=2", "limit"),
        ("?state=busy", "state"),
        ("?agent=A%20b", "agent"),
        ("?bogus=1", "bogus"),
    ] {
        let (status, problem) =
            problem(gateway.request(Method::GET, &format!("/v1/sessions{query}"))).await;
        assert_eq!(
            (status.as_u16(), &problem["errors"][0]["pointer"]),
            (422, &json!(pointer)),
            "{query}: {problem}"
        );
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.starts_with(&format!("{pointer}: ")), "{detail}");
    }
}

#[tokio::test]
async fn other_methods_list_the_allowed_ones_and_echo_the_request_id() {
    let gateway = Setup::fake(&[]).start();
    let response = gateway
        .request(Method::PUT, "/v1/sessions")
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let allow = response.headers()["allow"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");

    let request = gateway
        .request(Method::GET, "/v1/nothing")
        .header("x-request-id", "trace-42_a.b");
    assert_eq!(
        problem(request).await.1["instance"],
        "/v1/nothing#trace-42_a.b"
    );
    for insane in ["a b", &"x".repeat(200), "<script>"] {
        let request = gateway
            .request(Method::GET, "/v1/nothing")
            .header("x-request-id", insane);
        let instance = problem(request).await.1["instance"].clone();
        let id = instance
            .as_str()
            .expect("text")
            .strip_prefix("/v1/nothing#");
        assert_ne!(id.expect("an id"), insane);
    }
}

#[tokio::test]
async fn limits_of_a_key_are_429_with_retry_after() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_requests_per_minute = 5\nlimits.per_key.max_streams = 1")
        .start();
    let mut last = gateway
        .request(Method::GET, "/v1")
        .send()
        .await
        .expect("an answer");
    for _ in 0..10 {
        last = gateway
            .request(Method::GET, "/v1")
            .send()
            .await
            .expect("an answer");
    }
    assert_eq!(last.status(), StatusCode::TOO_MANY_REQUESTS);
    let after: u64 = last.headers()["retry-after"]
        .to_str()
        .expect("text")
        .parse()
        .expect("seconds");
    assert!((1..=60).contains(&after));
    let problem: Value = last.json().await.expect("JSON");
    assert_eq!(
        (&problem["code"], &problem["retryable"]),
        (&json!("rate_limited"), &json!(true))
    );

    // An EventSource never reconnects after such a status, so the stream reports it.
    let mut stream = gateway.events("/v1/events").await;
    let frame = stream.next().await.expect("a frame");
    assert_eq!(
        (&frame.data["type"], &frame.data["problem"]["code"]),
        (&json!("problem"), &json!("rate_limited"))
    );
    assert!(stream.retry.is_some_and(|retry| retry >= 1000));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn internal_error_is_logged_with_the_request_id() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let prompts = format!("/v1/sessions/{session}/prompts");
    let begin = |id: &str| {
        let request = post(&gateway, &prompts, r#"{"prompt":"Hello"}"#);
        request
            .header("idempotency-key", "once")
            .header("prefer", "wait=60")
            .header("x-request-id", id)
    };
    assert_eq!(
        begin("first").send().await.expect("an answer").status(),
        StatusCode::OK
    );
    let store = rusqlite::Connection::open(gateway.path("data/private/log.sqlite"))
        .expect("the gateway's store");
    let damaged = store
        .execute("UPDATE record SET value = x'00' WHERE tbl IN (3, 6)", [])
        .expect("a second writer");
    assert_eq!(damaged, 2, "the turn and its key");

    let read = gateway
        .request(Method::GET, &format!("{prompts}/p1"))
        .header("x-request-id", "a-read");
    // The second is answered by a task that outlives its request.
    for (id, path, request) in [
        ("a-read", format!("{prompts}/p1"), read),
        ("a-retry", prompts.clone(), begin("a-retry")),
    ] {
        let (status, problem) = problem(request).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{problem}");
        assert_eq!(
            (&problem["code"], &problem["instance"]),
            (&json!("internal"), &json!(format!("{path}#{id}")))
        );
        let log = gateway.log();
        let of_it: Vec<&str> = log.lines().filter(|line| line.contains(id)).collect();
        assert!(
            of_it.iter().any(|line| line.contains("expected value")),
            "{id}: {of_it:?}"
        );
        assert!(!problem.to_string().contains("expected value"), "{problem}");
    }
}

#[tokio::test]
async fn client_that_writes_its_whole_body_first_receives_413() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/files/large");
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("POST", "/openai/v1/chat/completions"),
        ("POST", "/acp"),
        ("PUT", path.as_str()),
    ] {
        let host = gateway.address();
        let mut socket = tokio::net::TcpStream::connect(host)
            .await
            .expect("it listens");
        let bytes = 33 << 20;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
             content-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.expect("it reads");
        let written = socket.write_all(&vec![b' '; bytes]).await;
        written.unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
        assert!(answer.contains("larger than"), "{path}: {answer}");
    }
}
