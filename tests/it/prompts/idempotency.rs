//! `Idempotency-Key`: the same request twice is one turn, and one session.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::log::{all, logged, one};
use crate::support::{Answer, Events, Gateway, Setup, eventually};

async fn fake() -> (Gateway, String) {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    (gateway, session)
}

/// Sends a prompt with a key and waits for its end.
async fn keyed(gateway: &Gateway, session: &str, key: &str, text: &str) -> Answer {
    let headers = [("Idempotency-Key", key), ("Prefer", "wait=60")];
    gateway
        .posted(
            &format!("/v1/sessions/{session}/prompts"),
            &headers,
            &json!({ "prompt": text }),
        )
        .await
}

async fn create(gateway: &Gateway, key: &str, body: &Value) -> Answer {
    gateway
        .posted("/v1/sessions", &[("Idempotency-Key", key)], body)
        .await
}

#[tokio::test]
async fn the_same_prompt_again_is_the_same_turn() {
    let (gateway, session) = fake().await;
    let first = keyed(&gateway, &session, "k 1~", "hello").await;
    assert_eq!(
        (first.status, first.header("idempotency-replayed")),
        (StatusCode::OK, None)
    );
    let again = keyed(&gateway, &session, "k 1~", "hello").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!((again.status, &again.body), (StatusCode::OK, &first.body));
    assert_eq!(again.header("location"), first.header("location"));
    let events = gateway.lawful(&session).await;
    assert_eq!(one(&events, "prompt.started")["idempotencyKey"], "k 1~");
    keyed(&gateway, &session, "another", "hello").await;
    assert_eq!(
        all(&gateway.lawful(&session).await, "prompt.started").len(),
        2
    );
}

#[tokio::test]
async fn repeated_prompt_is_not_counted_by_the_rate_limit() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_prompts_per_minute = 1")
        .start();
    let session = gateway.session("fake").await;
    let first = keyed(&gateway, &session, "k", "hello").await;
    assert_eq!(first.status, StatusCode::OK);
    for _ in 0..3 {
        let again = keyed(&gateway, &session, "k", "hello").await;
        assert_eq!(
            (again.status, again.header("idempotency-replayed")),
            (StatusCode::OK, Some("true"))
        );
    }
    keyed(&gateway, &session, "another", "hello")
        .await
        .problem(429, "rate_limited");
    // The rejected prompt has not used its key.
    keyed(&gateway, &session, "another", "hello again")
        .await
        .problem(429, "rate_limited");
    one(&gateway.lawful(&session).await, "prompt.started");
}

#[tokio::test]
async fn the_same_prompt_again_while_it_runs_waits_for_the_same_end() {
    let (gateway, session) = fake().await;
    let body = json!({ "prompt": "slow chunks=5 ms=100" });
    let path = format!("/v1/sessions/{session}/prompts");
    let first = gateway
        .posted(&path, &[("Idempotency-Key", "k")], &body)
        .await;
    assert_eq!(
        (first.status, &first.body["status"]),
        (StatusCode::ACCEPTED, &json!("running"))
    );
    let again = keyed(&gateway, &session, "k", "slow chunks=5 ms=100").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(
        (&again.body["promptId"], &again.body["status"]),
        (&json!("p1"), &json!("completed"))
    );
    one(&gateway.lawful(&session).await, "prompt.started");
}

#[tokio::test]
async fn the_same_prompt_again_as_a_stream_is_the_same_turn_from_its_first_event() {
    let (gateway, session) = fake().await;
    let mut turns = Vec::new();
    for replayed in [None, Some("true")] {
        let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
        let request = request
            .header("Accept", "text/event-stream")
            .header("Idempotency-Key", "k");
        let response = request
            .json(&json!({ "prompt": "stream n=3" }))
            .send()
            .await
            .expect("an answer");
        let header = response.headers().get("idempotency-replayed");
        assert_eq!(header.map(|value| value.to_str().expect("ASCII")), replayed);
        turns.push(logged(Events::new(response).rest().await));
    }
    assert_eq!(turns[0].len(), 5);
    assert_eq!(turns[0], turns[1]);
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused() {
    let (gateway, session) = fake().await;
    keyed(&gateway, &session, "k", "hello").await;
    keyed(&gateway, &session, "k", "hello!")
        .await
        .problem(422, "idempotency_mismatch");
    one(&gateway.lawful(&session).await, "prompt.started");
}

#[tokio::test]
async fn a_key_is_of_one_route() {
    let (gateway, session) = fake().await;
    let other = gateway.session("fake").await;
    for session in [&session, &other] {
        let answer = keyed(&gateway, session, "k", "hello").await;
        assert_eq!(
            (answer.header("idempotency-replayed"), &answer.body["text"]),
            (None, &json!("hello"))
        );
    }
    let answer = create(&gateway, "k", &json!({ "agent": "fake" })).await;
    assert_eq!(
        (answer.status, answer.header("idempotency-replayed")),
        (StatusCode::CREATED, None)
    );
}

#[tokio::test]
async fn a_key_is_of_one_user() {
    let (gateway, session) = fake().await;
    let other = crate::key_life::user_key(&gateway, "bob", "read,prompt").await;
    let first = keyed(&gateway, &session, "k", "hello").await;
    let own = gateway.http.post(format!("{}/v1/sessions", gateway.url));
    let own = own.bearer_auth(&other).json(&json!({ "agent": "fake" }));
    let own = Answer::of(own).await;
    let own = own.body["sessionId"].as_str().expect("an id");
    let path = format!("{}/v1/sessions/{own}/prompts", gateway.url);
    let second = async |text: &str| {
        let request = gateway
            .http
            .post(&path)
            .bearer_auth(&other)
            .header("Idempotency-Key", "k");
        Answer::of(
            request
                .header("Prefer", "wait=60")
                .json(&json!({ "prompt": text })),
        )
        .await
    };
    // Neither the stored answer nor the conflict of another body shows that the first user has used the key.
    let second = second("another text").await;
    assert_eq!(
        (second.status, second.header("idempotency-replayed")),
        (StatusCode::OK, None),
        "{second:?}"
    );
    assert_eq!(second.body["text"], "another text");
    assert_eq!(
        keyed(&gateway, &session, "k", "hello").await.body["promptId"],
        first.body["promptId"]
    );
}

#[tokio::test]
async fn rejected_request_is_not_stored() {
    let (gateway, session) = fake().await;
    gateway.prompt(&session, "stream n=1; hang").await;
    keyed(&gateway, &session, "k", "hello")
        .await
        .problem(409, "turn_running");
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let answer = keyed(&gateway, &session, "k", "hello").await;
    assert_eq!(
        (answer.header("idempotency-replayed"), &answer.body["text"]),
        (None, &json!("hello"))
    );

    create(&gateway, "k", &json!({ "agent": "nobody" }))
        .await
        .problem(422, "invalid");
    assert_eq!(
        create(&gateway, "k", &json!({ "agent": "fake" }))
            .await
            .status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn while_the_first_is_in_flight_the_second_is_refused() {
    let gateway = Setup::fake(&["--slow-start", "5000"]).start();
    let body = json!({ "agent": "fake", "title": "once" });
    let (one, other) = tokio::join!(create(&gateway, "k", &body), create(&gateway, "k", &body));
    let (first, second) = if one.status == StatusCode::CREATED {
        (one, other)
    } else {
        (other, one)
    };
    assert_eq!(first.status, StatusCode::CREATED);
    assert_eq!(second.header("retry-after"), Some("1"));
    assert_eq!(
        second.problem(409, "idempotency_in_flight")["retryable"],
        true
    );
    let again = create(&gateway, "k", &body).await;
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (StatusCode::CREATED, Some("true"))
    );
    assert_eq!(again.body["sessionId"], first.body["sessionId"]);
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn idempotency_key_of_a_disconnected_client_creates_one_session() {
    let gateway = Setup::fake(&["--slow-start", "8000"]).start();
    let body = json!({ "agent": "fake" });
    let request = gateway
        .request(Method::POST, "/v1/sessions")
        .header("Idempotency-Key", "k")
        .json(&body);
    let starts = || async {
        let agent = gateway.get("/v1/agents/fake").await;
        (agent["pool"]["starting"] == 1).then_some(())
    };
    tokio::select! {
        biased;
        () = eventually("the agent starts", Duration::from_secs(30), starts) => {}
        answer = request.send() => panic!("the agent takes longer: {answer:?}"),
    }
    create(&gateway, "k", &body)
        .await
        .problem(409, "idempotency_in_flight");
    let again = eventually("the session is made", Duration::from_mins(1), || async {
        let answer = create(&gateway, "k", &body).await;
        (answer.status != StatusCode::CONFLICT).then_some(answer)
    })
    .await;
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (StatusCode::CREATED, Some("true"))
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn keys_survive_a_kill_of_the_gateway() {
    let (mut gateway, _) = fake().await;
    let body = json!({ "agent": "fake" });
    let session = create(&gateway, "s", &body).await.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let first = keyed(&gateway, &session, "p", "hello").await;
    gateway.kill();
    gateway.start();
    let again = keyed(&gateway, &session, "p", "hello").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.body, first.body);
    keyed(&gateway, &session, "p", "other")
        .await
        .problem(422, "idempotency_mismatch");
    let again = create(&gateway, "s", &body).await;
    assert_eq!(
        (
            again.header("idempotency-replayed"),
            &again.body["sessionId"]
        ),
        (Some("true"), &json!(session))
    );
    one(&gateway.lawful(&session).await, "prompt.started");
}

#[tokio::test]
async fn a_key_is_one_header_of_255_printable_characters() {
    let (gateway, session) = fake().await;
    let long = "x".repeat(256);
    for key in ["", &long] {
        keyed(&gateway, &session, key, "hello")
            .await
            .problem(422, "invalid");
    }
    assert_eq!(
        keyed(&gateway, &session, &long[1..], "hello").await.status,
        StatusCode::OK
    );
}
