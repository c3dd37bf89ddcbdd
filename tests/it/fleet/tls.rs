//! A member that connects through a proxy with TLS.

use super::{KEY, Member, assert_stream, ended, session};
use crate::attach::set_public_url;
use crate::attach::tls::TlsProxy;
use crate::support::Setup;

#[tokio::test]
async fn member_over_tls_needs_a_trusted_certificate() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut gateway = Setup::fake(&[]).start();
    let (proxy, certificate) = TlsProxy::start(folder.path(), &gateway);
    set_public_url(&mut gateway, &format!("https://localhost:{}", proxy.port));
    let url = format!("wss://localhost:{}/v1/fleet/connect", proxy.port);

    let certificate = certificate.to_str().expect("UTF-8");
    let member = Member::start_at(&url, "laptop", KEY, &["--ca-file", certificate]);
    let session = session(&gateway, &member, "laptop").await;
    let prompt = gateway.prompt(&session, "stream n=50").await;
    assert_eq!(
        ended(&gateway, &session, &prompt).await["status"],
        "completed",
        "{}",
        member.log()
    );
    assert_stream(&gateway, &session, &prompt, 50).await;

    let mut strict = Member::start_at(&url, "strict", KEY, &["--max-attempts", "1"]);
    assert_eq!(
        strict.child.wait().expect("the process is ours").code(),
        Some(1),
        "{}",
        strict.log()
    );
    assert!(
        strict.log().contains("certificate") && !strict.log().contains(KEY),
        "{}",
        strict.log()
    );
    assert_eq!(
        gateway.get("/v1/fleet").await["members"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}
