//! The physical limit must deliver all events, because a comparison with a lossy program is meaningless.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn the_limit_delivers_every_event_to_every_reader() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("limit");
    fs::create_dir_all(&root).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args([
            "--quick",
            "--rounds",
            "1",
            "--targets",
            "raw-epoll",
            "--root",
        ])
        .arg(&root)
        .args(["--tests", "single,fan,latency,prompt,many,replay,stalled"])
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
    let lines = fs::read_to_string(root.join("target/bench/results.jsonl")).unwrap();
    let mut readers = 0;
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["complete"], line["readers"], "{line}\n{text}");
        assert!(line["complaint"].is_null(), "{line}");
        readers += line["readers"].as_u64().unwrap();
    }
    assert_eq!(
        (lines.lines().count(), readers),
        (7, 1 + 1000 + 1 + 1 + 100 + 11 + 202)
    );
    assert!(
        text.contains("| acp-gateway")
            || text.contains("Not measured: acp-gateway (not installed)"),
        "{text}"
    );
}
