//! Floods of rejected requests: bounded events, and every request counted.

use super::settled;
use crate::support::Setup;

#[tokio::test]
async fn a_flood_of_wrong_keys_writes_few_events_and_counts_every_request() {
    const REQUESTS: u64 = 3000;
    let mut gateway = Setup::fake(&[])
        .table("[testing]\naudit_window = \"1s\"")
        .start();
    let began = std::time::Instant::now();
    let mut rejected = 0;
    for number in 0..REQUESTS {
        let request = gateway
            .http
            .get(format!("{}/v1", gateway.url))
            .bearer_auth(format!("wrong{number}"));
        rejected += u64::from(matches!(
            request.send().await.expect("an answer").status().as_u16(),
            401 | 429
        ));
    }
    let windows = began.elapsed().as_secs() + 2;
    assert_eq!(rejected, REQUESTS);
    let events = settled(&mut gateway, "request.rejected").await;
    assert_eq!(
        events
            .iter()
            .filter_map(|event| event["count"].as_u64())
            .sum::<u64>(),
        REQUESTS
    );
    // Two reasons: invalid keys, and too many of them. Each has a first event and a number in each window.
    assert!(
        events.len() as u64 <= windows * 4,
        "{} events in {windows} windows",
        events.len()
    );
}
