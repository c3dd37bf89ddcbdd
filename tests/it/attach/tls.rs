//! A gateway behind a TLS proxy, whose certificate the system trusts or does not trust.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::editor::{Editor, attach, initialize};
use crate::support::gateway::command;
use crate::support::places::project;
use crate::support::{Gateway, Setup};

/// The TLS proxy, which ends with the test.
pub(crate) struct TlsProxy {
    child: Child,
    pub(crate) port: u16,
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl TlsProxy {
    pub(crate) fn start(folder: &Path, gateway: &Gateway) -> (Self, PathBuf) {
        let (key, certificate) = certificate(folder);
        let script = project().join("tests/agents/clients/tls_proxy.mjs");
        let mut node = command("node");
        node.arg(script)
            .args([&key, &certificate])
            .arg(gateway.address().port().to_string());
        let mut child = node.stdout(Stdio::piped()).spawn().expect("node is there");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let port = line.trim().parse().expect("a port");
        (Self { child, port }, certificate)
    }
}

/// The files of a new key and its certificate for `localhost`.
pub(crate) fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let key = folder.join("key.pem");
    let certificate = folder.join("certificate.pem");
    let mut openssl = command("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]);
    openssl.args([
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]);
    openssl
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key);
    let made = openssl
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl is there");
    assert!(made.status.success(), "{made:?}");
    (key, certificate)
}

#[tokio::test]
async fn attach_uses_tls_with_the_certificates_of_the_system() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut gateway = Setup::fake(&[]).start();
    let (proxy, certificate) = TlsProxy::start(folder.path(), &gateway);
    let url = format!("https://localhost:{}", proxy.port);
    super::set_public_url(&mut gateway, &url);

    let mut command = attach();
    command
        .args(["--url", &url])
        .env("SSL_CERT_FILE", &certificate);
    let mut editor = Editor::of(command);
    let session = editor.new_session("").await;
    editor.prompt(2, &session, "echo secret").await;
    assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["secret"]);
    assert_eq!(editor.end().await.0, Some(0));

    // Without the certificate, the bridge does not send its key.
    let mut command = attach();
    command.args(["--url", &url]).env_remove("SSL_CERT_FILE");
    let mut editor = Editor::of(command);
    editor.send(&initialize()).await;
    editor.until_logged("certificate").await;
    editor.end().await;
}

#[tokio::test]
async fn attach_trusts_the_authorities_of_its_ca_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut gateway = Setup::fake(&[]).start();
    let (proxy, certificate) = TlsProxy::start(folder.path(), &gateway);
    let url = format!("https://localhost:{}", proxy.port);
    super::set_public_url(&mut gateway, &url);

    let mut command = attach();
    command.args(["--url", &url, "--ca-file"]).arg(&certificate);
    let mut editor = Editor::of(command);
    let session = editor.new_session("").await;
    editor.prompt(2, &session, "echo trusted").await;
    assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["trusted"]);
    assert_eq!(editor.end().await.0, Some(0));
}
