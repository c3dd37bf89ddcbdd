//! The API of `OpenAI`: models, errors, side jobs, and clients that disconnect.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{
    AG_UI, AI_SDK, COMPLETIONS, RESPONSES, completion, frames, post, run_input, sessions, text,
    turns, ui_messages,
};
use crate::key_life::{key, key_command};
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Setup, gateway::KEY};

#[tokio::test]
async fn agents_are_models() {
    let gateway = Setup::fake(&[]).start();
    let list = gateway.get("/openai/v1/models").await;
    assert_eq!(
        (&list["object"], &list["data"][0]["id"]),
        (&json!("list"), &json!("fake"))
    );
    assert_eq!(gateway.get("/openai/v1/models/fake").await, list["data"][0]);
    let response = gateway
        .request(Method::GET, "/openai/v1/models/none%2Fx")
        .send()
        .await
        .expect("an answer");
    let status = response.status();
    let error: serde_json::Value = response.json().await.expect("JSON");
    assert_eq!(
        (status, &error["error"]["code"], &error["code"]),
        (
            StatusCode::NOT_FOUND,
            &json!("not_found"),
            &json!("not_found")
        )
    );
}

#[tokio::test]
async fn model_of_the_agent_is_selected_by_its_option() {
    let gateway = Setup::fake(&[]).start();
    let mut request = completion(&["echo x"], false);
    for (model, expected) in [
        ("fake/nothing", StatusCode::NOT_FOUND),
        ("fake/large", StatusCode::OK),
    ] {
        request["model"] = json!(model);
        let (status, answer) = gateway.post(COMPLETIONS, &request).await;
        assert_eq!(status, expected, "{answer}");
    }
    let [session] = &sessions(&gateway).await[..] else {
        panic!("the rejected request left a session")
    };
    let options = &gateway.get(&format!("/v1/sessions/{session}")).await["configOptions"];
    assert_eq!(options[0]["currentValue"], "large", "{options}");
    let models = gateway.get("/openai/v1/models").await;
    let ids: Vec<&str> = models["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|model| model["id"].as_str())
        .collect();
    assert!(
        ids.starts_with(&["fake"]) && ids.contains(&"fake/large"),
        "the agent and its models: {ids:?}"
    );
    assert_eq!(
        gateway.get("/openai/v1/models/fake%2Flarge").await["id"],
        "fake/large"
    );
    let unknown = gateway
        .request(Method::GET, "/openai/v1/models/fake/nothing")
        .send()
        .await
        .expect("an answer");
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn whole_answer_equals_the_stream() {
    let gateway = Setup::fake(&[]).start();
    let prompt = "thought; tool; slow chunks=1 ms=1; usage";
    let streamed = frames(&post(&gateway, COMPLETIONS, &completion(&[prompt], true)).await);
    let (status, whole) = gateway
        .post(COMPLETIONS, &completion(&[prompt], false))
        .await;
    assert_eq!(status, StatusCode::OK);
    let choice = &whole["choices"][0];
    assert_eq!(
        choice["message"]["content"],
        json!(text(&streamed)),
        "{whole}"
    );
    assert_eq!(choice["message"]["reasoning_content"], "hm", "{whole}");
    assert_eq!(
        (&choice["finish_reason"], &whole["object"]),
        (&json!("stop"), &json!("chat.completion"))
    );
    assert_eq!(streamed[0]["choices"][0]["delta"]["role"], "assistant");
}

#[tokio::test]
async fn failure_is_an_error_frame_or_an_error_body() {
    let gateway = Setup::fake(&[]).start();
    let streamed = post(
        &gateway,
        COMPLETIONS,
        &completion(&["error message=broken"], true),
    )
    .await;
    assert!(streamed.ends_with("data: [DONE]\n\n"), "{streamed}");
    let last = frames(&streamed).pop().expect("a frame");
    assert_eq!(last["error"]["code"], "agent_error", "{last}");
    // The libraries repeat a 5xx, and the agent has seen the prompt.
    for prompt in ["error message=broken", "crash"] {
        let request = gateway
            .request(Method::POST, COMPLETIONS)
            .json(&completion(&[prompt], false));
        let failed = request.send().await.expect("an answer");
        assert_eq!(failed.status(), StatusCode::FAILED_DEPENDENCY, "{prompt}");
        assert_eq!(failed.headers()["x-should-retry"], "false");
        let error: serde_json::Value = failed.json().await.expect("JSON");
        assert!(error["error"]["message"].is_string(), "{error}");
    }
}

/// After twenty seconds, the status is sent before the turn ends. The body has the text and the failure.
/// Libraries repeat a response with 500. Its agent saw the prompt, so the status is another one, and the session is named.
#[tokio::test]
async fn failed_turn_has_its_session_and_is_not_repeated() {
    let gateway = Setup::fake(&[]).start();
    for (path, content) in [
        (COMPLETIONS, completion(&["error message=broken"], false)),
        (
            RESPONSES,
            json!({ "model": "fake", "input": "error message=broken" }),
        ),
    ] {
        let request = gateway.request(Method::POST, path).json(&content);
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::FAILED_DEPENDENCY, "{path}");
        assert_eq!(response.headers()["x-should-retry"], "false");
        let session = response.headers()["x-acp-session-id"].to_str();
        let session = session.expect("an id").to_owned();
        let body = response.text().await.expect("a body");
        assert!(body.contains("broken"), "{body}");
        assert_eq!(turns(&gateway, &session).await, 1, "{path}");
    }
}

#[tokio::test]
async fn late_failure_is_a_completion_with_its_reason() {
    let gateway = Setup::fake(&[]).start();
    let prompt = "slow chunks=2 ms=10500; error message=broken";
    let (status, whole) = gateway
        .post(COMPLETIONS, &completion(&[prompt], false))
        .await;
    assert_eq!(status, StatusCode::OK, "{whole}");
    let choice = &whole["choices"][0];
    let content = choice["message"]["content"].as_str().expect("a text");
    assert!(
        content.ends_with("\n\n[Error: the agent answered with an error: broken (-32603)]"),
        "{content}"
    );
    assert_eq!(choice["finish_reason"], "length");
    // With the member, some clients show an empty error.
    assert!(whole["error"].is_null(), "{whole}");
}

#[tokio::test]
async fn side_job_stays_out_of_the_conversation() {
    let gateway = Setup::fake(&[]).start();
    let chat = |content: &serde_json::Value| {
        gateway
            .request(Method::POST, COMPLETIONS)
            .header("x-openwebui-chat-id", "c")
            .json(content)
            .send()
    };
    chat(&completion(&["echo one"], false))
        .await
        .expect("an answer")
        .text()
        .await
        .expect("a body");
    let title = chat(&completion(&["### Task:\nGenerate a title"], false))
        .await
        .expect("an answer");
    assert_eq!(title.status(), StatusCode::OK);
    let title: serde_json::Value = title.json().await.expect("JSON");
    assert!(
        title["choices"][0]["message"]["content"].is_string(),
        "{title}"
    );
    let [session] = &sessions(&gateway).await[..] else {
        panic!("one session is listed")
    };
    assert_eq!(turns(&gateway, session).await, 1);
}

#[tokio::test]
async fn turn_of_a_client_that_left_is_cancelled() {
    let gateway = Setup::fake(&[]).start();
    let mut response = gateway
        .request(Method::POST, COMPLETIONS)
        .json(&completion(&["slow chunks=1 ms=1; hang"], true))
        .send()
        .await
        .expect("an answer");
    let session = response.headers()["x-acp-session-id"]
        .to_str()
        .expect("an id")
        .to_owned();
    response.chunk().await.expect("a chunk");
    drop(response);
    eventually("a cancel", LONGEST, || async {
        let events = gateway.all_events(&session).await;
        events
            .iter()
            .any(|event| {
                event["type"] == "prompt.completed" && event["cancelCause"] == "disconnect"
            })
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn drain_and_an_ended_key_are_errors_in_the_stream() {
    let mut gateway = Setup::fake(&[])
        .settings("timeouts.drain_timeout = \"500ms\"")
        .start();
    let key = key(&gateway, "short", "read,prompt").await;
    let url = format!("{}{COMPLETIONS}", gateway.url);
    let hang = completion(&["slow chunks=1 ms=1; hang"], true);
    let held = gateway
        .http
        .post(&url)
        .bearer_auth(&key)
        .json(&hang)
        .send()
        .await
        .expect("an answer");
    key_command(&gateway, &["revoke", "short"]);
    let ended = held.text().await.expect("a body");
    assert!(
        frames(&ended).pop().expect("a frame")["error"]["code"].is_string(),
        "{ended}"
    );

    let mut held = gateway
        .http
        .post(&url)
        .bearer_auth(KEY)
        .json(&hang)
        .send()
        .await
        .expect("an answer");
    // The turn has begun.
    let mut drained = String::new();
    while drained.matches("\"content\":").count() < 2 {
        let chunk = held
            .chunk()
            .await
            .expect("a chunk")
            .expect("the turn does not end");
        drained.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
    }
    gateway.stop();
    drained.push_str(&held.text().await.expect("a body"));
    let error = &frames(&drained).pop().expect("a frame")["error"];
    assert_eq!(error["code"], "draining", "{drained}");
    let message = error["message"].as_str().expect("a text");
    assert!(
        message.contains("is cancelled after timeouts.drain_timeout"),
        "{message}"
    );
}

/// A client that does not read is cut off in the middle of the body, in each protocol: never at a proper end.
#[tokio::test]
async fn slow_reader_gets_no_proper_end() {
    let settings = "testing.write_stall_timeout = \"4s\"\nlimits.per_key.max_streams = 1";
    let gateway = Setup::fake(&[]).settings(settings).start();
    let key = key(&gateway, "slow", "read,prompt").await;
    let request = |method, path: &str| {
        gateway
            .http
            .request(method, format!("{}{path}", gateway.url))
            .bearer_auth(&key)
    };
    let prompt = "flood n=200000";
    for (path, content) in [
        (COMPLETIONS, completion(&[prompt], true)),
        (
            super::RESPONSES,
            json!({ "model": "fake", "input": prompt, "stream": true }),
        ),
        (super::AI_SDK, super::ui_messages("c", &[prompt])),
        (super::AG_UI, super::run_input("t", "r", &[prompt])),
    ] {
        let response = request(Method::POST, path)
            .json(&content)
            .send()
            .await
            .expect("an answer");
        let session = response.headers()["x-acp-session-id"]
            .to_str()
            .expect("an id")
            .to_owned();
        let events = format!("/v1/sessions/{session}/events");
        let other = || {
            request(Method::GET, &events)
                .header("accept", "application/x-ndjson")
                .send()
        };
        assert_eq!(
            other().await.expect("an answer").status(),
            StatusCode::TOO_MANY_REQUESTS,
            "{path}"
        );
        // The gateway has given up this response when it permits another stream.
        eventually("the end of the stream", LONGEST, || async {
            (other().await.expect("an answer").status() == StatusCode::OK).then_some(())
        })
        .await;
        let body = response.bytes().await;
        assert!(
            body.is_err(),
            "{path}: the body of {} bytes ended properly",
            body.map_or(0, |body| body.len())
        );
    }
}

#[tokio::test]
async fn requests_that_no_agent_can_satisfy_are_rejected() {
    let gateway = Setup::fake(&[]).start();
    for (member, value) in [
        ("tool_choice", json!("required")),
        ("function_call", json!({ "name": "x" })),
        ("response_format", json!({ "type": "json_object" })),
        ("n", json!(2)),
        ("messages", json!([])),
    ] {
        let mut request = completion(&["echo x"], false);
        request[member] = value;
        let (status, error) = gateway.post(COMPLETIONS, &request).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{error}");
        assert!(error["error"]["message"].is_string(), "{error}");
    }
    let mut plain = completion(&["echo x"], false);
    plain["response_format"] = json!({ "type": "text" });
    assert_eq!(gateway.post(COMPLETIONS, &plain).await.0, StatusCode::OK);
    let format = json!({ "format": { "type": "json_schema", "name": "x", "schema": {} } });
    let request = json!({ "model": "fake", "input": "echo x", "text": format });
    let (status, error) = gateway.post(super::RESPONSES, &request).await;
    assert_eq!(
        (status, &error["errors"][0]["pointer"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("/text/format"))
    );
    let response = gateway
        .request(Method::POST, COMPLETIONS)
        .header("content-type", "application/json")
        .body("{")
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let response = gateway
        .http
        .get(format!("{}/openai/v1/models", gateway.url))
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        response.json::<serde_json::Value>().await.expect("JSON")["error"]["type"],
        "authentication_error"
    );
}

/// A page of another origin may send what the SDKs send, and read the session.
#[tokio::test]
async fn browser_of_another_origin_may_use_the_sdk() {
    let gateway = Setup::fake(&[])
        .settings("auth.allowed_origins = [\"https://app.example\"]")
        .start();
    let url = format!("{}{COMPLETIONS}", gateway.url);
    let preflight = gateway
        .http
        .request(Method::OPTIONS, &url)
        .header("origin", "https://app.example");
    let preflight = preflight
        .header("access-control-request-method", "POST")
        .send()
        .await
        .expect("an answer");
    let allowed = preflight.headers()["access-control-allow-headers"]
        .to_str()
        .expect("ASCII")
        .to_owned();
    for name in [
        "authorization",
        "x-stainless-retry-count",
        "x-stainless-lang",
        "x-acp-session-id",
        "x-acp-history",
    ] {
        assert!(
            allowed.split(", ").any(|allowed| allowed == name),
            "{name}: {allowed}"
        );
    }
    let request = gateway
        .http
        .post(&url)
        .bearer_auth(KEY)
        .header("origin", "https://app.example");
    let response = request
        .json(&completion(&["echo x"], true))
        .send()
        .await
        .expect("an answer");
    let exposed = response.headers()["access-control-expose-headers"]
        .to_str()
        .expect("ASCII")
        .to_owned();
    for name in response
        .headers()
        .keys()
        .map(reqwest::header::HeaderName::as_str)
        .filter(|name| name.starts_with("x-acp"))
    {
        assert!(exposed.contains(name), "{name}: {exposed}");
    }
    assert!(response.headers().contains_key("x-acp-session-id"));
}

#[tokio::test]
async fn each_protocol_and_the_log_say_why_the_gateway_cancelled_the_turn() {
    let more = "turn_idle_timeout = \"1s\"";
    let gateway = Setup::fake_with(&[], more).start();
    let (status, answer) = gateway
        .post(COMPLETIONS, &completion(&["hang"], false))
        .await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["content"]),
        (
            &json!("stop"),
            &json!("[Cancelled: the agent sent nothing for turn_idle_timeout]")
        ),
        "{answer}"
    );
    let response = json!({ "model": "fake", "input": "hang" });
    let (status, answer) = gateway.post("/openai/v1/responses", &response).await;
    assert_eq!(
        (status, &answer["status"], &answer["metadata"]),
        (
            StatusCode::OK,
            &json!("cancelled"),
            &json!({ "cancelCause": "silence" })
        ),
        "{answer}"
    );
    let ended = frames(&post(&gateway, AI_SDK, &ui_messages("chat", &["hang"])).await);
    let abort = ended.iter().find(|frame| frame["type"] == "abort");
    assert_eq!(
        abort.expect("an end")["reason"],
        "the agent sent nothing for turn_idle_timeout"
    );
    let ended = frames(&post(&gateway, AG_UI, &run_input("thread", "run", &["hang"])).await);
    let end = ended.iter().find(|frame| frame["type"] == "RUN_FINISHED");
    assert_eq!(end.expect("an end")["result"]["cancelCause"], "silence");
    let logged = gateway.log().matches("\"cause\":\"silence\"").count();
    assert_eq!(logged, 4, "{}", gateway.log());
}

/// A client that only looks at a turn of others does not cancel it.
#[tokio::test]
async fn viewer_that_leaves_cancels_nothing() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let prompt = gateway.prompt(&session, "slow chunks=8 ms=1000").await;
    let look = super::run_input(&session, "look", &[]);
    let mut viewer = gateway
        .request(Method::POST, super::AG_UI)
        .json(&look)
        .send()
        .await
        .expect("an answer");
    viewer.chunk().await.expect("a chunk");
    drop(viewer);
    let path = format!(
        "/v1/sessions/{session}/prompts/{}",
        prompt["promptId"].as_str().expect("an id")
    );
    let request = gateway
        .request(Method::GET, &path)
        .header("prefer", "wait=60");
    let ended: serde_json::Value = request
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(ended["stopReason"], "end_turn", "{ended}");
}
