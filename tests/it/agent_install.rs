//! `agent add` and its neighbours: agents of a registry on this machine, run by a gateway afterwards.

mod npm;
mod packages;

use std::fs;
use std::path::Path;
use std::process::Output;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually};
use packages::{binary_archive, executable, sha256, wheel};

/// The result of a command.
struct Ran {
    ok: bool,
    text: String,
}

/// Runs `acp-gateway agent` with the configuration of the gateway.
fn agent(gateway: &Gateway, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = crate::support::gateway::command(
        crate::support::gateway::binary().to_str().expect("UTF-8"),
    );
    command.arg("agent").args(arguments);
    command
        .arg("--config")
        .arg(gateway.path("config.toml"))
        .arg("--data")
        .arg(gateway.path("data"));
    // Tests may run as root.
    command.env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true");
    command
        .env("HOME", gateway.path(""))
        .env("ACP_GATEWAY_LOG", "warn")
        .envs(variables.iter().copied());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    Ran {
        ok: status.success(),
        text,
    }
}

fn entry(id: &str, version: &str, distribution: &Value) -> Value {
    json!({ "id": id, "name": "Hello", "version": version, "description": "Says hello", "distribution": distribution, "icon": "x.svg" })
}

/// Writes a registry with these entries. Returns its path.
fn registry(gateway: &Gateway, entries: &[Value]) -> String {
    let path = gateway.path("registry.json");
    let text = json!({ "version": "1.0.0", "agents": entries, "extensions": [] }).to_string();
    fs::write(&path, text).expect("the folder is ours");
    path.to_str().expect("UTF-8").to_owned()
}

fn binary_entry(version: &str, archive: &str, hash: Option<&str>) -> Value {
    let target = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    let mut binary =
        json!({ "archive": archive, "cmd": "./bin/hello", "env": { "HELLO": "world" } });
    if let Some(hash) = hash {
        binary["sha256"] = json!(hash);
    }
    entry("hello", version, &json!({ "binary": { target: binary } }))
}

fn gateway() -> Gateway {
    Setup::fake(&[]).start()
}

/// Lets the gateway read its configuration, and runs a turn of the agent.
async fn runs(gateway: &Gateway, name: &str) -> String {
    gateway.signal(Signal::HUP);
    eventually("the agent is known", LONGEST, || async {
        let path = format!("/v1/agents/{name}");
        let response = gateway
            .request(reqwest::Method::GET, &path)
            .send()
            .await
            .ok()?;
        (response.status() == 200).then_some(())
    })
    .await;
    let session = gateway.session(name).await;
    let end = gateway.turn(&session, "echo hello").await;
    end["text"].as_str().expect("a text").to_owned()
}

fn is_installed(gateway: &Gateway, id: &str) -> bool {
    gateway.path("data/agents").join(id).exists()
}

/// A path in a registry on this machine may name anything.
#[tokio::test]
async fn archive_or_registry_that_is_no_regular_file_is_rejected_at_once() {
    let gateway = gateway();
    let pipe = gateway.path("pipe.tar.gz");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    for archive in ["pipe.tar.gz", "/dev/zero", "data"] {
        let file = registry(&gateway, &[binary_entry("1.0.0", archive, None)]);
        let added = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
        assert!(
            !added.ok && added.text.contains("not a regular file"),
            "{archive}: {}",
            added.text
        );
        assert!(!is_installed(&gateway, "hello"), "{archive}");
    }
    let pipe = pipe.to_str().expect("UTF-8");
    let found = agent(&gateway, &["search", "x", "--registry", pipe], &[]);
    assert!(
        !found.ok && found.text.contains("not a regular file"),
        "{}",
        found.text
    );
}

#[tokio::test]
async fn binary_agent_is_installed_with_its_checksum_and_runs() {
    let gateway = gateway();
    let archive = binary_archive(&gateway.path("hello.tar.gz"), &executable());
    let hash = sha256(&archive);
    let file = registry(
        &gateway,
        &[binary_entry("1.0.0", "hello.tar.gz", Some(&hash))],
    );
    let found = agent(&gateway, &["search", "hello", "--registry", &file], &[]);
    assert!(
        found.ok && found.text.contains("1.0.0") && found.text.contains("binary"),
        "{}",
        found.text
    );
    let added = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
    assert!(added.ok, "{}", added.text);
    for part in [
        &*format!("sha256 {hash}"),
        "[agents.hello]",
        "it answers as",
    ] {
        assert!(added.text.contains(part), "{part}: {}", added.text);
    }
    assert_eq!(runs(&gateway, "hello").await, "hello from world");
    let listed = agent(&gateway, &["list"], &[]);
    assert!(
        listed.text.contains("hello") && listed.text.contains("binary"),
        "{}",
        listed.text
    );

    // A second installation needs `update`, and an update to the same version changes nothing.
    let again = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
    assert!(
        !again.ok && again.text.contains("agent update hello"),
        "{}",
        again.text
    );
    let same = agent(&gateway, &["update", "hello", "--registry", &file], &[]);
    assert!(
        same.ok && same.text.contains("is the version of the registry"),
        "{}",
        same.text
    );
    let file = registry(
        &gateway,
        &[binary_entry("1.1.0", "hello.tar.gz", Some(&hash))],
    );
    let updated = agent(&gateway, &["update", "hello", "--registry", &file], &[]);
    assert!(
        updated.ok && updated.text.contains("version 1.0.0 stays"),
        "{}",
        updated.text
    );
    let config = fs::read_to_string(gateway.path("config.toml")).expect("a file");
    assert!(
        config.contains("agents/hello/1.1.0/bin/hello") && config.contains("HELLO"),
        "{config}"
    );
    assert_eq!(runs(&gateway, "hello").await, "hello from world");

    let removed = agent(&gateway, &["remove", "hello"], &[]);
    assert!(
        removed.ok && removed.text.contains("its entry"),
        "{}",
        removed.text
    );
    assert!(!is_installed(&gateway, "hello"));
    let config = fs::read_to_string(gateway.path("config.toml")).expect("a file");
    assert!(
        !config.contains("agents.hello") && config.contains("agents.fake"),
        "{config}"
    );
}

#[tokio::test]
async fn wrong_checksums_and_versions_install_nothing() {
    let gateway = gateway();
    let before = fs::read_to_string(gateway.path("config.toml")).expect("a file");
    let hash = sha256(&binary_archive(
        &gateway.path("hello.tar.gz"),
        &executable(),
    ));
    let wrong = "0".repeat(64);
    let rejected = |entries: &[Value], arguments: &[&str], reason: &str| {
        let file = registry(&gateway, entries);
        let ran = agent(&gateway, &[arguments, &["--registry", &file]].concat(), &[]);
        assert!(
            !ran.ok && ran.text.contains(reason),
            "{reason}: {}",
            ran.text
        );
        assert!(!is_installed(&gateway, "hello"), "{reason}");
        let after = fs::read_to_string(gateway.path("config.toml")).expect("a file");
        assert_eq!(after, before, "{reason}");
    };
    let good = binary_entry("1.0.0", "hello.tar.gz", Some(&hash));
    rejected(
        &[binary_entry("1.0.0", "hello.tar.gz", Some(&wrong))],
        &["add", "hello"],
        &hash,
    );
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello", "--sha256", &wrong],
        &wrong,
    );
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello@1.0.1"],
        "has version 1.0.0 of hello, not 1.0.1",
    );
    rejected(std::slice::from_ref(&good), &["add", "other"], "no agent");
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello", "--kind", "npx"],
        "no distribution",
    );
    rejected(
        std::slice::from_ref(&good),
        &["add", "hello", "--name", "fake"],
        "--name",
    );
    rejected(
        &[binary_entry("../../x", "hello.tar.gz", None)],
        &["add", "hello"],
        "`version`",
    );
    rejected(
        &[binary_entry("1.0.0", "absent.tar.gz", None)],
        &["add", "hello"],
        "absent.tar.gz",
    );
    rejected(
        &[binary_entry("1.0.0", "http://files.example/x", None)],
        &["add", "hello"],
        "https",
    );
    // An agent that does not answer.
    binary_archive(&gateway.path("silent.tar.gz"), "#!/bin/false\n");
    rejected(
        &[binary_entry("1.0.0", "silent.tar.gz", None)],
        &["add", "hello"],
        "ended before it answered",
    );
}

#[tokio::test]
async fn npx_agent_is_installed_without_install_scripts() {
    let gateway = gateway();
    let marker = gateway.path("marker");
    let server = npm::serve("1.0.0", &marker);
    let npx = json!({ "npx": { "package": "hello-agent@1.0.0", "args": ["--acp"], "env": { "HELLO": "npm" } } });
    let file = registry(&gateway, &[entry("hello", "1.0.0", &npx)]);
    let variables = [
        ("npm_config_registry", &*server.url),
        (
            "npm_config_cache",
            gateway.path("cache").to_str().expect("UTF-8"),
        ),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let added = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(
        added.ok && added.text.contains("sign-in: Log in"),
        "{}",
        added.text
    );
    assert!(!marker.exists(), "no install script ran");
    assert_eq!(runs(&gateway, "hello").await, "hello from npm");
    assert!(agent(&gateway, &["remove", "hello"], &[]).ok);
    let added = agent(
        &gateway,
        &["add", "hello", "--registry", &file, "--allow-scripts"],
        &variables,
    );
    assert!(added.ok && marker.exists(), "{}", added.text);
}

#[tokio::test]
async fn package_of_another_version_is_rejected() {
    let gateway = gateway();
    let server = npm::serve("1.0.1", &gateway.path("marker"));
    let npx = json!({ "npx": { "package": "hello-agent@1.0.0" } });
    let file = registry(&gateway, &[entry("hello", "1.0.0", &npx)]);
    let cache = gateway.path("cache").to_str().expect("UTF-8").to_owned();
    let variables = [
        ("npm_config_registry", &*server.url),
        ("npm_config_cache", &*cache),
    ];
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(
        !ran.ok && ran.text.contains("1.0.1 of hello-agent, not 1.0.0"),
        "{}",
        ran.text
    );
    assert!(!is_installed(&gateway, "hello"));
    let range = json!({ "npx": { "package": "hello-agent@^1.0.0" } });
    let file = registry(&gateway, &[entry("hello", "1.0.0", &range)]);
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(
        !ran.ok && ran.text.contains("exact version"),
        "{}",
        ran.text
    );
}

#[tokio::test]
async fn uvx_agent_is_installed_from_a_wheel() {
    let gateway = gateway();
    let wheels = gateway.path("wheels");
    fs::create_dir(&wheels).expect("the folder is ours");
    wheel(&wheels, "1.0.0");
    let uvx = |package: &str| json!({ "uvx": { "package": package, "env": { "HELLO": "wheel" } } });
    let file = registry(
        &gateway,
        &[entry("hello", "1.0.0", &uvx("hello-agent@1.0.0"))],
    );
    let wheels = wheels.to_str().expect("UTF-8");
    let variables = [
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", wheels),
        ("UV_NO_INDEX", "1"),
        ("UV_FIND_LINKS", wheels),
    ];
    let added = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(added.ok, "{}", added.text);
    assert_eq!(runs(&gateway, "hello").await, "hello from wheel");
    assert!(agent(&gateway, &["remove", "hello"], &[]).ok);

    let file = registry(
        &gateway,
        &[entry("hello", "2.0.0", &uvx("hello-agent==2.0.0"))],
    );
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &variables);
    assert!(!ran.ok && ran.text.contains("2.0.0"), "{}", ran.text);
    assert!(!is_installed(&gateway, "hello"));
}

#[tokio::test]
async fn archive_that_leaves_its_folder_is_rejected() {
    let gateway = gateway();
    packages::escaping_zip(&gateway.path("evil.zip"));
    let file = registry(&gateway, &[binary_entry("1.0.0", "evil.zip", None)]);
    let ran = agent(&gateway, &["add", "hello", "--registry", &file], &[]);
    assert!(
        !ran.ok && ran.text.contains("outside of its folder"),
        "{}",
        ran.text
    );
    assert!(
        !Path::new(&gateway.path("data/agents/evil")).exists() && !is_installed(&gateway, "hello")
    );
}
