//! The report of `serve` when it accepts connections. The guides show the text of a terminal, and their tests compare it.

use serde_json::Value;

use crate::support::Setup;

#[test]
fn without_a_terminal_the_start_is_one_record_of_the_log() {
    let more = std::env::temp_dir();
    let setup = Setup::fake(&[]).table(&format!("[workspaces]\nallow = [{more:?}]\n"));
    let gateway = setup.start();
    let records: Vec<Value> = gateway
        .log()
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    let started: Vec<&Value> = records
        .iter()
        .filter(|record| record["message"] == "the gateway accepts connections")
        .collect();
    let [started] = started[..] else {
        panic!("{records:?}")
    };
    let data = gateway.path("data");
    let config = gateway.path("config.toml");
    assert_eq!(started["config"], config.to_str().expect("UTF-8"));
    assert_eq!(started["data"], data.to_str().expect("UTF-8"));
    assert_eq!(started["agents"], "fake");
    let workspaces = format!("{}, {}", data.join("workspaces").display(), more.display());
    assert_eq!(started["workspaces"], workspaces);
    let stop = started["stop"].as_str().expect("a text");
    assert!(
        stop.contains("SIGTERM") && stop.contains("SIGINT"),
        "{stop}"
    );
}
