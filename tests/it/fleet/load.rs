//! A full window: the agent writes more than the member keeps while the gateway cannot be reached.

use super::{Member, PATIENCE, assert_stream, ended, session};
use crate::attach::set_public_url;
use crate::support::gateway::KEY;
use crate::support::proxy::Proxy;
use crate::support::{Setup, eventually};

/// The chunks of 64 KiB of the turn. Together they exceed the window of 20 MiB.
const CHUNKS: usize = 500;

#[tokio::test(flavor = "multi_thread")]
async fn agent_waits_while_the_window_is_full_and_nothing_is_lost() {
    let mut gateway = Setup::fake(&[]).start();
    let proxy = Proxy::start(gateway.address()).await;
    set_public_url(&mut gateway, &format!("http://{}", proxy.address));
    let member = Member::start(&proxy.address.to_string(), "laptop", KEY, &[]);
    let session = session(&gateway, &member, "laptop").await;
    let prompt = gateway
        .prompt(&session, &format!("stream n={CHUNKS} size=65536 rate=100"))
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    proxy.refuse(true);
    proxy.cut();
    eventually("the window is full", PATIENCE, || async {
        member
            .log()
            .contains("the window is full; not reading the agent")
            .then_some(())
    })
    .await;
    let before = gateway.last_seq(&session).await;
    // The agent has more output than the window and the pipe, so it cannot have ended.
    assert!(before < CHUNKS as u64, "{before}");
    proxy.refuse(false);
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        end["status"],
        "completed",
        "{end}\n{}\n{}",
        gateway.log(),
        member.log()
    );
    assert_stream(&gateway, &session, &prompt, CHUNKS).await;
    assert!(member.connections() >= 2, "{}", member.log());
}
