//! Tasks across stops and kills of the gateway.

use std::collections::HashMap;

use futures_util::StreamExt as _;
use futures_util::stream;
use reqwest::Method;
use serde_json::{Value, json};

use super::{create, get, until};
use crate::support::places::fake_agent;
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually, figure};

/// The number of tasks and of kills.
const TASKS: usize = 1000;
const KILLS: usize = 10;

const LIMITS: &str = "limits.per_key.max_requests_per_minute = 1000000\nlimits.per_key.max_prompts_per_minute = 1000000";

/// Waits until the turn of the task exists.
async fn begun(gateway: &Gateway, task: &Value) {
    eventually("the turn runs", LONGEST, || async {
        (!get(gateway, task).await["promptId"].is_null()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn queued_task_runs_after_a_kill_and_a_running_one_is_interrupted() {
    let agent = "pool = { max_size = 1, min_idle = 0 }";
    let mut gateway = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .start();
    let running = create(&gateway, json!({ "agent": "fake", "description": "hang" })).await;
    let queued = create(
        &gateway,
        json!({ "agent": "fake", "description": "echo after" }),
    )
    .await;
    begun(&gateway, &running).await;
    gateway.kill();
    gateway.start();
    let end = until(&gateway, &running, "interrupted").await;
    assert_eq!(end["result"]["error"]["code"], "interrupted", "{end}");
    assert_eq!(
        until(&gateway, &queued, "completed").await["result"]["output"],
        "after"
    );
}

/// The gateway is killed while the process of the task starts, so no agent can have seen its prompt.
#[tokio::test]
async fn task_whose_prompt_no_agent_has_seen_runs_after_a_kill() {
    let journals = tempfile::tempdir().expect("a folder");
    let path = journals.path().to_str().expect("UTF-8");
    let args = ["--slow-start", "5000", "--journal", path];
    let agent = "pool = { max_size = 1, min_idle = 0 }";
    let mut gateway = Setup::default()
        .agent("fake", fake_agent(), &args, agent)
        .start();
    let task = create(
        &gateway,
        json!({ "agent": "fake", "description": "echo once" }),
    )
    .await;
    eventually("the task has begun", LONGEST, || async {
        (get(&gateway, &task).await["status"] != "queued").then_some(())
    })
    .await;
    let waiting = get(&gateway, &task).await;
    assert_eq!(waiting["status"], "running", "{waiting}");
    gateway.kill();
    gateway.start();
    let ended = until(&gateway, &task, "completed").await;
    assert_eq!(ended["result"]["output"], "once", "{ended}");
    let prompts: usize = std::fs::read_dir(journals.path())
        .expect("the folder is ours")
        .map(|journal| std::fs::read_to_string(journal.expect("a journal").path()))
        .map(|journal| journal.expect("UTF-8").matches("echo once").count())
        .sum();
    assert_eq!(prompts, 1);
}

#[tokio::test]
async fn cancel_of_a_running_task_survives_a_kill() {
    let agent = "pool = { max_size = 1, min_idle = 0 }";
    let mut gateway = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .start();
    let running = create(
        &gateway,
        json!({ "agent": "fake", "description": "stream n=1; ignore-cancel ms=20" }),
    )
    .await;
    begun(&gateway, &running).await;
    let path = format!("/v1/tasks/{}/cancel", super::id(&running));
    assert_eq!(
        gateway
            .request(Method::POST, &path)
            .send()
            .await
            .expect("an answer")
            .status(),
        202
    );
    gateway.kill();
    gateway.start();
    until(&gateway, &running, "cancelled").await;
}

/// A cancel can store the entry of an open task after the end of the task.
#[tokio::test]
async fn entry_of_a_task_that_has_ended_is_deleted_at_the_next_start() {
    let mut gateway = Setup::fake(&[]).start();
    let task = create(&gateway, json!({ "agent": "fake", "description": "hang" })).await;
    begun(&gateway, &task).await;
    gateway.kill();
    let entries = open_tasks(&gateway);
    assert_eq!(entries.len(), 1);
    gateway.start();
    let ended = until(&gateway, &task, "interrupted").await;
    gateway.kill();
    assert_eq!(open_tasks(&gateway), []);
    for (key, value) in &entries {
        let cancelled = String::from_utf8(value.clone())
            .expect("JSON")
            .replace("false", "true");
        database(&gateway)
            .execute(
                "INSERT INTO record (tbl, key, value) VALUES (?1, ?2, ?3)",
                (OPEN_TASKS, key, cancelled.into_bytes()),
            )
            .expect("the record is valid");
    }
    gateway.start();
    // A task that runs has the time that a second end would need.
    super::run(
        &gateway,
        &json!({ "agent": "fake", "description": "echo later" }),
    )
    .await;
    assert_eq!(get(&gateway, &task).await, ended);
    gateway.kill();
    assert_eq!(open_tasks(&gateway), []);
}

/// The table of the entries of open tasks.
const OPEN_TASKS: u8 = 24;

fn database(gateway: &Gateway) -> rusqlite::Connection {
    rusqlite::Connection::open(gateway.path("data/private/log.sqlite")).expect("a database")
}

fn open_tasks(gateway: &Gateway) -> Vec<(Vec<u8>, Vec<u8>)> {
    let database = database(gateway);
    let mut select = database
        .prepare("SELECT key, value FROM record WHERE tbl = ?1")
        .expect("the table exists");
    let rows = select.query_map([OPEN_TASKS], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.expect("it runs")
        .collect::<Result<_, _>>()
        .expect("rows")
}

#[tokio::test]
async fn stop_interrupts_the_running_task_and_keeps_the_queue() {
    let agent = "pool = { max_size = 1, min_idle = 0 }";
    let setup = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .settings("timeouts.drain_timeout = \"200ms\"");
    let mut gateway = setup.start();
    let running = create(&gateway, json!({ "agent": "fake", "description": "hang" })).await;
    let queued = create(
        &gateway,
        json!({ "agent": "fake", "description": "echo after" }),
    )
    .await;
    begun(&gateway, &running).await;
    gateway.stop();
    gateway.start();
    eventually("the task has ended", LONGEST, || async {
        (!get(&gateway, &running).await["endedAt"].is_null()).then_some(())
    })
    .await;
    assert_eq!(
        until(&gateway, &queued, "completed").await["result"]["output"],
        "after"
    );
}

/// The agent writes a line to a file for each prompt that it gets.
#[tokio::test(flavor = "multi_thread")]
async fn no_task_is_lost_or_runs_twice_through_ten_kills() {
    let agent = "pool = { max_size = 4, reserved = 0, min_idle = 0 }";
    let mut gateway = Setup::default()
        .agent("fake", fake_agent(), &[], agent)
        .settings(LIMITS)
        .start();
    let created = create_all(&gateway).await;
    for kill in 1..=KILLS {
        let goal = TASKS * kill / (KILLS + 1);
        eventually("tasks end", LONGEST, || async {
            (ended(&gateway).await >= goal).then_some(())
        })
        .await;
        gateway.kill();
        gateway.start();
    }
    eventually("all tasks have ended", LONGEST * 3, || async {
        (ended(&gateway).await == TASKS).then_some(())
    })
    .await;

    let tasks = all(&gateway).await;
    assert_eq!(tasks.len(), TASKS);
    let mut counts: HashMap<String, usize> = HashMap::new();
    for task in &tasks {
        let state = task["status"].as_str().expect("a state");
        let number = created[super::id(task)];
        *counts.entry(state.to_owned()).or_default() += 1;
        match state {
            "completed" => assert_eq!(task["result"]["output"], format!("task {number}"), "{task}"),
            "interrupted" => {}
            _ => panic!("{task}"),
        }
        // One session for each task, with one turn.
        if let Some(session) = task["sessionId"].as_str() {
            let turns = gateway
                .get(&format!("/v1/sessions/{session}/prompts"))
                .await;
            assert_eq!(turns["prompts"].as_array().map(Vec::len), Some(1), "{task}");
        }
    }
    let sessions = sessions(&gateway).await;
    assert_eq!(
        sessions.len(),
        TASKS,
        "each task has one session: {counts:?}"
    );
    let interrupted = counts.get("interrupted").copied().unwrap_or_default();
    assert!(interrupted <= KILLS * 4, "{counts:?}");
    in_order(&tasks, &created);
    figure(&format!(
        "{interrupted} of {TASKS} tasks were interrupted by {KILLS} kills"
    ));
}

fn priority(number: usize) -> &'static str {
    ["low", "normal", "high", "critical"][number % 4]
}

/// The numbers of the tasks by their ids.
async fn create_all(gateway: &Gateway) -> HashMap<String, usize> {
    let create = |number: usize| async move {
        let body = json!({ "agent": "fake", "description": format!("echo task {number}"), "priority": priority(number) });
        (super::id(&create(gateway, body).await).to_owned(), number)
    };
    stream::iter(0..TASKS)
        .map(create)
        .buffer_unordered(16)
        .collect()
        .await
}

/// The number of tasks that have ended.
async fn ended(gateway: &Gateway) -> usize {
    let mut count = 0;
    for status in ["completed", "interrupted", "failed", "cancelled"] {
        count += pages(
            gateway,
            &format!("/v1/tasks?status={status}&limit=200"),
            "tasks",
        )
        .await
        .len();
    }
    count
}

async fn all(gateway: &Gateway) -> Vec<Value> {
    pages(gateway, "/v1/tasks?limit=200", "tasks").await
}

async fn sessions(gateway: &Gateway) -> Vec<Value> {
    pages(gateway, "/v1/sessions?tasks=true&limit=200", "sessions").await
}

async fn pages(gateway: &Gateway, path: &str, noun: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let request = gateway.request(Method::GET, &format!("{path}{cursor}"));
        let page: Value = request
            .send()
            .await
            .expect("an answer")
            .json()
            .await
            .expect("JSON");
        found.extend(page[noun].as_array().expect("a list").iter().cloned());
        let Some(next) = page["nextCursor"].as_str() else {
            return found;
        };
        cursor = format!("&cursor={next}");
    }
}

/// After the tasks that began while others were created, the starts are in the order of priority, then of age.
fn in_order(tasks: &[Value], created: &HashMap<String, usize>) {
    // Times have a fixed width, so their texts have the same order.
    let time = |task: &Value, name: &str| task[name].as_str().expect("a time").to_owned();
    let complete = tasks
        .iter()
        .map(|task| time(task, "createdAt"))
        .max()
        .expect("a task");
    let mut later: Vec<_> = tasks
        .iter()
        .filter(|task| time(task, "startedAt") > complete)
        .collect();
    later.sort_by_key(|task| time(task, "startedAt"));
    let rank = |task: &Value| {
        ["critical", "high", "normal", "low"]
            .iter()
            .position(|of| task["priority"] == *of)
    };
    // Four tasks begin at the same time, so neighbours may be exchanged.
    for (at, task) in later.iter().enumerate() {
        let before = later[..at.saturating_sub(8)]
            .iter()
            .filter(|earlier| rank(earlier) > rank(task))
            .count();
        assert_eq!(before, 0, "{task}");
    }
    assert!(
        later.len() > TASKS / 2,
        "most tasks start after the creation: {} of {}",
        later.len(),
        created.len()
    );
}
