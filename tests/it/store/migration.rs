//! Logs of earlier formats: `formats/format-N.sqlite.gz` is a backup by the last version that wrote the format N. It contains
//! three sessions of the demo agent, of which one waits for a permission and has a queued prompt, a task with its session, a
//! conversation of a chat protocol, a webhook and two keys.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use base::types::Ids;
use flate2::read::GzDecoder;
use log::store::migrate;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::crash::{again, assert_passed, folder, input};
use super::disk::{Disk, EIO, ENOSPC};
use super::script::{content, open};
use super::{LIMITS, LOG};
use crate::key_life::created;
use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::places::project;
use crate::support::{Gateway, Setup, figure};

/// The formats that this version migrates.
const FORMATS: [i32; 2] = [5, 6];
const CURRENT: i32 = 7;
/// Open, write, truncate, sync, unlink and rename.
const KINDS: &str = "wtsu";
const DEMO: &str = "[agents.demo]\nbuiltin = \"demo\"\n";

fn file_of(format: i32) -> Vec<u8> {
    let path = project().join(format!("tests/it/store/formats/format-{format}.sqlite.gz"));
    let packed = std::fs::File::open(path).expect("each format has a file");
    let mut bytes = Vec::new();
    GzDecoder::new(packed)
        .read_to_end(&mut bytes)
        .expect("the file is intact");
    bytes
}

pub(crate) fn format_of(path: &Path) -> i32 {
    let file = Connection::open(path).expect("a database");
    file.pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("every database has one")
}

pub(crate) fn copy_of(format: i32, log: &Path) -> PathBuf {
    log.with_file_name(format!("log.sqlite.format-{format}"))
}

/// A gateway that does not run, with a log of this format.
fn stopped_with(format: i32) -> Gateway {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).table(DEMO).start();
    assert_eq!(gateway.stop(), Some(0));
    std::fs::write(gateway.path(LOG), file_of(format)).expect("the folder is ours");
    gateway
}

/// Runs a command on the folder of a stopped gateway. Returns whether it succeeded, and its output.
pub(crate) fn run(gateway: &Gateway, args: &[&str]) -> (bool, String) {
    let mut command = command(gateway.program.to_str().expect("UTF-8"));
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .args(args);
    let output = command.output().expect("the binary was built");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

/// The sessions by title, with the number of their events.
async fn sessions(gateway: &Gateway) -> Vec<(String, u64)> {
    let list = gateway.get("/v1/sessions").await;
    let mut sessions = Vec::new();
    for session in list["sessions"].as_array().expect("a list") {
        let id = session["sessionId"].as_str().expect("an id");
        let title = session["title"].as_str().expect("a title").to_owned();
        sessions.push((title, gateway.last_seq(id).await));
    }
    sessions.sort();
    sessions
}

/// The id of the session that waited for a permission.
async fn waiting_session(gateway: &Gateway) -> String {
    let list = gateway.get("/v1/sessions").await;
    let all = list["sessions"].as_array().expect("a list");
    let waiting = all.iter().find(|session| session["title"] == "/permission");
    let id = waiting.expect("it is listed")["sessionId"].as_str();
    id.expect("an id").to_owned()
}

/// The later requests have a key of the user to whom the sessions belong.
async fn assert_complete(gateway: &mut Gateway) {
    let count = async |gateway: &Gateway, path: &str, list: &str| {
        let answer = gateway.get(path).await;
        answer[list].as_array().expect("a list").len()
    };
    assert_eq!(count(gateway, "/v1/webhooks", "webhooks").await, 1);
    let kept = sessions(gateway).await;
    assert_eq!(kept, [], "the list of the owner");
    let args = ["create", "second", "--user", "ada", "--scopes", "admin"];
    gateway.key = created(gateway, &args).await;
    assert_eq!(count(gateway, "/v1/tasks", "tasks").await, 1);
    let kept = sessions(gateway).await;
    let titles: Vec<&str> = kept.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(titles, ["/help", "/permission", "A session of format 5"]);
    assert_eq!(kept[0].1, 174);
    assert_eq!(kept[2].1, 66);
    // The turn that waited for a permission ends as after every restart, and the queued prompt is too old.
    let waiting = waiting_session(gateway).await;
    let interrupted = format!("/v1/sessions/{waiting}/prompts/p2");
    let interrupted = gateway.get(&interrupted).await;
    assert_eq!(interrupted["error"]["code"], "interrupted", "{interrupted}");
    let queued = format!("/v1/sessions/{waiting}/prompts/p3");
    let queued = gateway.get(&queued).await;
    assert_eq!(queued["error"]["code"], "prompt_expired", "{queued}");
}

#[tokio::test]
async fn log_of_each_earlier_format_is_migrated_and_its_copy_is_kept() {
    for format in FORMATS {
        let mut gateway = stopped_with(format);
        let log = gateway.path(LOG);
        // A copy that was interrupted.
        let part = log.with_file_name(format!("log.sqlite.format-{format}.part"));
        std::fs::write(&part, "incomplete").expect("the folder is ours");
        gateway.start();
        assert!(!part.exists());
        assert!(
            gateway.log().contains("migrated the log"),
            "{}",
            gateway.log()
        );
        assert_complete(&mut gateway).await;
        // The ids of new sessions end with the number of the store, also after a restart.
        let first = gateway.session("demo").await;
        let end_of = |id: &str| id[id.len() - 4..].to_owned();
        assert_eq!(gateway.stop(), Some(0));
        gateway.start();
        let second = gateway.session("demo").await;
        assert_eq!(end_of(&first), end_of(&second));
        assert_eq!(gateway.log().matches("migrated the log").count(), 1);
        assert_eq!(gateway.stop(), Some(0));
        assert_eq!(format_of(&log), CURRENT);

        // An earlier version can continue with the copy.
        let copy = copy_of(format, &log);
        assert_eq!(format_of(&copy), format);
        let rows = |path: &Path| {
            let file = Connection::open(path).expect("a database");
            let select = "SELECT count(*), max(pos), sum(crc) FROM run";
            let row = file.query_row(select, [], |row| {
                Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?])
            });
            row.expect("the table exists")
        };
        let original = gateway.path("original.sqlite");
        std::fs::write(&original, file_of(format)).expect("the folder is ours");
        assert_eq!(rows(&copy), rows(&original));
    }
}

#[tokio::test]
async fn only_a_start_of_the_gateway_migrates_and_no_backup_keeps_no_copy() {
    for format in FORMATS {
        let gateway = stopped_with(format);
        let log = gateway.path(LOG);
        let before = std::fs::read(&log).expect("the log");
        let (done, text) = run(&gateway, &["key", "list"]);
        assert!(
            !done && text.contains("start the gateway, which migrates"),
            "{text}"
        );
        let (done, text) = run(
            &gateway,
            &["backup", gateway.path("b").to_str().expect("UTF-8")],
        );
        assert!(done, "a backup before the update: {text}");
        assert_eq!(format_of(&gateway.path("b")), format);
        assert!(
            std::fs::read(&log).expect("the log") == before,
            "nothing was changed"
        );

        let mut start = gateway.serve("127.0.0.1:0");
        let output = start
            .args(["--no-backup", "--exit-when-idle", "1s"])
            .output()
            .expect("the binary was built");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(format_of(&log), CURRENT);
        assert!(!copy_of(format, &log).exists());
    }
}

#[tokio::test]
async fn backup_of_each_earlier_format_is_restored_into_another_folder() {
    for format in FORMATS {
        let mut gateway = Setup::fake(&[]).settings(LIMITS).table(DEMO).start();
        assert_eq!(gateway.stop(), Some(0));
        let backup = gateway.path("backup.sqlite");
        std::fs::write(&backup, file_of(format)).expect("the folder is ours");
        let (done, text) = run(&gateway, &["restore", backup.to_str().expect("UTF-8")]);
        assert!(done, "{text}");
        assert_eq!(format_of(&backup), format, "the backup is not changed");
        // The folders of sessions are restored by the operator.
        let missing = text.lines().filter(|line| line.contains("/workspaces/"));
        for folder in missing {
            std::fs::create_dir_all(folder.trim()).expect("the folder is ours");
        }
        gateway.start();
        assert_complete(&mut gateway).await;
        let waiting = waiting_session(&gateway).await;
        let turn = gateway.turn(&waiting, "/help").await;
        assert_eq!(turn["status"], "completed", "{turn}");
    }
}

#[tokio::test]
async fn log_of_a_later_version_is_rejected_with_the_version_that_it_needs() {
    let mut gateway = Setup::fake(&[]).start();
    assert_eq!(gateway.stop(), Some(0));
    let log = Connection::open(gateway.path(LOG)).expect("the log");
    log.execute_batch(
        "PRAGMA user_version = 99; UPDATE meta SET value = '7.8.9' WHERE key = 'needed_version'",
    )
    .expect("it is a log");
    log.close().expect("it closes");
    let before = std::fs::read(gateway.path(LOG)).expect("the log");
    for command in [&["serve"][..], &["key", "list"], &["backup", "-"]] {
        let (done, text) = run(&gateway, command);
        let needed = "has format 99, and this version reads the formats 5 to 7: start acp-gateway 7.8.9 or a later version";
        assert!(!done && text.contains(needed), "{command:?}: {text}");
        assert!(std::fs::read(gateway.path(LOG)).expect("the log") == before);
    }
}

/// Migrations in which the first call fails, then the second, until no call is left.
#[test]
#[ignore = "started by migration_in_which_a_call_fails_loses_nothing"]
fn victim() {
    let words = input();
    let [folder, disk, format, errno] = &words[..] else {
        return;
    };
    let folder = Path::new(folder);
    let disk = Disk::own(disk);
    let format: i32 = format.parse().expect("a number");
    let errno = errno.parse().expect("a number");
    let original = file_of(format);
    let log = folder.join("log.sqlite");
    let mut expected = None;
    let mut failures = 0;
    // The first migration is undisturbed.
    for failing in 0.. {
        std::fs::write(&log, &original).expect("the folder is ours");
        disk.forget();
        if failing > 0 {
            disk.fail(KINDS, errno, failing..=failing);
        }
        let migrated = migrate(&log, true, &Ids::system());
        let has_failed = disk.has_failed();
        disk.heal();
        failures += u64::from(migrated.is_err());
        let format_now = format_of(&log);
        assert!([format, CURRENT].contains(&format_now), "{format_now}");
        if copy_of(format, &log).exists() {
            assert_eq!(format_of(&copy_of(format, &log)), format);
        }
        migrate(&log, true, &Ids::system()).expect("the disk works again");
        let found = content(&open(&log));
        assert_eq!(*expected.get_or_insert(found), found, "call {failing}");
        for file in std::fs::read_dir(folder).expect("it is ours") {
            std::fs::remove_file(file.expect("an entry").path()).expect("it is ours");
        }
        if failing > 0 && !has_failed {
            break;
        }
    }
    assert!(failures > 10, "{failures}");
    println!("{failures} migrations with a failed call");
}

#[test]
fn migration_in_which_a_call_fails_loses_nothing() {
    for format in FORMATS {
        for errno in [EIO, ENOSPC] {
            let folder = folder();
            let path = folder.path().canonicalize().expect("it is there");
            let disk = Disk::of(&path);
            let words = format!(
                "{} {} {format} {errno}\n",
                path.display(),
                disk.folder().display()
            );
            let output = assert_passed(again("store::migration::victim", &disk, &words));
            output
                .lines()
                .filter(|line| line.contains("failed call"))
                .for_each(figure);
        }
    }
}

/// The test of each format must not forget one.
#[test]
fn each_format_before_the_current_one_has_a_file() {
    let folder = project().join("tests/it/store/formats");
    let names = std::fs::read_dir(folder).expect("it exists");
    let mut found: Vec<String> = names
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    found.sort();
    let expected: Vec<String> = (FORMATS[0]..CURRENT)
        .map(|format| format!("format-{format}.sqlite.gz"))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        json!(FORMATS),
        Value::from((FORMATS[0]..CURRENT).collect::<Vec<_>>())
    );
}
