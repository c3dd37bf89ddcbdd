//! The draft of `session/attach` and `session/detach`: roles, histories, and the updates about other clients.

use serde_json::{Value, json};

use super::raw::{Acp, Messages, chunks};
use super::socket::Socket;
use crate::key_life::key;
use crate::support::gateway::KEY;
use crate::support::{Gateway, Setup};

const PERMISSION: &str = "session/request_permission";

/// The params of `initialize` of a client that asks for the draft.
fn asks(name: &str) -> Value {
    json!({ "clientInfo": { "name": name, "version": "1" }, "_meta": { "acp-gateway": { "attach": true } } })
}

async fn open<'a>(gateway: &'a Gateway, name: &str) -> Acp<'a> {
    Acp::open_with(gateway, KEY, &asks(name)).await
}

/// Attaches with an open stream. Returns the messages up to the response.
async fn attach(
    acp: &mut Acp<'_>,
    session: &str,
    role: &str,
    policy: &str,
) -> (Messages, Vec<Value>) {
    let mut messages = acp.stream(Some(session), None).await;
    let params = json!({ "sessionId": session, "role": role, "historyPolicy": policy });
    let id = acp.send("session/attach", params).await;
    let seen = messages.until(|message| message["id"] == id).await;
    assert!(seen.last().expect("it")["error"].is_null(), "{seen:?}");
    (messages, seen)
}

/// The updates of the draft with this type.
fn drafts<'a>(messages: &'a [Value], kind: &str) -> Vec<&'a Value> {
    messages
        .iter()
        .map(|message| &message["params"]["update"])
        .filter(|own| own["type"] == kind)
        .collect()
}

fn is_draft(message: &Value, kind: &str) -> bool {
    message["params"]["update"]["type"] == kind
}

#[tokio::test]
async fn only_clients_that_ask_get_the_draft() {
    let gateway = Setup::fake(&[]).start();
    let mut plain = Acp::open(&gateway).await;
    let (session, mut messages) = plain.session().await;
    for method in ["session/attach", "session/detach"] {
        let id = plain.send(method, json!({ "sessionId": session })).await;
        let mut connection = plain.stream(None, None).await;
        // The error of an attach is on the stream of the session, as that of a load.
        let stream = if method == "session/attach" {
            &mut messages
        } else {
            &mut connection
        };
        let error = &stream.response(id).await["error"];
        assert_eq!(error["code"], -32003, "{error}");
        assert!(
            error["message"].as_str().expect("a text").contains("_meta"),
            "{error}"
        );
    }
    let mut asked = open(&gateway, "dashboard").await;
    let (_other, _) = attach(&mut asked, &session, "controller", "none").await;
    let prompt = asked.prompt(&session, "permission").await;
    let request = messages.request(PERMISSION).await;
    plain.allow(&request).await;
    let ended = |message: &Value| chunks(std::slice::from_ref(message)) == ["permission: allow"];
    let seen = messages.until(ended).await;
    assert!(
        !seen
            .iter()
            .any(|message| message["params"]["update"]["type"].is_string()),
        "{prompt} {seen:?}"
    );
    // The agent and the capabilities of other clients do not know the draft.
    let initialize = |params: Value| {
        let post = super::raw::request(&gateway, reqwest::Method::POST, KEY);
        post.json(&super::raw::initialize(0, &params)).send()
    };
    for (params, expected) in [
        (json!({}), Value::Null),
        (asks("x"), json!({ "roles": ["controller", "observer"] })),
    ] {
        let answer: Value = initialize(params)
            .await
            .expect("a response")
            .json()
            .await
            .expect("JSON");
        let result = &answer["result"];
        assert_eq!(
            result["agentCapabilities"]["sessionCapabilities"]["attach"],
            expected
        );
        let unstable = &result["_meta"]["acp-gateway"]["unstable"];
        assert_eq!(unstable.is_array(), !expected.is_null(), "{answer}");
    }
}

#[tokio::test]
async fn observer_reads_and_changes_nothing() {
    let gateway = Setup::fake(&[]).start();
    let mut owner = open(&gateway, "editor").await;
    let (session, mut own) = owner.session().await;
    let running = owner.prompt(&session, "permission").await;
    let request = own.request(PERMISSION).await;
    let mut observer = open(&gateway, "monitor").await;
    let (mut seen, replayed) = attach(&mut observer, &session, "observer", "pending_only").await;
    let result = &replayed.last().expect("it")["result"];
    assert_eq!(
        (&result["sessionId"], &result["role"]),
        (&json!(session), &json!("observer"))
    );
    let pending =
        json!([{ "type": "permission_request", "toolCallId": "call_1", "status": "pending" }]);
    assert_eq!(
        (&result["historyPolicy"], &result["history"]),
        (&json!("pending_only"), &pending)
    );
    let editor = json!({ "clientId": format!("owner/{}", owner.id), "name": "editor", "version": "1", "role": "controller" });
    assert_eq!(result["connectedClients"], json!([editor]));
    assert_eq!(replayed.len(), 1, "no history: {replayed:?}");

    let calls = [
        (
            "session/prompt",
            json!({ "sessionId": session, "prompt": [] }),
        ),
        (
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "code" }),
        ),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": "model", "value": "large" }),
        ),
        ("session/close", json!({ "sessionId": session })),
        ("session/delete", json!({ "sessionId": session })),
        ("_vendor/x", json!({ "sessionId": session })),
    ];
    for (method, params) in calls {
        let id = observer.send(method, params).await;
        let error = &seen.response(id).await["error"];
        assert_eq!(error["data"]["code"], "forbidden", "{method}: {error}");
        assert!(
            error["message"]
                .as_str()
                .expect("a text")
                .contains("observer"),
            "{error}"
        );
    }
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
    observer.post(&cancel).await;
    observer.allow(&request).await;
    let reject = json!({ "outcome": { "outcome": "selected", "optionId": "reject" } });
    owner
        .post(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": reject }))
        .await;
    assert_eq!(
        own.response(running).await["result"]["stopReason"],
        "end_turn",
        "it was not cancelled"
    );

    let rest = seen
        .until(|message| is_draft(message, "turn_complete"))
        .await;
    assert_eq!(
        chunks(&rest),
        ["permission: reject"],
        "the answer of the observer does not count"
    );
    let resolved = json!({ "type": "permission_resolved", "toolCallId": "call_1", "chosenOptionId": "reject",
        "resolvedBy": { "name": "owner" } });
    assert_eq!(drafts(&rest, "permission_resolved"), [&resolved]);
    assert_eq!(
        rest.last().expect("it")["params"]["update"]["stopReason"],
        "end_turn"
    );
    let is_request = |message: &Value| {
        message["method"] == PERMISSION || message["method"] == "$/cancel_request"
    };
    assert!(!rest.iter().any(is_request), "{rest:?}");

    // The prompts of others arrive before their updates.
    let next = owner.prompt(&session, "echo next").await;
    own.response(next).await;
    let rest = seen
        .until(|message| is_draft(message, "turn_complete"))
        .await;
    let sent_by = json!({ "clientId": format!("owner/{}", owner.id), "name": "owner" });
    let prompt = json!([{ "type": "text", "text": "echo next" }]);
    let received = json!({ "type": "prompt_received", "prompt": prompt, "sentBy": sent_by });
    assert_eq!(rest[0]["params"]["update"], received);
    assert_eq!(chunks(&rest), ["next"]);
}

#[tokio::test]
async fn first_answer_of_two_controllers_wins_and_the_other_is_notified() {
    let gateway = Setup::fake(&[]).start();
    let mut owner = open(&gateway, "editor").await;
    let (session, mut own) = owner.session().await;
    let prompt = owner.prompt(&session, "permission").await;
    let request = own.request(PERMISSION).await;
    let mut phone = open(&gateway, "phone").await;
    let (mut messages, _) = attach(&mut phone, &session, "controller", "pending_only").await;
    assert_eq!(
        messages.next().await,
        request,
        "open requests are sent again after the response"
    );
    phone.allow(&request).await;
    let rest = own.until(|message| message["id"] == prompt).await;
    assert_eq!(drafts(&rest, "permission_resolved").len(), 1);
    assert_eq!(
        drafts(&rest, "permission_resolved")[0]["chosenOptionId"],
        "allow"
    );
    assert_eq!(
        rest.iter()
            .filter(|message| message["method"] == "$/cancel_request")
            .count(),
        1
    );
    assert!(
        drafts(&rest, "turn_complete").is_empty(),
        "the client has the response to its own prompt"
    );
    owner.allow(&request).await;
    let rest = messages
        .until(|message| is_draft(message, "turn_complete"))
        .await;
    assert!(
        drafts(&rest, "permission_resolved").is_empty(),
        "its own answer: {rest:?}"
    );
}

/// The role changes before, while and after the agent sends its request.
#[tokio::test]
async fn observer_that_becomes_a_controller_gets_each_open_request_once() {
    let gateway = Setup::fake(&[]).start();
    let mut owner = open(&gateway, "editor").await;
    let (session, mut own) = owner.session().await;
    for round in 0..12 {
        let policy = if round % 2 == 0 {
            "pending_only"
        } else {
            "full"
        };
        let mut acp = open(&gateway, "phone").await;
        let (mut messages, _) = attach(&mut acp, &session, "observer", "none").await;
        let prompt = owner.prompt(&session, "permission").await;
        let mut request = None;
        if round % 3 == 0 {
            request = Some(own.request(PERMISSION).await);
        }
        let switch = json!({ "sessionId": session, "role": "controller", "historyPolicy": policy });
        acp.send("session/attach", switch).await;
        let request = match request {
            Some(request) => request,
            None => own.request(PERMISSION).await,
        };
        let mut seen = messages
            .until(|message| message["method"] == PERMISSION)
            .await;
        assert_eq!(seen.last(), Some(&request));
        let again =
            json!({ "sessionId": session, "role": "controller", "historyPolicy": "pending_only" });
        let id = acp.send("session/attach", again).await;
        seen.extend(messages.until(|message| message["id"] == id).await);
        owner.allow(&request).await;
        own.response(prompt).await;
        seen.extend(
            messages
                .until(|message| is_draft(message, "turn_complete"))
                .await,
        );
        let methods = seen.iter().filter_map(|message| message["method"].as_str());
        let methods: Vec<_> = methods
            .filter(|method| *method != "session/update")
            .collect();
        assert_eq!(
            methods,
            [PERMISSION, "$/cancel_request"],
            "round {round}, {policy}"
        );
    }
}

#[tokio::test]
async fn history_policies_decide_the_first_message() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo before").await;
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    for (policy, effective, has_history, is_asked) in [
        ("full", "full", true, true),
        ("after_message", "full", true, true),
        ("pending_only", "pending_only", false, true),
        ("none", "none", false, false),
    ] {
        let mut acp = open(&gateway, "client").await;
        let (mut messages, seen) = attach(&mut acp, &session, "controller", policy).await;
        assert_eq!(chunks(&seen).len(), usize::from(has_history), "{policy}");
        assert!(
            seen.iter()
                .all(|message| message["params"]["update"]["type"].is_null()),
            "{policy}"
        );
        let result = &seen.last().expect("it")["result"];
        assert_eq!(
            (&result["historyPolicy"], result["history"].is_array()),
            (&json!(effective), is_asked)
        );
        // A second session of the stream shows that nothing else follows the response.
        let unknown = acp
            .send("session/set_mode", json!({ "sessionId": session }))
            .await;
        let rest = messages.until(|message| message["id"] == unknown).await;
        assert_eq!(
            rest.iter()
                .filter(|message| message["method"] == PERMISSION)
                .count(),
            usize::from(is_asked)
        );
    }
    let mut acp = open(&gateway, "client").await;
    let mut connection = acp.stream(None, None).await;
    for params in [
        json!({ "sessionId": session, "role": "admin" }),
        json!({ "sessionId": session, "historyPolicy": "all" }),
        json!({}),
    ] {
        let id = acp.send("session/attach", params.clone()).await;
        assert_eq!(
            connection.response(id).await["error"]["code"],
            -32602,
            "{params}"
        );
    }
}

#[tokio::test]
async fn detach_ends_the_stream_and_not_the_turn() {
    let gateway = Setup::fake(&[]).start();
    let mut owner = open(&gateway, "editor").await;
    let (session, mut own) = owner.session().await;
    let mut connection = owner.stream(None, None).await;
    owner.prompt(&session, "slow chunks=5 ms=100").await;
    own.until(|message| !chunks(std::slice::from_ref(message)).is_empty())
        .await;
    let id = owner
        .send("session/detach", json!({ "sessionId": session }))
        .await;
    let detached = json!({ "sessionId": session, "status": "detached" });
    assert_eq!(connection.response(id).await["result"], detached);
    while own.try_next().await.is_some() {}
    let again = owner
        .send("session/detach", json!({ "sessionId": session }))
        .await;
    let error = connection.response(again).await["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]),
        (&json!(-32001), &json!({ "sessionId": session }))
    );
    let prompt = owner.prompt(&session, "echo no").await;
    assert_eq!(connection.response(prompt).await["error"]["code"], -32602);
    let completed = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(completed.last().expect("it")["stopReason"], "end_turn");
    let (mut messages, seen) = attach(&mut owner, &session, "controller", "full").await;
    assert_eq!(chunks(&seen).len(), 5);
    let prompt = owner.prompt(&session, "echo yes").await;
    assert_eq!(
        messages.response(prompt).await["result"]["stopReason"],
        "end_turn"
    );
}

#[tokio::test]
async fn observer_gets_the_same_messages_after_a_reconnect() {
    let gateway = Setup::fake(&[]).start();
    let mut owner = open(&gateway, "editor").await;
    let (session, mut own) = owner.session().await;
    let mut steady = open(&gateway, "steady").await;
    let (mut all, _) = attach(&mut steady, &session, "observer", "none").await;
    let mut cut = open(&gateway, "cut").await;
    let (mut first, _) = attach(&mut cut, &session, "observer", "none").await;
    let prompt = owner.prompt(&session, "permission; stream n=20").await;
    let request = own.request(PERMISSION).await;
    owner.allow(&request).await;
    own.response(prompt).await;
    let expected = all
        .until(|message| is_draft(message, "turn_complete"))
        .await;
    for kept in 1..expected.len() {
        let mut messages = Vec::new();
        let begin = first.last.clone();
        // Each round begins a new connection at the first position, reads some messages, and is cut.
        let mut acp = open(&gateway, "round").await;
        let (_, _) = attach(&mut acp, &session, "observer", "none").await;
        let mut stream = acp.stream(Some(&session), Some(&begin)).await;
        for _ in 0..kept {
            messages.push(stream.next().await);
        }
        let last = stream.last.clone();
        drop((stream, acp));
        let mut acp = open(&gateway, "round").await;
        let (_, _) = attach(&mut acp, &session, "observer", "none").await;
        let mut stream = acp.stream(Some(&session), Some(&last)).await;
        messages.extend(
            stream
                .until(|message| is_draft(message, "turn_complete"))
                .await,
        );
        assert_eq!(messages, expected, "cut after {kept} messages");
    }
    first
        .until(|message| is_draft(message, "turn_complete"))
        .await;
}

#[tokio::test]
async fn attach_needs_read_and_an_open_session() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let blind = key(&gateway, "blind", "prompt").await;
    let mut acp = Acp::open_with(&gateway, &blind, &asks("x")).await;
    let mut connection = acp.stream(None, None).await;
    let id = acp
        .send("session/attach", json!({ "sessionId": session }))
        .await;
    let error = connection.response(id).await["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]["code"]),
        (&json!(-32002), &json!("forbidden"))
    );
    // A key with `read` alone observes, and its prompts are rejected by its scopes as a controller too.
    let reader = key(&gateway, "reader", "read").await;
    let mut acp = Acp::open_with(&gateway, &reader, &asks("x")).await;
    let (mut messages, _) = attach(&mut acp, &session, "controller", "none").await;
    let id = acp.prompt(&session, "echo no").await;
    let error = messages.response(id).await["error"].clone();
    assert_eq!(error["data"]["code"], "forbidden");
    assert!(
        error["message"].as_str().expect("a text").contains("scope"),
        "{error}"
    );
    let mut acp = open(&gateway, "x").await;
    let mut connection = acp.stream(None, None).await;
    let unknown = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
    for session in [unknown, &*session] {
        if session != unknown {
            gateway
                .post(&format!("/v1/sessions/{session}/close"), &json!({}))
                .await;
        }
        let id = acp
            .send("session/attach", json!({ "sessionId": session }))
            .await;
        let error = connection.response(id).await["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["sessionId"]),
            (&json!(-32001), &json!(session))
        );
    }
}

#[tokio::test]
async fn socket_attaches_detaches_and_attaches_again() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let mut socket = Socket::connect(&gateway, "/acp", &[]).await;
    socket
        .send(&super::raw::initialize(0, &asks("socket")))
        .await;
    socket.next().await;
    for round in 0..3 {
        let params = json!({ "sessionId": session, "role": "observer", "historyPolicy": "none" });
        let attach =
            json!({ "jsonrpc": "2.0", "id": round, "method": "session/attach", "params": params });
        socket.send(&attach).await;
        assert_eq!(socket.next().await["result"]["role"], "observer");
        gateway.turn(&session, &format!("echo {round}")).await;
        let seen = socket
            .until(|message| is_draft(message, "turn_complete"))
            .await;
        assert_eq!(chunks(&seen), [round.to_string()]);
        let params = json!({ "sessionId": session });
        let detach =
            json!({ "jsonrpc": "2.0", "id": "d", "method": "session/detach", "params": params });
        socket.send(&detach).await;
        assert_eq!(socket.next().await["result"]["status"], "detached");
        // Updates of a detached session do not arrive: the next message is the response to the next attach.
        gateway.turn(&session, "echo unseen").await;
    }
}
