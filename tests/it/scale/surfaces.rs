//! The cost of the chat protocols beside the stream of the API, which needs no conversion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::{ALONE, LIMITS};
use crate::support::gateway::is_other_binary;
use crate::support::{Gateway, Setup, figure, procfs};

/// The system counts processor time in steps of 10 ms, and a release build needs about 1 ms for 1,000 chunks.
const CHUNKS: u64 = 200_000;
const ROUNDS: usize = 5;
/// The limit of a release build on a quiet machine, and the factor that covers a machine with other work.
const MOST: f64 = 2.0;
const NOISE: f64 = 1.25;
const FIRST_CHUNKS: usize = 21;

/// A way to send a prompt to a session and to read its text.
struct Protocol {
    name: &'static str,
    request: fn(&Gateway, &str, &str) -> RequestBuilder,
    /// A part of the first frame with text.
    first: &'static [u8],
}

const PROTOCOLS: [Protocol; 5] = [
    Protocol {
        name: "REST",
        request: |gateway, session, prompt| {
            let request = gateway.request(
                Method::POST,
                &format!("/v1/sessions/{session}/prompts/stream"),
            );
            let request = request.header("accept", "text/event-stream");
            request.json(&json!({ "prompt": [{ "type": "text", "text": prompt }] }))
        },
        first: b"agent_message_chunk",
    },
    Protocol {
        name: "chat completions",
        request: |gateway, session, prompt| {
            let request = gateway.request(Method::POST, "/openai/v1/chat/completions");
            let messages = json!([{ "role": "user", "content": prompt }]);
            let content = json!({ "model": "fake", "stream": true, "messages": messages });
            request.header("x-acp-session-id", session).json(&content)
        },
        first: b"\"delta\":{\"content\":\"0",
    },
    Protocol {
        name: "responses",
        request: |gateway, session, prompt| {
            let conversation = format!("conv_{session}");
            gateway.request(Method::POST, "/openai/v1/responses").json(
                &json!({ "model": "fake", "stream": true, "input": prompt, "conversation": conversation }),
            )
        },
        first: b"response.output_text.delta",
    },
    Protocol {
        name: "AI SDK",
        request: |gateway, session, prompt| {
            let parts = json!([{ "type": "text", "text": prompt }]);
            let messages = json!([{ "id": fresh(), "role": "user", "parts": parts }]);
            gateway
                .request(Method::POST, "/ai-sdk/fake")
                .json(&json!({ "id": session, "messages": messages }))
        },
        first: b"text-delta",
    },
    Protocol {
        name: "AG-UI",
        request: |gateway, session, prompt| {
            let messages = json!([{ "id": fresh(), "role": "user", "content": prompt }]);
            gateway.request(Method::POST, "/ag-ui/fake").json(&json!({
                "threadId": session, "runId": fresh(), "protocolVersion": "1.0",
                "messages": messages, "tools": [], "context": [],
            }))
        },
        first: b"TEXT_MESSAGE_CONTENT",
    },
];

/// An id that no other message has.
fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("id{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Reads a turn to its end. Returns the time until the first text.
async fn turn(gateway: &Gateway, protocol: &Protocol, session: &str, prompt: &str) -> Duration {
    let began = Instant::now();
    let mut response = (protocol.request)(gateway, session, prompt)
        .send()
        .await
        .expect("an answer");
    assert_eq!(response.status(), 200, "{}", protocol.name);
    let mut head = Vec::new();
    let mut first = None;
    while let Some(bytes) = response.chunk().await.expect("the stream ends properly") {
        if first.is_none() {
            head.extend_from_slice(&bytes);
            if memchr::memmem::find(&head, protocol.first).is_some() {
                first = Some(began.elapsed());
            }
        }
    }
    first.unwrap_or_else(|| {
        panic!(
            "{} has no text: {}",
            protocol.name,
            String::from_utf8_lossy(&head)
        )
    })
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_protocols_cost_at_most_twice_the_stream_of_the_api() {
    let _alone = ALONE.lock().await;
    let is_release = is_other_binary() || !cfg!(debug_assertions);
    let most = if is_release { MOST * NOISE } else { 4.0 * MOST };
    let chunks = if is_release { CHUNKS } else { CHUNKS / 4 };
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let mut sessions = Vec::new();
    for _ in &PROTOCOLS {
        sessions.push(gateway.session("fake").await);
    }
    let flood = format!("flood n={chunks}");
    let mut ticks = [const { Vec::new() }; 5];
    let mut firsts = [const { Vec::new() }; 5];
    // The first round is not counted.
    for round in 0..=ROUNDS {
        for (at, (protocol, session)) in PROTOCOLS.iter().zip(&sessions).enumerate() {
            let before = procfs::processor_ticks(gateway.pid());
            turn(&gateway, protocol, session, &flood).await;
            let spent = procfs::processor_ticks(gateway.pid()) - before;
            if round > 0 {
                ticks[at].push(spent);
            }
        }
    }
    for _ in 0..FIRST_CHUNKS {
        for (at, (protocol, session)) in PROTOCOLS.iter().zip(&sessions).enumerate() {
            firsts[at].push(turn(&gateway, protocol, session, "flood n=1").await);
        }
    }
    let rest = ticks[0].clone();
    let first_of_rest = median(firsts[0].clone());
    for (at, protocol) in PROTOCOLS.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "few ticks")]
        let ratio = median(
            ticks[at]
                .iter()
                .zip(&rest)
                .map(|(own, rest)| *own as f64 / *rest as f64)
                .collect(),
        );
        let first = median(firsts[at].clone());
        figure(&format!(
            "{}: {ratio:.2} times the processor time of REST, first text after {first:?}",
            protocol.name
        ));
        assert!(
            ratio <= most,
            "{} costs {ratio} times as much",
            protocol.name
        );
        // The time of a turn scatters by some milliseconds.
        let latest =
            first_of_rest.mul_f64(1.5) + Duration::from_millis(if is_release { 2 } else { 10 });
        assert!(
            first <= latest,
            "{}: the first text comes after {first:?}, not {first_of_rest:?}",
            protocol.name
        );
    }
}
