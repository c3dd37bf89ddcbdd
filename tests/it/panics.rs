//! The scope of a panic: the process if other tasks depend on the state, otherwise only its own task.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acp_gateway::shutdown::{Shutdown, lock_or_abort};

use crate::support::gateway::command;

const LIMIT: Duration = Duration::from_secs(10);

/// Runs one of the tests below in a process of its own.
fn alone(test: &str) -> ExitStatus {
    let program = std::env::current_exe().expect("a test has a program");
    let name = format!("panics::{test}");
    let mut command = command(program.to_str().expect("UTF-8"));
    let command = command.args(["--exact", &name, "--ignored", "--test-threads=1"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("the program runs")
}

const ABORTED: Option<i32> = Some(6);

#[test]
fn panic_with_shared_state_ends_the_process() {
    assert_eq!(alone("alone_a_task_panics_on_which_others_rely").signal(), ABORTED);
    assert_eq!(alone("alone_a_poisoned_lock_aborts_the_process").signal(), ABORTED);
    assert!(alone("alone_a_confined_task_panics").success());
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
    let panicked = shutdown.spawn_isolated(async { panic!("on purpose") }).await;
    assert!(panicked.unwrap_err().is_panic());
    let panicked = shutdown.spawn_client(async { panic!("on purpose") }).await;
    assert!(panicked.unwrap_err().is_panic());
    shutdown.start_drain();
    assert!(shutdown.wait_for_tasks(LIMIT).await, "it is not waited for");
}
