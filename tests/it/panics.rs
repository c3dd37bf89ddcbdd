//! The scope of a panic: the process if other tasks depend on the state, otherwise only its own task.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::shutdown::{Shutdown, lock_or_abort};
use serde_json::Value;

use crate::support::gateway::command;

const LIMIT: Duration = Duration::from_secs(10);

/// Runs one of the tests below in a process of its own.
fn alone(test: &str) -> Output {
    let program = std::env::current_exe().expect("a test has a program");
    let name = format!("panics::{test}");
    let mut command = command(program.to_str().expect("UTF-8"));
    let command = command.args(["--exact", &name, "--ignored", "--test-threads=1"]);
    command
        .stdin(Stdio::null())
        .output()
        .expect("the program runs")
}

const ABORTED: Option<i32> = Some(6);

#[test]
fn panic_with_shared_state_ends_the_process() {
    assert_eq!(
        alone("alone_a_task_panics_on_which_others_rely")
            .status
            .signal(),
        ABORTED
    );
    assert_eq!(
        alone("alone_a_poisoned_lock_aborts_the_process")
            .status
            .signal(),
        ABORTED
    );
    assert!(alone("alone_a_confined_task_panics").status.success());
}

/// The log of a test that runs alone. Each line is a record.
fn records(test: &str) -> Vec<Value> {
    let log = String::from_utf8(alone(test).stderr).expect("UTF-8");
    let record =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} in {log}"));
    log.lines().map(record).collect()
}

#[test]
fn panic_is_logged_as_a_record_without_control_characters() {
    let records = records("alone_a_thread_panics_with_hostile_text");
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(record["level"], "ERROR");
    assert_eq!(
        record["message"],
        "panicked: on purpose\n{\"level\":\"INFO\"}"
    );
    assert_eq!(record["thread"], "hostile");
    assert!(
        record["location"]
            .as_str()
            .is_some_and(|at| at.starts_with("tests/it/panics.rs:")),
        "{record}"
    );
}

#[test]
fn panic_that_aborts_the_process_is_logged_before_the_abort() {
    let records = records("alone_a_logged_task_panics_on_which_others_rely");
    let messages: Vec<_> = records
        .iter()
        .filter_map(|record| record["message"].as_str())
        .collect();
    let [panic, abort] = messages[..] else {
        panic!("{records:?}")
    };
    assert_eq!(panic, "panicked: on purpose");
    assert!(abort.contains("aborting the gateway"), "{abort}");
}

#[test]
#[ignore = "replaces the panic hook; panic_is_logged_as_a_record_without_control_characters runs it"]
fn alone_a_thread_panics_with_hostile_text() {
    base::telemetry::init(None, false).expect("nothing else logs");
    let panics = || panic!("on purpose\n{{\"level\":\"INFO\"}}\u{1b}[2J\u{202e}");
    assert!(
        Shutdown::spawn_thread("hostile", panics)
            .expect("a thread")
            .join()
            .is_err()
    );
}

#[tokio::test]
#[ignore = "aborts its process; panic_that_aborts_the_process_is_logged_before_the_abort runs it"]
async fn alone_a_logged_task_panics_on_which_others_rely() {
    base::telemetry::init(None, false).expect("nothing else logs");
    drop(Shutdown::new().spawn(async { panic!("on purpose") }).await);
}

#[tokio::test]
#[ignore = "aborts its process; panic_with_shared_state_ends_the_process runs it"]
async fn alone_a_task_panics_on_which_others_rely() {
    let shutdown = Shutdown::new();
    drop(shutdown.spawn(async { panic!("on purpose") }).await);
}

#[test]
#[ignore = "aborts its process; panic_with_shared_state_ends_the_process runs it"]
fn alone_a_poisoned_lock_aborts_the_process() {
    let lock = Arc::new(Mutex::new(0));
    let held = Arc::clone(&lock);
    let thread = Shutdown::spawn_thread("panics", move || {
        let _held = lock_or_abort(held.lock());
        panic!("on purpose");
    });
    assert!(thread.unwrap().join().is_err());
    *lock_or_abort(lock.lock()) += 1;
}

#[tokio::test]
#[ignore = "panic_with_shared_state_ends_the_process runs it in its own process"]
async fn alone_a_confined_task_panics() {
    let shutdown = Shutdown::new();
    let panicked = shutdown
        .spawn_isolated(async { panic!("on purpose") })
        .await;
    assert!(panicked.unwrap_err().is_panic());
    let panicked = shutdown.spawn_client(async { panic!("on purpose") }).await;
    assert!(panicked.unwrap_err().is_panic());
    shutdown.start_drain();
    assert!(shutdown.wait_for_tasks(LIMIT).await, "it is not waited for");
}
