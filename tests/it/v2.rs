//! Agents that speak v2 of ACP: the same REST, another protocol behind it.

mod ask;
mod ends;
mod negotiation;
mod own_work;
mod parts;
mod sessions;
mod shown;

use crate::support::{Gateway, Setup};

/// The scripted agent in v2, with further lines for its entry.
fn setup(args: &[&str], more: &str) -> Setup {
    let args: Vec<&str> = ["--v2"].iter().chain(args).copied().collect();
    Setup::fake_with(&args, &format!("protocol = 2\n{more}"))
}

async fn fake() -> (Gateway, String) {
    let gateway = setup(&[], "")
        .settings("testing.min_backoff = \"10ms\"")
        .start();
    let session = gateway.session("fake").await;
    (gateway, session)
}
