//! Backups of the log during operation, and their restore.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};

use super::{LIMITS, break_structure, output_text, run, text_of};
use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::places::gateway_program;
use crate::support::{Gateway, Random, Setup, eventually, figure};

/// An event without its epoch.
fn content(event: &Value) -> Value {
    let mut event = event.clone();
    event.as_object_mut().expect("an event").remove("id");
    event
}

#[tokio::test]
async fn backup_under_load_restores_a_prefix_and_resets_every_client() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let session = gateway.session("fake").await;
        gateway.prompt(&session, "stream n=100000 rate=500").await;
        sessions.push(session);
    }
    for session in &sessions {
        gateway
            .log_until(session, |event| {
                event["seq"].as_u64().is_some_and(|seq| seq > 100)
            })
            .await;
    }
    let mut before = Vec::new();
    for session in &sessions {
        before.push(gateway.last_seq(session).await);
    }
    let file = gateway.path("backup.sqlite");
    let began = std::time::Instant::now();
    let text = output_text(&run(&gateway, &["backup", text_of(&file)]), true);
    figure(&format!(
        "a backup under load took {:?}: {}",
        began.elapsed(),
        text.trim()
    ));
    assert_eq!(
        std::fs::metadata(&file)
            .expect("the backup")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    // The load continued during the backup.
    for session in &sessions {
        let now = gateway.last_seq(session).await;
        gateway
            .log_until(session, |event| {
                event["seq"].as_u64().is_some_and(|seq| seq > now)
            })
            .await;
    }
    let mut committed = Vec::new();
    for session in &sessions {
        committed.push(gateway.all_events(session).await);
    }

    let mut second = Setup::fake(&[]).settings(LIMITS).start();
    let lost = second.session("fake").await;
    assert_eq!(second.stop(), Some(0));
    let text = output_text(&run(&second, &["restore", text_of(&file)]), true);
    assert!(text.contains("log.sqlite.before-"), "{text}");
    second.start();
    assert_eq!(
        second
            .call(reqwest::Method::GET, &format!("/v1/sessions/{lost}"))
            .await
            .status,
        404
    );
    for ((session, before), committed) in sessions.iter().zip(before).zip(committed) {
        let restored = second.all_events(session).await;
        // After the common prefix, the log contains only events that the start appended.
        let prefix = restored
            .iter()
            .position(|event| event["type"] == "prompt.failed")
            .expect("it ran");
        assert!(
            prefix as u64 >= before,
            "all that was committed before the backup is in it: {prefix} {before}"
        );
        assert!(prefix < committed.len(), "the backup is older");
        for (ours, theirs) in restored[..prefix].iter().zip(&committed) {
            assert_eq!(content(ours), content(theirs));
        }
        assert_eq!(restored[prefix]["problem"]["code"], "interrupted");
        assert!(
            restored[prefix + 1..]
                .iter()
                .all(|event| event["type"] == "session.detached")
        );

        let path = format!("/v1/sessions/{session}/events?follow=false");
        let held = committed
            .last()
            .and_then(|event| event["id"].as_str())
            .expect("an id");
        let mut stream = second.events_after(&path, Some(held)).await;
        let reset = stream.next().await.expect("a reset");
        assert_eq!(
            (&reset.data["type"], &reset.data["reason"]),
            (&json!("reset"), &json!("new_epoch"))
        );
        let events: Vec<Value> = crate::support::log::logged(stream.rest().await);
        assert_eq!(events, restored, "then all events");
    }
    let fresh = second.session("fake").await;
    assert_eq!(second.turn(&fresh, "echo on").await["text"], "on");
}

#[tokio::test]
async fn restore_into_another_folder_continues_the_sessions() {
    let state = tempfile::tempdir().expect("a folder");
    let state = text_of(&state.path().join("state")).to_owned();
    let setup = || Setup::fake(&["--resume", "--state", &state]).settings(LIMITS);
    let mut first = setup().start();
    let session = first.session("fake").await;
    first.turn(&session, "echo one").await;
    let other = first.path("data/workspaces/gone");
    std::fs::create_dir(&other).expect("the folder is ours");
    let body = json!({ "agent": "fake", "cwd": other });
    let (status, elsewhere) = first.post("/v1/sessions", &body).await;
    assert_eq!(status, 201, "{elsewhere}");
    let file = first.path("backup.sqlite");
    output_text(&run(&first, &["backup", text_of(&file)]), true);
    assert_eq!(first.stop(), Some(0));
    std::fs::remove_dir(&other).expect("the folder is ours");

    let mut second = setup().start();
    assert_eq!(second.stop(), Some(0));
    let own = second.path("data/workspaces").join(&session);
    let text = output_text(&run(&second, &["restore", text_of(&file)]), true);
    for missing in [&own, &other] {
        let line = format!("  {}\n", missing.display());
        assert!(text.contains(&line), "{text}");
    }
    std::fs::create_dir(&own).expect("the folder is ours");
    second.start();
    let shown = second.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(shown["cwd"], text_of(&own));
    assert_eq!(second.turn(&session, "echo two").await["text"], "two");
}

#[tokio::test]
async fn backup_never_overwrites_and_removes_partial_files() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let folder = gateway.path("backups");
    std::fs::create_dir(&folder).expect("the folder is ours");
    let file = folder.join("one");
    std::fs::write(&file, "somebody's").expect("the folder is ours");
    let text = output_text(&run(&gateway, &["backup", text_of(&file)]), false);
    assert!(
        text.contains("a backup does not overwrite a file"),
        "{text}"
    );
    assert_eq!(std::fs::read(&file).expect("it is there"), b"somebody's");
    let nowhere = folder.join("none/two");
    output_text(&run(&gateway, &["backup", text_of(&nowhere)]), false);
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1);
    // The same without a gateway, and as a stream.
    assert_eq!(gateway.stop(), Some(0));
    let stream = run(&gateway, &["backup", "-"]);
    assert!(
        stream.status.success() && stream.stdout.starts_with(b"SQLite format 3\0"),
        "{:?}",
        stream.status
    );
    let private = std::fs::read_dir(gateway.path("data/private")).expect("a folder");
    let left: Vec<_> = private
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("part")),
        "{left:?}"
    );
    std::fs::remove_file(super::file(&gateway)).expect("it is there");
    let text = output_text(
        &run(&gateway, &["backup", text_of(&folder.join("three"))]),
        false,
    );
    assert!(text.contains("there is no log"), "{text}");
}

#[tokio::test]
async fn backup_of_a_stopped_gateway_restores_without_a_check() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    assert_eq!(gateway.stop(), Some(0));
    let before = names(&gateway);
    output_text(
        &run(&gateway, &["backup", text_of(&gateway.path("good"))]),
        true,
    );
    assert_eq!(names(&gateway), before);
    gateway.start();
    assert!(
        !gateway.log().contains("the log was not closed"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn a_backup_that_is_broken_off_is_swept_away() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    // More bytes than the buffer of a pipe.
    gateway
        .turn(&session, &format!("echo {}", Random::new(1).noise(400_000)))
        .await;
    let mut command = command(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .args(["backup", "-"]);
    let mut backup = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut first = [0; 16];
    backup
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut first)
        .expect("a backup");
    assert_eq!(&first, b"SQLite format 3\0");
    assert!(
        !names(&gateway).iter().any(|name| name.contains(".part")),
        "a response body has no file name"
    );
    backup.kill().expect("it is ours");
    let gone = backup.id();
    backup.wait().expect("it is ours");
    let private = gateway.path("data/private");
    let left = [".part", ".part-journal"].map(|suffix| format!(".backup.{gone}{suffix}"));
    let others = [
        format!(".backup.{}.part", std::process::id()),
        ".backup.x.part".to_owned(),
    ];
    for name in left.iter().chain(&others) {
        std::fs::write(private.join(name), "").expect("the folder is ours");
    }
    assert_eq!(gateway.stop(), Some(0));
    gateway.start();
    let found = names(&gateway);
    assert!(left.iter().all(|name| !found.contains(name)), "{found:?}");
    assert!(
        others.iter().all(|name| found.contains(name)),
        "a file of another program stays: {found:?}"
    );
}

/// The names in the gateway's own folder.
fn names(gateway: &Gateway) -> Vec<String> {
    let private = std::fs::read_dir(gateway.path("data/private")).expect("a folder");
    let names = private.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[tokio::test]
async fn restore_rejects_a_log_in_use_and_an_invalid_file() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let good = gateway.path("good");
    let bad = gateway.path("bad");
    output_text(&run(&gateway, &["backup", text_of(&good)]), true);
    let text = output_text(&run(&gateway, &["restore", text_of(&good)]), false);
    assert!(
        text.contains("another gateway uses the data folder"),
        "{text}"
    );
    assert_eq!(gateway.turn(&session, "echo two").await["text"], "two");
    assert_eq!(gateway.stop(), Some(0));

    let before = std::fs::read(super::file(&gateway)).expect("the log");
    break_structure(&gateway);
    std::fs::rename(super::file(&gateway), &bad).expect("the folder is ours");
    std::fs::write(super::file(&gateway), &before).expect("the folder is ours");
    let text = gateway.path("text");
    std::fs::write(&text, "not a log").expect("the folder is ours");
    for (file, why) in [
        (&bad, "damaged"),
        (&text, "is not an event log of acp-gateway"),
        (&gateway.path("none"), "No such file"),
    ] {
        let text = output_text(&run(&gateway, &["restore", text_of(file)]), false);
        assert!(text.contains(why), "{text}");
        assert!(
            std::fs::read(super::file(&gateway)).expect("the log") == before,
            "the log stays as it is"
        );
        assert!(!gateway.path("data/private/log.sqlite.restored").exists());
    }
    // After a kill between its last two steps the old log exists under its other name, and no gateway creates an
    // empty one.
    let log = super::file(&gateway);
    std::fs::rename(&log, log.with_file_name("log.sqlite.before-1")).expect("the folder is ours");
    std::fs::copy(&good, log.with_file_name("log.sqlite.restored")).expect("the folder is ours");
    let refused = gateway
        .serve("127.0.0.1:0")
        .output()
        .expect("the binary was built");
    assert!(
        output_text(&refused, false).contains("repeat the restore"),
        "{refused:?}"
    );
    output_text(&run(&gateway, &["restore", text_of(&good)]), true);
    gateway.start();
    eventually("the session is back", Duration::from_secs(10), || async {
        (gateway
            .get(&format!("/v1/sessions/{session}/prompts/p1"))
            .await["text"]
            == "one")
            .then_some(())
    })
    .await;
    assert_eq!(
        gateway
            .call(
                reqwest::Method::GET,
                &format!("/v1/sessions/{session}/prompts/p2")
            )
            .await
            .status,
        404
    );
}
