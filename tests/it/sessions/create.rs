//! New sessions: their state, and the parameters that a client may not set.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::log::{kinds, one};
use crate::support::{Answer, Gateway, Setup};

async fn create(gateway: &Gateway, body: &Value) -> Answer {
    gateway.posted("/v1/sessions", &[], body).await
}

fn received(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("data/homes/default/fake/received"))
        .expect("the agent's own record")
}

/// The members of a new session, sorted.
const MEMBERS: [&str; 27] = [
    "access",
    "agent",
    "attached",
    "availableCommands",
    "configOptions",
    "createdAt",
    "cwd",
    "isolation",
    "lastActivityAt",
    "lastEventId",
    "lastOutcome",
    "metadata",
    "modes",
    "owner",
    "plan",
    "policy",
    "promptCapabilities",
    "promptId",
    "queued",
    "requests",
    "revision",
    "sessionId",
    "state",
    "title",
    "titleBy",
    "updatedAt",
    "usage",
];

#[tokio::test]
async fn new_session_is_complete_and_is_the_first_event_of_its_log() {
    let gateway = Setup::fake(&[]).start();
    let body = json!({ "agent": "fake", "title": "First", "metadata": { "a": [1, null] } });
    let answer = create(&gateway, &body).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let session = answer.body.clone();
    let id = session["sessionId"].as_str().expect("an id");
    assert_eq!(
        answer.header("location"),
        Some(&*format!("/v1/sessions/{id}"))
    );
    let last = session["lastEventId"].as_str().expect("a cursor");
    assert_eq!(answer.header("etag"), Some(&*format!("\"{last}\"")));
    let mut members: Vec<&str> = session
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    members.sort_unstable();
    assert_eq!(members, MEMBERS);
    for (member, value) in [
        ("agent", json!("fake")),
        ("owner", json!("owner")),
        ("access", json!("own")),
        ("title", json!("First")),
        ("titleBy", json!("client")),
        ("metadata", json!({ "a": [1, null] })),
        ("state", json!("idle")),
        ("attached", json!(true)),
        ("isolation", json!({ "level": "off", "mechanism": "none" })),
        ("promptId", Value::Null),
        ("queued", json!([])),
        ("requests", json!([])),
        (
            "promptCapabilities",
            json!({ "image": false, "audio": false, "embeddedContext": true }),
        ),
        ("plan", Value::Null),
    ] {
        assert_eq!(session[member], value, "{member}");
    }
    assert_eq!(session["modes"]["currentModeId"], "ask");
    assert_eq!(session["configOptions"][0]["id"], "model");
    let got = gateway
        .call(Method::GET, &format!("/v1/sessions/{id}"))
        .await;
    assert_eq!(
        (&got.body, got.header("etag")),
        (&session, answer.header("etag"))
    );

    let events = gateway.lawful(id).await;
    assert_eq!(kinds(&events), ["session.created", "session.attached"]);
    assert_eq!(
        (
            &events[0]["session"]["sessionId"],
            &events[0]["session"]["title"]
        ),
        (&json!(id), &json!("First"))
    );
    let attached = one(&events, "session.attached");
    assert_eq!(attached["protocolVersion"], 1);
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("new"), &json!("kept"))
    );
    assert_eq!(attached["agentInfo"]["name"], "fake-agent");
    assert_eq!(attached["agentCapabilities"]["loadSession"], true);
    assert_eq!(
        attached["result"]["sessionId"], id,
        "the agent's own id is never shown"
    );
    assert_eq!(events[1]["id"], session["lastEventId"]);
}

#[tokio::test]
async fn a_session_has_a_folder_of_its_own_or_one_below_the_root() {
    let gateway = Setup::fake(&["--log", "received", "--directories"]).start();
    let root = gateway
        .path("data/workspaces")
        .canonicalize()
        .expect("the root of workspaces");
    std::fs::create_dir_all(root.join("project/part")).expect("the folder is ours");
    let own = create(&gateway, &json!({ "agent": "fake" })).await.body;
    assert_eq!(
        own["cwd"],
        root.join(own["sessionId"].as_str().expect("an id"))
            .to_str()
            .expect("UTF-8")
    );
    let part = root.join("project/part");
    let part = part.to_str().expect("UTF-8");
    for cwd in ["project/part", part, "project/./part/"] {
        let body = json!({ "agent": "fake", "cwd": cwd, "additionalDirectories": ["project"] });
        assert_eq!(create(&gateway, &body).await.body["cwd"], part, "{cwd}");
    }
    let lines = received(&gateway);
    for cwd in [own["cwd"].as_str().expect("a folder"), part] {
        assert!(
            lines.contains(&format!("\"cwd\":\"{cwd}\"")),
            "the agent receives {cwd}: {lines}"
        );
    }
}

#[tokio::test]
async fn folder_outside_the_roots_is_forbidden_and_a_missing_folder_invalid() {
    let gateway = Setup::fake(&[]).start();
    let root = gateway.path("data/workspaces");
    let link = root.join("link");
    std::os::unix::fs::symlink("/etc", &link).expect("the folder is ours");
    std::fs::write(root.join("file"), "").expect("the folder is ours");
    let private = gateway.path("data/private").display().to_string();
    for (path, status, code) in [
        ("/etc", 403, "forbidden"),
        ("/", 403, "forbidden"),
        ("/nowhere/at/all", 403, "forbidden"),
        (&*private, 403, "forbidden"),
        ("link", 403, "forbidden"),
        ("link/ssl", 403, "forbidden"),
        ("..", 422, "invalid"),
        ("../homes", 422, "invalid"),
        ("a/../../homes", 422, "invalid"),
        ("missing", 422, "invalid"),
        ("file", 422, "invalid"),
        ("a\0b", 422, "invalid"),
    ] {
        create(&gateway, &json!({ "agent": "fake", "cwd": path }))
            .await
            .problem(status, code);
        let body = json!({ "agent": "fake", "additionalDirectories": [path] });
        create(&gateway, &body).await.problem(status, code);
    }
    std::fs::remove_file(link).expect("it is there");
    std::fs::remove_file(root.join("file")).expect("it is there");
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn a_client_brings_no_command_and_no_address_of_its_own() {
    let mcp = "[mcp.docs]\nurl = \"https://mcp.example/docs\"\n";
    let gateway = Setup::fake(&["--log", "received", "--mcp"])
        .table(mcp)
        .start();
    for server in [
        json!({ "name": "x", "command": "/bin/sh", "args": ["-c", "id"], "env": [] }),
        json!({ "type": "stdio", "name": "x", "command": "sh", "args": [], "env": [] }),
        json!({ "type": "http", "name": "x", "url": "https://elsewhere.example/", "headers": [] }),
        json!({}),
    ] {
        let body = json!({ "agent": "fake", "mcpServers": [server] });
        create(&gateway, &body).await.problem(403, "forbidden");
    }
    for (servers, pointer) in [
        (json!(["nope"]), "/mcpServers/0"),
        (json!(["docs", "x"]), "/mcpServers/1"),
    ] {
        let body = json!({ "agent": "fake", "mcpServers": servers });
        let problem = create(&gateway, &body).await.problem(422, "invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
    for member in ["command", "args", "env", "program"] {
        let body = json!({ "agent": "fake", member: "sh" });
        create(&gateway, &body).await.problem(422, "invalid");
    }
    gateway.assert_nothing_left().await;
    assert!(
        !gateway.path("data/homes/default/fake/received").exists(),
        "nothing was started"
    );
    let body = json!({ "agent": "fake", "mcpServers": ["docs"] });
    assert_eq!(create(&gateway, &body).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn invalid_session_request_is_a_problem_without_effect() {
    let gateway = Setup::fake(&[])
        .settings("server.max_prompt_bytes = \"1MiB\"")
        .start();
    for body in [
        json!({}),
        json!([]),
        json!({ "agent": "nobody" }),
        json!({ "agent": 7 }),
        json!({ "agent": "" }),
        json!({ "agent": "fake", "titel": "x" }),
        json!({ "agent": "fake", "title": "x".repeat(513) }),
        json!({ "agent": "fake", "title": 7 }),
        json!({ "agent": "fake", "metadata": [] }),
        json!({ "agent": "fake", "metadata": { "a": "x".repeat(70_000) } }),
        json!({ "agent": "fake", "mcpServers": "docs" }),
        json!({ "agent": "fake", "policy": { "more": 1 } }),
    ] {
        let problem = create(&gateway, &body).await.problem(422, "invalid");
        assert!(problem["errors"][0]["pointer"].is_string(), "{problem}");
    }
    for (kind, body, status, code) in [
        ("application/json", "{\"agent\":", 400, "malformed"),
        ("application/json", "", 400, "malformed"),
        (
            "application/json",
            "{\"agent\":\"fake\"} x",
            400,
            "malformed",
        ),
        (
            "text/plain",
            "{\"agent\":\"fake\"}",
            415,
            "unsupported_media_type",
        ),
    ] {
        let request = gateway
            .request(Method::POST, "/v1/sessions")
            .header("Content-Type", kind)
            .body(body);
        Answer::of(request).await.problem(status, code);
    }
    let large = json!({ "agent": "fake", "metadata": { "a": "x".repeat(2 << 20) } });
    let answer = create(&gateway, &large).await;
    assert_eq!(
        answer.header("connection"),
        Some("close"),
        "the rest of the body is never read"
    );
    answer.problem(413, "too_large");
    gateway.assert_nothing_left().await;
}

#[tokio::test]
async fn malformed_id_and_unknown_id_are_both_not_found() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let body = json!({});
    for id in [
        "0199aaaa-bbbb-7ccc-8ddd-eeeeffff0000",
        &session.to_uppercase(),
        &session.replace('-', ""),
        &format!("{{{session}}}"),
        "x",
        "%00",
        "..%2f..%2fetc%2fpasswd",
        "%F0%9F%98%80",
        &"9".repeat(4000),
    ] {
        for path in [
            "",
            "/events",
            "/prompts",
            "/prompts/p1",
            "/requests",
            "/transcript",
            "/stderr",
        ] {
            let answer = gateway
                .call(Method::GET, &format!("/v1/sessions/{id}{path}"))
                .await;
            answer.problem(404, "not_found");
        }
        for path in ["/cancel", "/close", "/attach"] {
            gateway
                .posted(&format!("/v1/sessions/{id}{path}"), &[], &body)
                .await
                .problem(404, "not_found");
        }
        gateway
            .call(Method::DELETE, &format!("/v1/sessions/{id}"))
            .await
            .problem(404, "not_found");
    }
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn unsupported_mcp_server_is_rejected_and_not_silently_omitted() {
    let mcp = "[mcp.far]\nurl = \"https://mcp.example/far\"\n[mcp.old]\nurl = \"https://mcp.example/old\"\ntype = \"sse\"\n[mcp.near]\ncommand = \"cat\"\nenv = { TOKEN = \"s3cret\" }\n";
    let gateway = Setup::fake(&["--log", "received"]).table(mcp).start();
    // Before any process has reported its capabilities, and after one has.
    for _ in 0..2 {
        let body = json!({ "agent": "fake", "mcpServers": ["near", "far"] });
        let problem = create(&gateway, &body).await.problem(422, "invalid");
        assert_eq!(problem["errors"][0]["pointer"], "/mcpServers/1");
        let detail = problem["errors"][0]["detail"].as_str().expect("a text");
        assert!(detail.contains("mcpCapabilities.http"), "{detail}");
    }
    let problem = create(&gateway, &json!({ "agent": "fake", "mcpServers": ["old"] }))
        .await
        .problem(422, "invalid");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("mcpCapabilities.sse"))
    );
    assert!(
        !received(&gateway).contains("session/new"),
        "the agent was not asked"
    );
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    let near = create(
        &gateway,
        &json!({ "agent": "fake", "mcpServers": ["near"] }),
    )
    .await;
    assert_eq!(near.status, StatusCode::CREATED, "every agent takes stdio");
    assert!(received(&gateway).contains(r#""mcpServers":[{"name":"near","command":""#));

    let gateway = Setup::fake(&["--log", "received", "--mcp"])
        .table(mcp)
        .start();
    let body = json!({ "agent": "fake", "mcpServers": ["far", "near"] });
    assert_eq!(create(&gateway, &body).await.status, StatusCode::CREATED);
    assert!(
        received(&gateway).contains(
            r#""mcpServers":[{"type":"http","name":"far","url":"https://mcp.example/far""#
        )
    );
}

#[tokio::test]
async fn additional_directories_require_the_capability_and_are_restored_with_the_servers() {
    let gateway = Setup::fake(&[]).start();
    std::fs::create_dir(gateway.path("data/workspaces/more")).expect("the root is there");
    let body = json!({ "agent": "fake", "additionalDirectories": ["more"] });
    for _ in 0..2 {
        let problem = create(&gateway, &body)
            .await
            .problem(501, "agent_unsupported");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("additionalDirectories"))
        );
    }
    let mcp = "[mcp.near]\ncommand = \"cat\"\n";
    for (args, method) in [
        (&["--directories", "--resume"][..], "session/resume"),
        (&["--directories"], "session/load"),
    ] {
        let mut args = args.to_vec();
        args.extend(["--log", "received", "--state", "state"]);
        let gateway = Setup::fake(&args)
            .settings("testing.min_backoff = \"10ms\"")
            .table(mcp)
            .start();
        std::fs::create_dir(gateway.path("data/workspaces/more")).expect("the root is there");
        let body =
            json!({ "agent": "fake", "additionalDirectories": ["more"], "mcpServers": ["near"] });
        let session = create(&gateway, &body).await.body["sessionId"]
            .as_str()
            .expect("an id")
            .to_owned();
        gateway.turn(&session, "crash").await;
        gateway.turn(&session, "hello").await;
        let lines = received(&gateway);
        let again = lines
            .lines()
            .find(|line| line.contains(method))
            .expect("the session was taken again");
        let again: Value = serde_json::from_str(again).expect("JSON");
        let more = gateway
            .path("data/workspaces/more")
            .canonicalize()
            .expect("it is there");
        assert_eq!(
            again["params"]["additionalDirectories"],
            json!([more]),
            "{again}"
        );
        assert_eq!(again["params"]["mcpServers"][0]["name"], "near");
    }
}

#[tokio::test]
async fn only_listed_keys_of_meta_reach_the_agent_and_they_do_so_each_time() {
    let setup = Setup::fake_with(
        &["--log", "received", "--state", "state"],
        "meta = [\"vendor.example/x\", \"a/b\"]",
    );
    let gateway = setup.settings("testing.min_backoff = \"10ms\"").start();
    for (meta, pointer) in [
        (json!({ "vendor.example/x": 1, "other": 2 }), "/_meta/other"),
        (json!({ "a/c": 1 }), "/_meta/a~1c"),
        (json!([1]), "/_meta"),
        (json!("x"), "/_meta"),
    ] {
        let problem = create(&gateway, &json!({ "agent": "fake", "_meta": meta }))
            .await
            .problem(422, "invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    gateway.assert_nothing_left().await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = format!(
        "{{\"agent\":\"fake\",\"_meta\":{{\"a/b\":{{\"n\":1.10,\n\"s\":\"\\ud800\"}},\"traceparent\":\"{parent}\"}}}}"
    );
    let request = gateway
        .request(Method::POST, "/v1/sessions")
        .header("Content-Type", "application/json")
        .body(body);
    let session = Answer::of(request).await;
    assert_eq!(session.status, StatusCode::CREATED, "{session:?}");
    let session = session.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    let own = "\"a/b\":{\"n\":1.10, \"s\":\"\\ud800\"}";
    let of = |method: &str| {
        let lines = received(&gateway);
        lines
            .lines()
            .find(|line| line.contains(&format!("\"method\":\"{method}\"")))
            .map(str::to_owned)
    };
    let new = of("session/new").expect("the agent was asked");
    assert!(
        new.contains(&format!("\"_meta\":{{{own},\"traceparent\":\"{parent}\"}}")),
        "{new}"
    );
    gateway.turn(&session, "crash").await;
    gateway.turn(&session, "hello").await;
    let load = of("session/load").expect("the session was taken again");
    assert!(
        load.contains(&format!("\"_meta\":{{{own}}}")),
        "without the trace of another request: {load}"
    );
}

/// A session with a mode, an option and the first prompt, in one request.
#[tokio::test]
async fn session_starts_with_its_settings_and_its_first_prompt() {
    let gateway = Setup::fake(&[]).start();
    let body = json!({ "agent": "fake", "modeId": "code", "config": { "model": "large" }, "prompt": "echo first" });
    let send = || {
        let request = gateway
            .request(Method::POST, "/v1/sessions")
            .header("idempotency-key", "once");
        request.json(&body).send()
    };
    let first = send().await.expect("an answer");
    assert_eq!(first.status(), StatusCode::CREATED);
    let first: Value = first.json().await.expect("JSON");
    let session = first["sessionId"].as_str().expect("an id").to_owned();
    assert_eq!(first["promptId"], "p1", "{first}");
    let again = send().await.expect("an answer");
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(
        again.json::<Value>().await.expect("JSON")["sessionId"],
        session
    );
    let turn = gateway.request(Method::GET, &format!("/v1/sessions/{session}/prompts/p1"));
    let turn: Value = turn
        .header("prefer", "wait=30")
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("completed"), &json!("first"))
    );
    let now = gateway.get_session(&session).await;
    assert_eq!(now["modes"]["currentModeId"], "code", "{now}");
    assert_eq!(now["configOptions"][0]["currentValue"], "large", "{now}");
    let events = gateway.all_events(&session).await;
    assert_eq!(
        events
            .iter()
            .filter(|event| event["type"] == "prompt.started")
            .count(),
        1,
        "one turn"
    );
}

#[tokio::test]
async fn session_with_a_wrong_first_prompt_does_not_remain() {
    let gateway = Setup::fake(&[]).start();
    let key = crate::key_life::key(&gateway, "writer", "read,prompt").await;
    for (members, status) in [
        (json!({ "prompt": "" }), 422),
        (json!({ "prompt": 7 }), 422),
        (json!({ "attachments": [{ "path": "a.txt" }] }), 422),
        (json!({ "config": { "model": {} } }), 422),
        (
            json!({ "config": { "model": "nothing" }, "prompt": "echo x" }),
            422,
        ),
        (json!({ "modeId": "nothing", "prompt": "echo x" }), 422),
        (
            json!({ "prompt": "echo x", "attachments": [{ "path": "missing.txt" }] }),
            422,
        ),
    ] {
        let mut body = json!({ "agent": "fake" });
        body.as_object_mut()
            .expect("an object")
            .extend(members.as_object().expect("an object").clone());
        let (answered, problem) = gateway.post("/v1/sessions", &body).await;
        assert_eq!(answered.as_u16(), status, "{body}: {problem}");
    }
    let body = json!({ "agent": "fake", "modeId": "code" });
    let forbidden = gateway
        .http
        .post(format!("{}/v1/sessions", gateway.url))
        .bearer_auth(key)
        .json(&body)
        .send();
    assert_eq!(forbidden.await.expect("an answer").status(), 403);
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
}
