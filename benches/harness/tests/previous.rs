//! The comparison with an earlier build, on the command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// A folder with a copy of the document.
fn root(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(root.join("docs/internals")).expect("the folder is created");
    let document =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/performance.md");
    fs::copy(document, root.join("docs/internals/performance.md")).expect("the document is copied");
    root
}

fn bench(root: &Path, args: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .arg("--root")
        .arg(root)
        .args(args)
        .output()
        .expect("the harness runs");
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output, printed)
}

#[test]
fn a_regression_is_printed_and_fails_a_strict_run() {
    let root = root("previous");
    let line = |round: u32, target: &str, ms: f64| {
        format!(
            "{{\"round\":{round},\"test\":\"cold\",\"target\":\"{target}\",\"figures\":{{\"cold_ms\":{ms}}},\
             \"readers\":0,\"complete\":0,\"complaint\":null}}\n"
        )
    };
    let results = |current: f64| {
        (0..3)
            .map(|round| line(round, "acp-gateway", current) + &line(round, "previous", 10.0))
            .collect::<String>()
    };
    let row = "| start to first answer, ms | 10 | 11 | 1.1 | 1.1 to 1.1 | 1.1 | **worse** |";
    let file = root.join("results.jsonl");
    let path = file.to_str().unwrap();

    fs::write(&file, results(11.0)).unwrap();
    let (output, printed) = bench(&root, &["--results", path]);
    assert!(
        output.status.success() && printed.contains(row),
        "{printed}"
    );
    let (output, printed) = bench(&root, &["--results", path, "--must"]);
    assert!(
        output.status.code() == Some(1) && printed.contains(row),
        "{printed}"
    );

    fs::write(&file, results(10.4)).unwrap();
    let (output, printed) = bench(&root, &["--results", path, "--must"]);
    assert!(
        output.status.success() && printed.contains("| 1.04 to 1.04 | 1.04 |  |"),
        "{printed}"
    );

    let document = fs::read_to_string(root.join("docs/internals/performance.md")).unwrap();
    assert!(
        document.contains("start to first answer"),
        "the document was written"
    );
    assert!(
        !document.contains("1.04 to 1.04"),
        "the document does not depend on an earlier build"
    );
}

#[test]
fn a_previous_build_that_is_not_there_is_an_error() {
    let root = root("no-previous");
    let limit_only = ["--targets", "raw-epoll", "--tests", "single", "--previous"];
    let (output, printed) = bench(&root, &[&limit_only[..], &["nowhere"]].concat());
    assert!(output.status.code() == Some(2), "{printed}");
    assert!(
        printed.contains("the previous build") && printed.contains("nowhere"),
        "{printed}"
    );
    let program = env!("CARGO_BIN_EXE_bench");
    let (output, printed) = bench(&root, &[&limit_only[..], &[program]].concat());
    assert!(
        output.status.code() == Some(2) && printed.contains("acp-gateway is not among the targets"),
        "{printed}"
    );
}
