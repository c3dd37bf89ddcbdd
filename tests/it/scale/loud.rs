//! A session that floods, beside one in which a person waits for an answer.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ALONE, FLOOD, LIMITS, task};
use crate::support::{Events, Gateway, Setup, figure};

const SAMPLES: usize = 7;
const TRIES: usize = 6;
/// The time that a flood in another session may add until the agent reacts.
const MORE: Duration = Duration::from_millis(100);

/// From the POST until the agent's reaction is on the stream.
async fn cancel(gateway: &Gateway, session: &str, stream: &mut Events) -> Duration {
    gateway.prompt(session, "echo working").await;
    stream.until("prompt.completed").await;
    gateway.prompt(session, "stream n=1; hang").await;
    stream.until("session.update").await;
    let began = Instant::now();
    let (status, _) = gateway
        .post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
        .await;
    assert_eq!(status, 202);
    let events = stream.until("prompt.completed").await;
    let took = began.elapsed();
    assert_eq!(
        events.last().expect("until gives it").data["stopReason"],
        "cancelled"
    );
    took
}

/// The same for the answer to a permission request.
async fn answer(gateway: &Gateway, session: &str, stream: &mut Events) -> Duration {
    gateway.prompt(session, "permission").await;
    let asked = stream
        .until("request.created")
        .await
        .pop()
        .expect("until gives it")
        .data;
    let request = asked["requestId"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/permissions/{request}");
    let began = Instant::now();
    assert_eq!(
        gateway.post(&path, &json!({ "optionId": "allow" })).await.0,
        204
    );
    let mut took = None;
    loop {
        let event = stream.next().await.expect("the stream goes on");
        if event.data["update"]["content"]["text"] == "permission: allow" {
            took = Some(began.elapsed());
        }
        if event.of("prompt.completed") {
            return took.expect("the agent received the cancel");
        }
    }
}

/// Median and worst of some cancels and answers.
async fn measure(gateway: &Gateway, session: &str, stream: &mut Events) -> [Duration; 2] {
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        times.push(cancel(gateway, session, stream).await);
        times.push(answer(gateway, session, stream).await);
    }
    times.sort();
    [
        times[times.len() / 2],
        *times.last().expect("there are samples"),
    ]
}

/// Reads the output of a flood at full speed.
async fn listen(mut stream: Events) {
    while stream.bytes().await > 0 {}
}

/// A session with its stream.
async fn quiet(gateway: &Gateway) -> (String, Events) {
    let session = gateway.session("fake").await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    stream.until("ready").await;
    (session, stream)
}

/// The flood and other programs use the machine too. The test measures the same load on a second gateway at the same
/// time. The difference is the effect of sessions of one gateway on each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_delays_no_cancel_and_no_answer_of_another_session() {
    let _alone = ALONE.lock().await;
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let other = Setup::fake(&[]).settings(LIMITS).start();
    let (session, mut stream) = quiet(&gateway).await;
    let (control, mut control_stream) = quiet(&other).await;
    measure(&gateway, &session, &mut stream).await;
    measure(&other, &control, &mut control_stream).await;
    let [median, worst] = measure(&gateway, &session, &mut stream).await;
    figure(&format!(
        "from POST to the agent's reaction, median and worst: idle {median:?} {worst:?}"
    ));
    // One that lasts longer than the test.
    let loud = gateway.session("fake").await;
    let listener = gateway
        .events(&format!("/v1/sessions/{loud}/events?after=tail"))
        .await;
    let listener = task(listen(listener));
    gateway
        .prompt(&loud, &format!("flood n={}", 100 * FLOOD))
        .await;
    // A pause of the whole machine may hit one of the two; a gateway that delays does so in each try.
    let mut fits = false;
    for _ in 0..TRIES {
        let [idle, idle_worst] = measure(&other, &control, &mut control_stream).await;
        let before = gateway.last_seq(&loud).await;
        let [median, worst] = measure(&gateway, &session, &mut stream).await;
        let flooded = gateway.last_seq(&loud).await - before;
        figure(&format!(
            "beside {flooded} events: {median:?} {worst:?}; on another gateway: {idle:?} {idle_worst:?}"
        ));
        assert!(flooded > FLOOD / 100, "the flood goes on: {flooded}");
        fits = median <= idle + MORE && worst <= idle_worst + MORE;
        if fits {
            break;
        }
    }
    listener.abort();
    assert!(
        fits,
        "the worst of {SAMPLES} cancels and {SAMPLES} answers comes more than {MORE:?} later"
    );
}
