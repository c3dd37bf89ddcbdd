//! The order in which tasks start, and the processes that they leave to people.

use serde_json::{Value, json};

use super::{create, get, run, until};
use crate::support::places::fake_agent;
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually};

fn one_at_a_time(more: &str) -> Gateway {
    let agent = "pool = { max_size = 2, min_idle = 0 }";
    Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .settings(more)
        .start()
}

/// The descriptions of all tasks in the order of their starts, when all have ended.
async fn started(gateway: &Gateway, count: usize) -> Vec<String> {
    eventually("all tasks have ended", LONGEST, || async {
        let list = gateway.get("/v1/tasks?limit=200").await;
        let mut tasks = list["tasks"].as_array().expect("tasks").clone();
        let ended = tasks
            .iter()
            .filter(|task| !task["endedAt"].is_null())
            .count();
        tasks.sort_by_key(|task| task["startedAt"].as_str().unwrap_or_default().to_owned());
        let text = |task: Value| task["description"].as_str().expect("a text").to_owned();
        (ended == count).then(|| tasks.into_iter().map(text).collect())
    })
    .await
}

#[tokio::test]
async fn tasks_start_by_priority_then_age() {
    let gateway = one_at_a_time("");
    let first = create(&gateway, json!({ "agent": "fake", "description": "hang" })).await;
    until(&gateway, &first, "running").await;
    let order = [
        "low", "normal", "high", "critical", "normal", "low", "critical",
    ];
    for (number, priority) in order.iter().enumerate() {
        let description = format!("echo {priority} {number}");
        create(
            &gateway,
            json!({ "agent": "fake", "description": description, "priority": priority }),
        )
        .await;
    }
    gateway
        .post(
            &format!("/v1/tasks/{}/cancel", super::id(&first)),
            &json!({}),
        )
        .await;
    let started = started(&gateway, 8).await;
    let expected = [
        "critical 3",
        "critical 6",
        "high 2",
        "normal 1",
        "normal 4",
        "low 0",
        "low 5",
    ];
    assert_eq!(started[0], "hang");
    assert_eq!(started[1..], expected.map(|text| format!("echo {text}")));
}

#[tokio::test]
async fn low_task_finishes_while_normal_tasks_continue_to_arrive() {
    // A normal task precedes a low one that is up to a second older.
    let gateway = one_at_a_time("testing.task_aging_unit = \"100ms\"");
    let first = create(
        &gateway,
        json!({ "agent": "fake", "description": "slow chunks=1 ms=300" }),
    )
    .await;
    let low = create(
        &gateway,
        json!({ "agent": "fake", "description": "echo low", "priority": "low" }),
    )
    .await;
    until(&gateway, &first, "running").await;
    let mut arrived = 0;
    // Two normal tasks always wait, so a low task would never start by priority alone.
    let mut waiting = Vec::new();
    while get(&gateway, &low).await["endedAt"].is_null() {
        assert!(arrived < 500, "the low task starves");
        while waiting.len() < 2 {
            let body = json!({ "agent": "fake", "description": "slow chunks=1 ms=100" });
            waiting.push(create(&gateway, body).await);
            arrived += 1;
        }
        let mut open = Vec::new();
        for task in waiting {
            if get(&gateway, &task).await["status"] == "queued" {
                open.push(task);
            }
        }
        waiting = open;
    }
    assert!(
        arrived > 3,
        "normal tasks ran before the low one: {arrived}"
    );
}

#[tokio::test]
async fn processes_are_left_to_people() {
    let agent = "pool = { max_size = 3, reserved = 1, min_idle = 0 }";
    let gateway = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .start();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(create(&gateway, json!({ "agent": "fake", "description": "hang" })).await);
    }
    until(&gateway, &tasks[1], "running").await;
    // A person gets a process at once.
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo hello").await;
    let running = gateway.get("/v1/tasks?status=running").await;
    assert_eq!(running["tasks"].as_array().map(Vec::len), Some(2));
    for task in &tasks {
        gateway
            .post(&format!("/v1/tasks/{}/cancel", super::id(task)), &json!({}))
            .await;
    }
    for task in &tasks {
        until(&gateway, task, "cancelled").await;
    }
}

#[tokio::test]
async fn task_waits_while_people_use_all_processes() {
    let agent = "pool = { max_size = 1, min_idle = 0 }";
    let gateway = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .start();
    let session = gateway.session("fake").await;
    let prompt = gateway.prompt(&session, "hang").await;
    let task = create(
        &gateway,
        json!({ "agent": "fake", "description": "echo later" }),
    )
    .await;
    until(&gateway, &task, "running").await;
    gateway
        .post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
        .await;
    gateway
        .post(&format!("/v1/sessions/{session}/close"), &json!({}))
        .await;
    let end = until(&gateway, &task, "completed").await;
    assert_eq!(end["result"]["output"], "later", "{end} {prompt}");
    run(
        &gateway,
        &json!({ "agent": "fake", "description": "echo next" }),
    )
    .await;
}
