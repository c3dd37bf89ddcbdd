//! The link with a key: where a start prints it, and how the command `link` prints it later.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::{Gid, Uid, chown};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::places::gateway_program;
use crate::support::{Setup, eventually};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A program with a data folder and nothing else in its environment.
#[expect(
    clippy::disallowed_methods,
    reason = "a test may look where the programs are"
)]
fn on(data: &Path, program: &str) -> Command {
    let mut command = command(program);
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("ACP_GATEWAY_DATA", data)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn link(data: &Path, args: &[&str]) -> Output {
    on(data, gateway_program())
        .arg("link")
        .args(args)
        .stderr(Stdio::piped())
        .output()
        .expect("the binary was built")
}

fn printed(output: &Output) -> (&str, &str) {
    assert!(output.status.success(), "{output:?}");
    let line = std::str::from_utf8(&output.stdout)
        .expect("text")
        .trim_end();
    line.split_once("/#key=")
        .unwrap_or_else(|| panic!("{line}"))
}

/// A gateway that a test starts by its own command.
struct Started {
    child: Child,
    line: String,
}

impl Started {
    /// Starts it and reads the first line of its stdout.
    fn start(mut command: Command, stdout: impl Into<Stdio>, reader: impl Read) -> Self {
        let child = command
            .stdout(stdout)
            .spawn()
            .expect("the program is there");
        drop(command);
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).expect("a line");
        Self {
            child,
            line: line.trim_end().to_owned(),
        }
    }

    /// Starts it with a pipe as stdout. `prepare` gets the identity of the pipe.
    fn piped(mut command: Command, prepare: impl FnOnce(&mut Command, String)) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let file = File::from(OwnedFd::from(writer.try_clone().expect("a descriptor")));
        let found = file.metadata().expect("an open pipe");
        prepare(&mut command, format!("{}:{}", found.dev(), found.ino()));
        drop(file);
        Self::start(command, writer, reader)
    }

    fn has_key(&self) -> bool {
        assert!(self.line.starts_with("http://127.0.0.1:"), "{}", self.line);
        self.line.contains("/#key=acpg_")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn serve(data: &Path, args: &[&str]) -> Command {
    let mut serve = on(data, gateway_program());
    serve.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
    serve
}

fn link_keys(data: &Path) -> usize {
    let listed = on(data, gateway_program())
        .args(["key", "list"])
        .stderr(Stdio::null())
        .output()
        .expect("the binary was built");
    String::from_utf8(listed.stdout)
        .expect("text")
        .matches(" owner ")
        .count()
}

#[test]
fn link_of_a_public_gateway_has_the_path_of_its_url() {
    let folder = folder();
    let data = folder.path().join("data");
    let config = folder.path().join("gateway.toml");
    let server = "listen = \"0.0.0.0:8080\"\ninsecure_http = true\npublic_url = \"https://example.org/tools/gateway/\"";
    std::fs::write(&config, format!("[server]\n{server}\n")).expect("the folder is ours");
    for args in [&["link"][..], &["key", "create", "someone", "--link"]] {
        let output = on(&data, gateway_program())
            .args(args)
            .arg("--config")
            .arg(&config)
            .output();
        let output = output.expect("the binary was built");
        assert_eq!(
            printed(&output).0,
            "https://example.org/tools/gateway",
            "{args:?}"
        );
    }
    std::fs::write(
        &config,
        "[server]\npublic_url = \"https://example.org/a/../b\"\n",
    )
    .expect("the folder is ours");
    let output = on(&data, gateway_program())
        .arg("link")
        .arg("--config")
        .arg(&config)
        .stderr(Stdio::piped())
        .output();
    let output = output.expect("the binary was built");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("public_url") && error.contains("a path of"),
        "{error}"
    );
}

#[test]
fn start_prints_no_key_to_the_journal() {
    for (value, args, has_key) in [
        (None, &[][..], false),
        (None, &["--print-link"], true),
        // The pipe of another program that a service starts.
        (Some("1:1"), &[], true),
    ] {
        let data = folder();
        let started = Started::piped(serve(data.path(), args), |command, pipe| {
            command.env("JOURNAL_STREAM", value.map_or(pipe, str::to_owned));
        });
        assert_eq!(
            started.has_key(),
            has_key,
            "{value:?} {args:?}: {}",
            started.line
        );
        assert_eq!(link_keys(data.path()), usize::from(has_key), "{args:?}");
    }
}

#[test]
fn start_prints_no_key_to_the_log_of_a_container() {
    for (args, has_key) in [(&[][..], false), (&["--print-link"], true)] {
        let data = folder();
        // The gateway is process 1 of its namespace, as in a container.
        let mut container = on(data.path(), "unshare");
        container.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        if !geteuid().is_root() {
            container.args(["--user", "--map-root-user"]);
        }
        container
            .args([gateway_program(), "serve", "--listen", "127.0.0.1:0"])
            .args(args);
        let started = Started::piped(container, |_, _| {});
        assert_eq!(started.has_key(), has_key, "{args:?}: {}", started.line);
    }
}

/// Process 1 has more rights than the gateway, so its outputs are hidden. The session alone shows whether they
/// are the outputs of a container.
#[test]
fn hidden_process_1_is_a_container_only_if_its_session_is_the_gateways() {
    let serve = "setpriv --bounding-set=-all \"$0\" serve --listen 127.0.0.1:0";
    for (session, has_key) in [("setsid", false), ("", true)] {
        let data = folder();
        let mut container = on(data.path(), "unshare");
        container.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        if !geteuid().is_root() {
            container.args(["--user", "--map-root-user"]);
        }
        container.args(session.split_whitespace());
        container.args(["sh", "-c", &format!("{serve} & wait"), gateway_program()]);
        let started = Started::piped(container, |_, _| {});
        assert_eq!(started.has_key(), has_key, "{session}: {}", started.line);
    }
}

#[tokio::test]
async fn start_prints_no_key_to_a_file_and_the_log_names_the_command() {
    let data = folder();
    let stdout = data.path().join("stdout");
    let log = data.path().join("log");
    let create = |path: &Path| File::create(path).expect("the folder is ours");
    let mut command = serve(data.path(), &[]);
    command.stderr(create(&log));
    let mut started = Started {
        child: command.stdout(create(&stdout)).spawn().expect("built"),
        line: String::new(),
    };
    started.line = eventually("the URL", Duration::from_secs(30), || async {
        let text = std::fs::read_to_string(&stdout).expect("the file is ours");
        text.split_once('\n').map(|(line, _)| line.to_owned())
    })
    .await;
    assert!(!started.has_key(), "{}", started.line);
    let log = std::fs::read_to_string(&log).expect("the file is ours");
    assert!(
        log.contains("a file keeps this output") && log.contains("`acp-gateway link`"),
        "{log}"
    );
}

#[tokio::test]
async fn link_of_a_running_gateway_is_accepted_at_once() {
    let gateway = Setup::fake(&[]).start();
    let output = link(&gateway.path("data"), &[]);
    let (url, key) = printed(&output);
    assert_eq!(url, gateway.url);
    assert_eq!(output.stderr, b"");
    let rights = gateway
        .http
        .get(format!("{url}/v1"))
        .bearer_auth(key)
        .send()
        .await
        .expect("an answer");
    assert_eq!(rights.status(), 200);
    let rights: serde_json::Value = rights.json().await.expect("JSON");
    assert_eq!(
        rights["scopes"],
        serde_json::json!(["read", "prompt", "approve", "files"])
    );
    for name in ["log.sqlite", "log.sqlite-wal", "lock"] {
        let bytes =
            std::fs::read(gateway.path("data/private").join(name)).expect("the folder is ours");
        assert!(
            !bytes
                .windows(key.len())
                .any(|window| window == key.as_bytes()),
            "{name} has the key"
        );
    }
    assert!(!gateway.log().contains(&key[5..]));
}

#[tokio::test]
async fn key_and_its_link_are_accepted_when_they_are_printed() {
    let gateway = Setup::fake(&[]).start();
    let create = |args: &[&str]| {
        let args = [&["key", "create", "team", "--scopes", "read"], args].concat();
        let output = on(&gateway.path("data"), gateway_program())
            .args(args)
            .output()
            .expect("the binary was built");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    };
    let key = create(&[]);
    let link = create(&["--link"]);
    let (url, of_link) = link.split_once("/#key=").expect("a link with a key");
    assert_eq!(url, gateway.url);
    for key in [&*key, of_link] {
        let rights = gateway
            .http
            .get(format!("{url}/v1"))
            .bearer_auth(key)
            .send()
            .await
            .expect("an answer");
        let rights: serde_json::Value = rights.json().await.expect("JSON");
        assert_eq!(rights["scopes"], serde_json::json!(["read"]), "{rights}");
    }
}

#[tokio::test]
async fn link_works_after_the_next_start_if_no_gateway_runs() {
    let mut gateway = Setup::fake(&[]).start();
    let address = gateway.url.trim_start_matches("http://").to_owned();
    gateway.kill();
    let output = link(&gateway.path("data"), &["--listen", &address]);
    let note = std::str::from_utf8(&output.stderr).expect("text");
    assert!(note.contains("works after the next start"), "{note}");
    let (url, key) = printed(&output);
    assert_eq!(url, gateway.url);
    gateway.start();
    let rights = gateway
        .http
        .get(format!("{}/v1", gateway.url))
        .bearer_auth(key)
        .send()
        .await
        .expect("an answer");
    assert_eq!(rights.status(), 200);

    let unknown = link(folder().path(), &["--listen", "127.0.0.1:0"]);
    assert_eq!(
        (unknown.status.code(), &*unknown.stdout),
        (Some(1), &b""[..]),
        "{unknown:?}"
    );
}

#[test]
fn link_is_refused_for_other_users() {
    let data = folder();
    let private = data.path().join("private");
    if geteuid().is_root() {
        std::fs::create_dir(&private).expect("the folder is ours");
        chown(
            &private,
            Some(Uid::from_raw(12345)),
            Some(Gid::from_raw(12345)),
        )
        .expect("root may");
    } else {
        std::os::unix::fs::symlink("/usr", &private).expect("the folder is ours");
    }
    let refused = link(data.path(), &[]);
    assert_eq!(
        (refused.status.code(), &*refused.stdout),
        (Some(1), &b""[..]),
        "{refused:?}"
    );
    let reason = std::str::from_utf8(&refused.stderr).expect("text");
    assert!(
        reason.contains("belongs to the user with the id "),
        "{reason}"
    );
    assert!(!private.join("log.sqlite").exists());
}
