//! One-shot tasks: their queue, their ends, and their survival of restarts.

mod budget;
mod callbacks;
mod order;
mod restarts;

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, Setup};

async fn create(gateway: &Gateway, body: Value) -> Value {
    let (status, task) = gateway.post("/v1/tasks", &body).await;
    assert!(
        status == StatusCode::ACCEPTED || status == StatusCode::OK,
        "{status} {task}"
    );
    task
}

fn id(task: &Value) -> &str {
    task["taskId"].as_str().expect("an id")
}

async fn get(gateway: &Gateway, task: &Value) -> Value {
    gateway.get(&format!("/v1/tasks/{}", id(task))).await
}

/// Waits until the task is in this state.
async fn until(gateway: &Gateway, task: &Value, status: &str) -> Value {
    eventually(status, LONGEST, || async {
        let now = get(gateway, task).await;
        (now["status"] == status).then_some(now)
    })
    .await
}

/// Creates a task and waits for its end with `Prefer: wait`.
async fn run(gateway: &Gateway, body: &Value) -> Value {
    let request = gateway
        .request(Method::POST, "/v1/tasks")
        .header("prefer", "wait=60")
        .json(body);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.headers()["preference-applied"], "wait=60");
    assert_eq!(response.status(), StatusCode::OK, "the task has ended");
    response.json().await.expect("JSON")
}

#[tokio::test]
async fn task_runs_in_a_hidden_session_and_has_a_result() {
    let gateway = Setup::fake(&[]).start();
    let metadata = json!({ "ticket": "A-17" });
    let body = json!({ "agent": "fake", "description": "Say hello", "prompt": "echo hello", "metadata": metadata });
    let task = run(&gateway, &body).await;
    assert_eq!(
        (&task["status"], &task["priority"]),
        (&json!("completed"), &json!("normal")),
        "{task}"
    );
    let result = &task["result"];
    assert_eq!(
        (&result["success"], &result["output"]),
        (&json!(true), &json!("hello")),
        "{task}"
    );
    assert_eq!(
        (&result["stopReason"], &result["metadata"]),
        (&json!("end_turn"), &metadata),
        "{task}"
    );
    assert!(
        result["durationMs"].is_u64() && result.get("error").is_none(),
        "{task}"
    );
    assert_eq!(get(&gateway, &task).await, task);

    // Its session is one like any other, but lists omit it by default.
    let session = task["sessionId"].as_str().expect("a session");
    let listed = async |query: &str| {
        let list = gateway.get(&format!("/v1/sessions{query}")).await;
        list["sessions"]
            .as_array()
            .expect("sessions")
            .iter()
            .any(|of| of["taskId"] == task["taskId"])
    };
    assert_eq!(
        (listed("").await, listed("?tasks=true").await),
        (false, true)
    );
    let shown = eventually("the session is closed", LONGEST, || async {
        let shown = gateway.get(&format!("/v1/sessions/{session}")).await;
        (shown["state"] == "closed").then_some(shown)
    })
    .await;
    assert_eq!(
        (&shown["title"], &shown["taskId"]),
        (&json!("Say hello"), &task["taskId"]),
        "{shown}"
    );
    gateway.lawful(session).await;
}

#[tokio::test]
async fn bad_requests_are_rejected_and_create_nothing() {
    let gateway = Setup::fake(&[]).start();
    let long = "x".repeat(65_537);
    for (body, pointer) in [
        (json!({ "agent": "fake" }), ""),
        (
            json!({ "agent": "fake", "description": "" }),
            "/description",
        ),
        (
            json!({ "agent": "fake", "description": long }),
            "/description",
        ),
        (json!({ "agent": "fake", "prompt": "" }), "/prompt"),
        (json!({ "agent": "fake", "prompt": 1 }), "/prompt"),
        (json!({ "agent": "nobody", "description": "x" }), "/agent"),
        (
            json!({ "agent": "fake", "description": "x", "priority": "urgent" }),
            "/priority",
        ),
        (
            json!({ "agent": "fake", "description": "x", "parentTask": "01938c5e-7a3b-7c4d-8e5f-0123456789ab" }),
            "/parentTask",
        ),
        (
            json!({ "agent": "fake", "description": "x", "permissions": { "onTimeout": "wait" } }),
            "/permissions/onTimeout",
        ),
        (
            json!({ "agent": "fake", "description": "x", "other": 1 }),
            "/other",
        ),
    ] {
        let (status, problem) = gateway.post("/v1/tasks", &body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    let body =
        json!({ "agent": "fake", "description": "x", "callbackUrl": "https://hooks.example/" });
    let (status, problem) = gateway.post("/v1/tasks", &body).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::FORBIDDEN, &json!("forbidden")),
        "webhooks are disabled"
    );
    assert_eq!(gateway.get("/v1/tasks").await["tasks"], json!([]));
}

#[tokio::test]
async fn request_with_a_key_creates_one_task() {
    let gateway = Setup::fake(&[]).start();
    let send = |text: &str| {
        let body = json!({ "agent": "fake", "description": text });
        gateway
            .request(Method::POST, "/v1/tasks")
            .header("idempotency-key", "k1")
            .json(&body)
            .send()
    };
    let first = send("echo once").await.expect("an answer");
    assert!(first.headers().get("idempotency-replayed").is_none());
    let first: Value = first.json().await.expect("JSON");
    let again = send("echo once").await.expect("an answer");
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(
        again.json::<Value>().await.expect("JSON")["taskId"],
        first["taskId"]
    );
    let other = send("echo other").await.expect("an answer");
    assert_eq!(other.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        other.json::<Value>().await.expect("JSON")["code"],
        "idempotency_mismatch"
    );
    assert_eq!(
        gateway.get("/v1/tasks").await["tasks"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn failed_turn_is_a_failed_task_with_its_problem() {
    let gateway = Setup::fake(&[]).start();
    let task = run(
        &gateway,
        &json!({ "agent": "fake", "description": "error message=broken" }),
    )
    .await;
    assert_eq!(
        (&task["status"], &task["result"]["success"]),
        (&json!("failed"), &json!(false)),
        "{task}"
    );
    assert_eq!(task["result"]["error"]["code"], "agent_error", "{task}");
    // A refusal is an end of the agent, and no success.
    let task = run(
        &gateway,
        &json!({ "agent": "fake", "description": "stop reason=refusal" }),
    )
    .await;
    assert_eq!(
        (&task["status"], &task["result"]["success"]),
        (&json!("completed"), &json!(false)),
        "{task}"
    );
    assert_eq!(task["result"]["stopReason"], "refusal", "{task}");
}

#[tokio::test]
async fn permission_requests_are_rejected_because_nobody_watches() {
    let gateway = Setup::fake(&[]).start();
    let body = json!({ "agent": "fake", "description": "permission wait=yes", "permissions": { "timeoutSeconds": 1 } });
    let task = run(&gateway, &body).await;
    assert_eq!(
        task["permissions"],
        json!({ "onTimeout": "reject", "timeoutSeconds": 1 }),
        "{task}"
    );
    assert!(
        task["result"]["output"]
            .as_str()
            .is_some_and(|text| text.contains("reject")),
        "{task}"
    );
}

#[tokio::test]
async fn cancel_ends_a_task_with_its_children() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_requests_per_minute = 100000")
        .start();
    let parent = create(&gateway, json!({ "agent": "fake", "description": "hang" })).await;
    let child = json!({ "agent": "fake", "description": "hang", "parentTask": parent["taskId"] });
    let children = [
        create(&gateway, child.clone()).await,
        create(&gateway, child).await,
    ];
    let deep =
        json!({ "agent": "fake", "description": "hang", "parentTask": children[0]["taskId"] });
    let deep = create(&gateway, deep).await;
    let level = json!({ "agent": "fake", "description": "hang", "parentTask": deep["taskId"] });
    let lowest = create(&gateway, level).await;
    let fifth = json!({ "agent": "fake", "description": "hang", "parentTask": lowest["taskId"] });
    let (status, problem) = gateway.post("/v1/tasks", &fifth).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(problem["errors"][0]["pointer"], "/parentTask");

    let shown = get(&gateway, &parent).await;
    assert_eq!(
        shown["children"],
        json!([children[1]["taskId"], children[0]["taskId"]]),
        "{shown}"
    );
    let listed = gateway
        .get(&format!("/v1/tasks?parent={}", id(&children[0])))
        .await;
    assert_eq!(listed["tasks"][0]["taskId"], deep["taskId"]);

    until(&gateway, &parent, "running").await;
    gateway
        .post(&format!("/v1/tasks/{}/cancel", id(&parent)), &json!({}))
        .await;
    for task in [&parent, &children[0], &children[1], &deep, &lowest] {
        let end = until(&gateway, task, "cancelled").await;
        assert_eq!(
            (&end["result"]["success"], end["result"].get("error")),
            (&json!(false), None),
            "{end}"
        );
    }
    // A cancel of an ended task has no effect.
    let (status, end) = gateway
        .post(&format!("/v1/tasks/{}/cancel", id(&parent)), &json!({}))
        .await;
    assert_eq!(
        (status, &end["status"]),
        (StatusCode::OK, &json!("cancelled"))
    );
}

#[tokio::test]
async fn deadline_ends_running_and_queued_tasks() {
    let agent = "pool = { max_size = 1, min_idle = 0 }";
    let gateway = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .start();
    let after = |seconds| (jiff::Timestamp::now() + Duration::from_secs(seconds)).to_string();
    let running = create(
        &gateway,
        json!({ "agent": "fake", "description": "hang", "deadline": after(16) }),
    )
    .await;
    let is_running = || async {
        let task = gateway.get(&format!("/v1/tasks/{}", id(&running))).await;
        (task["status"] == "running").then_some(())
    };
    eventually("the first task runs", LONGEST, is_running).await;
    // Its deadline is before the end of the running task, which would let it begin.
    let queued = create(
        &gateway,
        json!({ "agent": "fake", "description": "hang", "deadline": after(6) }),
    )
    .await;
    for (task, ran) in [(&queued, false), (&running, true)] {
        let end = until(&gateway, task, "failed").await;
        assert_eq!(end["result"]["error"]["code"], "deadline_exceeded", "{end}");
        assert_eq!(end["sessionId"].is_string(), ran, "{end}");
        let cause = if ran { json!("deadline") } else { Value::Null };
        assert_eq!(end["result"]["cancelCause"], cause, "{end}");
    }
}

#[tokio::test]
async fn folders_and_deadlines_are_checked_before_the_task_is_queued() {
    let gateway = Setup::fake(&[]).start();
    let past = (jiff::Timestamp::now() - Duration::from_secs(1)).to_string();
    for (member, value, status, code) in [
        ("cwd", json!("/etc"), 403, "forbidden"),
        ("cwd", json!("../.."), 422, "invalid"),
        ("cwd", json!("missing"), 422, "invalid"),
        ("deadline", json!(past), 422, "invalid"),
        ("deadline", json!("1999-01-01T00:00:00Z"), 422, "invalid"),
    ] {
        let mut body = json!({ "agent": "fake", "description": "echo x" });
        body[member] = value;
        let (found, problem) = gateway.post("/v1/tasks", &body).await;
        assert_eq!(
            (found.as_u16(), &problem["code"]),
            (status, &json!(code)),
            "{body}: {problem}"
        );
        if code == "invalid" {
            assert_eq!(
                problem["errors"][0]["pointer"],
                format!("/{member}"),
                "{problem}"
            );
        }
    }
    assert_eq!(
        gateway.get("/v1/tasks").await["tasks"],
        json!([]),
        "none was stored"
    );
    let folder = gateway.path("data/workspaces/mine");
    std::fs::create_dir(&folder).expect("the folder is ours");
    let task = json!({ "agent": "fake", "description": "echo x", "cwd": "mine" });
    assert_eq!(run(&gateway, &task).await["status"], "completed");
}

#[tokio::test]
async fn deadline_that_has_passed_does_not_reject_the_repetition_of_its_request() {
    let gateway = Setup::fake(&[]).start();
    let deadline = jiff::Timestamp::now() + Duration::from_secs(6);
    let body = json!({ "agent": "fake", "description": "hang", "deadline": deadline.to_string() });
    let request = || {
        let request = gateway.request(Method::POST, "/v1/tasks");
        request.header("idempotency-key", "once").json(&body).send()
    };
    let first: Value = request()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    until(&gateway, &first, "failed").await;
    let again = request().await.expect("an answer");
    assert_eq!(again.status(), StatusCode::OK);
    let again: Value = again.json().await.expect("JSON");
    assert_eq!(again["taskId"], first["taskId"]);
}

#[tokio::test]
async fn queued_tasks_of_a_key_have_a_limit_of_bytes() {
    let agent = "pool = { max_size = 1, min_idle = 0 }";
    let gateway = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .settings("limits.per_key.max_queued_task_bytes = \"100KiB\"")
        .start();
    let running = create(&gateway, json!({ "agent": "fake", "description": "hang" })).await;
    until(&gateway, &running, "running").await;
    let body = json!({ "agent": "fake", "description": "large", "prompt": "x".repeat(30_000) });
    let mut queued = Vec::new();
    let refused = loop {
        let request = gateway.request(Method::POST, "/v1/tasks").json(&body);
        let answer = Answer::of(request).await;
        if answer.status != StatusCode::ACCEPTED {
            break answer;
        }
        queued.push(answer.body);
        assert!(queued.len() < 10, "no limit");
    };
    assert_eq!(queued.len(), 3);
    let policy = "\"max_queued_task_bytes\";q=102400;qu=\"content-bytes\"";
    assert_eq!(refused.header("ratelimit-policy"), Some(policy));
    let problem = refused.problem(429, "queue_full");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(
        detail.contains("limits.per_key.max_queued_task_bytes"),
        "{detail}"
    );
    let other = crate::key_life::user_key(&gateway, "other", "prompt").await;
    let request = gateway.http.post(format!("{}/v1/tasks", gateway.url));
    let answer = Answer::of(request.bearer_auth(&other).json(&body)).await;
    assert_eq!(
        answer.status,
        StatusCode::ACCEPTED,
        "another user has its own limit"
    );

    // A task that leaves the queue frees its bytes.
    let path = format!("/v1/tasks/{}/cancel", id(&queued[0]));
    assert_eq!(gateway.post(&path, &json!({})).await.0, StatusCode::OK);
    create(&gateway, body).await;
}

#[tokio::test]
async fn list_has_filters_and_pages() {
    let gateway = Setup::fake(&[]).start();
    let mut created = Vec::new();
    for number in 0..5 {
        let text = if number == 2 { "error" } else { "echo x" };
        created.push(run(&gateway, &json!({ "agent": "fake", "description": text })).await);
    }
    created.reverse();
    let ids = |list: &Value| -> Vec<Value> {
        list["tasks"]
            .as_array()
            .expect("tasks")
            .iter()
            .map(|task| task["taskId"].clone())
            .collect()
    };
    let expected: Vec<_> = created.iter().map(|task| task["taskId"].clone()).collect();
    assert_eq!(ids(&gateway.get("/v1/tasks").await), expected);
    let first = gateway.get("/v1/tasks?limit=2").await;
    let cursor = first["nextCursor"].as_str().expect("a cursor");
    let rest = gateway.get(&format!("/v1/tasks?cursor={cursor}")).await;
    assert_eq!([ids(&first), ids(&rest)].concat(), expected);
    assert_eq!(rest["nextCursor"], Value::Null);
    assert_eq!(
        ids(&gateway.get("/v1/tasks?status=failed").await),
        [expected[2].clone()]
    );
    assert_eq!(
        ids(&gateway.get("/v1/tasks?agent=other").await),
        Vec::<Value>::new()
    );
}
