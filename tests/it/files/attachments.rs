//! Files attached to a prompt, in the form that the agent accepts.

use serde_json::{Value, json};

use super::Ground;
use crate::support::log::all;
use crate::support::{Answer, Setup};

/// A minimal file with the extension of a PNG. No test reads its content.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0";

async fn ground(args: &[&str]) -> Ground {
    let setup = Setup::fake(args).settings(
        "server.max_prompt_bytes = \"64KiB\"\ntesting.max_attached_text_bytes = \"1KiB\"",
    );
    let ground = Ground::new(setup, &json!({ "agent": "fake" })).await;
    ground.make("a b.txt", "one\n");
    ground.make("long.txt", "x".repeat(1025));
    ground.make("huge.bin", vec![0; 60_000]);
    ground.make("picture.png", PNG);
    ground.make("sound.wav", PNG);
    ground.make("drawing.svg", "<svg/>");
    ground.make("nameless", b"\0\x01");
    ground
}

async fn prompted(ground: &Ground, attachments: &Value) -> Answer {
    let path = format!("/v1/sessions/{}/prompts", ground.session);
    let body = json!({ "prompt": "hello", "attachments": attachments });
    ground
        .gateway
        .posted(&path, &[("prefer", "wait=60")], &body)
        .await
}

/// The blocks after the text that the agent received, without the name of the folder.
async fn sent(ground: &Ground, attachments: Value) -> Vec<Value> {
    let answer = prompted(ground, &attachments).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["status"]),
        (200, &json!("completed")),
        "{answer:?}"
    );
    let events = ground.gateway.lawful(&ground.session).await;
    let started = all(&events, "prompt.started");
    let prompt = started.last().expect("it began")["prompt"]
        .to_string()
        .replace(&ground.cwd, "/CWD");
    let mut blocks: Vec<Value> = serde_json::from_str(&prompt).expect("JSON");
    assert_eq!(
        blocks.remove(0),
        json!({ "type": "text", "text": "hello" }),
        "the prompt's own come first"
    );
    blocks
}

#[tokio::test]
async fn default_restore_method_is_the_agents() {
    let ground = ground(&[]).await;
    let files = [
        "a b.txt",
        "long.txt",
        "picture.png",
        "drawing.svg",
        "nameless",
    ];
    let blocks = sent(
        &ground,
        files.iter().map(|path| json!({ "path": path })).collect(),
    )
    .await;
    assert_eq!(
        json!(blocks),
        json!([
            { "type": "resource", "resource": { "uri": "file:///CWD/a%20b.txt", "text": "one\n", "mimeType": "text/plain" } },
            { "type": "resource_link", "uri": "file:///CWD/long.txt", "name": "long.txt", "mimeType": "text/plain", "size": 1025 },
            { "type": "resource_link", "uri": "file:///CWD/picture.png", "name": "picture.png", "mimeType": "image/png", "size": 9 },
            { "type": "resource", "resource": { "uri": "file:///CWD/drawing.svg", "text": "<svg/>", "mimeType": "image/svg+xml" } },
            { "type": "resource_link", "uri": "file:///CWD/nameless", "name": "nameless", "size": 2 },
        ])
    );
}

#[tokio::test]
async fn agent_with_image_and_audio_capability_receives_them() {
    let ground = ground(&["--media"]).await;
    let blocks = sent(
        &ground,
        json!([{ "path": "picture.png" }, { "path": "sound.wav" }]),
    )
    .await;
    let data = "iVBORw0KGgoA";
    assert_eq!(
        json!(blocks),
        json!([
            { "type": "image", "data": data, "mimeType": "image/png", "uri": "file:///CWD/picture.png" },
            { "type": "audio", "data": data, "mimeType": "audio/wav" },
        ])
    );
    let not_by_name = prompted(&ground, &json!([{ "path": "a b.txt", "as": "image" }])).await;
    assert_eq!(
        not_by_name.problem(422, "invalid")["errors"][0]["pointer"],
        "/attachments/0/as"
    );
}

#[tokio::test]
async fn explicit_restore_method_is_used_or_rejected() {
    let ground = ground(&[]).await;
    let wishes = json!([
        { "path": "a b.txt", "as": "resource_link" },
        { "path": "long.txt", "as": "resource" },
        { "path": "nameless", "as": "resource" },
    ]);
    let blocks = sent(&ground, wishes).await;
    assert_eq!(blocks[0]["type"], "resource_link");
    assert_eq!(blocks[1]["resource"]["text"], "x".repeat(1025));
    assert_eq!(
        blocks[2]["resource"],
        json!({ "uri": "file:///CWD/nameless", "blob": "AAE=" })
    );
    for kind in ["image", "audio"] {
        let refused = prompted(
            &ground,
            &json!([{ "path": "a b.txt" }, { "path": "picture.png", "as": kind }]),
        )
        .await;
        let problem = refused.problem(422, "content_unsupported");
        assert_eq!(problem["errors"][0]["pointer"], "/attachments/1/as");
    }
}

#[tokio::test]
async fn agent_without_capabilities_receives_resource_links() {
    let ground = ground(&["--no-capabilities"]).await;
    let blocks = sent(
        &ground,
        json!([{ "path": "a b.txt" }, { "path": "picture.png" }]),
    )
    .await;
    assert!(
        blocks.iter().all(|block| block["type"] == "resource_link"),
        "{blocks:?}"
    );
    let refused = prompted(&ground, &json!([{ "path": "a b.txt", "as": "resource" }])).await;
    refused.problem(422, "content_unsupported");
}

#[tokio::test]
async fn invalid_attachment_is_rejected_before_the_turn() {
    let ground = ground(&[]).await;
    let many: Value = (0..65)
        .map(|_| json!({ "path": "a b.txt", "as": "resource_link" }))
        .collect();
    for (attachments, status, code, pointer) in [
        (
            json!([{ "path": "a b.txt" }, { "path": "none" }]),
            422,
            "invalid",
            "/attachments/1/path",
        ),
        (
            json!([{ "path": "../x" }]),
            422,
            "invalid",
            "/attachments/0/path",
        ),
        (
            json!([{ "path": "" }]),
            422,
            "invalid",
            "/attachments/0/path",
        ),
        (
            json!([{ "path": "." }]),
            422,
            "invalid",
            "/attachments/0/path",
        ),
        (
            json!([{ "path": "a b.txt", "as": "link" }]),
            422,
            "invalid",
            "/attachments/0/as",
        ),
        (
            json!([{ "path": "a b.txt", "name": "x" }]),
            422,
            "invalid",
            "/attachments/0/name",
        ),
        (many, 422, "invalid", "/attachments"),
        (json!([{ "path": "/etc/passwd" }]), 403, "forbidden", ""),
        (
            json!([{ "path": "huge.bin", "as": "resource" }]),
            413,
            "too_large",
            "",
        ),
    ] {
        let problem = prompted(&ground, &attachments).await.problem(status, code);
        if !pointer.is_empty() {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{attachments}");
        }
    }
    let session = ground.gateway.get_session(&ground.session).await;
    assert_eq!(
        (&session["state"], &session["promptId"]),
        (&json!("idle"), &Value::Null)
    );
    assert_eq!(
        sent(&ground, json!([{ "path": "huge.bin" }])).await[0]["size"],
        60_000,
        "a link needs no room"
    );
    assert_eq!(
        all(
            &ground.gateway.lawful(&ground.session).await,
            "prompt.started"
        )
        .len(),
        1
    );
}

#[tokio::test]
async fn repeated_request_returns_the_first_turn_after_a_change_of_the_file() {
    let ground = ground(&[]).await;
    let path = format!("/v1/sessions/{}/prompts", ground.session);
    let post = async |attachment: &str| {
        let body = json!({ "prompt": "hello", "attachments": [{ "path": attachment }] });
        ground
            .gateway
            .posted(
                &path,
                &[("idempotency-key", "k"), ("prefer", "wait=60")],
                &body,
            )
            .await
    };
    assert_eq!(
        post("none").await.status,
        422,
        "a rejected prompt is not recorded"
    );
    let first = post("a b.txt").await;
    assert_eq!(first.status, 200);
    std::fs::remove_file(format!("{}/a b.txt", ground.cwd)).expect("it is ours");
    let again = post("a b.txt").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.body["promptId"], first.body["promptId"]);
    post("long.txt").await.problem(422, "idempotency_mismatch");
}
