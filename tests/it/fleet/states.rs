//! The states of a member: in the log of `connect`, and as events of the audit log.

use serde_json::{Value, json};

use super::{Member, PATIENCE, address, session};
use crate::attach::set_public_url;
use crate::key_life::key;
use crate::support::gateway::KEY;
use crate::support::proxy::Proxy;
use crate::support::{Gateway, Setup, eventually};

/// The changes of the member `laptop`, as soon as there are so many.
async fn changes(gateway: &Gateway, count: usize) -> Vec<Value> {
    eventually("the changes are recorded", PATIENCE, || async {
        let audit = gateway.get("/v1/audit?types=fleet.&limit=1000").await;
        let events = audit["events"].as_array().expect("events").clone();
        (events.len() >= count).then_some(events)
    })
    .await
}

fn state(event: &Value) -> (&str, bool) {
    (
        event["state"].as_str().expect("a state"),
        event["error"].is_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_member_are_events_with_attempt_and_error() {
    let setup = Setup::fake(&[]).settings("testing.member_return_timeout = \"8s\"");
    let mut gateway = setup.start();
    let proxy = Proxy::start(gateway.address()).await;
    set_public_url(&mut gateway, &format!("http://{}", proxy.address));
    let mut member = Member::start(&proxy.address.to_string(), "laptop", KEY, &[]);
    session(&gateway, &member, "laptop").await;
    let first = &changes(&gateway, 1).await[0];
    assert_eq!(state(first), ("connected", false), "{first}");
    assert_eq!(
        (&first["member"], &first["attempt"]),
        (&json!("laptop"), &json!(0))
    );
    assert_eq!(
        (&first["actor"]["kind"], &first["actor"]["name"]),
        (&json!("key"), &first["key"])
    );

    proxy.cut();
    let returned = changes(&gateway, 3).await;
    assert_eq!(state(&returned[1]), ("reconnecting", true), "{returned:?}");
    assert_eq!(state(&returned[2]), ("connected", true), "{returned:?}");
    assert!(returned[2]["attempt"].as_u64() >= Some(1), "{returned:?}");

    assert_eq!(member.stop(), Some(0), "{}", member.log());
    let ended = changes(&gateway, 5).await;
    assert_eq!(state(&ended[3]).0, "reconnecting", "{ended:?}");
    assert_eq!(state(&ended[4]), ("disconnected", true), "{ended:?}");
    assert_eq!(ended[4]["actor"]["kind"], "gateway");
    let log = member.log();
    let states: Vec<Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|record| record["state"].is_string())
        .map(|record| record["state"].clone())
        .collect();
    assert_eq!(states.first(), Some(&json!("connecting")), "{log}");
    assert!(states.contains(&json!("reconnecting")), "{log}");
    assert_eq!(states.last(), Some(&json!("disconnected")), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_member_is_an_event_and_only_admins_read_it() {
    let gateway = Setup::fake(&[]).start();
    let mut rejected = Member::start(&address(&gateway), "fake", KEY, &["--max-attempts", "1"]);
    assert_eq!(
        rejected.child.wait().expect("the process is ours").code(),
        Some(1),
        "{}",
        rejected.log()
    );
    let failed = &changes(&gateway, 1).await[0];
    assert_eq!(state(failed), ("failed", true), "{failed}");
    assert!(rejected.log().contains("\"failed\""), "{}", rejected.log());
    let reader = key(&gateway, "reader", "read").await;
    let request = gateway
        .http
        .get(format!("{}/v1/audit", gateway.url))
        .bearer_auth(&reader);
    assert_eq!(request.send().await.expect("an answer").status(), 403);
}
