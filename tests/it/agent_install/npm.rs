//! A registry of npm on loopback with one package.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use serde_json::json;

use crate::support::gateway::command;

const AGENT: &str = r#"#!/usr/bin/env node
const lines = require("readline").createInterface({ input: process.stdin });
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
lines.on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (method === "initialize") {
    const authMethods = [{ id: "login", name: "Log in" }];
    send({ id, result: { protocolVersion: 1, agentInfo: { name: "hello", version: "1.0.0" }, authMethods, agentCapabilities: {} } });
  } else if (method === "session/new") {
    send({ id, result: { sessionId: "s" } });
  } else if (method === "session/prompt") {
    const text = "hello from " + process.env.HELLO;
    const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } };
    send({ method: "session/update", params: { sessionId: "s", update } });
    send({ id, result: { stopReason: "end_turn" } });
  } else if (id !== undefined) {
    send({ id, error: { code: -32601, message: "unknown" } });
  }
});
"#;

pub(super) struct Server {
    pub(super) url: String,
}

/// Serves `hello-agent@1.0.0`, whose package has this version. Its install script creates the marker.
pub(super) fn serve(version: &str, marker: &Path) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let package = package(version, marker);
    let tarball = format!("{url}/hello-agent.tgz");
    let manifest = json!({ "name": "hello-agent", "version": "1.0.0", "bin": "agent.js", "hasInstallScript": true, "dist": { "tarball": tarball } });
    let metadata = json!({ "name": "hello-agent", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": manifest } });
    let metadata = metadata.to_string().into_bytes();
    // The thread ends with the process of the tests.
    std::thread::Builder::new()
        .spawn(move || {
            for client in listener.incoming().flatten() {
                answer(client, &metadata, &package);
            }
        })
        .expect("a thread");
    Server { url }
}

fn answer(client: TcpStream, metadata: &[u8], package: &[u8]) {
    let mut reader = BufReader::new(client);
    let mut request = String::new();
    if reader.read_line(&mut request).is_err() {
        return;
    }
    let mut header = String::new();
    while reader.read_line(&mut header).is_ok_and(|bytes| bytes > 2) {
        header.clear();
    }
    let (kind, body) = match request.split(' ').nth(1) {
        Some("/hello-agent") => ("application/json", metadata),
        Some("/hello-agent.tgz") => ("application/octet-stream", package),
        _ => ("text/plain", &b""[..]),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut client = reader.into_inner();
    // A client that has gone asks again.
    drop(
        client
            .write_all(head.as_bytes())
            .and_then(|()| client.write_all(body)),
    );
}

fn package(version: &str, marker: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let package = folder.path().join("package");
    fs::create_dir(&package).expect("the folder is ours");
    let script = format!("touch {}", marker.display());
    let manifest = json!({ "name": "hello-agent", "version": version, "bin": "agent.js", "scripts": { "postinstall": script } });
    fs::write(package.join("package.json"), manifest.to_string()).expect("the folder is ours");
    fs::write(package.join("agent.js"), AGENT).expect("the folder is ours");
    let done = command("tar")
        .args(["czf", "package.tgz", "package"])
        .current_dir(folder.path())
        .status();
    assert!(done.expect("it runs").success());
    fs::read(folder.path().join("package.tgz")).expect("a file")
}
