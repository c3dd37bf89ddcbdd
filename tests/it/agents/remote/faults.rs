//! Lost connections, wrong credentials and hosts that answer nothing.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{acp, near, pair, pair_with_proxy};
use crate::support::Setup;
use crate::support::log::{all, one};

#[tokio::test]
async fn connection_lost_in_a_turn_fails_it_and_the_next_prompt_restores_the_session() {
    let (near, proxy, _far) = pair_with_proxy("ws").await;
    let session = near.session("far").await;
    near.turn(&session, "echo before").await;
    near.prompt(&session, "slow chunks=100 ms=100").await;
    near.log_until(&session, |event| {
        event["type"] == "session.update" && event["update"]["content"]["text"] == "chunk 1 "
    })
    .await;
    proxy.cut();
    let events = near
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    let problem = &one(&events, "prompt.failed")["problem"];
    assert_eq!(problem["code"], "agent_disconnected", "{problem}");
    assert_eq!(problem["retryable"], true);
    let exited = one(&events, "agent.exited");
    assert!(
        exited["disconnected"]
            .as_str()
            .is_some_and(|reason| !reason.is_empty()),
        "{exited}"
    );
    let turn = near.turn(&session, "echo after").await;
    // The last chunks of the lost turn can arrive before its cancel.
    let text = turn["text"].as_str().expect("a text");
    assert!(
        turn["status"] == "completed" && text.ends_with("after"),
        "{turn}"
    );
    assert!(
        !text.contains("chunk 90 "),
        "the lost turn was cancelled: {text}"
    );
    let events = near.lawful(&session).await;
    let attached = all(&events, "session.attached");
    assert_eq!(attached.len(), 2);
    assert_ne!(attached[1]["by"], "new", "{}", attached[1]);
}

#[tokio::test]
async fn sessions_continue_after_the_remote_restarted() {
    let (near, mut far) = pair();
    let session = near.session("far").await;
    assert_eq!(near.turn(&session, "echo before").await["text"], "before");
    far.kill();
    let turn = near.turn(&session, "echo unreachable").await;
    assert_eq!(turn["error"]["code"], "agent_disconnected", "{turn}");
    far.start();
    let turn = near.turn(&session, "echo after").await;
    assert_eq!(
        (&turn["status"], &turn["text"]),
        (&json!("completed"), &json!("after")),
        "{turn}"
    );
}

#[tokio::test]
async fn wrong_token_is_reported_without_the_token() {
    let far = Setup::fake(&[]).start();
    for url in [acp(&far), acp(&far).replace("ws:", "http:")] {
        let near = near(&url, &far, "token = \"acpg_another-token\"").start();
        let failed = near
            .posted("/v1/sessions", &[], &json!({ "agent": "far" }))
            .await;
        let problem = failed.problem(502, "agent_start_failed");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(
            detail.contains("401") && detail.contains("[agents.far]"),
            "{detail}"
        );
        assert!(!detail.contains("another-token") && !near.log().contains("another-token"));
    }
}

/// Answers every connection with these bytes, and holds it open.
#[expect(
    clippy::disallowed_methods,
    reason = "the test's own task, which ends with the runtime"
)]
async fn host(response: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let _read = stream.read(&mut head).await;
            let _written = stream.write_all(response.as_bytes()).await;
            open.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn redirect_of_a_remote_is_not_followed() {
    let far = Setup::fake(&[]).start();
    let location = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    let address = host(location).await;
    for scheme in ["ws", "http"] {
        let near = near(&format!("{scheme}://{address}/acp"), &far, "").start();
        let failed = near
            .posted("/v1/sessions", &[], &json!({ "agent": "far" }))
            .await;
        let problem = failed.problem(502, "agent_start_failed");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|text| text.contains("follows no redirects")),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn silent_remote_fails_at_the_start_timeout() {
    let far = Setup::fake(&[]).start();
    let address = host("").await;
    for (scheme, status, code) in [
        ("ws", 502, "agent_disconnected"),
        ("http", 504, "agent_timeout"),
    ] {
        let near = near(
            &format!("{scheme}://{address}/acp"),
            &far,
            "start_timeout = \"500ms\"",
        )
        .start();
        let began = std::time::Instant::now();
        let failed = near
            .posted("/v1/sessions", &[], &json!({ "agent": "far" }))
            .await;
        failed.problem(status, code);
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
    }
}

/// A proxy that accepts CONNECT and connects to `to`, whatever the host. Returns its address and the first lines.
#[expect(
    clippy::disallowed_methods,
    reason = "the test's own tasks, which end with the runtime"
)]
async fn connect_proxy(
    to: std::net::SocketAddr,
) -> (std::net::SocketAddr, tokio::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (seen, lines) = tokio::sync::mpsc::channel(32);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a head"));
            }
            let line = String::from_utf8_lossy(&head)
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            seen.send(line).await.expect("the test reads");
            stream
                .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
                .await
                .expect("the gateway reads");
            let mut target = TcpStream::connect(to).await.expect("the target accepts");
            tokio::spawn(
                async move { tokio::io::copy_bidirectional(&mut stream, &mut target).await },
            );
        }
    });
    (address, lines)
}

#[tokio::test]
async fn remote_is_reached_through_the_proxy_of_the_environment() {
    let mut far = Setup::fake(&[]).start();
    crate::attach::set_public_url(&mut far, "http://agent.test:81");
    let (proxy, mut lines) = connect_proxy(far.address()).await;
    for scheme in ["ws", "http"] {
        let setup = near(
            &format!("{scheme}://agent.test:81/acp/fake"),
            &far,
            "insecure_http = true",
        );
        let near = setup.start_with(|_| vec![("http_proxy", format!("http://{proxy}").into())]);
        let session = near.session("far").await;
        assert_eq!(near.turn(&session, "echo through").await["text"], "through");
        assert_eq!(
            lines.recv().await.expect("a line"),
            "CONNECT agent.test:81 HTTP/1.1"
        );
    }
}
