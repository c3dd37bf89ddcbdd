//! Messages of the user that the agent sends during a turn.

use serde_json::json;

use crate::support::Setup;
use crate::support::log::all;

#[tokio::test]
async fn an_echo_of_the_open_prompt_is_only_in_the_log() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    // The first script sends the beginning of its own text back, in two chunks.
    for script in ["user text=user; user text=text=user", "user text=mine"] {
        let turn = gateway.turn(&session, script).await;
        assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    }
    let ended = |event: &serde_json::Value| {
        event["type"] == "prompt.completed" && event["promptId"] == "p2"
    };
    let events = gateway.log_until(&session, ended).await;
    let updates = all(&events, "session.update");
    let echoes: Vec<_> = updates
        .iter()
        .filter(|event| event["update"]["sessionUpdate"] == "user_message_chunk")
        .map(|event| {
            (
                event["update"]["content"]["text"].clone(),
                event["echo"].clone(),
            )
        })
        .collect();
    assert_eq!(
        echoes,
        [
            (json!("user"), json!(true)),
            (json!("text=user"), json!(true)),
            (json!("mine"), json!(null)),
        ]
    );
    let path = format!("/v1/sessions/{session}/transcript");
    let transcript = gateway.get(&path).await;
    let of_user = |turn: usize| {
        let items = transcript["turns"][turn]["items"]
            .as_array()
            .expect("items");
        items.iter().filter(|item| item["role"] == "user").count()
    };
    // The newest turn is the first.
    assert_eq!([of_user(1), of_user(0)], [0, 1], "{transcript}");
}
