//! `acp-gateway export` and `import`: a session moves to another gateway, complete or not at all.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::disk::{Disk, ENOSPC};
use super::{LIMITS, LOG, on_disk};
use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::log::{all, logged, one};
use crate::support::places::gateway_program;
use crate::support::{Gateway, Random, Setup, eventually, figure};

/// The damaged files of each kind that a test imports.
const DAMAGED: usize = 40;
/// The decisions about permissions in the audit log of a session that moves.
const AUDITED: usize = 5;

fn start(settings: &str) -> Gateway {
    Setup::fake(&[]).settings(LIMITS).settings(settings).start()
}

fn run(gateway: &Gateway, args: &[&str]) -> Output {
    run_on(gateway, args, None)
}

fn run_on(gateway: &Gateway, args: &[&str], disk: Option<&Disk>) -> Output {
    let mut command = command(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .envs(disk.map(Disk::environment).unwrap_or_default())
        .args(args);
    command.output().expect("the binary was built")
}

#[track_caller]
fn text(output: &Output, success: bool) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).expect("text");
    assert_eq!(output.status.success(), success, "{text}");
    text
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Exports a session. Returns the file.
fn export(gateway: &Gateway, session: &str) -> PathBuf {
    let file = gateway.path(&format!("{session}.export"));
    let exported = run(gateway, &["export", session, path_text(&file)]);
    text(&exported, true);
    file
}

/// Imports a file. Returns the new id of its session.
fn import(gateway: &Gateway, file: &Path) -> String {
    let imported = text(&run(gateway, &["import", path_text(file)]), true);
    let (_, id) = imported.split_once("is now session ").expect("the id");
    id.split(',').next().expect("the id").to_owned()
}

/// Imports a file that is refused. Returns the message.
#[track_caller]
fn refused(gateway: &Gateway, file: &Path) -> String {
    text(&run(gateway, &["import", path_text(file)]), false)
}

/// The gateway has no session, and no file of an import remains.
async fn assert_nothing_imported(gateway: &Gateway) {
    gateway.assert_nothing_left().await;
    assert_no_parts(gateway);
    let events = gateway.get("/v1/audit?types=session.imported").await;
    assert_eq!(events["events"], json!([]));
}

fn assert_no_parts(gateway: &Gateway) {
    let private = std::fs::read_dir(gateway.path("data/private")).expect("a folder");
    for entry in private {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        assert!(!name.contains(".part"), "{name}");
    }
}

fn unpack(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(file).expect("the export");
    GzDecoder::new(packed)
        .read_to_end(&mut bytes)
        .expect("it is intact");
    bytes
}

/// The export after a change of its database.
fn changed(gateway: &Gateway, file: &Path, change: impl FnOnce(&Connection)) -> PathBuf {
    let database = gateway.path("changed.sqlite");
    std::fs::write(&database, unpack(file)).expect("the folder is ours");
    let connection = Connection::open(&database).expect("a database");
    change(&connection);
    connection.close().expect("it closes");
    let packed = gateway.path("changed.export");
    let target = std::fs::File::create(&packed).expect("the folder is ours");
    let mut encoder = GzEncoder::new(target, Compression::fast());
    let bytes = std::fs::read(&database).expect("the database");
    encoder.write_all(&bytes).expect("the folder is ours");
    encoder.finish().expect("the folder is ours");
    packed
}

/// The event without its own id.
fn content(event: &Value) -> Value {
    let mut event = event.clone();
    event.as_object_mut().expect("an event").remove("id");
    event
}

/// The JSON with another session id.
fn renamed(value: &Value, from: &str, to: &str) -> Value {
    serde_json::from_str(&value.to_string().replace(from, to)).expect("JSON")
}

async fn put(gateway: &Gateway, session: &str, path: &str, bytes: &[u8]) {
    let url = format!("/v1/sessions/{session}/files/{path}");
    let request = gateway.request(Method::PUT, &url).body(bytes.to_vec());
    let status = request.send().await.expect("an answer").status();
    assert!(status.is_success(), "{path}: {status}");
}

async fn transcript(gateway: &Gateway, session: &str) -> Value {
    let path = format!("/v1/sessions/{session}/transcript");
    gateway.get(&path).await["turns"].clone()
}

/// A session with two turns, a decision about a permission, and files in its folder.
async fn full_session(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    put(gateway, &session, "upload.txt", b"from a client").await;
    put(gateway, &session, "a/b/large.bin", &vec![7; 3 << 20]).await;
    put(gateway, &session, "empty", b"").await;
    put(gateway, &session, "run.sh", b"#!/bin/sh\n").await;
    let folder = gateway.path("data/workspaces").join(&session);
    let program = folder.join("run.sh");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("the folder is ours");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).expect("the folder is ours");
    decide(gateway, &session, 1).await;
    let body = json!({ "prompt": "tool", "attachments": [{ "path": "upload.txt" }] });
    let path = format!("/v1/sessions/{session}/prompts");
    let answer = gateway.posted(&path, &[("prefer", "wait=60")], &body).await;
    assert_eq!(answer.body["status"], "completed", "{answer:?}");
    session
}

/// A turn with the permission request of this number.
async fn decide(gateway: &Gateway, session: &str, number: usize) {
    let prompt = gateway.prompt(session, "permission").await;
    let request = format!("r{number}");
    gateway
        .log_until(session, |event| {
            event["type"] == "request.created" && event["requestId"] == request
        })
        .await;
    let answer = json!({ "optionId": "reject" });
    let path = format!("/v1/sessions/{session}/permissions/{request}");
    assert_eq!(gateway.posted(&path, &[], &answer).await.status, 204);
    gateway
        .log_until(session, |event| {
            event["type"] == "prompt.completed" && event["promptId"] == prompt["promptId"]
        })
        .await;
}

/// The lines of `audit export` with this text.
fn audit_lines(gateway: &Gateway, of: &str) -> Vec<String> {
    let exported = text(&run(gateway, &["audit", "export"]), true);
    // The test itself causes the events of exports and transcripts, at any time.
    let of_test = |line: &str| line.contains("\"session.exported\"");
    let lines = exported.lines();
    let lines = lines.filter(|line| line.contains(of) && !of_test(line));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn session_moves_with_its_events_files_and_audit_events() {
    let first = start("");
    let second = start("");
    let old = full_session(&first).await;
    for number in 2..=AUDITED {
        decide(&first, &old, number).await;
    }
    eventually_decided(&first, &old).await;
    let file = export(&first, &old);
    let mode = std::fs::metadata(&file).expect("the export").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let before = first.all_events(&old).await;
    let mut merged = second.events("/v1/events").await;
    let new = import(&second, &file);

    let shown = second.get_session(&new).await;
    assert_eq!(shown["importedFrom"], old, "{shown}");
    assert_eq!(
        (&shown["state"], &shown["attached"], &shown["title"]),
        (
            &json!("idle"),
            &json!(false),
            &first.get_session(&old).await["title"]
        )
    );
    let own = second.path("data/workspaces").join(&new);
    assert_eq!(
        shown["cwd"],
        path_text(&own.canonicalize().expect("it exists"))
    );
    assert_eq!(
        transcript(&second, &new).await,
        renamed(&transcript(&first, &old).await, &old, &new)
    );
    // The process of the old session ended for the new one.
    let events = second.lawful(&new).await;
    let expected: Vec<Value> = before
        .iter()
        .map(|event| renamed(&content(event), &old, &new))
        .collect();
    let found: Vec<Value> = events.iter().map(content).collect();
    assert_eq!(found[..expected.len()], expected);
    let added = &found[expected.len()..];
    assert_eq!(one(added, "session.detached")["reason"], "exited");
    assert_eq!(added.len(), 1, "{added:#?}");
    // A stream from the beginning, and one from the middle with a cursor of the new log.
    let path = format!("/v1/sessions/{new}/events");
    let replayed = second
        .log_until(&new, |event| event["seq"] == events.len())
        .await;
    assert_eq!(replayed, events);
    let cursor = events[4]["id"].as_str().expect("an id");
    let mut rest = second.events_after(&path, Some(cursor)).await;
    let rest = rest
        .up_to("the last event", |event| event.data["seq"] == events.len())
        .await;
    assert_eq!(logged(rest), events[5..]);
    // The stream of all sessions has the events too.
    let merged = merged
        .up_to("the last event", |event| {
            event.data["sessionId"] == new && event.data["seq"] == events.len()
        })
        .await;
    // It has no updates unless its client asks for them.
    let mut without_updates = events.clone();
    without_updates.retain(|event| event["type"] != "session.update");
    assert_eq!(logged(merged), without_updates);

    for (path, bytes) in [
        ("upload.txt", b"from a client".to_vec()),
        ("a/b/large.bin", vec![7; 3 << 20]),
        ("empty", Vec::new()),
    ] {
        assert_eq!(std::fs::read(own.join(path)).expect(path), bytes);
    }
    let program = std::fs::metadata(own.join("run.sh")).expect("a file");
    assert_eq!(program.permissions().mode() & 0o100, 0o100);
    assert!(!own.join("link").exists(), "links stay behind");

    // A new conversation begins.
    assert_eq!(second.turn(&new, "echo later").await["text"], "later");
    let events = second.lawful(&new).await;
    let attached = all(&events, "session.attached");
    let last = attached.last().expect("it was attached");
    assert_eq!(
        (&last["context"], &last["reason"]),
        (&json!("lost"), &json!("imported"))
    );
    // The next ones continue it, and the first gateway continues its own.
    assert_eq!(first.turn(&old, "echo mine").await["text"], "mine");

    let decided = audit_lines(&first, &old);
    let audited = |kind: &str| {
        let lines = audit_lines(&second, kind);
        let parsed = lines.iter().map(|line| serde_json::from_str(line));
        parsed
            .map(|event| event.expect("JSON"))
            .collect::<Vec<Value>>()
    };
    let imports = audited("\"session.imported\"");
    let import_event = one(&imports, "session.imported");
    assert_eq!(import_event["sessionId"], new);
    assert_eq!(import_event["importedFrom"], old);
    assert_eq!(import_event["actor"]["kind"], "command_line");
    assert_eq!(import_event["auditEvents"], decided.len());
    let mut hash = String::new();
    for byte in Sha256::digest(decided.join("\n") + "\n") {
        write!(hash, "{byte:02x}").expect("a string can be written to");
    }
    assert_eq!(import_event["auditHash"], hash);
    // They follow in their order and byte for byte.
    assert_eq!(decided.len(), AUDITED, "{decided:#?}");
    let lines = audit_lines(&second, &new);
    assert!(lines[0].contains("\"session.imported\""), "{lines:#?}");
    assert_eq!(lines.len(), 1 + decided.len(), "{lines:#?}");
    for (line, event) in lines[1..].iter().zip(&decided) {
        assert!(
            line.contains(&format!("\"event\":{event}")),
            "{line}\n{event}"
        );
    }
    let verified = text(&run(&second, &["audit", "verify"]), true);
    assert!(verified.contains("is intact"), "{verified}");
}

/// Waits until the audit log has the decisions.
async fn eventually_decided(gateway: &Gateway, session: &str) {
    let limit = std::time::Duration::from_secs(10);
    eventually("the decisions are stored", limit, || async {
        let events = gateway.get("/v1/audit?types=permission.decided").await;
        let events = events["events"].as_array().expect("events").clone();
        let decided = events.iter().filter(|event| event["sessionId"] == session);
        (decided.count() == AUDITED).then_some(())
    })
    .await;
}

#[tokio::test]
async fn second_import_is_another_session_of_the_owner() {
    let mut gateway = start("");
    let old = gateway.session("fake").await;
    gateway.turn(&old, "echo one").await;
    let file = export(&gateway, &old);
    // Into the same log: the old session stays.
    let first = import(&gateway, &file);
    let wrong = run(
        &gateway,
        &["import", path_text(&file), "--owner", "bob\u{1b}[2J"],
    );
    assert!(text(&wrong, false).contains("the owner must be the name of a user"));
    let owned = run(&gateway, &["import", path_text(&file), "--owner", "bob"]);
    text(&owned, true);
    let list = gateway.get("/v1/sessions").await;
    let list = list["sessions"].as_array().expect("a list").clone();
    let ids: Vec<&str> = list
        .iter()
        .map(|session| session["sessionId"].as_str().expect("an id"))
        .collect();
    assert_eq!(ids.len(), 2, "the session of bob is not listed: {ids:?}");
    assert!(ids.contains(&&*old) && ids.contains(&&*first));
    // All ids end with the number of the log.
    assert!(ids.iter().all(|id| id[32..] == old[32..]), "{ids:?}");
    for id in &ids {
        assert_eq!(gateway.turn(id, "echo two").await["text"], "two");
    }
    assert_eq!(gateway.stop(), Some(0));
    let log = Connection::open(gateway.path(LOG)).expect("the log");
    let mut select = log
        .prepare("SELECT CAST(value AS TEXT) FROM record WHERE tbl = 1")
        .expect("the table exists");
    let owners = select.query_map([], |row| row.get::<_, String>(0));
    let mut owners: Vec<String> = owners
        .expect("records")
        .map(|record| {
            let record: Value = serde_json::from_str(&record.expect("a record")).expect("JSON");
            record["owner"].as_str().expect("an owner").to_owned()
        })
        .collect();
    owners.sort();
    assert_eq!(owners, ["default/bob", "default/owner", "default/owner"]);
    drop(select);
    drop(log);
    // After a restart they are the same.
    gateway.start();
    let shown = gateway.get_session(&first).await;
    assert_eq!(shown["importedFrom"], old);
    assert_eq!(gateway.turn(&first, "echo three").await["text"], "three");
}

#[tokio::test]
async fn running_turn_and_queue_end_as_after_a_crash() {
    let first = start("");
    let second = start("");
    let old = first.session("fake").await;
    first.prompt(&old, "stream n=100000 rate=500").await;
    let body = json!({ "prompt": "echo queued", "queue": true });
    let path = format!("/v1/sessions/{old}/prompts");
    let (status, queued) = first.post(&path, &body).await;
    assert_eq!(status, 202, "{queued}");
    first
        .log_until(&old, |event| {
            event["seq"].as_u64().is_some_and(|seq| seq > 200)
        })
        .await;
    let file = export(&first, &old);
    let new = import(&second, &file);
    let shown = second.get_session(&new).await;
    assert_eq!(
        (&shown["state"], &shown["attached"], &shown["queued"]),
        (&json!("idle"), &json!(false), &json!([]))
    );
    for prompt in ["p1", "p2"] {
        let path = format!("/v1/sessions/{new}/prompts/{prompt}");
        let prompt = second.get(&path).await;
        assert_eq!(prompt["error"]["code"], "interrupted", "{prompt}");
    }
    let events = second.lawful(&new).await;
    let ends = ["prompt.failed", "session.detached"];
    let is_end = |event: &&Value| ends.iter().any(|end| event["type"] == *end);
    let exported = events.iter().filter(|event| !is_end(event)).count();
    assert!(exported > 200, "{exported}");
    // The session of the first gateway runs on, and begins with the same events.
    let source = first.all_events(&old).await;
    for (imported, source) in events.iter().zip(&source).take(exported) {
        assert_eq!(content(imported), renamed(&content(source), &old, &new));
    }
    assert_eq!(first.get_session(&old).await["state"], "running");
    assert_eq!(second.turn(&new, "echo on").await["text"], "on");
}

fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let read = GzDecoder::new(bytes).read_to_end(&mut content);
    read.is_ok().then_some(content)
}

#[tokio::test]
async fn damaged_file_is_refused_and_nothing_is_visible() {
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let first = start("");
    let second = start("");
    let old = first.session("fake").await;
    put(&first, &old, "noise", random.noise(20_000).as_bytes()).await;
    first.turn(&old, "tool").await;
    let whole = std::fs::read(export(&first, &old)).expect("the export");
    let length = u64::try_from(whole.len()).expect("it is small");
    let damaged = first.path("damaged");
    let check = |bytes: &[u8], how: &str| {
        std::fs::write(&damaged, bytes).expect("the folder is ours");
        let message = refused(&second, &damaged);
        assert!(
            message.contains("is damaged or incomplete, or no file of an export"),
            "{how}: {message}"
        );
    };
    for at in 0..DAMAGED {
        let cut = match at {
            0 => 0,
            1 => whole.len() - 1,
            2 => whole.len() - 8,
            _ => usize::try_from(random.below(length)).expect("it is small"),
        };
        check(&whole[..cut], &format!("the first {cut} bytes"));
        let flip = usize::try_from(random.below(length)).expect("it is small");
        let bit = random.below(8);
        let mut bytes = whole.clone();
        bytes[flip] ^= 1 << bit;
        // Nothing reads the time in the header, and a copy of zeros is the same from any distance.
        if unpacked(&bytes) == unpacked(&whole) {
            continue;
        }
        check(&bytes, &format!("bit {bit} of byte {flip}"));
    }
    check(b"a text", "a text");
    let missing = refused(&second, &first.path("missing"));
    assert!(missing.contains("No such file"), "{missing}");
    let backup = first.path("backup");
    text(&run(&first, &["backup", path_text(&backup)]), true);
    check(&std::fs::read(&backup).expect("the backup"), "a backup");
    assert_nothing_imported(&second).await;
    std::fs::write(&damaged, &whole).expect("the folder is ours");
    let new = import(&second, &damaged);
    assert_eq!(second.turn(&new, "echo on").await["text"], "on");
}

#[tokio::test]
async fn file_of_a_later_format_is_refused_and_one_of_an_earlier_format_is_migrated() {
    let first = start("");
    let second = start("");
    let old = first.session("fake").await;
    first.turn(&old, "echo one").await;
    let file = export(&first, &old);
    let later = changed(&first, &file, |database| {
        database
            .execute_batch(
                "PRAGMA user_version = 99; UPDATE meta SET value = '7.8.9' WHERE key = 'needed_version'",
            )
            .expect("it is a log");
    });
    let message = refused(&second, &later);
    assert!(
        message.contains("has format 99") && message.contains("start acp-gateway 7.8.9"),
        "{message}"
    );
    assert_nothing_imported(&second).await;
    let earlier = changed(&first, &file, |database| {
        database
            .execute_batch(
                "PRAGMA user_version = 5; DELETE FROM meta WHERE key = 'shard'; UPDATE run SET tenant = 'default';
                 UPDATE record SET value = CAST(json_set(CAST(value AS TEXT), '$.owner', 'admin', '$.tenant', 'default') AS BLOB)
                 WHERE tbl = 1",
            )
            .expect("it is a log");
    });
    let new = import(&second, &earlier);
    assert_eq!(second.turn(&new, "echo two").await["text"], "two");
    assert_no_parts(&second);
}

#[tokio::test]
async fn file_that_no_export_writes_is_refused() {
    let first = start("");
    let second = start("");
    let old = first.session("fake").await;
    put(&first, &old, "file", b"text").await;
    for turn in ["echo one", "tool", "echo two"] {
        first.turn(&old, turn).await;
    }
    let file = export(&first, &old);
    let outside = second.path("outside");
    let outside = path_text(&outside).to_owned();
    let not_below = "UPDATE file SET path = ";
    for (sql, why) in [
        (format!("{not_below}'../outside'"), "must not contain `..`"),
        (
            format!("{not_below}'a/../../../outside'"),
            "must not contain `..`",
        ),
        (
            format!("{not_below}'{outside}'"),
            "outside of the session's directories",
        ),
        (format!("{not_below}''"), "must not contain"),
        (format!("{not_below}'.'"), "not a regular file"),
        ("DELETE FROM record WHERE tbl = 1".to_owned(), "damaged"),
        (
            "UPDATE record SET value = x'7b7d' WHERE tbl = 1".to_owned(),
            "damaged",
        ),
        (
            "UPDATE record SET value = x'7b7d' WHERE tbl = 3".to_owned(),
            "damaged",
        ),
        (
            "UPDATE record SET key = zeroblob(16) WHERE tbl = 1".to_owned(),
            "damaged",
        ),
        (
            "DELETE FROM record WHERE tbl = 3 AND key > (SELECT min(key) FROM record WHERE tbl = 3); UPDATE record SET key = zeroblob(20) WHERE tbl = 3".to_owned(),
            "damaged",
        ),
        ("DELETE FROM run".to_owned(), "is not an event log"),
        (
            "DELETE FROM run WHERE first_seq = (SELECT max(first_seq) FROM run)".to_owned(),
            "damaged",
        ),
        (
            "UPDATE run SET frames = zeroblob(length(frames))".to_owned(),
            "damaged",
        ),
        (
            "UPDATE run SET session = zeroblob(16) WHERE first_seq = 1".to_owned(),
            "damaged",
        ),
        ("DROP TABLE file".to_owned(), "is not an event log"),
        ("DROP TABLE run".to_owned(), "is not an event log"),
        (
            format!("CREATE VIEW endless AS {ENDLESS}"),
            "is not an event log",
        ),
        (
            format!("ALTER TABLE file RENAME TO kept; CREATE VIEW file AS {ENDLESS}"),
            "is not an event log",
        ),
        (
            format!("DROP TABLE meta; CREATE VIEW meta AS {ENDLESS}; PRAGMA user_version = 99"),
            "has format 99",
        ),
        (
            "CREATE TRIGGER remove AFTER UPDATE ON run BEGIN DELETE FROM record; END".to_owned(),
            "is not an event log",
        ),
        (
            "INSERT INTO record VALUES (3, zeroblob(20), zeroblob(70000000))".to_owned(),
            "bytes of records, and an export has at most",
        ),
        (
            "UPDATE file SET content = zeroblob(2000000)".to_owned(),
            "bytes of one part of a file",
        ),
        (
            numbered(100_001, "INSERT INTO file SELECT n + 10, 'f' || n, 0, x''"),
            "more than 100000 files",
        ),
        (
            format!("UPDATE file SET path = '{}f'", "d/".repeat(64)),
            "more than 64 levels deep",
        ),
        (
            numbered(50_001, "INSERT INTO record SELECT 15, CAST(n AS BLOB), x'7b7d'"),
            "more events of the audit log than an export",
        ),
        (
            numbered(300, "INSERT INTO record SELECT 15, CAST(n AS BLOB), CAST('{\"a\":\"' || hex(zeroblob(30000)) || '\"}' AS BLOB)"),
            "more events of the audit log than an export",
        ),
        (
            "INSERT INTO record VALUES (15, x'01', x'7b0a7d')".to_owned(),
            "damaged",
        ),
        (
            "UPDATE record SET value = CAST(replace(CAST(value AS TEXT), '\"owner\":\"default/owner\"', '\"owner\":\"default/a b\"') AS BLOB) WHERE tbl = 1".to_owned(),
            "the owner must be the name of a user",
        ),
        (
            "PRAGMA application_id = 1".to_owned(),
            "is not an event log",
        ),
    ] {
        let bad = changed(&first, &file, |database| {
            database.execute_batch(&sql).expect("it is a log");
        });
        let message = refused(&second, &bad);
        assert!(message.contains(why), "{sql}: {message}");
        assert!(!Path::new(&outside).exists(), "{sql}");
        assert_nothing_imported(&second).await;
    }
    assert!(second.runs());
}

/// A query without an end.
const ENDLESS: &str = "WITH RECURSIVE n(key, value) AS (SELECT 'a', 1 UNION ALL SELECT 'a', value + 1 FROM n) SELECT * FROM n";

/// A statement that inserts a row for each number `n`.
fn numbered(count: u32, insert: &str) -> String {
    format!(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT {count}) {insert} FROM numbers"
    )
}

#[tokio::test]
async fn client_meta_moves_only_if_the_agent_of_the_new_gateway_permits_it() {
    let permitting = || {
        Setup::fake_with(&[], "meta = [\"a/b\"]")
            .settings(LIMITS)
            .start()
    };
    let mut gateways = [permitting(), permitting(), start("")];
    let body = json!({ "agent": "fake", "_meta": { "a/b": 1 } });
    let (status, created) = gateways[0].post("/v1/sessions", &body).await;
    assert_eq!(status, 201, "{created}");
    let file = export(&gateways[0], created["sessionId"].as_str().expect("an id"));
    for (at, meta) in [(1, json!({ "a/b": 1 })), (2, Value::Null)] {
        let gateway = &mut gateways[at];
        import(gateway, &file);
        assert_eq!(gateway.stop(), Some(0));
        let log = Connection::open(gateway.path(LOG)).expect("the log");
        let select = "SELECT CAST(value AS TEXT) FROM record WHERE tbl = 1";
        let record: String = log
            .query_row(select, [], |row| row.get(0))
            .expect("a record");
        let record: Value = serde_json::from_str(&record).expect("JSON");
        assert_eq!(record["meta"], meta);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_prompt_does_not_run_after_a_kill_between_the_import_and_its_end() {
    let first = start("");
    let old = first.session("fake").await;
    first.prompt(&old, "stream n=100000 rate=500").await;
    let body = json!({ "prompt": "echo queued", "queue": true });
    let path = format!("/v1/sessions/{old}/prompts");
    assert_eq!(first.post(&path, &body).await.0, 202);
    let file = export(&first, &old);
    let (mut second, log) = on_disk(Setup::fake(&[]).settings(LIMITS));
    // The import is visible after its commit, and the next commit is then still incomplete.
    log.slow("w", std::time::Duration::from_millis(300));
    let mut importing = command(gateway_program());
    importing
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", second.path("data"))
        .args(["import", path_text(&file)]);
    importing.stdout(Stdio::null()).stderr(Stdio::null());
    let mut importing = importing.spawn().expect("the binary was built");
    let limit = std::time::Duration::from_mins(1);
    let new = eventually("the session is listed", limit, || async {
        let list = second.get("/v1/sessions").await;
        let id = list["sessions"][0]["sessionId"].as_str();
        id.map(str::to_owned)
    })
    .await;
    second.kill();
    importing.wait().expect("it is our child");
    log.heal();
    let stored = Connection::open(second.path(LOG)).expect("the log");
    let select =
        "SELECT count(*) FROM record WHERE tbl = 3 AND CAST(value AS TEXT) LIKE '%\"queued\"%'";
    let queued: i64 = stored
        .query_row(select, [], |row| row.get(0))
        .expect("the table exists");
    assert_eq!(queued, 1, "the end of the prompt was committed");
    drop(stored);
    second.start();
    for prompt in ["p1", "p2"] {
        let path = format!("/v1/sessions/{new}/prompts/{prompt}");
        let prompt = second.get(&path).await;
        assert_eq!(prompt["error"]["code"], "interrupted", "{prompt}");
    }
    assert_eq!(second.turn(&new, "echo on").await["text"], "on");
}

#[tokio::test]
async fn session_that_is_larger_than_the_limit_is_refused() {
    let first = start("");
    let second = start("retention.max_session_bytes = \"64KiB\"");
    let old = first.session("fake").await;
    let noise = Random::new(1).noise(200_000);
    first.turn(&old, &format!("echo {noise}")).await;
    let message = refused(&second, &export(&first, &old));
    assert!(
        message.contains("`retention.max_session_bytes` permits 65536"),
        "{message}"
    );
    assert_nothing_imported(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn import_on_a_full_disk_leaves_nothing() {
    let first = start("");
    let old = full_session(&first).await;
    let file = export(&first, &old);
    let (second, log) = on_disk(Setup::fake(&[]).settings(LIMITS));
    // The unpacked file.
    let private = second.path("data/private");
    let private = private.canonicalize().expect("it exists");
    let part = Disk::of(&private.join(".import"));
    part.fail("w", ENOSPC, 2..=u64::MAX);
    let unpacked = run_on(&second, &["import", path_text(&file)], Some(&part));
    let message = text(&unpacked, false);
    assert!(message.contains("No space left on device"), "{message}");
    assert_nothing_imported(&second).await;
    // The log.
    log.fail("w", ENOSPC, 1..=u64::MAX);
    let message = refused(&second, &file);
    assert!(
        message.contains("the disk is full") || message.contains("the storage is nearly full"),
        "{message}"
    );
    log.heal();
    assert_nothing_imported(&second).await;
    let limit = std::time::Duration::from_secs(30);
    let imported = eventually("the import succeeds", limit, || async {
        let imported = run(&second, &["import", path_text(&file)]);
        imported.status.success().then_some(imported)
    })
    .await;
    text(&imported, true);
    let list = second.get("/v1/sessions").await;
    assert_eq!(list["sessions"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn export_and_import_explain_what_they_need() {
    let mut gateway = start("");
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let unknown = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
    let file = gateway.path("new");
    let message = text(
        &run(&gateway, &["export", unknown, path_text(&file)]),
        false,
    );
    assert!(
        message.contains(&format!("the log has no session {unknown}")),
        "{message}"
    );
    assert!(!file.exists());
    let file = export(&gateway, &session);
    let message = text(
        &run(&gateway, &["export", &session, path_text(&file)]),
        false,
    );
    assert!(
        message.contains("an export does not overwrite a file"),
        "{message}"
    );
    assert_eq!(gateway.stop(), Some(0));
    let message = refused(&gateway, &file);
    assert!(
        message.contains("no gateway runs on the data folder"),
        "{message}"
    );
    // An export needs none, and can go through a pipe.
    let piped = run(&gateway, &["export", &session, "-"]);
    assert!(piped.status.success(), "{piped:?}");
    gateway.start();
    std::fs::write(gateway.path("piped"), &piped.stdout).expect("the folder is ours");
    let new = import(&gateway, &gateway.path("piped"));
    assert_eq!(gateway.turn(&new, "echo two").await["text"], "two");
    // The files are optional, and the folder of an own project is not part of a session.
    put(&gateway, &new, "file", b"text").await;
    let slim = gateway.path("slim");
    let exported = run(&gateway, &["export", &new, path_text(&slim), "--no-files"]);
    assert!(text(&exported, true).contains("files: 0,"), "{exported:?}");
    let folder = gateway.path("data/workspaces/project");
    std::fs::create_dir(&folder).expect("the folder is ours");
    std::fs::write(folder.join("file"), "text").expect("the folder is ours");
    let body = json!({ "agent": "fake", "cwd": folder });
    let (status, elsewhere) = gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, 201, "{elsewhere}");
    let elsewhere = elsewhere["sessionId"].as_str().expect("an id");
    let file = export(&gateway, elsewhere);
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    let message = text(&run(&gateway, &["import", path_text(&file)]), true);
    let line = format!("  {}\n", folder.canonicalize().unwrap_or(folder).display());
    assert!(message.contains(&line), "{message}");
}
