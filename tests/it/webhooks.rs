//! Webhooks: deliveries to a receiver that verifies them with a stock library of Standard Webhooks.

pub(crate) mod receiver;

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::audit::settled;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, Setup};
use receiver::Receiver;

/// A gateway that permits webhooks to these hosts.
fn gateway(receiver: &Receiver, hosts: &str) -> Gateway {
    setup(receiver, hosts)
        .settings("testing.webhooks_to_loopback = true")
        .start()
}

/// The same without loopback.
fn setup(receiver: &Receiver, hosts: &str) -> Setup {
    let certificate = receiver.certificate.display();
    Setup::fake(&[])
        .settings("testing.webhook_retry_unit = \"1ms\"")
        .table(&format!(
            "[webhooks]\nallowed_hosts = {hosts}\nca_file = \"{certificate}\""
        ))
}

async fn create(gateway: &Gateway, url: &str, events: &[&str]) -> String {
    let (status, made) = gateway
        .post("/v1/webhooks", &json!({ "url": url, "events": events }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    made["webhookId"].as_str().expect("an id").to_owned()
}

async fn started(receiver: &mut Receiver) -> Gateway {
    let gateway = gateway(receiver, "[\"localhost\"]");
    receiver.start(&gateway, 0).await;
    gateway
}

async fn deliveries(gateway: &Gateway) -> Vec<Value> {
    gateway.get("/v1/webhooks/deliveries").await["deliveries"]
        .as_array()
        .expect("a list")
        .clone()
}

/// Waits until all deliveries have this state.
async fn all_in(gateway: &Gateway, count: usize, state: &str) -> Vec<Value> {
    eventually(state, LONGEST, || async {
        let found = deliveries(gateway).await;
        (found.len() == count && found.iter().all(|one| one["state"] == state)).then_some(found)
    })
    .await
}

#[tokio::test]
async fn stock_library_verifies_each_selected_event_once() {
    let mut receiver = Receiver::new();
    let gateway = started(&mut receiver).await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo before").await;
    create(
        &gateway,
        &receiver.url("/ok"),
        &["prompt.completed", "session.closed"],
    )
    .await;
    gateway.turn(&session, "echo first").await;
    gateway.turn(&session, "echo second").await;
    gateway
        .post(&format!("/v1/sessions/{session}/close"), &json!({}))
        .await;

    let events = gateway.all_events(&session).await;
    let selected = ["prompt.completed", "session.closed"];
    let expected: Vec<_> = events
        .iter()
        .filter(|event| selected.iter().any(|kind| event["type"] == *kind))
        .collect();
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let request = receiver.next().await;
        assert!(
            request["verified"].is_object(),
            "the signature is valid: {request}"
        );
        bodies.push(request["verified"].clone());
    }
    bodies.sort_by_key(|body| body["data"]["seq"].as_u64());
    // The turn before the webhook is not delivered.
    assert_eq!(expected.len(), 4);
    for (body, event) in bodies.iter().zip(&expected[1..]) {
        assert_eq!(
            (&body["type"], &body["timestamp"], &body["data"]),
            (&event["type"], &event["time"], *event)
        );
    }
    let listed = all_in(&gateway, 3, "delivered").await;
    assert!(
        listed
            .iter()
            .all(|one| one["attempts"] == 1 && one["lastStatus"] == 204),
        "{listed:?}"
    );
    assert!(
        listed.iter().all(|one| one["sessionId"] == *session),
        "{listed:?}"
    );
}

/// An agent asks for a command with the id of a call that has ended. Everything outside of the session shows the command.
#[tokio::test]
async fn approval_is_that_of_its_request_and_not_of_the_ended_call_with_its_id() {
    let mut receiver = Receiver::new();
    let mut gateway = started(&mut receiver).await;
    create(&gateway, &receiver.url("/ok"), &["request.created"]).await;
    let session = gateway.session("fake").await;
    let update = |members: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"$SESSION","update":{{"toolCallId":"c",{members}}}}}}}"#
        )
    };
    let call = r#""sessionUpdate":"tool_call","title":"ls","kind":"read""#;
    let end = r#""sessionUpdate":"tool_call_update","status":"completed""#;
    let request = r#"{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"$SESSION","toolCall":{"toolCallId":"c","title":"rm -rf build","kind":"execute"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}}"#;
    let lines = [&*update(call), &*update(end), request].join("\n");
    gateway.prompt(&session, &format!("raw {lines}")).await;
    let delivered = receiver.next().await["verified"]["data"]["params"]["toolCall"].clone();
    let listed = gateway
        .get(&format!("/v1/sessions/{session}/requests"))
        .await;
    let listed = &listed["requests"][0]["params"]["toolCall"];
    for shown in [&delivered, listed] {
        assert_eq!(
            (&shown["title"], &shown["kind"]),
            (&json!("rm -rf build"), &json!("execute"))
        );
    }
    let path = format!("/v1/sessions/{session}/permissions/r1");
    gateway.post(&path, &json!({ "optionId": "yes" })).await;
    let decided = settled(&mut gateway, "permission.decided").await;
    assert_eq!(decided[0]["toolKind"], "execute", "{decided:?}");
}

#[tokio::test]
async fn a_webhook_has_a_path_and_a_repeated_creation_makes_one() {
    let mut receiver = Receiver::new();
    let gateway = started(&mut receiver).await;
    let body = json!({ "url": receiver.url("/ok"), "events": ["prompt.completed"] });
    let create = async |key: &str| {
        let request = gateway
            .request(Method::POST, "/v1/webhooks")
            .header("idempotency-key", key)
            .json(&body);
        Answer::of(request).await
    };
    let first = create("once").await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    assert_eq!(first.header("idempotency-replayed"), None);
    let again = create("once").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    let path = first.header("location").expect("a path");
    assert_eq!(again.header("location"), Some(path));
    assert_eq!(gateway.get(path).await, first.body);
    assert_eq!(create("other").await.status, StatusCode::CREATED);
    let listed = gateway.get("/v1/webhooks").await;
    assert_eq!(listed["webhooks"].as_array().map(Vec::len), Some(2));
    let next = gateway.get("/v1/webhooks?limit=1").await["nextCursor"].clone();
    let next = next.as_str().expect("a second page");
    let last = gateway
        .get(&format!("/v1/webhooks?limit=1&cursor={next}"))
        .await;
    assert_eq!(last["webhooks"][0], listed["webhooks"][1]);
    let (status, _) = gateway.send(Method::DELETE, path, &Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    Answer::of(gateway.request(Method::GET, path))
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn receiver_that_fails_eight_times_gets_each_delivery_once_it_recovers() {
    let mut receiver = Receiver::new();
    let gateway = started(&mut receiver).await;
    create(&gateway, &receiver.url("/fail/8"), &["prompt.completed"]).await;
    let session = gateway.session("fake").await;
    for text in ["echo 1", "echo 2", "echo 3"] {
        gateway.turn(&session, text).await;
    }
    let listed = all_in(&gateway, 3, "delivered").await;
    assert!(listed.iter().all(|one| one["attempts"] == 9), "{listed:?}");
    let requests = receiver.take(27).await;
    for one in &listed {
        let of_one: Vec<_> = requests
            .iter()
            .filter(|request| request["id"] == one["deliveryId"])
            .collect();
        assert_eq!(
            of_one
                .iter()
                .filter(|request| request["status"] == 204)
                .count(),
            1
        );
        assert!(
            of_one
                .iter()
                .all(|request| request["verified"]["data"] == of_one[0]["verified"]["data"])
        );
    }
}

#[tokio::test]
async fn deliveries_survive_a_kill_of_the_gateway_and_an_absent_receiver() {
    let mut receiver = Receiver::new();
    let mut gateway = started(&mut receiver).await;
    create(&gateway, &receiver.url("/ok"), &["prompt.completed"]).await;
    let port = receiver.stop();
    let session = gateway.session("fake").await;
    for number in 0..5 {
        gateway.turn(&session, &format!("echo {number}")).await;
        gateway.kill();
        gateway.start();
    }
    receiver.start(&gateway, port).await;
    let listed = all_in(&gateway, 5, "delivered").await;
    let requests = receiver.take(5).await;
    let mut seqs: Vec<_> = requests
        .iter()
        .filter_map(|one| one["verified"]["data"]["seq"].as_u64())
        .collect();
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!(seqs.len(), 5, "{requests:?}");
    // Only a kill between the answer and its commit repeats a delivery, with the same id.
    let mut ids: Vec<_> = listed
        .iter()
        .map(|one| one["deliveryId"].to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[tokio::test]
async fn redirects_are_not_followed_and_410_ends_a_webhook() {
    let mut receiver = Receiver::new();
    let gateway = started(&mut receiver).await;
    create(&gateway, &receiver.url("/redirect"), &["prompt.completed"]).await;
    let gone = create(&gateway, &receiver.url("/gone"), &["prompt.completed"]).await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo 1").await;
    let requests = receiver.take(5).await;
    assert!(
        requests.iter().all(|request| request["path"] != "/ok"),
        "{requests:?}"
    );
    assert_eq!(
        requests
            .iter()
            .filter(|request| request["path"] == "/gone")
            .count(),
        1,
        "{requests:?}"
    );
    let listed = deliveries(&gateway).await;
    let of = |path: &str| {
        listed
            .iter()
            .find(|one| one["url"].as_str().is_some_and(|url| url.ends_with(path)))
    };
    let redirected = of("/redirect").expect("one");
    let ended = of("/gone").expect("one");
    assert_eq!(
        (&redirected["state"], &redirected["lastStatus"]),
        (&json!("pending"), &json!(302))
    );
    assert_eq!(
        (&ended["state"], &ended["attempts"]),
        (&json!("failed"), &json!(1))
    );
    assert_eq!(ended["lastStatus"], 410);
    let webhooks = gateway.get("/v1/webhooks").await;
    let webhooks = webhooks["webhooks"].as_array().expect("a list");
    assert!(
        webhooks
            .iter()
            .all(|one| one["gone"] == (one["webhookId"] == *gone)),
        "{webhooks:?}"
    );
    // It gets no delivery for a later event, and the other one does.
    gateway.turn(&session, "echo 2").await;
    let count = async || deliveries(&gateway).await.len();
    eventually("another delivery", LONGEST, || async {
        (count().await >= 3).then_some(())
    })
    .await;
    let listed = deliveries(&gateway).await;
    assert_eq!(
        listed
            .iter()
            .filter(|one| one["webhookId"] == *gone)
            .count(),
        1,
        "{listed:?}"
    );
}

#[tokio::test]
async fn finished_delivery_is_sent_again_with_the_same_id() {
    let mut receiver = Receiver::new();
    let gateway = started(&mut receiver).await;
    let webhook = create(&gateway, &receiver.url("/ok"), &["prompt.completed"]).await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo 1").await;
    let listed = all_in(&gateway, 1, "delivered").await;
    let id = listed[0]["deliveryId"].as_str().expect("an id");
    let path = format!("/v1/webhooks/deliveries/{id}/retry");
    let (status, repeated) = gateway.post(&path, &json!({})).await;
    assert_eq!(
        (status, &repeated["state"]),
        (StatusCode::ACCEPTED, &json!("pending"))
    );
    let requests = receiver.take(2).await;
    assert!(
        requests.iter().all(|request| request["id"] == *id),
        "{requests:?}"
    );
    all_in(&gateway, 1, "delivered").await;

    let (status, _) = gateway
        .send(
            Method::DELETE,
            &format!("/v1/webhooks/{webhook}"),
            &json!({}),
        )
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, problem) = gateway.post(&path, &json!({})).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid"))
    );
}

#[tokio::test]
async fn delete_of_a_webhook_deletes_its_pending_deliveries() {
    let mut receiver = Receiver::new();
    let gateway = started(&mut receiver).await;
    let webhook = create(&gateway, &receiver.url("/ok"), &["prompt.completed"]).await;
    receiver.stop();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo 1").await;
    let pending = all_in(&gateway, 1, "pending").await;
    assert!(
        pending[0]["lastError"]
            .as_str()
            .is_none_or(|error| !error.contains("https://")),
        "{pending:?}"
    );
    let (status, _) = gateway
        .send(
            Method::DELETE,
            &format!("/v1/webhooks/{webhook}"),
            &json!({}),
        )
        .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    eventually("no deliveries", LONGEST, || async {
        deliveries(&gateway).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn urls_and_events_are_checked() {
    let receiver = Receiver::new();
    let gateway = gateway(&receiver, "[\"hooks.example\", \"*.team.example\"]");
    for (url, events, pointer) in [
        ("http://hooks.example/", json!(["prompt.completed"]), "/url"),
        (
            "https://other.example/",
            json!(["prompt.completed"]),
            "/url",
        ),
        (
            "https://hooks.example@evil/",
            json!(["prompt.completed"]),
            "/url",
        ),
        ("https://127.0.0.1/", json!(["prompt.completed"]), "/url"),
        (
            "https://hooks.example:0/",
            json!(["prompt.completed"]),
            "/url",
        ),
        (
            "https://hooks.example:99999/",
            json!(["prompt.completed"]),
            "/url",
        ),
        (
            "https://hooks.example/\u{202e}",
            json!(["prompt.completed"]),
            "/url",
        ),
        ("https://hooks.example/", json!([]), "/events"),
        (
            "https://hooks.example/",
            json!(["session.update"]),
            "/events",
        ),
        (
            "https://hooks.example/",
            json!(["prompt.completed", "prompt.completed"]),
            "/events",
        ),
    ] {
        let (status, problem) = gateway
            .post("/v1/webhooks", &json!({ "url": url, "events": events }))
            .await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{url} {problem}");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{url} {problem}");
    }
    create(&gateway, "https://a.team.example/x", &["prompt.failed"]).await;
    let callback = json!({ "agent": "fake", "description": "x", "callbackUrl": "https://hooks.example:99999/" });
    let (status, problem) = gateway.post("/v1/tasks", &callback).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(problem["errors"][0]["pointer"], "/callbackUrl", "{problem}");
}

#[tokio::test]
async fn without_permitted_hosts_webhooks_are_disabled() {
    let gateway = Setup::fake(&[]).start();
    let body = json!({ "url": "https://hooks.example/", "events": ["prompt.completed"] });
    let (status, problem) = gateway.post("/v1/webhooks", &body).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::FORBIDDEN, &json!("forbidden")),
        "{problem}"
    );
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("webhooks.allowed_hosts"))
    );
    assert!(!gateway.path("data/private/webhook-secret").exists());
}

/// Without the setting of the tests, loopback is a private address.
#[tokio::test]
async fn private_address_of_a_permitted_host_is_rejected() {
    let mut receiver = Receiver::new();
    let gateway = setup(&receiver, "[\"localhost\"]").start();
    receiver.start(&gateway, 0).await;
    create(&gateway, &receiver.url("/ok"), &["prompt.completed"]).await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo 1").await;
    let error = eventually("an attempt", LONGEST, || async {
        let listed = deliveries(&gateway).await;
        Some(listed.first()?["lastError"].as_str()?.to_owned())
    });
    let error = error.await;
    assert!(error.contains("not permitted"), "{error}");
    assert!(receiver.is_silent(Duration::from_millis(100)).await);
}
