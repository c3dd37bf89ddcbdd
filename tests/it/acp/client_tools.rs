//! Files and terminals that the client of a turn serves for the agent.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};

use super::raw::{Acp, Messages, chunks, initialize};
use super::socket::Socket;
use crate::key_life::key;
use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup};

const BY_GATEWAY: &str = "files = \"gateway\"\nterminals = \"gateway\"";
const BY_CLIENTS: &str = "files = \"client\"\nterminals = \"client\"";
const READ: &str = "fs/read_text_file";
const CREATE: &str = "terminal/create";

fn capable() -> Value {
    json!({ "clientCapabilities": { "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true } })
}

fn named(name: &str) -> Value {
    let mut params = capable();
    params["_meta"] = json!({ "acp-gateway": { "client": name } });
    params
}

fn gateway(entry: &str) -> Gateway {
    Setup::fake_with(&[], entry).start()
}

async fn resume(acp: &mut Acp<'_>, session: &str) -> Messages {
    let mut messages = acp.stream(Some(session), None).await;
    let id = acp
        .send(
            "session/resume",
            json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
        )
        .await;
    assert!(messages.response(id).await["error"].is_null());
    messages
}

async fn answer(acp: &Acp<'_>, request: &Value, result: Value) {
    acp.post(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
        .await;
}

/// A file in the session's folder, and the prompt that reads it.
async fn file(gateway: &Gateway, session: &str) -> (PathBuf, String) {
    let cwd = gateway.get_session(session).await["cwd"]
        .as_str()
        .expect("a folder")
        .to_owned();
    let path = PathBuf::from(cwd).join("a.txt");
    std::fs::write(&path, "on disk").expect("a file");
    let prompt = format!("read path={}", path.display());
    (path, prompt)
}

/// The text of the turn with this request.
async fn text(messages: &mut Messages, prompt: u64) -> String {
    let seen = messages.until(|message| message["id"] == prompt).await;
    assert_eq!(
        seen.last().expect("the response")["result"]["stopReason"],
        "end_turn",
        "{seen:?}"
    );
    chunks(&seen).concat()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

#[tokio::test]
async fn client_of_a_turn_serves_files_and_terminals_instead_of_the_gateway() {
    for entry in [BY_GATEWAY, BY_CLIENTS] {
        let gateway = gateway(entry);
        let mut acp = Acp::open_with(&gateway, KEY, &capable()).await;
        let (session, mut messages) = acp.session().await;
        let prompt = acp
            .prompt(
                &session,
                "read path=/editor/a line=3; write path=/editor/b text=new",
            )
            .await;
        let read = messages.request(READ).await;
        assert_eq!(read["id"], format!("{session}:r1"));
        assert_eq!(
            read["params"],
            json!({ "sessionId": session, "path": "/editor/a", "line": 3 })
        );
        answer(&acp, &read, json!({ "content": "unsaved" })).await;
        let first = messages
            .until(|message| message["method"] == "fs/write_text_file")
            .await;
        assert_eq!(chunks(&first), ["[unsaved]"]);
        let write = first.last().expect("the request");
        assert_eq!(
            write["params"],
            json!({ "sessionId": session, "path": "/editor/b", "content": "new" })
        );
        answer(&acp, write, Value::Null).await;
        assert_eq!(text(&mut messages, prompt).await, "[written]");

        let steps =
            json!([{ "create": { "command": "make" } }, "wait", "output", "kill", "release"]);
        let prompt = acp.prompt(&session, &format!("terminal {steps}")).await;
        let exit = json!({ "exitCode": 0 });
        for (method, result) in [
            (CREATE, json!({ "terminalId": "edit-1" })),
            ("terminal/wait_for_exit", exit.clone()),
            (
                "terminal/output",
                json!({ "output": "ok", "truncated": false, "exitStatus": exit }),
            ),
            ("terminal/kill", json!({})),
            ("terminal/release", json!({})),
        ] {
            let request = messages.request(method).await;
            let named = if method == CREATE {
                &request["params"]["command"]
            } else {
                &request["params"]["terminalId"]
            };
            assert_eq!(
                named,
                if method == CREATE { "make" } else { "edit-1" },
                "{request}"
            );
            answer(&acp, &request, result).await;
        }
        assert_eq!(text(&mut messages, prompt).await, "release {}\n");

        let events = gateway.lawful(&session).await;
        let name = format!("owner/{}", acp.id);
        for kind in ["request.created", "request.resolved"] {
            let requests = of_kind(&events, kind);
            assert_eq!(requests.len(), 7);
            assert!(
                requests.iter().all(|event| event["acpClient"] == name),
                "{requests:?}"
            );
        }
        assert!(
            of_kind(&events, "terminal.created").is_empty(),
            "no command runs here"
        );
    }
}

#[tokio::test]
async fn only_the_client_of_the_turn_gets_and_answers_its_requests() {
    let gateway = gateway(BY_CLIENTS);
    let mut acp = Acp::open_with(&gateway, KEY, &capable()).await;
    let (session, mut messages) = acp.session().await;
    let mut other = Acp::open_with(&gateway, KEY, &capable()).await;
    let mut others = resume(&mut other, &session).await;
    let prompt = acp.prompt(&session, "read path=/editor/a").await;
    let request = messages.request(READ).await;
    let pending = gateway.get_session(&session).await["requests"][0].clone();
    assert_eq!(
        pending["acpClient"],
        format!("owner/{}", acp.id),
        "{pending}"
    );
    let path = format!("/v1/sessions/{session}/requests/r1");
    let (status, problem) = gateway
        .post(&path, &json!({ "result": { "content": "from REST" } }))
        .await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (403, &json!("forbidden")),
        "{problem}"
    );
    answer(
        &other,
        &request,
        json!({ "content": "from another client" }),
    )
    .await;
    // A connection that resumes the session does not get the open request either.
    let mut third = Acp::open_with(&gateway, KEY, &capable()).await;
    let mut thirds = resume(&mut third, &session).await;
    answer(&acp, &request, json!({ "content": "mine" })).await;
    assert_eq!(text(&mut messages, prompt).await, "[mine]");
    for stream in [&mut others, &mut thirds] {
        let seen = stream
            .until(|message| chunks(std::slice::from_ref(message)) == ["[mine]"])
            .await;
        let is_about_it =
            |message: &Value| message["method"] == READ || message["method"] == "$/cancel_request";
        assert!(!seen.iter().any(is_about_it), "{seen:?}");
    }
}

#[tokio::test]
async fn error_of_the_client_reaches_the_agent() {
    let gateway = gateway(BY_GATEWAY);
    let mut acp = Acp::open_with(&gateway, KEY, &capable()).await;
    let (session, mut messages) = acp.session().await;
    for code in [-32002, -32601] {
        let prompt = acp.prompt(&session, "read path=/editor/a").await;
        let request = messages.request(READ).await;
        let error = json!({ "code": code, "message": "no" });
        acp.post(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }))
            .await;
        assert_eq!(text(&mut messages, prompt).await, format!("[error {code}]"));
    }
}

#[tokio::test]
async fn client_without_the_scope_or_the_capability_gets_no_request() {
    let gateway = gateway(BY_GATEWAY);
    let weak = key(&gateway, "weak", "read,prompt,approve").await;
    let read_only = json!({ "clientCapabilities": { "fs": { "readTextFile": true } } });
    for (key, params, expected) in [
        (weak.as_str(), capable(), "[on disk]"),
        (KEY, json!({}), "[on disk]"),
        (KEY, read_only, "[unsaved]"),
    ] {
        let mut acp = Acp::open_with(&gateway, key, &params).await;
        let (session, mut messages) = acp.session().await;
        let (path, read) = file(&gateway, &session).await;
        let prompt = acp
            .prompt(
                &session,
                &format!("{read}; write path={} text=new", path.display()),
            )
            .await;
        if expected == "[unsaved]" {
            let request = messages.request(READ).await;
            answer(&acp, &request, json!({ "content": "unsaved" })).await;
        }
        assert_eq!(
            text(&mut messages, prompt).await,
            format!("{expected}[written]"),
            "{params}"
        );
        assert_eq!(
            std::fs::read_to_string(&path).expect("the file"),
            "new",
            "the gateway writes"
        );
    }
}

#[tokio::test]
async fn off_in_the_entry_wins_over_the_client() {
    let gateway = gateway("");
    let mut acp = Acp::open_with(&gateway, KEY, &capable()).await;
    let (session, mut messages) = acp.session().await;
    let steps = json!([{ "create": { "command": "make" } }]);
    for (words, expected) in [
        ("read path=/editor/a".to_owned(), "[error -32601]"),
        ("write path=/editor/a text=x".to_owned(), "[error -32601]"),
        (format!("terminal {steps}"), "create error -32601\n"),
    ] {
        let prompt = acp.prompt(&session, &words).await;
        let seen = messages.until(|message| message["id"] == prompt).await;
        assert_eq!(chunks(&seen).concat(), expected);
        assert!(
            seen.iter()
                .all(|message| message["method"].is_null() || message["id"].is_null()),
            "{seen:?}"
        );
    }
    assert!(of_kind(&gateway.all_events(&session).await, "request.created").is_empty());
}

#[tokio::test]
async fn turn_of_a_rest_client_uses_the_policy() {
    let gateway = gateway(BY_GATEWAY);
    let mut acp = Acp::open_with(&gateway, KEY, &capable()).await;
    let (session, mut messages) = acp.session().await;
    let (_, read) = file(&gateway, &session).await;
    let prompt = acp.prompt(&session, &read).await;
    let request = messages.request(READ).await;
    answer(&acp, &request, json!({ "content": "unsaved" })).await;
    assert_eq!(text(&mut messages, prompt).await, "[unsaved]");
    assert_eq!(gateway.turn(&session, &read).await["text"], "[on disk]");
}

#[tokio::test]
async fn queued_prompt_is_served_by_its_own_client() {
    let gateway = gateway(BY_GATEWAY);
    let mut first = Acp::open_with(&gateway, KEY, &capable()).await;
    let (session, mut one) = first.session().await;
    let mut second = Acp::open_with(&gateway, KEY, &capable()).await;
    let mut two = resume(&mut second, &session).await;
    let of_first = first.prompt(&session, "read path=/editor/a").await;
    let request = one.request(READ).await;
    let of_second = second.prompt(&session, "read path=/editor/b").await;
    answer(&first, &request, json!({ "content": "a" })).await;
    let request = two.request(READ).await;
    assert_eq!(request["params"]["path"], "/editor/b");
    answer(&second, &request, json!({ "content": "b" })).await;
    assert_eq!(text(&mut one, of_first).await, "[a]");
    let seen = two.until(|message| message["id"] == of_second).await;
    assert_eq!(chunks(&seen), ["[b]"]);
}

/// A client over a WebSocket with a new session.
async fn on_socket(gateway: &Gateway) -> (Socket, String) {
    let mut socket = Socket::connect(gateway, "/acp", &[]).await;
    socket.send(&initialize(0, &capable())).await;
    assert_eq!(socket.next().await["result"]["protocolVersion"], 1);
    let params = json!({ "cwd": "", "mcpServers": [] });
    socket
        .send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params }))
        .await;
    let created = socket.next().await;
    let session = created["result"]["sessionId"]
        .as_str()
        .unwrap_or_else(|| panic!("{created}"))
        .to_owned();
    (socket, session)
}

/// Sends a prompt and waits for a request of the agent.
async fn until_request(socket: &mut Socket, session: &str, words: &str, method: &str) -> Value {
    let prompt = json!([{ "type": "text", "text": words }]);
    let params = json!({ "sessionId": session, "prompt": prompt });
    socket
        .send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params }))
        .await;
    loop {
        let message = socket.next().await;
        if message["method"] == method {
            return message;
        }
    }
}

async fn ended(gateway: &Gateway, session: &str) -> Vec<Value> {
    gateway
        .log_until(session, |event| event["type"] == "prompt.completed")
        .await;
    gateway.lawful(session).await
}

fn said(events: &[Value]) -> String {
    let updates = of_kind(events, "session.update");
    updates
        .iter()
        .filter_map(|event| event["update"]["content"]["text"].as_str())
        .collect()
}

#[tokio::test]
async fn gateway_serves_the_open_file_request_of_a_disconnected_client() {
    let gateway = gateway(BY_GATEWAY);
    let (mut socket, session) = on_socket(&gateway).await;
    let (_, read) = file(&gateway, &session).await;
    until_request(&mut socket, &session, &format!("{read}; {read}"), READ).await;
    drop(socket);
    let events = ended(&gateway, &session).await;
    assert_eq!(said(&events), "[on disk][on disk]");
    assert_eq!(
        of_kind(&events, "request.created").len(),
        1,
        "the policy applies to the next one"
    );
    let resolved = of_kind(&events, "request.resolved");
    assert_eq!(resolved[0]["resolution"], "disconnected");
    let reason = resolved[0]["error"]["message"].as_str().expect("a reason");
    assert!(reason.contains("disconnected"), "{reason}");
}

#[tokio::test]
async fn open_terminal_request_of_a_disconnected_client_fails_with_the_reason() {
    let gateway = gateway(BY_GATEWAY);
    let (mut socket, session) = on_socket(&gateway).await;
    let steps = json!([{ "create": { "command": "sh", "args": ["-c", "echo here"] } }, { "create": { "command": "true" } }]);
    until_request(&mut socket, &session, &format!("terminal {steps}"), CREATE).await;
    drop(socket);
    let events = ended(&gateway, &session).await;
    assert_eq!(
        said(&events),
        "create error -32603\ncreate {\"terminalId\":\"t1\"}\n"
    );
    assert_eq!(
        of_kind(&events, "request.resolved")[0]["resolution"],
        "disconnected"
    );
    let created = of_kind(&events, "terminal.created");
    assert_eq!(
        (created.len(), &created[0]["command"]),
        (1, &json!("true")),
        "a command runs at most once"
    );
}

#[tokio::test]
async fn other_clients_get_the_open_file_request_if_the_policy_is_client() {
    let gateway = gateway(BY_CLIENTS);
    let mut acp = Acp::open_with(&gateway, KEY, &capable()).await;
    let (session, mut messages) = acp.session().await;
    acp.prompt(&session, "read path=/editor/a").await;
    messages.request(READ).await;
    let mut other = Acp::open_with(&gateway, KEY, &capable()).await;
    let mut others = resume(&mut other, &session).await;
    assert_eq!(
        acp.head(Method::DELETE)
            .send()
            .await
            .expect("a response")
            .status()
            .as_u16(),
        202
    );
    let request = others.request(READ).await;
    assert_eq!(request["id"], format!("{session}:r2"));
    answer(&other, &request, json!({ "content": "from the other" })).await;
    let events = ended(&gateway, &session).await;
    assert_eq!(said(&events), "[from the other]");
    let created = of_kind(&events, "request.created");
    assert!(created[1]["acpClient"].is_null(), "{created:?}");
}

#[tokio::test]
async fn client_that_returns_with_its_name_gets_the_open_request_again() {
    let name = named("0193b2c4-6f1e-7d3a-9c55-2f8e4b7a1c90");
    let gateway = gateway(BY_GATEWAY);
    let mut acp = Acp::open_with(&gateway, KEY, &name).await;
    let (session, mut messages) = acp.session().await;
    acp.prompt(&session, "read path=/editor/a").await;
    let request = messages.request(READ).await;
    drop(messages);
    let mut again = Acp::open_with(&gateway, KEY, &name).await;
    let mut messages = again.stream(Some(&session), None).await;
    again
        .send(
            "session/resume",
            json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
        )
        .await;
    assert_eq!(
        messages.request(READ).await,
        request,
        "a replay has the same messages"
    );
    answer(&again, &request, json!({ "content": "back" })).await;
    messages
        .until(|message| chunks(std::slice::from_ref(message)) == ["[back]"])
        .await;
    let events = ended(&gateway, &session).await;
    assert_eq!(of_kind(&events, "request.created").len(), 1);
}

#[tokio::test]
async fn terminal_stays_at_the_client_that_runs_it() {
    let gateway = gateway(BY_GATEWAY);
    let (mut socket, session) = on_socket(&gateway).await;
    // The client chooses the id that the gateway would give to its first terminal.
    let steps = json!([{ "create": { "command": "make" } }]);
    let request = until_request(&mut socket, &session, &format!("terminal {steps}"), CREATE).await;
    let result = json!({ "terminalId": "t1" });
    socket
        .send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
        .await;
    ended(&gateway, &session).await;
    let output = json!([{ "create": { "command": "true" } }, { "output": { "terminalId": "t1" } }]);
    let prompted = gateway
        .prompt(&session, &format!("terminal {output}"))
        .await;
    assert_eq!(prompted["promptId"], "p2", "{prompted}");
    let request = loop {
        let message = socket.next().await;
        if message["method"] == "terminal/output" {
            break message;
        }
    };
    let result = json!({ "output": "of the editor", "truncated": false });
    socket
        .send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
        .await;
    gateway
        .log_until(&session, |event| {
            event["type"] == "prompt.completed" && event["promptId"] == "p2"
        })
        .await;
    let events = gateway.lawful(&session).await;
    assert_eq!(
        of_kind(&events, "terminal.created")[0]["terminalId"],
        "t2",
        "no two terminals have one id"
    );
    assert!(said(&events).contains("of the editor"), "{}", said(&events));
    drop(socket);
    let text = gateway
        .turn(
            &session,
            &format!("terminal {}", json!([{ "output": { "terminalId": "t1" } }])),
        )
        .await;
    assert_eq!(text["text"], "output error -32603\n");
}
