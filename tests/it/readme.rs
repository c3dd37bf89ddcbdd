//! The README's commands work as pasted: its marked block runs in bash against the real binary.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What stands before the fenced block that this test runs.
const MARK: &str = "<!-- tests/it/readme.rs runs this block -->";
const START: Duration = Duration::from_secs(30);
const RUN: Duration = Duration::from_mins(2);

/// The fenced block behind the mark.
fn marked_block(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(MARK)?;
    let (_, rest) = rest.trim_start().strip_prefix("```")?.split_once('\n')?;
    rest.split_once("\n```").map(|(block, _)| block)
}

#[expect(clippy::disallowed_methods, reason = "the test plays the person at the terminal")]
fn command(program: &str) -> Command {
    Command::new(program)
}

/// A gateway that ends with the test.
struct Gateway {
    child: Child,
    url: String,
    key: String,
}

impl Gateway {
    /// Starts the real binary with nothing but a data folder, and reads the link that it prints.
    fn start(folder: &Path) -> Self {
        let printed = folder.join("stdout");
        let child = command(env!("CARGO_BIN_EXE_acp-gateway"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.join("data"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(File::create(&printed).expect("a scratch file can be made"))
            .stderr(File::create(folder.join("stderr")).expect("a scratch file can be made"))
            .spawn()
            .expect("the binary was built");
        let mut gateway = Self { child, url: String::new(), key: String::new() };
        let began = Instant::now();
        loop {
            let text = std::fs::read_to_string(&printed).expect("the scratch file can be read");
            if let Some((line, _)) = text.split_once('\n') {
                let (url, key) = line.split_once("/#key=").expect("the link ends in #key=KEY");
                let start = url.find("http://").expect("the link is http");
                url[start..].clone_into(&mut gateway.url);
                key.trim().clone_into(&mut gateway.key);
                return gateway;
            }
            let ended = gateway.child.try_wait().expect("the child can be asked");
            assert!(ended.is_none() && began.elapsed() < START, "no link was printed: {}", log(folder));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let asked = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let began = Instant::now();
        while asked.is_ok() && began.elapsed() < START {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("stderr")).unwrap_or_default()
}

/// Runs the block as a person would who has set URL and KEY, but stops at the first command that fails.
fn run(block: &str, gateway: &Gateway, folder: &Path) -> Output {
    let script = format!("set -euo pipefail\n{block}\n");
    command("timeout")
        .arg(RUN.as_secs().to_string())
        .args(["bash", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("URL", &gateway.url)
        .env("KEY", &gateway.key)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("bash can be run")
}

#[test]
fn the_curl_lines_of_the_readme_work_as_pasted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(path).expect("README.md can be read");
    let block = marked_block(&text).expect("README.md has the marked block");
    assert_eq!(block.matches("curl ").count(), 5, "five curl lines:\n{block}");

    let folder = tempfile::tempdir().expect("a scratch folder can be made");
    let gateway = Gateway::start(folder.path());
    let output = run(block, &gateway, folder.path());
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}\n{}", output.status, log(folder.path()));

    assert!(stdout.contains("\"demo\""), "the catalogue names the demo agent:\n{stdout}");
    // Once from the turn's own stream and once from the replay.
    for event in ["event: prompt.started", "event: session.update", "event: prompt.completed"] {
        assert!(stdout.matches(event).count() >= 2, "{event} is missing:\n{stdout}");
    }
    assert!(!stdout.contains("problem+json") && !stdout.contains("/docs/problems#"), "{stdout}");
    let transcript = stdout.trim_end().rsplit("\n\n").next().unwrap_or_default();
    assert!(!transcript.trim().is_empty() && !transcript.contains("event:"), "no transcript:\n{stdout}");
}

#[test]
fn the_block_is_what_stands_behind_the_mark() {
    let text = format!("a\n```sh\nno\n```\n{MARK}\n```sh\ncurl a\ncurl b\n```\nb");
    assert_eq!(marked_block(&text), Some("curl a\ncurl b"));
    assert_eq!(marked_block("```sh\nno\n```"), None);
}
