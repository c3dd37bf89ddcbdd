//! The audit log: its events, its reads of sessions, its stream, its bounds, and the commands that read it.

mod command;
mod decisions;
mod events;
mod flood;
mod reads;
mod stream;

use std::time::Duration;

use serde_json::Value;

use crate::support::{Gateway, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

/// All events of the audit log. A page of a pruned log begins with a `reset`, which is not in the log.
async fn audit(gateway: &Gateway) -> Vec<Value> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = gateway.get(&format!("/v1/audit?limit=1000{after}")).await;
        let events = page["events"].as_array().expect("events").iter();
        all.extend(events.filter(|event| event["seq"].is_u64()).cloned());
        if page["more"] != true {
            return all;
        }
        after = format!("&after={}", page["lastEventId"].as_str().expect("a cursor"));
    }
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

/// Restarts the gateway, so that nothing is pending, and returns the events of this type.
pub(crate) async fn settled(gateway: &mut Gateway, kind: &str) -> Vec<Value> {
    gateway.stop();
    gateway.start();
    of(&audit(gateway).await, kind)
        .into_iter()
        .cloned()
        .collect()
}

/// Waits for the first event of this type.
async fn first(gateway: &Gateway, kind: &str) -> Value {
    eventually(kind, PATIENCE, || async {
        of(&audit(gateway).await, kind).first().copied().cloned()
    })
    .await
}
