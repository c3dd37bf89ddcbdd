//! Members of the dialect `cca`: a program that exchanges JSON messages with the gateway directly.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{PATIENCE, ended};
use crate::support::gateway::KEY;
use crate::support::log::{agent_text, one};
use crate::support::{Gateway, Setup, eventually};

pub(crate) struct Worker(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Worker {
    async fn connect(gateway: &Gateway, query: &str) -> Result<Self, (StatusCode, Value)> {
        Self::connect_with(gateway, query, KEY).await
    }

    pub(super) async fn connect_with(
        gateway: &Gateway,
        query: &str,
        key: &str,
    ) -> Result<Self, (StatusCode, Value)> {
        let url = format!(
            "ws://{}/v1/fleet/connect?dialect=cca&{query}",
            gateway.address()
        );
        let mut request = url.into_client_request().expect("a URL");
        request.headers_mut().insert(
            "authorization",
            format!("Bearer {key}").parse().expect("a header"),
        );
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err((
                    response.status(),
                    serde_json::from_slice(body).unwrap_or_default(),
                ))
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, message: &Value) {
        self.0
            .send(Message::text(message.to_string()))
            .await
            .expect("the gateway reads");
    }

    /// The next message of this type. Heartbeats of the gateway are answered.
    pub(crate) async fn next(&mut self, kind: &str) -> Value {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.0.next()).await;
            let message = message
                .unwrap_or_else(|_| panic!("no {kind}"))
                .expect("it is open")
                .expect("a message");
            let Message::Text(text) = message else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).expect("JSON");
            if message["type"] == "heartbeat" {
                self.send(&json!({ "type": "heartbeat", "reply_to": message["id"] }))
                    .await;
            }
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// The reason with which the gateway closes the connection.
    pub(super) async fn closed(&mut self) -> String {
        loop {
            match tokio::time::timeout(PATIENCE, self.0.next())
                .await
                .expect("in time")
            {
                Some(Ok(Message::Close(frame))) => {
                    return frame
                        .map(|frame| frame.reason.to_string())
                        .unwrap_or_default();
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return String::new(),
            }
        }
    }

    pub(crate) async fn finish(&mut self, task: &Value, more: Value) {
        let mut message =
            json!({ "type": "task_result", "task_id": task["task_id"], "success": true });
        message
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        self.send(&message).await;
    }
}

async fn listed(gateway: &Gateway) -> Value {
    eventually("the member is an agent", PATIENCE, || async {
        let response = gateway
            .request(Method::GET, "/v1/agents/worker")
            .send()
            .await
            .ok()?;
        (response.status() == 200).then_some(())
    })
    .await;
    gateway.get("/v1/fleet").await["members"][0].clone()
}

pub(crate) async fn connected(gateway: &Gateway) -> Worker {
    let worker = Worker::connect(gateway, "name=worker&capacity=2&root=/srv")
        .await
        .expect("it connects");
    listed(gateway).await;
    worker
}

/// Connects again. The gateway rejects the member until it has noticed the end of the previous connection.
async fn returned(gateway: &Gateway) -> Worker {
    eventually("the member returns", PATIENCE, || async {
        Worker::connect(gateway, "name=worker&root=/srv").await.ok()
    })
    .await
}

/// Creates a session, which a process of the member serves, and sends a prompt.
async fn prompted(gateway: &Gateway, worker: &mut Worker, text: &str) -> (String, Value, Value) {
    let session = gateway.session("worker").await;
    let prompt = gateway.prompt(&session, text).await;
    let task = worker.next("task_assign").await;
    (session, prompt, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_is_a_task_and_its_result_ends_the_turn() {
    let gateway = Setup::fake(&[]).start();
    let mut worker = connected(&gateway).await;
    let (session, prompt, task) = prompted(&gateway, &mut worker, "build it").await;
    assert_eq!(
        (&task["description"], &task["cwd"]),
        (&json!("build it"), &json!("/srv"))
    );
    worker
        .send(&json!({ "type": "task_progress", "task_id": task["task_id"], "output": "half " }))
        .await;
    worker
        .finish(
            &task,
            json!({ "output": "done", "tokens_used": { "input": 3, "output": 4 } }),
        )
        .await;
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        (&end["status"], &end["text"]),
        (&json!("completed"), &json!("half done")),
        "{end}"
    );
    assert_eq!(end["usage"]["totalTokens"], 7);

    let prompt = gateway.prompt(&session, "again").await;
    let second = worker.next("task_assign").await;
    assert_eq!(second["session_id"], task["session_id"]);
    worker
        .finish(&second, json!({ "success": false, "error": "no compiler" }))
        .await;
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("agent_error")),
        "{end}"
    );
    assert!(end["error"].to_string().contains("no compiler"), "{end}");
    gateway.lawful(&session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_reaches_the_member_and_late_results_have_no_effect() {
    let gateway = Setup::fake(&[]).start();
    let mut worker = connected(&gateway).await;
    let (session, prompt, task) = prompted(&gateway, &mut worker, "build it").await;
    gateway
        .post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
        .await;
    assert_eq!(worker.next("task_cancel").await["task_id"], task["task_id"]);
    worker.finish(&task, json!({ "output": "stopped" })).await;
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        (&end["stopReason"], &end["text"]),
        (&json!("cancelled"), &json!("stopped")),
        "{end}"
    );
    // Neither a finished nor an unknown task ends a turn, and an unknown type has no effect.
    let prompt = gateway.prompt(&session, "next").await;
    let next = worker.next("task_assign").await;
    worker.finish(&task, json!({ "output": "late" })).await;
    worker
        .send(&json!({ "type": "task_result", "task_id": "unknown", "success": true }))
        .await;
    worker
        .send(&json!({ "type": "broadcast", "content": "hello" }))
        .await;
    worker.send(&json!({ "type": "something_else" })).await;
    worker.finish(&next, json!({ "output": "in time" })).await;
    assert_eq!(ended(&gateway, &session, &prompt).await["text"], "in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_survives_a_reconnect_and_a_lost_task_fails() {
    let gateway = Setup::fake(&[]).start();
    let mut worker = connected(&gateway).await;
    let (session, prompt, task) = prompted(&gateway, &mut worker, "build it").await;
    drop(worker);
    let mut worker = returned(&gateway).await;
    let request = worker.next("get_status").await;
    let status = json!({ "tasks": [task["task_id"]] });
    worker
        .send(&json!({ "type": "response", "reply_to": request["id"], "result": status }))
        .await;
    worker.finish(&task, json!({ "output": "done" })).await;
    assert_eq!(ended(&gateway, &session, &prompt).await["text"], "done");

    let prompt = gateway.prompt(&session, "again").await;
    worker.next("task_assign").await;
    drop(worker);
    let mut worker = returned(&gateway).await;
    let request = worker.next("get_status").await;
    worker
        .send(&json!({ "type": "response", "reply_to": request["id"], "result": { "tasks": [] } }))
        .await;
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("agent_error")),
        "{end}"
    );
    let events = gateway.lawful(&session).await;
    assert_eq!(agent_text(&events), "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_stays_away_fails_its_turn_with_a_typed_reason() {
    let gateway = Setup::fake(&[])
        .settings("testing.member_return_timeout = \"500ms\"")
        .start();
    let mut worker = connected(&gateway).await;
    let (session, prompt, task) = prompted(&gateway, &mut worker, "build it").await;
    drop(worker);
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("member_unavailable")),
        "{end}"
    );
    // The member is asked to stop the task, and its session continues.
    let mut worker = returned(&gateway).await;
    assert_eq!(worker.next("task_cancel").await["task_id"], task["task_id"]);
    let prompt = gateway.prompt(&session, "again").await;
    let next = worker.next("task_assign").await;
    assert_eq!(
        next["session_id"], task["session_id"],
        "the conversation continues"
    );
    worker.finish(&next, json!({ "output": "back" })).await;
    assert_eq!(ended(&gateway, &session, &prompt).await["text"], "back");
    one(&gateway.all_events(&session).await, "prompt.failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_method_is_requested_of_a_member_with_a_timeout() {
    let gateway = Setup::fake(&[]).start();
    let mut worker = connected(&gateway).await;
    let call = |body: Value| {
        let request = gateway
            .request(Method::POST, "/v1/fleet/worker/rpc")
            .json(&body);
        async move {
            let response = request.send().await.expect("an answer");
            (
                response.status(),
                response.json::<Value>().await.expect("JSON"),
            )
        }
    };
    let answer = async {
        let request = worker.next("get_status").await;
        assert_eq!(request["params"], json!({ "deep": true }));
        worker
            .send(&json!({ "type": "response", "reply_to": request["id"], "result": { "load": 0.5 } }))
            .await;
        let request = worker.next("deploy").await;
        worker
            .send(
                &json!({ "type": "response", "reply_to": request["id"], "error": "not permitted" }),
            )
            .await;
        worker.next("slow").await;
        worker
    };
    let calls = async {
        let (status, body) =
            call(json!({ "method": "get_status", "params": { "deep": true } })).await;
        assert_eq!(
            (status, &body["result"]),
            (StatusCode::OK, &json!({ "load": 0.5 })),
            "{body}"
        );
        let (status, body) = call(json!({ "method": "deploy" })).await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::BAD_GATEWAY, &json!("agent_error")),
            "{body}"
        );
        let (status, body) = call(json!({ "method": "slow", "timeoutSeconds": 1 })).await;
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::GATEWAY_TIMEOUT, &json!("agent_timeout")),
            "{body}"
        );
    };
    let (mut worker, ()) = tokio::join!(answer, calls);
    for (body, pointer) in [
        (json!({ "method": "session/prompt" }), "/method"),
        (json!({ "method": "" }), "/method"),
        (
            json!({ "method": "x", "timeoutSeconds": 0 }),
            "/timeoutSeconds",
        ),
        (
            json!({ "method": "x", "timeoutSeconds": 601 }),
            "/timeoutSeconds",
        ),
    ] {
        let (status, problem) = call(body).await;
        assert_eq!(
            (status, &problem["errors"][0]["pointer"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!(pointer))
        );
    }
    // The member can ask too.
    worker
        .send(&json!({ "type": "get_status", "id": "q1" }))
        .await;
    let status = worker.next("response").await;
    assert_eq!(
        (&status["reply_to"], &status["result"]),
        (&json!("q1"), &json!({ "name": "worker", "tasks": [] }))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_measure_the_latency_and_are_answered() {
    let gateway = Setup::fake(&[]).start();
    let mut worker = connected(&gateway).await;
    worker
        .send(&json!({ "type": "heartbeat", "id": "mine" }))
        .await;
    loop {
        let beat = worker.next("heartbeat").await;
        if beat["reply_to"] == "mine" {
            break;
        }
    }
    eventually("the latency", PATIENCE, || async {
        listed(&gateway).await["latencyMs"].as_u64()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn violations_end_the_connection_and_names_are_exclusive() {
    let gateway = Setup::fake(&[]).start();
    for message in [
        Message::text("no JSON"),
        Message::text("{\"type\":\"task_result\"}"),
        Message::binary(vec![1]),
    ] {
        let mut worker = connected(&gateway).await;
        worker.0.send(message).await.expect("the gateway reads");
        assert!(!worker.closed().await.is_empty());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut worker = connected(&gateway).await;
    worker
        .0
        .send(Message::text("x".repeat(2 << 20)))
        .await
        .unwrap_or_default();
    worker.closed().await;

    let mut first = eventually("the previous connection has ended", PATIENCE, || async {
        Worker::connect(&gateway, "name=worker&instance=a")
            .await
            .ok()
    })
    .await;
    let other = Worker::connect(&gateway, "name=worker&instance=b")
        .await
        .err()
        .expect("it is rejected");
    assert_eq!(
        (other.0, &other.1["code"]),
        (StatusCode::FORBIDDEN, &json!("forbidden"))
    );
    let _second = Worker::connect(&gateway, "name=worker&instance=a")
        .await
        .expect("the same program");
    assert!(first.closed().await.contains("replaced"));
    for query in ["", "name=worker&capacity=x", "name=a/b"] {
        let (status, problem) = Worker::connect(&gateway, query)
            .await
            .err()
            .expect("it is rejected");
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid")),
            "{query}"
        );
    }
}
