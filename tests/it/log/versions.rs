//! Logs of earlier versions.

use std::fs::File;

use reqwest::Method;
use serde_json::{Value, json};

use super::{LIMITS, file};
use crate::support::Setup;
use crate::support::log::all;

/// A small log of each earlier version, with the number of its format and its session: one session with two turns and
/// a title. It also contains a key.
const RELEASED: [(u8, &str, &[u8]); 2] = [
    (1, "01a201c9-bcdf-7b47-9093-eb85feaa1215", include_bytes!("../../fixtures/log-version-1.sqlite")),
    (2, "01a203d1-df51-7fe1-876c-20ea2de21eb3", include_bytes!("../../fixtures/log-version-2.sqlite")),
];

#[tokio::test]
async fn a_log_of_every_released_version_is_opened_with_everything_in_it() {
    for (version, id, log) in RELEASED {
        let mut gateway =
            Setup::fake(&[]).settings(&format!("{LIMITS}retention.max_age = \"3650d\"")).start();
        assert_eq!(gateway.stop(), Some(0));
        std::fs::write(file(&gateway), log).expect("the folder is ours");
        gateway.start();
        let sessions = gateway.get("/v1/sessions").await;
        assert_eq!(sessions["sessions"][0]["sessionId"], id, "version {version}: {sessions}");
        let session = gateway.get(&format!("/v1/sessions/{id}")).await;
        assert_eq!((&session["title"], &session["state"]), (&json!("Kept"), &json!("idle")), "{session}");
        let events = gateway.lawful(id).await;
        let ends: Vec<&Value> = all(&events, "prompt.completed");
        assert_eq!(ends.len(), 2, "version {version}: {events:#?}");
        assert_eq!(gateway.get(&format!("/v1/sessions/{id}/prompts/p2")).await["text"], "two");
        let keys = super::said(&super::run(&gateway, &["key", "list"]), true);
        assert!(keys.contains("kept-key"), "{keys}");
        let before = events.len();
        let title = json!({ "title": "Changed" });
        let (status, _) = gateway.send(Method::PATCH, &format!("/v1/sessions/{id}"), &title).await;
        assert_eq!(status, 200);
        assert_eq!(gateway.lawful(id).await.len(), before + 1, "and it goes on");
    }
}

#[tokio::test]
async fn a_command_does_not_bring_the_log_of_a_gateway_that_runs_to_another_version() {
    let mut gateway = Setup::fake(&[]).start();
    assert_eq!(gateway.stop(), Some(0));
    // As a gateway of that version has it.
    let lock = File::options().write(true).open(file(&gateway).with_file_name("lock")).expect("it is there");
    lock.try_lock().expect("nobody has it");
    for (version, _, log) in RELEASED {
        std::fs::write(file(&gateway), log).expect("the folder is ours");
        let said = super::said(&super::run(&gateway, &["key", "list"]), false);
        assert!(said.contains("restart it first"), "version {version}: {said}");
        assert_eq!(std::fs::read(file(&gateway)).expect("it is ours"), log);
    }
}
