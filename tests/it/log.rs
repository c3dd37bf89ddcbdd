//! The log as operators know it: checked, limited, copied, put back.

use std::path::{Path, PathBuf};
use std::process::Output;

use rusqlite::Connection;

use crate::support::Gateway;
use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::places::gateway_program;

mod backup;
mod check;
mod damage;
mod disk;
mod quotas;
mod retention;
mod versions;

/// The tests ask more often than a person may.
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 100000\nlimits.per_key.max_prompts_per_minute = 100000\nlimits.per_key.max_live_sessions = 200\n";

fn file(gateway: &Gateway) -> PathBuf {
    gateway.path("data/private/log.sqlite")
}

/// The log of a gateway that does not run.
fn open(gateway: &Gateway) -> Connection {
    Connection::open(file(gateway)).expect("the log")
}

/// Leaves the log as a process that died does.
fn leave_open(gateway: &Gateway) {
    std::fs::write(file(gateway).with_file_name("log.sqlite-wal"), "").expect("the folder is ours");
}

/// Puts the runs of a small log into an order that is not theirs.
fn break_structure(gateway: &Gateway) {
    const PAGE: usize = 8192;
    /// The first byte of a leaf page of a table.
    const LEAF: u8 = 13;
    let database = rusqlite::Connection::open(file(gateway)).expect("a database");
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'run'";
    let root: u32 = database
        .query_row(root, [], |row| row.get(0))
        .expect("the table exists");
    drop(database);
    let mut bytes = std::fs::read(file(gateway)).expect("the log");
    let leaf = (root as usize - 1) * PAGE;
    assert_eq!(bytes[leaf], LEAF, "all runs are in one page");
    assert!(bytes[leaf + 4] > 1, "there are several runs");
    let cells = leaf + 8;
    let (first, second) = bytes[cells..].split_at_mut(2);
    first.swap_with_slice(&mut second[..2]);
    std::fs::write(file(gateway), bytes).expect("the file is ours");
}

/// Runs a subcommand on a gateway's data folder.
fn run(gateway: &Gateway, args: &[&str]) -> Output {
    let mut command = command(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .args(args);
    command.output().expect("the binary was built")
}

/// The output on stdout and stderr. The program must exit with the expected code.
fn output_text(output: &Output, success: bool) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).expect("text");
    assert_eq!(output.status.success(), success, "{text}");
    text
}

fn text_of(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
