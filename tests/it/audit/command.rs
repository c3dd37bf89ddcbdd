//! `acp-gateway audit export` and `verify`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Output, Stdio};

use rusqlite::Connection;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::{audit, first};
use crate::key_life::key_command;
use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::places::gateway_program;
use crate::support::stored::{stored_like, unpacked};
use crate::support::{Gateway, Setup};

/// The id of the audit log in the store.
const AUDIT: [u8; 16] = [0; 16];

pub(super) fn audit_command(gateway: &Gateway, args: &[&str]) -> Output {
    let mut command = command(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .arg("audit")
        .args(args);
    command.output().expect("the binary was built")
}

pub(super) fn export(gateway: &Gateway, args: &[&str]) -> Vec<Value> {
    let output = audit_command(gateway, &[&["export"], args].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// A gateway without the operator's key, which prints a link.
pub(super) struct Link {
    child: Child,
    pub(super) url: String,
    pub(super) key: String,
}

pub(super) fn serve_link(gateway: &Gateway) -> Link {
    let mut serve = gateway.serve("127.0.0.1:0");
    serve
        .env_remove("ACP_GATEWAY_ADMIN_KEY_FILE")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = serve.spawn().expect("the binary was built");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("a line");
    let (url, key) = line.trim().split_once("/#key=").expect("a link");
    Link {
        url: url.to_owned(),
        key: key.to_owned(),
        child,
    }
}

impl Link {
    pub(super) fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
        self.child.wait().expect("our child");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn some_events() -> Gateway {
    let gateway = Setup::fake(&[]).start();
    for _ in 0..3 {
        gateway.session("fake").await;
    }
    gateway
        .posted("/v1/tickets", &[], &json!({ "paths": ["/v1/events"] }))
        .await;
    first(&gateway, "ticket.created").await;
    gateway
}

#[tokio::test]
async fn export_prints_the_events_of_a_time_range_while_the_gateway_runs() {
    let gateway = some_events().await;
    let events = audit(&gateway).await;
    assert_eq!(export(&gateway, &[]), events);
    let time = events[2]["time"].as_str().expect("a time");
    let before = export(&gateway, &["--until", time]);
    let after = export(&gateway, &["--since", time]);
    assert!(
        before
            .iter()
            .all(|event| event["time"].as_str() < Some(time))
            && !before.is_empty()
    );
    assert!(
        after
            .iter()
            .all(|event| event["time"].as_str() >= Some(time))
            && !after.is_empty()
    );
    assert_eq!(before.len() + after.len(), events.len());
    assert!(
        !audit_command(&gateway, &["export", "--since", "yesterday"])
            .status
            .success()
    );
    let nowhere = command(gateway_program())
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("nowhere"))
        .args(["audit", "export"])
        .output()
        .expect("the binary was built");
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(
        !gateway.path("nowhere").join("private/log.sqlite").exists(),
        "a command creates no log"
    );
}

#[tokio::test]
async fn verify_succeeds_while_the_gateway_runs_and_after_a_kill_and_a_restore() {
    let mut gateway = some_events().await;
    let last = audit(&gateway).await.last().expect("events")["seq"].clone();
    let verified = audit_command(&gateway, &["verify"]);
    let text = String::from_utf8(verified.stdout.clone()).expect("text");
    assert!(
        verified.status.success() && text.contains(&format!("events 1 to {last}, last hash ")),
        "{verified:?}"
    );
    gateway.kill();
    let verified = audit_command(&gateway, &["verify"]);
    assert!(verified.status.success(), "{verified:?}");
    for (action, code) in [("backup", Some(0)), ("restore", Some(0))] {
        let mut command = command(gateway_program());
        command
            .env_clear()
            .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
            .env("ACP_GATEWAY_DATA", gateway.path("data"))
            .arg(action)
            .arg(gateway.path("copy"));
        assert_eq!(
            command
                .output()
                .expect("the binary was built")
                .status
                .code(),
            code,
            "{action}"
        );
    }
    gateway.start();
    gateway.session("fake").await;
    let verified = audit_command(&gateway, &["verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

/// The lines that `audit export` prints.
fn exported(gateway: &Gateway, args: &[&str]) -> String {
    let output = audit_command(gateway, &[&["export"], args].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn export_of_a_session_is_lines_of_the_full_export() {
    let mut gateway = Setup::fake(&[]).start();
    let sessions = [gateway.session("fake").await, gateway.session("fake").await];
    for session in &sessions {
        gateway.prompt(session, "permission").await;
        gateway
            .log_until(session, |event| event["type"] == "request.created")
            .await;
        let path = format!("/v1/sessions/{session}/permissions/r1");
        let answer = json!({ "optionId": "allow" });
        let answered = gateway.posted(&path, &[], &answer);
        assert_eq!(answered.await.status, 204);
        gateway
            .log_until(session, |event| event["type"] == "prompt.completed")
            .await;
    }
    gateway.stop();
    let [session, other] = &sessions;
    let file = gateway.path("moved");
    let moved = command(gateway_program())
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .args(["export", session])
        .arg(&file)
        .output()
        .expect("the binary was built");
    assert!(moved.status.success(), "{moved:?}");

    let pending = exported(&gateway, &["--session", session]);
    assert!(!pending.contains("session.exported"), "it has no number");
    gateway.start();
    first(&gateway, "session.exported").await;
    let all = exported(&gateway, &[]);
    let of_session = exported(&gateway, &["--session", session]);
    let types = |text: &str| {
        let types = text.lines().map(|line| {
            let event: Value = serde_json::from_str(line).expect("JSON");
            event["type"].as_str().expect("a type").to_owned()
        });
        types.collect::<Vec<_>>()
    };
    assert_eq!(
        types(&of_session),
        [
            "permission.decided",
            "permission.tool_call_ended",
            "session.exported"
        ]
    );
    let expected = all.lines().filter(|line| line.contains(session.as_str()));
    assert!(of_session.lines().eq(expected), "{all}");
    assert!(!of_session.contains(other.as_str()));
    let last: Value = serde_json::from_str(of_session.lines().last().expect("a line")).expect("it");
    let time = last["time"].as_str().expect("a time");
    let since = exported(&gateway, &["--session", session, "--since", time]);
    assert_eq!(types(&since), ["session.exported"]);
    let none = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
    assert_eq!(exported(&gateway, &["--session", none]), "");
}

/// `audit verify --file` of this text, without a data folder.
fn verify_file(gateway: &Gateway, text: &str) -> Output {
    let file = gateway.path("export.ndjson");
    std::fs::write(&file, text).expect("the folder is ours");
    command(gateway_program())
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .current_dir(gateway.path(""))
        .args(["audit", "verify", "--file"])
        .arg(&file)
        .output()
        .expect("the binary was built")
}

#[tokio::test]
async fn verify_of_a_file_detects_changed_removed_and_inserted_lines() {
    let mut gateway = some_events().await;
    gateway.stop();
    let all = exported(&gateway, &[]);
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines.len() >= 4, "{all}");
    let verified = |text: &str| {
        let output = verify_file(&gateway, text);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let hash = |text: &str| {
        let (_, hash) = text.split_once("last hash ").expect("a hash");
        hash.to_owned()
    };
    let of_store = audit_command(&gateway, &["verify"]);
    let of_store = String::from_utf8(of_store.stdout).expect("text");
    assert_eq!(hash(&verified(&all)), hash(&of_store));
    // Exports of consecutive times are parts of one chain.
    let rest = lines[2..].join("\n");
    assert!(verified(&rest).contains(&format!("events 3 to {}", lines.len())));
    assert!(verified("").contains("no events"));
    key_command(&gateway, &["create", "alice"]);
    assert!(verified(&exported(&gateway, &[])).contains(", 1 pending"));

    let changed = all.replacen("\"agent\":\"fake\"", "\"agent\":\"none\"", 1);
    let removed = [&lines[..1], &lines[2..]].concat().join("\n");
    let inserted = [&lines[..2], &lines[1..]].concat().join("\n");
    let garbage = format!("{all}not an event\n");
    for (text, error) in [
        (&changed, "does not contain the hash"),
        (&removed, "event 3 does not contain"),
        (&inserted, "event 2 does not contain"),
        (&garbage, "is not an event"),
    ] {
        let output = verify_file(&gateway, text);
        let message = String::from_utf8(output.stderr.clone()).expect("text");
        assert!(
            output.status.code() == Some(1) && message.contains(error),
            "{error}: {output:?}"
        );
    }
}

/// Replaces a run of the stopped gateway's audit log, with a valid checksum.
fn edit(gateway: &Gateway, change: impl Fn(&mut Vec<u8>) -> bool) {
    let log = Connection::open(gateway.path("data/private/log.sqlite")).expect("the store");
    let rows: Vec<(i64, i64, i64, Vec<u8>)> = log
        .prepare("SELECT pos, first_seq, last_seq, frames FROM run WHERE session = ?1 ORDER BY pos")
        .expect("a statement")
        .query_map([AUDIT], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .expect("rows")
        .collect::<Result<_, _>>()
        .expect("rows");
    for (pos, first, last, stored) in rows {
        let mut frames = unpacked(&stored);
        if !change(&mut frames) {
            continue;
        }
        let stored = stored_like(&stored, &frames);
        let mut crc = crc32c::crc32c(&AUDIT);
        for bytes in [&first.to_be_bytes()[..], &last.to_be_bytes(), &stored] {
            crc = crc32c::crc32c_append(crc, bytes);
        }
        log.execute(
            "UPDATE run SET frames = ?2, crc = ?3 WHERE pos = ?1",
            rusqlite::params![pos, stored, crc],
        )
        .expect("an update");
        return;
    }
    panic!("no run to change");
}

#[tokio::test]
async fn verify_detects_an_edited_event() {
    let mut gateway = some_events().await;
    gateway.stop();
    assert!(audit_command(&gateway, &["verify"]).status.success());
    edit(&gateway, |frames| {
        let Some(at) = memchr::memmem::find(frames, b"\"agent\":\"fake\"") else {
            return false;
        };
        frames[at + 9..at + 13].copy_from_slice(b"none");
        true
    });
    let verified = audit_command(&gateway, &["verify"]);
    let text = String::from_utf8(verified.stderr.clone()).expect("text");
    assert!(
        verified.status.code() == Some(1) && text.contains("does not contain the hash"),
        "{verified:?}"
    );
    // The gateway continues, and the evidence stays.
    gateway.start();
    gateway.session("fake").await;
    assert_eq!(audit_command(&gateway, &["verify"]).status.code(), Some(1));
}

#[tokio::test]
async fn verify_detects_removed_last_events() {
    let mut gateway = some_events().await;
    gateway.stop();
    let log = Connection::open(gateway.path("data/private/log.sqlite")).expect("the store");
    let removed = "DELETE FROM run WHERE pos = (SELECT max(pos) FROM run WHERE session = ?1)";
    assert_eq!(log.execute(removed, [AUDIT]).expect("a statement"), 1);
    drop(log);
    let verified = audit_command(&gateway, &["verify"]);
    let text = String::from_utf8(verified.stderr.clone()).expect("text");
    assert!(
        verified.status.code() == Some(1) && text.contains("the log ends with event"),
        "{verified:?}"
    );
}
