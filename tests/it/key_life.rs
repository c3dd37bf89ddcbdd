//! The rights of a key, and the effects of its removal.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::calls::Answer;
use crate::support::gateway::{KEY, KEY_RELOAD_INTERVAL, NO_CONFIG_FILE, command};
use crate::support::places::gateway_program;
use crate::support::{Events, Gateway, Setup, chat_turns, eventually, figure};

/// The body of the request before is charged as soon as the gateway has read it.
const SOON: Duration = Duration::from_secs(10);

/// The tests ask more often than a person may.
const LIMITS: &str =
    "limits.per_key.max_requests_per_minute = 100000\nauth.max_failed_keys_per_minute = 100000\n";

pub(crate) fn key_command(gateway: &Gateway, args: &[&str]) -> String {
    let mut command = command(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .env(KEY_RELOAD_INTERVAL.0, KEY_RELOAD_INTERVAL.1)
        .arg("key")
        .args(args);
    let output = command.output().expect("the binary was built");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim_end()
        .to_owned()
}

/// A new key of the user `owner` that the running gateway knows.
pub(crate) async fn key(gateway: &Gateway, name: &str, scopes: &str) -> String {
    created(
        gateway,
        &["create", name, "--user", "owner", "--scopes", scopes],
    )
    .await
}

/// A new key of a user with the same name that the running gateway knows.
pub(crate) async fn user_key(gateway: &Gateway, name: &str, scopes: &str) -> String {
    created(gateway, &["create", name, "--scopes", scopes]).await
}

/// A new key that the running gateway knows.
pub(crate) async fn created(gateway: &Gateway, args: &[&str]) -> String {
    let key = key_command(gateway, args);
    eventually(
        "the gateway has read its keys again",
        Duration::from_secs(30),
        || async {
            let answer = Answer::of(by(gateway, &key, Method::GET, "/v1")).await;
            (answer.status == 200).then_some(())
        },
    )
    .await;
    key
}

pub(crate) fn by(gateway: &Gateway, key: &str, method: Method, path: &str) -> RequestBuilder {
    gateway
        .http
        .request(method, format!("{}{path}", gateway.url))
        .bearer_auth(key)
}

#[tokio::test]
async fn any_key_can_read_its_own_rights() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    for scope in ["read", "prompt", "approve"] {
        let key = user_key(&gateway, scope, scope).await;
        let answer = Answer::of(by(&gateway, &key, Method::GET, "/v1")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["scopes"]),
            (200, &json!([scope]))
        );
        assert_eq!(answer.body["principal"]["id"], scope);
        let agents = Answer::of(by(&gateway, &key, Method::GET, "/v1/agents")).await;
        assert_eq!(
            agents.status,
            if scope == "read" { 200 } else { 403 },
            "{scope}"
        );
    }
}

#[tokio::test]
async fn frames_of_permitted_origins_are_not_denied_by_another_header() {
    let denied = Setup::fake(&[]).start();
    let permitted = Setup::fake(&[])
        .settings("auth.frame_ancestors = [\"https://app.example\"]")
        .start();
    for (gateway, framing) in [(&denied, Some("DENY")), (&permitted, None)] {
        let page = gateway.http.get(format!("{}/", gateway.url));
        let page = page.send().await.expect("the page");
        let header = |name: &str| {
            let value = page.headers().get(name)?;
            Some(value.to_str().expect("ASCII").to_owned())
        };
        assert_eq!(header("x-frame-options").as_deref(), framing);
        let policy = header("content-security-policy").expect("a policy");
        let ancestors = if framing.is_some() {
            "frame-ancestors 'none'"
        } else {
            "frame-ancestors https://app.example"
        };
        assert!(policy.ends_with(ancestors), "{policy}");
        // Only the page itself may be shown in a frame.
        let api = Answer::of(gateway.http.get(format!("{}/v1", gateway.url))).await;
        assert_eq!(api.header("x-frame-options"), Some("DENY"));
    }
}

#[tokio::test]
async fn files_need_the_scope_of_their_name() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/files");
    for (name, scopes, may) in [
        ("alice", "read,prompt,approve", false),
        ("bob", "files", true),
    ] {
        let key = key(&gateway, name, scopes).await;
        let file = format!("{path}/file");
        for (method, path, status) in [
            (Method::GET, &path, 200),
            (Method::PUT, &file, 201),
            (Method::GET, &file, 200),
            (Method::HEAD, &file, 200),
            (Method::DELETE, &file, 204),
        ] {
            let answer = by(&gateway, &key, method.clone(), path)
                .send()
                .await
                .expect("an answer");
            assert_eq!(
                answer.status().as_u16(),
                if may { status } else { 403 },
                "{name}: {method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn waits_and_streams_end_with_their_key() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    let key = key(&gateway, "bob", "read,prompt").await;
    let path = format!("/v1/sessions/{session}");
    let wait = |method, path: &str| by(&gateway, &key, method, path).header("prefer", "wait=60");
    let posted = wait(Method::POST, &format!("{path}/prompts")).json(&json!({ "prompt": "hang" }));
    let asked = wait(Method::GET, &format!("{path}/prompts/p1"));
    let revoked = async {
        eventually("the turn has begun", Duration::from_secs(20), || async {
            let session = gateway.get_session(&session).await;
            (session["state"] == "running").then_some(())
        })
        .await;
        let stream = by(&gateway, &key, Method::GET, &format!("{path}/events"));
        let stream = stream
            .header("accept", "text/event-stream")
            .send()
            .await
            .expect("an answer");
        let mut stream = Events::new(stream);
        stream.until("ready").await;
        let page = wait(Method::GET, &format!("{path}/events?after=tail"));
        let ends = async {
            key_command(&gateway, &["revoke", "bob"]);
            stream.rest().await
        };
        tokio::join!(Answer::of(asked), Answer::of(page), ends)
    };
    let (posted, (asked, page, frames)) = tokio::join!(Answer::of(posted), revoked);
    for answer in [posted, asked, page] {
        answer.problem(401, "unauthorized");
    }
    let last = frames.last().expect("the stream says why it ends");
    assert!(
        last.of("problem") && last.data["problem"]["code"] == "unauthorized",
        "{last:?}"
    );
    let turn = gateway.get(&format!("{path}/prompts/p1")).await;
    assert_eq!(
        turn["status"], "running",
        "work of an expired key continues"
    );
}

#[tokio::test]
async fn all_streams_of_a_revoked_key_end_within_a_second() {
    const STREAMS: usize = 40;
    /// The gateway reads its keys once a second.
    const RELOAD: Duration = Duration::from_secs(1);
    let default = |_: &Path| vec![(KEY_RELOAD_INTERVAL.0, "1s".into())];
    let gateway = Setup::fake(&[]).settings(LIMITS).start_with(default);
    let revoked = key(&gateway, "bob", "read").await;
    let other = key(&gateway, "ada", "read").await;
    let open = async |key: &str| {
        let stream = by(&gateway, key, Method::GET, "/v1/events/stream");
        let mut stream = Events::new(stream.send().await.expect("an answer"));
        stream.until("ready").await;
        stream
    };
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(open(&revoked).await);
    }
    let mut kept = open(&other).await;
    key_command(&gateway, &["revoke", "bob"]);
    let began = Instant::now();
    for stream in streams {
        let last = stream.rest().await.pop().expect("a last frame");
        assert!(
            last.of("problem") && last.data["problem"]["code"] == "unauthorized",
            "{last:?}"
        );
    }
    let took = began.elapsed();
    figure(&format!(
        "{STREAMS} streams of a revoked key ended {took:?} after the revocation"
    ));
    assert!(took < 2 * RELOAD, "{took:?}");
    gateway.session("fake").await;
    kept.until("session.created").await;
}

#[tokio::test]
async fn a_wait_counts_as_a_stream() {
    let gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}limits.per_key.max_streams = 1"))
        .start();
    let one = gateway.session("fake").await;
    let two = gateway.session("fake").await;
    let turn = format!("/v1/sessions/{one}/prompts/p1");
    let hang: Value = json!({ "prompt": "hang" });
    let path = format!("/v1/sessions/{one}/prompts");
    let held = gateway.posted(&path, &[("prefer", "wait=60")], &hang);
    let others = async {
        eventually("the turn has begun", Duration::from_secs(20), || async {
            (gateway.get_session(&one).await["state"] == "running").then_some(())
        })
        .await;
        let asked = gateway
            .request(Method::GET, &turn)
            .header("prefer", "wait=60");
        Answer::of(asked).await.problem(429, "rate_limited");
        let path = format!("/v1/sessions/{two}/prompts");
        gateway
            .posted(&path, &[("prefer", "wait=60")], &hang)
            .await
            .problem(429, "rate_limited");
        assert_eq!(
            gateway.get(&path).await["prompts"],
            json!([]),
            "nothing has begun"
        );
        assert_eq!(
            gateway.get(&turn).await["status"],
            "running",
            "without a wait all may ask"
        );
        gateway
            .call(Method::POST, &format!("/v1/sessions/{one}/cancel"))
            .await
    };
    let (held, cancelled) = tokio::join!(held, others);
    assert_eq!(
        (held.status.as_u16(), cancelled.status.as_u16()),
        (200, 202)
    );
    assert_eq!(held.body["stopReason"], "cancelled");
    let again = gateway
        .request(Method::GET, &turn)
        .header("prefer", "wait=60");
    assert_eq!(Answer::of(again).await.status, 200);
}

/// The value of `WWW-Authenticate` of a rejected request.
async fn challenge(request: RequestBuilder, status: u16) -> Option<String> {
    let answer = request.send().await.expect("a response");
    assert_eq!(answer.status(), status, "{}", answer.url());
    let value = answer.headers().get("www-authenticate")?;
    Some(value.to_str().expect("text").to_owned())
}

/// The routes that take a body of a prompt, for a key without the scope.
fn prompt_routes(session: &str) -> Vec<String> {
    let chats = chat_turns().map(|(path, _)| path.to_owned());
    let prompts = format!("/v1/sessions/{session}/prompts");
    std::iter::once(prompts).chain(chats).collect()
}

#[tokio::test]
async fn scope_is_checked_before_a_body_arrives() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let reader = key(&gateway, "reader", "read").await;
    let member = key(&gateway, "member", "fleet").await;
    let host = gateway.address();
    let prompts = prompt_routes(&session).into_iter();
    let prompts = prompts.map(|path| (&reader, path));
    for (key, path) in prompts.chain([(&member, "/acp".to_owned())]) {
        let mut socket = TcpStream::connect(host).await.expect("it listens");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: 30000000\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.expect("it is open");
        let mut status = [0; 12];
        let read = tokio::time::timeout(Duration::from_secs(20), socket.read_exact(&mut status));
        read.await
            .expect("at once")
            .expect("the head of a response");
        assert_eq!(&status, b"HTTP/1.1 403", "{path}");
    }
}

#[tokio::test]
async fn body_beyond_the_memory_of_its_key_is_rejected_with_the_name_of_the_limit() {
    let gateway = Setup::fake(&[])
        .settings("server.max_body_memory_bytes = \"4MiB\"")
        .start();
    let session = gateway.session("fake").await;
    let text = "x".repeat(600 << 10);
    let host = gateway.address();
    let mut open = TcpStream::connect(host).await.expect("it listens");
    let head = format!(
        "POST /v1/sessions/{session}/prompts HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: 900000\r\n\r\n{text}"
    );
    open.write_all(head.as_bytes()).await.expect("it is open");
    for path in prompt_routes(&session) {
        let answer = eventually("the open body is charged", SOON, || async {
            let request = by(&gateway, KEY, Method::POST, &path);
            let answer = request.json(&json!({ "prompt": text })).send().await;
            let answer = answer.expect("an answer");
            (answer.status() == 429).then_some(answer)
        })
        .await;
        // Errors of the AI SDK are texts.
        let answer = answer.text().await.expect("a body");
        let limit = "a quarter of `server.max_body_memory_bytes`";
        assert!(answer.contains(limit), "{path}: {answer}");
    }
}

#[tokio::test]
async fn challenges_name_the_error_and_the_scope() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let reader = key(&gateway, "reader", "read").await;
    let prompter = key(&gateway, "prompter", "read,prompt").await;
    let invalid = "Bearer realm=\"acp-gateway\", error=\"invalid_token\"";
    // Each surface: REST, the remote transport of ACP, and the chat protocols.
    for path in [
        "/v1",
        "/v1/sessions",
        "/acp",
        "/openai/v1/models",
        "/ag-ui/fake",
    ] {
        let get = || gateway.http.get(format!("{}{path}", gateway.url));
        let without_key = challenge(get(), 401).await;
        assert_eq!(
            without_key.as_deref(),
            Some("Bearer realm=\"acp-gateway\""),
            "{path}"
        );
        let wrong_key = challenge(get().bearer_auth("wrong"), 401).await;
        assert_eq!(wrong_key.as_deref(), Some(invalid), "{path}");
    }
    let wrong_ticket = gateway
        .http
        .get(format!("{}/v1/events?ticket=wrong", gateway.url));
    assert_eq!(challenge(wrong_ticket, 401).await.as_deref(), Some(invalid));

    let chat = json!({ "model": "fake", "messages": [{ "role": "user", "content": "hi" }] });
    let with_mode = json!({ "agent": "fake", "modeId": "ask" });
    let adopting = json!({ "agent": "fake", "agentSessionId": "x" });
    for (key, path, body, scope) in [
        (
            &reader,
            "/v1/sessions",
            json!({ "agent": "fake" }),
            "prompt",
        ),
        (&reader, "/openai/v1/chat/completions", chat, "prompt"),
        (&prompter, "/v1/sessions", with_mode, "approve"),
        (&prompter, "/v1/sessions", adopting, "admin"),
        (
            &prompter,
            "/v1/tickets",
            json!({ "paths": ["/v1/agents/fake/auth/terminals/00000000-0000-7000-8000-000000000000"] }),
            "admin",
        ),
    ] {
        let asked = by(&gateway, key, Method::POST, path).json(&body);
        let found = challenge(asked, 403).await;
        let expected = format!(
            "Bearer realm=\"acp-gateway\", error=\"insufficient_scope\", scope=\"{scope}\""
        );
        assert_eq!(found, Some(expected), "{path} {body}");
        let again = Answer::of(by(&gateway, key, Method::POST, path).json(&body)).await;
        assert_eq!(again.body["requiredScope"], scope);
    }
}
