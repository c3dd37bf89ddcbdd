//! The responses API: ids, resume at any position, background, cancel, and errors.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{RESPONSES, body, frames, post, prompts, sessions, text};
use crate::support::{Gateway, Setup};

const PROMPT: &str = "thought; slow chunks=2 ms=1; tool; usage; slow chunks=2 ms=1";

fn request(input: &str) -> Value {
    json!({ "model": "fake", "input": input, "stream": true })
}

async fn read(gateway: &Gateway, id: &str, after: Option<usize>) -> String {
    let after = after.map_or_else(String::new, |after| format!("&starting_after={after}"));
    let path = format!("{RESPONSES}/{id}?stream=true{after}");
    body(gateway.request(Method::GET, &path))
        .await
        .replace(":\n", "")
}

#[tokio::test]
async fn response_is_read_again_from_any_position_also_after_a_kill() {
    let mut gateway = Setup::fake(&[]).start();
    let live = post(&gateway, RESPONSES, &request(PROMPT))
        .await
        .replace(":\n", "");
    let all = frames(&live);
    let numbers: Vec<u64> = all
        .iter()
        .filter_map(|frame| frame["sequence_number"].as_u64())
        .collect();
    assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
    let id = all[0]["response"]["id"].as_str().expect("an id").to_owned();
    for killed in [false, true] {
        if killed {
            gateway.kill();
            gateway.start();
        }
        assert_eq!(read(&gateway, &id, None).await, live, "killed: {killed}");
        for after in [0, 7, all.len() - 2] {
            let rest = frames(&read(&gateway, &id, Some(after)).await);
            assert_eq!(
                rest[..],
                all[after + 1..],
                "after {after}, killed: {killed}"
            );
        }
        let whole = gateway.get(&format!("{RESPONSES}/{id}")).await;
        assert_eq!(
            whole,
            all.last().expect("a frame")["response"],
            "killed: {killed}"
        );
    }
}

#[tokio::test]
async fn running_response_is_read_to_its_end() {
    let gateway = Setup::fake(&[]).start();
    let mut begun = request("slow chunks=20 ms=50");
    (begun["stream"], begun["background"]) = (json!(false), json!(true));
    let (status, begun) = gateway.post(RESPONSES, &begun).await;
    assert_eq!(
        (status, &begun["status"]),
        (StatusCode::OK, &json!("in_progress")),
        "{begun}"
    );
    let id = begun["id"].as_str().expect("an id");
    let (one, two) = tokio::join!(read(&gateway, id, None), read(&gateway, id, Some(3)));
    let one = frames(&one);
    let two = frames(&two);
    assert_eq!(one[4..], two[..]);
    assert_eq!(one.last().expect("a frame")["type"], "response.completed");
}

#[tokio::test]
async fn background_response_outlives_its_client_and_is_cancelled_by_its_route() {
    let gateway = Setup::fake(&[]).start();
    let mut hang = request("slow chunks=1 ms=1; hang");
    hang["background"] = json!(true);
    let mut response = gateway
        .request(Method::POST, RESPONSES)
        .json(&hang)
        .send()
        .await
        .expect("an answer");
    let session = response.headers()["x-acp-session-id"]
        .to_str()
        .expect("an id")
        .to_owned();
    response.chunk().await.expect("a chunk");
    drop(response);
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    let path = format!("{RESPONSES}/resp_{session}_p1");
    assert_eq!(
        gateway.get(&path).await["status"],
        "in_progress",
        "no client is connected, and the turn goes on"
    );
    let (status, cancelled) = gateway.post(&format!("{path}/cancel"), &json!({})).await;
    assert_eq!(
        (status, &cancelled["status"], &cancelled["metadata"]),
        (
            StatusCode::OK,
            &json!("cancelled"),
            &json!({ "cancelCause": "person" })
        ),
        "{cancelled}"
    );
    assert_eq!(gateway.get(&path).await, cancelled);
}

#[tokio::test]
async fn next_response_continues_the_session() {
    let gateway = Setup::fake(&[]).start();
    let first = frames(&post(&gateway, RESPONSES, &request("echo one")).await);
    let session = sessions(&gateway).await.first().expect("a session").clone();
    for (member, value) in [
        ("previous_response_id", first[0]["response"]["id"].clone()),
        ("conversation", json!(format!("conv_{session}"))),
        ("conversation", json!({ "id": format!("conv_{session}") })),
    ] {
        let mut next = request("echo next");
        next[member] = value;
        assert_eq!(
            text(&frames(&post(&gateway, RESPONSES, &next).await)),
            "next"
        );
    }
    assert_eq!(
        prompts(&gateway, &session).await,
        ["echo one", "echo next", "echo next", "echo next"]
    );
    // Without an id, the history finds the session.
    let item = |role: &str, text: &str| json!({ "role": role, "content": text });
    let first = json!({ "model": "fake", "input": [item("user", "echo a")] });
    let (_, answer) = gateway.post(RESPONSES, &first).await;
    assert_eq!(answer["output"][0]["content"][0]["text"], "a");
    let next = json!({ "model": "fake", "input": [item("user", "echo a"), item("assistant", "a"), item("user", "echo b")] });
    let (_, second) = gateway.post(RESPONSES, &next).await;
    assert_eq!(second["conversation"], answer["conversation"]);
}

#[tokio::test]
async fn responses_that_do_not_exist_are_errors() {
    let gateway = Setup::fake(&[]).start();
    let first = frames(&post(&gateway, RESPONSES, &request("echo one")).await);
    let id = first[0]["response"]["id"].as_str().expect("an id");
    for unknown in [
        "resp_1",
        "resp_01990000-0000-7000-8000-000000000000_p1",
        &id.replace("_p1", "_p2"),
    ] {
        let response = gateway
            .request(Method::GET, &format!("{RESPONSES}/{unknown}"))
            .send()
            .await
            .expect("an answer");
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{unknown}");
        let mut next = request("echo next");
        next["previous_response_id"] = json!(unknown);
        assert_eq!(
            gateway.post(RESPONSES, &next).await.0,
            StatusCode::NOT_FOUND,
            "{unknown}"
        );
    }
    let (status, error) = gateway
        .send(Method::DELETE, &format!("{RESPONSES}/{id}"), &Value::Null)
        .await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (StatusCode::METHOD_NOT_ALLOWED, &json!("method_not_allowed"))
    );
    let later = gateway.get(&format!("{RESPONSES}/{id}_2")).await;
    assert_eq!(
        (&later["status"], &later["error"]["code"]),
        (&json!("failed"), &json!("not_found"))
    );
    let mut both = request("echo x");
    (both["previous_response_id"], both["conversation"]) = (json!(id), json!("conv_x"));
    assert_eq!(
        gateway.post(RESPONSES, &both).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let failed = frames(&post(&gateway, RESPONSES, &request("error message=broken")).await);
    let last = failed.last().expect("a frame");
    assert_eq!(
        (&last["type"], &last["response"]["error"]["code"]),
        (&json!("response.failed"), &json!("agent_error"))
    );
}

fn ids(list: &Value) -> Vec<&str> {
    list["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|item| item["id"].as_str())
        .collect()
}

#[tokio::test]
async fn conversation_is_a_session_with_items() {
    let gateway = Setup::fake(&[]).start();
    let conversations = "/openai/v1/conversations";
    let (status, created) = gateway
        .post(conversations, &json!({ "metadata": { "topic": "x" } }))
        .await;
    assert_eq!(
        (status, &created["object"]),
        (StatusCode::OK, &json!("conversation")),
        "{created}"
    );
    let path = format!("{conversations}/{}", created["id"].as_str().expect("an id"));
    assert_eq!(gateway.get(&path).await, created);
    assert_eq!(created["metadata"], json!({ "topic": "x" }));

    let mut first = request("thought; echo one");
    first["conversation"] = created["id"].clone();
    post(&gateway, RESPONSES, &first).await;
    let mut asking = request("permission");
    asking["conversation"] = created["id"].clone();
    let asking = frames(&post(&gateway, RESPONSES, &asking).await);
    let response = asking.last().expect("a frame")["response"]["id"]
        .as_str()
        .expect("an id");
    let question = response.replace("resp_", "mcpr_") + "_r1";
    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": question, "approve": true });
    let answer = json!({ "model": "fake", "previous_response_id": response, "input": [answer] });
    let (_, answered) = gateway.post(RESPONSES, &answer).await;
    assert_eq!(answered["id"], format!("{response}_2"));

    let all = gateway
        .get(&format!("{path}/items?order=asc&limit=100"))
        .await;
    let kinds: Vec<&str> = all["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|item| item["type"].as_str())
        .collect();
    let expected = [
        "message",
        "reasoning",
        "message",
        "message",
        "mcp_call",
        "mcp_approval_request",
    ];
    assert_eq!(
        kinds,
        [&expected[..], &["mcp_approval_response", "message"]].concat(),
        "{all}"
    );
    let newest = gateway.get(&format!("{path}/items?limit=100")).await;
    let mut reversed = ids(&newest);
    reversed.reverse();
    assert_eq!(reversed, ids(&all));
    // Page by page.
    let mut paged = Vec::new();
    let mut after = String::new();
    loop {
        let page = gateway
            .get(&format!("{path}/items?order=asc&limit=3{after}"))
            .await;
        paged.extend(ids(&page).into_iter().map(str::to_owned));
        if page["has_more"] == false {
            break;
        }
        after = format!("&after={}", page["last_id"].as_str().expect("an id"));
    }
    assert_eq!(paged, ids(&all));
    for wrong in ["after=msg_none", "limit=0", "order=up"] {
        let response = gateway
            .request(Method::GET, &format!("{path}/items?{wrong}"))
            .send()
            .await
            .expect("an answer");
        assert_eq!(
            response.status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{wrong}"
        );
    }

    let input = gateway
        .get(&format!("{RESPONSES}/{response}/input_items"))
        .await;
    assert_eq!(
        input["data"][0]["content"],
        json!([{ "type": "input_text", "text": "permission" }])
    );
    let input = gateway
        .get(&format!("{RESPONSES}/{response}_2/input_items"))
        .await;
    assert_eq!(
        (
            input["data"].as_array().map(Vec::len),
            &input["data"][0]["approve"]
        ),
        (Some(1), &json!(true))
    );

    let (status, deleted) = gateway.send(Method::DELETE, &path, &Value::Null).await;
    assert_eq!(
        (status, &deleted["deleted"]),
        (StatusCode::OK, &json!(true))
    );
    let gone = gateway
        .request(Method::GET, &path)
        .send()
        .await
        .expect("an answer");
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    assert!(super::sessions(&gateway).await.is_empty());
}
